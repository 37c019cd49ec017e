"""Remoting between two simulated nodes: answers, time-outs, ends of connections, limits."""

from __future__ import annotations

import contextlib
import itertools
import struct
from typing import Any

import pytest
import trio

from rmq_actors.remoting import connection as connection_module
from rmq_actors.remoting.client import RemotingClient
from rmq_actors.remoting.config import ConnectionLimits
from rmq_actors.remoting.connection import (
    RemotingConnectError,
    RemotingConnection,
    RemotingRequest,
    RemotingSendRequestError,
    RemotingTimeoutError,
    RemotingTooMuchRequestError,
)
from rmq_actors.remoting.hooks import RpcRefused
from rmq_actors.remoting.processor import ProcessorTable, RequestPool
from rmq_actors.tracing.events.remoting import (
    RemotingBusy,
    RemotingClientClose,
    RemotingClientConnectFailed,
    RemotingClose,
    RemotingFailed,
    RemotingOpen,
)
from rmq_actors.wire.frame_reader import FrameReader
from rmq_actors.wire.remoting_command import RemotingCommand, RemotingCommandError, SerializeType, encode_command
from rmq_actors.wire.response_code import ResponseCode
from sim_net import Node, World
from tests.worlds.fed_frames import feed
from tests.worlds.remoting_world import PORT, RemotingWorld

ECHO, LATER, NEVER, FAIL, BAD, REFUSE, BUSY = range(900, 907)


def _echo(request: RemotingRequest) -> RemotingCommand:
    command = request.command
    return command.response(ResponseCode.SUCCESS, command.remark, command.ext_fields, command.body)


def _never(request: RemotingRequest) -> None:
    return None


def _fail(request: RemotingRequest) -> RemotingCommand:
    raise KeyError("what the processor forgot")


def _bad(request: RemotingRequest) -> RemotingCommand:
    raise RemotingCommandError("queueId is no number: 'x'")


def _refuse(request: RemotingRequest) -> RemotingCommand:
    raise RpcRefused(ResponseCode.NO_PERMISSION, "not you")


def _register(table: ProcessorTable) -> None:
    table.register([ECHO], _echo)
    table.register([NEVER], _never)
    table.register([FAIL], _fail)
    table.register([BAD], _bad)
    table.register([REFUSE], _refuse)
    table.register([BUSY], _echo, reject_request=lambda: True)


@pytest.mark.parametrize("serialize_type", SerializeType)
def test_a_request_is_answered(serialize_type: SerializeType) -> None:
    remoting = RemotingWorld()

    async def use(client: RemotingClient) -> None:
        fields = {"topic": "TopicTest", "blank": "", "ünïcode": "\x01"}
        for body in (b"", b"x" * 100_000):
            request = RemotingCommand(ECHO, dict(fields), body=body, remark="why", serialize_type=serialize_type)
            answer = await client.invoke(remoting.address, request, 3000)
            assert answer.is_response
            assert (answer.code, answer.ext_fields, answer.body, answer.remark) == (0, fields, body, "why")
            assert answer.serialize_type is serialize_type

    remoting.run(_register, use)


def test_answers_find_their_requests_in_any_order() -> None:
    remoting = RemotingWorld()
    held: list[RemotingRequest] = []

    def later(request: RemotingRequest) -> None:
        held.append(request)
        if len(held) == 20:
            for each in reversed(held):
                each.respond(_echo(each))

    async def use(client: RemotingClient) -> None:
        async def ask(number: int) -> None:
            answer = await client.invoke(remoting.address, RemotingCommand(LATER, {"n": str(number)}), 3000)
            assert answer.ext_fields == {"n": str(number)}
            answered.append(number)

        answered: list[int] = []
        async with trio.open_nursery() as nursery:
            for number in range(20):
                nursery.start_soon(ask, number)
        assert sorted(answered) == list(range(20))

    remoting.run(lambda table: table.register([LATER], later), use)
    assert len(remoting.events(RemotingOpen)) == 1


