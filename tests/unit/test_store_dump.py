"""Reading a store that nobody has open: everything that can be read, a finding for what cannot, and no change."""

from __future__ import annotations

from pathlib import Path

import pytest

from rmq_actors.real_io.os_disk import OsDisk
from rmq_actors.store.check.dump import Unreadable, read_commit_log
from rmq_actors.store.files.layout import file_name
from rmq_actors.store.files.mapped_file_queue import StoreLayoutError
from rmq_actors.store.log.commit_log import CommitLog
from rmq_actors.wire.record import Message, StoredMessage, encode_message
from tests.worlds.golden_capture import STORE_MASTER_CLEAN, STORE_MASTER_KILLED, STORE_SLAVE_CLEAN, golden_messages
from tests.worlds.recording import new_tracer

SIZE = 1000
RECORD = 250


def make(root: Path, messages: int) -> None:
    """Equal records, three a file."""
    log = CommitLog.open(OsDisk(root), SIZE, new_tracer())
    for number in range(messages):
        log.append_message(encode_message(Message("T", bytes([0x41 + number]) * (RECORD - 92))), 0)
    log.close()


def change(root: Path, offset: int, data: bytes) -> None:
    with (root / "commitlog" / file_name(offset - offset % SIZE)).open("r+b") as file:
        file.seek(offset % SIZE)
        file.write(data)


def read(root: Path) -> list[int | tuple[str, int, int | None]]:
    """Offsets of messages, and of findings with their file and where reading resumed."""
    return [
        (item.path, item.offset, item.resumes_at) if isinstance(item, Unreadable) else item.physical_offset
        for item in read_commit_log(OsDisk(root))
    ]


@pytest.mark.parametrize(
    ("store", "messages"), [(STORE_MASTER_CLEAN, 215), (STORE_SLAVE_CLEAN, 215), (STORE_MASTER_KILLED, 210)], ids=str
)
def test_the_golden_stores(store: Path, messages: int) -> None:
    before = {path: path.stat().st_mtime_ns for path in store.rglob("*")}
    items = list(read_commit_log(OsDisk(store)))
    assert all(isinstance(item, StoredMessage) for item in items)
    rows = golden_messages()[:messages]
    assert [(item.physical_offset, item.body_crc) for item in items if isinstance(item, StoredMessage)] == [
        (row["phyOffset"], row["crc"]) for row in rows
    ]
    assert {path: path.stat().st_mtime_ns for path in store.rglob("*")} == before


def test_blanks_are_passed_over(tmp_path: Path) -> None:
    make(tmp_path, 5)
    assert read(tmp_path) == [0, 250, 500, 1000, 1250]


def test_a_torn_tail_is_a_finding_with_nothing_after_it(tmp_path: Path) -> None:
    make(tmp_path, 2)
    change(tmp_path, RECORD + 200, bytes(50))
    assert read(tmp_path) == [0, (f"commitlog/{file_name(0)}", RECORD, None)]


@pytest.mark.parametrize("at", [0, 4, 8, 30, 100])
def test_damage_is_a_finding_and_the_rest_is_read(tmp_path: Path, at: int) -> None:
    make(tmp_path, 5)
    change(tmp_path, RECORD + at, b"\xff\xfe")
    assert read(tmp_path) == [0, (f"commitlog/{file_name(0)}", RECORD, 500), 500, 1000, 1250]


def test_damage_to_the_last_record_of_a_file_that_is_not_the_last(tmp_path: Path) -> None:
    make(tmp_path, 5)
    change(tmp_path, 600, b"\xff")
    assert read(tmp_path) == [0, 250, (f"commitlog/{file_name(0)}", 500, None), 1000, 1250]


def test_two_places_are_two_findings(tmp_path: Path) -> None:
    make(tmp_path, 5)
    change(tmp_path, 100, b"\xff")
    change(tmp_path, 600, b"\xff")
    path = f"commitlog/{file_name(0)}"
    assert read(tmp_path) == [(path, 0, 250), 250, (path, 500, None), 1000, 1250]


def test_a_lost_file_of_zeros_in_the_middle_is_a_finding(tmp_path: Path) -> None:
    make(tmp_path, 8)
    (tmp_path / "commitlog" / file_name(SIZE)).write_bytes(bytes(SIZE))
    assert read(tmp_path) == [0, 250, 500, (f"commitlog/{file_name(SIZE)}", SIZE, None), 2000, 2250]


def test_files_allocated_ahead_are_no_finding(tmp_path: Path) -> None:
    make(tmp_path, 2)
    for offset in (SIZE, 2 * SIZE):
        (tmp_path / "commitlog" / file_name(offset)).write_bytes(bytes(SIZE))
    assert read(tmp_path) == [0, 250]


def test_an_empty_log_has_no_messages(tmp_path: Path) -> None:
    (tmp_path / "commitlog").mkdir()
    (tmp_path / "commitlog" / file_name(0)).write_bytes(bytes(SIZE))
    assert read(tmp_path) == []


def test_no_log_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(StoreLayoutError, match="commitlog: no such directory, or no file in it"):
        read(tmp_path)


def test_files_that_do_not_fit_together_are_an_error(tmp_path: Path) -> None:
    make(tmp_path, 5)
    (tmp_path / "commitlog" / file_name(SIZE)).write_bytes(bytes(SIZE - 1))
    with pytest.raises(StoreLayoutError, match=f"commitlog/{file_name(SIZE)} is 999 bytes long"):
        read(tmp_path)


@pytest.mark.parametrize("sizes", [(0,), (0, 0), (SIZE,), (SIZE, 0)])
def test_a_store_that_was_just_created_has_no_messages(tmp_path: Path, sizes: tuple[int, ...]) -> None:
    (tmp_path / "commitlog").mkdir()
    for number, size in enumerate(sizes):
        (tmp_path / "commitlog" / file_name(number * SIZE)).write_bytes(bytes(size))
    assert read(tmp_path) == []


def test_a_record_of_rocketmq_5_is_named(tmp_path: Path) -> None:
    make(tmp_path, 3)
    change(tmp_path, RECORD + 4, b"\xda\xa3\x20\xab")
    _, finding, message = read_commit_log(OsDisk(tmp_path))
    assert isinstance(finding, Unreadable)
    assert finding.reason == "a RocketMQ 5 record (magic 0xDAA320AB), which RocketMQ 4 cannot read"
    assert isinstance(message, StoredMessage)


def test_a_host_of_ipv6_is_in_brackets(tmp_path: Path) -> None:
    log = CommitLog.open(OsDisk(tmp_path), SIZE, new_tracer())
    log.append_message(encode_message(Message("T", b"x", born_host="[2001:db8::1]:9")), 0)
    log.close()
    (message,) = read_commit_log(OsDisk(tmp_path))
    assert isinstance(message, StoredMessage)
    assert (message.born_host, message.store_host) == ("[2001:db8::1]:9", "127.0.0.1:10911")
