"""Fifty slaves on loopback sockets, and five that never read: what the master holds for them, and the others' puts."""

from __future__ import annotations

import contextlib
import gc
import re
import socket
from collections.abc import Callable
from pathlib import Path

import attrs
import pytest
import trio

from rmq_actors.broker.broker_controller import open_broker
from rmq_actors.broker.config import BrokerConfig
from rmq_actors.ha.config import HaConfig
from rmq_actors.ha.socket_options import set_buffer_sizes
from rmq_actors.protocols.ha_slave import HaSlave
from rmq_actors.protocols.put_completion import PutStatus
from rmq_actors.real_io.environment import real_environment
from rmq_actors.store.config import BrokerRole, MessageStoreConfig
from rmq_actors.tracing.event import RunInfo
from rmq_actors.tracing.recorder import Recorder
from rmq_actors.wire.address import parse_address
from rmq_actors.wire.ha_frames import encode_report
from rmq_actors.wire.record import Message

pytestmark = pytest.mark.timeout(300)

READERS, STUCK = 50, 5
MESSAGES, BODY_BYTES = 16, 512 << 10
BUFFER_BYTES = 128 << 10
#: A group of frames and the buffers of both sides, which the system doubles.
HELD_MAX_BYTES = (1 << 20) + 6 * BUFFER_BYTES
#: For the rest of the broker; nothing of it grows with the log, or with what a slave lacks.
GROWTH_MAX_BYTES = 4 << 20


@attrs.define(eq=False)
class Reader:
    """A slave without a log."""

    end: int = 0

    async def follow(self, stream: trio.SocketStream) -> None:
        slave = HaSlave(0, trio.current_time(), 5.0, 20.0, BUFFER_BYTES)
        async with stream:
            await stream.send_all(encode_report(0))
            while size := await stream.socket.recv_into(slave.free()):
                for append in slave.received(size, trio.current_time()):
                    self.end = append.offset + len(append.data)
                await stream.send_all(encode_report(self.end))


async def until(condition: Callable[[], bool]) -> None:
    with trio.fail_after(100):
        while not condition():
            await trio.sleep(0.005)


def memory_bytes() -> int:
    """This process's own memory, without mapped files."""
    match = re.search(r"^RssAnon:\s+(\d+) kB", Path("/proc/self/status").read_text(), re.MULTILINE)
    assert match is not None
    return 1024 * int(match[1])


def sockets() -> int:
    """How many descriptors of sockets this process has."""
    count = 0
    for descriptor in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):  # the listing's own
            count += str(descriptor.readlink()).startswith("socket:")
    return count


@pytest.mark.trio
async def test_slaves_that_never_read_cost_one_group_of_frames_each(tmp_path: Path) -> None:
    # On a busy machine all this takes longer than a slave may be silent, or a put may wait, by default.
    ha = HaConfig(
        ha_listen_port=0,
        ha_socket_snd_buf_size_bytes=BUFFER_BYTES,
        ha_socket_rcv_buf_size_bytes=BUFFER_BYTES,
        ha_housekeeping_interval_ms=600_000,
    )
    store = MessageStoreConfig(
        broker_role=BrokerRole.SYNC_MASTER, mapped_file_size_commit_log_bytes=4 << 20, slave_timeout_ms=100_000
    )
    tracer = Recorder(RunInfo("test", "many slaves", 0), lambda: (None, 0), keep=False).tracer("master")
    async with open_broker(BrokerConfig("master", store, ha), real_environment(tmp_path), tracer) as broker:
        service, readers = broker.ha_service, [Reader() for _ in range(READERS)]
        address, before = parse_address(broker.ha_address), sockets()
        stuck: list[trio.SocketStream] = []
        for _ in range(MESSAGES):
            await broker.put_message(Message("TopicTest", bytes(BODY_BYTES)))
        async with trio.open_nursery() as nursery:
            for reader in readers:
                nursery.start_soon(reader.follow, await trio.open_tcp_stream(*address))
            for _ in range(STUCK):
                stream = await trio.open_tcp_stream(*address)
                set_buffer_sizes(stream.socket, ha)
                await stream.send_all(encode_report(0))
                stuck.append(stream)
            end = broker.store.commit_log.max_offset
            await until(lambda: all(reader.end == end for reader in readers))
            await until(lambda: [each.ack_offset for each in service.slave_statuses()].count(0) == STUCK)
            held = memory_bytes()
            for _ in range(MESSAGES):
                result = await broker.put_message(Message("TopicTest", bytes(BODY_BYTES)))
                assert result.status is PutStatus.PUT_OK
            await until(lambda: all(reader.end == broker.store.commit_log.max_offset for reader in readers))
            assert memory_bytes() - held < GROWTH_MAX_BYTES < end
            behind = [status for status in service.slave_statuses() if status.ack_offset == 0]
            assert len(behind) == STUCK
            assert max(status.sent_bytes for status in behind) < HELD_MAX_BYTES
            for stream in stuck:
                await stream.aclose()
            nursery.cancel_scope.cancel()
        await until(lambda: service.connections == {})
        await until(lambda: sockets() == before)


