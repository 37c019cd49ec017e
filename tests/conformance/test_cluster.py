"""A cluster inside of another program."""

from __future__ import annotations

import contextlib
import gc
import mmap
import os
import socket
from pathlib import Path

import attrs
import pytest
import trio
import trio.testing

from rmq_actors.embedding.cluster import CLUSTER_STORE, log_sha256, open_cluster
from rmq_actors.embedding.local_store import open_message_store
from rmq_actors.protocols.put_completion import PutStatus
from rmq_actors.store.config import BrokerRole
from rmq_actors.store.message_store import MessageStore
from rmq_actors.store.puts.put_completion_service import StoreStopped
from rmq_actors.wire.address import parse_address
from rmq_actors.wire.bodies.decoding import decode_body
from rmq_actors.wire.bodies.routes import ClusterInfo
from rmq_actors.wire.record import Message
from rmq_actors.wire.remoting_command import RemotingCommand, decode_command, encode_command
from rmq_actors.wire.request_code import RequestCode


@pytest.mark.trio
async def test_two_slaves_have_what_was_put(tmp_path: Path) -> None:
    async with open_cluster(tmp_path, slaves=2) as cluster:
        result = await cluster.master.put_message(Message("Topic", b"hello"))
        assert result.status is PutStatus.PUT_OK
        await cluster.wait_until_replicated()
        digests = {log_sha256(broker.store.commit_log) for broker in (cluster.master, *cluster.slaves)}
        assert len(digests) == 1


@pytest.mark.trio
async def test_it_begins_connected(tmp_path: Path) -> None:
    async with open_cluster(tmp_path / "connected", slaves=1) as cluster:
        result = await cluster.master.put_message(Message("Topic", b"hello"))
        assert result.status is PutStatus.PUT_OK


@pytest.mark.trio
async def test_it_begins_before_its_slaves_come_if_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patched:
        patched.setattr(MessageStore, "wait_for_slaves", _never)
        opening = open_cluster(tmp_path, slaves=1, wait_connected=False)
        cluster = await opening.__aenter__()
    await cluster.wait_until_connected()
    result = await cluster.master.put_message(Message("Topic", b"hello"))
    assert result.status is PutStatus.PUT_OK
    await opening.__aexit__(None, None, None)


