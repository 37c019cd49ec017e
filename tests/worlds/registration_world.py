"""Brokers in a world with name servers that remember every request; they stand for Java's, and for odd ones."""

from __future__ import annotations

from typing import Any

import attrs
import trio

from rmq_actors.actors.system import open_actor_system
from rmq_actors.broker.broker_controller import BrokerController, open_broker
from rmq_actors.broker.config import BrokerConfig
from rmq_actors.broker.registration_service import BrokerRegistrationService
from rmq_actors.broker.store_host import Machines
from rmq_actors.broker.topics import TopicConfigManager
from rmq_actors.ha.config import HaConfig
from rmq_actors.ports.environment import Environment
from rmq_actors.remoting.config import RemotingServerConfig
from rmq_actors.remoting.connection import RemotingConnection, RemotingRequest
from rmq_actors.remoting.processor import ProcessorTable
from rmq_actors.remoting.server import RemotingServer
from rmq_actors.store.config import BrokerRole, MessageStoreConfig
from rmq_actors.testing.sim_trace import open_sim_recorder
from rmq_actors.tracing.event import RunInfo, of_kind
from rmq_actors.tracing.recorder import Recorder
from rmq_actors.wire.bodies.decoding import decode_body
from rmq_actors.wire.bodies.encoding import encode_body
from rmq_actors.wire.bodies.register_broker import RegisterBrokerBody, body_crc32
from rmq_actors.wire.bodies.routes import KVTable
from rmq_actors.wire.bodies.topic_configs import DataVersion, TopicConfig
from rmq_actors.wire.headers import decode_header, encode_header
from rmq_actors.wire.headers.namesrv import (
    QueryDataVersionRequestHeader,
    QueryDataVersionResponseHeader,
    RegisterBrokerRequestHeader,
    RegisterBrokerResponseHeader,
    UnRegisterBrokerRequestHeader,
)
from rmq_actors.wire.remoting_command import RemotingCommand
from rmq_actors.wire.request_code import RequestCode
from rmq_actors.wire.response_code import ResponseCode
from sim_net import Node, World
from tests.worlds.recording import E

NAMESRV_PORT = 9876
LISTEN_PORT = 10911


@attrs.frozen
class Asked:
    """One request that a name server has read."""

    at_s: float
    code: int
    is_oneway: bool
    broker_addr: str
    broker_id: int
    ha_server_addr: str = ""
    compressed: bool = False
    topics: frozenset[str] = frozenset()


@attrs.define(eq=False)
class NameServer:
    """Keeps what brokers register as RocketMQ's does: by address, until the connection ends. A kill forgets it all.

    It has brokers of one name alone.
    """

    node: Node
    asked: list[Asked] = attrs.field(factory=list)
    #: What slaves are told, whatever is registered.
    says: RegisterBrokerResponseHeader | None = None
    refuses: int = ResponseCode.SUCCESS
    order_topics: dict[str, str] | None = None
    versions: dict[str, DataVersion] = attrs.field(factory=dict)
    #: What each broker has registered last, by its address; and the topics that clients are told.
    tables: dict[str, dict[str, TopicConfig]] = attrs.field(factory=dict)
    routed: dict[str, TopicConfig] = attrs.field(factory=dict)
    headers: dict[str, RegisterBrokerRequestHeader] = attrs.field(factory=dict)
    _connections: dict[str, object] = attrs.field(factory=dict)

    @property
    def address(self) -> str:
        return f"{self.node.address}:{NAMESRV_PORT}"

    def boot(self) -> None:
        self.node.boot(self._serve)

    def times(self, code: int, *, oneway: bool = False) -> list[float]:
        return [asked.at_s for asked in self.asked if asked.code == code and asked.is_oneway is oneway]

    async def _serve(self, node: Node) -> None:
        self.versions.clear()
        self.headers.clear()
        async with open_actor_system(node.name) as system:
            tracer = Recorder(RunInfo("test", "name server", 0), lambda: (None, 0), keep=False).tracer(node.name)
            processors = ProcessorTable(tracer)
            processors.register([RequestCode.REGISTER_BROKER], self._register)
            processors.register([RequestCode.UNREGISTER_BROKER], self._unregister)
            processors.register([RequestCode.QUERY_DATA_VERSION], self._query)
            config = RemotingServerConfig(listen_host=node.address, listen_port=NAMESRV_PORT)
            await system.start(RemotingServer(config, processors, tracer, listener=_ForgetWhenClosed(self)))
            await trio.sleep_forever()

    def _register(self, request: RemotingRequest) -> RemotingCommand:
        command = request.command
        header = decode_header(RegisterBrokerRequestHeader, command)
        assert header.body_crc32 == body_crc32(command.body) != 0
        body = RegisterBrokerBody.decode(command.body, compressed=header.compressed)
        wrapper = body.topic_config_serialize_wrapper
        self.asked.append(
            Asked(
                trio.current_time(),
                command.code,
                command.is_oneway,
                header.broker_addr,
                header.broker_id,
                header.ha_server_addr,
                header.compressed,
                frozenset(wrapper.topic_config_table),
            )
        )
        if self.refuses:
            return command.response(self.refuses, "no")
        self.tables[header.broker_addr] = wrapper.topic_config_table
        has_master = any(known.broker_id == 0 for known in self.headers.values())
        is_known = self.versions.get(header.broker_addr) == wrapper.data_version
        # RouteInfoManager.registerBroker: whose version it was does not count.
        if header.broker_id == 0 and not (has_master and is_known):
            self.routed = wrapper.topic_config_table
        self.versions[header.broker_addr] = wrapper.data_version
        self.headers[header.broker_addr] = header
        self._connections[header.broker_addr] = request.connection
        said = self.says or self._master_of(header)
        body_bytes = b"" if self.order_topics is None else encode_body(KVTable(table=self.order_topics))
        return command.response(ResponseCode.SUCCESS, None, encode_header(said), body_bytes)

    def _master_of(self, slave: RegisterBrokerRequestHeader) -> RegisterBrokerResponseHeader:
        for header in self.headers.values():
            if slave.broker_id and header.broker_name == slave.broker_name and header.broker_id == 0:
                return RegisterBrokerResponseHeader(
                    ha_server_addr=header.ha_server_addr, master_addr=header.broker_addr
                )
        return RegisterBrokerResponseHeader()

    def _unregister(self, request: RemotingRequest) -> RemotingCommand:
        header = decode_header(UnRegisterBrokerRequestHeader, request.command)
        self.asked.append(Asked(trio.current_time(), request.command.code, False, header.broker_addr, header.broker_id))
        self.forget(header.broker_addr)
        return request.command.response(ResponseCode.SUCCESS)

    def _query(self, request: RemotingRequest) -> RemotingCommand:
        command = request.command
        header = decode_header(QueryDataVersionRequestHeader, command)
        self.asked.append(Asked(trio.current_time(), command.code, False, header.broker_addr, header.broker_id))
        known = self.versions.get(header.broker_addr)
        changed = QueryDataVersionResponseHeader(changed=known != decode_body(DataVersion, command.body))
        body = b"" if known is None else encode_body(known)
        return command.response(ResponseCode.SUCCESS, None, encode_header(changed), body)

    def forget(self, broker_addr: str) -> None:
        self.versions.pop(broker_addr, None)
        self.headers.pop(broker_addr, None)

    def closed(self, connection: RemotingConnection) -> None:
        for broker_addr, known in list(self._connections.items()):
            if known is connection:
                del self._connections[broker_addr]
                self.forget(broker_addr)


