"""A bounded mailbox with two lanes: control messages pass user messages, and a full one does what its policy says.

One task receives, any number send. It knows no actors: what it holds is opaque. `put` is a checkpoint; taking is not:
the actor's loop makes one every few messages.
"""

from __future__ import annotations

import collections
from collections.abc import Callable
from typing import Any, Final, Literal, get_args

import attrs
import trio

from rmq_actors.actors.field_checks import check_whole_number, one_of

#: What a full mailbox does with one more message. `wait`: the sender waits for room (back-pressure). `drop_newest`: the
#: new one is lost. `drop_oldest`: the one that has waited longest is lost. `fail`: the sender gets `MailboxFull`.
#: `latest`: room for one message, which a newer one replaces.
Overflow = Literal["wait", "drop_newest", "drop_oldest", "fail", "latest"]


class MailboxFull(Exception):
    """A message found no room in a mailbox."""


def _positive(instance: object, attribute: attrs.Attribute[Any], value: int) -> None:
    check_whole_number(instance, attribute, value)
    if value < 1:
        raise ValueError(f"{attribute.name} of a mailbox must be 1 or more, not {value}")


@attrs.frozen
class MailboxLimits:
    """How many messages a mailbox holds in each lane, and what happens to one more user message.

    Under `latest` the user lane holds one, whatever `messages_max` says. A control message too many is always refused.
    """

    messages_max: int = attrs.field(default=64, validator=_positive)
    overflow: Overflow = attrs.field(default="wait", validator=one_of(get_args(Overflow)))
    control_messages_max: int = attrs.field(default=64, validator=_positive)


class Empty:
    """The type of `EMPTY`."""


#: What `take` gives when there is nothing.
EMPTY: Final = Empty()

#: Told of a message that was queued and had to make room, and by which policy.
OnDropped = Callable[[object, Literal["dropped_oldest", "superseded"]], None]


@attrs.define(eq=False, repr=False)
class _Sender:
    task: trio.lowlevel.Task
    item: object
    taken: bool = False


@attrs.define(eq=False, repr=False)
class Mailbox:
    """The queue of one actor; it outlives the actor's restarts."""

    limits: MailboxLimits
    _on_dropped: OnDropped
    messages_max: int = attrs.field(init=False)
    is_closed: bool = attrs.field(default=False, init=False)
    _queue: collections.deque[object] = attrs.field(factory=collections.deque, init=False)
    _control: collections.deque[object] = attrs.field(factory=collections.deque, init=False)
    _receiver: trio.lowlevel.Task | None = attrs.field(default=None, init=False)
    _senders: dict[_Sender, None] = attrs.field(factory=dict, init=False)

    def __attrs_post_init__(self) -> None:
        self.messages_max = 1 if self.limits.overflow == "latest" else self.limits.messages_max

    def __len__(self) -> int:
        return len(self._queue)

    @property
    def control_messages(self) -> int:
        """How many control messages wait."""
        return len(self._control)

    @property
    def waiting_senders(self) -> int:
        """How many tasks wait for room."""
        return len(self._senders)

    def put_nowait(self, item: object) -> bool:
        """Queue `item` after the others, or do what the policy says; False if it was not taken. Never waits."""
        if self.is_closed:
            return False
        queue = self._queue
        if len(queue) >= self.messages_max:
            overflow = self.limits.overflow
            if overflow == "drop_oldest":
                self._on_dropped(queue.popleft(), "dropped_oldest")
            elif overflow == "latest":
                self._on_dropped(queue.popleft(), "superseded")
            else:
                return False
        queue.append(item)
        if self._receiver is not None:
            self._wake_receiver()
        return True

    async def put(self, item: object) -> bool:
        """As `put_nowait`, but under `wait` it waits for room; False if the mailbox is closed. A checkpoint.

        Cancelled, it has not queued `item`.
        """
        await trio.lowlevel.checkpoint_if_cancelled()
        if self.put_nowait(item):
            await trio.lowlevel.cancel_shielded_checkpoint()
            return True
        if self.is_closed or self.limits.overflow != "wait":
            await trio.lowlevel.cancel_shielded_checkpoint()
            return False
        sender = _Sender(trio.lowlevel.current_task(), item)
        self._senders[sender] = None

        def abort(_: object) -> trio.lowlevel.Abort:
            del self._senders[sender]
            return trio.lowlevel.Abort.SUCCEEDED

        await trio.lowlevel.wait_task_rescheduled(abort)
        return sender.taken

    def put_control(self, item: object) -> bool:
        """Queue `item` before every user message; False if there is no room, or the mailbox is closed. Never waits."""
        if len(self._control) >= self.limits.control_messages_max:
            return False
        return self.put_system(item)

    def put_system(self, item: object) -> bool:
        """As `put_control`, for the runtime's own, which are few: there is always room."""
        if self.is_closed:
            return False
        self._control.append(item)
        if self._receiver is not None:
            self._wake_receiver()
        return True

    def take_control(self) -> object:
        """The next control message, or `EMPTY`."""
        return self._control.popleft() if self._control else EMPTY

    def take(self) -> object:
        """The next user message, or `EMPTY`; the sender that has waited longest then has room."""
        if not self._queue:
            return EMPTY
        item = self._queue.popleft()
        if self._senders:
            sender = next(iter(self._senders))
            del self._senders[sender]
            self._queue.append(sender.item)
            sender.taken = True
            trio.lowlevel.reschedule(sender.task)
        return item

    async def wait(self, deadline: float) -> None:
        """Wait until there is something to take, `wake` is called, or `deadline` (trio time) is reached.

        A checkpoint if it has to wait.
        """
        if self._queue or self._control:
            return
        if deadline == float("inf"):
            await self._park()
        else:
            with trio.CancelScope(deadline=deadline):
                await self._park()

    def wake(self) -> None:
        """End the present wait of the receiver."""
        if self._receiver is not None:
            self._wake_receiver()

    def close(self) -> list[object]:
        """Refuse everything from now on, those that wait for room included, and hand back what was queued."""
        self.is_closed = True
        left = [*self._control, *self._queue]
        self._control.clear()
        self._queue.clear()
        senders = tuple(self._senders)
        self._senders.clear()
        for sender in senders:
            trio.lowlevel.reschedule(sender.task)
        return left

    def _wake_receiver(self) -> None:
        receiver = self._receiver
        self._receiver = None
        if receiver is not None:
            trio.lowlevel.reschedule(receiver)

    async def _park(self) -> None:
        if self._receiver is not None:
            raise trio.BusyResourceError("another task receives from this mailbox")
        self._receiver = trio.lowlevel.current_task()

        def abort(_: object) -> trio.lowlevel.Abort:
            self._receiver = None
            return trio.lowlevel.Abort.SUCCEEDED

        await trio.lowlevel.wait_task_rescheduled(abort)