@pytest.mark.parametrize("register_later", [False, True])
def test_long_requests_and_long_answers_do_not_wait_for_each_other(register_later: bool) -> None:
    """Neither side may stop reading because its own requests are not taken."""
    remoting = RemotingWorld()

    async def use(client: RemotingClient) -> None:
        async def ask(number: int) -> None:
            body = bytes([number]) * (number * 200_000)
            answer = await client.invoke(remoting.address, RemotingCommand(ECHO, body=body), 60_000)
            assert answer.body == body

        async with trio.open_nursery() as nursery:
            for number in range(12):
                nursery.start_soon(ask, number)

    async def answer(request: RemotingRequest) -> RemotingCommand:
        await trio.sleep(0.01)
        return _echo(request)

    async def main_later(pool: RequestPool) -> None:
        await pool.run()

    def register(table: ProcessorTable) -> None:
        if register_later:
            pool = RequestPool("Later", 4, 100, None, remoting.recorder.tracer("server"))
            table.register_pooled([ECHO], answer, pool)
            remoting.server_node.start_soon(main_later, pool)
        else:
            table.register([ECHO], _echo)

    remoting.run(register, use)


@pytest.mark.parametrize(
    ("codes", "client_sends", "server_sends", "server_waits_s"),
    [
        ([ECHO] * 6, 2_000_000, 2_000_000, 0.0),  # both send requests
        ([ECHO] * 6, 0, 0, 0.0),  # both send answers
        ([ECHO], 0, 2_000_000, 0.005),  # requests begin while the reader sends an answer
        ([LATER, ECHO], 0, 2_000_000, 0.005),  # and while it waits for an answer that another task sends
    ],
    ids=["requests", "answers", "amid an answer", "amid a late answer"],
)
def test_peers_that_ask_each_other_at_length_do_not_wait_for_each_other(
    codes: list[int], client_sends: int, server_sends: int, server_waits_s: float
) -> None:
    """A side that read nothing because its answers, or its requests, are not taken would be waited for in its turn."""
    remoting = RemotingWorld()
    done = trio.Event()
    answered: list[str] = []

    def answer(request: RemotingRequest) -> RemotingCommand:
        return request.command.response(0, body=bytes(2_000_000))

    async def answer_later(request: RemotingRequest) -> None:
        request.respond(answer(request))

    async def ask(asker: str, request: RemotingCommand, connection: RemotingConnection, wait_s: float) -> None:
        await trio.sleep_until(1 + wait_s)
        await connection.invoke(request, 60_000)
        answered.append(asker)

    async def serve(node: Node) -> None:
        def register(table: ProcessorTable) -> None:
            table.register([ECHO], answer)
            table.register([LATER], lambda request: node.start_soon(answer_later, request))

        async with remoting.server(node, register) as server:
            await trio.sleep(0.5)
            async with trio.open_nursery() as nursery:
                for _ in range(6):
                    request = RemotingCommand(ECHO, body=bytes(server_sends))
                    nursery.start_soon(ask, "server", request, server.connections[1], server_waits_s)
            await trio.sleep_forever()

    async def call(node: Node) -> None:
        async with remoting.client(node, lambda table: table.register([ECHO], answer)) as client:
            await client.invoke_oneway(remoting.address, RemotingCommand(NEVER), 1000)
            async with trio.open_nursery() as nursery:
                for number, code in enumerate(codes):
                    request = RemotingCommand(code, body=bytes(client_sends))
                    nursery.start_soon(ask, "client", request, client.connections[1], number / 1000)
            await trio.sleep(30)
        done.set()

    async def main(world: World) -> None:
        remoting.server_node.boot(serve)
        await trio.sleep(0.01)
        remoting.client_node.boot(call)
        await done.wait()

    remoting.world.run(main)
    assert sorted(answered) == ["client"] * len(codes) + ["server"] * 6


