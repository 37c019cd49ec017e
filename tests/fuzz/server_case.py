"""Hostile peers beside a client that behaves: each frame is answered, or ends the connection that it came on."""

from __future__ import annotations

import collections
from collections.abc import Iterator, Mapping
from random import Random

import attrs
import trio

from rmq_actors.remoting.client import RemotingClient
from rmq_actors.remoting.config import ConnectionLimits
from rmq_actors.remoting.connection import RemotingConnection, RemotingRequest
from rmq_actors.remoting.processor import ProcessorTable, RequestPool
from rmq_actors.remoting.server import RemotingServer
from rmq_actors.tracing.events.remoting import RemotingFailed
from rmq_actors.wire.frame_reader import FrameReader
from rmq_actors.wire.headers import REQUEST_HEADERS, decode_header
from rmq_actors.wire.remoting_command import RemotingCommand
from rmq_actors.wire.response_code import ResponseCode
from sim_net import LinkConfig, Node, World, WorldConfig
from tests.fuzz.decoder_case import Reading, buffer_bytes_max, read
from tests.fuzz.hostile_peer import HostilePeer
from tests.fuzz.mutations import Mutator, golden_frames
from tests.worlds.remoting_world import PORT, RemotingWorld

#: The codes of golden requests, and one that no golden frame has for the client that behaves.
ECHO, BIG, LATER, BIG_LATER = (310, 106, 900), (105,), (901, 25), (11, 12)
POOLED, FAIL, NEVER = (34, 103, 902), (15,), (17,)
BIG_BODY = bytes(20_000)
IDLE_S = 5.0
#: Why a connection may end. Anything else is no name that a reader of the log would know.
REASONS = {
    "closed_by_peer", "closed_within_a_frame", "idle", "bad_frame", "slow_reader", "stopped", "ConnectionResetError",
    "BrokenPipeError",
}  # fmt: skip


@attrs.define
class Processors:
    """What the server does with requests."""

    pool: RequestPool
    held: list[RemotingRequest] = attrs.field(factory=list)

    def register(self, table: ProcessorTable) -> None:
        """Golden codes and the client's own; some codes have no processor."""
        table.register(ECHO, self.echo)
        table.register(BIG, self.big)
        table.register((*LATER, *BIG_LATER), self.held.append)
        table.register_pooled(POOLED, self.work, self.pool)
        table.register(FAIL, self.fail)
        table.register(NEVER, lambda request: None)
        typed = {code for code, header in REQUEST_HEADERS.items() if header is not None and code % 2 == 0}
        table.register(sorted(typed.difference(ECHO, BIG, LATER, BIG_LATER, POOLED, FAIL, NEVER)), self.decode)

    def echo(self, request: RemotingRequest) -> RemotingCommand:
        command = request.command
        return command.response(0, command.remark, command.ext_fields, command.body)

    def big(self, request: RemotingRequest) -> RemotingCommand:
        return request.command.response(0, body=BIG_BODY)

    def fail(self, request: RemotingRequest) -> RemotingCommand:
        raise KeyError(request.command.ext_fields)

    def decode(self, request: RemotingRequest) -> RemotingCommand:
        """Raises `RemotingCommandError` and nothing else, whatever the fields are."""
        header_type = REQUEST_HEADERS[request.command.code]
        assert header_type is not None
        return request.command.response(0, repr(decode_header(header_type, request.command))[:100])

    async def work(self, request: RemotingRequest) -> RemotingCommand:
        await trio.sleep(0.01)
        return self.echo(request)

    async def answer_later(self) -> None:
        while True:
            await trio.sleep(0.2)
            while self.held:
                request = self.held.pop()
                request.respond(self.big(request) if request.command.code in BIG_LATER else self.echo(request))


