"""A name server that goes by RocketMQ 4.9's rules: what this project's brokers tell must be enough for it, too.

It takes a master's topics only with another version than it knows of that address, or if nobody had the place.
"""

from __future__ import annotations

from collections.abc import Mapping

import attrs
import trio

from rmq_actors.actors.system import open_actor_system
from rmq_actors.remoting.config import RemotingServerConfig
from rmq_actors.remoting.connection import RemotingConnection, RemotingRequest
from rmq_actors.remoting.processor import ProcessorTable
from rmq_actors.remoting.server import RemotingServer
from rmq_actors.testing.sim_name_server import NAME_SERVER_PORT
from rmq_actors.tracing.recorder import Recorder
from rmq_actors.wire.bodies.decoding import decode_body
from rmq_actors.wire.bodies.encoding import encode_body
from rmq_actors.wire.bodies.register_broker import RegisterBrokerBody
from rmq_actors.wire.bodies.topic_configs import DataVersion
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
from sim_net import Node

_MASTER_ID = 0


@attrs.frozen(eq=False)
class _Live:
    header: RegisterBrokerRequestHeader
    version: DataVersion
    connection: RemotingConnection


@attrs.define(eq=False, repr=False)
class RocketMQRoutes:
    """The tables of one life of such a name server, for brokers of one name."""

    #: Addresses by brokerId.
    addresses: dict[int, str] = attrs.field(factory=dict, init=False)
    #: What clients may do with each topic.
    perms: dict[str, int] = attrs.field(factory=dict, init=False)
    #: Brokers by their addresses.
    _live: dict[str, _Live] = attrs.field(factory=dict, init=False)

    def register(self, request: RemotingRequest) -> RemotingCommand:
        """RouteInfoManager.registerBroker."""
        command, header = request.command, decode_header(RegisterBrokerRequestHeader, request.command)
        body = RegisterBrokerBody.decode(command.body, compressed=header.compressed)
        wrapper, own, number = body.topic_config_serialize_wrapper, header.broker_addr, header.broker_id
        for other in [key for key, address in self.addresses.items() if address == own and key != number]:
            del self.addresses[other]
        is_first = number not in self.addresses
        self.addresses[number] = own
        known = self._live.get(own)
        if number == _MASTER_ID and (is_first or known is None or known.version != wrapper.data_version):
            self.perms |= {name: topic.perm for name, topic in wrapper.topic_config_table.items()}
        self._live[own] = _Live(header, wrapper.data_version, request.connection)
        return command.response(ResponseCode.SUCCESS, None, encode_header(self._master_of(number)))

    def _master_of(self, broker_id: int) -> RegisterBrokerResponseHeader:
        master = self._live.get(self.addresses.get(_MASTER_ID, ""))
        if broker_id == _MASTER_ID or master is None:
            return RegisterBrokerResponseHeader()
        return RegisterBrokerResponseHeader(
            ha_server_addr=master.header.ha_server_addr, master_addr=master.header.broker_addr
        )

    def unregister(self, request: RemotingRequest) -> RemotingCommand:
        """RouteInfoManager.unregisterBroker: who has the id by now is gone from the routes."""
        header = decode_header(UnRegisterBrokerRequestHeader, request.command)
        self._live.pop(header.broker_addr, None)
        self.addresses.pop(header.broker_id, None)
        self._forget_topics()
        return request.command.response(ResponseCode.SUCCESS)

    def query(self, request: RemotingRequest) -> RemotingCommand:
        """RouteInfoManager.isBrokerTopicConfigChanged."""
        command, header = request.command, decode_header(QueryDataVersionRequestHeader, request.command)
        known = self._live.get(header.broker_addr)
        version = None if known is None else known.version
        changed = QueryDataVersionResponseHeader(changed=version != decode_body(DataVersion, command.body))
        body = b"" if version is None else encode_body(version)
        return command.response(ResponseCode.SUCCESS, None, encode_header(changed), body)

    def on_connected(self, connection: RemotingConnection) -> None:
        """A `ConnectionListener`."""

    def on_closed(self, connection: RemotingConnection, reason: str) -> None:
        """A `ConnectionListener`: RouteInfoManager.onChannelDestroy."""
        for address in [key for key, live in self._live.items() if live.connection is connection]:
            del self._live[address]
            self.addresses = {number: each for number, each in self.addresses.items() if each != address}
        self._forget_topics()

    def _forget_topics(self) -> None:
        if not self.addresses:
            self.perms = {}

    # --- what it tells ----------------------------------------------------------------------------------------------

    def all_addresses(self) -> list[Mapping[int, str]]:
        """The addresses of each brokerName by brokerId."""
        return [self.addresses]

    def permission(self, topic: str) -> int:
        """What clients may do with a topic; 0: nobody has it."""
        return self.perms.get(topic, 0)


async def serve_as_rocketmq(node: Node, recorder: Recorder, stopping: trio.Event, routes: RocketMQRoutes) -> None:
    """The program of the node, until it is to stop."""
    tracer = recorder.tracer(node.name)
    node.on_fence(tracer.fence)
    processors = ProcessorTable(tracer)
    processors.register([RequestCode.REGISTER_BROKER], routes.register)
    processors.register([RequestCode.UNREGISTER_BROKER], routes.unregister)
    processors.register([RequestCode.QUERY_DATA_VERSION], routes.query)
    config = RemotingServerConfig(node.address, NAME_SERVER_PORT)
    async with open_actor_system(node.name, tracer, entropy=node.entropy) as system:
        await system.start(RemotingServer(config, processors, tracer, listener=routes))
        await stopping.wait()
