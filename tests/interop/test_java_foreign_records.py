"""What a RocketMQ 4.9.7 master takes of a batch with properties that are not UTF-8, or longer than it can read.

Sent raw over its port. A slave of RocketMQ and one of this project follow it, and hold the same.
"""

from __future__ import annotations

import shutil
import struct
from collections.abc import Callable
from pathlib import Path

import pytest
import trio

from rmq_actors.broker.broker_controller import open_broker
from rmq_actors.broker.config import BrokerConfig
from rmq_actors.ha.config import HaConfig
from rmq_actors.real_io.environment import real_environment
from rmq_actors.store.config import BrokerRole, MessageStoreConfig
from rmq_actors.store.files.formats import BLANK_ENTRY
from rmq_actors.store.message_store import MessageStore
from rmq_actors.store.read.get_message import DefaultMessageFilter
from rmq_actors.wire.java_string import java_hash_code
from rmq_actors.wire.record import StoredMessage, check_record
from tests.interop.conftest import MakeJavaBroker, MakeJavaSlave, MakeTracer
from tests.worlds.foreign_records import (
    NO_UTF8_KEYS,
    NO_UTF8_PROPERTIES,
    NO_UTF8_TAGS,
    NO_UTF8_UNIQ_KEY,
)
from tests.worlds.java_broker import MAPPED_FILE_SIZE, REPLICATION_TIMEOUT_S, JavaBroker, commit_log_files
from tests.worlds.java_client import JavaClient, Sent, decode_records
from tests.worlds.server_process import wait_until

pytestmark = [pytest.mark.interop, pytest.mark.trio, pytest.mark.timeout(600)]

FOREIGN, LONG = "Foreign", "Long"
#: Of the batch: after `ALMOST_TOO_LONG` it makes properties whose length is negative as a short.
COMMON = "P\x01" + "p" * 200
ALMOST_TOO_LONG = b"TAGS\1b\2KEYS\1long\2X\1".ljust(32_700, b"x")
KEYS = (*NO_UTF8_KEYS, NO_UTF8_UNIQ_KEY)
_UNIT = struct.Struct(">qiq")
_PROPERTIES_LENGTH = struct.Struct(">h")


def units_of(store: Path, topic: str) -> list[tuple[int, ...]]:
    """The entries of queue 0, blank ones too, as they stand in its files: offset, size, tags code."""
    data = b"".join(path.read_bytes() for path in sorted((store / "consumequeue" / topic / "0").glob("[0-9]*")))
    return [unit for unit in _UNIT.iter_unpack(data) if unit[1]]


def without_blanks(units: list[tuple[int, ...]]) -> list[tuple[int, ...]]:
    return [unit for unit in units if unit != _UNIT.unpack(BLANK_ENTRY)]


def offsets(records: list[StoredMessage]) -> list[int]:
    return [record.physical_offset for record in records]


def offsets_of(sent: list[Sent]) -> list[int]:
    return [each.physical_offset for each in sent]


def has_both(store: Path) -> bool:
    """Whether the two records of the second batch that can be dispatched are in their queue."""
    return len(without_blanks(units_of(store, LONG))) == 2


def found_at_java(broker: JavaBroker) -> dict[str, list[int]]:
    """Where the records are that it finds by key, and by tag."""
    with JavaClient.connect(broker.listen_port) as client:
        by_key = {key: offsets(client.query(FOREIGN, key)) for key in KEYS}
        return by_key | {"by tag": offsets(client.pull_queue(FOREIGN, 0, NO_UTF8_TAGS))}


async def found_here(store: MessageStore) -> dict[str, list[int]]:
    found = {}
    for key in KEYS:
        result = await store.query_message(FOREIGN, key, 64, 0, 2**62)
        found[key] = offsets(decode_records(b"".join(result.messages)))
    by_tag = store.reads.get_message(FOREIGN, 0, 0, 32, DefaultMessageFilter({java_hash_code(NO_UTF8_TAGS)}))
    return found | {"by tag": offsets(decode_records(b"".join(by_tag.messages)))}


async def wait_for(condition: Callable[[], bool], what: str) -> None:
    await trio.to_thread.run_sync(wait_until, condition, REPLICATION_TIMEOUT_S, what)


