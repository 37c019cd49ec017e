"""Answers that cannot be given, and ends of connections: each concerns one request or one peer, and nobody else."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence

import attrs
import pytest
import trio

from rmq_actors.remoting.client import RemotingClient
from rmq_actors.remoting.config import ConnectionLimits
from rmq_actors.remoting.connection import RemotingError, RemotingRequest, RemotingTooMuchRequestError
from rmq_actors.remoting.hooks import RpcHook, RpcRefused
from rmq_actors.remoting.processor import ProcessorTable, RequestPool
from rmq_actors.tracing.events.remoting import RemotingClientClose, RemotingClose, RemotingFailed, RemotingOpen
from rmq_actors.wire.frame_reader import FrameReader
from rmq_actors.wire.remoting_command import FRAME_MAX_LENGTH_BYTES, RemotingCommand, encode_command
from rmq_actors.wire.response_code import ResponseCode
from sim_net import Node, World
from sim_net.faults.network_faults import Partition
from tests.worlds.fed_frames import feed
from tests.worlds.remoting_world import PORT, RemotingWorld

HELD, FAIL, POOLED, BIG = range(901, 905)


@attrs.define
class _RefusingHook:
    """A hook whose refusal repeats what it was sent."""

    text: str

    def before_request(self, remote_address: str, command: RemotingCommand) -> None:
        raise RpcRefused(ResponseCode.NO_PERMISSION, self.text)

    def after_response(self, remote_address: str, request: RemotingCommand, response: RemotingCommand) -> None:
        pytest.fail("a refusal is no response")


class _FailingHook:
    """A hook with a bug."""

    def before_request(self, remote_address: str, command: RemotingCommand) -> None:
        pass

    def after_response(self, remote_address: str, request: RemotingCommand, response: RemotingCommand) -> None:
        raise ValueError("a hook that fails")


def _ask(
    process: Callable[[RemotingRequest], RemotingCommand | None], hooks: Sequence[RpcHook] = ()
) -> tuple[RemotingWorld, list[RemotingCommand]]:
    """Two requests to a server; what they were answered."""
    remoting = RemotingWorld()
    answers: list[RemotingCommand] = []

    async def use(client: RemotingClient) -> None:
        answers.extend([await client.invoke(remoting.address, RemotingCommand(FAIL), 1000) for _ in range(2)])

    remoting.run(lambda table: table.register([FAIL], process), use, hooks=hooks)
    assert len(remoting.events(RemotingOpen)) == 1
    return remoting, answers


@pytest.mark.parametrize("text", ["\ud800", "x" * 2_000_000], ids=["no UTF-8", "too long"])
def test_an_error_that_repeats_what_was_sent_is_answered(text: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.CRITICAL, "rmq_actors")  # no process could report half a surrogate pair to another

    def fail(request: RemotingRequest) -> RemotingCommand:
        raise KeyError(text) if text != "\ud800" else ValueError(text)

    remoting, answers = _ask(fail)
    assert [answer.code for answer in answers] == [ResponseCode.SYSTEM_ERROR] * 2
    details = [event.detail for event in remoting.events(RemotingFailed)]
    assert [len(detail.encode()) <= 200 for detail in details] == [True] * 2


@pytest.mark.parametrize("text", ["no", "\ud800", "x" * 2_000_000], ids=["plain", "no UTF-8", "too long"])
def test_a_refusal_is_answered_whatever_its_text_is(text: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.CRITICAL, "rmq_actors")
    _, answers = _ask(lambda request: None, [_RefusingHook(text)])
    assert [answer.code for answer in answers] == [ResponseCode.NO_PERMISSION] * 2


def test_a_hook_that_fails_is_an_error_of_its_request_alone() -> None:
    _, answers = _ask(lambda request: request.command.response(0), [_FailingHook()])
    assert [(answer.code, answer.remark) for answer in answers] == [
        (ResponseCode.SYSTEM_ERROR, "ValueError, a hook that fails")
    ] * 2


def test_an_answer_that_is_too_long_is_an_error_of_its_request_alone() -> None:
    def too_long(request: RemotingRequest) -> RemotingCommand:
        return request.command.response(0, body=bytes(FRAME_MAX_LENGTH_BYTES))

    async def too_long_later(request: RemotingRequest) -> RemotingCommand:
        return too_long(request)

    remoting = RemotingWorld()
    answers: list[RemotingCommand] = []
    done = trio.Event()

    async def serve(node: Node) -> None:
        pool = RequestPool("Pool", 1, 4, None, remoting.recorder.tracer(node.name))

        def register(table: ProcessorTable) -> None:
            table.register([FAIL], too_long)
            table.register_pooled([POOLED], too_long_later, pool)

        async with remoting.server(node, register):
            await pool.run()

    async def call(node: Node) -> None:
        async with remoting.client(node) as client:
            codes = (FAIL, POOLED, FAIL, POOLED)
            answers.extend([await client.invoke(remoting.address, RemotingCommand(code), 1000) for code in codes])
        done.set()

    async def main(world: World) -> None:
        remoting.server_node.boot(serve)
        await trio.sleep(0.01)
        remoting.client_node.boot(call)
        await done.wait()

    remoting.world.run(main)
    assert [answer.code for answer in answers] == [ResponseCode.SYSTEM_ERROR] * 4
    assert all("ValueError, a frame of 16777" in (answer.remark or "") for answer in answers)
    assert [event.status for event in remoting.events(RemotingFailed)] == ["ValueError"] * 4


@pytest.mark.parametrize("seed", range(5))
def test_an_answer_while_its_connection_ends_is_dropped(seed: int) -> None:
    """At every step of the end: the connection's nursery takes no task before everybody knows that it is over."""
    remoting = RemotingWorld(seed)
    held: list[RemotingRequest] = []
    done = trio.Event()

    async def serve(node: Node) -> None:
        async with remoting.server(node, lambda table: table.register([HELD], held.append)) as server:
            await trio.sleep(1)
            assert len(held) == 50
            server.connections[1].close("enough")
            for request in held:
                request.respond(request.command.response(0))
                await trio.lowlevel.checkpoint()
            assert not server.connections
        done.set()

    async def call(node: Node) -> None:
        async with await trio.open_tcp_stream(remoting.server_node.address, PORT) as stream:
            await stream.send_all(b"".join(encode_command(RemotingCommand(HELD, opaque=n)) for n in range(50)))
            await done.wait()

    async def main(world: World) -> None:
        remoting.server_node.boot(serve)
        await trio.sleep(0.01)
        remoting.client_node.boot(call)
        await done.wait()

    remoting.world.run(main)
    assert [event.status for event in remoting.events(RemotingClose)] == ["enough"]


