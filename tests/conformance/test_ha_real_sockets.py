"""Master and slave on loopback sockets and real files: they replicate; whatever is no slave is refused and named."""

from __future__ import annotations

import contextlib
import re
import shutil
import socket
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import attrs
import pytest
import trio

from rmq_actors.broker.broker_controller import BrokerController, open_broker
from rmq_actors.broker.config import BrokerConfig
from rmq_actors.embedding.cluster import log_sha256
from rmq_actors.ha.config import HaConfig
from rmq_actors.protocols.put_completion import PutStatus
from rmq_actors.real_io.environment import real_environment
from rmq_actors.store.config import BrokerRole, FlushDiskType, MessageStoreConfig
from rmq_actors.tracing.event import Event
from rmq_actors.wire.address import parse_address
from rmq_actors.wire.ha_frames import encode_report
from rmq_actors.wire.record import Message
from tests.worlds.faulty_disk import FaultyDisk
from tests.worlds.golden_capture import END_OFFSET, FILE_SIZE_BYTES, STORE_MASTER_CLEAN, golden_log
from tests.worlds.recording import Watch, new_recorder

SLAVE_TIMEOUT_MS = 250


@attrs.define(eq=False)
class Node:
    """A broker and what it recorded."""

    broker: BrokerController
    watch: Watch

    @property
    def end(self) -> int:
        return self.broker.store.commit_log.max_offset

    @property
    def sha256(self) -> str:
        return log_sha256(self.broker.store.commit_log)

    async def put(self, body: bytes = b"body", **fields: Any) -> PutStatus:
        return (await self.broker.put_message(Message("TopicTest", body, **fields))).status

    async def reaches(self, offset: int) -> None:
        """Return when the log has everything before `offset`."""
        with trio.fail_after(60), self.broker.store.log_end.subscribe() as growth:
            while self.end < offset:
                await growth.receive()

    async def closed(self, status: str, *, times: int = 1) -> Event:
        """Return when a connection, as master or as slave, has ended for this reason."""
        kinds = {"ha.connection.close", "ha.client.close"}
        return await self.watch.until(lambda event: event.kind in kinds and event.status == status, times=times)


@contextlib.asynccontextmanager
async def running(
    root: Path,
    role: BrokerRole,
    *,
    master: Node | None = None,
    file_size_bytes: int = FILE_SIZE_BYTES,
    sync_flush: bool = False,
    **store: Any,
) -> AsyncIterator[Node]:
    """A broker below `root`, a slave of `master` if there is one."""
    recorder = new_recorder()
    config = BrokerConfig(
        root.name,
        MessageStoreConfig(
            broker_role=role,
            flush_disk_type=FlushDiskType.SYNC_FLUSH if sync_flush else FlushDiskType.ASYNC_FLUSH,
            mapped_file_size_commit_log_bytes=file_size_bytes,
            # The golden store's.
            mapped_file_size_consume_queue_bytes=2000,
            max_hash_slot_num=500,
            max_index_num=2000,
            **{"slave_timeout_ms": SLAVE_TIMEOUT_MS, **store},
        ),
        HaConfig(
            ha_listen_port=0,
            ha_master_address=master.broker.ha_address if master else None,
            reconnect_pause_min_ms=5,
            reconnect_pause_max_ms=20,
        ),
    )
    async with open_broker(config, real_environment(root), recorder.tracer(root.name)) as broker:
        yield Node(broker, Watch(recorder))


@contextlib.asynccontextmanager
async def raw_peer(node: Node, data: bytes) -> AsyncIterator[trio.SocketStream]:
    """A connection to the HA port that says `data`."""
    stream = await trio.open_tcp_stream(*parse_address(node.broker.ha_address))
    async with stream:
        await stream.send_all(data)
        yield stream


def connected(node: Node, times: int = 1) -> Any:
    """Awaits that as many slaves as `times` have reported."""
    return node.watch.until(lambda event: event.kind == "ha.report", times=times)


async def put_many(node: Node, number: int, body: bytes, statuses: list[PutStatus]) -> None:
    statuses.extend([await node.put(body, queue_id=number) for _ in range(25)])


