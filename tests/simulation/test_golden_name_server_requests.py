"""What RocketMQ's brokers and clients have asked its name server, asked again here: each has the same answer.

The brokers' registrations bear the addresses that routes have, so answers are equal to the byte but for the order of
Java's hash tables. A route that was not there was asked for before the registration with its topic came.
"""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Callable

import attrs
import trio

from rmq_actors.actors.system import open_actor_system
from rmq_actors.remoting.client import RemotingClient
from rmq_actors.remoting.config import RemotingClientConfig
from rmq_actors.remoting.processor import ProcessorTable
from rmq_actors.wire.bodies.decoding import decode_body
from rmq_actors.wire.bodies.register_broker import RegisterBrokerBody
from rmq_actors.wire.bodies.routes import TopicList
from rmq_actors.wire.remoting_command import RemotingCommand
from rmq_actors.wire.request_code import RequestCode
from tests.worlds.golden_requests import Exchange, Key, count_of, exchanges, frame, key_of
from tests.worlds.name_server_world import CLIENT, NameServerWorld

TIMEOUT_MS = 3_000
ASKED: Counter[int] = Counter(
    {
        RequestCode.REGISTER_BROKER: 34,
        RequestCode.UNREGISTER_BROKER: 2,
        RequestCode.GET_ROUTEINFO_BY_TOPIC: 28,
        RequestCode.GET_BROKER_CLUSTER_INFO: 1,
        RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER: 1,
        RequestCode.DELETE_TOPIC_IN_NAMESRV: 1,
    }
)


def plain(answer: RemotingCommand) -> tuple[object, ...]:
    """The whole answer."""
    return answer.code, answer.flag, answer.remark, answer.ext_fields or {}, answer.body


def listed(answer: RemotingCommand) -> tuple[object, ...]:
    """The same for a list of topics in no order."""
    return answer.code, answer.remark, answer.ext_fields or {}, {*decode_body(TopicList, answer.body).topic_list}


@attrs.define(eq=False)
class Replay:
    """Requests to one name server; a broker and a client are a connection each."""

    address: str
    remoting: RemotingClient
    done: set[Key] = attrs.field(factory=set)
    #: The topics of the master's last registration.
    topics: set[str] = attrs.field(factory=set)

    async def compare(self, each: Exchange, what: Callable[[RemotingCommand], object] = plain) -> None:
        request = copy.copy(each.request)
        if each.answer is None:
            await self.remoting.invoke_oneway(self.address, request, TIMEOUT_MS)
            await trio.sleep(0.1)
        else:
            answer = await self.remoting.invoke(self.address, request, TIMEOUT_MS)
            assert what(answer) == what(each.answer), each.request
        self.done.add(key_of(each.request))
        if each.request.code == RequestCode.REGISTER_BROKER:
            body = RegisterBrokerBody.decode(each.request.body, compressed=False)
            self.topics = {*body.topic_config_serialize_wrapper.topic_config_table}


async def replay_all(replay: Replay) -> None:
    """In the order in which it was: who asks for a topic does so before or after it was registered."""
    master, slave = list(exchanges("mreg.0")), list(exchanges("cns.0"))
    await replay.compare(master.pop(0))
    for _ in range(2):
        await replay.compare(slave.pop(0))
    for each in exchanges("cns.1"):
        topic, is_known = (each.request.ext_fields or {})["topic"], each.answer and each.answer.code == 0
        while is_known and topic not in replay.topics:
            await replay.compare(master.pop(0))
        await replay.compare(each)
    await replay.compare(frame(RequestCode.GET_ROUTEINFO_BY_TOPIC))
    await replay.compare(frame(RequestCode.GET_BROKER_CLUSTER_INFO))
    topics = frame(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER)
    assert topics.answer is not None
    while not replay.topics >= {*decode_body(TopicList, topics.answer.body).topic_list}:
        await replay.compare(master.pop(0))
    await replay.compare(topics, listed)
    await replay.compare(frame(RequestCode.DELETE_TOPIC_IN_NAMESRV))
    for each in (*slave, *master):  # both end with an orderly stop
        await replay.compare(each)


def test_requests_have_the_answers_that_rocketmq_gave() -> None:
    servers, done = NameServerWorld([]), set[Key]()

    async def ask() -> None:
        own, tracer = servers.nodes[CLIENT], servers.recorder.tracer(CLIENT)
        async with open_actor_system("golden", tracer, entropy=own.entropy) as system:
            remoting = RemotingClient(RemotingClientConfig(), own.entropy, tracer, ProcessorTable(tracer))
            await system.start(remoting)
            replay = Replay(servers.address_of("ns-1"), remoting)
            await replay_all(replay)
            done.update(replay.done)

    async def scenario() -> None:
        await servers.converge()
        await servers.on_node(CLIENT, ask)

    servers.run(scenario)
    assert count_of(done) == ASKED
