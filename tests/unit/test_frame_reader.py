"""The receive buffer of a connection: any split gives the same frames, and it holds no more than has arrived."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmq_actors.wire.frame_reader import BUFFER_BYTES, BUFFER_MIN_BYTES, RECEIVE_MAX_BYTES, FrameReader
from rmq_actors.wire.remoting_command import (
    FRAME_MAX_LENGTH_BYTES,
    RemotingCommand,
    RemotingCommandError,
    encode_command,
)
from tests.worlds.fed_frames import feed

#: What makes room before a receive: less than so much is not worth a system call.
ROOM_BYTES = 1024

#: Sizes of bodies, and of receives: small ones byte by byte, large ones in larger pieces.
STREAMS = st.one_of(
    st.tuples(st.lists(st.integers(0, 500), max_size=5), st.lists(st.integers(1, 300), min_size=1, max_size=8)),
    st.tuples(st.lists(st.integers(0, 70_000), max_size=8), st.lists(st.integers(500, 99_999), min_size=1, max_size=8)),
    st.tuples(
        st.lists(st.sampled_from([0, 200_000, 600_000]), max_size=6),
        st.lists(st.integers(4000, 400_000), min_size=1, max_size=8),
    ),
)


def commands_of(sizes: list[int]) -> list[RemotingCommand]:
    return [RemotingCommand(10, {"n": str(number)}, body=bytes([number]) * size) for number, size in enumerate(sizes)]


def stream_of(commands: list[RemotingCommand]) -> bytes:
    return b"".join(map(encode_command, commands))


def receive(reader: FrameReader, data: bytes, sizes: Iterator[int]) -> Iterator[int]:
    """Put `data` into the reader as a socket would, so many bytes at a time, as far as there is room; all until now."""
    rest = memoryview(data)
    while rest:
        with reader.free_space() as space:
            assert ROOM_BYTES <= len(space) <= RECEIVE_MAX_BYTES
            count = min(next(sizes), len(space), len(rest))
            space[:count] = rest[:count]
        reader.received(count)
        rest = rest[count:]
        yield len(data) - len(rest)


def endless(sizes: list[int]) -> Iterator[int]:
    while True:
        yield from sizes


def take(reader: FrameReader, data: bytes, size: int) -> list[RemotingCommand]:
    """What is complete after receives of that size."""
    return [command for _ in receive(reader, data, endless([size])) for command in reader.commands()]


def check_memory(reader: FrameReader) -> None:
    """Twice of what waits, or the usual buffer; whatever lengths were promised."""
    assert reader.buffer_bytes <= max(BUFFER_BYTES, 2 * (reader.pending_bytes + ROOM_BYTES))


@given(STREAMS)
def test_any_receives_give_the_same_frames_in_bounded_memory(sizes_and_counts: tuple[list[int], list[int]]) -> None:
    sizes, counts = sizes_and_counts
    commands = commands_of(sizes)
    stream = stream_of(commands)
    reader, found = FrameReader(), list[RemotingCommand]()
    for arrived_bytes in receive(reader, stream, endless(counts)):
        check_memory(reader)
        found += reader.commands()
        assert reader.pending_bytes == arrived_bytes - len(stream_of(found))
        assert reader.commands() == []
        check_memory(reader)
    assert found == commands
    assert reader.buffer_bytes <= BUFFER_BYTES


@given(st.lists(st.integers(0, 3000), min_size=1, max_size=30), st.lists(st.integers(1, 9000), min_size=1, max_size=9))
def test_bytes_received_elsewhere_give_the_same_frames(sizes: list[int], counts: list[int]) -> None:
    """However many pieces come before they are asked for."""
    commands, reader = commands_of(sizes), FrameReader()
    stream, found = stream_of(commands), []
    for number, count in enumerate(endless(counts)):
        if not stream:
            break
        feed(reader, stream[:count])
        stream = stream[count:]
        if number % 3 == 0:
            found += reader.commands()
        check_memory(reader)
    assert found + reader.commands() == commands


def test_a_promised_length_takes_no_memory() -> None:
    reader = FrameReader()
    feed(reader, (FRAME_MAX_LENGTH_BYTES - 4).to_bytes(4, "big") + b"\0\0\0\2{}")
    assert reader.commands() == []
    assert reader.buffer_bytes == BUFFER_MIN_BYTES


def test_the_largest_frame_arrives_and_leaves_nothing_behind() -> None:
    command = RemotingCommand(10, body=bytes(FRAME_MAX_LENGTH_BYTES - len(encode_command(RemotingCommand(10)))))
    reader = FrameReader()
    assert take(reader, encode_command(command), RECEIVE_MAX_BYTES) == [command]
    assert (reader.buffer_bytes, reader.pending_bytes) == (BUFFER_BYTES, 0)


def test_a_large_buffer_goes_though_the_next_frame_has_begun() -> None:
    """A peer that sends without a pause never leaves the buffer empty."""
    large, small = encode_command(RemotingCommand(10, body=bytes(2_000_000))), encode_command(RemotingCommand(11))
    reader = FrameReader()
    feed(reader, large + small + small[:-1])
    assert reader.buffer_bytes > 2_000_000
    assert len(reader.commands()) == 2
    assert (reader.buffer_bytes, reader.pending_bytes) == (BUFFER_BYTES, len(small) - 1)
    feed(reader, small[-1:])
    assert [command.code for command in reader.commands()] == [11]


def test_a_buffer_is_as_large_as_what_arrives_at_a_time() -> None:
    """A connection that says little holds little, and one that says much receives much at a time."""
    reader, frame = FrameReader(), encode_command(RemotingCommand(34))
    burst = frame * (10_000 // len(frame))
    assert reader.buffer_bytes == BUFFER_MIN_BYTES
    take(reader, frame, 1000)
    assert reader.buffer_bytes == BUFFER_MIN_BYTES
    take(reader, burst, 10_000)
    with reader.free_space() as space:
        assert len(space) == reader.buffer_bytes == BUFFER_BYTES
    for _ in range(15):
        take(reader, frame, 1000)
    assert reader.buffer_bytes == BUFFER_BYTES
    take(reader, burst, 10_000)
    for _ in range(15):
        take(reader, frame, 1000)
    assert reader.buffer_bytes == BUFFER_BYTES
    take(reader, frame, 1000)
    assert reader.buffer_bytes == BUFFER_MIN_BYTES


def length(number: int) -> bytes:
    return number.to_bytes(4, "big", signed=True)


@pytest.mark.parametrize("number", [-1, -(2**31), 0, 3, FRAME_MAX_LENGTH_BYTES - 3, 2**31 - 1])
def test_lengths_that_cannot_be_are_refused_as_soon_as_they_arrive(number: int) -> None:
    reader = FrameReader()
    feed(reader, length(number)[:3])
    assert reader.commands() == []
    feed(reader, length(number)[3:])
    for _ in range(2):
        with pytest.raises(
            RemotingCommandError, match=f"a frame of {number} bytes: at least 4, at most 16777212 are read"
        ):
            reader.commands()


def test_the_limit_of_a_frame_can_be_lower() -> None:
    frame = encode_command(RemotingCommand(10, body=b"x" * 100))
    for limit in (len(frame), len(frame) - 1):
        reader = FrameReader(limit)
        feed(reader, frame)
        if limit == len(frame):
            assert len(reader.commands()) == 1
        else:
            with pytest.raises(
                RemotingCommandError, match=f"a frame of {len(frame) - 4} bytes: .* at most {limit - 4}"
            ):
                reader.commands()


@pytest.mark.parametrize("bad", [length(0), length(2**31 - 1), length(4) + b"\0\0\0\5", length(6) + b"\0\0\0\2[]"])
@pytest.mark.parametrize("size", [1, 100_000])
def test_a_bad_frame_after_good_ones_is_told_after_them(bad: bytes, size: int) -> None:
    """Whoever sent them is answered first."""
    commands = commands_of([0, 100, 5000])
    reader, found = FrameReader(), list[RemotingCommand]()
    receives = receive(reader, stream_of(commands) + bad, endless([size]))
    while len(found) < len(commands):
        next(receives)
        found += reader.commands()
    for _ in receives:
        pass
    assert found == commands
    for _ in range(2):
        with pytest.raises(RemotingCommandError):
            reader.commands()