@pytest.mark.parametrize(
    ("code", "answer_code", "remark"),
    [
        (FAIL, ResponseCode.SYSTEM_ERROR, "KeyError, 'what the processor forgot'"),
        (BAD, ResponseCode.SYSTEM_ERROR, "RemotingCommandError, queueId is no number: 'x'"),
        (REFUSE, ResponseCode.NO_PERMISSION, "not you"),
        (BUSY, ResponseCode.SYSTEM_BUSY, "[REJECTREQUEST]system busy, start flow control for a while"),
        (4711, ResponseCode.REQUEST_CODE_NOT_SUPPORTED, " request type 4711 not supported"),
    ],
)
def test_what_goes_wrong_is_answered_and_the_connection_goes_on(
    code: int, answer_code: ResponseCode, remark: str
) -> None:
    remoting = RemotingWorld()

    async def use(client: RemotingClient) -> None:
        answer = await client.invoke(remoting.address, RemotingCommand(code), 3000)
        assert (answer.code, answer.remark) == (answer_code, remark)
        assert (await client.invoke(remoting.address, RemotingCommand(ECHO), 3000)).code == ResponseCode.SUCCESS

    remoting.run(_register, use)
    assert len(remoting.events(RemotingOpen)) == 1
    failed = [event.status for event in remoting.events(RemotingFailed)]
    assert failed == {FAIL: ["KeyError"], BAD: ["bad_request"]}.get(code, [])


def test_nothing_is_answered_to_a_oneway_request() -> None:
    remoting = RemotingWorld()
    seen: list[int] = []

    def note(request: RemotingRequest) -> RemotingCommand:
        seen.append(request.command.opaque)
        return _echo(request)

    async def use(client: RemotingClient) -> None:
        for code in (LATER, FAIL, 4711):
            await client.invoke_oneway(remoting.address, RemotingCommand(code), 3000)
        # Had anything been answered, it would have come before this.
        answer = await client.invoke(remoting.address, RemotingCommand(ECHO), 3000)
        assert answer.opaque == 3
        assert [connection.frames_received for connection in client.connections.values()] == [1]

    def register(table: ProcessorTable) -> None:
        _register(table)
        table.register([LATER], note)

    remoting.run(register, use)
    assert seen == [0]


def test_a_request_without_an_answer_times_out_and_its_late_answer_is_dropped() -> None:
    remoting = RemotingWorld()
    held: list[RemotingRequest] = []

    async def use(client: RemotingClient) -> None:
        begin = trio.current_time()
        with pytest.raises(RemotingTimeoutError, match="no answer to request 901 within 2500 ms"):
            await client.invoke(remoting.address, RemotingCommand(LATER), 2500)
        assert trio.current_time() - begin == pytest.approx(2.5)
        held[0].respond(held[0].command.response(0))
        assert (await client.invoke(remoting.address, RemotingCommand(ECHO), 1000)).code == 0

    def register(table: ProcessorTable) -> None:
        _register(table)
        table.register([LATER], held.append)

    remoting.run(register, use)
    assert len(remoting.events(RemotingOpen)) == 1


def test_who_waits_is_told_when_the_server_dies_and_the_next_request_connects_again() -> None:
    remoting = RemotingWorld()

    async def use(client: RemotingClient) -> None:
        async def kill() -> None:
            await trio.sleep(1)
            remoting.server_node.kill()

        assert (await client.invoke(remoting.address, RemotingCommand(ECHO), 1000)).code == 0
        async with trio.open_nursery() as nursery:
            nursery.start_soon(kill)
            with pytest.raises(RemotingSendRequestError, match="request 902 has no answer"):
                await client.invoke(remoting.address, RemotingCommand(NEVER), 60_000)
        with pytest.raises(RemotingConnectError):
            await client.invoke(remoting.address, RemotingCommand(ECHO), 1000)
        remoting.server_node.restart()
        # Waits for its turn after the failed attempt, and is answered.
        assert (await client.invoke(remoting.address, RemotingCommand(ECHO), 3000)).code == 0

    remoting.run(_register, use)


