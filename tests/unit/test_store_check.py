"""Checking a store: the golden ones are right, and each kind of damage is named where it is, in words, and alone."""

from __future__ import annotations

import os
import shutil
import struct
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import trio

from rmq_actors.ports.environment import Environment
from rmq_actors.real_io.os_disk import OsDisk
from rmq_actors.store.check.check_store import check_store
from rmq_actors.store.check.finding import CheckSummary, Finding
from rmq_actors.store.config import MessageStoreConfig
from rmq_actors.store.files.store_checkpoint import Checkpoint, RecoveryPoint
from rmq_actors.store.lifecycle.store_files import StoreFiles
from rmq_actors.wire.record import Message
from tests.worlds import store_copies
from tests.worlds.golden_capture import (
    BLANK_OFFSET,
    END_OFFSET,
    FILE_SIZE_BYTES,
    STORE_MASTER_CLEAN,
    STORE_MASTER_KILLED,
    STORE_SLAVE_CLEAN,
    golden_messages,
)
from tests.worlds.recording import new_tracer
from tests.worlds.running_store import NoEntropy, StillClock
from tests.worlds.store_copies import copy_store, findings_of, flip, make_store, put

LOG = "commitlog/00000000000000000000"
LOG_2 = "commitlog/00000000000000262144"
QUEUE = "consumequeue/TopicPlain/2/00000000000000000000"
ENTRY = struct.Struct(">qiq")

GOLDEN_CONFIG = MessageStoreConfig(
    mapped_file_size_commit_log_bytes=FILE_SIZE_BYTES,
    mapped_file_size_consume_queue_bytes=2000,
    max_hash_slot_num=500,
    max_index_num=2000,
)


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return copy_store(STORE_MASTER_CLEAN, tmp_path / "store")


def plain_2() -> list[int]:
    """The offsets of the records of TopicPlain-2."""
    return [row["phyOffset"] for row in golden_messages() if (row["topic"], row["queueId"]) == ("TopicPlain", 2)]


@pytest.mark.parametrize(
    ("golden", "expected"),
    [
        (STORE_MASTER_CLEAN, CheckSummary(54, 215, 353140, 40, 215, 375)),
        (STORE_SLAVE_CLEAN, CheckSummary(54, 215, 353140, 40, 215, 375)),
        (STORE_MASTER_KILLED, CheckSummary(54, 210, 351829, 39, 210, 369)),
    ],
    ids=lambda value: getattr(value, "name", ""),
)
def test_the_golden_stores_are_right_and_stay_as_they_are(golden: Path, expected: CheckSummary) -> None:
    before = {path: path.stat().st_mtime_ns for path in golden.rglob("*")}
    summary = CheckSummary()
    assert list(check_store(OsDisk(golden), summary)) == []
    assert summary == expected
    assert {path: path.stat().st_mtime_ns for path in golden.rglob("*")} == before


def test_a_store_that_this_project_made(tmp_path: Path) -> None:
    """With extension files, further queues, transactions, IPv6 hosts, several index files; it has no checkpoint yet."""
    make_store(tmp_path)
    summary = CheckSummary()
    (finding,) = check_store(OsDisk(tmp_path), summary)
    assert (finding.path, finding.severity) == ("checkpoint", "note")
    assert (summary.records, summary.entries, summary.keys, summary.transactions) == (34, 46, 93, 3)


def test_nothing_is_wrong_with_an_empty_directory(tmp_path: Path) -> None:
    assert findings_of(tmp_path) == []


# --- the log ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("position", "data", "words"),
    [
        (88, b"X", "bodyCRC "),
        (84, b"\0\0\1\0", "bodyLen 256 does not fit totalSize 177"),
        (0, b"\0\0\0\xb2", "totalSize 178"),
        (4, b"\0", "magic 0x00A320A7"),
        (28, b"\x01", "physicalOffset 72057594037927936 in a record that stands at 0"),
        (100, b"\x60", "topicLen 96 does not fit totalSize 177"),
    ],
)
def test_a_record_that_is_no_record(store: Path, position: int, data: bytes, words: str) -> None:
    put(store / LOG, position, data)
    (finding,) = findings_of(store)
    assert finding[:3] == (LOG, 0, "error")
    assert words in finding.text
    assert finding.text.endswith("; the next record stands at 177") or "totalSize 178" in finding.text


