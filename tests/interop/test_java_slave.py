"""An unmodified RocketMQ 4.9.7 slave follows this project's master over loopback and ends with the same bytes."""

from __future__ import annotations

import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import trio

from rmq_actors.broker.broker_controller import BrokerController, open_broker
from rmq_actors.broker.config import BrokerConfig
from rmq_actors.ha.config import HaConfig
from rmq_actors.protocols.put_completion import PutStatus
from rmq_actors.real_io.environment import real_environment
from rmq_actors.store.config import BrokerRole, MessageStoreConfig
from rmq_actors.tracing.recorder import Tracer
from rmq_actors.wire.record import Message
from tests.interop.conftest import GOLDEN_END, GOLDEN_MESSAGES, GOLDEN_STORE, MakeJavaSlave, MakeTracer
from tests.worlds.java_broker import MAPPED_FILE_SIZE, REPLICATION_TIMEOUT_S, JavaBroker, commit_log_files

pytestmark = [pytest.mark.interop, pytest.mark.trio, pytest.mark.timeout(600)]


@asynccontextmanager
async def open_master(store: Path, tracer: Tracer) -> AsyncIterator[BrokerController]:
    """Our SYNC_MASTER on a store directory, with the golden's settings and an HA port that the system chose."""
    config = BrokerConfig(
        store=MessageStoreConfig(
            broker_role=BrokerRole.SYNC_MASTER,
            mapped_file_size_commit_log_bytes=MAPPED_FILE_SIZE,
            mapped_file_size_consume_queue_bytes=2000,
            max_hash_slot_num=500,
            max_index_num=2000,
            slave_timeout_ms=int(REPLICATION_TIMEOUT_S * 1000),
        ),
        ha=HaConfig(ha_listen_port=0),
    )
    async with open_broker(config, real_environment(store), tracer) as broker:
        yield broker


async def put(master: BrokerController, count: int, **properties: str) -> list[PutStatus]:
    """Put `count` messages of 12 kB from as many tasks; return how each was answered."""
    statuses: list[PutStatus] = []

    async def put_one(number: int) -> None:
        body = f"message {number} ".encode() + bytes([number]) * 12_000
        message = Message("TopicInterop", body, queue_id=number % 4, properties={"KEYS": f"key{number}", **properties})
        statuses.append((await master.put_message(message)).status)

    async with trio.open_nursery() as nursery:
        for number in range(count):
            nursery.start_soon(put_one, number)
    return statuses


async def wait_until_same(slave: JavaBroker, master_store: Path) -> None:
    def same() -> bool:
        return commit_log_files(slave.store) == commit_log_files(master_store)

    await trio.to_thread.run_sync(slave.wait_until, same, REPLICATION_TIMEOUT_S, "the slave's log is the master's")


def dispatched(store: Path) -> int:
    """How many messages a broker has entered in its consume queues: entries of 20 bytes with a size."""
    entries = 0
    for path in (store / "consumequeue").rglob("*"):
        data = path.read_bytes() if path.is_file() else b""
        entries += sum(1 for at in range(0, len(data), 20) if any(data[at + 8 : at + 12]))
    return entries


async def test_java_slave_gets_the_golden_log_and_what_is_put_after_it(
    tmp_path: Path, java_slave: MakeJavaSlave, make_tracer: MakeTracer
) -> None:
    store = tmp_path / "master" / "store"
    # As if written now: at four in the morning a broker removes files that are three days old.
    shutil.copytree(GOLDEN_STORE, store, copy_function=shutil.copy)
    async with open_master(store, make_tracer("master")) as master:
        assert master.store.commit_log.max_offset == GOLDEN_END
        slave = java_slave(master.ha_address, MAPPED_FILE_SIZE)
        await trio.to_thread.run_sync(slave.start)
        await wait_until_same(slave, store)
        assert await put(master, 40) == [PutStatus.PUT_OK] * 40
        await wait_until_same(slave, store)
        await trio.to_thread.run_sync(slave.stop)

    assert slave.stopped_in_order()
    files = commit_log_files(slave.store)
    assert list(files) == [0, MAPPED_FILE_SIZE, 2 * MAPPED_FILE_SIZE, 3 * MAPPED_FILE_SIZE]
    assert files == commit_log_files(store)
    assert dispatched(slave.store) == GOLDEN_MESSAGES + 40


async def test_a_killed_java_slave_comes_back_and_goes_on_where_it_was(
    tmp_path: Path, java_slave: MakeJavaSlave, make_tracer: MakeTracer
) -> None:
    store = tmp_path / "master" / "store"
    async with open_master(store, make_tracer("master")) as master:
        slave = java_slave(master.ha_address, MAPPED_FILE_SIZE)
        await trio.to_thread.run_sync(slave.start)
        await put(master, 15, WAIT="false")
        await wait_until_same(slave, store)
        await trio.to_thread.run_sync(slave.kill)
        assert await put(master, 15, WAIT="false") == [PutStatus.PUT_OK] * 15
        assert commit_log_files(slave.store) != commit_log_files(store)
        await trio.to_thread.run_sync(slave.start)
        await wait_until_same(slave, store)
        await trio.to_thread.run_sync(slave.stop)

    assert slave.stopped_in_order()
    assert commit_log_files(slave.store) == commit_log_files(store)
    assert dispatched(slave.store) == 30