def test_attempts_to_connect_are_shared_and_further_and_further_apart() -> None:
    remoting = RemotingWorld()
    attempts: list[float] = []

    async def main(world: World) -> None:
        async def call(node: Node) -> None:
            async def ask() -> None:
                with pytest.raises(RemotingConnectError):
                    await client.invoke(remoting.address, RemotingCommand(ECHO), 20_000)

            async with remoting.client(node) as client:
                for _ in range(8):
                    async with trio.open_nursery() as nursery:
                        for _ in range(5):
                            nursery.start_soon(ask)
            done.set()

        async def idle(node: Node) -> None:
            await trio.sleep_forever()

        done = trio.Event()
        remoting.server_node.boot(idle)
        remoting.client_node.boot(call)
        await done.wait()

    remoting.world.run(main)
    attempts += [(event.sim_time_ns or 0) / 1e9 for event in remoting.events(RemotingClientConnectFailed)]
    assert len(attempts) == 8
    gaps = [after - before for before, after in itertools.pairwise(attempts)]
    assert gaps[0] < 0.2
    assert 2.5 <= gaps[-1] <= 5.1


def test_a_connection_on_which_nothing_moves_is_closed_after_two_minutes() -> None:
    remoting = RemotingWorld()

    async def use(client: RemotingClient) -> None:
        await client.invoke(remoting.address, RemotingCommand(ECHO), 1000)
        await trio.sleep(119)
        await client.invoke(remoting.address, RemotingCommand(ECHO), 1000)
        assert not remoting.events(RemotingClose)
        await trio.sleep(121)
        assert not client.connections
        assert (await client.invoke(remoting.address, RemotingCommand(ECHO), 1000)).code == 0

    remoting.run(_register, use)
    # Both ends look at their own clock; the first to close tells the other.
    reasons = {event.status for event in [*remoting.events(RemotingClose), *remoting.events(RemotingClientClose)]}
    assert "idle" in reasons


def test_a_server_calls_its_client() -> None:
    remoting = RemotingWorld()
    answers: list[RemotingCommand] = []
    done = trio.Event()

    async def main(world: World) -> None:
        async def serve(node: Node) -> None:
            async def call_back(connection: RemotingConnection) -> None:
                answers.append(await connection.invoke(RemotingCommand(ECHO, {"a": "b"}), 1000))
                connection.invoke_oneway(RemotingCommand(LATER))

            def register(table: ProcessorTable) -> None:
                table.register([LATER], lambda request: node.start_soon(call_back, request.connection))

            async with remoting.server(node, register):
                await trio.sleep_forever()

        async def call(node: Node) -> None:
            def register(table: ProcessorTable) -> None:
                table.register([ECHO], _echo)
                table.register([LATER], lambda request: done.set())

            async with remoting.client(node, register) as client:
                await client.invoke_oneway(remoting.address, RemotingCommand(LATER), 1000)
                await done.wait()

        remoting.server_node.boot(serve)
        await trio.sleep(0.01)
        remoting.client_node.boot(call)
        await done.wait()

    remoting.world.run(main)
    assert [(answer.code, answer.ext_fields) for answer in answers] == [(0, {"a": "b"})]


def test_requests_beyond_the_limit_are_not_sent() -> None:
    remoting = RemotingWorld()

    async def main(world: World) -> None:
        async def serve(node: Node) -> None:
            async with remoting.server(node, _register):
                await trio.sleep_forever()

        async def call(node: Node) -> None:
            limits = ConnectionLimits(in_flight_requests_max=2)
            async with remoting.client(node, limits=limits) as client, trio.open_nursery() as nursery:

                async def ask() -> None:
                    with pytest.raises(RemotingTimeoutError):
                        await client.invoke(remoting.address, RemotingCommand(NEVER), 1000)

                nursery.start_soon(ask)
                nursery.start_soon(ask)
                await trio.sleep(0.5)
                with pytest.raises(RemotingTooMuchRequestError, match="2 requests are waiting"):
                    await client.invoke(remoting.address, RemotingCommand(ECHO), 1000)
                await trio.sleep(1)
                assert (await client.invoke(remoting.address, RemotingCommand(ECHO), 1000)).code == 0
            done.set()

        done = trio.Event()
        remoting.server_node.boot(serve)
        await trio.sleep(0.01)
        remoting.client_node.boot(call)
        await done.wait()

    remoting.world.run(main)