def test_a_queue_offset_that_is_not_its_own(store: Path) -> None:
    second = plain_2()[1]
    put(store / LOG, second + 20, (7).to_bytes(8, "big"))
    text = "queueOffset 7 of TopicPlain-2, but entry 1 of the queue is this record"
    assert findings_of(store) == [Finding(LOG, second, "error", text)]


def test_a_file_of_the_middle_that_is_missing(tmp_path: Path) -> None:
    make_store(tmp_path)
    (tmp_path / "commitlog/00000000000000002000").unlink()
    finding, checkpoint = findings_of(tmp_path)
    text = "no file holds offsets 2000 to 3999: missing before this one: 00000000000000002000"
    assert finding == Finding("commitlog/00000000000000004000", 0, "error", text)
    assert checkpoint.path == "checkpoint"


def test_a_file_of_another_size(store: Path) -> None:
    with (store / LOG_2).open("r+b") as file:
        file.truncate(FILE_SIZE_BYTES - 1)
    (finding,) = findings_of(store)
    assert finding == Finding(
        LOG_2, 0, "error", f"the file is {FILE_SIZE_BYTES - 1} bytes long, the others of its row are {FILE_SIZE_BYTES}"
    )


def test_a_queue_file_that_ends_within_an_entry(tmp_path: Path) -> None:
    make_store(tmp_path)
    file = max((tmp_path / "consumequeue/T0/0").iterdir())
    (file.parent / f"{int(file.name) + file.stat().st_size:020}").write_bytes(bytes(file.stat().st_size) + b"xyz")
    assert any(file.parent.name in finding.path for finding in findings_of(tmp_path))


def test_a_blank_that_is_missing(store: Path) -> None:
    put(store / LOG, BLANK_OFFSET, bytes(8))
    (finding,) = findings_of(store)
    assert finding[:3] == (LOG, BLANK_OFFSET, "error")
    assert finding.text == "zeros; no record follows in this file, and no blank ends it, but later files hold records"


def test_bytes_after_a_blank_may_be_anything(store: Path) -> None:
    put(store / LOG, FILE_SIZE_BYTES - 1, b"x")
    (finding,) = findings_of(store)
    assert finding[:3] == (LOG, BLANK_OFFSET + 8, "note")


def test_bytes_past_the_end(store: Path) -> None:
    put(store / LOG_2, END_OFFSET - FILE_SIZE_BYTES + 100, b"garbage")
    (finding,) = findings_of(store)
    assert finding[:3] == (LOG_2, END_OFFSET, "error")
    assert finding.text.endswith("past the log's end stand 107 bytes that hold no whole record")
    (store / "abort").touch()
    assert [(finding.severity, finding.offset) for finding in findings_of(store)] == [("recoverable", END_OFFSET)]


def test_files_allocated_ahead_are_right_and_an_empty_one_is_a_note(store: Path) -> None:
    (store / "commitlog" / f"{2 * FILE_SIZE_BYTES:020d}").write_bytes(bytes(FILE_SIZE_BYTES))
    assert findings_of(store) == []
    (store / "commitlog" / f"{3 * FILE_SIZE_BYTES:020d}").touch()
    (finding,) = findings_of(store)
    assert (finding.severity, finding.text) == ("note", "an empty file: it was created, and never got its length")


def test_a_name_that_is_no_files_of_a_log(store: Path) -> None:
    (store / "commitlog" / "notes.txt").touch()
    assert findings_of(store) == [
        Finding("commitlog/notes.txt", 0, "error", "not the name of a file of this row (20 digits): a start refuses it")
    ]


