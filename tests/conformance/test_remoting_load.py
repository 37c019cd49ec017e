"""A remoting server on loopback sockets with very many peers, and with peers that do not play their part.

No test here says how fast anything is. Each looks, at its end, for tasks and descriptors that were left.
"""

from __future__ import annotations

import collections
import contextlib
import gc
import resource
import socket
import struct
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import attrs
import pytest
import trio

from rmq_actors.actors.system import open_actor_system
from rmq_actors.real_io.entropy import SystemEntropy
from rmq_actors.remoting.client import RemotingClient
from rmq_actors.remoting.config import ConnectionLimits, RemotingClientConfig, RemotingServerConfig
from rmq_actors.remoting.connection import RemotingRequest
from rmq_actors.remoting.processor import ProcessorTable
from rmq_actors.remoting.server import RemotingServer
from rmq_actors.tracing.event import Event
from rmq_actors.wire.frame_reader import BUFFER_MIN_BYTES, FrameReader
from rmq_actors.wire.remoting_command import RemotingCommand, encode_command
from tests.worlds.fed_frames import feed
from tests.worlds.recording import Watch, new_recorder

pytestmark = pytest.mark.timeout(300)

ECHO, BIG, HELD = 900, 901, 902
BIG_BODY = bytes(32 * 1024)
DESCRIPTORS = 4096
PATIENCE_S = 120.0


