"""A stream of bytes, however it was split, to remoting frames (NettyDecoder, LengthFieldBasedFrameDecoder)."""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import TypeVar

import attrs

from rmq_actors.wire.remoting_command import (
    FRAME_MAX_LENGTH_BYTES,
    RemotingCommand,
    RemotingCommandError,
    decode_command_within,
)

_LENGTH = struct.Struct(">i")
Frame = TypeVar("Frame")
#: What a connection holds on which little arrives at a time.
BUFFER_MIN_BYTES = 4 * 1024
#: What it holds when more does, but for a frame that is larger.
BUFFER_BYTES = 64 * 1024
#: The most that is received at a time: what arrives together is handled together, and other connections wait.
RECEIVE_MAX_BYTES = 256 * 1024
#: With less room after what is pending, that is moved, or the buffer grows.
_ROOM_MIN_BYTES = 1024
#: So many receives in a row that would have fitted into the smallest buffer make it the smallest.
_SMALL_RECEIVES = 16


def buffer_bytes_for(frame_bytes: int, usual_bytes: int = BUFFER_BYTES) -> int:
    """The size of the buffer in which a frame of so many bytes arrives."""
    size = usual_bytes
    while size < frame_bytes + _ROOM_MIN_BYTES:
        size *= 2
    return size


@attrs.define(eq=False, repr=False)
class FrameReader:
    """The receive buffer of one connection.

    Fill `free_space()`, tell `received(n)`, then take `commands()`. The buffer grows with what has really arrived,
    never with what a length field promises: it is at most `BUFFER_BYTES`, or about twice what is pending.
    """

    frame_max_length_bytes: int = FRAME_MAX_LENGTH_BYTES
    #: Told when a buffer larger than `BUFFER_BYTES` is there: its size, and 0 when it is gone again.
    holds_large: Callable[[int], None] | None = None
    _buffer: bytearray = attrs.field(factory=lambda: bytearray(BUFFER_MIN_BYTES), init=False)
    #: What has arrived and is not consumed stands from `_begin` to `_end`.
    _begin: int = attrs.field(default=0, init=False)
    _end: int = attrs.field(default=0, init=False)
    #: What the buffer is to be when no large frame is pending.
    _usual_bytes: int = attrs.field(default=BUFFER_MIN_BYTES, init=False)
    _small_receives: int = attrs.field(default=0, init=False)

    @property
    def pending_bytes(self) -> int:
        """Bytes of a frame that is not complete."""
        return self._end - self._begin

    @property
    def buffer_bytes(self) -> int:
        """The memory held."""
        return len(self._buffer)

    def free_space(self) -> memoryview:
        """Where to receive the next bytes; never empty. Release it before the next call."""
        if len(self._buffer) - self._end < _ROOM_MIN_BYTES:
            self._make_room()
        return memoryview(self._buffer)[self._end : self._end + RECEIVE_MAX_BYTES]

    def received(self, count: int) -> None:
        """Take `count` bytes of `free_space()` as arrived."""
        self._end += count
        if count > BUFFER_MIN_BYTES - _ROOM_MIN_BYTES:
            self._usual_bytes, self._small_receives = BUFFER_BYTES, 0
        elif self._usual_bytes != BUFFER_MIN_BYTES:
            self._small_receives += 1
            if self._small_receives == _SMALL_RECEIVES:
                self._usual_bytes = BUFFER_MIN_BYTES

    def commands(self) -> list[RemotingCommand]:
        """`frames` as commands."""
        return self.frames(decode_command_within)

    def frames(self, decode: Callable[[memoryview, int, int], Frame]) -> list[Frame]:
        """Every frame that is complete, by `decode`; call again until there is none.

        A bad frame ends the list, and the next call raises `RemotingCommandError`: the stream cannot be read on. What
        `decode` keeps of the buffer is valid until the next `free_space`.
        """
        return self._frames(memoryview(self._buffer), 0, decode)

    def copied_frames(self, decode: Callable[[memoryview, int, int], Frame]) -> list[Frame]:
        """`frames` out of a copy: what `decode` keeps is valid for as long as it is kept."""
        begin, end = self._begin, self._end
        # A large frame is copied once, when all of it is there.
        if end - begin < 4 or begin + 4 + self._length_at(begin) > end:
            return []
        return self._frames(memoryview(bytes(memoryview(self._buffer)[begin:end])), begin, decode)

    def _frames(
        self, data: memoryview, data_begin: int, decode: Callable[[memoryview, int, int], Frame]
    ) -> list[Frame]:
        """The complete frames, out of `data`, which begins with byte `data_begin` of the buffer."""
        found: list[Frame] = []
        begin, end = self._begin, self._end
        while end - begin >= 4:
            try:
                frame_end = begin + 4 + self._length_at(begin)
                if frame_end > end:
                    break
                found.append(decode(data, begin + 4 - data_begin, frame_end - data_begin))
            except RemotingCommandError:
                if not found:
                    raise
                break
            begin = frame_end
        if begin == end:
            begin = self._end = 0
        self._begin = begin
        if len(self._buffer) != self._usual_bytes:
            self._fit()
        return found

    def _length_at(self, begin: int) -> int:
        (length,) = _LENGTH.unpack_from(self._buffer, begin)
        if length < 4 or length + 4 > self.frame_max_length_bytes:
            raise RemotingCommandError(
                f"a frame of {length} bytes: at least 4, at most {self.frame_max_length_bytes - 4} are read"
            )
        return int(length)

    def _make_room(self) -> None:
        pending = self._end - self._begin
        if pending + _ROOM_MIN_BYTES > len(self._buffer):
            self._fit()
            return
        view = memoryview(self._buffer)
        view[:pending] = view[self._begin : self._end]
        self._begin, self._end = 0, pending

    def _fit(self) -> None:
        """A buffer of the size that what is pending needs, when this one is not."""
        pending = self._end - self._begin
        size = buffer_bytes_for(pending, self._usual_bytes)
        if size == len(self._buffer):
            return
        buffer = bytearray(size)
        buffer[:pending] = memoryview(self._buffer)[self._begin : self._end]
        was_large = len(self._buffer) > BUFFER_BYTES
        self._buffer, self._begin, self._end = buffer, 0, pending
        if self.holds_large is not None and (size > BUFFER_BYTES or was_large):
            self.holds_large(size if size > BUFFER_BYTES else 0)

    def close(self) -> None:
        """Give the buffer back: nothing is received any more. What was read of it stays readable."""
        was_large = len(self._buffer) > BUFFER_BYTES
        self._buffer, self._begin, self._end = bytearray(), 0, 0
        if self.holds_large is not None and was_large:
            self.holds_large(0)
