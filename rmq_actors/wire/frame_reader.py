"""A stream of bytes, however it was split, to remoting frames (NettyDecoder, LengthFieldBasedFrameDecoder)."""

from __future__ import annotations

import struct

import attrs

from rmq_actors.wire.remoting_command import (
    FRAME_MAX_LENGTH_BYTES,
    RemotingCommand,
    RemotingCommandError,
    decode_command,
)

_LENGTH = struct.Struct(">i")
#: What a connection holds while nothing big arrives.
BUFFER_MIN_BYTES = 64 * 1024


@attrs.define(eq=False)
class FrameReader:
    """The receive buffer of one connection.

    Fill `free_space()`, tell `received(n)`, then take `commands()`. The buffer grows with what has really arrived,
    never with what a length field promises, and shrinks again behind a big frame.
    """

    frame_max_length_bytes: int = FRAME_MAX_LENGTH_BYTES
    _buffer: bytearray = attrs.field(factory=lambda: bytearray(BUFFER_MIN_BYTES), init=False)
    #: What has arrived and is not consumed stands from `_begin` to `_end`.
    _begin: int = attrs.field(default=0, init=False)
    _end: int = attrs.field(default=0, init=False)

    @property
    def pending_bytes(self) -> int:
        """Bytes of a frame that is not complete."""
        return self._end - self._begin

    def free_space(self) -> memoryview:
        """Where to receive the next bytes; never empty. Release it before the next call."""
        if self._end == len(self._buffer):
            self._make_room()
        return memoryview(self._buffer)[self._end :]

    def received(self, count: int) -> None:
        """Take `count` bytes of `free_space()` as arrived."""
        self._end += count

    def feed(self, data: bytes) -> None:
        """Take bytes that were received elsewhere."""
        while data:
            with self.free_space() as space:
                count = min(len(space), len(data))
                space[:count] = data[:count]
            self.received(count)
            data = data[count:]

    def commands(self) -> list[RemotingCommand]:
        """Every frame that is complete; call again until there is none.

        A bad frame ends the list, and the next call raises `RemotingCommandError`: the stream cannot be read on.
        """
        found: list[RemotingCommand] = []
        begin, end = self._begin, self._end
        with memoryview(self._buffer) as view:
            while end - begin >= 4:
                try:
                    frame_end = begin + 4 + self._length_at(begin)
                    if frame_end > end:
                        break
                    with view[begin + 4 : frame_end] as frame:
                        found.append(decode_command(frame))
                except RemotingCommandError:
                    if not found:
                        raise
                    break
                begin = frame_end
        self._begin = begin
        if begin == end:
            self._begin = self._end = 0
            if len(self._buffer) > BUFFER_MIN_BYTES:
                self._buffer = bytearray(BUFFER_MIN_BYTES)
        return found

    def _length_at(self, begin: int) -> int:
        (length,) = _LENGTH.unpack_from(self._buffer, begin)
        if length < 4 or length + 4 > self.frame_max_length_bytes:
            raise RemotingCommandError(
                f"a frame of {length} bytes: at least 4, at most {self.frame_max_length_bytes - 4} are read"
            )
        return int(length)

    def _make_room(self) -> None:
        """Move what is pending to the front; twice the room when that is not enough."""
        pending = self._end - self._begin
        size = len(self._buffer)
        if pending > size // 2:
            size *= 2
        elif pending <= BUFFER_MIN_BYTES // 2:
            size = BUFFER_MIN_BYTES
        buffer = bytearray(size)
        buffer[:pending] = memoryview(self._buffer)[self._begin : self._end]
        self._buffer, self._begin, self._end = buffer, 0, pending
