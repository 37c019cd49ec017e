"""Remoting over TLS on loopback sockets: who is let in, who is not, and what each is told."""

from __future__ import annotations

import contextlib
import logging
import ssl
from collections.abc import AsyncIterator

import attrs
import pytest
import trio
import trio.testing

from rmq_actors.actors.system import open_actor_system
from rmq_actors.real_io.entropy import SystemEntropy
from rmq_actors.remoting.client import RemotingClient
from rmq_actors.remoting.config import ConnectionLimits, RemotingClientConfig, RemotingServerConfig
from rmq_actors.remoting.connection import (
    RemotingConnectError,
    RemotingError,
    RemotingRequest,
    RemotingSendRequestError,
)
from rmq_actors.remoting.processor import ProcessorTable
from rmq_actors.remoting.server import RemotingServer
from rmq_actors.remoting.tls import ClientAuth, TlsConfig, TlsHandshakeError, TlsMode, tls_client, tls_server
from rmq_actors.wire.frame_reader import FrameReader
from rmq_actors.wire.remoting_command import RemotingCommand, encode_command
from tests.worlds.recording import Watch, new_recorder
from tests.worlds.tls_certificates import certificates, tls_client_config, tls_server_config

ECHO, ASKED = 900, 901


@attrs.define(eq=False)
class Running:
    """A server, what it recorded, and clients of it."""

    server: RemotingServer
    watch: Watch

    @contextlib.asynccontextmanager
    async def client(self, tls: TlsConfig | None) -> AsyncIterator[RemotingClient]:
        tracer = new_recorder().tracer("client")
        processors = ProcessorTable(tracer)
        processors.register([ASKED], echo)
        async with open_actor_system("client", tracer, entropy=SystemEntropy()) as system:
            client = RemotingClient(
                RemotingClientConfig(), SystemEntropy(), tracer, processors, tls=tls_client(tls or TlsConfig())
            )
            await system.start(client)
            yield client

    async def echoes(self, tls: TlsConfig | None) -> None:
        """Return when a client has had an answer. Raises what its request raises."""
        failure: RemotingError | None = None
        async with self.client(tls) as client:
            request = RemotingCommand(ECHO, {"topic": "Tönende"}, body=b"x" * 100)
            try:
                answer = await client.invoke(self.server.address, request, 5000)
            except RemotingError as error:  # raised after the client's nursery, or it would be in a group
                failure = error
            else:
                assert (answer.code, answer.ext_fields, answer.body) == (0, {"topic": "Tönende"}, b"x" * 100)
        if failure is not None:
            raise failure

    async def closed(self, reason: str) -> None:
        """Return when a connection has ended for this reason, and for no other."""
        await self.watch.until(lambda event: event.kind == "remoting.close")
        reasons = {event.status for event in self.watch.seen(lambda event: event.kind == "remoting.close")}
        assert reasons == {reason}


def echo(request: RemotingRequest) -> RemotingCommand:
    return request.command.response(0, None, request.command.ext_fields, request.command.body)


@contextlib.asynccontextmanager
async def running(
    tls: TlsConfig, *, limits: ConnectionLimits | None = None, connections_max: int = 10
) -> AsyncIterator[Running]:
    recorder = new_recorder()
    tracer = recorder.tracer("server")
    processors = ProcessorTable(tracer)
    processors.register([ECHO], echo)
    config = RemotingServerConfig("127.0.0.1", 0, connections_max=connections_max, limits=limits or ConnectionLimits())
    async with open_actor_system("server", tracer, entropy=SystemEntropy()) as system:
        server = RemotingServer(config, processors, tracer, tls=tls_server(tls))
        await system.start(server)
        yield Running(server, Watch(recorder))


async def plain_stream(server: RemotingServer) -> trio.SocketStream:
    return await trio.open_tcp_stream("127.0.0.1", server.port)


@pytest.mark.trio
async def test_a_request_is_answered_over_tls() -> None:
    async with running(tls_server_config()) as server:
        await server.echoes(tls_client_config())


