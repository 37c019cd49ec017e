"""This project's slave asks Java masters about the end of its log: what they answer tells two logs apart."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
import trio

from rmq_actors.broker.broker_controller import BrokerController, open_broker
from rmq_actors.broker.config import BrokerConfig
from rmq_actors.broker.master_records import MasterRecords
from rmq_actors.ha.config import HaConfig
from rmq_actors.protocols.following import Halt
from rmq_actors.real_io.environment import real_environment
from rmq_actors.remoting.config import RemotingServerConfig
from rmq_actors.store.config import BrokerRole, MessageStoreConfig
from rmq_actors.wire.record import Message, encode_blank
from tests.interop.servers import Servers
from tests.worlds.java_broker import MAPPED_FILE_SIZE, REPLICATION_TIMEOUT_S, JavaBroker, commit_log_files
from tests.worlds.recording import Watch, new_recorder
from tests.worlds.server_process import free_broker_port

pytestmark = [pytest.mark.interop, pytest.mark.trio, pytest.mark.timeout(600)]


@pytest.fixture(params=["4.9.7", "5.3.1"])
def master(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[JavaBroker]:
    """Of either RocketMQ; not started yet."""
    runtime = request.getfixturevalue({"4.9.7": "java_runtime", "5.3.1": "java_runtime_5"}[request.param])
    with contextlib.closing(Servers(tmp_path, runtime)) as servers:
        yield servers.java_broker("master")


@contextlib.asynccontextmanager
async def opened(
    store: Path, role: BrokerRole, master: JavaBroker | None = None
) -> AsyncIterator[tuple[BrokerController, Watch]]:
    """Our broker on a directory."""
    recorder = new_recorder()
    config = BrokerConfig(
        "broker-a",
        MessageStoreConfig(broker_role=role, mapped_file_size_commit_log_bytes=MAPPED_FILE_SIZE),
        HaConfig(ha_listen_port=0, ha_master_address=None if master is None else master.ha_address),
        remoting=None if master is None else RemotingServerConfig(listen_port=free_broker_port()),
        broker_id=0 if master is None else 1,
        master_addr=None if master is None else f"127.0.0.1:{master.listen_port}",
    )
    async with open_broker(config, real_environment(store), recorder.tracer("ours")) as broker:
        yield broker, Watch(recorder)


async def send(master: JavaBroker, count: int, size: int = 300) -> None:
    for number in range(count):
        body = (b"%d " % number * size)[:size]
        response = await trio.to_thread.run_sync(master.send, "TopicInterop", body)
        assert response.code == 0, response


async def halted(broker: BrokerController, watch: Watch) -> Halt:
    await watch.until(lambda event: event.kind == "ha.client.halt", timeout_s=REPLICATION_TIMEOUT_S)
    assert broker.followed_master is not None
    assert broker.followed_master.halted is not None
    return broker.followed_master.halted


async def has_all(watch: Watch, master: JavaBroker, store: Path) -> None:
    """Return when the slave has the master's log."""
    with trio.fail_after(REPLICATION_TIMEOUT_S):
        while commit_log_files(store) != commit_log_files(master.store):
            await trio.sleep(0.1)
    assert not watch.seen(lambda event: event.kind == "ha.client.halt")


async def test_what_a_java_master_answers_tells_two_logs_apart(master: JavaBroker, tmp_path: Path) -> None:
    await trio.to_thread.run_sync(master.start)
    store = tmp_path / "slave"
    await send(master, 10)
    async with opened(store, BrokerRole.SLAVE, master) as (broker, watch):
        await has_all(watch, master, store)
        common = broker.store.commit_log.max_offset
    # The same log, and a part of it.
    await send(master, 3)
    async with opened(store, BrokerRole.SLAVE, master) as (broker, watch):
        await has_all(watch, master, store)
        (compared,) = watch.seen(lambda event: event.kind == "ha.client.compare")
        assert (compared.status, compared.attrs) == ("same", {"questions": "1"})
        assert broker.store.commit_log.max_offset > common
        common = broker.store.commit_log.max_offset
    # The slave gets other records, as if the master had lost its own: it is ahead.
    async with opened(store, BrokerRole.ASYNC_MASTER) as (broker, _):
        for number in range(4):
            await broker.put_message(Message("TopicInterop", b"other %d" % number * 40))
        before = broker.store.commit_log.max_offset
    async with opened(store, BrokerRole.SLAVE, master) as (broker, watch):
        halt = await halted(broker, watch)
        assert (halt.reason, halt.end_offset, halt.common_end) == ("diverged", before, common)
        assert "no record at offset" in halt.detail
    # Its master grows past it: in the middle of one record there stand other bytes.
    await send(master, 20, 777)
    async with opened(store, BrokerRole.SLAVE, master) as (broker, watch):
        halt = await halted(broker, watch)
        assert (halt.reason, halt.end_offset, halt.common_end) == ("diverged", before, common)
        assert broker.store.commit_log.max_offset == before
        await broker.truncate_log()
        with trio.fail_after(REPLICATION_TIMEOUT_S):
            while commit_log_files(store) != commit_log_files(master.store):
                await trio.sleep(0.1)
    assert [path.name for path in (store / "cut").iterdir()] == [f"{common:020d}"]