def _with_raw_peer(
    remoting: RemotingWorld, talk: object, *, limits: ConnectionLimits | None = None, register: object = _register
) -> None:
    """Serve, and give `talk` a raw stream to the server."""

    async def main(world: World) -> None:
        async def serve(node: Node) -> None:
            async with remoting.server(node, register, limits=limits):  # type: ignore[arg-type]
                await trio.sleep_forever()

        async def raw(node: Node) -> None:
            async with await trio.open_tcp_stream(remoting.server_node.address, PORT) as stream:
                await talk(stream)  # type: ignore[operator]
            done.set()

        done = trio.Event()
        remoting.server_node.boot(serve)
        await trio.sleep(0.01)
        remoting.client_node.boot(raw)
        await done.wait()
        await trio.sleep(1)

    remoting.world.run(main)


@pytest.mark.parametrize(
    "garbage",
    [struct.pack(">i", -1), struct.pack(">i", 1 << 24), b"GET / HTTP/1.1\r\n\r\n", struct.pack(">ii", 8, 99) + b"abcd"],
)
def test_what_is_no_frame_ends_the_connection_after_the_answers_to_what_was(garbage: bytes) -> None:
    remoting = RemotingWorld()

    async def talk(stream: trio.SocketStream) -> None:
        await stream.send_all(encode_command(RemotingCommand(ECHO, {"n": "1"}, opaque=7)) + garbage)
        reader = FrameReader()
        async for data in stream:
            feed(reader, bytes(data))
        (answer,) = reader.commands()
        assert (answer.code, answer.opaque) == (0, 7)

    _with_raw_peer(remoting, talk)
    assert [event.status for event in remoting.events(RemotingClose)] == ["bad_frame"]


