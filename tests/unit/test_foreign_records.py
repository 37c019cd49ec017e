"""A store with records that RocketMQ's master takes of batches, and no put here: it goes on with them as RocketMQ does.

Topic or properties may not be UTF-8: they are read with U+FFFD, and dispatched. Properties of 32,768 to 65,535 bytes:
RocketMQ cannot read them, and passes over the record. None of them stops a slave, its stop in order, or its next start.
"""

from __future__ import annotations

import contextlib
import json
import logging
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing
from typer.testing import CliRunner

from rmq_actors.cli.main import app
from rmq_actors.real_io.os_disk import OsDisk
from rmq_actors.store.check.dump import read_commit_log
from rmq_actors.store.config import BrokerRole
from rmq_actors.store.files.layout import ABORT_FILE
from rmq_actors.store.message_store import MessageStore
from rmq_actors.wire.java_string import java_hash_code
from rmq_actors.wire.record import EncodedMessage, StoredMessage
from tests.worlds.foreign_records import (
    LONG_PROPERTIES,
    NO_UTF8_KEYS,
    NO_UTF8_PROPERTIES,
    NO_UTF8_TAGS,
    NO_UTF8_UNIQ_KEY,
    encode_foreign,
)
from tests.worlds.running_store import RunningStore, running_store
from tests.worlds.store_copies import findings_of

SETTINGS: dict[str, Any] = {
    "broker_role": BrokerRole.SLAVE,
    "mapped_file_size_commit_log_bytes": 1 << 20,
    "mapped_file_size_consume_queue_bytes": 2000,
    "max_hash_slot_num": 100,
    "max_index_num": 400,
}
#: Topic, properties, queue offset, and whether RocketMQ dispatches the record.
RECORDS: Sequence[tuple[bytes, bytes, int, bool]] = (
    (b"T", b"TAGS\1a\2KEYS\1k0", 0, True),
    (b"T", NO_UTF8_PROPERTIES, 1, True),
    (b"T", LONG_PROPERTIES, 2, False),
    (b"T", b"TAGS\1c\2KEYS\1k2", 3, True),
    (b"T\xff\xed\xa0\x80", NO_UTF8_PROPERTIES, 0, True),
    (b"Long", LONG_PROPERTIES, 0, False),
    (b"Long", b"KEYS\1k", 1, True),
    (b"Half", LONG_PROPERTIES, 0, False),
    (b"RMQ_SYS_TRANS_HALF_TOPIC", LONG_PROPERTIES, 0, False),
    (b"T", LONG_PROPERTIES, 4, False),
)
DISPATCHED = [number for number, record in enumerate(RECORDS) if record[3]]
PASSED_OVER = len(RECORDS) - len(DISPATCHED)
FFFD_TOPIC = "T\ufffd\ufffd"


def records(**fields: Any) -> list[EncodedMessage]:
    """They, one after the other."""
    encoded, offset = [], 0
    for number, (topic, properties, queue_offset, _) in enumerate(RECORDS):
        record = encode_foreign(topic, properties, b"body %d" % number, born_timestamp_ms=number, **fields)
        record.place(queue_offset=queue_offset, physical_offset=offset, store_timestamp_ms=1_700_000_000_000 + number)
        offset += len(record.data)
        encoded.append(record)
    return encoded


def bytes_of(encoded: Sequence[EncodedMessage]) -> bytes:
    return b"".join(bytes(record.data) for record in encoded)


def bodies(store: MessageStore, topic: str) -> list[bytes]:
    """What a consumer of queue 0 gets."""
    found: list[bytes] = []
    at = store.offsets.get_min_offset_in_queue(topic, 0)
    while at < store.offsets.get_max_offset_in_queue(topic, 0):
        result = store.reads.get_message(topic, 0, at, 32)
        for message in result.messages:
            offset = int.from_bytes(message[28:36], "big")
            stored = store.records.look_message_by_offset(offset, len(message))
            assert stored is not None
            found.append(stored.body)
        assert result.next_begin_offset > at
        at = result.next_begin_offset
    return found


