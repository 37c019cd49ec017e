"""What a slave keeps of a record that has come in part: until its rest is there, and no longer than its limit."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmq_actors.protocols.ha_slave import Append, OffsetMismatch
from rmq_actors.protocols.part_of_record import PartOfRecord, RecordTooLong
from rmq_actors.wire.record import BLANK, BLANK_MAGIC, MESSAGE_MAGIC, RECORD_MAX_BYTES

FILE_BYTES = 4096


def record(size: int, magic: int = MESSAGE_MAGIC, fill: int = 1) -> bytes:
    return BLANK.pack(size, magic) + bytes([fill]) * (size - BLANK.size)


def frames_of(data: bytes, sizes: Sequence[int], file_bytes: int = FILE_BYTES) -> Iterator[Append]:
    """Frames of these sizes, again and again, none over a file's end."""
    offset = number = 0
    while offset < len(data):
        room = file_bytes - offset % file_bytes
        end = offset + min(sizes[number % len(sizes)], room, len(data) - offset)
        yield Append(offset, memoryview(data[offset:end]))
        offset, number = end, number + 1


def whole_end(append: Append) -> int:
    """Where the last whole record of an append ends."""
    at = 0
    while at + BLANK.size <= len(append.data):
        size, _ = BLANK.unpack_from(append.data, at)
        if at + size > len(append.data):
            break
        at += size
    return append.offset + at


@given(
    st.lists(st.integers(8, 700), min_size=1, max_size=30),
    st.lists(st.integers(1, 900), min_size=1, max_size=5),
    st.integers(1, 6),
)
def test_whole_records_come_out_of_any_frames(sizes: list[int], frames: list[int], at_once: int) -> None:
    files, file = list[bytes](), b""
    for number, size in enumerate(sizes):
        if len(file) + size + BLANK.size > FILE_BYTES:
            files.append(file + record(FILE_BYTES - len(file), BLANK_MAGIC, 0))
            file = b""
        file += record(size, fill=number)
    data = b"".join((*files, file))
    part, log, received = PartOfRecord(FILE_BYTES), b"", list(frames_of(data, frames))
    for first in range(0, len(received), at_once):
        batch = received[first : first + at_once]
        for append in part.joined(batch):
            assert append.offset == len(log)
            end = whole_end(append)
            log += bytes(append.data[: end - append.offset])
            part.hold(append, end)
        came = batch[-1].offset + len(batch[-1].data)
        assert len(log) + part.held_bytes == came
        assert part.held_bytes < 700 or FILE_BYTES - len(log) % FILE_BYTES > part.held_bytes
    assert log == data
    assert part.held_bytes == 0


def test_a_long_record_is_put_together_once() -> None:
    """In 2,048 frames: with each of them, a GiB would be copied for a MiB."""
    data = record(1024 * 1024) + record(100)
    part, asked = PartOfRecord(2 * len(data)), list[int]()
    for frame in frames_of(data, [512], 2 * len(data)):
        for append in part.joined([frame]):
            asked.append(len(append.data))
            part.hold(append, whole_end(append))
    assert asked == [512, 1024 * 1024, 100]


@pytest.mark.parametrize(("magic", "more"), [(MESSAGE_MAGIC, 0), (BLANK_MAGIC, 8)])
def test_what_is_longer_than_memory_is_for_it_is_refused_by_its_head(magic: int, more: int) -> None:
    most = RECORD_MAX_BYTES + more
    for size, is_refused in ((most, False), (most + 1, True)):
        part = PartOfRecord(1 << 30)
        append = Append(4096, memoryview(BLANK.pack(size, magic)))
        assert list(part.joined([append])) == [append]
        if is_refused:
            with pytest.raises(
                RecordTooLong, match=f"the record at offset 4096 has {size} bytes, a slave takes at most {most}"
            ):
                part.hold(append, 4096)
        else:
            part.hold(append, 4096)


def test_a_masters_mistake_is_told_after_what_came_before_it() -> None:
    def frames() -> Iterator[Append]:
        yield Append(10, memoryview(record(20)[10:]))
        raise OffsetMismatch("the next one")

    part, found = PartOfRecord(FILE_BYTES), list[Append]()
    part.hold(Append(0, memoryview(record(20)[:10])), 0)
    with pytest.raises(OffsetMismatch):
        found.extend(part.joined(frames()))
    assert [(append.offset, bytes(append.data)) for append in found] == [(0, record(20))]
