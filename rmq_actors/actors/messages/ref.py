"""`ActorRef`: how others reach an actor. It stays good through restarts, and after the end it says so."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Generic, Protocol, Self, TypeVar, cast

import attrs
import trio

from rmq_actors.actors.messages.cell import HANDLING, AskTimeout, Cell, PendingReply
from rmq_actors.actors.messages.mailbox import MailboxFull
from rmq_actors.actors.restart import Terminated

M_contra = TypeVar("M_contra", contravariant=True)
M_co = TypeVar("M_co", covariant=True)
R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)


class Request(Generic[R]):
    """Base of a message that is answered with an `R`: `class Balance(Request[int])`."""

    __slots__ = ()

    if TYPE_CHECKING:

        def _message_and_reply(self) -> tuple[Self, R]: ...


class Asks(Protocol[M_co, R_co]):
    """A message of type `M` that is a `Request[R]` too. Python has no type for "both": this Protocol finds the pair."""

    def _message_and_reply(self) -> tuple[M_co, R_co]: ...


@attrs.define(eq=False, repr=False)
class ActorRef(Generic[M_contra]):
    """A reference to an actor that takes messages of type `M`.

    Messages of one sender are handled in the order in which they were told, control messages before the others.
    """

    _cell: Cell

    def __repr__(self) -> str:
        return f"<ActorRef {self._cell.path}>"

    @property
    def path(self) -> str:
        """The actor's name, after those of its supervisors: "workers/w1"."""
        return self._cell.path

    @property
    def terminated(self) -> Terminated | None:
        """How the actor ended for good; None before."""
        return self._cell.terminated

    async def tell(self, message: M_contra) -> None:
        """Send, waiting for room if the mailbox's policy is `wait`. A checkpoint.

        A message that the policy drops, or to an actor that has ended, becomes a dead letter. Raises `MailboxFull`
        under the policy `fail`.
        """
        cell = self._cell
        messaging = cell.messaging
        item: object = messaging.sealed(message, cell.path, None, math.inf) if messaging.trace_messages else message
        mailbox = cell.mailbox
        await trio.lowlevel.checkpoint_if_cancelled()
        if mailbox.put_nowait(item):
            await trio.lowlevel.cancel_shielded_checkpoint()
            return
        if await mailbox.put(item):
            return
        if cell.mailbox.is_closed:
            messaging.lose(message, cell.path, "not_running")
        elif cell.limits.overflow == "fail":
            raise MailboxFull(f"the mailbox of {cell.path} holds {cell.limits.messages_max} messages already")
        else:
            messaging.lose(message, cell.path, "dropped_newest")

    def try_tell(self, message: M_contra) -> bool:
        """Send without ever waiting; False if the message was not taken, which then is the caller's to deal with."""
        cell = self._cell
        messaging = cell.messaging
        item: object = messaging.sealed(message, cell.path, None, math.inf) if messaging.trace_messages else message
        return cell.mailbox.put_nowait(item)

    def tell_control(self, message: M_contra) -> bool:
        """As `try_tell`, in the lane that passes all user messages."""
        cell = self._cell
        return cell.mailbox.put_control(cell.messaging.sealed(message, cell.path, None, math.inf))

    async def ask(self, message: Asks[M_contra, R], timeout_s: float) -> R:
        """Send and wait for the reply. A checkpoint.

        Within a handler the deadline is at most that of the ask that is being handled. An ask that waits no more is not
        handled. Raises `AskTimeout`, `ActorStopped`, `ActorDied`, `HandlerFailed`, `NotAnswered`; `AskCycle` at once
        where the reply could never come; `MailboxFull` unless the mailbox's policy is `wait`.
        """
        cell = self._cell
        deadline = trio.current_time() + timeout_s
        handling = HANDLING.get()
        reply = PendingReply()
        if handling is None:
            return cast("R", await _ask(cell, message, deadline, reply))
        asker = handling.cell
        cell.check_cycle(asker)
        asker.waits_for[reply] = cell
        try:
            return cast("R", await _ask(cell, message, min(deadline, handling.deadline), reply))
        finally:
            del asker.waits_for[reply]

    def stop(self) -> None:
        """Ask the actor to stop for good, after the message under way: what is queued is lost to dead letters."""
        self._cell.request_stop()

    async def wait_terminated(self) -> Terminated:
        """Wait until the actor has ended for good."""
        ended = trio.Event()
        forget = self._cell.watch(lambda _: ended.set())
        try:
            await ended.wait()
        finally:
            forget()
        terminated = self._cell.terminated
        assert terminated is not None
        return terminated

    def watch(self, watcher: Callable[[Terminated], None]) -> Callable[[], None]:
        """Call `watcher` once the actor has ended for good; call what comes back to forget it.

        For code outside of actors; an actor uses `context.watch`. `watcher` must neither raise nor wait: it runs in the
        supervisor's task.
        """
        return self._cell.watch(watcher)


async def _ask(cell: Cell, message: object, deadline: float, reply: PendingReply) -> object:
    envelope = cell.messaging.sealed(message, cell.path, reply, deadline)
    mailbox = cell.mailbox
    try:
        with trio.CancelScope(deadline=deadline):
            taken = mailbox.put_nowait(envelope) or (
                cell.limits.overflow == "wait" and not mailbox.is_closed and await mailbox.put(envelope)
            )
            if taken:
                return await reply.wait()
            if not mailbox.is_closed:
                raise MailboxFull(f"the mailbox of {cell.path} holds {mailbox.messages_max} messages already")
            terminated = cell.terminated
            crashed = terminated is not None and terminated.kind == "crashed"
            raise cell.failure("died" if crashed else "not_running")
    finally:
        reply.abandon()
    raise AskTimeout(f"{cell.path} did not answer {type(message).__name__} in time")


@attrs.define(eq=False, repr=False)
class ReplyTo(Generic[R]):
    """The answer to an ask, kept to be given after the handler has returned."""

    _cell: Cell
    _reply: PendingReply | None

    def send(self, value: R) -> None:
        """Answer. An answer that nobody waits for becomes a dead letter."""
        if self._reply is None:
            self._cell.messaging.lose(value, self._cell.path, "nobody_asked")
        elif not self._reply.succeed(value):
            self._cell.messaging.lose(value, self._cell.path, "late_reply")
