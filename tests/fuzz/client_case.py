"""A hostile server: wrong, repeated and spoiled answers, requests to the client. The client goes on, and keeps time."""

from __future__ import annotations

import collections
from collections.abc import Mapping
from random import Random

import attrs
import trio

from rmq_actors.remoting.client import RemotingClient
from rmq_actors.remoting.config import ConnectionLimits
from rmq_actors.remoting.connection import RemotingError, RemotingRequest
from rmq_actors.remoting.processor import ProcessorTable
from rmq_actors.tracing.events.remoting import RemotingFailed
from rmq_actors.wire.frame_reader import FrameReader
from rmq_actors.wire.remoting_command import RemotingCommand, encode_command
from sim_net import Node, World, WorldConfig
from tests.fuzz.decoder_case import buffer_bytes_max
from tests.fuzz.mutations import Mutator, golden_frames, pieces
from tests.worlds.fed_frames import feed
from tests.worlds.remoting_world import PORT, RemotingWorld

ECHO = 900
TIMEOUT_MS = 500
LIMITS = ConnectionLimits(
    frame_max_length_bytes=65_536,
    channel_max_idle_time_ms=5000,
    write_buffer_high_water_mark_bytes=50_000,
    write_buffer_max_bytes=100_000,
)


@attrs.define
class HostileServer:
    """Does something with each request."""

    random: Random

    async def serve(self, stream: trio.SocketStream) -> None:
        reader = FrameReader()
        try:
            async for data in stream:
                feed(reader, bytes(data))
                for command in reader.commands():
                    frames = self.reply(command)
                    if frames is None:
                        return
                    for piece in pieces(self.random, b"".join(frames)):
                        await stream.send_all(piece)
                        await trio.sleep(self.random.choice((0, 0, 0, 0, 0.001, 0.05)))
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            pass  # the client closed the connection, as it may
        finally:
            await stream.aclose()

    def reply(self, request: RemotingCommand) -> list[bytes] | None:
        """What is sent for a request; None closes the connection."""
        mutator, random = Mutator(self.random), self.random
        answer = encode_command(request.response(0, body=request.body))
        other = random.choice(golden_frames())
        replies: tuple[list[bytes] | None, ...] = (
            *[[answer]] * 8,
            [encode_command(RemotingCommand(0, opaque=request.opaque + 1000, flag=1)), answer],
            [answer, answer, answer],
            [other, answer],
            [mutator.frame(answer)],
            [mutator.frame(other), answer],
            [mutator.noise(200)],
            [(2**24 - 4).to_bytes(4, "big"), bytes(100_000)],
            [answer, other[:-1]],
            [other] * 50,
            [],
            None,
        )
        return random.choice(replies)


def _echo(request: RemotingRequest) -> RemotingCommand:
    return request.command.response(0, body=request.command.body)


def _register(table: ProcessorTable) -> None:
    table.register([ECHO], _echo)


def run(seed: int) -> Mapping[str, int]:
    """One world: a client between a hostile server and one that behaves. What became of its requests."""
    random = Random(f"client {seed}")
    outcomes: collections.Counter[str] = collections.Counter()
    remoting = RemotingWorld(seed, WorldConfig(journal_keep=False))
    remoting.world.run(lambda world: _main(world, remoting, random, outcomes))
    assert outcomes.total() == 20
    failed = remoting.events(RemotingFailed)
    assert not failed, failed
    return outcomes


async def _main(world: World, remoting: RemotingWorld, random: Random, outcomes: collections.Counter[str]) -> None:
    hostile = world.node("hostile")
    done = trio.Event()

    async def attack(node: Node) -> None:
        await trio.serve_tcp(HostileServer(random).serve, PORT, host=node.address)

    async def serve(node: Node) -> None:
        async with remoting.server(node, _register):
            await trio.sleep_forever()

    async def call(node: Node) -> None:
        async with (
            remoting.client(node, _register, reconnect_pause_max_ms=100, limits=LIMITS) as client,
            trio.open_nursery() as nursery,
        ):
            nursery.start_soon(_watch, client)
            async with trio.open_nursery() as asking:
                for _ in range(20):
                    asking.start_soon(_ask_hostile, client, f"{hostile.address}:{PORT}", random, outcomes)
                asking.start_soon(_ask_other, client, remoting.address)
            await _ask_other(client, remoting.address)
            for connection in client.connections.values():
                assert not len(connection._pending), "requests that nobody waits for are kept"
            nursery.cancel_scope.cancel()
        done.set()

    hostile.boot(attack)
    remoting.server_node.boot(serve)
    await trio.sleep(0.01)
    remoting.client_node.boot(call)
    with trio.fail_after(600):
        await done.wait()


async def _ask_hostile(
    client: RemotingClient, address: str, random: Random, outcomes: collections.Counter[str]
) -> None:
    """An answer, or an error of remoting, in time."""
    await trio.sleep(random.choice((0.0, 0.05, 0.3, 1.0, 2.0, 3.0)))
    began = trio.current_time()
    request = RemotingCommand(ECHO, body=bytes(random.choice((0, 10, 1000))))
    try:
        answer = await client.invoke(address, request, TIMEOUT_MS)
        assert answer.is_response
        assert answer.opaque == request.opaque
        outcomes["answered"] += 1
    except RemotingError as error:
        outcomes[type(error).__name__] += 1
    assert trio.current_time() - began <= TIMEOUT_MS / 1000 + 1e-6


async def _ask_other(client: RemotingClient, address: str) -> None:
    """Whoever behaves is not disturbed."""
    for number in range(10):
        body = bytes([number]) * 100
        answer = await client.invoke(address, RemotingCommand(ECHO, body=body), TIMEOUT_MS)
        assert (answer.code, answer.body) == (0, body)
        await trio.sleep(0.1)


async def _watch(client: RemotingClient) -> None:
    while True:
        for connection in client.connections.values():
            assert connection._reader.buffer_bytes <= buffer_bytes_max(LIMITS.frame_max_length_bytes)
            assert connection.outgoing_bytes <= LIMITS.write_buffer_max_bytes + LIMITS.frame_max_length_bytes
        await trio.sleep(0.005)