@pytest.fixture(autouse=True)
def _many_descriptors() -> Iterator[None]:
    """Both ends of each connection are in this process."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < DESCRIPTORS:
        pytest.skip(f"a hard limit of {DESCRIPTORS} open files is needed, `ulimit -Hn` is {hard}")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, DESCRIPTORS), hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@attrs.define(eq=False)
class Load:
    """A server, and what was seen of it."""

    server: RemotingServer
    watch: Watch
    held: list[RemotingRequest]
    #: The most bytes that waited to be sent at a connection when any peer asked for something big.
    most_bytes: int = 0

    def big(self, request: RemotingRequest) -> RemotingCommand:
        """A processor: at each request it looks at what the requests before it have left."""
        self.most_bytes = max(self.most_bytes, *(each.outgoing_bytes for each in self.server.connections.values()))
        return request.command.response(0, body=BIG_BODY)

    async def connect(self) -> trio.SocketStream:
        return await trio.open_tcp_stream("127.0.0.1", self.server.port)

    async def has_connections(self, count: int) -> None:
        """Return when so many are open."""
        with trio.fail_after(PATIENCE_S):
            while len(self.server.connections) != count:
                await trio.sleep(0.01)

    def closed(self) -> collections.Counter[str]:
        """How many connections have ended for which reason."""
        return collections.Counter(str(event.status) for event in self.watch.seen(_is_close))


def _is_close(event: Event) -> bool:
    return event.kind == "remoting.close"


def _descriptors() -> int:
    gc.collect()
    return len(_numbers())


def _numbers() -> set[int]:
    return {int(path.name) for path in Path("/proc/self/fd").iterdir()}


def _echo(request: RemotingRequest) -> RemotingCommand:
    return request.command.response(0, body=request.command.body)


@contextlib.asynccontextmanager
async def serving(limits: ConnectionLimits | None = None, *, connections_max: int = 4096) -> AsyncIterator[Load]:
    """A server for the length of a block, after which no task and no descriptor is left."""
    descriptors, tasks = _descriptors(), trio.lowlevel.current_statistics().tasks_living
    recorder = new_recorder()
    held: list[RemotingRequest] = []
    processors = ProcessorTable(recorder.tracer("server"))
    processors.register([ECHO], _echo)
    processors.register([HELD], held.append)
    config = RemotingServerConfig(listen_port=0, connections_max=connections_max, limits=limits or ConnectionLimits())
    async with open_actor_system("server", recorder.tracer("server"), entropy=SystemEntropy()) as system:
        server = RemotingServer(config, processors, recorder.tracer("server"))
        await system.start(server)
        load = Load(server, Watch(recorder), held)
        processors.register([BIG], load.big)
        yield load
    held.clear()
    assert not server.connections
    assert trio.lowlevel.current_statistics().tasks_living == tasks
    assert _descriptors() == descriptors


async def _ask(stream: trio.SocketStream, reader: FrameReader, opaques: range, body: bytes = b"") -> None:
    """Pipelined requests, each of which is answered, in order."""
    frames = [encode_command(RemotingCommand(ECHO, opaque=opaque, body=body)) for opaque in opaques]
    await stream.send_all(b"".join(frames))
    answers: list[RemotingCommand] = []
    with trio.fail_after(PATIENCE_S):
        while len(answers) < len(opaques):
            data = await stream.receive_some(65_536)
            assert data, "the server closed the connection"
            feed(reader, bytes(data))
            while commands := reader.commands():
                answers += commands
    assert [answer.opaque for answer in answers] == list(opaques)
    assert all(answer.body == body and not answer.code for answer in answers)


@pytest.mark.trio
async def test_a_thousand_idle_connections_beside_a_hundred_busy_ones() -> None:
    async def busy() -> None:
        async with await load.connect() as stream:
            reader = FrameReader()
            for begin in range(0, 160, 16):
                await _ask(stream, reader, range(begin, begin + 16), b"x" * 128)

    async with serving() as load, contextlib.AsyncExitStack() as stack:
        tasks = trio.lowlevel.current_statistics().tasks_living
        idle = [await stack.enter_async_context(await load.connect()) for _ in range(1000)]
        await load.has_connections(1000)
        # An idle connection is one task and a small buffer.
        assert trio.lowlevel.current_statistics().tasks_living == tasks + 1000
        async with trio.open_nursery() as nursery:
            for _ in range(100):
                nursery.start_soon(busy)
        await load.has_connections(1000)
        for stream in idle:
            await _ask(stream, FrameReader(), range(1))
        assert load.closed() == {"closed_by_peer": 100}
        assert sum(each._reader.buffer_bytes for each in load.server.connections.values()) == 1000 * BUFFER_MIN_BYTES


@pytest.mark.trio
async def test_a_thousand_connections_that_stay_idle_are_closed() -> None:
    async with serving(ConnectionLimits(channel_max_idle_time_ms=1000)) as load:
        streams = [await load.connect() for _ in range(1000)]
        with trio.fail_after(PATIENCE_S):
            for stream in streams:
                assert await stream.receive_some() == b""
                await stream.aclose()
        assert load.closed() == {"idle": 1000}


@pytest.mark.trio
async def test_readers_that_never_read_hold_little_and_disturb_nobody() -> None:
    limits = ConnectionLimits(channel_max_idle_time_ms=1500, write_buffer_high_water_mark_bytes=256 * 1024)
    request = encode_command(RemotingCommand(BIG))

    async def send_and_never_read() -> None:
        async with await load.connect() as stream:
            with contextlib.suppress(trio.BrokenResourceError):
                while True:
                    await stream.send_all(request * 100)

    async def behave(client: RemotingClient) -> None:
        while load.server.connections:
            answer = await client.invoke(load.server.address, RemotingCommand(ECHO, body=b"1"), 60_000)
            assert answer.body == b"1"
            await trio.sleep(0.005)
            if load.closed()["idle"] >= 20:
                return

    async with serving(limits) as load:
        tracer = new_recorder().tracer("client")
        async with open_actor_system("client", tracer, entropy=SystemEntropy()) as system:
            client = RemotingClient(RemotingClientConfig(), SystemEntropy(), tracer, ProcessorTable(tracer))
            await system.start(client)
            await client.invoke(load.server.address, RemotingCommand(ECHO), 60_000)
            with trio.fail_after(PATIENCE_S):
                async with trio.open_nursery() as nursery:
                    for _ in range(20):
                        nursery.start_soon(send_and_never_read)
                    nursery.start_soon(behave, client)
        assert load.closed()["idle"] >= 20
        assert 256 * 1024 < load.most_bytes < 256 * 1024 + 2 * len(BIG_BODY)


@pytest.mark.trio
async def test_late_answers_to_readers_that_never_read_cut_them_off() -> None:
    limits = ConnectionLimits(write_buffer_high_water_mark_bytes=1024 * 1024, write_buffer_max_bytes=4 * 1024 * 1024)
    async with serving(limits) as load, contextlib.AsyncExitStack() as stack:
        for _ in range(10):
            stream = await stack.enter_async_context(await load.connect())
            await stream.send_all(encode_command(RemotingCommand(HELD)) * 1000)
        with trio.fail_after(PATIENCE_S):
            while len(load.held) < 10_000:
                await trio.sleep(0.01)
        for request in load.held:
            request.respond(load.big(request))
            assert request.connection.outgoing_bytes <= 4 * 1024 * 1024 + 2 * len(BIG_BODY)
        await load.has_connections(0)
        assert load.closed() == {"slow_reader": 10}


@pytest.mark.trio
async def test_peers_that_leave_in_the_middle_are_named() -> None:
    """Half a frame and silence, half a frame and an end, half a frame and a reset."""
    half = encode_command(RemotingCommand(ECHO, body=bytes(1000)))[:500]
    async with serving(ConnectionLimits(channel_max_idle_time_ms=3000)) as load, contextlib.AsyncExitStack() as stack:
        streams = [await stack.enter_async_context(await load.connect()) for _ in range(150)]
        for stream in streams:
            await stream.send_all(half)
        with trio.fail_after(PATIENCE_S):
            while sum(connection._reader.pending_bytes for connection in load.server.connections.values()) < 150 * 500:
                await trio.sleep(0.01)
        for stream in streams[:50]:
            await stream.send_eof()
        for stream in streams[50:100]:
            stream.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            await stream.aclose()
        await load.has_connections(0)
        assert load.closed() == {"closed_within_a_frame": 50, "ConnectionResetError": 50, "idle": 50}


@pytest.mark.trio
async def test_a_flood_of_connections_is_refused_and_leaves_room_when_it_is_over() -> None:
    async with serving(connections_max=50) as load:
        streams = [await load.connect() for _ in range(300)]
        await load.watch.until(lambda event: event.kind == "remoting.refused", times=250, timeout_s=PATIENCE_S)
        for stream in streams[:50]:
            await _ask(stream, FrameReader(), range(3))
        for stream in streams[50:]:
            with contextlib.suppress(trio.BrokenResourceError):
                assert await stream.receive_some() == b""
        for stream in streams:
            await stream.aclose()
        await load.has_connections(0)
        async with await load.connect() as stream:
            await _ask(stream, FrameReader(), range(3))


@pytest.mark.trio
async def test_without_descriptors_the_server_waits_and_serves_what_it_has(caplog: pytest.LogCaptureFixture) -> None:
    async with serving() as load:
        sockets = [trio.socket.socket() for _ in range(20)]
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        free = sorted(set(range(soft)) - _numbers())
        resource.setrlimit(resource.RLIMIT_NOFILE, (free[5], hard))
        try:
            for each in sockets:
                await each.connect(("127.0.0.1", load.server.port))
            with trio.fail_after(PATIENCE_S):
                while "cannot accept a connection now: [Errno 24]" not in caplog.text:
                    await trio.sleep(0.01)
            assert 0 < len(load.server.connections) < 20
            streams = [trio.SocketStream(each) for each in sockets]
            await _ask(streams[0], FrameReader(), range(3))
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        await load.has_connections(20)
        for stream in streams:
            await _ask(stream, FrameReader(), range(3))
            await stream.aclose()
