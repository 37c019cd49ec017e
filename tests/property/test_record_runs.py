"""Raw bytes with long runs of records of one size: a slave finds the same records in them as one by one."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rmq_actors.real_io.os_disk import OsDisk
from rmq_actors.store.log.commit_log import CommitLog
from rmq_actors.store.log.received_records import FileSizeMismatch
from rmq_actors.wire.record import BLANK, BLANK_MAGIC, MESSAGE_MAGIC, RECORD_OVERHEAD_BYTES
from rmq_actors.wire.record_runs import run_length
from tests.worlds.recording import new_tracer

#: Below 256 the first 8 bytes of records of two sizes differ in one byte alone.
_SIZES = st.integers(RECORD_OVERHEAD_BYTES, RECORD_OVERHEAD_BYTES + 3) | st.integers(250, 700)
RUNS = st.lists(st.tuples(_SIZES, st.integers(1, 60)), min_size=1, max_size=4).map(
    lambda runs: [size for size, count in runs for _ in range(count)]
)


def file_of(sizes: Sequence[int], rest: int) -> bytes:
    """Records of these sizes, without anything in them, and the blank that ends their file."""
    blank = rest + BLANK.size
    heads = [*((size, MESSAGE_MAGIC) for size in sizes), (blank, BLANK_MAGIC)]
    return b"".join(BLANK.pack(size, magic) + bytes(size - BLANK.size) for size, magic in heads)


def append_all(log: CommitLog, data: bytes, cuts: Sequence[int]) -> list[int]:
    """As a slave does, in parts of these lengths, again and again; where the log ended after each."""
    ends, held, position, number = [], b"", 0, 0
    while position < len(data):
        part = data[position : position + cuts[number % len(cuts)]]
        begin = position - len(held)
        end = log.append_data(begin, held + part, whole_records=True)
        held = (held + part)[end - begin :]
        position, number = position + len(part), number + 1
        ends.append(end)
    return ends


def new_log(directory: str, file_bytes: int) -> CommitLog:
    return CommitLog.open(OsDisk(Path(directory)), file_bytes, new_tracer())


@settings(max_examples=60)
@given(
    sizes=RUNS,
    rest=st.integers(0, 200) | _SIZES.map(lambda size: size - BLANK.size),
    cuts=st.lists(st.integers(300, 20_000), min_size=1, max_size=5),
)
def test_every_record_is_found(sizes: list[int], rest: int, cuts: list[int]) -> None:
    data = file_of(sizes, rest)
    starts = {0}
    for size in sizes:
        starts.add(max(starts) + size)
    with tempfile.TemporaryDirectory() as directory:
        log = new_log(directory, len(data))
        received = 0
        for end, cut in zip(append_all(log, data, cuts), [*cuts * (len(data) // sum(cuts) + 1)], strict=False):
            received = min(received + cut, len(data))
            # Each record that has arrived is in the log, and nothing of the next one.
            assert end == max(each for each in (*starts, len(data)) if each <= received)
        assert bytes(log.select(0, len(data))) == data
        log.close()


@given(sizes=RUNS, data=st.data())
def test_the_first_bad_record_is_named(sizes: list[int], data: st.DataObject) -> None:
    log_bytes = bytearray(file_of(sizes, 0))
    bad = data.draw(st.integers(0, len(sizes) - 1), label="record")
    at = sum(sizes[:bad])
    size = data.draw(
        st.sampled_from([sizes[bad], 0, -1, RECORD_OVERHEAD_BYTES - 1, len(log_bytes) - at - 7]), label="size"
    )
    magics = [MESSAGE_MAGIC ^ 1, BLANK_MAGIC, *([] if size == sizes[bad] else [MESSAGE_MAGIC])]
    magic = data.draw(st.sampled_from(magics), label="magic")
    BLANK.pack_into(log_bytes, at, size, magic)
    with tempfile.TemporaryDirectory() as directory:
        log = new_log(directory, len(log_bytes))
        with pytest.raises(FileSizeMismatch, match=rf"offset {at}: no record .*totalSize {size}, magic 0x{magic:08X}"):
            append_all(log, bytes(log_bytes), [1 << 20])
        log.close()


@given(
    st.lists(st.sampled_from([b"a" * 8, b"b" * 8, b"aaaaaaab", b"baaaaaaa"]), min_size=1, max_size=80),
    st.integers(0, 9),
    st.integers(8, 40),
)
def test_a_run_ends_where_a_head_differs(heads: list[bytes], position: int, size: int) -> None:
    data = bytes(position) + b"".join(head.ljust(size, b"a") for head in heads)
    same = next((number for number, head in enumerate(heads) if head != heads[0]), len(heads))
    assert run_length(data, position, size, len(heads)) == same
    assert run_length(memoryview(data), position, size, 1) == 1
