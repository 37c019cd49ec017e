"""Name servers, brokers that register with them, and a client that asks for routes, in a simulated world.

The brokers are whole, or just what registration needs of one: topics, two servers, a client. What is true of them, at
any moment, is a value (`Routes`), and so is what a name server says of them: the tests compare the two.
"""

from __future__ import annotations

import contextlib
import errno
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

import attrs
import trio

from rmq_actors.actors.system import open_actor_system
from rmq_actors.broker.broker_controller import BrokerController, open_broker
from rmq_actors.broker.broker_remoting import BrokerRemoting
from rmq_actors.broker.config import BrokerConfig
from rmq_actors.ha.config import HaConfig
from rmq_actors.ha.followed_master import HA_MASTERS
from rmq_actors.namesrv.config import NamesrvConfig
from rmq_actors.namesrv.namesrv_controller import NamesrvController, open_name_server
from rmq_actors.ports.environment import Environment
from rmq_actors.protocols.broker_registration import MasterAddresses
from rmq_actors.remoting.client import RemotingClient
from rmq_actors.remoting.config import RemotingClientConfig, RemotingServerConfig
from rmq_actors.remoting.processor import ProcessorTable
from rmq_actors.store.config import BrokerRole, MessageStoreConfig
from rmq_actors.store.files.json_file import ConfigFileDamaged
from rmq_actors.store.log.commit_log import CommitLog
from rmq_actors.testing.sim_trace import open_sim_recorder
from rmq_actors.tracing.event import RunInfo, of_kind
from rmq_actors.tracing.events.actor import ActorCrash
from rmq_actors.tracing.events.remoting import RemotingFailed
from rmq_actors.tracing.recorder import Recorder, Tracer
from rmq_actors.wire.address import address_text
from rmq_actors.wire.bodies.decoding import decode_body
from rmq_actors.wire.bodies.routes import ClusterInfo, TopicList, TopicRouteData
from rmq_actors.wire.bodies.topic_configs import TopicConfig
from rmq_actors.wire.headers import CommandHeader, encode_header
from rmq_actors.wire.headers.topics import GetRouteInfoRequestHeader
from rmq_actors.wire.remoting_command import RemotingCommand
from rmq_actors.wire.request_code import RequestCode
from rmq_actors.wire.response_code import ResponseCode
from sim_net import LinkConfig, Node, World, WorldConfig
from tests.worlds.recording import E

T = TypeVar("T")
Entry = tuple[str | int, ...]

NAME_SERVER_PORT = 9876
CLIENT = "client"
#: Within this time of the last fault every name server has whoever lives, and slaves know their masters a period later:
#: docs/registration.md.
CONVERGENCE_S = 30.0 + 14.0
MASTER_KNOWN_S = CONVERGENCE_S + 30.0
#: And within this time it has forgotten whoever does not live.
EXPIRY_S = 120.0 + 1.0

_POLL_S = 0.5
_ASK_TIMEOUT_MS = 3_000
#: What a disk's faults make of a start, and when the next one is tried.
_DISK_ERRORS = {errno.EIO, errno.ENOSPC}
_START_AGAIN_S = 0.5
_STOP_S = 30.0
SMALL_STORE = MessageStoreConfig(
    mapped_file_size_commit_log_bytes=4096,
    mapped_file_size_consume_queue_bytes=400,
    max_hash_slot_num=16,
    max_index_num=64,
    store_stats_sampling=False,
)
_WORLD = WorldConfig(
    link=LinkConfig(latency_min_s=0.0002, latency_max_s=0.02), journal_keep=False, virtual_time_max_s=24 * 3600.0
)


class NotConverged(AssertionError):
    """What a name server or a slave knows is not what is true; says what differs."""


@attrs.frozen
class Member:
    """A broker as its operator has set it up. Another port is another address."""

    node: str
    broker_name: str
    broker_id: int = 0
    port: int = 10911
    cluster_name: str = "DefaultCluster"
    ha: HaConfig | None = None


