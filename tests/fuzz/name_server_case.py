"""Spoiled requests to a name server: none fails but by the peer's own mistake, and the routes of others stay."""

from __future__ import annotations

import collections
import functools
import zlib
from collections.abc import Mapping
from random import Random

import trio

from rmq_actors.namesrv.config import NamesrvConfig
from rmq_actors.namesrv.namesrv_controller import open_name_server
from rmq_actors.ports.environment import Environment
from rmq_actors.remoting.client import RemotingClient
from rmq_actors.remoting.config import ConnectionLimits, RemotingServerConfig
from rmq_actors.tracing.events.remoting import RemotingClose, RemotingFailed
from rmq_actors.wire.bodies.decoding import decode_body
from rmq_actors.wire.bodies.register_broker import RegisterBrokerBody
from rmq_actors.wire.bodies.routes import TopicRouteData
from rmq_actors.wire.bodies.topic_configs import TopicConfig, TopicConfigSerializeWrapper
from rmq_actors.wire.headers import encode_header
from rmq_actors.wire.headers.namesrv import RegisterBrokerRequestHeader
from rmq_actors.wire.headers.topics import GetRouteInfoRequestHeader
from rmq_actors.wire.remoting_command import RemotingCommand, SerializeType, decode_command, encode_command
from rmq_actors.wire.request_code import RequestCode
from sim_net import Node, World, WorldConfig
from tests.fuzz.hostile_peer import HostilePeer
from tests.fuzz.mutations import Mutator, golden_frames
from tests.worlds.remoting_world import PORT, RemotingWorld

IDLE_MS = 5000
TOPIC, BROKER = "TopicOfOthers", "broker-of-others"
#: What the requests that no capture has say: each takes the fields that it knows.
_FIELDS = {
    "namespace": "ORDER_TOPIC_CONFIG", "key": "TopicTest", "value": "broker-a:4", "topic": "TopicTest",
    "cluster": "DefaultCluster", "clusterName": "DefaultCluster", "brokerName": "broker-a",
    "brokerAddr": "127.0.0.1:10911", "brokerId": "0",
}  # fmt: skip
_CODES = (*range(100, 103), 205, 206, 216, 219, 224, 304, 311, 312, 313, 318, 319, 322, 327)


@functools.cache
def requests() -> tuple[bytes, ...]:
    """Requests to a name server, in both encodings: those captured, and the others with telling fields."""
    frames = list(golden_frames(103, 104, 105, 106, 206))
    for code in _CODES:
        bodies = {318: b"orderMessageEnable=true\n", 322: b'{"counter":1,"timestamp":1}'}
        for serialize_type in SerializeType:
            command = RemotingCommand(code, dict(_FIELDS), body=bodies.get(code, b""), serialize_type=serialize_type)
            frames.append(encode_command(command))
    return tuple(frames)


def _spoiled(mutator: Mutator, frame: bytes) -> bytes:
    """A spoiled request; of a registration rather its body, without or within the compression."""
    command = decode_command(frame[4:])
    if command.code != RequestCode.REGISTER_BROKER or mutator.random.random() < 0.3:
        return mutator.frame(frame)
    fields = command.ext_fields or {}
    fields["bodyCrc32"] = "0"
    if fields.get("compressed") != "true" and mutator.random.random() < 0.5:
        # Captured brokers do not compress.
        fields["compressed"] = "true"
        command.body = RegisterBrokerBody.decode(command.body, compressed=False).encode(compressed=True)
    if fields.get("compressed") == "true":
        change = mutator.random.choice((mutator.bits, mutator.number, mutator.insert, mutator.cut, mutator.repeat))
        command.body = zlib.compress(change(zlib.decompress(command.body)))
        return encode_command(command)
    return mutator.body(encode_command(command))


def run(seed: int) -> Mapping[str, int]:
    """One world: a name server, a broker and a client that behave, and peers that do not."""
    random = Random(f"name server {seed}")
    mutator = Mutator(random)
    peers = []
    for _ in range(3):
        frames = [random.choice(requests()) for _ in range(random.choice((1, 5, 20)))]
        spoiled = random.choice((0.1, 0.5))
        sent = [_spoiled(mutator, frame) if random.random() < spoiled else frame for frame in frames]
        peers.append(HostilePeer.of_frames(random, sent))
    remoting = RemotingWorld(seed, WorldConfig(journal_keep=False))
    remoting.world.run(lambda world: _main(world, remoting, peers))
    failed = remoting.events(RemotingFailed)
    unexpected = [event for event in failed if event.status != "bad_request"]
    assert not unexpected, unexpected
    closed = collections.Counter(str(event.status) for event in remoting.events(RemotingClose))
    return closed + collections.Counter({"bad_request": len(failed)})


async def _main(world: World, remoting: RemotingWorld, peers: list[HostilePeer]) -> None:
    left = len(peers) + 1
    done = trio.Event()

    def ended() -> None:
        nonlocal left
        left -= 1
        if not left:
            done.set()

    async def serve(node: Node) -> None:
        limits = ConnectionLimits(channel_max_idle_time_ms=IDLE_MS)
        config = NamesrvConfig(remoting=RemotingServerConfig(node.address, PORT, limits=limits))
        environment = Environment(node.disk, node.wall_clock, node.entropy)
        async with open_name_server(config, environment, remoting.recorder.tracer(node.name)):
            await trio.sleep_forever()

    async def attack(node: Node) -> None:
        await peers[int(node.name[-1])].attack(remoting.server_node.address, PORT)
        ended()

    async def behave(node: Node) -> None:
        async with remoting.client(node) as client:
            for _ in range(12):
                await _register_and_ask(client, remoting.address)
                await trio.sleep(1)
        ended()

    remoting.server_node.boot(serve)
    await trio.sleep(0.1)
    remoting.client_node.boot(behave)
    for number in range(len(peers)):
        world.node(f"peer-{number}").boot(attack)
    with trio.fail_after(600):
        await done.wait()


async def _register_and_ask(client: RemotingClient, address: str) -> None:
    """A broker renews its registration, and a client finds its topic there, and nowhere else."""
    header = RegisterBrokerRequestHeader(BROKER, "10.9.9.9:10911", "ClusterOfOthers", "10.9.9.9:10912", 0)
    table = {TOPIC: TopicConfig(topic_name=TOPIC, read_queue_nums=3)}
    body = RegisterBrokerBody(topic_config_serialize_wrapper=TopicConfigSerializeWrapper(topic_config_table=table))
    registration = RemotingCommand(
        RequestCode.REGISTER_BROKER, encode_header(header), body=body.encode(compressed=False)
    )
    assert (await client.invoke(address, registration, 3000)).code == 0
    ask = RemotingCommand(RequestCode.GET_ROUTEINFO_BY_TOPIC, encode_header(GetRouteInfoRequestHeader(TOPIC)))
    answer = await client.invoke(address, ask, 3000)
    assert answer.code == 0, answer
    route = decode_body(TopicRouteData, answer.body)
    assert [(row.broker_name, row.read_queue_nums) for row in route.queue_datas] == [(BROKER, 3)]
    assert [dict(data.broker_addrs) for data in route.broker_datas] == [{0: "10.9.9.9:10911"}]
