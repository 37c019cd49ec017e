"""Finding the end of a log: torn tails are cut, damage is named, and nothing is changed that need not be."""

from __future__ import annotations

import hashlib
import shutil
from pathlib import Path

import pytest

from rmq_actors.real_io.os_disk import OsDisk
from rmq_actors.store.files.layout import file_name
from rmq_actors.store.files.mapped_file_queue import StoreLayoutError
from rmq_actors.store.log.commit_log import CommitLog
from rmq_actors.store.log.log_walk import DamagedLog
from rmq_actors.wire.record import Message, encode_message
from tests.worlds.golden_capture import (
    END_OFFSET,
    FILE_SIZE_BYTES,
    STORE_MASTER_CLEAN,
    STORE_MASTER_KILLED,
    STORE_SLAVE_CLEAN,
    golden_log,
)
from tests.worlds.recording import new_recorder, new_tracer

SIZE = 1000
RECORD = 91 + 1 + 158


def open_log(root: Path, size: int = SIZE) -> CommitLog:
    return CommitLog.open(OsDisk(root), size, new_tracer())


def append(log: CommitLog, body: bytes, properties: dict[str, str] | None = None) -> int:
    encoded = encode_message(Message("T", body, properties=properties or {}))
    return log.append_message(encoded, 1_700_000_000_000).offset


def files(root: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted((root / "commitlog").iterdir())}


def digest(root: Path) -> str:
    return hashlib.sha256(repr(files(root)).encode()).hexdigest()


def make(root: Path, messages: int = 5) -> int:
    """A log of equal records, three a file; its end."""
    log = open_log(root)
    for number in range(messages):
        append(log, bytes([0x41 + number]) * 158)
    end = log.max_offset
    log.close()
    return end


def change(root: Path, offset: int, data: bytes) -> None:
    path = root / "commitlog" / file_name(offset - offset % SIZE)
    with path.open("r+b") as file:
        file.seek(offset % SIZE)
        file.write(data)


def end_after_open(root: Path) -> int:
    log = open_log(root)
    end = log.max_offset
    log.close()
    return end


@pytest.mark.parametrize("properties", [{}, {"KEYS": "a b", "TAGS": "tag"}], ids=["plain", "properties"])
@pytest.mark.parametrize("before", [1, 3], ids=["in the first file", "at the start of the second"])
def test_a_tail_torn_at_every_byte_is_cut(tmp_path: Path, before: int, properties: dict[str, str]) -> None:
    log = open_log(tmp_path)
    for _ in range(before):
        append(log, b"x" * 158)
    offset = append(log, b"last body", properties)
    end = log.max_offset
    log.close()
    whole = files(tmp_path)
    name, data = max(whole.items())
    # The blank that ends a file was written before the record that needed a new one.
    last_end = offset
    for cut in range(offset, end):
        position = cut % SIZE
        torn = data[:position] + bytes(SIZE - position)
        (tmp_path / "commitlog" / name).write_bytes(torn)
        # Bytes that were zero anyway are no loss: then the record is whole.
        expected = end if torn == data else last_end
        assert end_after_open(tmp_path) == expected, cut
        once = files(tmp_path)
        assert end_after_open(tmp_path) == expected, cut
        assert files(tmp_path) == once, "not idempotent"
        assert b"".join(once.values())[expected:].strip(b"\0") == b""
        for other, content in whole.items():
            (tmp_path / "commitlog" / other).write_bytes(content)


def test_a_torn_blank_is_cut(tmp_path: Path) -> None:
    make(tmp_path, 4)
    blank_at = 3 * RECORD
    data = files(tmp_path)[file_name(0)]
    (tmp_path / "commitlog" / file_name(SIZE)).unlink()
    for cut in range(blank_at, blank_at + 8):
        (tmp_path / "commitlog" / file_name(0)).write_bytes(data[:cut] + bytes(SIZE - cut))
        assert end_after_open(tmp_path) == blank_at
        assert files(tmp_path)[file_name(0)] == data[:blank_at] + bytes(SIZE - blank_at)


def test_after_a_cut_the_log_goes_on_there(tmp_path: Path) -> None:
    end = make(tmp_path, 2)
    change(tmp_path, end - 10, bytes(10))
    log = open_log(tmp_path)
    assert append(log, b"new") == RECORD
    log.close()
    assert end_after_open(tmp_path) == RECORD + 95


def test_bytes_past_the_end_that_look_valid_are_zeroed(tmp_path: Path) -> None:
    """A whole record that belongs elsewhere, and the header of one whose body never came."""
    end = make(tmp_path, 2)
    record = files(tmp_path)[file_name(0)][:RECORD]
    change(tmp_path, end, record)
    assert end_after_open(tmp_path) == end
    assert files(tmp_path)[file_name(0)][end:] == bytes(SIZE - end)
    header = record[:28] + end.to_bytes(8, "big") + record[36:90]
    change(tmp_path, end, header)
    assert end_after_open(tmp_path) == end
    assert files(tmp_path)[file_name(0)][end:] == bytes(SIZE - end)


def test_later_files_of_rubbish_are_removed(tmp_path: Path) -> None:
    end = make(tmp_path, 2)
    for offset in (SIZE, 2 * SIZE):
        (tmp_path / "commitlog" / file_name(offset)).write_bytes(b"rubbish" + bytes(SIZE - 7))
    assert end_after_open(tmp_path) == end
    assert list(files(tmp_path)) == [file_name(0)]