def put_all(master: JavaBroker) -> tuple[list[Sent], list[Sent]]:
    """A batch with properties that are not UTF-8, between others; then one with some that are too long."""
    with JavaClient.connect(master.listen_port) as client:
        foreign = client.put_raw_batch(
            FOREIGN, [(b"0", b"TAGS\1a"), (b"1", NO_UTF8_PROPERTIES), (b"2", b"TAGS\1c\2KEYS\1k2")]
        )
        wait_until(lambda: len(units_of(master.store, FOREIGN)) == 3, REPLICATION_TIMEOUT_S, "the master's queue")
        items = [(b"0", b"TAGS\1a"), (b"1", ALMOST_TOO_LONG), (b"2", b"TAGS\1c\2KEYS\1k")]
        return foreign, client.put_raw_batch(LONG, items, common=COMMON)


async def test_slaves_hold_what_a_java_master_takes_of_foreign_batches(
    tmp_path: Path, make_java_broker: MakeJavaBroker, java_slave: MakeJavaSlave, make_tracer: MakeTracer
) -> None:
    master = make_java_broker("master")
    await trio.to_thread.run_sync(master.start)
    slave = java_slave(master.ha_address, MAPPED_FILE_SIZE)
    store = tmp_path / "ours" / "store"
    config = BrokerConfig(
        store=MessageStoreConfig(
            broker_role=BrokerRole.SLAVE,
            mapped_file_size_commit_log_bytes=MAPPED_FILE_SIZE,
            mapped_file_size_consume_queue_bytes=2000,
            max_hash_slot_num=500,
            max_index_num=2000,
        ),
        ha=HaConfig(ha_listen_port=0, ha_master_address=master.ha_address),
    )
    async with trio.open_nursery() as nursery:
        nursery.start_soon(trio.to_thread.run_sync, slave.start)
        foreign, long = await trio.to_thread.run_sync(put_all, master)

    async with open_broker(config, real_environment(store), make_tracer("slave")) as broker:
        await wait_for(lambda: has_both(slave.store) and has_both(store), "both slaves' queues")
        [_, record, _], offset = foreign, foreign[1].physical_offset
        # Whatever the master took as bytes, it reads as text.
        units = units_of(master.store, FOREIGN)
        assert [unit[2] for unit in units] == [java_hash_code(tag) for tag in ("a", NO_UTF8_TAGS, "c")]
        assert units[record.queue_offset][0] == offset
        assert units_of(slave.store, FOREIGN) == units_of(store, FOREIGN) == units
        found = await trio.to_thread.run_sync(found_at_java, master)
        assert found == {key: [offset] for key in KEYS} | {"k2": offsets_of(foreign[1:]), "by tag": [offset]}
        assert await found_here(broker.store) == found
        # The record that is too long is in each log, and in no queue.
        log = commit_log_files(master.store)[0]
        assert commit_log_files(slave.store)[0] == commit_log_files(store)[0] == log
        check = check_record(memoryview(log), long[1].physical_offset, long[1].physical_offset)
        assert (check.what, check.is_passed_over) == ("message", True)
        properties = log.index(b"KEYS\1long") - len("TAGS_b_")
        assert _PROPERTIES_LENGTH.unpack_from(log, properties - 2)[0] < 0
        expected = offsets_of([long[0], long[2]])
        assert [unit[0] for unit in units_of(slave.store, LONG)] == expected
        ours = units_of(store, LONG)
        assert without_blanks(ours) == units_of(slave.store, LONG)
        assert [unit[0] for unit in ours] == [expected[0], 0, expected[1]]
        assert broker.store.files.reput.passed_over.count == 1
        end = broker.store.commit_log.max_offset
    for each in (master, slave):
        await trio.to_thread.run_sync(each.kill)
    # What is left of a slave of either kind opens here with all of its log.
    shutil.copytree(slave.store, tmp_path / "copy")
    for directory in (store, tmp_path / "copy"):
        async with open_broker(config, real_environment(directory), make_tracer("again")) as broker:
            assert broker.store.commit_log.max_offset == end
            assert await found_here(broker.store) == found
