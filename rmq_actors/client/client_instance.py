"""One client of a cluster (MQClientInstance): its connections, routes and heartbeats, for producers and consumers.

open_client_instance
    └── MQClientInstance
          ├── requests    requests with deadlines, over a RemotingClient
          ├── routes      TopicRoutes: where topics and brokers are
          ├── heartbeats  HeartbeatService: which groups brokers hear of
          ├── processors  who answers requests that brokers make of this client
          └── timer       for what is done from time to time
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Sequence

import attrs
import trio

from rmq_actors.actors.block_errors import block_errors_bare, check_in_trio_task
from rmq_actors.actors.services.timer import Timer
from rmq_actors.actors.system import ActorSystem, open_actor_system
from rmq_actors.client.client_error import ClientClosed, MessageRefused
from rmq_actors.client.config import DEFAULT_INSTANCE_NAME, ClientConfig
from rmq_actors.client.consumer_table import ConsumerTable
from rmq_actors.client.heartbeat_service import HeartbeatService, MakeConsumerData
from rmq_actors.client.requests import ClientRequests, deadline_after
from rmq_actors.client.topic_routes import TopicRoutes
from rmq_actors.ports.entropy import Entropy
from rmq_actors.ports.environment import Environment
from rmq_actors.remoting.client import RemotingClient
from rmq_actors.remoting.hooks import RpcHook
from rmq_actors.remoting.processor import ProcessorTable
from rmq_actors.remoting.tls import TlsClient
from rmq_actors.tracing.recorder import Tracer

#: How long brokers may take to forget a group whose block failed or is cancelled.
_FAILED_UNREGISTER_MS = 500


@attrs.define(eq=False, repr=False)
class MQClientInstance:
    """A running client."""

    config: ClientConfig
    client_id: str
    environment: Environment
    tracer: Tracer
    #: Its services; a producer or consumer starts its own here.
    system: ActorSystem
    #: Processors of what brokers ask: CHECK_TRANSACTION_STATE, NOTIFY_CONSUMER_IDS_CHANGED and so on.
    processors: ProcessorTable
    requests: ClientRequests
    routes: TopicRoutes
    heartbeats: HeartbeatService
    timer: Timer
    #: The consumers, for what brokers ask of them.
    consumers: ConsumerTable
    is_closed: bool = attrs.field(default=False, init=False)

    def check_open(self) -> None:
        """Raise `ClientClosed` once the client has stopped, and `RuntimeError` outside of a Trio task."""
        check_in_trio_task("a client")
        if self.is_closed:
            raise ClientClosed(f"client {self.client_id} has stopped")

    @contextlib.asynccontextmanager
    async def producer_group(self, group: str) -> AsyncIterator[None]:
        """Have brokers know a producer group of this client for the length of a block (registerProducer)."""
        if group in self.heartbeats.producers:
            raise MessageRefused(f"producer group {group} is registered with client {self.client_id} already")
        self.heartbeats.producers.add(group)
        self.heartbeats.groups_changed()
        is_failed = True
        try:
            yield
            is_failed = False
        finally:
            self.heartbeats.producers.discard(group)
            await self._unregister(is_failed=is_failed, producer=group)

    @contextlib.asynccontextmanager
    async def consumer_group(self, group: str, make_data: MakeConsumerData) -> AsyncIterator[None]:
        """Have brokers know a consumer group of this client for the length of a block (registerConsumer)."""
        if group in self.heartbeats.consumers:
            raise MessageRefused(f"consumer group {group} is registered with client {self.client_id} already")
        self.heartbeats.consumers[group] = make_data
        self.heartbeats.groups_changed()
        is_failed = True
        try:
            yield
            is_failed = False
        finally:
            self.heartbeats.consumers.pop(group, None)
            await self._unregister(is_failed=is_failed, consumer=group)

    async def _unregister(self, *, is_failed: bool, producer: str | None = None, consumer: str | None = None) -> None:
        """Have brokers forget a group that heartbeats name no more, also when its block failed or is cancelled."""
        timeout_ms = _FAILED_UNREGISTER_MS if is_failed else self.config.mq_client_api_timeout_ms
        with trio.CancelScope(shield=is_failed):
            await self.heartbeats.unregister(deadline_after(timeout_ms), producer=producer, consumer=consumer)


@contextlib.asynccontextmanager
async def open_client_instance(
    config: ClientConfig,
    environment: Environment,
    tracer: Tracer,
    *,
    hooks: Sequence[RpcHook] = (),
    tls: TlsClient | None = None,
) -> AsyncIterator[MQClientInstance]:
    """A running client for the length of a block. Nobody is asked anything before the first call needs it.

    `hooks` look at each request: `remoting.acl.AclClientRpcHook` signs them. What the block raises leaves it bare,
    unless a task of the client fails, too: see `block_errors_bare`. Raises `RuntimeError` outside of a Trio task.
    """
    check_in_trio_task("a client")
    processors, entropy = ProcessorTable(tracer), environment.entropy
    client_id = build_mq_client_id(config, entropy)
    timer = Timer()
    async with block_errors_bare(open_actor_system("client", tracer, entropy=entropy, shield=True)) as system:
        client = RemotingClient(config.remoting, entropy, tracer, processors, hooks, tls=tls)
        requests = ClientRequests(client)
        routes = TopicRoutes(config, requests, timer)
        heartbeats = HeartbeatService(client_id, config, requests, routes, timer)
        client.listener = heartbeats
        for service in (timer, client, routes, heartbeats):
            await system.start(service)
        consumers = ConsumerTable()
        consumers.register(processors)
        instance = MQClientInstance(
            config, client_id, environment, tracer, system, processors, requests, routes, heartbeats, timer, consumers
        )
        try:
            yield instance
        finally:
            instance.is_closed = True


def build_mq_client_id(config: ClientConfig, entropy: Entropy) -> str:
    """How brokers name a client (buildMQClientId); one without a name of its own gets a random one."""
    name = config.instance_name
    if name == DEFAULT_INSTANCE_NAME:
        name = entropy.token_bytes(8).hex()
    return _client_id(config, name)


def lasting_client_id(config: ClientConfig) -> str:
    """The same after each start, for what a client keeps in files; RocketMQ's of a broadcasting consumer."""
    return _client_id(config, config.instance_name)


def _client_id(config: ClientConfig, name: str) -> str:
    return "@".join(filter(None, [config.client_ip, name, config.unit_name]))