@pytest.mark.parametrize("ending", [struct.pack(">i", 1 << 22) + bytes(3_000_000), struct.pack(">ii", 8, 99) + b"abcd"])
def test_a_connection_that_has_ended_holds_no_buffer(ending: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its objects know each other, and a server collects such garbage rarely: 400 peers had 26 MB."""
    readers, remoting = list[FrameReader](), RemotingWorld()

    def new_reader(*given: Any) -> FrameReader:
        readers.append(FrameReader(*given))
        return readers[-1]

    async def talk(stream: trio.SocketStream) -> None:
        with contextlib.suppress(trio.BrokenResourceError):
            await stream.send_all(encode_command(RemotingCommand(ECHO, {"n": "1"}, opaque=7)) + ending)
        await trio.sleep(1)

    monkeypatch.setattr(connection_module, "FrameReader", new_reader)
    _with_raw_peer(remoting, talk)
    assert len(remoting.events(RemotingClose)) == 1
    assert [reader.buffer_bytes for reader in readers] == [0]


def test_a_peer_that_does_not_read_is_not_read_from_and_dropped_when_idle() -> None:
    remoting = RemotingWorld()
    processed: list[int] = []
    limits = ConnectionLimits(write_buffer_high_water_mark_bytes=64 * 1024)

    def big(request: RemotingRequest) -> RemotingCommand:
        processed.append(request.command.opaque)
        return request.command.response(0, body=bytes(32 * 1024))

    async def talk(stream: trio.SocketStream) -> None:
        with trio.move_on_after(10):
            for _ in range(200):
                await stream.send_all(encode_command(RemotingCommand(LATER)) * 100)
        some = len(processed)
        assert some < 20  # what fits into the buffers of both ends, and the mark
        await trio.sleep(100)
        assert len(processed) == some
        assert not remoting.events(RemotingClose)
        await trio.sleep(30)

    _with_raw_peer(remoting, talk, limits=limits, register=lambda table: table.register([LATER], big))
    assert [event.status for event in remoting.events(RemotingClose)] == ["idle"]


def test_a_peer_that_does_not_take_late_answers_is_cut_off() -> None:
    remoting = RemotingWorld()
    held: list[RemotingRequest] = []
    limits = ConnectionLimits(write_buffer_max_bytes=1024 * 1024)

    async def talk(stream: trio.SocketStream) -> None:
        for opaque in range(100):
            await stream.send_all(encode_command(RemotingCommand(LATER, opaque=opaque)))
        await trio.sleep(1)
        assert len(held) == 100
        for request in held:
            request.respond(request.command.response(0, body=bytes(100_000)))
            await trio.sleep(0.01)

    _with_raw_peer(remoting, talk, limits=limits, register=lambda table: table.register([LATER], held.append))
    assert [event.status for event in remoting.events(RemotingClose)] == ["slow_reader"]


def test_an_orderly_stop_sends_what_was_answered() -> None:
    remoting = RemotingWorld()
    answers: list[int] = []

    async def main(world: World) -> None:
        async def serve(node: Node) -> None:
            held: list[RemotingRequest] = []
            async with remoting.server(node, lambda table: table.register([LATER], held.append)):
                await trio.sleep(1)
                for request in held:
                    request.respond(request.command.response(0, body=bytes(300_000)))

        async def call(node: Node) -> None:
            async with remoting.client(node) as client, trio.open_nursery() as nursery:

                async def ask() -> None:
                    answer = await client.invoke(remoting.address, RemotingCommand(LATER), 3000)
                    answers.append(len(answer.body))

                for _ in range(5):
                    nursery.start_soon(ask)
            done.set()

        done = trio.Event()
        remoting.server_node.boot(serve)
        await trio.sleep(0.01)
        remoting.client_node.boot(call)
        await done.wait()

    remoting.world.run(main)
    assert answers == [300_000] * 5
    assert [event.status for event in remoting.events(RemotingClose)] == ["stopped"]


def test_requests_that_wait_too_long_or_find_no_room_are_answered_busy() -> None:
    remoting = RemotingWorld()
    answers: list[tuple[float, int, str]] = []

    async def slow(request: RemotingRequest) -> RemotingCommand:
        await trio.sleep(0.15)
        return _echo(request)

    async def main(world: World) -> None:
        async def serve(node: Node) -> None:
            tracer = remoting.recorder.tracer(node.name)
            pool = RequestPool("SendMessageThread", 1, 4, 200, tracer)
            async with remoting.server(node, lambda table: table.register_pooled([LATER], slow, pool)):
                await pool.run()

        async def call(node: Node) -> None:
            async with remoting.client(node) as client, trio.open_nursery() as nursery:

                async def ask(number: int) -> None:
                    await trio.sleep(number / 1000)
                    answer = await client.invoke(remoting.address, RemotingCommand(LATER), 3000)
                    answers.append((trio.current_time(), answer.code, answer.remark or ""))

                for number in range(7):
                    nursery.start_soon(ask, number)
            done.set()

        done = trio.Event()
        remoting.server_node.boot(serve)
        await trio.sleep(0.01)
        remoting.client_node.boot(call)
        await done.wait()

    remoting.world.run(main)
    texts = [remark.partition("]")[0].lstrip("[") for _, _, remark in answers]
    # One is worked on and four wait; of these the first gets its turn after 150 ms, the others waited 200 ms.
    assert sorted(texts) == sorted(["", "", "OVERLOAD", "OVERLOAD", *["TIMEOUT_CLEAN_QUEUE"] * 3])
    assert texts[:2] == ["OVERLOAD"] * 2
    (first, *_, last) = [remark for _, _, remark in answers if "TIMEOUT" in remark]
    assert first == (
        "[TIMEOUT_CLEAN_QUEUE]broker busy, start flow control for a while, period in queue: 200ms, size of queue: 2"
    )
    assert last.endswith("size of queue: 0")
    assert {code for _, code, remark in answers if remark} == {ResponseCode.SYSTEM_BUSY}
    assert [event.status for event in remoting.events(RemotingBusy)] == ["overload"] * 2 + ["timeout_clean_queue"] * 3
