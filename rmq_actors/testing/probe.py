"""Handlers of actors as plain functions: run without Trio, with what they do captured as values.

    probe = Probe()
    audit = probe.ref("audit")
    account = Account(audit)
    effects = probe.handle(account, Withdraw(5))
    assert effects.sent == [Sent("audit", Withdrawn(5))]

It works for handlers that wait for nothing but their context, and for refs that the probe made. One that awaits
something else (a sleep, a socket) raises `HandlerWaits`; test it in a `sim_net.World`.
"""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, NoReturn, TypeVar

import attrs

from rmq_actors.actors.messages.actor import Actor, ActorSupervisor, Context
from rmq_actors.actors.messages.cell import Cell, Envelope, Messaging, PendingReply
from rmq_actors.actors.messages.dead_letters import DeadLetters
from rmq_actors.actors.messages.mailbox import EMPTY, MailboxLimits
from rmq_actors.actors.messages.ref import ActorRef, Request
from rmq_actors.actors.messages.timers import Timer, Timers
from rmq_actors.actors.restart import Restart, Terminated

M = TypeVar("M")
N = TypeVar("N")


class HandlerWaits(RuntimeError):
    """A handler waits for something that is not its context's."""


@attrs.frozen
class Sent:
    """A message to the actor `to`; `in_control_lane` by `tell_control`."""

    to: str
    message: object
    in_control_lane: bool = False


@attrs.frozen
class TimerSet:
    """A timer; `is_periodic` by `every`."""

    delay_s: float
    message: object
    is_periodic: bool = False


@attrs.define
class Effects:
    """What a handler or hook did, each list in order. `replies` answer the message under way: none or one."""

    sent: list[Sent] = attrs.field(factory=list)
    asked: list[Sent] = attrs.field(factory=list)
    replies: list[object] = attrs.field(factory=list)
    timers: list[TimerSet] = attrs.field(factory=list)
    spawned: list[str] = attrs.field(factory=list)
    started: list[str] = attrs.field(factory=list)
    watched: list[str] = attrs.field(factory=list)
    #: The paths of actors that were asked to stop.
    stopped: list[str] = attrs.field(factory=list)
    #: It ends its own incarnation.
    finished: bool = False
    #: A `ReplyTo` was kept for later.
    kept_reply: bool = False


@attrs.define(eq=False, repr=False)
class Probe:
    """Runs the hooks and handlers of one actor. Its context, timers and all, lasts as long as the probe."""

    path: str = "probe"
    _effects: Effects = attrs.field(factory=Effects, init=False)
    _messaging: Messaging = attrs.field(init=False)
    _context: _ProbeContext = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self._messaging = Messaging(None, DeadLetters(0), trace_messages=False)
        timers = _ProbeTimers()
        self._context = _ProbeContext(self.ref(self.path), timers, self._cell(self.path), _no_children, _no_tasks)
        self._context.probe = timers.probe = self

    @property
    def effects(self) -> Effects:
        """Those of the call that runs, or ran last."""
        return self._effects

    def ref(self, path: str, answer: Callable[[Any], object] | None = None) -> ActorRef[Any]:
        """A reference for the actor under test: what is sent to it is captured.

        `answer` gives the reply to an ask; an exception that it returns is raised by the ask.
        """
        ref = _ProbeRef(self._cell(path))
        ref.probe, ref.answer = self, answer
        return ref

    def start(self, actor: Actor[M]) -> Effects:
        """Run `on_start`."""
        return self._run(actor.on_start(self._context))

    def handle(self, actor: Actor[M], message: M) -> Effects:
        """Run the handler for one message, asked if it is a `Request`. Raises what it raises, or `HandlerWaits`."""
        reply = PendingReply()
        cell = self._context.cell
        cell.under_way = Envelope(message, reply, math.inf) if isinstance(message, Request) else message
        try:
            effects = self._run(actor.handle(message, self._context))
        finally:
            cell.under_way = EMPTY
        effects.kept_reply = reply.kept_in is not None
        if reply.is_over:
            effects.replies.append(reply.value)
        return effects

    def stop(self, actor: Actor[M]) -> Effects:
        """Run `on_stop`."""
        return self._run(actor.on_stop(self._context))

    def _cell(self, path: str) -> Cell:
        return Cell(path, self._messaging, MailboxLimits())

    def _run(self, coroutine: Coroutine[Any, Any, None]) -> Effects:
        self._effects = Effects()
        self._context.is_stopping = False
        try:
            coroutine.send(None)
        except StopIteration:
            self._effects.finished = self._context.is_stopping
            return self._effects
        coroutine.close()
        raise HandlerWaits("the handler waits for something that is not its context's: run it in a World")


def run_handler(actor: Actor[M], message: M) -> Effects:
    """Run the handler of `actor` for one message, as `Probe.handle`, for actors that hold no refs."""
    return Probe().handle(actor, message)


@attrs.define(eq=False, repr=False)
class _ProbeRef(ActorRef[Any]):
    probe: Probe = attrs.field(init=False)
    answer: Callable[[Any], object] | None = attrs.field(init=False)

    async def tell(self, message: Any) -> None:  # noqa: ANN401  # as wide as the refs that it stands for
        self.probe.effects.sent.append(Sent(self.path, message))

    def try_tell(self, message: Any) -> bool:  # noqa: ANN401
        self.probe.effects.sent.append(Sent(self.path, message))
        return True

    def tell_control(self, message: Any) -> bool:  # noqa: ANN401
        self.probe.effects.sent.append(Sent(self.path, message, in_control_lane=True))
        return True

    async def ask(self, message: Any, timeout_s: float) -> Any:  # noqa: ANN401
        self.probe.effects.asked.append(Sent(self.path, message))
        if self.answer is None:
            raise HandlerWaits(f"{self.path} was asked and has no answer: give one to `Probe.ref`")
        answer = self.answer(message)
        if isinstance(answer, Exception):
            raise answer
        return answer

    def stop(self) -> None:
        self.probe.effects.stopped.append(self.path)

    async def wait_terminated(self) -> NoReturn:
        raise HandlerWaits(f"the handler waits for the end of {self.path}")


@attrs.define(eq=False, repr=False)
class _ProbeTimers(Timers[Any]):
    probe: Probe = attrs.field(init=False)

    def _add(self, delay_s: float, timer: Timer) -> Timer:
        effect = TimerSet(delay_s, timer.message, timer.interval_s is not None)
        self.probe.effects.timers.append(effect)
        return timer


async def _no_children() -> NoReturn:
    raise HandlerWaits("a probe runs no children")


def _no_tasks(_: object, __: object) -> NoReturn:
    raise HandlerWaits("a probe runs no tasks")


@attrs.define(eq=False, repr=False)
class _ProbeContext(Context[Any]):
    probe: Probe = attrs.field(init=False)

    @property
    def cell(self) -> Cell:
        return self._cell

    async def spawn(
        self,
        name: str,
        make: Callable[[], Actor[N]],
        *,
        restart: Restart | None = None,
        mailbox: MailboxLimits | None = None,
        log_and_go_on_after: tuple[type[Exception], ...] = (),
    ) -> ActorRef[N]:
        self.probe.effects.spawned.append(name)
        return self.probe.ref(f"{self.probe.path}/{name}")

    async def children(self) -> ActorSupervisor:
        return await _no_children()

    def start_soon(self, run: Callable[[], Awaitable[object]], name: str | None = None) -> None:
        self.probe.effects.started.append(name or str(getattr(run, "__name__", run)))

    def watch(self, ref: ActorRef[Any], as_message: Callable[[Terminated], Any]) -> None:
        self.probe.effects.watched.append(ref.path)