@pytest.mark.trio
@pytest.mark.parametrize("sync_flush", [False, True], ids=["ASYNC_FLUSH", "SYNC_FLUSH"])
async def test_a_slave_follows_the_golden_store_and_puts_over_a_roll(tmp_path: Path, sync_flush: bool) -> None:
    shutil.copytree(STORE_MASTER_CLEAN, tmp_path / "master")
    settings: dict[str, Any] = {"sync_flush": sync_flush, "slave_timeout_ms": 10_000, "sync_flush_timeout_ms": 10_000}
    async with (
        running(tmp_path / "master", BrokerRole.SYNC_MASTER, **settings) as master,
        running(tmp_path / "slave", BrokerRole.SLAVE, master=master, **settings) as slave,
    ):
        await slave.reaches(END_OFFSET)
        statuses: list[PutStatus] = []
        async with trio.open_nursery() as nursery:
            for number in range(4):
                nursery.start_soon(put_many, master, number, bytes([number]) * 3000, statuses)
        assert statuses == [PutStatus.PUT_OK] * 100
        assert master.end > 2 * FILE_SIZE_BYTES
        # PUT_OK: the slave has it, not "will have it".
        assert slave.end == master.end
        assert slave.sha256 == master.sha256
        log = slave.broker.store.commit_log
        assert b"".join(bytes(view) for view in log.ranges(0, END_OFFSET)) == golden_log()
        if sync_flush:
            assert log.flushed_where == master.broker.store.commit_log.flushed_where == master.end
    names = sorted(path.name for path in (tmp_path / "master" / "commitlog").iterdir())
    assert names == sorted(path.name for path in (tmp_path / "slave" / "commitlog").iterdir())
    assert len(names) == 3
    for name in names:
        assert (tmp_path / "master" / "commitlog" / name).read_bytes() == (
            tmp_path / "slave/commitlog" / name
        ).read_bytes()


@pytest.mark.trio
async def test_a_slave_that_was_away_goes_on_where_it_stopped(tmp_path: Path) -> None:
    async with running(tmp_path / "master", BrokerRole.ASYNC_MASTER) as master:
        await master.put(b"first")
        async with running(tmp_path / "slave", BrokerRole.SLAVE, master=master) as slave:
            await slave.reaches(master.end)
            met = slave.end
        for _ in range(100):
            await master.put(bytes(5000))
        async with running(tmp_path / "slave", BrokerRole.SLAVE, master=master) as slave:
            first = await slave.watch.until(lambda event: event.kind == "ha.client.report")
            assert first.offset == met
            await slave.reaches(master.end)
            assert slave.sha256 == master.sha256


@pytest.mark.trio
async def test_a_slave_that_dies_is_not_waited_for(tmp_path: Path) -> None:
    """Known bug #2821: the master sees the end of the connection at once, not after 20 s."""
    async with running(tmp_path / "master", BrokerRole.SYNC_MASTER, slave_timeout_ms=500) as master:
        async with running(tmp_path / "slave", BrokerRole.SLAVE, master=master):
            await connected(master)
            assert await master.put() is PutStatus.PUT_OK
        await master.closed("peer_closed")
        assert await master.put() is PutStatus.SLAVE_NOT_AVAILABLE
        # Known bug S4: an empty peer joins; what the dead slave had acknowledges nothing.
        async with raw_peer(master, encode_report(0)):
            await connected(master, times=len(master.watch.seen(lambda event: event.kind == "ha.report")) + 1)
            assert await master.put() is PutStatus.FLUSH_SLAVE_TIMEOUT


@pytest.mark.trio
async def test_without_a_slave_the_put_says_so(tmp_path: Path) -> None:
    async with running(tmp_path / "master", BrokerRole.SYNC_MASTER) as master:
        assert await master.put() is PutStatus.SLAVE_NOT_AVAILABLE
        assert await master.put(properties={"WAIT": "false"}) is PutStatus.PUT_OK


