"""`Actor`, what programs write; `Context`, what its handlers may do; `ActorSupervisor`, what starts actors."""

from __future__ import annotations

import abc
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

import attrs

from rmq_actors.actors.messages.cell import HANDLING, Cell, Envelope, Notice, PendingReply
from rmq_actors.actors.messages.mailbox import MailboxLimits
from rmq_actors.actors.messages.ref import ActorRef, ReplyTo, Request
from rmq_actors.actors.messages.timers import Timers
from rmq_actors.actors.restart import Restart, Strategy, Terminated
from rmq_actors.actors.services.supervisor import Supervisor

M = TypeVar("M")
M_contra = TypeVar("M_contra", contravariant=True)
N = TypeVar("N")
R = TypeVar("R")
N_contra = TypeVar("N_contra", contravariant=True)


class Actor(Generic[M]):
    """Base of actors that take messages of type `M`, which mostly is a union of attrs classes.

    One task runs the hooks and the handler, one at a time: its state needs no lock. A factory makes one for each
    incarnation, so a restart begins with fresh state. The mailbox outlives it.
    """

    __slots__ = ()

    async def on_start(self, context: Context[M]) -> None:
        """Before the first message, and before `spawn` returns. Raising is a failure to start."""

    async def handle(self, message: M, context: Context[M]) -> None:
        """One message. Raising is a crash, which the supervisor sees; an asker of it then gets `ActorDied`."""
        raise NotImplementedError(f"{type(self).__name__} handles no messages: define `handle`")

    async def on_stop(self, context: Context[M]) -> None:
        """After the last message, however the incarnation ends, as a `finally` does; not if `on_start` raised."""


@attrs.define(eq=False, repr=False)
class ActorSupervisor(Supervisor, abc.ABC):
    """A supervisor that starts actors too. Those that it makes below it are of its kind."""

    @abc.abstractmethod
    async def spawn(
        self,
        name: str,
        make: Callable[[], Actor[N]],
        *,
        restart: Restart | None = None,
        mailbox: MailboxLimits | None = None,
        log_and_go_on_after: tuple[type[Exception], ...] = (),
        stop_budget_s: float | None = None,
    ) -> ActorRef[N]:
        """Start an actor, and return when it is ready; `make` makes one for each incarnation.

        If a handler raises one of `log_and_go_on_after`, that is logged, and the actor goes on with the state that it
        has; by default each failure is a crash. Raises what `on_start` raises. ValueError if `name` is taken.
        """

    @abc.abstractmethod
    async def supervisor(
        self,
        name: str,
        *,
        strategy: Strategy = "one_for_one",
        restart: Restart | None = None,
        own_restart: Restart | None = None,
    ) -> ActorSupervisor:
        """Start a supervisor below this one. `restart` is for its children; `own_restart` for when it fails itself."""


@attrs.define(eq=False, repr=False)
class Context(Generic[M_contra]):
    """What an incarnation of an actor that takes `M` may do, in its handler and hooks."""

    ref: ActorRef[M_contra]
    timers: Timers[M_contra]
    _cell: Cell
    _spawn_children: Callable[[], Awaitable[ActorSupervisor]]
    _start_soon: Callable[[Callable[[], Awaitable[object]], str | None], None]
    is_stopping: bool = attrs.field(default=False, init=False)
    #: Answers that are given later, all failed when the incarnation ends.
    kept_replies: dict[PendingReply, None] = attrs.field(factory=dict, init=False)
    _watches: dict[object, Callable[[], None]] = attrs.field(factory=dict, init=False)

    def reply(self, request: Request[R], value: R) -> None:
        """Answer the message under way. ValueError if `request` is another: keep a `ReplyTo` to answer later."""
        ReplyTo[R](self._cell, self._pending(request)).send(value)

    def reply_to(self, request: Request[R]) -> ReplyTo[R]:
        """A way to answer the message under way after the handler has returned."""
        pending = self._pending(request)
        if pending is not None and not pending.is_over:
            self.kept_replies[pending] = None
            pending.kept_in = self.kept_replies
        return ReplyTo(self._cell, pending)

    async def spawn(
        self,
        name: str,
        make: Callable[[], Actor[N]],
        *,
        restart: Restart | None = None,
        mailbox: MailboxLimits | None = None,
        log_and_go_on_after: tuple[type[Exception], ...] = (),
    ) -> ActorRef[N]:
        """Start a child of this actor, as `ActorSupervisor.spawn` does. It is stopped before its parent ends."""
        children = await self._spawn_children()
        return await children.spawn(
            name, make, restart=restart, mailbox=mailbox, log_and_go_on_after=log_and_go_on_after
        )

    async def children(self) -> ActorSupervisor:
        """The supervisor of this actor's children, one_for_one, to spawn services and supervisors too."""
        return await self._spawn_children()

    def start_soon(self, run: Callable[[], Awaitable[object]], name: str | None = None) -> None:
        """Run something beside the handler, until the incarnation ends; what it raises is a crash of the actor."""

        async def run_in_background() -> None:
            HANDLING.set(None)
            await run()

        self._start_soon(run_in_background, name)

    def watch(self, ref: ActorRef[N_contra], as_message: Callable[[Terminated], M_contra]) -> None:
        """Send `as_message(notice)` to this actor, in the control lane, when that one has ended for good."""
        key = object()

        def notify(terminated: Terminated) -> None:
            self._watches.pop(key, None)
            self._cell.mailbox.put_system(Notice(terminated, as_message))

        forget = ref.watch(notify)
        if ref.terminated is None:
            self._watches[key] = forget

    def stop(self) -> None:
        """End this incarnation after the message under way, as `finished`: a permanent actor is then made again."""
        self.is_stopping = True
        self._cell.mailbox.wake()

    # --- for the incarnation ------------------------------------------------------------------------------------------

    def forget_watches(self) -> None:
        """The incarnation has ended."""
        for forget in tuple(self._watches.values()):
            forget()
        self._watches.clear()

    def _pending(self, request: object) -> PendingReply | None:
        item = self._cell.under_way
        if isinstance(item, Envelope) and item.message is request:
            return item.reply
        if item is request:
            return None
        raise ValueError(f"{self._cell.path}: {type(request).__name__} is not the message under way")
