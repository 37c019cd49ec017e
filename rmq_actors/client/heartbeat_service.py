"""Tells brokers which groups this client has (sendHeartbeatToAllBroker): they call back only whom they know.

A heartbeat goes to every master that a route names, and to slaves too if there are consumers. It goes every
heartbeatBrokerInterval, and at once to a broker that comes into a route, or when groups change.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping

import attrs
import trio

from rmq_actors.actors.services.service import ServiceThread, WakeUp
from rmq_actors.actors.services.timer import Timer
from rmq_actors.client.client_error import BrokerUnreachable, ClientError
from rmq_actors.client.config import ClientConfig
from rmq_actors.client.requests import ClientRequests, deadline_after
from rmq_actors.client.topic_routes import TopicRoutes
from rmq_actors.protocols.topic_publish_info import MASTER_ID
from rmq_actors.remoting.connection import RemotingConnection
from rmq_actors.wire.bodies.encoding import encode_body
from rmq_actors.wire.bodies.heartbeat import ConsumerData, HeartbeatData, ProducerData
from rmq_actors.wire.headers.clients import UnregisterClientRequestHeader
from rmq_actors.wire.request_code import RequestCode

_log = logging.getLogger(__name__)

#: What a consumer's heartbeat says; it is asked at each heartbeat, as subscriptions change.
MakeConsumerData = Callable[[], ConsumerData]


@attrs.define(eq=False, repr=False)
class HeartbeatService(ServiceThread):
    """A Service."""

    name = "HeartbeatService"
    client_id: str
    _config: ClientConfig
    _requests: ClientRequests
    _routes: TopicRoutes
    _timer: Timer
    producers: set[str] = attrs.field(factory=set, init=False)
    consumers: dict[str, MakeConsumerData] = attrs.field(factory=dict, init=False)
    #: What each broker's answer said of its version (MQVersion), by address.
    versions: dict[str, int] = attrs.field(factory=dict, init=False)
    #: The addresses that have had a heartbeat since the groups changed last.
    _told: set[str] = attrs.field(factory=set, init=False)
    #: Those that may know this client, whatever routes say now: they had a heartbeat, and kept the connection.
    _may_know: dict[str, None] = attrs.field(factory=dict, init=False)
    _wake: WakeUp = attrs.field(factory=WakeUp, init=False)

    def groups_changed(self) -> None:
        """Tell all brokers soon."""
        self._told.clear()
        self._wake.wakeup("groups")

    async def send_to_all(self, deadline_s: float) -> None:
        """Send a heartbeat to all brokers now, and return when each has answered, or not. Failures are logged."""
        async with trio.open_nursery() as nursery:
            for address in self._addresses():
                nursery.start_soon(self._send, address, deadline_s)

    async def unregister(self, deadline_s: float, *, producer: str | None = None, consumer: str | None = None) -> None:
        """Have all brokers that know this client forget a group of it. Failures are logged."""
        header = UnregisterClientRequestHeader(self.client_id, producer, consumer)
        async with trio.open_nursery() as nursery:
            for address in list(self._may_know):
                nursery.start_soon(self._unregister, address, header, deadline_s)

    async def work(self, task_status: trio.TaskStatus[None]) -> None:
        """Send heartbeats when they are due."""
        self._routes.listeners.append(self._on_route)
        try:
            with self._timer.every(self._config.heartbeat_broker_interval_ms / 1000, self.groups_changed, self):
                task_status.started()
                while True:
                    await self._wake.wait_for_running(float("inf"))
                    async with trio.open_nursery() as nursery:
                        deadline_s = deadline_after(self._config.mq_client_api_timeout_ms)
                        for address in self._addresses(untold=True):
                            nursery.start_soon(self._send, address, deadline_s)
        finally:
            self._routes.listeners.remove(self._on_route)

    def on_connected(self, connection: RemotingConnection) -> None:
        """A `ConnectionListener`: a broker that lost the last connection has forgotten this client."""
        if connection.remote_address not in self._told:
            self._wake.wakeup("connected")

    def on_closed(self, connection: RemotingConnection, reason: str) -> None:
        """A `ConnectionListener`."""
        self._told.discard(connection.remote_address)
        self._may_know.pop(connection.remote_address, None)

    def _on_route(self, topic: str) -> None:
        self._wake.wakeup("route")

    def _addresses(self, *, untold: bool = False) -> list[str]:
        """The brokers that get heartbeats, or those of them that have had none since the groups changed."""
        if not self.producers and not self.consumers:
            return []
        brokers: Mapping[str, Mapping[int, str]] = self._routes.brokers
        addresses = dict.fromkeys(
            address
            for by_id in brokers.values()
            for broker_id, address in by_id.items()
            if broker_id == MASTER_ID or self.consumers
        )
        return [address for address in addresses if not untold or address not in self._told]

    async def _send(self, address: str, deadline_s: float) -> None:
        if not self.producers and not self.consumers:
            return
        self._told.add(address)
        self._may_know[address] = None
        data = HeartbeatData(
            client_id=self.client_id,
            producer_data_set=[ProducerData(group_name=name) for name in sorted(self.producers)],
            consumer_data_set=[make() for make in self.consumers.values()],
        )
        try:
            response = await self._requests.request(
                address, RequestCode.HEART_BEAT, body=encode_body(data), deadline_s=deadline_s
            )
        except ClientError as error:
            self._told.discard(address)
            if isinstance(error, BrokerUnreachable):
                self._may_know.pop(address, None)
            _log.info("broker %s had no heartbeat: %s", address, error)
        else:
            self.versions[address] = response.version

    async def _unregister(self, address: str, header: UnregisterClientRequestHeader, deadline_s: float) -> None:
        try:
            await self._requests.request(address, RequestCode.UNREGISTER_CLIENT, header, deadline_s=deadline_s)
        except ClientError as error:
            _log.info("broker %s was not told that a group of this client is gone: %s", address, error)