def test_files_that_were_allocated_ahead_are_removed(tmp_path: Path) -> None:
    end = make(tmp_path, 2)
    (tmp_path / "commitlog" / file_name(SIZE)).write_bytes(bytes(SIZE))
    assert end_after_open(tmp_path) == end
    assert list(files(tmp_path)) == [file_name(0)]


@pytest.mark.parametrize("at", range(RECORD))
def test_damage_in_the_middle_is_named_and_nothing_is_changed(tmp_path: Path, at: int) -> None:
    end = make(tmp_path, 5)
    offset = RECORD
    whole = files(tmp_path)[file_name(0)]
    change(tmp_path, offset + at, bytes((whole[offset + at] ^ 0xFF,)))
    before = digest(tmp_path)
    # Fields that no checksum covers: queue id, flag, queue offset, system flag, times, hosts (`test_record.UNCHECKED`),
    # the topic, and the sign of the properties' length, which is 0.
    if at in {*range(12, 28), *range(36, 39), *range(40, 84), 247, 248}:
        assert end_after_open(tmp_path) == end
    else:
        where = f"^commitlog/{file_name(0)}: no valid record at offset {offset} .*one follows at offset {2 * RECORD}"
        with pytest.raises(DamagedLog, match=where):
            open_log(tmp_path)
    assert digest(tmp_path) == before


def test_damage_before_another_file_is_named(tmp_path: Path) -> None:
    make(tmp_path, 5)
    change(tmp_path, 2 * RECORD + 100, b"\xff")
    before = digest(tmp_path)
    with pytest.raises(DamagedLog, match=f"commitlog/{file_name(0)}: .* offset 500 .*bodyCRC.* follows at offset 1000"):
        open_log(tmp_path)
    assert digest(tmp_path) == before


def test_a_damaged_blank_is_named(tmp_path: Path) -> None:
    make(tmp_path, 4)
    change(tmp_path, 3 * RECORD + 3, b"\x07")
    before = digest(tmp_path)
    with pytest.raises(
        DamagedLog, match=f"{file_name(0)}: .* offset 750 .*a blank record of 7 bytes where 250 are left"
    ):
        open_log(tmp_path)
    assert digest(tmp_path) == before


def test_lengths_that_rocketmq_cannot_read_are_damage_that_is_named(tmp_path: Path) -> None:
    make(tmp_path, 5)
    change(tmp_path, RECORD + 88 + 158, b"\x80")
    before = digest(tmp_path)
    with pytest.raises(DamagedLog, match=f"{file_name(0)}: .*offset {RECORD} .*topicLen 128"):
        open_log(tmp_path)
    assert digest(tmp_path) == before


@pytest.mark.parametrize("name", ["00000000000000003000", "notes.txt", "0000000000000000100"])
def test_a_directory_that_is_no_log_is_left_alone(tmp_path: Path, name: str) -> None:
    end = make(tmp_path, 5)
    change(tmp_path, end - 10, bytes(10))
    (tmp_path / "commitlog" / name).write_bytes(bytes(SIZE))
    before = digest(tmp_path)
    with pytest.raises(StoreLayoutError, match=f"commitlog/{name}"):
        open_log(tmp_path)
    assert digest(tmp_path) == before


def test_a_wrong_size_is_named_and_nothing_is_changed(tmp_path: Path) -> None:
    end = make(tmp_path, 5)
    change(tmp_path, end - 10, bytes(10))
    before = digest(tmp_path)
    with pytest.raises(StoreLayoutError, match=f"commitlog/{file_name(0)} is 1000 bytes long, .* is 1024"):
        open_log(tmp_path, 1024)
    assert digest(tmp_path) == before


def test_a_last_file_of_length_zero_is_dropped(tmp_path: Path) -> None:
    end = make(tmp_path, 5)
    (tmp_path / "commitlog" / file_name(2 * SIZE)).write_bytes(b"")
    assert end_after_open(tmp_path) == end
    assert list(files(tmp_path)) == [file_name(0), file_name(SIZE)]


def test_the_event_says_what_was_cut(tmp_path: Path) -> None:
    end = make(tmp_path, 2)
    change(tmp_path, end - 3, bytes(1))
    recorder = new_recorder()
    for status, offset, size in (("torn_tail_cut", RECORD, RECORD - 3), ("clean", RECORD, 0)):
        CommitLog.open(OsDisk(tmp_path), SIZE, recorder.tracer("a")).close()
        event = recorder.events[-1]
        assert (event.kind, event.status, event.offset, event.size) == ("store.open", status, offset, size)


@pytest.mark.parametrize(
    ("store", "end", "files_left"),
    [(STORE_MASTER_CLEAN, END_OFFSET, 2), (STORE_SLAVE_CLEAN, END_OFFSET, 2), (STORE_MASTER_KILLED, 379106, 2)],
    ids=lambda value: value.name if isinstance(value, Path) else None,
)
def test_the_golden_stores_open(tmp_path: Path, store: Path, end: int, files_left: int) -> None:
    shutil.copytree(store / "commitlog", tmp_path / "commitlog")
    log = open_log(tmp_path, FILE_SIZE_BYTES)
    assert log.max_offset == end
    assert b"".join(bytes(view) for view in log.ranges(0, end)) == golden_log()[:end]
    # The next queue offset of a queue is one more than its last message's.
    assert log.append_message(encode_message(Message("TopicPlain", b"x", 0)), 0).offset == end
    log.close()
    once = digest(tmp_path)
    open_log(tmp_path, FILE_SIZE_BYTES).close()
    assert digest(tmp_path) == once
    assert len(files(tmp_path)) == files_left