async def by_key(store: MessageStore, topic: str, key: str) -> int:
    found = await store.query_message(topic, key, 32, 0, 1 << 62)
    return len(found.messages)


async def check_contents(store: MessageStore, encoded: Sequence[EncodedMessage]) -> None:
    """All that Java would give, and a blank where it would append the entry of the next record."""
    assert bodies(store, "T") == [b"body 0", b"body 1", b"body 3"]
    assert bodies(store, FFFD_TOPIC) == [b"body 4"]
    assert bodies(store, "Long") == [b"body 6"]
    assert bodies(store, "Half") == []
    queue = store.files.consume_queues.find("T", 0)
    assert queue is not None
    entries = [queue.entry(index) for index in range(5)]
    codes = [entry and entry[2] for entry in entries]
    assert codes == [java_hash_code("a"), java_hash_code(NO_UTF8_TAGS), None, java_hash_code("c"), None]
    for topic in ("T", FFFD_TOPIC):
        for key in (*NO_UTF8_KEYS, NO_UTF8_UNIQ_KEY):
            assert await by_key(store, topic, key) == 1 + (topic == "T" and key == "k2")
    assert await by_key(store, "T", "long") == 0
    for number, record in enumerate(encoded):
        offset = int.from_bytes(record.data[28:36], "big")
        stored = store.records.look_message_by_offset(offset)
        assert stored is not None
        assert (stored.body, stored.is_passed_over) == (b"body %d" % number, not RECORDS[number][3])


@contextlib.asynccontextmanager
async def slave(root: Path) -> AsyncIterator[RunningStore]:
    """A slave's store that stops in order."""
    async with running_store(root, **SETTINGS) as running:
        yield running
        await running.store.shut_down()


async def wait_dispatched(running: RunningStore) -> None:
    store = running.store
    with trio.fail_after(60):
        while store.files.reput.reput_from_offset < store.commit_log.max_offset:
            await trio.sleep(0.1)


@pytest.mark.trio
@pytest.mark.parametrize("columns", [False, True])
@pytest.mark.parametrize("host", ["127.0.0.1:1", "[::1]:1"])
async def test_a_slave_dispatches_what_rocketmq_does_and_stops_and_starts_in_order(
    tmp_path: Path,
    autojump_clock: trio.testing.MockClock,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    host: str,
    columns: bool,
) -> None:
    if columns:
        for module in ("log.log_walk", "dispatch.reput_message_service"):
            monkeypatch.setattr(f"rmq_actors.store.{module}.COLUMNS_RECORDS_FIRST", 1)
            monkeypatch.setattr(f"rmq_actors.store.{module}.COLUMNS_RECORDS_MIN", 1)
    encoded = records(born_host=host, store_host=host)
    data = bytes_of(encoded)
    caplog.set_level(logging.WARNING)
    async with slave(tmp_path) as running:
        for begin in range(0, len(data), 32_768):
            running.store.append_to_commit_log(begin, data[begin : begin + 32_768])
            await trio.sleep(0.01)
        await wait_dispatched(running)
        assert running.store.running_flags.is_writeable
        assert running.store.files.reput.passed_over.count == PASSED_OVER
        await check_contents(running.store, encoded)
    assert not (tmp_path / ABORT_FILE).exists()
    [told] = [record for record in caplog.records if "bytes of properties" in record.getMessage()]
    assert "of T-0 has more than 32767 bytes" in told.getMessage()
    async with slave(tmp_path) as running:
        assert running.store.commit_log.max_offset == len(data)
        await check_contents(running.store, encoded)


@pytest.mark.trio
@pytest.mark.parametrize("after_crash", [False, True])
async def test_a_store_of_rocketmq_with_such_records_is_opened_whole(
    tmp_path: Path, autojump_clock: trio.testing.MockClock, caplog: pytest.LogCaptureFixture, after_crash: bool
) -> None:
    """RocketMQ itself cuts its log where properties are too long: here nothing is cut."""
    encoded = records()
    data = bytes_of(encoded)
    (tmp_path / "commitlog").mkdir()
    (tmp_path / "commitlog" / ("0" * 20)).write_bytes(data.ljust(1 << 20, b"\0"))
    if after_crash:
        (tmp_path / ABORT_FILE).touch()
    async with slave(tmp_path) as running:
        assert running.store.commit_log.max_offset == len(data)
        assert running.store.files.reput.passed_over.count == PASSED_OVER
        await check_contents(running.store, encoded)
    assert not (tmp_path / "cut").exists()
    assert sum("bytes of properties" in message for message in caplog.messages) == 1