@pytest.mark.trio
async def test_a_peer_that_never_acknowledges_is_no_ack(tmp_path: Path) -> None:
    async with running(tmp_path / "master", BrokerRole.SYNC_MASTER) as master, raw_peer(master, encode_report(0)):
        await connected(master)
        assert await master.put() is PutStatus.FLUSH_SLAVE_TIMEOUT


GARBAGE = {
    "an HTTP request": (
        b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
        "slave_ahead",
        "reports offset 5135603447292250196",
    ),
    "one report of 2^40": (encode_report(1 << 40), "slave_ahead", "reports offset 1099511627776, .* log ends at"),
    "a negative report": (encode_report(-1), "illegal_report", "reports offset -1"),
    "a report one too high": (encode_report(96 + 10), "slave_ahead", "reports offset 106, .* log ends at"),
}


@pytest.mark.trio
@pytest.mark.parametrize("name", GARBAGE)
async def test_garbage_on_the_ha_port_is_refused_and_named_and_acknowledges_nothing(
    tmp_path: Path, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Known bug #3015: 4.9 takes the first report as it comes, and every later put is PUT_OK."""
    data, reason, text = GARBAGE[name]
    async with running(tmp_path / "master", BrokerRole.SYNC_MASTER) as master:
        await master.put()
        async with raw_peer(master, data) as peer:
            await master.closed(reason)
            # Refused means the connection is over, in order or reset.
            with contextlib.suppress(trio.BrokenResourceError):
                assert await peer.receive_some() == b""
        assert re.search(f"slave 127.0.0.1:[0-9]+ .*: {reason}: the slave {text}", caplog.text)
        for _ in range(3):
            assert await master.put() is not PutStatus.PUT_OK
        # The broker goes on: a real slave is served.
        async with running(tmp_path / "slave", BrokerRole.SLAVE, master=master) as slave:
            await slave.reaches(master.end)
            assert slave.sha256 == master.sha256


@pytest.mark.trio
async def test_a_stray_report_acknowledges_no_put_that_waits(tmp_path: Path) -> None:
    statuses: list[PutStatus] = []

    async def put(node: Node) -> None:
        statuses.append(await node.put())

    async with running(tmp_path / "master", BrokerRole.SYNC_MASTER) as master:
        async with raw_peer(master, encode_report(0)), trio.open_nursery() as nursery:
            await connected(master)
            nursery.start_soon(put, master)
            await master.watch.until(lambda event: event.kind == "put.begin")
            async with raw_peer(master, encode_report(1 << 40)):
                await master.closed("slave_ahead")
        assert statuses == [PutStatus.FLUSH_SLAVE_TIMEOUT]


@pytest.mark.trio
async def test_a_slave_ahead_of_an_emptied_master_is_refused_and_named(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    shutil.copytree(STORE_MASTER_CLEAN, tmp_path / "slave")
    async with (
        running(tmp_path / "master", BrokerRole.SYNC_MASTER) as master,
        running(tmp_path / "slave", BrokerRole.SLAVE, master=master) as slave,
    ):
        # It comes back, and is refused again; the slave sees its connection end.
        await master.closed("slave_ahead", times=2)
        assert f"the slave reports offset {END_OFFSET}, this master's log ends at 0" in caplog.text
        assert await master.put() is not PutStatus.PUT_OK
        assert slave.end == END_OFFSET
        await slave.watch.until(lambda event: event.kind == "ha.client.close", times=2)


@pytest.mark.trio
async def test_an_offset_that_is_gone_is_refused_and_named(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Known bug #3388: 4.9 sends heartbeats for ever."""
    shutil.copytree(STORE_MASTER_CLEAN / "commitlog", tmp_path / "master" / "commitlog")
    (tmp_path / "master" / "commitlog" / ("0" * 20)).unlink()
    async with running(tmp_path / "master", BrokerRole.ASYNC_MASTER) as master:
        async with raw_peer(master, encode_report(1000)):
            await master.closed("offset_gone")
        assert "the slave asks for offset 1000, this master's log begins at 262144" in caplog.text
        # An empty slave gets everything that there is, from the minimum on.
        async with running(tmp_path / "slave", BrokerRole.SLAVE, master=master) as slave:
            await slave.reaches(END_OFFSET)
            assert slave.broker.store.commit_log.min_offset == FILE_SIZE_BYTES
            assert slave.sha256 == master.sha256


@pytest.mark.trio
@pytest.mark.parametrize("size", [FILE_SIZE_BYTES // 2, 200_000, 2 * FILE_SIZE_BYTES])
async def test_a_slave_with_another_file_size_stops_and_says_why(
    tmp_path: Path, size: int, caplog: pytest.LogCaptureFixture
) -> None:
    shutil.copytree(STORE_MASTER_CLEAN, tmp_path / "master")
    async with (
        running(tmp_path / "master", BrokerRole.ASYNC_MASTER) as master,
        running(tmp_path / "slave", BrokerRole.SLAVE, master=master, file_size_bytes=size) as slave,
    ):
        await slave.closed("file_size_mismatch")
        await slave.watch.until(lambda event: event.kind == "ha.client.halt")
        assert "is mappedFileSizeCommitLog the same on both?" in caplog.text
        end = slave.end
        assert end < END_OFFSET
        assert b"".join(bytes(view) for view in slave.broker.store.commit_log.ranges(0, end)) == golden_log()[:end]
    # What it took is a log that opens.
    async with running(tmp_path / "slave", BrokerRole.ASYNC_MASTER, file_size_bytes=size) as promoted:
        assert promoted.end <= end


@pytest.mark.trio
async def test_a_slave_whose_disk_fails_to_sync_goes_on_saying_so(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """It may neither follow nor acknowledge any more; it must not fall silent either."""
    recorder = new_recorder()
    disk = FaultyDisk(tmp_path / "slave")
    disk.root.mkdir()
    async with running(tmp_path / "master", BrokerRole.SYNC_MASTER) as master:
        config = BrokerConfig(
            "slave",
            MessageStoreConfig(broker_role=BrokerRole.SLAVE, flush_disk_type=FlushDiskType.SYNC_FLUSH),
            HaConfig(
                ha_listen_port=0,
                ha_master_address=master.broker.ha_address,
                reconnect_pause_min_ms=5,
                reconnect_pause_max_ms=20,
            ),
        )
        environment = attrs.evolve(real_environment(disk.root), disk=disk)

        async def fail_to_sync() -> None:
            async with open_broker(config, environment, recorder.tracer("slave")) as broker:
                disk.failing_syncs = 1
                slave = Node(broker, Watch(recorder))
                await connected(master)
                assert await master.put() is PutStatus.FLUSH_SLAVE_TIMEOUT
                assert await master.put() is not PutStatus.PUT_OK
                await slave.closed("append_refused", times=3)

        with pytest.raises(OSError, match="not stopped in order, the next start recovers: a sync of the log failed"):
            await fail_to_sync()
    assert (disk.root / "abort").exists()
    assert "append_refused: a sync failed: [Errno 5] Input/output error" in caplog.text


@pytest.mark.trio
async def test_a_master_that_is_not_there_is_named_and_found_when_it_comes(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with running(tmp_path / "master", BrokerRole.ASYNC_MASTER) as master:
        await master.put()
        end = master.end
        gone = attrs.evolve(master, broker=master.broker)
    address = parse_address(master.broker.ha_address)
    async with running(tmp_path / "slave", BrokerRole.SLAVE, master=gone) as slave:
        await slave.closed("connection_lost", times=3)
        assert f"master 127.0.0.1:{address[1]}: connection_lost" in caplog.text
        config = attrs.evolve(master.broker.config, ha=HaConfig(ha_listen_port=address[1]))
        async with open_broker(config, real_environment(tmp_path / "master"), new_recorder().tracer("master")):
            await slave.reaches(end)


@pytest.mark.trio
async def test_connections_are_bounded(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    config = BrokerConfig("master", MessageStoreConfig(), HaConfig(ha_listen_port=0, connections_max=1))
    recorder = new_recorder()
    async with open_broker(config, real_environment(tmp_path), recorder.tracer("master")) as broker:
        node = Node(broker, Watch(recorder))
        async with raw_peer(node, encode_report(0)):
            await connected(node)
            async with raw_peer(node, encode_report(0)) as second:
                with trio.fail_after(60), contextlib.suppress(trio.BrokenResourceError):
                    assert await second.receive_some() == b""
            assert "refused: 1 connections are open already" in caplog.text
        await node.closed("peer_closed")
        async with raw_peer(node, encode_report(0)):
            await connected(node, times=2)


@pytest.mark.trio
@pytest.mark.parametrize(("allowed", "is_served"), [("10.0.0.0/8;192.0.2.1", False), ("10.0.0.0/8;127.0.0.1", True)])
async def test_only_allowed_addresses_are_served(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, allowed: str, is_served: bool
) -> None:
    config = BrokerConfig("master", MessageStoreConfig(), HaConfig(ha_listen_port=0, ha_allowed_addresses=allowed))
    recorder = new_recorder()
    async with open_broker(config, real_environment(tmp_path), recorder.tracer("master")) as broker:
        node = Node(broker, Watch(recorder))
        async with raw_peer(node, encode_report(0)) as peer:
            if is_served:
                await connected(node)
                return
            with trio.fail_after(60), contextlib.suppress(trio.BrokenResourceError):
                assert await peer.receive_some() == b""
        assert "refused: haAllowedAddresses does not have its address" in caplog.text
        counters = broker.ha_service.counters()
        assert (counters.connections, counters.refused_connections) == (0, 1)


class TwoAddresses(trio.abc.HostnameResolver):
    """A name with two addresses, as localhost has on most machines."""

    async def getaddrinfo(self, host: Any, port: Any, *_: Any) -> list[Any]:
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (f"127.0.0.{last}", port or 0)) for last in (1, 2)]

    async def getnameinfo(self, sockaddr: Any, flags: int) -> tuple[str, str]:
        raise NotImplementedError


@pytest.mark.trio
async def test_a_host_with_several_addresses_is_served_at_each(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    listening: list[tuple[str, int]] = []
    open_tcp_listeners = trio.open_tcp_listeners

    async def open_and_note(port: int, *, host: str, backlog: int | None = None) -> list[trio.SocketListener]:
        listeners = await open_tcp_listeners(port, host=host, backlog=backlog)
        listening.extend(listener.socket.getsockname() for listener in listeners)
        return listeners

    monkeypatch.setattr(trio, "open_tcp_listeners", open_and_note)
    trio.socket.set_custom_hostname_resolver(TwoAddresses())
    config = BrokerConfig("master", MessageStoreConfig(), HaConfig(ha_listen_host="two", ha_listen_port=0))
    recorder = new_recorder()
    async with open_broker(config, real_environment(tmp_path), recorder.tracer("master")) as broker:
        node = Node(broker, Watch(recorder))
        assert broker.ha_address == f"127.0.0.1:{listening[0][1]}"
        for times, (host, port) in enumerate(listening, start=1):
            async with await trio.open_tcp_stream(host, port) as stream:
                await stream.send_all(encode_report(0))
                await connected(node, times=times)
    assert [host for host, _ in listening] == ["127.0.0.1", "127.0.0.2"]


@pytest.mark.trio
async def test_a_port_in_use_is_an_error_of_the_start(tmp_path: Path) -> None:
    async with running(tmp_path / "master", BrokerRole.ASYNC_MASTER) as master:
        _, port = parse_address(master.broker.ha_address)
        config = BrokerConfig("other", MessageStoreConfig(), HaConfig(ha_listen_port=port))
        with pytest.RaisesGroup(OSError, allow_unwrapped=True, flatten_subgroups=True):
            async with open_broker(config, real_environment(tmp_path / "other"), new_recorder().tracer("other")):
                pytest.fail("it must not start")


def test_a_slave_without_a_master_is_refused() -> None:
    with pytest.raises(ValueError, match="broker broker-a: brokerRole=SLAVE needs haMasterAddress"):
        BrokerConfig(store=MessageStoreConfig(broker_role=BrokerRole.SLAVE))
