"""Bytes that a test has, put into a connection's receive buffer."""

from __future__ import annotations

from rmq_actors.wire.frame_reader import FrameReader


def feed(reader: FrameReader, data: bytes) -> None:
    """Let `reader` receive `data`."""
    rest = memoryview(data)
    while rest:
        with reader.free_space() as space:
            count = min(len(space), len(rest))
            space[:count] = rest[:count]
        reader.received(count)
        rest = rest[count:]