def test_a_directory_in_the_place_of_a_file(store: Path) -> None:
    (store / LOG_2).unlink()
    (store / LOG_2).mkdir()
    assert Finding(LOG_2, 0, "error", "cannot be opened: Is a directory") in findings_of(store)


def test_a_clock_that_was_set_back(store: Path) -> None:
    second = plain_2()[1]
    stored = int.from_bytes((store / LOG).read_bytes()[second + 56 : second + 64], "big")
    put(store / LOG, second + 56, (stored - 50).to_bytes(8, "big"))
    notes = [finding for finding in findings_of(store) if finding.severity == "note"]
    assert notes == [Finding(LOG, second, "note", "stored before the record before it; 1 such records in the log")]


def as_v2(record: bytes) -> bytes:
    """A record as RocketMQ 5 writes it: another magic, two bytes for the topic's length."""
    topic_length_at = 88 + int.from_bytes(record[84:88], "big")
    size = (len(record) + 1).to_bytes(4, "big")
    return size + b"\xda\xa3\x20\xab" + record[8:topic_length_at] + b"\0" + record[topic_length_at:]


def test_a_record_of_rocketmq_5_is_a_note_and_is_read(store: Path) -> None:
    data = (store / LOG_2).read_bytes()
    last = golden_messages()[-1]
    begin, end = last["phyOffset"] - FILE_SIZE_BYTES, END_OFFSET - FILE_SIZE_BYTES
    put(store / LOG_2, begin, as_v2(data[begin:end]))
    *queue, note = findings_of(store)
    assert note[:3] == (LOG_2, last["phyOffset"], "note")
    assert note.text.startswith("a RocketMQ 5 record (magic 0xDAA320AB)")
    # Its queue says what its size was before; all else agrees.
    assert [finding.text.split(" of ")[1].split(", its record")[0] for finding in queue if "has size" in finding.text]
    assert all("has size" in finding.text for finding in queue)


# --- consume queues ---------------------------------------------------------------------------------------------------


def test_two_entries_that_are_swapped(store: Path) -> None:
    data = (store / QUEUE).read_bytes()
    put(store / QUEUE, 0, data[20:40] + data[:20])
    first, second, *_ = plain_2()
    sizes = [ENTRY.unpack_from(data, at)[1] for at in (0, 20)]
    assert findings_of(store) == [
        Finding(
            QUEUE,
            20 * at,
            "error",
            f"entry {at} of TopicPlain-2 is of offset {wrong}, size {size}; its record stands at {right}",
        )
        for at, wrong, size, right in ((0, second, sizes[1], first), (1, first, sizes[0], second))
    ]


def test_an_entry_that_is_dropped(store: Path) -> None:
    put(store / QUEUE, 20, bytes(20))
    text = f"entry 1 of TopicPlain-2 is missing: its record stands at {plain_2()[1]}"
    assert findings_of(store) == [Finding(QUEUE, 20, "error", text)]


def test_the_last_entries_are_lost(store: Path) -> None:
    count = len(plain_2())
    put(store / QUEUE, 20, bytes(20 * count))
    text = f"entries 1 to {count - 1} of TopicPlain-2 are missing: the first's record stands at {plain_2()[1]}"
    assert findings_of(store) == [Finding(QUEUE, 20, "error", text)]
    (store / "abort").touch()
    assert findings_of(store) == [Finding(QUEUE, 20, "recoverable", text)]


@pytest.mark.parametrize(
    ("position", "words"), [(8, "has size 16777393, its record at 0 has 177"), (12, "has tags code 72057594037927936")]
)
def test_an_entry_with_another_size_or_tags_code(store: Path, position: int, words: str) -> None:
    put(store / QUEUE, position, b"\x01")
    (finding,) = findings_of(store)
    assert finding[:3] == (QUEUE, 0, "error")
    assert finding.text.startswith(f"entry 0 of TopicPlain-2 {words}")