def pair(name: str, slaves: int = 1) -> list[Member]:
    """A master and its slaves, on nodes "a-0", "a-1" and so on for "broker-a"."""
    return [Member(f"{name}-{number}", f"broker-{name}", number) for number in range(slaves + 1)]


@attrs.frozen
class Routes:
    """Where brokers and topics are.

    `brokers`: addresses by cluster, name and id; `queues`: read and write queues, permission and flags of a topic, by
    topic and broker name; `where`: addresses by id of the brokers that a topic's route names, by the same.
    """

    brokers: Mapping[tuple[str, str, int], str]
    queues: Mapping[tuple[str, str], tuple[int, int, int, int]]
    where: Mapping[tuple[str, str], Mapping[int, str]]

    def entries(self) -> dict[Entry, object]:
        """Everything, to be compared: kind, cluster or topic, broker name; of a broker its id."""
        return {
            **{("broker", *key): value for key, value in self.brokers.items()},
            **{("queues", *key): value for key, value in self.queues.items()},
            **{("where", *key): dict(value) for key, value in self.where.items()},
        }


def routes_of(cluster_info: ClusterInfo, routes: Mapping[str, TopicRouteData]) -> Routes:
    """What a name server says, whose parts have to agree with each other."""
    brokers: dict[tuple[str, str, int], str] = {}
    for cluster, names in cluster_info.cluster_addr_table.items():
        assert len(set(names)) == len(names), cluster_info
        for name in names:
            data = cluster_info.broker_addr_table[name]
            assert (data.broker_name, data.cluster) == (name, cluster), cluster_info
            brokers |= {(cluster, name, broker_id): address for broker_id, address in data.broker_addrs.items()}
    queues, where = {}, {}
    for topic, route in routes.items():
        for row in route.queue_datas:
            assert (topic, row.broker_name) not in queues, route
            queues[topic, row.broker_name] = row.read_queue_nums, row.write_queue_nums, row.perm, row.topic_sys_flag
        for data in route.broker_datas:
            assert (topic, data.broker_name) not in where, route
            where[topic, data.broker_name] = data.broker_addrs
        assert queues.keys() >= where.keys(), route
    return Routes(brokers, queues, where)


# No repr of what hangs together with everything: pytest would never finish writing it.
@attrs.define(eq=False, repr=False)
class LiveBroker:
    """A broker that runs. `controller`: where it is a whole one; `told_ha_master`: what an HAClient would follow."""

    member: Member
    remoting: BrokerRemoting
    ha_address: str
    controller: BrokerController | None = None
    told_ha_master: str | None = None
    stopping: trio.Event = attrs.field(factory=trio.Event, init=False)

    @property
    def address(self) -> str:
        return self.remoting.broker_addr

    @property
    def master(self) -> MasterAddresses:
        """Where it believes its master to be."""
        assert self.remoting.registration is not None
        return self.remoting.registration.master

    @property
    def log(self) -> CommitLog:
        """Of a whole broker."""
        assert self.controller is not None
        return self.controller.store.commit_log

    async def set_topic(self, topic: str, *, queues: int = 4, perm: int = 6) -> None:
        """Create a topic, or change it."""
        config = TopicConfig(topic_name=topic, read_queue_nums=queues, write_queue_nums=queues, perm=perm)
        await self.remoting.topic_config_manager.update_topic_config(config)


@contextlib.asynccontextmanager
async def open_light_broker(
    member: Member, config: BrokerConfig, environment: Environment, tracer: Tracer
) -> AsyncIterator[LiveBroker]:
    """What registration needs of a broker: no store, no replication."""
    assert config.remoting is not None
    assert config.ha_config.ha_listen_port is not None
    remoting = BrokerRemoting.load(config, config.remoting, environment, tracer)
    broker = LiveBroker(member, remoting, address_text((config.broker_ip2, config.ha_config.ha_listen_port)))
    masters, told = HA_MASTERS.open()

    async def follow() -> None:
        async for address in told:
            broker.told_ha_master = address

    async with trio.open_nursery() as nursery:
        nursery.start_soon(follow)
        async with open_actor_system(config.broker_name, tracer, entropy=environment.entropy) as system:
            await remoting.start(system, broker.ha_address, masters)
            yield broker
        nursery.cancel_scope.cancel()