@attrs.define(eq=False)
class _ForgetWhenClosed:
    name_server: NameServer

    def on_connected(self, connection: RemotingConnection) -> None:
        """Nothing is known of it yet."""

    def on_closed(self, connection: RemotingConnection, reason: str) -> None:
        self.name_server.closed(connection)


def broker_config(
    node: Node, name_servers: str | None, role: BrokerRole = BrokerRole.ASYNC_MASTER, **settings: Any
) -> BrokerConfig:
    """A small broker on `node` that listens."""
    return BrokerConfig(
        store=MessageStoreConfig(
            broker_role=role,
            mapped_file_size_commit_log_bytes=4096,
            mapped_file_size_consume_queue_bytes=400,
            max_hash_slot_num=16,
            max_index_num=64,
            store_stats_sampling=False,
        ),
        ha=HaConfig(ha_listen_host=node.address),
        remoting=RemotingServerConfig(listen_host=node.address, listen_port=LISTEN_PORT),
        broker_id=1 if role is BrokerRole.SLAVE else 0,
        namesrv_addr=name_servers,
        **settings,
    )


@attrs.define(eq=False)
class Broker:
    """A node whose program is a broker, until `stopping` is set; a restart takes the `config` of that time."""

    node: Node
    config: BrokerConfig
    recorder: Recorder
    machines: Machines = attrs.field(factory=Machines)
    stopping: trio.Event = attrs.field(factory=trio.Event)
    ready: trio.Event = attrs.field(factory=trio.Event)
    _controller: BrokerController | None = attrs.field(default=None, init=False)

    @property
    def controller(self) -> BrokerController:
        assert self._controller is not None
        return self._controller

    @property
    def topics(self) -> TopicConfigManager:
        assert self.controller.remoting is not None
        return self.controller.remoting.topic_config_manager

    @property
    def registration(self) -> BrokerRegistrationService:
        assert self.controller.remoting is not None
        assert self.controller.remoting.registration is not None
        return self.controller.remoting.registration

    @property
    def log_end(self) -> int:
        return self.controller.store.commit_log.max_offset

    @property
    def addr(self) -> str:
        return f"{self.node.address}:{LISTEN_PORT}"

    @property
    def ha_addr(self) -> str:
        return f"{self.node.address}:{LISTEN_PORT + 1}"

    async def start(self) -> None:
        self.ready, self.stopping = trio.Event(), trio.Event()
        self.node.boot(self._serve)
        await self.ready.wait()

    async def stop(self) -> None:
        self.stopping.set()
        await self.node.wait_down()

    def events(self, kind: type[E]) -> list[E]:
        return [event for event in of_kind(self.recorder.events, kind) if event.node == self.node.name]

    async def _serve(self, node: Node) -> None:
        environment = Environment(node.disk, node.wall_clock, node.entropy)
        tracer = self.recorder.tracer(node.name)
        node.on_fence(tracer.fence)
        async with open_broker(self.config, environment, tracer, machines=self.machines) as self._controller:
            self.ready.set()
            await self.stopping.wait()


def new_recorder(world: World) -> Recorder:
    return open_sim_recorder(world, RunInfo("test", "registration", world.seed))