def test_a_time_of_delivery_that_is_not_that_of_the_level(store: Path) -> None:
    queue = "consumequeue/SCHEDULE_TOPIC_XXXX/1/00000000000000000000"
    flip(store / queue, 19)
    (finding,) = findings_of(store)
    assert finding[:3] == (queue, 0, "error")
    assert "entry 0 of SCHEDULE_TOPIC_XXXX-1 has tags code" in finding.text


def test_delay_levels_that_are_not_the_default() -> None:
    found = list(check_store(OsDisk(STORE_MASTER_CLEAN), delay_levels_ms=(1000, 5000, 9000)))
    assert {finding.path for finding in found} == {"consumequeue/SCHEDULE_TOPIC_XXXX/2/00000000000000000000"}


def test_an_entry_of_no_record(store: Path) -> None:
    count = len(plain_2())
    put(store / QUEUE, 20 * count, ENTRY.pack(END_OFFSET, 100, 0))
    text = "entry 1 of TopicPlain-2 after that of the last record: the first, "
    text += f"{count}, is of offset {END_OFFSET}, size 100, past the log's end"
    assert findings_of(store) == [Finding(QUEUE, 20 * count, "error", text)]
    (store / "abort").touch()
    assert findings_of(store) == [Finding(QUEUE, 20 * count, "recoverable", text)]


def test_a_queue_without_files(store: Path) -> None:
    shutil.rmtree(store / "consumequeue/TopicPlain/2")
    text = f"{len(plain_2())} records of TopicPlain-2 in the log, the first at 0, and no file of their queue"
    assert findings_of(store) == [Finding("consumequeue/TopicPlain/2", 0, "error", text)]


def test_a_topic_that_was_deleted_is_a_note(store: Path) -> None:
    for queue in (store / "consumequeue/TopicPlain").iterdir():
        shutil.rmtree(queue)
    topics = store / "config/topics.json"
    topics.write_text(topics.read_text().replace('"TopicPlain"', '"Gone"'))
    found = findings_of(store)
    assert {finding.severity for finding in found} == {"note"}
    assert len(found) == 4
    assert all(finding.text.endswith("no queue: the topic was deleted") for finding in found)


def test_blank_entries_and_those_of_cleaned_records_stand_before_the_first(tmp_path: Path) -> None:
    """A log that was cleaned to its second file: queues still have entries of the first."""
    make_store(tmp_path)
    (tmp_path / "commitlog/00000000000000000000").unlink()
    assert {finding.path for finding in findings_of(tmp_path)} == {"checkpoint"}
    queue = tmp_path / "consumequeue/T0/0/00000000000000000000"
    put(queue, 0, ENTRY.pack(0, 0x7FFFFFFF, 0))
    assert {finding.path for finding in findings_of(tmp_path)} == {"checkpoint"}


def test_a_record_that_cannot_be_read_is_not_held_against_queue_and_index(store: Path) -> None:
    flip(store / LOG, plain_2()[1] + 90)
    (finding,) = findings_of(store)
    assert finding[:2] == (LOG, plain_2()[1])


def test_the_last_record_of_a_queue_cannot_be_read(store: Path) -> None:
    """Its entry stands after that of the last record that can, and is right all the same."""
    last = plain_2()[-1]
    flip(store / LOG_2, last - FILE_SIZE_BYTES + 88)
    (finding,) = findings_of(store)
    assert finding[:3] == (LOG_2, last, "error")


def test_further_queues_of_a_record(tmp_path: Path) -> None:
    make_store(tmp_path)
    queue = "consumequeue/%LMQ%x/0/00000000000000000000"
    flip(tmp_path / queue, 27)
    assert [(finding.path, finding.offset) for finding in findings_of(tmp_path)[:-1]] == [(queue, 20)]