@contextlib.asynccontextmanager
async def open_whole_broker(
    member: Member, config: BrokerConfig, environment: Environment, tracer: Tracer
) -> AsyncIterator[LiveBroker]:
    """A broker as it is run."""
    async with open_broker(config, environment, tracer) as controller:
        assert controller.remoting is not None
        yield LiveBroker(member, controller.remoting, controller.ha_address, controller)


def _by_node(members: Iterable[Member]) -> dict[str, Member]:
    return {member.node: member for member in members}


@attrs.define(eq=False, repr=False)
class NameServerWorld:
    """Nodes that are name servers, nodes that are brokers, and "client". `settings` are those of every broker."""

    members: dict[str, Member] = attrs.field(converter=_by_node)
    seed: int = 1
    name_server_names: Sequence[str] = ("ns-1",)
    #: Nodes that do not boot with all the others.
    reserves: Sequence[str] = ()
    #: Broker names that two live masters want at a time. One that dies silently holds the name until it has expired.
    contested: Sequence[str] = ()
    settings: Mapping[str, Any] = attrs.field(factory=dict)
    #: Of every broker's ports.
    remoting_settings: Mapping[str, Any] = attrs.field(factory=dict)
    namesrv_config: NamesrvConfig = attrs.field(factory=NamesrvConfig)
    whole_brokers: bool = False
    #: Of every broker; slaves are slaves all the same.
    store: MessageStoreConfig = SMALL_STORE
    run_info: RunInfo = attrs.field(factory=lambda: RunInfo("test", "name_server", 1))
    world: World = attrs.field(init=False)
    recorder: Recorder = attrs.field(init=False)
    #: The live ones by node.
    name_servers: dict[str, NamesrvController] = attrs.field(factory=dict, init=False)
    brokers: dict[str, LiveBroker] = attrs.field(factory=dict, init=False)
    #: Every (cluster, name, id, address) that there was.
    addresses: dict[tuple[str, str, int, str], None] = attrs.field(factory=dict, init=False)
    crashes: list[str] = attrs.field(factory=list, init=False)
    _client: RemotingClient | None = attrs.field(default=None, init=False)

    def __attrs_post_init__(self) -> None:
        self.world = World(self.seed, _WORLD, guard_packages=("rmq_actors",))
        self.recorder = open_sim_recorder(self.world, self.run_info)
        self.recorder.subscribe(self._on_crash, [ActorCrash, RemotingFailed])
        for name in (*self.name_server_names, *self.members, CLIENT):
            self.world.node(name)

    # --- the parts ----------------------------------------------------------------------------------------------------

    @property
    def nodes(self) -> Mapping[str, Node]:
        return self.world.nodes

    def address_of(self, name_server: str) -> str:
        return f"{self.nodes[name_server].address}:{NAME_SERVER_PORT}"

    def events(self, kind: type[E], **fields: object) -> list[E]:
        """The events of a kind, with these values in these fields."""
        return [
            event
            for event in of_kind(self.recorder.events, kind)
            if all(getattr(event, name) == value for name, value in fields.items())
        ]

    def _on_crash(self, event: ActorCrash | RemotingFailed) -> None:
        # A supervisor may mend it, or an answer hide it; it is a fault of the product all the same.
        self.crashes.append(f"{event.actor} of {event.node}: {event.status}: {event.detail}")

    def boot(self, *names: str) -> None:
        """Start nodes: all of them but the reserves, if none is named."""
        for name in names or [name for name in self.nodes if name not in self.reserves]:
            self.nodes[name].boot(self._main_of(name))

    def _main_of(self, name: str) -> Callable[[Node], Awaitable[None]]:
        if name in self.name_server_names:
            return self._serve_routes
        return self._serve_broker if name in self.members else self._serve_client

    async def _serve_routes(self, node: Node) -> None:
        tracer = self._tracer(node)
        config = attrs.evolve(self.namesrv_config, remoting=RemotingServerConfig(node.address, NAME_SERVER_PORT))
        async with contextlib.AsyncExitStack() as stack:
            controller = await _until_disk_lets(
                lambda: stack.enter_async_context(open_name_server(config, _environment(node), tracer))
            )
            with self._is_live(self.name_servers, node, controller):
                await trio.sleep_forever()

    async def _serve_broker(self, node: Node) -> None:
        tracer, member, config = self._tracer(node), self.members[node.name], self.broker_config(node.name)
        self.addresses[
            member.cluster_name, member.broker_name, member.broker_id, f"{config.broker_ip1}:{member.port}"
        ] = None
        open_ = open_whole_broker if self.whole_brokers else open_light_broker
        async with contextlib.AsyncExitStack() as stack:
            broker = await _until_disk_lets(
                lambda: stack.enter_async_context(open_(member, config, _environment(node), tracer))
            )
            with self._is_live(self.brokers, node, broker):
                await broker.stopping.wait()

    def broker_config(self, name: str) -> BrokerConfig:
        """The configuration with which the node's broker starts next."""
        member, node = self.members[name], self.nodes[name]
        role = BrokerRole.SLAVE if member.broker_id else self.store.broker_role
        return BrokerConfig(
            member.broker_name,
            attrs.evolve(self.store, broker_role=role),
            member.ha or HaConfig(ha_listen_host=node.address),
            remoting=RemotingServerConfig(node.address, member.port, **self.remoting_settings),
            broker_cluster_name=member.cluster_name,
            broker_id=member.broker_id,
            namesrv_addr=";".join(map(self.address_of, self.name_server_names)),
            **self.settings,
        )

    async def _serve_client(self, node: Node) -> None:
        tracer = self._tracer(node)
        async with open_actor_system(node.name, tracer, entropy=node.entropy) as system:
            self._client = RemotingClient(RemotingClientConfig(), node.entropy, tracer, ProcessorTable(tracer))
            await system.start(self._client)
            await trio.sleep_forever()

    def _tracer(self, node: Node) -> Tracer:
        tracer = self.recorder.tracer(node.name)
        node.on_fence(tracer.fence)
        return tracer

    @contextlib.contextmanager
    def _is_live(self, live: dict[str, T], node: Node, part: T) -> Iterator[None]:
        """Within the block, and while the process lives, `part` is the node's."""

        def end() -> None:
            if live.get(node.name) is part:
                del live[node.name]

        live[node.name] = part
        node.on_fence(end)
        try:
            yield
        finally:
            end()

    # --- what operators do --------------------------------------------------------------------------------------------

    async def stop_broker(self, name: str) -> None:
        """Stop a broker in order: it unregisters."""
        self.brokers[name].stopping.set()
        with trio.fail_after(_STOP_S):
            await self.nodes[name].wait_down()

    def configure(self, name: str, **changes: Any) -> None:
        """Change a broker's settings: they count from its next start on."""
        self.members[name] = attrs.evolve(self.members[name], **changes)

    async def on_node(self, name: str, call: Callable[[], Awaitable[T]]) -> T:
        """Await `call()` in the process of a node, whose sockets and disk it uses."""
        done, results = trio.Event(), []

        async def run() -> None:
            results.append(await call())
            done.set()

        self.nodes[name].start_soon(run)
        await done.wait()
        return results[0]

    async def ask(
        self, name_server: str, code: RequestCode, header: CommandHeader | None = None, body: bytes = b""
    ) -> RemotingCommand:
        """The client's request, and the answer of a name server."""
        assert self._client is not None
        client = self._client
        request = RemotingCommand(code, encode_header(header) if header is not None else None, body=body)
        return await self.on_node(CLIENT, lambda: client.invoke(self.address_of(name_server), request, _ASK_TIMEOUT_MS))

    async def ask_routes(self, name_server: str) -> Routes:
        """All that a client can hear from a name server, over the network."""
        info = await self.ask(name_server, RequestCode.GET_BROKER_CLUSTER_INFO)
        topics = await self.ask(name_server, RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER)
        routes = {}
        for topic in decode_body(TopicList, topics.body).topic_list:
            answer = await self.ask(
                name_server, RequestCode.GET_ROUTEINFO_BY_TOPIC, GetRouteInfoRequestHeader(topic=topic)
            )
            assert answer.code == ResponseCode.SUCCESS, answer
            routes[topic] = decode_body(TopicRouteData, answer.body)
        return routes_of(decode_body(ClusterInfo, info.body), routes)

    # --- what is true, and what is known ------------------------------------------------------------------------------

    def truth(self) -> Routes:
        """What every name server should say: exactly the live brokers, and the topics of the masters among them."""
        brokers, queues, where = {}, {}, {}
        for broker in self.brokers.values():
            member = broker.member
            brokers[member.cluster_name, member.broker_name, member.broker_id] = broker.address
            if member.broker_id:
                continue
            name, addresses = member.broker_name, self._addresses_of(member.broker_name)
            wrapper = broker.remoting.topic_config_manager.topic_config_serialize_wrapper()
            for topic, config in wrapper.topic_config_table.items():
                where[topic, name] = addresses
                queues[topic, name] = (
                    config.read_queue_nums,
                    config.write_queue_nums,
                    config.perm,
                    config.topic_sys_flag,
                )
        return Routes(brokers, queues, where)

    def _addresses_of(self, broker_name: str) -> dict[int, str]:
        return {
            broker.member.broker_id: broker.address
            for broker in self.brokers.values()
            if broker.member.broker_name == broker_name
        }

    def known(self, name_server: str) -> Routes:
        """What a name server would say now."""
        table = self.name_servers[name_server].route_info_manager
        routes = {topic: table.pick_topic_route_data(topic) for topic in table.all_topics().topic_list}
        return routes_of(table.all_cluster_info(), {topic: route for topic, route in routes.items() if route})

    def wrong(self, *, about_the_gone: bool = True, about_masters: bool = True) -> list[str]:
        """What differs: of who lives; of who does not, if `about_the_gone`; of what slaves know, if `about_masters`."""
        findings = [
            f"{name} does not serve"
            for name in (*self.name_server_names, *self.members)
            if self.nodes[name].is_up and name not in self.name_servers and name not in self.brokers
        ]
        for name in self.name_servers:
            known = self.known(name)
            findings += [f"{name} {what}" for what in self._differences(known, about_the_gone=about_the_gone)]
        return findings + (self._wrong_slaves(about_the_gone=about_the_gone) if about_masters else [])

    def _differences(self, known: Routes, *, about_the_gone: bool = True) -> list[str]:
        true, has = self.truth().entries(), known.entries()
        findings = [
            f"has {has.get(entry)} for {entry}, not {value}"
            for entry, value in true.items()
            if not _agrees(has.get(entry), value, about_the_gone=about_the_gone)
            and (about_the_gone or not self._is_contested(entry))
        ]
        if about_the_gone:
            findings += [
                f"still has {value} for {entry}"
                for entry, value in has.items()
                if entry not in true and not self._may_be_kept(entry, value)
            ]
        return findings

    def _is_contested(self, entry: Entry) -> bool:
        what, *_ = entry
        return entry[2] in self.contested and (what != "broker" or entry[3] == 0)

    def _may_be_kept(self, entry: Entry, value: object) -> bool:
        """While slaves live without their master, its topics are what the name server heard from it, if it did."""
        what, _, name, *_ = entry
        addresses = self._addresses_of(str(name))
        return what != "broker" and bool(addresses) and 0 not in addresses and (what == "queues" or value == addresses)

    def _wrong_slaves(self, *, about_the_gone: bool) -> list[str]:
        masters = {
            (broker.member.cluster_name, broker.member.broker_name): MasterAddresses(broker.address, broker.ha_address)
            for broker in self.brokers.values()
            if broker.member.broker_id == 0 and (about_the_gone or broker.member.broker_name not in self.contested)
        }
        findings = []
        for name, broker in self.brokers.items():
            master = masters.get((broker.member.cluster_name, broker.member.broker_name))
            if broker.member.broker_id and master is not None and self.name_servers:
                if broker.master != master:
                    findings.append(f"{name} takes {broker.master} for its master, not {master}")
                if not self.whole_brokers and broker.told_ha_master != master.ha_server_addr:
                    findings.append(f"{name}'s HAClient was told {broker.told_ha_master}, not {master}")
        return findings

    # --- waiting ------------------------------------------------------------------------------------------------------

    async def converge(self, within_s: float = CONVERGENCE_S, **about: bool) -> float:
        """Wait until nothing is wrong; how long that took. Raises `NotConverged` after `within_s`."""
        begin_s, look = trio.current_time(), self._looker(**about)
        while findings := look():
            if trio.current_time() - begin_s >= within_s:
                raise NotConverged(f"after {within_s:g} s: {'; '.join(findings[:4])}")
            await trio.sleep(_POLL_S)
        return trio.current_time() - begin_s

    async def stay(self, for_s: float, **about: bool) -> None:
        """Nothing may be wrong from now on for so long. Raises `NotConverged`."""
        until_s, look = trio.current_time() + for_s, self._looker(**about)
        while True:
            if findings := look():
                raise NotConverged(f"no longer: {'; '.join(findings[:4])}")
            if trio.current_time() >= until_s:
                return
            await trio.sleep(_POLL_S)

    def _looker(self, **about: bool) -> Callable[[], list[str]]:
        """`wrong`, which does not look again while nothing at all has happened: that would cost most of a run."""
        last: list[tuple[int, list[str]]] = []

        def look() -> list[str]:
            events = len(self.recorder.events)
            if not last or last[0][0] != events:
                last[:] = [(events, self.wrong(**about))]
            return last[0][1]

        return look

    async def settle(self) -> float:
        """After the last fault: who lives is known in time, and stays; who does not is forgotten in time.

        When a route was wrong for the last time, in seconds from now. Raises `NotConverged`.
        """
        begin_s, took_s = trio.current_time(), 0.0
        routes = self._looker(about_the_gone=False, about_masters=False)
        everything = self._looker(about_the_gone=False)
        while (passed_s := trio.current_time() - begin_s) < EXPIRY_S:
            if findings := everything() if passed_s >= MASTER_KNOWN_S else routes():
                if passed_s >= CONVERGENCE_S:
                    raise NotConverged(f"{passed_s:g} s after the last fault: {'; '.join(findings[:4])}")
                took_s = passed_s + _POLL_S
            await trio.sleep(_POLL_S)
        await self.converge(0.0, about_masters=False)
        await self.check_over_network()
        await self.converge(MASTER_KNOWN_S - CONVERGENCE_S if self.contested else 0.0)
        return took_s

    async def check_over_network(self) -> None:
        """The client hears from every name server what is true."""
        for name in self.name_servers:
            assert not self._differences(await self.ask_routes(name)), name

    def run(self, use: Callable[[], Awaitable[None]], *boot: str) -> None:
        """Boot the nodes that are named, or all; call `use`, which ends the run. Nothing may have crashed."""

        async def main(world: World) -> None:
            self.boot(*boot)
            await use()

        self.world.run(main)
        assert not self.crashes


def _agrees(known: object, true: object, *, about_the_gone: bool) -> bool:
    """Whether all that is true is known; the addresses of a topic may have more, of brokers that are gone."""
    if about_the_gone or not isinstance(known, dict) or not isinstance(true, dict):
        return known == true
    return known.items() >= true.items()


def _environment(node: Node) -> Environment:
    return Environment(node.disk, node.wall_clock, node.entropy)


async def _until_disk_lets(start: Callable[[], Awaitable[T]]) -> T:
    """Start again and again, as a system's service manager does, while the disk does not let it."""
    while True:
        try:
            return await start()
        except ConfigFileDamaged as error:
            if not any(f"[Errno {number}]" in str(error) for number in _DISK_ERRORS):
                raise
        except OSError as error:
            if error.errno not in _DISK_ERRORS:
                raise
        await trio.sleep(_START_AGAIN_S)