def test_a_peer_that_is_cut_off_is_owed_nothing_more(caplog: pytest.LogCaptureFixture) -> None:
    """Answers that come in one go, before the connection can end: they are not kept, and said once."""
    remoting = RemotingWorld()
    held: list[RemotingRequest] = []
    limits = ConnectionLimits(write_buffer_high_water_mark_bytes=100_000, write_buffer_max_bytes=100_000)
    done = trio.Event()

    async def serve(node: Node) -> None:
        register: Callable[[ProcessorTable], object] = lambda table: table.register([HELD], held.append)  # noqa: E731
        async with remoting.server(node, register, limits=limits) as server:
            await trio.sleep(1)
            connection = server.connections[1]
            for request in held:
                request.respond(request.command.response(0, body=bytes(30_000)))
                assert connection.outgoing_bytes < 200_000
            await trio.sleep(1)
        done.set()

    async def call(node: Node) -> None:
        async with await trio.open_tcp_stream(remoting.server_node.address, PORT) as stream:
            await stream.send_all(b"".join(encode_command(RemotingCommand(HELD, opaque=n)) for n in range(50)))
            await done.wait()

    async def main(world: World) -> None:
        remoting.server_node.boot(serve)
        await trio.sleep(0.01)
        remoting.client_node.boot(call)
        await done.wait()

    remoting.world.run(main)
    assert [event.status for event in remoting.events(RemotingClose)] == ["slow_reader"]
    assert caplog.text.count("reads too slowly") == 1


def test_limits_that_contradict_each_other_are_refused() -> None:
    with pytest.raises(
        ValueError, match=r"write_buffer_max_bytes \(1000\) is below write_buffer_high_water_mark_bytes"
    ):
        ConnectionLimits(write_buffer_high_water_mark_bytes=2000, write_buffer_max_bytes=1000)