@pytest.mark.trio
async def test_stores_in_memory_outlive_a_kill_and_end_with_the_block(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    before = open_descriptors()
    async with open_cluster(None, slaves=1, name_server=True) as cluster:
        assert (await cluster.master.put_message(Message("Topic", b"hello"))).status is PutStatus.PUT_OK
        await cluster.wait_until_replicated()
        end = cluster.master.store.commit_log.max_offset
        for name in ("master", "slave-1"):
            await cluster.kill(name)
            await cluster.start(name)
        await cluster.wait_until_connected()
        assert [each.store.commit_log.max_offset for each in (cluster.master, *cluster.slaves)] == [end, end]
        assert (await cluster.master.put_message(Message("Topic", b"again"))).status is PutStatus.PUT_OK
    del cluster
    gc.collect()
    assert open_descriptors() <= before
    assert os.listdir(tmp_path) == []  # noqa: PTH208 - nothing else runs


@pytest.mark.trio
async def test_memory_of_stores_is_given_back_at_the_end_of_the_block() -> None:
    """Not when Python's collector comes by: what it looks at is small, and gives it no reason to."""

    def mapped_bytes() -> int:
        return int(Path("/proc/self/statm").read_text().split()[0]) * mmap.PAGESIZE

    size_bytes = 1 << 30  # all else is less than a half of it
    store = attrs.evolve(CLUSTER_STORE, mapped_file_size_commit_log_bytes=size_bytes)
    gc.collect()
    before = mapped_bytes()
    gc.disable()
    try:
        async with open_cluster(None, slaves=1, store=store) as cluster:
            assert (await cluster.master.put_message(Message("Topic", b"hello"))).status is PutStatus.PUT_OK
            await cluster.kill("slave-1")
            assert mapped_bytes() >= before + 2 * size_bytes
        after_cluster = mapped_bytes()
        alone_config = attrs.evolve(store, broker_role=BrokerRole.ASYNC_MASTER)
        async with open_message_store(None, alone_config) as alone:
            assert (await alone.puts.put_message(Message("Topic", b"hello"))).status is PutStatus.PUT_OK
            assert mapped_bytes() >= after_cluster + size_bytes
        after_store = mapped_bytes()
    finally:
        gc.enable()
    assert [round((each - before) / size_bytes) for each in (after_cluster, after_store)] == [0, 0]


@pytest.mark.trio
async def test_a_broker_that_returns_needs_no_port_that_it_did_not_have(tmp_path: Path) -> None:
    """Two below its port another program may listen: the cluster has never had that one."""
    async with open_cluster(tmp_path, slaves=0, name_server=True) as cluster:
        assert cluster.master.remoting is not None
        host, port = parse_address(cluster.master.remoting.broker_addr)
        await cluster.stop("master")
        with socket.socket() as other:
            other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            with contextlib.suppress(OSError):  # somebody has it already: as well
                other.bind((host, port - 2))
                other.listen()
            await cluster.start("master")
            assert cluster.master.remoting.broker_addr == f"{host}:{port}"


def open_descriptors() -> int:
    return len([*Path("/proc/self/fd").iterdir()])


async def _never(_: MessageStore, __: int) -> None:
    await trio.sleep_forever()


@pytest.mark.trio
async def test_a_cluster_whose_slaves_do_not_come_does_not_begin(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, autojump_clock: trio.testing.MockClock
) -> None:
    monkeypatch.setattr(MessageStore, "wait_for_slaves", _never)
    with pytest.raises(trio.TooSlowError):
        async with open_cluster(tmp_path, slaves=1):
            pytest.fail("it began")


@pytest.mark.trio
async def test_its_files_are_small(tmp_path: Path) -> None:
    """In apparent size, which quotas, copies and file systems without holes count; keys make an index."""
    async with open_cluster(tmp_path, slaves=2) as cluster:
        for number in range(10):
            message = Message(f"Topic{number}", b"hello", properties={"KEYS": f"key-{number}"})
            assert (await cluster.master.put_message(message)).status is PutStatus.PUT_OK
        await cluster.wait_until_replicated()
    sizes = {str(path.relative_to(tmp_path)): path.stat().st_size for path in _files(tmp_path)}
    assert {name.partition("/")[0] for name in sizes} == {"master", "slave-1", "slave-2"}
    assert sum(sizes.values()) < 150 * 2**20, sizes


@pytest.mark.trio
async def test_the_largest_message_fits(tmp_path: Path) -> None:
    async with open_cluster(tmp_path, slaves=1) as cluster:
        for _ in range(5):
            body = bytes(CLUSTER_STORE.max_message_size_bytes)
            assert (await cluster.master.put_message(Message("Topic", body))).status is PutStatus.PUT_OK


@pytest.mark.trio
async def test_nobody_waits_for_the_slaves_of_a_stopped_store(tmp_path: Path) -> None:
    async with open_cluster(tmp_path, slaves=0) as cluster:
        store = cluster.master.store
    with pytest.raises(StoreStopped, match="0 of 1 slaves"):
        await store.wait_for_slaves(1)


@pytest.mark.trio
async def test_with_a_name_server_brokers_are_registered_and_slaves_find_their_master(tmp_path: Path) -> None:
    async with open_cluster(tmp_path, slaves=2, name_server=True) as cluster:
        assert cluster.name_server_address is not None
        registered = (await _cluster_info(cluster.name_server_address)).broker_addr_table["broker-a"]
        brokers = (cluster.master, *cluster.slaves)
        addresses = {id_: broker.remoting.broker_addr for id_, broker in enumerate(brokers) if broker.remoting}
        assert registered.broker_addrs == addresses
        assert len(addresses) == 3
        result = await cluster.master.put_message(Message("Topic", b"hello"))
        assert result.status is PutStatus.PUT_OK
        await cluster.wait_until_replicated()


def _files(directory: Path) -> list[Path]:
    return [path for path in directory.rglob("*") if path.is_file()]


async def _cluster_info(name_server: str) -> ClusterInfo:
    host, port = name_server.split(":")
    async with await trio.open_tcp_stream(host, int(port)) as stream:
        await stream.send_all(encode_command(RemotingCommand(RequestCode.GET_BROKER_CLUSTER_INFO)))
        data = b""
        while len(data) < 4 or len(data) < 4 + int.from_bytes(data[:4], "big"):
            data += await stream.receive_some()
    return decode_body(ClusterInfo, decode_command(data[4:]).body)
