"""Long frames that never end take no more of a server's memory than its settings allow, and cut off who sends them."""

from __future__ import annotations

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st

from rmq_actors.protocols.received_bytes import ReceivedBytes
from rmq_actors.remoting.config import ConnectionLimits, RemotingServerConfig
from rmq_actors.remoting.processor import ProcessorTable
from rmq_actors.remoting.server import RemotingServer
from rmq_actors.store.config import BrokerRole
from rmq_actors.tracing.events.remoting import RemotingClose
from rmq_actors.wire.frame_reader import BUFFER_BYTES, FrameReader, buffer_bytes_for
from rmq_actors.wire.remoting_command import RemotingCommand, encode_command
from sim_net import Node, World
from tests.worlds.fed_frames import feed
from tests.worlds.name_server_world import CLIENT
from tests.worlds.remoting_world import PORT, RemotingWorld
from tests.worlds.role_world import RoleWorld

MiB = 1024 * 1024
ECHO = 901
LIMITS = ConnectionLimits(frame_max_length_bytes=MiB)
BIG = encode_command(RemotingCommand(ECHO, body=bytes(900 * 1024)))

CHANGES = st.lists(
    st.tuples(
        st.sampled_from(["one", "two", "three", "four"]), st.sampled_from(["10.0.0.1", "10.0.0.2"]), st.integers(0, 9)
    )
)


@given(CHANGES, st.integers(9, 20), st.integers(9, 12))
def test_neither_limit_is_ever_passed_and_who_holds_most_goes(
    changes: list[tuple[str, str, int]], most: int, of_address: int
) -> None:
    received, held = ReceivedBytes[str](most, of_address), dict[str, tuple[str, int]]()
    for connection, address, size in changes:
        held.pop(connection, None)
        if size:
            held[connection] = address, size
        before = dict(held)
        closed = received.holds(connection, address, size)
        if closed is not None:
            del held[closed]
            rivals = [each for of, each in before.values() if of == before[closed][0]]
            is_of_address = sum(rivals) > of_address
            assert is_of_address or sum(each for _, each in before.values()) > most
            assert before[closed][1] == max(rivals if is_of_address else [each for _, each in before.values()])
        assert received.total_bytes == sum(each for _, each in held.values()) <= most
        for one in ("10.0.0.1", "10.0.0.2"):
            assert sum(each for of, each in held.values() if of == one) <= of_address