async def test_a_java_master_tells_how_its_file_ends(master: JavaBroker, tmp_path: Path) -> None:
    """And that is how this project's master tells it: a slave that is ahead by a blank must not be followed."""
    await trio.to_thread.run_sync(master.start)
    store = tmp_path / "slave"
    await send(master, 3, MAPPED_FILE_SIZE // 3)
    async with opened(store, BrokerRole.SLAVE, master) as (broker, watch):
        await has_all(watch, master, store)
        assert broker.remoting is not None
        assert broker.config.remoting is not None
        port = broker.config.remoting.listen_port
        java = MasterRecords(broker.remoting.client, lambda: f"127.0.0.1:{master.listen_port}")
        own = MasterRecords(broker.remoting.client, lambda: f"127.0.0.1:{port}")
        log = broker.store.commit_log
        offset = blanks = 0
        while offset < log.max_offset:
            record = await java.record_at(offset)
            assert record is not None
            ours = await own.record_at(offset)
            if record[4:8] == encode_blank(8)[4:]:
                assert ours == encode_blank(len(record)) == record[:8]  # RocketMQ sends the rest, too
                blanks += 1
            else:
                assert ours == record
            offset += len(record)
    assert blanks


async def test_a_java_master_that_has_deleted_all_of_a_slaves_log_is_not_followed(
    master: JavaBroker, tmp_path: Path
) -> None:
    """It goes on right after this log, and yet nothing tells whether it ever had the same one."""
    await trio.to_thread.run_sync(master.start)
    store = tmp_path / "slave"
    await send(master, 2, MAPPED_FILE_SIZE // 3)
    async with opened(store, BrokerRole.SLAVE, master) as (broker, watch):
        await has_all(watch, master, store)
    # What would have come next: the connection ended with the file.
    async with opened(store, BrokerRole.ASYNC_MASTER) as (broker, _):
        log = broker.store.commit_log
        room = MAPPED_FILE_SIZE - log.max_offset
        broker.store.append_to_commit_log(log.max_offset, encode_blank(room).ljust(room, b"\0"))
    await send(master, 4, MAPPED_FILE_SIZE // 3)
    await trio.to_thread.run_sync(master.stop)
    (master.store / "commitlog" / f"{0:020d}").unlink()
    await trio.to_thread.run_sync(master.start)
    before = commit_log_files(store)
    async with opened(store, BrokerRole.SLAVE, master) as (broker, watch):
        # A Java master that has just started may not be able to tell yet where its log begins: it is asked again.
        await watch.until(
            lambda event: event.kind == "ha.client.halt" and event.status == "offset_gone",
            timeout_s=REPLICATION_TIMEOUT_S,
        )
        assert broker.followed_master is not None
        halt = broker.followed_master.halted
        assert halt is not None
        assert (halt.reason, halt.end_offset, halt.common_end) == ("offset_gone", MAPPED_FILE_SIZE, None)
        assert f"the master's log begins at {MAPPED_FILE_SIZE}" in halt.detail
    assert commit_log_files(store) == before


async def test_a_java_master_is_asked_for_what_it_cannot_read(master: JavaBroker, tmp_path: Path) -> None:
    """In the middle of a record it takes any four bytes for a size: at some it fails, and is no master to follow."""
    await trio.to_thread.run_sync(master.start)
    body = b"\xff" * 100 + b"\x7f\xff\xff\xff" * 25 + bytes(100)
    assert (await trio.to_thread.run_sync(master.send, "TopicInterop", body)).code == 0
    async with opened(tmp_path / "slave", BrokerRole.SLAVE, master) as (broker, watch):
        await has_all(watch, master, tmp_path / "slave")
        assert broker.remoting is not None
        records = MasterRecords(broker.remoting.client, lambda: f"127.0.0.1:{master.listen_port}")
        log = broker.store.commit_log
        record = bytes(log.select(0, log.max_offset))
        begin = record.index(body)
        assert await records.record_at(0) == record
        assert [await records.record_at(begin + at) for at in (0, 97, 100, 101, 104, 200)] == [b""] * 6
        assert await records.record_at(log.max_offset) is None
