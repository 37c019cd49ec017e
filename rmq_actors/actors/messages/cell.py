"""What an actor is to others: a path and a mailbox, which outlive its restarts, and the asks it waits for.

`Messaging` is what all cells of a system share. Both are the inside of the runtime: programs hold `ActorRef`s.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from contextvars import ContextVar

import attrs
import trio

from rmq_actors.actors.messages.dead_letters import DeadLetter, DeadLetters, Reason
from rmq_actors.actors.messages.mailbox import EMPTY, Mailbox, MailboxLimits
from rmq_actors.actors.restart import Terminated
from rmq_actors.actors.tracer import ActorTracer


class AskFailed(Exception):
    """An ask got no reply. The subclasses say why."""


class AskTimeout(AskFailed):
    """The deadline passed first."""


class AskCycle(AskFailed):
    """The asked actor waits, through others perhaps, for the asking one: neither could ever go on."""


class ActorStopped(AskFailed):
    """The actor stopped, or had, before it answered."""


class ActorDied(AskFailed):
    """The actor crashed before it answered; what it raised is the cause."""


class HandlerFailed(AskFailed):
    """The handler raised what its actor logs and goes on after; what it raised is the cause."""


class NotAnswered(AskFailed):
    """The handler returned without a reply, and kept no `ReplyTo`."""


@attrs.frozen(eq=False)
class Notice:
    """In the mailbox of a watcher: somebody has ended. What it is as a message is the watcher's own affair."""

    terminated: Terminated
    _as_message: Callable[[Terminated], object]

    def as_message(self) -> object:
        """The message that the watcher's handler gets."""
        return self._as_message(self.terminated)


@attrs.define(eq=False, repr=False)
class Messaging:
    """What all actors of a system share: where messages that nobody handles go, and whether messages are traced."""

    tracer: ActorTracer | None
    dead_letters: DeadLetters
    trace_messages: bool
    _next_link_id: int = attrs.field(default=0, init=False)

    def lose(self, message: object, to: str, reason: Reason) -> None:
        """Make `message` a dead letter."""
        self.dead_letters.add(DeadLetter(message, to, reason))
        if self.trace_messages and self.tracer is not None:
            self.tracer.dead_letter(to, reason, type(message).__name__)

    def sealed(self, message: object, to: str, reply: PendingReply | None, deadline: float) -> Envelope:
        """`message` in an envelope, numbered and traced if messages are."""
        if not self.trace_messages:
            return Envelope(message, reply, deadline)
        link_id, self._next_link_id = self._next_link_id, self._next_link_id + 1
        handling = HANDLING.get()
        seq = None
        if self.tracer is not None:
            sender, cause = ("", None) if handling is None else (handling.cell.path, handling.seq)
            seq = self.tracer.message_sent(sender, link_id, cause, to, type(message).__name__)
        return Envelope(message, reply, deadline, link_id, seq)


@attrs.define(eq=False, repr=False)
class PendingReply:
    """Where the answer to one ask arrives. The first answer wins; one after the asker gave up is not taken."""

    _task: trio.lowlevel.Task | None = attrs.field(default=None, init=False)
    value: object = attrs.field(default=None, init=False)
    _error: AskFailed | None = attrs.field(default=None, init=False)
    is_over: bool = attrs.field(default=False, init=False)
    #: The replies that an actor keeps for later, this one among them.
    kept_in: dict[PendingReply, None] | None = attrs.field(default=None, init=False)

    def succeed(self, value: object) -> bool:
        """Answer; False if nobody waits any more."""
        if self.is_over:
            return False
        self.value = value
        self._settle()
        return True

    def fail(self, error: AskFailed) -> None:
        """Let the ask raise `error`, if it still waits."""
        if not self.is_over:
            self._error = error
            self._settle()

    def abandon(self) -> None:
        """The asker has gone, answered or not."""
        if not self.is_over:
            self._settle()

    async def wait(self) -> object:
        """The answer. Raises what `fail` was given."""
        if not self.is_over:
            self._task = trio.lowlevel.current_task()

            def abort(_: object) -> trio.lowlevel.Abort:
                self._task = None
                self.abandon()
                return trio.lowlevel.Abort.SUCCEEDED

            await trio.lowlevel.wait_task_rescheduled(abort)
        if self._error is not None:
            raise self._error
        return self.value

    def _settle(self) -> None:
        self.is_over = True
        if self.kept_in is not None:
            self.kept_in.pop(self, None)
        if self._task is not None:
            task, self._task = self._task, None
            trio.lowlevel.reschedule(task)