def answer_codes(command: RemotingCommand) -> set[int]:
    """What a request may be answered; empty for what is not answered at all."""
    if command.is_response or command.is_oneway or command.code in NEVER:
        return set()
    if command.code in (*ECHO, *BIG, *LATER, *BIG_LATER):
        return {ResponseCode.SUCCESS}
    if command.code in POOLED:
        return {ResponseCode.SUCCESS, ResponseCode.SYSTEM_BUSY}
    if command.code in FAIL:
        return {ResponseCode.SYSTEM_ERROR}
    if command.code % 2 == 0 and REQUEST_HEADERS.get(command.code) is not None:
        return {ResponseCode.SUCCESS, ResponseCode.SYSTEM_ERROR}
    return {ResponseCode.REQUEST_CODE_NOT_SUPPORTED}


@attrs.define(eq=False)
class Closings:
    """A `ConnectionListener` that checks the limits of each connection while it lasts."""

    limits: ConnectionLimits
    connections: dict[str, RemotingConnection] = attrs.field(factory=dict)
    reasons: dict[str, str] = attrs.field(factory=dict)

    def on_connected(self, connection: RemotingConnection) -> None:
        self.connections[connection.remote_address] = connection

    def on_closed(self, connection: RemotingConnection, reason: str) -> None:
        self.reasons[connection.remote_address] = reason

    async def watch(self) -> None:
        """The stated limits: of received bytes, and of those that wait to be sent."""
        longest = max(self.limits.frame_max_length_bytes + 1000, len(BIG_BODY) + 1000)
        while True:
            for connection in self.connections.values():
                held = connection._reader.buffer_bytes
                assert held <= buffer_bytes_max(self.limits.frame_max_length_bytes), f"a buffer of {held} bytes"
                waiting = connection.outgoing_bytes
                assert waiting <= self.limits.write_buffer_max_bytes + longest, f"{waiting} bytes wait to be sent"
            await trio.sleep(0.005)


def run(seed: int) -> Mapping[str, int]:
    """One world; how many connections ended for which reason."""
    random = Random(f"server {seed}")
    limits = ConnectionLimits(
        frame_max_length_bytes=random.choice((4096, 65_536, 1024 * 1024)),
        channel_max_idle_time_ms=int(IDLE_S * 1000),
        write_buffer_high_water_mark_bytes=random.choice((10_000, 100_000)),
        write_buffer_max_bytes=random.choice((100_000, 500_000)),
    )
    peers = [_hostile_peer(random) for _ in range(3)]
    closings = Closings(limits)
    remoting = RemotingWorld(seed, _world_config(random))
    remoting.world.run(lambda world: _main(world, remoting, peers, closings, random))
    for peer in peers:
        check_peer(peer, read([b"".join(peer.parts)], limits.frame_max_length_bytes), closings, limits)
    unexpected = {event.status for event in remoting.events(RemotingFailed)} - {"bad_request", "KeyError"}
    assert not unexpected, f"a processor or its answer failed: {unexpected}"
    return collections.Counter(closings.reasons.values())


def _world_config(random: Random) -> WorldConfig:
    buffers = random.choice((2000, 65_536))
    return WorldConfig(
        LinkConfig(segment_bytes=random.choice((100, 1460, 16_384))),
        send_buffer_bytes=buffers,
        receive_buffer_bytes=buffers,
        journal_keep=False,
    )


def _hostile_peer(random: Random) -> HostilePeer:
    golden = golden_frames(*random.choice(((), (), (), (11,), (105, 310), (34, 103, 15))))
    frames = Mutator(random).stream(golden, random.choice((1, 5, 30)), spoiled=random.choice((0.0, 0.05, 0.3)))
    return HostilePeer.of_frames(random, frames)