def test_a_reader_tells_of_a_large_buffer_and_of_its_end() -> None:
    told: list[int] = []
    reader = FrameReader(holds_large=told.append)
    feed(reader, BIG[:-1])
    assert told[-1] == reader.buffer_bytes == buffer_bytes_for(len(BIG)) == MiB
    feed(reader, BIG[-1:])
    assert len(reader.commands()) == 1
    assert told[-1] == 0
    assert reader.buffer_bytes <= BUFFER_BYTES
    told.clear()
    feed(reader, encode_command(RemotingCommand(ECHO, body=bytes(BUFFER_BYTES // 2))))
    assert len(reader.commands()) == 1
    assert told == []


@pytest.mark.parametrize("name", ["received_bytes_max", "received_bytes_per_address_max"])
def test_a_frame_of_the_greatest_length_must_have_room(name: str) -> None:
    with pytest.raises(ValueError, match=rf"{name} \(1048576\) leaves no room for a frame of frame_max_length_bytes"):
        RemotingServerConfig(limits=LIMITS, **{name: MiB})  # type: ignore[arg-type]
    RemotingServerConfig(limits=LIMITS, **{name: 2 * MiB})  # type: ignore[arg-type]


async def _unfinished(address: str, parts: int, sent: list[int], port: int = PORT) -> None:
    """Send a long frame but for its end, and wait for the connection's."""
    async with await trio.open_tcp_stream(address, port) as stream:
        try:
            for part in range(parts):
                await stream.send_all(BIG[part * 256 * 1024 : (part + 1) * 256 * 1024 - (part == 3)])
                sent.append(part)
                await trio.sleep(0.1)
            await stream.receive_some()
        except trio.BrokenResourceError:
            pass


@pytest.mark.parametrize("setting", ["received_bytes_max", "received_bytes_per_address_max"])
def test_peers_that_pile_up_long_frames_are_cut_off_and_others_are_served(setting: str) -> None:
    remoting, done = RemotingWorld(), trio.Event()
    attackers = [remoting.world.node(f"attacker-{n}") for n in range(1 if setting.endswith("address_max") else 12)]
    most = 0

    async def watch(server: RemotingServer) -> None:
        nonlocal most
        while True:
            most = max(most, sum(each._reader.buffer_bytes for each in server.connections.values()))
            await trio.sleep(0.01)

    async def serve(node: Node) -> None:
        def register(table: ProcessorTable) -> None:
            table.register([ECHO], lambda request: request.command.response(0, body=request.command.body))

        async with (
            remoting.server(node, register, limits=LIMITS, settings={setting: 4 * MiB}) as server,
            trio.open_nursery() as nursery,
        ):
            nursery.start_soon(watch, server)
            await done.wait()
            nursery.cancel_scope.cancel()

    async def attack(node: Node) -> None:
        async with trio.open_nursery() as nursery:
            for _ in range(12 // len(attackers)):
                nursery.start_soon(_unfinished, remoting.server_node.address, 4, [])
            await done.wait()
            nursery.cancel_scope.cancel()

    async def call(node: Node) -> None:
        async with remoting.client(node) as client:
            for _ in range(20):
                answer = await client.invoke(remoting.address, RemotingCommand(ECHO, body=bytes(100_000)), 5000)
                assert len(answer.body) == 100_000
                await trio.sleep(0.1)
        done.set()

    async def main(world: World) -> None:
        remoting.server_node.boot(serve)
        await trio.sleep(0.01)
        for attacker in attackers:
            attacker.boot(attack)
        remoting.client_node.boot(call)
        await done.wait()

    remoting.world.run(main)
    ends = [event.status for event in remoting.events(RemotingClose)]
    assert 12 - 4 <= ends.count("received_too_much") <= 12 - 3  # the frames of the client that is served count, too
    assert 4 * MiB <= most <= 4 * MiB + 13 * BUFFER_BYTES


@pytest.mark.parametrize("setting", ["received_bytes_max", "received_bytes_per_address_max"])
def test_both_ports_of_a_broker_share_the_limits(setting: str) -> None:
    servers = RoleWorld.of(0, broker_role=BrokerRole.ASYNC_MASTER)
    servers.remoting_settings = {"limits": LIMITS, setting: 4 * MiB}
    most = 0

    async def watch() -> None:
        nonlocal most
        remoting = servers.brokers["a-0"].remoting
        while True:
            both = remoting.remoting_server, remoting.fast_remoting_server
            connections = [each for server in both if server is not None for each in server.connections.values()]
            most = max(most, sum(each._reader.buffer_bytes for each in connections))
            await trio.sleep(0.01)

    async def use() -> None:
        host, _, port = servers.brokers["a-0"].address.rpartition(":")
        async with trio.open_nursery() as nursery:
            nursery.start_soon(watch)
            with trio.move_on_after(3):
                async with trio.open_nursery() as attackers:
                    for number in range(12):
                        attackers.start_soon(_unfinished, host, 4, [], int(port) - 2 * (number % 2))
            nursery.cancel_scope.cancel()

    servers.run_well(lambda: servers.on_node(CLIENT, use))
    ends = servers.events(RemotingClose, status="received_too_much")
    assert {end.actor for end in ends} == {"RemotingServer", "FastRemotingServer"}
    assert len(ends) == 12 - 4
    assert 4 * MiB <= most <= 4 * MiB + 14 * BUFFER_BYTES
