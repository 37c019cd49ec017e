"""The remoting client's table of peers: attempts that a stop meets, pauses between connections, what is forgotten."""

from __future__ import annotations

import struct
from collections.abc import Awaitable, Callable

import pytest
import trio

from rmq_actors.remoting.client import RemotingClient
from rmq_actors.remoting.config import RemotingClientConfig
from rmq_actors.remoting.connection import RemotingBadFrameError, RemotingConnectError, RemotingSendRequestError
from rmq_actors.remoting.processor import ProcessorTable
from rmq_actors.tracing.events.remoting import RemotingClientClose, RemotingClientConnect
from rmq_actors.wire.remoting_command import RemotingCommand
from sim_net import Node, World
from sim_net.faults.network_faults import Partition
from tests.worlds.remoting_world import PORT, RemotingWorld

HELD = 901


def _run_client(remoting: RemotingWorld, call: Callable[[Node], Awaitable[None]], *, partitioned: bool = False) -> None:
    """A server that answers nothing, and `call` on the other node."""
    done = trio.Event()

    async def serve(node: Node) -> None:
        async with remoting.server(node, lambda table: table.register([HELD], lambda request: None)):
            await trio.sleep_forever()

    async def call_until_done(node: Node) -> None:
        await call(node)
        done.set()

    async def main(world: World) -> None:
        remoting.server_node.boot(serve)
        await trio.sleep(0.01)
        if partitioned:
            world.apply(Partition(0.0, 60.0, "client", "server"), 1)
        remoting.client_node.boot(call_until_done)
        await done.wait()

    remoting.world.run(main)


async def _expect_connect_error(client: RemotingClient, address: str, timeout_ms: int = 10_000) -> None:
    with pytest.raises(RemotingConnectError):
        await client.invoke(address, RemotingCommand(HELD), timeout_ms)


@pytest.mark.parametrize("seed", range(8))
def test_an_attempt_that_begins_in_the_instant_of_a_stop_is_given_up(seed: int) -> None:
    """Whichever of the two runs first: nobody waits for a connect that hangs."""
    remoting = RemotingWorld(seed)

    async def call(node: Node) -> None:
        async with trio.open_nursery() as nursery, remoting.client(node) as client:
            began_s = trio.current_time()
            nursery.start_soon(_expect_connect_error, client, remoting.address)
            client.request_stop()
        assert trio.current_time() - began_s < 0.1

    _run_client(remoting, call, partitioned=True)


@pytest.mark.parametrize("partitioned", [True, False])
def test_a_connect_that_hears_nothing_is_told_from_a_refused_one(partitioned: bool) -> None:
    remoting = RemotingWorld()
    nobody = f"{remoting.server_node.address}:9"

    async def call(node: Node) -> None:
        async with remoting.client(node) as client:
            for _ in range(3):  # the second one finds the pause after the first
                with pytest.raises(RemotingConnectError) as caught:
                    await client.invoke(remoting.address if partitioned else nobody, RemotingCommand(HELD), 5_000)
                assert caught.value.timed_out is partitioned

    _run_client(remoting, call, partitioned=partitioned)


def test_who_waits_for_an_attempt_is_told_when_the_client_is_cancelled() -> None:
    remoting = RemotingWorld()

    async def call(node: Node) -> None:
        tracer = remoting.recorder.tracer(node.name)
        client = RemotingClient(RemotingClientConfig(), node.entropy, tracer, ProcessorTable(tracer))
        async with trio.open_nursery() as callers, trio.open_nursery() as services:
            await services.start(client.run)
            callers.start_soon(_expect_connect_error, client, remoting.address)
            await trio.sleep(1)
            services.cancel_scope.cancel()
            cancelled_s = trio.current_time()
        assert trio.current_time() == cancelled_s

    _run_client(remoting, call, partitioned=True)


def test_a_connection_for_oneway_requests_alone_is_no_failure() -> None:
    """Nothing ever comes back on it: that it ends when it is idle says nothing against the peer."""
    remoting = RemotingWorld()

    async def call(node: Node) -> None:
        async with remoting.client(node) as client:
            for _ in range(8):
                await client.invoke_oneway(remoting.address, RemotingCommand(HELD), 1000)
                with trio.fail_after(130):
                    while client.connections:
                        await trio.sleep(0.01)

    _run_client(remoting, call)
    opened = [(event.sim_time_ns or 0) / 1e9 for event in remoting.events(RemotingClientConnect)]
    closed = [(event.sim_time_ns or 0) / 1e9 for event in remoting.events(RemotingClientClose)]
    assert len(opened) == len(closed) == 8
    assert all(after - before < 0.05 for before, after in zip(closed, opened[1:], strict=False))


def test_addresses_that_are_used_no_more_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    """Name servers name addresses without end; what is in use, or waits for its next attempt, is kept."""
    monkeypatch.setattr("rmq_actors.remoting.client._PEERS_KEPT", 20)
    remoting = RemotingWorld()

    async def call(node: Node) -> None:
        async with remoting.client(node) as client:
            await client.invoke_oneway(remoting.address, RemotingCommand(HELD), 1000)
            (connection,) = client.connections.values()
            for port in range(1, 101):
                await _expect_connect_error(client, f"{remoting.server_node.address}:{port}", 1000)
                await trio.sleep(0.02)
            assert len(client._peers) <= 20
            await client.invoke_oneway(remoting.address, RemotingCommand(HELD), 1000)
            assert list(client.connections.values()) == [connection]

    _run_client(remoting, call)


def test_an_answer_that_is_no_frame_is_told_from_a_connection_that_is_lost() -> None:
    """A frame of half a GiB: nobody would read it, and asking again brings the same."""
    remoting = RemotingWorld()
    answers = [struct.pack(">i", 1 << 29) + bytes(100), b""]
    failures: list[type[Exception]] = []

    async def serve(node: Node) -> None:
        (listener,) = await trio.open_tcp_listeners(PORT, host=node.address)
        async with listener:
            for answer in answers:
                async with await listener.accept() as stream:
                    await stream.receive_some()
                    if answer:
                        await stream.send_all(answer)

    async def call(node: Node) -> None:
        async with remoting.client(node) as client:
            for _ in answers:
                with pytest.raises(RemotingSendRequestError) as caught:
                    await client.invoke(remoting.address, RemotingCommand(HELD), 10_000)
                failures.append(caught.type)
        done.set()

    done = trio.Event()

    async def main(_: World) -> None:
        remoting.server_node.boot(serve)
        await trio.sleep(0.01)
        remoting.client_node.boot(call)
        await done.wait()

    remoting.world.run(main)
    assert failures == [RemotingBadFrameError, RemotingSendRequestError]
