"""An old owner of a name and id ends, and a new one begins: every order of their requests, and of time.

RocketMQ takes the new one's place away with the old one's late unregister or late expiry (#5374, #11043). Here each
order is tried against the route table itself, and again over connections of a simulated world.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence

import attrs
import pytest
import trio

from rmq_actors.actors.system import open_actor_system
from rmq_actors.namesrv.namesrv_controller import NamesrvController
from rmq_actors.namesrv.route_table import Broker, RouteInfoManager
from rmq_actors.remoting.client import RemotingClient
from rmq_actors.remoting.config import RemotingClientConfig
from rmq_actors.remoting.processor import ProcessorTable
from rmq_actors.wire.bodies.register_broker import RegisterBrokerBody
from rmq_actors.wire.bodies.topic_configs import DataVersion, TopicConfig, TopicConfigSerializeWrapper
from rmq_actors.wire.headers import encode_header
from rmq_actors.wire.headers.namesrv import RegisterBrokerRequestHeader, UnRegisterBrokerRequestHeader
from rmq_actors.wire.remoting_command import RemotingCommand
from rmq_actors.wire.request_code import RequestCode
from sim_net import Node
from tests.worlds.name_server_world import NameServerWorld

EXPIRED_S = 120.0
#: Two of these are longer than a silent broker lives, one is not.
STEP_S = 61.0
OLD, NEW = "10.0.0.1:10911", "10.0.0.2:10911"
CLUSTER, NAME = "DefaultCluster", "broker-a"

OLD_REGISTERS, OLD_UNREGISTERS, OLD_IS_CLOSED = "old registers", "old unregisters", "old is closed"
NEW_REGISTERS, TIME = "new registers", "time"


def interleavings(*sequences: Sequence[str]) -> Iterator[list[str]]:
    """Every order that keeps the order within each sequence."""
    rest = [sequence for sequence in sequences if sequence]
    if not rest:
        yield []
    for number, sequence in enumerate(rest):
        for order in interleavings(*rest[:number], sequence[1:], *rest[number + 1 :]):
            yield [sequence[0], *order]


def subsequences(sequence: Sequence[str]) -> Iterator[list[str]]:
    """Every choice of its elements, in their order."""
    for wanted in itertools.product((True, False), repeat=len(sequence)):
        yield list(itertools.compress(sequence, wanted))


@attrs.frozen
class Takeover:
    """Who takes whose place.

    `old_reconnects`: what the old owner says late it says over a connection that is newer than the new owner's.
    `was_slave`: the new owner was a slave of the name. `equal_versions`: its topics have the version of the old one's,
    as those of a slave that was promoted.
    """

    new_address: str = NEW
    old_reconnects: bool = False
    was_slave: bool = False
    equal_versions: bool = False

    def topics(self, address: str) -> TopicConfigSerializeWrapper:
        """What an owner registers."""
        names = "T", "SELF_TEST_TOPIC", "OFFSET_MOVED_EVENT"
        version = 1 if address == OLD or self.equal_versions else 2
        return TopicConfigSerializeWrapper(
            data_version=DataVersion(counter=version, timestamp=1),
            topic_config_table={name: TopicConfig(topic_name=name) for name in names},
        )


TAKEOVERS = {
    "another machine": Takeover(),
    "another machine, equal versions": Takeover(equal_versions=True),
    "another machine, the old one reconnects": Takeover(old_reconnects=True),
    "the same address": Takeover(OLD),
    "a promoted slave": Takeover(was_slave=True),
    "a promoted slave, equal versions": Takeover(was_slave=True, equal_versions=True),
    "a promoted slave, the old one reconnects": Takeover(was_slave=True, old_reconnects=True),
}


@attrs.define(eq=False)
class Expectation:
    """Who is routed: the new owner while it lives, the old one before it and while it lives. The old one is there."""

    takeover: Takeover
    now: float = 0.0
    old_heard_s: float = 0.0
    new_heard_s: float = -math.inf

    def happens(self, what: str) -> None:
        """It has happened."""
        if what == OLD_REGISTERS:
            self.old_heard_s = self.now
        elif what == NEW_REGISTERS:
            self.new_heard_s = self.now
        elif what in {OLD_UNREGISTERS, OLD_IS_CLOSED}:
            self.old_heard_s = -math.inf

    def check(self, table: RouteInfoManager) -> None:
        """The table must say so."""
        addresses = routed(table)
        new, new_lives, old_lives = (
            self.takeover.new_address,
            self._lives(self.new_heard_s),
            self._lives(self.old_heard_s),
        )
        slaves = [address for broker_id, address in addresses.items() if broker_id]
        if new_lives:
            assert (addresses[0], slaves) == (new, [])
        elif self.new_heard_s == -math.inf or new != OLD:
            # With one address for both nobody can tell whose late words are heard once the new one is silent.
            assert addresses.get(0) == (OLD if old_lives else None)
        assert slaves in ([], [new])

    def _lives(self, heard_s: float) -> bool:
        return self.now - heard_s < EXPIRED_S


def routed(table: RouteInfoManager) -> Mapping[int, str]:
    """The addresses by id: the route of a topic and what is said of the cluster agree."""
    route, info = table.pick_topic_route_data("T"), table.all_cluster_info()
    if NAME not in info.broker_addr_table:
        assert (route, info.cluster_addr_table) == (None, {})
        return {}
    data = info.broker_addr_table[NAME]
    assert info.cluster_addr_table == {CLUSTER: [NAME]}
    # Topics come from masters, and stay while anybody is there.
    assert route is None or route.broker_datas == [data]
    assert route is not None or 0 not in data.broker_addrs
    return data.broker_addrs


# --- the table itself -------------------------------------------------------------------------------------------------


def try_order(takeover: Takeover, order: Sequence[str]) -> None:
    table = RouteInfoManager(EXPIRED_S)
    expectation = Expectation(takeover)
    old, late_conn_id = Broker(CLUSTER, NAME, 0, OLD), 3 if takeover.old_reconnects else 1

    def register(address: str, broker_id: int, conn_id: int) -> None:
        broker = Broker(CLUSTER, NAME, broker_id, address)
        table.register_broker(broker, "", takeover.topics(address), [], conn_id=conn_id, now=expectation.now)

    register(OLD, 0, 1)
    if takeover.was_slave:
        register(NEW, 1, 2)
    for what in order:
        if what == OLD_REGISTERS:
            register(OLD, 0, late_conn_id)
        elif what == OLD_UNREGISTERS:
            table.unregister_broker(old, conn_id=late_conn_id)
        elif what == OLD_IS_CLOSED:
            for conn_id in {1, late_conn_id}:
                table.connection_closed(conn_id)
        elif what == NEW_REGISTERS:
            register(takeover.new_address, 0, 2)
        else:
            expectation.now += STEP_S
            table.expire(expectation.now)
        expectation.happens(what)
        expectation.check(table)


@pytest.mark.parametrize("name", TAKEOVERS)
def test_in_every_order_the_table_routes_the_new_owner_while_it_lives(name: str) -> None:
    tried = 0
    for late in subsequences((OLD_REGISTERS, OLD_UNREGISTERS, OLD_IS_CLOSED)):
        for order in interleavings(late, [NEW_REGISTERS] * 3, [TIME] * 2):
            try:
                try_order(TAKEOVERS[name], order)
            except AssertionError as error:
                error.add_note(f"in the order {order}")
                raise
            tried += 1
    assert tried == 1380


# --- over connections -------------------------------------------------------------------------------------------------


@attrs.define(eq=False, repr=False)
class Owner:
    """A node that says what it is told to say. It has one connection, which ends with the node."""

    node: Node
    name_server: str
    servers: NameServerWorld
    _client: RemotingClient | None = None

    async def serve(self, node: Node) -> None:
        tracer = self.servers.recorder.tracer(node.name)
        node.on_fence(tracer.fence)
        async with open_actor_system(node.name, tracer, entropy=node.entropy) as system:
            self._client = RemotingClient(RemotingClientConfig(), node.entropy, tracer, ProcessorTable(tracer))
            await system.start(self._client)
            await trio.sleep_forever()

    async def register(self, takeover: Takeover, address: str, broker_id: int) -> None:
        header = RegisterBrokerRequestHeader(NAME, address, CLUSTER, "", broker_id)
        body = RegisterBrokerBody(topic_config_serialize_wrapper=takeover.topics(address)).encode(compressed=False)
        await self._ask(RemotingCommand(RequestCode.REGISTER_BROKER, encode_header(header), body=body))

    async def unregister(self, address: str) -> None:
        header = UnRegisterBrokerRequestHeader(NAME, address, CLUSTER, 0)
        await self._ask(RemotingCommand(RequestCode.UNREGISTER_BROKER, encode_header(header)))

    async def _ask(self, command: RemotingCommand) -> None:
        assert self._client is not None
        client = self._client
        answer = await self.servers.on_node(self.node.name, lambda: client.invoke(self.name_server, command, 3000))
        assert answer.code == 0


async def try_order_over_connections(servers: NameServerWorld, takeover: Takeover, order: Sequence[str]) -> None:
    nodes = [servers.world.node(name) for name in ("old", "new")]
    old, new = (Owner(node, servers.address_of("ns-1"), servers) for node in nodes)
    old.node.boot(old.serve)
    new.node.boot(new.serve)
    await trio.sleep(0.01)
    expectation = Expectation(takeover, trio.current_time(), trio.current_time())
    await old.register(takeover, OLD, 0)
    if takeover.was_slave:
        await new.register(takeover, NEW, 1)
    controller: NamesrvController = servers.name_servers["ns-1"]
    for what in order:
        expectation.now = trio.current_time()
        if what == OLD_REGISTERS:
            await old.register(takeover, OLD, 0)
        elif what == OLD_UNREGISTERS:
            await old.unregister(OLD)
        elif what == OLD_IS_CLOSED:
            old.node.kill()
        elif what == NEW_REGISTERS:
            await new.register(takeover, takeover.new_address, 0)
        else:
            await trio.sleep(STEP_S)
            expectation.now = trio.current_time()
        expectation.happens(what)
        await trio.sleep(0.1)  # the end of a connection has to arrive
        expectation.check(controller.route_info_manager)


@pytest.mark.parametrize("name", [name for name, takeover in TAKEOVERS.items() if not takeover.old_reconnects])
def test_in_every_order_of_requests_and_ends_of_connections_the_name_server_routes_the_new_owner(name: str) -> None:
    # Idle connections end after two of them, and who has the same address must not speak over a newer one.
    times = [TIME] if TAKEOVERS[name].new_address == OLD else [TIME, TIME]
    for number, order in enumerate(interleavings([OLD_UNREGISTERS, OLD_IS_CLOSED], [NEW_REGISTERS] * 2, times)):
        servers = NameServerWorld([], number)

        async def use(servers: NameServerWorld = servers, order: Sequence[str] = order) -> None:
            await trio.sleep(0.1)
            await try_order_over_connections(servers, TAKEOVERS[name], order)

        servers.run(use)
