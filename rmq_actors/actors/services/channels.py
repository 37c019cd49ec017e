"""The channels between actors: each is declared once, with a name, a capacity and a policy, and can be listed.

A bounded channel makes its sender wait. Each of its values stands for a batch of messages. It is one of Trio's, and
`trio.open_memory_channel` is called here alone. A latest channel has room for one value and a newer one replaces it:
right for values that supersede each other, such as the end of the log. A broadcast is a latest channel for each of
several receivers.
"""

from __future__ import annotations

import contextlib
import enum
from collections.abc import Callable, Iterator
from typing import Generic, Literal, TypeVar

import attrs
import outcome
import trio

T = TypeVar("T")

Policy = Literal["wait", "latest", "broadcast"]


@attrs.frozen
class ChannelSpec(Generic[T]):
    """What a channel is for. `capacity` is in values; a broadcast has that many for each receiver."""

    name: str
    policy: Policy
    capacity: int
    carries: str
    sender: str
    receiver: str


#: Every declared channel by name.
CHANNELS: dict[str, ChannelSpec[object]] = {}


def _declare(spec: ChannelSpec[T]) -> ChannelSpec[T]:
    if spec.name in CHANNELS:
        raise ValueError(f"channel {spec.name} is declared twice")
    # The registry is for listing: the value type is erased.
    CHANNELS[spec.name] = spec  # type: ignore[assignment]  # pyright: ignore[reportArgumentType]
    return spec


@attrs.frozen
class BoundedChannel(Generic[T]):
    """A declared channel whose sender waits for room; open one for each use."""

    spec: ChannelSpec[T]

    @classmethod
    def declare(cls, name: str, capacity: int, *, carries: str, sender: str, receiver: str) -> BoundedChannel[T]:
        """Declare a channel whose sender waits when `capacity` values are queued."""
        return cls(_declare(ChannelSpec(name, "wait", capacity, carries, sender, receiver)))

    def open(self) -> tuple[trio.MemorySendChannel[T], trio.MemoryReceiveChannel[T]]:
        """A fresh pair of ends."""
        return trio.open_memory_channel[T](self.spec.capacity)


class _NoValue(enum.Enum):
    """What stands in a latest channel while there is no value in it: None may be one."""

    NO_VALUE = enum.auto()


@attrs.define(eq=False, repr=False)
class LatestReceiver(Generic[T]):
    """The receiving end of a latest channel, for one task at a time.

    A memory channel of one value would do, but it takes the time of four steps to make one, and a broker makes dozens.
    """

    #: The value that nobody has taken.
    _value: T | Literal[_NoValue.NO_VALUE] = attrs.field(default=_NoValue.NO_VALUE, init=False)
    _waiter: trio.lowlevel.Task | None = attrs.field(default=None, init=False)

    async def receive(self) -> T:
        """Wait for a value, and take it. A checkpoint. Raises `trio.BusyResourceError` if another task waits."""
        await trio.lowlevel.checkpoint_if_cancelled()
        if self._value is not _NoValue.NO_VALUE:
            value, self._value = self._value, _NoValue.NO_VALUE
            await trio.lowlevel.cancel_shielded_checkpoint()
            return value
        if self._waiter is not None:
            raise trio.BusyResourceError("another task waits for this channel's next value")
        self._waiter = trio.lowlevel.current_task()
        received: T = await trio.lowlevel.wait_task_rescheduled(self._abort)
        return received

    def receive_nowait(self) -> T:
        """Take the value. Raises `trio.WouldBlock` if there is none."""
        value, self._value = self._value, _NoValue.NO_VALUE
        if value is _NoValue.NO_VALUE:
            raise trio.WouldBlock
        return value

    def give(self, value: T) -> None:
        """For the sending end: hand the value to the task that waits, or keep it instead of the one before."""
        waiter, self._waiter = self._waiter, None
        if waiter is None:
            self._value = value
        else:
            trio.lowlevel.reschedule(waiter, outcome.Value(value))

    def __aiter__(self) -> LatestReceiver[T]:
        return self

    async def __anext__(self) -> T:
        return await self.receive()

    def _abort(self, _: trio.lowlevel.RaiseCancelT) -> trio.lowlevel.Abort:
        self._waiter = None
        return trio.lowlevel.Abort.SUCCEEDED


@attrs.frozen(eq=False, repr=False)
class LatestSender(Generic[T]):
    """The sending end of a latest channel: never waits, and replaces a value that nobody has taken."""

    _receiver: LatestReceiver[T]

    def put(self, value: T) -> None:
        """Make `value` the one that the receiver gets next."""
        self._receiver.give(value)


@attrs.frozen
class LatestChannel(Generic[T]):
    """A declared latest channel; open one for each use."""

    spec: ChannelSpec[T]

    @classmethod
    def declare(cls, name: str, *, carries: str, sender: str, receiver: str) -> LatestChannel[T]:
        """Declare a channel of one value, in which the latest wins."""
        return cls(_declare(ChannelSpec(name, "latest", 1, carries, sender, receiver)))

    def open(self) -> tuple[LatestSender[T], LatestReceiver[T]]:
        """A fresh pair of ends."""
        receive: LatestReceiver[T] = LatestReceiver()
        return LatestSender(receive), receive


#: From here on the receivers are numbered that let others go first.
_LAST = 1 << 62


def _number(item: tuple[int, object]) -> int:
    return item[0]


@attrs.define(eq=False, repr=False)
class Broadcast(Generic[T]):
    """One sender, any number of receivers, each with a latest channel of its own."""

    spec: ChannelSpec[T]
    _receivers: dict[int, tuple[LatestReceiver[T], Callable[[T], bool] | None]] = attrs.field(factory=dict, init=False)
    _next: int = attrs.field(default=0, init=False)

    def put(self, value: T) -> None:
        """Hand `value` to every receiver, as they have subscribed; those that let others go first are last."""
        for receive, take in self._receivers.values():
            if take is None or not take(value):
                receive.give(value)

    @contextlib.contextmanager
    def subscribe(
        self, take: Callable[[T], bool] | None = None, *, others_first: bool = False
    ) -> Iterator[LatestReceiver[T]]:
        """A receiving end for as long as the context lasts; it sees values put after this call.

        `take` is called first, in the sender's step: a value for which it returns True needs no wake-up. It must not
        raise. With `others_first` it is called after all others, also those that subscribe later.
        """
        number, self._next = self._next, self._next + 1
        if others_first:
            number += _LAST
        receive: LatestReceiver[T] = LatestReceiver()
        self._receivers[number] = receive, take
        if not others_first and len(self._receivers) > 1:
            self._receivers = dict(sorted(self._receivers.items(), key=_number))
        try:
            yield receive
        finally:
            del self._receivers[number]

    @property
    def receivers(self) -> int:
        """How many are subscribed."""
        return len(self._receivers)


@attrs.frozen
class BroadcastChannel(Generic[T]):
    """A declared broadcast; open one for each use."""

    spec: ChannelSpec[T]

    @classmethod
    def declare(cls, name: str, *, carries: str, sender: str, receiver: str) -> BroadcastChannel[T]:
        """Declare a broadcast: a latest channel a receiver."""
        return cls(_declare(ChannelSpec(name, "broadcast", 1, carries, sender, receiver)))

    def open(self) -> Broadcast[T]:
        """A fresh broadcast without receivers."""
        return Broadcast(self.spec)