def test_a_further_queue_that_is_named_twice_or_is_the_records_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It gets the record once."""
    further = [
        {"INNER_MULTI_DISPATCH": "T0,T1,T1", "INNER_MULTI_QUEUE_OFFSET": f"{number},{number},{number}"}
        for number in range(3)
    ]
    monkeypatch.setattr(store_copies, "messages", lambda: [Message("T0", b"body", 0, each) for each in further])
    make_store(tmp_path)
    assert {finding.path for finding in findings_of(tmp_path)} == {"checkpoint"}


def test_a_unit_of_an_extension_file(tmp_path: Path) -> None:
    make_store(tmp_path)
    extension = "consumequeue_ext/T0/0/00000000000000000000"
    flip(tmp_path / extension, 20 + 9)
    finding, _ = findings_of(tmp_path)
    assert (finding.path, finding.offset, finding.severity) == (extension, 20, "error")
    put(tmp_path / extension, 20, b"\0")
    put(tmp_path / extension, 21, b"\0")
    finding, _ = findings_of(tmp_path)
    assert finding.text.startswith("no unit here for the record at ")


# --- the rest ---------------------------------------------------------------------------------------------------------


def test_a_truncated_checkpoint(store: Path) -> None:
    with (store / "checkpoint").open("r+b") as file:
        file.truncate(24)
    assert findings_of(store) == [Finding("checkpoint", 0, "error", "the file is 24 bytes long, a checkpoint has 4096")]


def test_time_stamps_that_cannot_be(store: Path) -> None:
    put(store / "checkpoint", 0, b"\x7f")
    put(store / "checkpoint", 8, b"\xff")
    future, negative = findings_of(store)
    assert (future.offset, future.severity) == (0, "note")
    assert "is later than the newest record was stored, 17952" in future.text
    assert (negative.offset, negative.severity) == (8, "error")


def point(**changes: int) -> RecoveryPoint:
    last = golden_messages()[-1]
    facts = {
        "file_size_bytes": FILE_SIZE_BYTES,
        "offset": END_OFFSET,
        "record_offset": last["phyOffset"],
        "record_size": last["total"],
        "record_store_timestamp_ms": last["store"],
    }
    return RecoveryPoint(**(facts | changes))


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({}, None),
        ({"file_size_bytes": 4096}, "the recovery point is of a log with files of 4096 bytes"),
        ({"offset": END_OFFSET + 1}, f"the recovery point {END_OFFSET + 1} is past the log's end, {END_OFFSET}"),
        ({"record_size": 1}, f"the recovery point {END_OFFSET} names another record"),
        ({"record_offset": 1}, f"the recovery point {END_OFFSET}: no record stands at 1"),
    ],
)
def test_the_recovery_point(store: Path, changes: dict[str, int], words: str | None) -> None:
    put(store / "checkpoint", 0, Checkpoint(0, 0, 0, point(**changes)).encode())
    found = findings_of(store)
    if words is None:
        assert found == []
    else:
        (finding,) = found
        assert finding[:3] == ("checkpoint", 512, "error")
        assert finding.text.startswith(words)


@pytest.mark.parametrize(
    ("later_ms", "record_size", "abort", "words"),
    [
        (0, 100, False, "files are missing before it"),
        (0, 100, True, "files are missing before it"),
        (0, 0, True, "the next start gives the log up"),
        (1, 100, False, None),
        (1, 100, True, None),
    ],
)
def test_a_recovery_point_before_the_log(
    store: Path, later_ms: int, record_size: int, abort: bool, words: str | None
) -> None:
    """RocketMQ moves its own stamps, and cleans a log that was ours beyond our point."""
    (store / LOG).unlink()
    if abort:
        (store / "abort").touch()
    stored_ms = golden_messages()[0]["store"]
    stamp = stored_ms + later_ms
    before = point(offset=1000, record_offset=900, record_size=record_size, record_store_timestamp_ms=stored_ms)
    put(store / "checkpoint", 0, Checkpoint(stamp, stamp, stamp, before).encode())
    found = [finding for finding in findings_of(store) if finding.path == "checkpoint"]
    assert [words in finding.text for finding in found if words] == ([] if words is None else [True])
    assert len(found) == (words is not None)


def test_a_recovery_point_with_a_flipped_bit(store: Path) -> None:
    put(store / "checkpoint", 0, Checkpoint(0, 0, 0, point()).encode())
    flip(store / "checkpoint", 530)
    (finding,) = findings_of(store)
    assert finding[:3] == ("checkpoint", 512, "error")


def test_after_a_crash_only_what_is_past_the_recovery_point_is_recoverable(store: Path) -> None:
    row = golden_messages()[100]
    before = point(
        offset=row["phyOffset"] + row["total"],
        record_offset=row["phyOffset"],
        record_size=row["total"],
        record_store_timestamp_ms=row["store"],
    )
    put(store / "checkpoint", 0, Checkpoint(0, 0, 0, before).encode())
    (store / "abort").touch()
    assert findings_of(store) == []
    flip(store / LOG, golden_messages()[50]["phyOffset"] + 90)
    flip(store / LOG, golden_messages()[110]["phyOffset"] + 90)
    assert [finding.severity for finding in findings_of(store)] == ["error", "recoverable"]


def test_damage_in_a_killed_store_of_rocketmq_is_an_error(tmp_path: Path) -> None:
    """Its time stamps say nothing of the log; the next start would cut whole records off."""
    store = copy_store(STORE_MASTER_KILLED, tmp_path / "store")
    flip(store / LOG, 90)
    assert [finding.severity for finding in findings_of(store)] == ["error"]


@pytest.mark.parametrize("name", ["topics.json", "delayOffset.json.bak"])
def test_a_file_that_is_no_json(store: Path, name: str) -> None:
    (store / "config" / name).write_text('{"a":')
    (finding,) = findings_of(store)
    assert finding[:3] == (f"config/{name}", 0, "error")
    assert finding.text.startswith("cannot be read (")


@pytest.mark.parametrize(
    ("name", "content", "told"),
    [
        ("topics.json", '{"topicConfigTable":7}', "topicConfigTable"),
        ("subscriptionGroup.json", '{"subscriptionGroupTable":[]}', "subscriptionGroupTable"),
        ("consumerOffset.json", '{"offsetTable":{"T@G":{"x":1}}}', "x"),
        ("delayOffset.json", '{"offsetTable":{"1":-1}}', "level 1 has offset -1"),
        ("deletedTopics.json", "{}", "there is not"),
        ("roleExchange.json", "{}", "it lacks one of"),
        ("replicationTerm.json", '{"term":"7","leads":true,"resigned":false}', "term '7' is no integer"),
        ("replicationTerm.json.bak", "[]", "there is not"),
    ],
)
def test_a_file_that_no_start_takes(store: Path, name: str, content: str, told: str) -> None:
    (store / "config" / name).write_text(content)
    (finding,) = findings_of(store)
    assert finding[:3] == (f"config/{name}", 0, "error")
    assert finding.text.startswith("cannot be read (")
    assert told in finding.text


@pytest.mark.parametrize(
    ("name", "make", "told"),
    [
        ("abort", Path.mkdir, "a directory: a file has this name"),
        ("lock", Path.mkdir, "a directory: a file has this name"),
        ("lock", os.mkfifo, "cannot be opened: neither a file nor a directory"),
        ("config", Path.touch, "a file: a directory has this name"),
        ("transaction", Path.touch, "a file: a directory has this name"),
        (LOG_2, os.mkfifo, "cannot be opened: neither a file nor a directory"),
    ],
)
def test_what_is_of_the_wrong_kind(store: Path, name: str, make: Callable[[Path], None], told: str) -> None:
    path = store / name
    shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)
    make(path)
    assert (name, "error", told) in [(each.path, each.severity, each.text) for each in findings_of(store)]


def test_unknown_names_are_notes_but_where_a_start_refuses_them(store: Path) -> None:
    (store / "timerwheel").touch()
    (store / "config" / "x.tmp").touch()
    (store / "index" / "x").touch()
    (store / "consumequeue" / "TopicPlain" / "x").mkdir()
    assert sorted((finding.path, finding.severity) for finding in findings_of(store)) == [
        ("config/x.tmp", "note"),
        ("consumequeue/TopicPlain/x", "note"),
        ("index/x", "error"),
        ("timerwheel", "note"),
    ]


@pytest.mark.parametrize("source", [STORE_MASTER_CLEAN, STORE_MASTER_KILLED], ids=lambda path: path.name)
@pytest.mark.parametrize(
    "missing", [(), ("consumequeue", "index", "checkpoint"), ("index/20261121012540073",)], ids=str
)
def test_nothing_is_wrong_with_a_store_that_was_opened(tmp_path: Path, source: Path, missing: tuple[str, ...]) -> None:
    """While it runs, after a kill, after an orderly stop; and `store advise` is right in what it advises."""
    root = copy_store(source, tmp_path / "store")
    for name in missing:
        if (root / name).is_dir():
            shutil.rmtree(root / name)
        else:
            (root / name).unlink()
    environment = Environment(OsDisk(root), StillClock(), NoEntropy())

    async def open_twice() -> None:
        for _ in range(2):
            files = await StoreFiles.open(GOLDEN_CONFIG, environment, new_tracer())
            assert findings_of(root) == []
            files.close()
            assert findings_of(root) == []
        files = await StoreFiles.open(GOLDEN_CONFIG, environment, new_tracer())
        await files.shut_down()
        files.close()

    trio.run(open_twice)
    assert findings_of(root) == []
    assert not (root / "abort").exists()


def test_files_past_the_recovery_point_may_be_short_or_missing_after_a_crash(store: Path) -> None:
    """A power loss takes names and lengths that nobody has synced."""
    put(store / "checkpoint", 0, Checkpoint(0, 0, 0, point(offset=0, record_size=0)).encode())
    with (store / LOG_2).open("r+b") as file:
        file.truncate(4096)
    assert {finding.severity for finding in findings_of(store) if finding.path == LOG_2} == {"error"}
    (store / "abort").touch()
    assert {finding.severity for finding in findings_of(store)} == {"recoverable"}


# --- transactions -----------------------------------------------------------------------------------------------------

REDO = "transaction/redolog/TRANSACTION_REDOLOG_TOPIC_XXXX/0/00000000000000000000"
TABLE = "transaction/statetable/00000000000000000000"


def set_state(root: Path) -> None:
    put(root / TABLE, 24 + 20, (4).to_bytes(4, "big"))


@pytest.mark.parametrize(
    ("damage", "path", "offset", "words"),
    [
        (lambda root: flip(root / REDO, 11), REDO, 0, "entry 0 of tranRedoLog has size "),
        (lambda root: flip(root / REDO, 7), REDO, 0, "entry 0 of tranRedoLog is of offset "),
        (lambda root: flip(root / TABLE, 11), TABLE, 0, "entry 0 of tranStateTable has size "),
        (lambda root: flip(root / TABLE, 15), TABLE, 0, "entry 0 of tranStateTable has store time "),
        (lambda root: put(root / TABLE, 20, b"\1"), TABLE, 0, "entry 0 of tranStateTable has state "),
        (set_state, TABLE, 24, "entry 1 of tranStateTable is prepared, but the transaction at "),
        (
            lambda root: put(root / TABLE, 23, b"\x08"),
            TABLE,
            0,
            "no prepared entry for the open transaction at ",
        ),
    ],
)
def test_open_transactions(tmp_path: Path, damage: Callable[[Path], None], path: str, offset: int, words: str) -> None:
    make_store(tmp_path)
    damage(tmp_path)
    found = [finding for finding in findings_of(tmp_path) if finding.path != "checkpoint"]
    assert any((finding.path, finding.offset) == (path, offset) and finding.text.startswith(words) for finding in found)
    assert {finding.severity for finding in found} == {"error"}


@pytest.fixture(autouse=True)
def _golden_stays() -> Iterator[None]:
    before = {path: path.stat().st_mtime_ns for path in STORE_MASTER_CLEAN.rglob("*")}
    yield
    assert {path: path.stat().st_mtime_ns for path in STORE_MASTER_CLEAN.rglob("*")} == before