@pytest.mark.trio
async def test_a_stop_names_the_record_that_rocketmq_cannot_read_either(
    tmp_path: Path, autojump_clock: trio.testing.MockClock
) -> None:
    """It is no stop in order; what was received before stays, and what came after is kept by the next start."""
    before, bad, behind = encode_foreign(b"T", b"A\1b"), encode_foreign(b"t" * 128, b""), encode_foreign(b"T", b"A\1c")
    offset = 0
    for record in (before, bad, behind):
        record.place(queue_offset=int(record is behind), physical_offset=offset, store_timestamp_ms=1)
        offset += len(record.data)

    async def run() -> None:
        async with running_store(tmp_path, **SETTINGS) as running:
            running.store.append_to_commit_log(0, bytes_of([before, bad, behind]))
            await trio.sleep(2)
            assert f"no valid record at offset {len(before.data)}: topicLen 128" in (
                running.store.running_flags.why_not_writeable
            )
            with pytest.raises(OSError, match=f"not stopped in order.*offset {len(before.data)}: topicLen 128"):
                await running.store.shut_down()

    await run()
    assert (tmp_path / ABORT_FILE).exists()
    async with slave(tmp_path) as running:
        assert running.store.commit_log.max_offset == len(before.data)
        assert bodies(running.store, "T") == [b""]
    assert (tmp_path / "cut" / f"{len(before.data):020}").read_bytes() == bytes_of([bad, behind])


@pytest.mark.trio
async def test_a_check_has_a_note_for_each_kind(tmp_path: Path, autojump_clock: trio.testing.MockClock) -> None:
    encoded = records()
    async with slave(tmp_path) as running:
        running.store.append_to_commit_log(0, bytes_of(encoded))
        await wait_dispatched(running)
    found = findings_of(tmp_path)
    assert [(finding.severity, finding.offset) for finding in found] == [
        ("note", sum(len(record.data) for record in encoded[:2])),
        ("note", len(encoded[0].data)),
    ]
    assert found[0].text.startswith("a record with more than 32767 bytes of properties")
    assert found[0].text.endswith(f"{PASSED_OVER} in the log")
    assert "not UTF-8" in found[1].text
    assert found[1].text.endswith("2 in the log")


@pytest.mark.trio
async def test_a_dump_prints_them_as_rocketmq_reads_them(
    tmp_path: Path, autojump_clock: trio.testing.MockClock
) -> None:
    async with slave(tmp_path) as running:
        running.store.append_to_commit_log(0, bytes_of(records()))
    found = list(read_commit_log(OsDisk(tmp_path)))
    assert [isinstance(item, StoredMessage) for item in found] == [True] * len(RECORDS)
    result = CliRunner().invoke(app, ["store", "dump", "--json", str(tmp_path)])
    assert result.exit_code == 0
    lines = [json.loads(line) for line in result.stdout.splitlines()]
    assert [line["topic"] for line in lines] == [item.topic for item in found if isinstance(item, StoredMessage)]
    assert lines[1]["properties"] == {"TAGS": "\ufffd\ufffd", "KEYS": "k\ufffdx k2", "UNIQ_KEY": "u\ufffd"}
    assert [line.get("isPassedOver", False) for line in lines] == [not record[3] for record in RECORDS]
    assert lines[2]["properties"]["KEYS"] == "long"
    rows = CliRunner().invoke(app, ["store", "dump", str(tmp_path)]).stdout.splitlines()
    assert [row.endswith("(passed over: in no queue, in no index)") for row in rows] == [
        not record[3] for record in RECORDS
    ]
