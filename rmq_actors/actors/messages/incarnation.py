"""One life of an actor: hooks and loop, as a `Service` that a supervisor runs as it does any other."""

from __future__ import annotations

import logging
import math
from collections.abc import Awaitable, Callable
from typing import Final, Generic, TypeVar, cast

import attrs
import trio

from rmq_actors.actors.messages.actor import Actor, ActorSupervisor, Context
from rmq_actors.actors.messages.cell import HANDLING, Cell, Envelope, HandlerFailed, Handling, NotAnswered, Notice
from rmq_actors.actors.messages.dead_letters import Reason
from rmq_actors.actors.messages.mailbox import EMPTY
from rmq_actors.actors.messages.ref import ActorRef
from rmq_actors.actors.messages.timers import Timers
from rmq_actors.actors.restart import covers, first_leaf
from rmq_actors.actors.services.supervisor import Parent

M = TypeVar("M")

_log = logging.getLogger(__name__)

#: After so many messages without a wait the actor lets other tasks run.
MESSAGES_PER_TURN: Final = 16


@attrs.define(eq=False, repr=False)
class Incarnation(Parent, Generic[M]):
    """An actor from `on_start` to `on_stop`."""

    _cell: Cell
    _actor: Actor[M]
    _log_and_go_on_after: tuple[type[Exception], ...]
    _make_supervisor: Callable[[str], ActorSupervisor]
    _context: Context[M] = attrs.field(init=False)
    _idle: Handling = attrs.field(init=False)
    _nursery: trio.Nursery | None = attrs.field(default=None, init=False)
    _opening: trio.Lock = attrs.field(factory=trio.Lock, init=False)
    #: The supervisor of its children, once it has any.
    children: ActorSupervisor | None = attrs.field(default=None, init=False)

    def __attrs_post_init__(self) -> None:
        cell = self._cell
        self._idle = Handling(cell)
        self._context = Context(
            ActorRef(cell), Timers(wake=cell.mailbox.wake), cell, self._open_children, self._start_soon
        )

    @property
    def name(self) -> str:
        """The actor's path."""
        return self._cell.path

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Handle messages until it is stopped, stops itself, or crashes."""
        HANDLING.set(self._idle)
        failures: list[Exception] = []
        try:
            async with trio.open_nursery() as self._nursery:
                try:
                    await self._live(task_status)
                except Exception as error:  # noqa: BLE001  # raised below, without the nursery's group around it
                    failures.append(error)
                self._nursery.cancel_scope.cancel()
        except ExceptionGroup as beside:
            failures += beside.exceptions
        except BaseException as cancelled:
            if failures:
                raise BaseExceptionGroup(f"{self.name}: cancelled, and failed", [*failures, cancelled]) from None
            raise
        finally:
            self._nursery = None
            self._context.forget_watches()
            if self.children is not None:
                self.children.terminate()
            self._fail_what_is_open(failures)
        if len(failures) == 1:
            raise failures[0]
        if failures:
            raise ExceptionGroup(f"{self.name}: the actor and what ran beside it failed", failures)

    def supervisor_of_children(self) -> ActorSupervisor | None:
        """The supervisor of its children; None while there is none."""
        return self.children

    def request_stop(self) -> None:
        """End after the message under way."""
        self._context.is_stopping = True
        self._cell.mailbox.wake()

    async def _live(self, task_status: trio.TaskStatus[None]) -> None:
        await self._actor.on_start(self._context)
        try:
            task_status.started()
            await self._handle_messages()
            if self.children is not None:
                await self.children.stop()
        finally:
            await self._actor.on_stop(self._context)

    async def _handle_messages(self) -> None:
        context, cell, timers, handle = self._context, self._cell, self._context.timers, self._actor.handle
        mailbox = cell.mailbox
        left = MESSAGES_PER_TURN
        # One user message passes between two messages of timers that repeat: a slow one would starve all others.
        yields = False
        while not context.is_stopping:
            item = mailbox.take_control()
            if item is EMPTY and yields:
                item, yields = mailbox.take(), False
            if item is EMPTY:
                due = timers.next_due
                if due < math.inf and (timer := timers.take_due(trio.current_time())) is not None:
                    item, yields = timer.message, timer.interval_s is not None
                elif (item := mailbox.take()) is EMPTY:
                    await mailbox.wait(due)
                    left = MESSAGES_PER_TURN
                    continue
            cell.under_way = item
            try:
                kind = type(item)
                if kind is Envelope:
                    await self._open(cast("Envelope", item))
                elif kind is Notice:
                    await handle(cast("M", cast("Notice", item).as_message()), context)
                else:
                    await handle(cast("M", item), context)
            except Exception as error:
                if not self._goes_on_after(item, error):
                    self._lose(item, "crashed", error)
                    raise
            cell.under_way = EMPTY
            left -= 1
            if not left:
                await trio.lowlevel.checkpoint()
                left = MESSAGES_PER_TURN

    async def _open(self, envelope: Envelope) -> None:
        """Handle a message that is asked, or traced; not if its asker waits no more."""
        cell, reply, message = self._cell, envelope.reply, envelope.message
        if reply is not None and (reply.is_over or envelope.deadline <= trio.current_time()):
            cell.lose(envelope, "expired" if envelope.deadline <= trio.current_time() else "abandoned")
            return
        seq = None
        tracer = cell.messaging.tracer
        if envelope.link_id is not None and tracer is not None:
            seq = tracer.message_handled(cell.path, envelope.link_id, envelope.seq, type(message).__name__)
        HANDLING.set(Handling(cell, envelope.deadline, seq))
        try:
            await self._actor.handle(cast("M", message), self._context)
        finally:
            HANDLING.set(self._idle)
        if reply is not None and not reply.is_over and reply.kept_in is None:
            reply.fail(NotAnswered(f"{cell.path} did not answer {type(message).__name__}"))

    def _goes_on_after(self, item: object, error: Exception) -> bool:
        """Whether the actor was made to log what its handler raised and go on, which is done then."""
        if not covers(self._log_and_go_on_after, error):
            return False
        cell = self._cell
        cause = first_leaf(error)
        _log.error("%s goes on after %r", cell.path, cause)
        if cell.messaging.tracer is not None:
            cell.messaging.tracer.handler_failed(cell.path, cause)
        if isinstance(item, Envelope) and item.reply is not None:
            failure = HandlerFailed(f"{cell.path} failed to handle {type(item.message).__name__}")
            failure.__cause__ = error
            item.reply.fail(failure)
        return True

    def _lose(self, item: object, reason: Reason, error: Exception | None = None) -> None:
        """The message under way was not handled to its end; one that was answered was not lost."""
        if not (isinstance(item, Envelope) and item.reply is not None and item.reply.is_over):
            self._cell.lose(item, reason, error)
        self._cell.under_way = EMPTY

    def _fail_what_is_open(self, failures: list[Exception]) -> None:
        """The incarnation has ended: fail the message under way, if its handler was cancelled, and kept replies."""
        cell = self._cell
        reason: Reason = "crashed" if failures else "stopped"
        error = failures[0] if failures else None
        if cell.under_way is not EMPTY:
            self._lose(cell.under_way, reason, error)
        for reply in tuple(self._context.kept_replies):
            reply.fail(cell.failure(reason, error))

    async def _open_children(self) -> ActorSupervisor:
        async with self._opening:
            if self._nursery is None:
                raise RuntimeError(f"{self.name} is not running")
            if self.children is None:
                supervisor = self._make_supervisor(self.name)
                await self._nursery.start(supervisor.run)
                self.children = supervisor
            return self.children

    def _start_soon(self, run: Callable[[], Awaitable[object]], name: str | None) -> None:
        if self._nursery is None:
            raise RuntimeError(f"{self.name} is not running")
        self._nursery.start_soon(run, name=name)