@pytest.mark.parametrize("seed", range(5))
def test_a_stop_amid_a_batch_of_answers_ends_it_between_frames(seed: int) -> None:
    """The reader itself was sending; what is left of its piece is sent before all that waits behind it."""
    remoting = RemotingWorld(seed)
    held: list[RemotingRequest] = []
    answers: list[int] = []
    done = trio.Event()

    def big(request: RemotingRequest) -> RemotingCommand:
        return request.command.response(0, body=bytes(30_000))

    async def serve(node: Node) -> None:
        def register(table: ProcessorTable) -> None:
            table.register([BIG], big)
            table.register([HELD], held.append)

        async with remoting.server(node, register) as server:
            await trio.sleep(1)
            assert server.connections[1].outgoing_bytes
            for request in held:
                request.respond(big(request))

    async def call(node: Node) -> None:
        async with await trio.open_tcp_stream(remoting.server_node.address, PORT) as stream:
            await stream.send_all(b"".join(encode_command(RemotingCommand(HELD, opaque=n)) for n in range(3)))
            await stream.send_all(b"".join(encode_command(RemotingCommand(BIG, opaque=n)) for n in range(3, 20)))
            await trio.sleep(1.1)
            reader = FrameReader()
            async for data in stream:
                feed(reader, bytes(data))
                answers.extend(command.opaque for command in reader.commands())
            assert not reader.pending_bytes
        done.set()

    async def main(world: World) -> None:
        remoting.server_node.boot(serve)
        await trio.sleep(0.01)
        remoting.client_node.boot(call)
        await done.wait()

    remoting.world.run(main)
    assert answers == [*range(3, 20), 0, 1, 2]


def test_a_peer_that_leaves_during_the_stop_harms_nobody() -> None:
    """What it is owed cannot be sent any more: that is no error of the server."""
    remoting = RemotingWorld()
    done = trio.Event()

    async def serve(node: Node) -> None:
        def big(request: RemotingRequest) -> RemotingCommand:
            return request.command.response(0, body=bytes(500_000))

        async with remoting.server(node, lambda table: table.register([BIG], big)):
            await trio.sleep(1)

    async def call(node: Node) -> None:
        async with await trio.open_tcp_stream(remoting.server_node.address, PORT) as stream:
            await stream.send_all(encode_command(RemotingCommand(BIG)))
            await trio.sleep(1.2)
        done.set()

    async def main(world: World) -> None:
        remoting.server_node.boot(serve)
        await trio.sleep(0.01)
        remoting.client_node.boot(call)
        await done.wait()
        await trio.sleep(5)

    remoting.world.run(main)
    assert [event.status for event in remoting.events(RemotingClose)] == ["stopped"]


@pytest.mark.parametrize("delay_s", [0.0, 0.0002, 0.0005, 0.001, 0.0012, 0.0015, 0.002, 0.003])
@pytest.mark.parametrize("answers", [True, False], ids=["connects", "hangs"])
def test_a_client_stops_at_once_whatever_a_connect_is_about_to_do(delay_s: float, answers: bool) -> None:
    remoting = RemotingWorld()
    outcomes: list[str] = []
    took_s: list[float] = []
    done = trio.Event()

    async def serve(node: Node) -> None:
        async with remoting.server(node, lambda table: None):
            await trio.sleep_forever()

    async def call(node: Node) -> None:
        async def ask() -> None:
            try:
                await client.invoke(remoting.address, RemotingCommand(HELD), 10_000)
                outcomes.append("answered")
            except RemotingError as error:
                outcomes.append(type(error).__name__)

        async with trio.open_nursery() as nursery:
            async with remoting.client(node) as client:
                nursery.start_soon(ask)
                await trio.sleep(delay_s)
                began_s = trio.current_time()
            took_s.append(trio.current_time() - began_s)
        done.set()

    async def main(world: World) -> None:
        remoting.server_node.boot(serve)
        await trio.sleep(0.01)
        if not answers:
            world.apply(Partition(0.0, 60.0, "client", "server"), 1)
        remoting.client_node.boot(call)
        await done.wait()

    remoting.world.run(main)
    assert took_s[0] < 0.01
    assert outcomes == ["RemotingConnectError"] or (answers and len(outcomes) == 1)