@attrs.define(eq=False, repr=False)
class Envelope:
    """A message with what travels along: who waits for the answer, until when, and its place in the trace.

    A message that was only told, and is not traced, travels without.
    """

    message: object
    reply: PendingReply | None
    deadline: float
    link_id: int | None = None
    seq: int | None = None


@attrs.frozen(eq=False)
class Handling:
    """What the present task does: handle a message of `cell`, which has to be answered by `deadline` (trio time)."""

    cell: Cell
    deadline: float = math.inf
    seq: int | None = None


#: Set in the task of each actor, and in the tasks that its handlers start.
HANDLING: ContextVar[Handling | None] = ContextVar("rmq_actors.actors.handling", default=None)


def _cannot_stop() -> None:
    raise RuntimeError("this actor has no supervisor")


@attrs.define(eq=False, repr=False)
class Cell:
    """One actor, through all its lives."""

    path: str
    messaging: Messaging
    limits: MailboxLimits
    request_stop: Callable[[], None] = _cannot_stop
    mailbox: Mailbox = attrs.field(init=False)
    terminated: Terminated | None = attrs.field(default=None, init=False)
    #: The message under way, as it lay in the mailbox; `EMPTY` between two.
    under_way: object = attrs.field(default=EMPTY, init=False)
    #: The answers that its handler awaits, and the cells that are to give them.
    waits_for: dict[PendingReply, Cell] = attrs.field(factory=dict, init=False)
    _watchers: dict[object, Callable[[Terminated], None]] = attrs.field(factory=dict, init=False)

    def __attrs_post_init__(self) -> None:
        self.mailbox = Mailbox(self.limits, self._make_room)

    def watch(self, watcher: Callable[[Terminated], None]) -> Callable[[], None]:
        """Call `watcher` when the actor has ended for good, at once if it has; call what comes back to forget it."""
        if self.terminated is not None:
            watcher(self.terminated)
            return lambda: None
        key = object()
        self._watchers[key] = watcher

        def forget() -> None:
            self._watchers.pop(key, None)

        return forget

    def terminate(self, terminated: Terminated) -> None:
        """The actor has ended for good: fail what is queued and tell the watchers."""
        if self.terminated is not None:
            return
        self.terminated = terminated
        for item in self.mailbox.close():
            self.lose(item, "died" if terminated.kind == "crashed" else "stopped")
        watchers = tuple(self._watchers.values())
        self._watchers.clear()
        for watcher in watchers:
            watcher(terminated)

    def lose(self, item: object, reason: Reason, error: BaseException | None = None) -> None:
        """A message that was taken from the mailbox will not be handled: its asker is told, and it is a dead letter."""
        if isinstance(item, Envelope):
            if item.reply is not None:
                item.reply.fail(self.failure(reason, error))
            item = item.message
        elif isinstance(item, Notice):
            item = item.terminated
        self.messaging.lose(item, self.path, reason)

    def failure(self, reason: Reason, error: BaseException | None = None) -> AskFailed:
        """What an ask of this actor raises that ends for `reason`."""
        failure: AskFailed
        if reason in ("died", "crashed"):
            failure = ActorDied(f"{self.path} crashed")
            if error is None and self.terminated is not None:
                error = self.terminated.error
            failure.__cause__ = error
        elif reason in ("dropped_newest", "dropped_oldest", "superseded"):
            failure = AskFailed(f"the mailbox of {self.path} is full: the message was {reason.replace('_', ' ')}")
        elif reason == "expired":
            failure = AskTimeout(f"{self.path} did not answer in time")
        else:
            failure = ActorStopped(f"{self.path} has stopped")
        return failure

    def check_cycle(self, asker: Cell) -> None:
        """Raise `AskCycle` if `asker`, asking this one, would wait for itself."""
        path = self.path_to(asker, {})
        if path is not None:
            names = " -> ".join(cell.path for cell in (asker, *path))
            raise AskCycle(f"a cycle of asks: {names}")

    def path_to(self, target: Cell, seen: dict[Cell, None]) -> list[Cell] | None:
        """The cells from this one to `target`, each waiting for the next; None if there is no such path."""
        if self is target:
            return [self]
        seen[self] = None
        for reply, cell in self.waits_for.items():
            if not reply.is_over and cell not in seen and (path := cell.path_to(target, seen)) is not None:
                return [self, *path]
        return None

    def _make_room(self, item: object, reason: Reason) -> None:
        self.lose(item, reason)
