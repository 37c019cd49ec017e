"""Any bit that changes in a store is found, but for those that nothing else knows of."""

from __future__ import annotations

import functools
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmq_actors.wire.dispatch_request import DispatchRequest, read_dispatch_request
from tests.worlds.golden_capture import BLANK_OFFSET, END_OFFSET, STORE_MASTER_CLEAN, golden_log, golden_messages
from tests.worlds.store_copies import copy_store, findings_of, flip

#: Fields of a record (IPv4 hosts) that no checksum, queue or index covers, or not each bit of them: flag; sysFlag, born
#: time and host, store time and host, times of reconsumption, offset of the prepared message.
UNCOVERED_FIELDS = ((16, 20), (36, 84))
#: What keys are derived from; tags codes are, too, or times of delivery. All other properties are known to nobody.
KEYS = {"UNIQ_KEY", "KEYS"}


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the golden store: each example puts back what it changes."""
    return copy_store(STORE_MASTER_CLEAN, tmp_path_factory.mktemp("copy") / "store")


def check_with_flip(root: Path, path: str, position: int, bit: int) -> list[str]:
    """The files of the findings, with one bit of the store changed."""
    file = root / path
    flip(file, position, bit)
    try:
        return [finding.path for finding in findings_of(root)]
    finally:
        flip(file, position, bit)


@functools.cache
def covered_positions() -> list[int]:
    """The offsets of the log's bytes whose change must be found."""
    log, result = memoryview(golden_log()), list(range(BLANK_OFFSET, BLANK_OFFSET + 8))
    for row in golden_messages():
        begin, end = row["phyOffset"], row["phyOffset"] + row["total"]
        record = read_dispatch_request(log, begin, begin)
        assert isinstance(record, DispatchRequest)
        properties_at = begin + 91 + row["bodyLen"] + len(row["topic"])
        fixed = range(begin, begin + 88)
        result += [at for at in fixed if not any(low <= at - begin < high for low, high in UNCOVERED_FIELDS)]
        result += range(begin + 88, properties_at)
        covered = KEYS | ({"DELAY"} if row["topic"] == "SCHEDULE_TOPIC_XXXX" else {"TAGS"})
        text = bytes(log[properties_at:end])
        at = properties_at
        for entry in text.split(b"\x02"):
            if entry.partition(b"\x01")[0].decode() in covered and text.count(entry) == 1:
                result += range(at, at + len(entry))
            at += len(entry) + 1
    return result


@given(at=st.deferred(lambda: st.sampled_from(covered_positions())), bit=st.integers(0, 7))
def test_a_bit_of_the_log(root: Path, at: int, bit: int) -> None:
    assert 0 <= at < END_OFFSET
    file = at - at % 262144
    assert check_with_flip(root, f"commitlog/{file:020d}", at - file, bit)


@functools.cache
def queue_files() -> list[str]:
    files = STORE_MASTER_CLEAN.glob("consumequeue/*/*/*")
    return sorted(str(file.relative_to(STORE_MASTER_CLEAN)) for file in files)


@given(path=st.deferred(lambda: st.sampled_from(queue_files())), position=st.integers(0, 1999), bit=st.integers(0, 7))
def test_a_bit_of_a_consume_queue(root: Path, path: str, position: int, bit: int) -> None:
    """Also after the last entry: zeros stand there."""
    assert check_with_flip(root, path, position, bit)[0] == path


#: The seconds of the first entry, which count from the end of a file that may be gone.
FIRST_SECONDS = range(2072, 2076)


@given(position=st.integers(0, 42_039).filter(lambda at: at not in FIRST_SECONDS), bit=st.integers(0, 7))
def test_a_bit_of_the_index(root: Path, position: int, bit: int) -> None:
    """Header, slots, entries, and the zeros after them."""
    path = "index/20261121012540073"
    assert path in check_with_flip(root, path, position, bit)
