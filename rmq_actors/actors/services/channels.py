"""The channels between actors: each is declared once, with a name, a capacity and a policy, and can be listed.

`trio.open_memory_channel` is called here alone. A bounded channel makes its sender wait (one value a batch, never one a
message). A latest channel has room for one value and a newer one replaces it: right for values that supersede each
other, such as the end of the log. A broadcast is a latest channel for each of several receivers.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Generic, Literal, TypeVar

import attrs
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


@attrs.define(eq=False, repr=False)
class LatestSender(Generic[T]):
    """The sending end of a latest channel: never waits, and replaces a value that nobody has taken."""

    _send: trio.MemorySendChannel[T]
    _drain: trio.MemoryReceiveChannel[T]

    def put(self, value: T) -> None:
        """Make `value` the one that the receiver gets next. A receiver that is gone is no error."""
        try:
            self._send.send_nowait(value)
        except trio.WouldBlock:
            self._drain.receive_nowait()
            self._send.send_nowait(value)


def _open_latest() -> tuple[LatestSender[T], trio.MemoryReceiveChannel[T]]:
    send, receive = trio.open_memory_channel[T](1)
    return LatestSender(send, receive.clone()), receive


@attrs.frozen
class LatestChannel(Generic[T]):
    """A declared latest channel; open one for each use."""

    spec: ChannelSpec[T]

    @classmethod
    def declare(cls, name: str, *, carries: str, sender: str, receiver: str) -> LatestChannel[T]:
        """Declare a channel of one value, in which the latest wins."""
        return cls(_declare(ChannelSpec(name, "latest", 1, carries, sender, receiver)))

    def open(self) -> tuple[LatestSender[T], trio.MemoryReceiveChannel[T]]:
        """A fresh pair of ends."""
        return _open_latest()


#: From here on the receivers are numbered that let others go first.
_LAST = 1 << 62


def _number(item: tuple[int, object]) -> int:
    return item[0]


@attrs.define(eq=False, repr=False)
class Broadcast(Generic[T]):
    """One sender, any number of receivers, each with a latest channel of its own."""

    spec: ChannelSpec[T]
    _senders: dict[int, tuple[LatestSender[T], Callable[[T], bool] | None]] = attrs.field(factory=dict, init=False)
    _next: int = attrs.field(default=0, init=False)

    def put(self, value: T) -> None:
        """Hand `value` to every receiver, as they have subscribed; those that let others go first are last."""
        for sender, take in self._senders.values():
            if take is None or not take(value):
                sender.put(value)

    @contextlib.contextmanager
    def subscribe(
        self, take: Callable[[T], bool] | None = None, *, others_first: bool = False
    ) -> Iterator[trio.MemoryReceiveChannel[T]]:
        """A receiving end for as long as the context lasts; it sees values put after this call.

        `take` is called first, in the sender's step: a value for which it returns True needs no wake-up. It must not
        raise. With `others_first` it is called after all others, also those that subscribe later.
        """
        number, self._next = self._next, self._next + 1
        if others_first:
            number += _LAST
        ends: tuple[LatestSender[T], trio.MemoryReceiveChannel[T]] = _open_latest()
        sender, receive = ends
        self._senders[number] = sender, take
        if not others_first and len(self._senders) > 1:
            self._senders = dict(sorted(self._senders.items(), key=_number))
        try:
            yield receive
        finally:
            del self._senders[number]

    @property
    def receivers(self) -> int:
        """How many are subscribed."""
        return len(self._senders)


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