async def _main(
    world: World, remoting: RemotingWorld, peers: list[HostilePeer], closings: Closings, random: Random
) -> None:
    processors = Processors(RequestPool("Pool", 2, 4, 200, remoting.recorder.tracer("server")))
    serving: list[RemotingServer] = []
    stop, left = trio.Event(), len(peers) + 1
    done = trio.Event()

    async def serve(node: Node) -> None:
        async with remoting.server(
            node, processors.register, limits=closings.limits, listener=closings
        ) as server, trio.open_nursery() as nursery:  # fmt: skip
            serving.append(server)
            for task in (processors.pool.run, processors.answer_later, closings.watch):
                nursery.start_soon(task)
            await stop.wait()
            nursery.cancel_scope.cancel()
        done.set()

    def ended() -> None:
        nonlocal left
        left -= 1
        if not left:
            stop.set()

    async def attack(node: Node) -> None:
        await peers[int(node.name[-1])].attack(remoting.server_node.address, PORT)
        ended()

    async def behave(node: Node) -> None:
        async with remoting.client(node) as client:
            await _behave(client, remoting.address, random)
        ended()

    remoting.server_node.boot(serve)
    await trio.sleep(0.01)
    remoting.client_node.boot(behave)
    for number in range(len(peers)):
        world.node(f"peer-{number}").boot(attack)
    with trio.fail_after(600):
        await stop.wait()
        while serving[0].connections:
            await trio.sleep(0.1)
        await done.wait()


async def _behave(client: RemotingClient, address: str, random: Random) -> None:
    """Requests before, during and after the attacks, each of which is answered, and rightly."""

    async def ask(number: int) -> None:
        code = random.choice((900, 901, 902))
        body = bytes([number]) * random.choice((0, 100, 3000))
        await trio.sleep(random.choice((0.0, 0.1, 1.0)))
        answer = await client.invoke(address, RemotingCommand(code, {"number": str(number)}, body=body), 3000)
        if code != 902 or answer.code != ResponseCode.SYSTEM_BUSY:
            assert (answer.code, answer.ext_fields, answer.body) == (0, {"number": str(number)}, body)

    async with trio.open_nursery() as nursery:
        for number in range(10):
            nursery.start_soon(ask, number)
    await trio.sleep(IDLE_S / 2)
    await ask(10)


def check_peer(peer: HostilePeer, sent: Reading, closings: Closings, limits: ConnectionLimits) -> None:
    """What became of one attack, beside what the server must make of the bytes that were sent."""
    connection, reason = closings.connections[peer.address], closings.reasons[peer.address]
    assert reason in REASONS
    assert connection.frames_received <= len(sent.commands)
    answers = list(_commands(peer.answers))
    owed = [command for command in sent.commands if answer_codes(command)]
    _check_answers(answers, owed)
    late = sum(len(BIG_BODY) if command.code in BIG_LATER else len(command.body) + 500 for command in owed)
    if not peer.stays or late > limits.write_buffer_max_bytes:
        return
    assert connection.frames_received == len(sent.commands)
    if sent.error is not None:
        assert reason == "bad_frame"
    elif peer.ends == "waits":
        assert reason == "idle"
        assert len(answers) == len(owed)
    else:
        assert reason == ("closed_within_a_frame" if sent.pending_bytes else "closed_by_peer")


def _commands(reader: FrameReader) -> Iterator[RemotingCommand]:
    while commands := reader.commands():
        yield from commands


def _check_answers(answers: list[RemotingCommand], owed: list[RemotingCommand]) -> None:
    """Each answer is to one request, with its opaque, its encoding, and what its processor says."""
    waiting = collections.defaultdict[int, list[RemotingCommand]](list)
    for command in owed:
        waiting[command.opaque].append(command)
    for answer in answers:
        assert answer.is_response
        request = next((each for each in waiting[answer.opaque] if _answers(answer, each)), None)
        assert request is not None, f"{answer} answers nothing of {waiting[answer.opaque]}"
        waiting[answer.opaque].remove(request)


def _answers(answer: RemotingCommand, request: RemotingCommand) -> bool:
    if answer.code not in answer_codes(request) or answer.serialize_type is not request.serialize_type:
        return False
    if answer.code or request.code not in (*ECHO, *LATER, *POOLED):
        return True
    return (answer.body, answer.ext_fields) == (request.body, request.ext_fields)