@pytest.mark.trio
async def test_a_flood_of_connections_leaves_no_descriptor(tmp_path: Path) -> None:
    tracer = Recorder(RunInfo("test", "flood", 0), lambda: (None, 0), keep=False).tracer("master")
    config = BrokerConfig("master", MessageStoreConfig(), HaConfig(ha_listen_port=0, connections_max=8))
    async with open_broker(config, real_environment(tmp_path), tracer) as broker:
        service, address, before = broker.ha_service, parse_address(broker.ha_address), sockets()
        tasks = trio.lowlevel.current_statistics().tasks_living
        streams = [await trio.open_tcp_stream(*address) for _ in range(200)]
        await until(lambda: service.counters().refused_connections == 192)
        count = len(service.connections)
        assert count == 8
        for stream in streams:
            await stream.aclose()
        await until(lambda: service.connections == {})
        await until(lambda: sockets() == before)
        await until(lambda: trio.lowlevel.current_statistics().tasks_living == tasks)
        ends = service.counters().ends
        assert sum(ends.values()) == 8


@pytest.mark.trio
@pytest.mark.parametrize("steps", range(8))
async def test_who_connects_while_the_master_stops_is_not_left_waiting(tmp_path: Path, steps: int) -> None:
    """Accepted, and served by nobody: a slave would take the connection for a silent master's for 20 s."""
    tracer = Recorder(RunInfo("test", "stop", 0), lambda: (None, 0), keep=False).tracer("master")
    config = BrokerConfig("master", MessageStoreConfig(), HaConfig(ha_listen_port=0))
    before = sockets()
    gc.disable()  # what nobody closes it would, some time
    try:
        async with open_broker(config, real_environment(tmp_path), tracer) as broker:
            # At once: none of them is accepted before the last one is connected.
            peers = [socket.create_connection(parse_address(broker.ha_address)) for _ in range(40)]
            for _ in range(steps):
                await trio.lowlevel.checkpoint()
        for peer in peers:
            peer.close()
        assert sockets() == before
    finally:
        gc.enable()


@pytest.mark.trio
async def test_buffer_sizes_are_those_that_are_configured() -> None:
    kept, ours = trio.socket.socketpair()
    with kept, ours:
        before = [ours.getsockopt(trio.socket.SOL_SOCKET, option) for option in OPTIONS]
        set_buffer_sizes(ours, HaConfig())
        assert [ours.getsockopt(trio.socket.SOL_SOCKET, option) for option in OPTIONS] == before
        set_buffer_sizes(ours, HaConfig(ha_socket_snd_buf_size_bytes=30_000, ha_socket_rcv_buf_size_bytes=20_000))
        # Linux doubles them.
        assert [ours.getsockopt(trio.socket.SOL_SOCKET, option) for option in OPTIONS] == [60_000, 40_000]


OPTIONS = (trio.socket.SO_SNDBUF, trio.socket.SO_RCVBUF)