@pytest.mark.trio
async def test_what_is_on_the_wire_is_tls_and_not_our_frames() -> None:
    seen = bytearray()

    async def tap(client: trio.SocketStream) -> None:
        server = await plain_stream(running_server.server)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(pipe, client, server)
            nursery.start_soon(pipe, server, client)

    async def pipe(source: trio.SocketStream, target: trio.SocketStream) -> None:
        with contextlib.suppress(trio.BrokenResourceError, trio.ClosedResourceError):
            async for data in source:
                seen.extend(data)
                await target.send_all(data)
        await target.aclose()

    async with running(tls_server_config()) as running_server, trio.open_nursery() as nursery:
        (listener,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
        nursery.start_soon(trio.serve_listeners, tap, [listener])
        async with running_server.client(tls_client_config()) as client:
            request = RemotingCommand(ECHO, {"topic": "SecretTopic"}, body=b"secret body")
            await client.invoke(f"127.0.0.1:{listener.socket.getsockname()[1]}", request, 5000)
        nursery.cancel_scope.cancel()
    assert len(seen) > 1000
    assert b"SecretTopic" not in seen
    assert b"secret body" not in seen


@pytest.mark.trio
async def test_requests_that_are_larger_than_records_and_many_at_once() -> None:
    async with running(tls_server_config()) as server, server.client(tls_client_config()) as client:

        async def call(number: int, size_bytes: int) -> None:
            body = bytes([number]) * size_bytes
            answer = await client.invoke(server.server.address, RemotingCommand(ECHO, body=body), 30_000)
            assert answer.body == body

        await call(1, 5_000_000)
        async with trio.open_nursery() as nursery:
            for number in range(12):
                nursery.start_soon(call, number, number * 7_000)


@pytest.mark.trio
async def test_a_server_asks_its_client_over_tls() -> None:
    async with running(tls_server_config()) as server, server.client(tls_client_config()) as client:
        await client.invoke(server.server.address, RemotingCommand(ECHO), 5000)
        (connection,) = server.server.connections.values()
        answer = await connection.invoke(RemotingCommand(ASKED, body=b"who are you?"), 5000)
        assert answer.body == b"who are you?"


@pytest.mark.trio
async def test_a_server_of_another_authority_is_refused() -> None:
    async with running(tls_server_config()) as server:
        with pytest.raises(RemotingConnectError, match=r"\d: no TLS handshake: .*certificate verify failed"):
            await server.echoes(tls_client_config("theirs"))
        await server.closed("TlsHandshakeError")


@pytest.mark.trio
async def test_a_client_that_checks_nobody_says_so(caplog: pytest.LogCaptureFixture) -> None:
    async with running(tls_server_config()) as server:
        await server.echoes(TlsConfig(enable=True))
    assert "whoever answers is believed to be the server" in caplog.text


@pytest.mark.trio
async def test_names_are_compared_where_that_is_asked_for() -> None:
    checks = attrs.evolve(tls_client_config(), client_check_hostname=True)
    for name, fits in (("127.0.0.1", True), ("localhost", False)):
        files = certificates("ours", name)
        config = attrs.evolve(tls_server_config(), server_cert_path=files.cert, server_key_path=files.key)
        async with running(config) as server:
            await server.echoes(tls_client_config())
            if fits:
                await server.echoes(checks)
            else:
                with pytest.raises(RemotingConnectError, match="IP address mismatch"):
                    await server.echoes(checks)


@pytest.mark.trio
async def test_clients_are_known_by_their_certificates() -> None:
    async with running(tls_server_config(asks=ClientAuth.REQUIRE)) as server:
        await server.echoes(tls_client_config(has_cert_of="ours"))
        for stranger in (tls_client_config(), tls_client_config(has_cert_of="theirs")):
            with pytest.raises(RemotingError):
                await server.echoes(stranger)
        await server.watch.until(lambda event: event.status == "TlsHandshakeError", times=2)


@pytest.mark.trio
async def test_a_client_may_have_none_but_no_wrong_one() -> None:
    async with running(tls_server_config(asks=ClientAuth.OPTIONAL)) as server:
        await server.echoes(tls_client_config(has_cert_of="ours"))
        await server.echoes(tls_client_config())
        with pytest.raises(RemotingError):
            await server.echoes(tls_client_config(has_cert_of="theirs"))


@pytest.mark.trio
async def test_plain_text_is_refused_where_tls_is_enforced(caplog: pytest.LogCaptureFixture) -> None:
    async with running(tls_server_config()) as server:
        with caplog.at_level(logging.INFO), pytest.raises(RemotingSendRequestError):
            await server.echoes(None)
        await server.closed("TlsHandshakeError")
        await server.echoes(tls_client_config())
    assert "plain text, where tls.server.mode=enforcing asks for TLS" in caplog.text


@pytest.mark.trio
async def test_a_permissive_server_takes_both() -> None:
    async with running(tls_server_config(TlsMode.PERMISSIVE)) as server:
        await server.echoes(None)
        await server.echoes(tls_client_config())
        await server.echoes(None)


@pytest.mark.trio
async def test_the_byte_that_was_looked_at_is_not_lost() -> None:
    """However a plain frame is split."""
    frame = encode_command(RemotingCommand(ECHO, {"topic": "TopicTest"}, body=b"a body", opaque=7))
    async with running(tls_server_config(TlsMode.PERMISSIVE)) as server:
        for number, cut in enumerate((1, 2, 5, len(frame) - 1), 1):
            async with await plain_stream(server.server) as stream:
                await stream.send_all(frame[:cut])
                await server.watch.until(lambda event: event.kind == "remoting.open", times=number)
                await stream.send_all(frame[cut:])
                assert (await read_answer(stream)).body == b"a body"


async def read_answer(stream: trio.SocketStream) -> RemotingCommand:
    reader = FrameReader()
    while True:
        data = await stream.receive_some()
        assert data, "no answer"
        with reader.free_space() as space:
            space[: len(data)] = data
        reader.received(len(data))
        if commands := reader.commands():
            return commands[0]


@pytest.mark.trio
async def test_a_server_without_tls_refuses_who_speaks_it() -> None:
    async with running(TlsConfig()) as server:
        with pytest.raises(RemotingConnectError, match="no TLS handshake"):
            await server.echoes(tls_client_config())
        await server.closed("bad_frame")
        await server.echoes(None)


@pytest.mark.trio
async def test_a_client_of_tls_refuses_a_server_of_anything_else() -> None:
    async def talk(stream: trio.SocketStream) -> None:
        await stream.send_all(b"220 mail.example.com ready\r\n")
        await stream.receive_some()

    async with running(tls_server_config()) as server, trio.open_nursery() as nursery:
        (listener,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
        nursery.start_soon(trio.serve_listeners, talk, [listener])
        async with server.client(tls_client_config()) as client:
            with pytest.raises(RemotingConnectError, match="no TLS handshake"):
                await client.invoke(f"127.0.0.1:{listener.socket.getsockname()[1]}", RemotingCommand(ECHO), 5000)
        nursery.cancel_scope.cancel()


BEGUN = pytest.mark.parametrize("begin", [b"\x16", b"\x16\x03\x01\x02\x00\x01"])
SPEAKING = pytest.mark.parametrize("mode", [TlsMode.PERMISSIVE, TlsMode.ENFORCING])


@pytest.mark.trio
@BEGUN
@SPEAKING
async def test_a_handshake_has_10_s(mode: TlsMode, begin: bytes, autojump_clock: trio.testing.MockClock) -> None:
    tls = tls_server(tls_server_config(mode))
    assert tls is not None
    (listener,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
    peer = await trio.open_tcp_stream(*listener.socket.getsockname())
    async with listener, peer, await listener.accept() as stream:
        await peer.send_all(begin)
        began_s = trio.current_time()
        with pytest.raises(TlsHandshakeError, match="no TLS handshake within 10000 ms"):
            await tls.accept(stream)
        assert trio.current_time() - began_s == pytest.approx(10)


@pytest.mark.trio
@BEGUN
@SPEAKING
async def test_a_handshake_that_does_not_go_on_is_dropped(mode: TlsMode, begin: bytes) -> None:
    config = attrs.evolve(tls_server_config(mode), handshake_timeout_ms=50)
    async with running(config) as server, await plain_stream(server.server) as stream:
        await stream.send_all(begin)
        await server.closed("TlsHandshakeError")
        with trio.fail_after(60):
            assert not await stream.receive_some()


@pytest.mark.trio
async def test_nobody_waits_for_the_handshake_of_another() -> None:
    async with running(tls_server_config()) as server, await plain_stream(server.server) as stream:
        await stream.send_all(b"\x16")
        await server.watch.until(lambda event: event.kind == "remoting.open")
        await server.echoes(tls_client_config())
        assert not server.watch.seen(lambda event: event.status == "TlsHandshakeError")


@pytest.mark.trio
@pytest.mark.parametrize("garbage", [b"\x16" + b"\0" * 100, b"\x16\x03\x01\xff\xff" + b"x" * 70_000])
async def test_garbage_that_begins_like_tls_ends_its_connection_alone(garbage: bytes) -> None:
    async with running(tls_server_config()) as server, await plain_stream(server.server) as stream:
        with contextlib.suppress(trio.BrokenResourceError):
            await stream.send_all(garbage)
        await server.closed("TlsHandshakeError")
        await server.echoes(tls_client_config())


@pytest.mark.trio
@pytest.mark.parametrize("mode", [TlsMode.PERMISSIVE, TlsMode.ENFORCING])
async def test_who_says_nothing_is_closed_when_idle(mode: TlsMode) -> None:
    limits = ConnectionLimits(channel_max_idle_time_ms=100)
    async with running(tls_server_config(mode), limits=limits) as server, await plain_stream(server.server):
        await server.closed("idle")


@pytest.mark.trio
async def test_who_shakes_hands_counts_as_connected() -> None:
    async with running(tls_server_config(), connections_max=1) as server, await plain_stream(server.server) as first:
        await first.send_all(b"\x16")
        await server.watch.until(lambda event: event.kind == "remoting.open")
        async with await plain_stream(server.server):
            await server.watch.until(lambda event: event.kind == "remoting.refused")


@pytest.mark.trio
async def test_a_peer_that_goes_away_is_an_end_and_no_error() -> None:
    async with running(tls_server_config()) as server:
        async with server.client(tls_client_config()) as client:
            await client.invoke(server.server.address, RemotingCommand(ECHO), 5000)
        await server.closed("closed_by_peer")


@pytest.mark.trio
async def test_a_stop_ends_connections_in_whatever_state() -> None:
    async with running(tls_server_config()) as server:
        silent, shaking = await plain_stream(server.server), await plain_stream(server.server)
        await shaking.send_all(b"\x16")
        await server.watch.until(lambda event: event.kind == "remoting.open", times=2)
    for stream in (silent, shaking):
        async with stream:
            with trio.fail_after(60), contextlib.suppress(trio.BrokenResourceError):
                assert not await stream.receive_some()


@pytest.mark.trio
async def test_broken_records_end_the_connection() -> None:
    """After the handshake: what does not decrypt was changed on its way."""
    async with running(tls_server_config()) as server, await plain_stream(server.server) as stream:
        context = ssl.create_default_context(cafile=certificates("ours").trust)
        tls = trio.SSLStream(stream, context, server_hostname="localhost", https_compatible=True)
        await tls.do_handshake()
        await tls.send_all(encode_command(RemotingCommand(ECHO, opaque=1)))
        await tls.receive_some()
        await stream.send_all(b"\x17\x03\x03\x00\x20" + b"x" * 32)
        await server.closed("TlsBrokenError")