@pytest.mark.parametrize("seed", range(6))
def test_a_client_that_stops_in_the_instant_of_a_connect_keeps_nothing(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    remoting = RemotingWorld(seed)
    connected, done = trio.Event(), trio.Event()
    open_tcp_stream = trio.open_tcp_stream

    async def open_and_wait(host: str, port: int) -> trio.SocketStream:
        stream = await open_tcp_stream(host, port)
        await connected.wait()
        return stream

    async def serve(node: Node) -> None:
        async with remoting.server(node, lambda table: None):
            await trio.sleep_forever()

    async def call(node: Node) -> None:
        async with trio.open_nursery() as nursery:
            async with remoting.client(node) as client:
                nursery.start_soon(_expect_no_answer, client, remoting.address)
                await trio.sleep(1)
                connected.set()
                client.request_stop()
            assert trio.current_time() == pytest.approx(1.01)
        done.set()

    async def main(world: World) -> None:
        remoting.server_node.boot(serve)
        await trio.sleep(0.01)
        remoting.client_node.boot(call)
        await done.wait()

    with monkeypatch.context() as patch:
        patch.setattr(trio, "open_tcp_stream", open_and_wait)
        remoting.world.run(main)


async def _expect_no_answer(client: RemotingClient, address: str) -> None:
    with pytest.raises(RemotingError):
        await client.invoke(address, RemotingCommand(HELD), 10_000)


def test_a_pool_bounds_the_bytes_that_wait_too() -> None:
    """Ten thousand requests of the longest body would be 160 GB."""
    remoting = RemotingWorld()
    answers: list[tuple[int, str]] = []

    async def work(request: RemotingRequest) -> RemotingCommand:
        await trio.sleep(1)
        return request.command.response(0, "worked")

    async def main(world: World) -> None:
        async def serve(node: Node) -> None:
            pool = RequestPool("Pool", 1, 100, None, remoting.recorder.tracer(node.name), queue_max_bytes=250_000)
            async with remoting.server(node, lambda table: table.register_pooled([POOLED], work, pool)):
                await pool.run()

        async def call(node: Node) -> None:
            async def ask(number: int, request: RemotingCommand) -> None:
                await trio.sleep(number / 100)
                answer = await client.invoke(remoting.address, request, 10_000)
                answers.append((number, (answer.remark or "")[:10]))

            async with remoting.client(node) as client:
                for _ in range(2):
                    answers.clear()
                    async with trio.open_nursery() as nursery:
                        nursery.start_soon(ask, 0, RemotingCommand(POOLED))
                        nursery.start_soon(ask, 1, RemotingCommand(POOLED, body=bytes(100_000)))
                        nursery.start_soon(ask, 2, RemotingCommand(POOLED, {"x" * 50_000: "y" * 50_000}))
                        nursery.start_soon(ask, 3, RemotingCommand(POOLED, body=bytes(60_000)))
                        nursery.start_soon(ask, 4, RemotingCommand(POOLED, body=bytes(40_000)))
                    assert dict(answers) == {**dict.fromkeys((0, 1, 2, 4), "worked"), 3: "[OVERLOAD]"}
            done.set()

        done = trio.Event()
        remoting.server_node.boot(serve)
        await trio.sleep(0.01)
        remoting.client_node.boot(call)
        await done.wait()

    remoting.world.run(main)


def test_requests_that_find_too_many_bytes_before_them_leave_the_connection_alone() -> None:
    """They were promised to nobody: the peer is slower than who asks, and what was sent before is answered."""
    remoting = RemotingWorld()
    outcomes: list[str] = []

    async def main(world: World) -> None:
        async def serve(node: Node) -> None:
            async with remoting.server(node, lambda table: table.register([BIG], lambda r: r.command.response(0))):
                await trio.sleep_forever()

        async def call(node: Node) -> None:
            async def ask() -> None:
                try:
                    await client.invoke(remoting.address, RemotingCommand(BIG, body=bytes(1_000_000)), 60_000)
                    outcomes.append("answered")
                except RemotingTooMuchRequestError:
                    outcomes.append("too much")

            limits = ConnectionLimits(write_buffer_max_bytes=4_000_000)
            async with remoting.client(node, limits=limits) as client:
                async with trio.open_nursery() as nursery:
                    for _ in range(10):
                        nursery.start_soon(ask)
                (connection,) = client.connections.values()
                for _ in range(4):
                    connection.invoke_oneway(RemotingCommand(BIG, body=bytes(1_000_000)))
                with pytest.raises(RemotingTooMuchRequestError, match=r"4000\d* bytes are waiting to be sent already"):
                    connection.invoke_oneway(RemotingCommand(BIG))
                await ask()
            done.set()

        done = trio.Event()
        remoting.server_node.boot(serve)
        await trio.sleep(0.01)
        remoting.client_node.boot(call)
        await done.wait()

    remoting.world.run(main)
    assert outcomes == ["too much"] * 6 + ["answered"] * 4 + ["too much"]
    assert [event.status for event in remoting.events(RemotingClientClose)] == ["stopped"]
