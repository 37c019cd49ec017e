"""A member of a consumer group, whatever it does with its messages: its queues, pulls, locks and offsets.

rebalance every 20 s, at a notice, at another route ──▶ Rebalancer ──▶ a pull task per queue ──▶ on_found
locks every 20 s, offsets every 5 s, and at the end
"""

from __future__ import annotations

import contextlib
import logging
import math
from collections.abc import AsyncIterator, Awaitable, Callable

import attrs
import trio

from rmq_actors.actors.services.service import ServiceThread, WakeUp
from rmq_actors.client.client_error import ClientClosed, ClientError
from rmq_actors.client.client_instance import MQClientInstance, lasting_client_id
from rmq_actors.client.consumer_config import GroupConfig
from rmq_actors.client.consumer_requests import ConsumerRequests
from rmq_actors.client.consumer_table import RegisteredConsumer
from rmq_actors.client.held_queue import HeldQueue
from rmq_actors.client.message_ext import MessageExt
from rmq_actors.client.offset_store import LocalFileOffsetStore, OffsetStore, RemoteBrokerOffsetStore
from rmq_actors.client.pulling import Puller
from rmq_actors.client.rebalancing import Rebalancer
from rmq_actors.client.requests import deadline_after
from rmq_actors.protocols.allocation import AllocateMessageQueueStrategy
from rmq_actors.protocols.broker_choice import PullFromWhichNode
from rmq_actors.protocols.consumer_stats import ConsumerStats
from rmq_actors.protocols.rebalance import REBALANCE_INTERVAL_S, REBALANCE_LOCK_INTERVAL_S, PausesForTopics
from rmq_actors.wire.bodies.heartbeat import ConsumerData, ConsumeType, MessageModel, SubscriptionData
from rmq_actors.wire.bodies.message_queues import MessageQueue

_log = logging.getLogger(__name__)

#: The first time that locks are renewed is soon: rebalance has taken some.
_FIRST_LOCK_S = 1.0
#: And if a lock was not given to the owner of a queue, they are asked for again after this.
_LOCK_AGAIN_S = 3.0
#: How long the end may take that commits and unlocks.
_END_S = 4.0
#: The same when the block of a consumer fails or is cancelled: that end is shielded.
_FAILED_END_S = 1.0


def make_requests(client: MQClientInstance, config: GroupConfig) -> ConsumerRequests:
    """The requests of a consumer with these settings."""
    nodes = PullFromWhichNode(config.connect_broker_by_user, config.default_broker_id)
    return ConsumerRequests(client, config.consumer_group, nodes)


def make_offset_store(client: MQClientInstance, config: GroupConfig, requests: ConsumerRequests) -> OffsetStore:
    """Where offsets are kept: a broadcasting consumer has a file of its own. Raises `ConfigFileDamaged`."""
    if config.message_model is MessageModel.CLUSTERING:
        return RemoteBrokerOffsetStore(requests)
    store = LocalFileOffsetStore(
        client.environment.disk, lasting_client_id(client.config), config.consumer_group, config.local_offset_store_dir
    )
    store.load()
    return store


@attrs.frozen
class Membership:
    """How a consumer is a member of its group, as long as it runs."""

    config: GroupConfig
    strategy: AllocateMessageQueueStrategy
    requests: ConsumerRequests
    offset_store: OffsetStore
    consume_type: ConsumeType
    orderly: bool = False
    pull_interval_s: float = 0.0
    #: Whether what nobody subscribes counts as consumed without being asked.
    commits: bool = True

    @classmethod
    def of(
        cls,
        client: MQClientInstance,
        config: GroupConfig,
        strategy: AllocateMessageQueueStrategy,
        consume_type: ConsumeType,
        *,
        orderly: bool = False,
        pull_interval_s: float = 0.0,
        commits: bool = True,
    ) -> Membership:
        """A membership with an offset store. Raises `ConfigFileDamaged` for a broadcasting consumer's file."""
        requests = make_requests(client, config)
        store = make_offset_store(client, config, requests)
        return cls(config, strategy, requests, store, consume_type, orderly, pull_interval_s, commits)


@attrs.define(eq=False, repr=False)
class GroupMember(ServiceThread):
    """A Service. It is given its subscriptions as it runs; a change counts at once."""

    client: MQClientInstance
    membership: Membership
    #: Messages of a queue came: they are in its process queue already.
    on_found: Callable[[HeldQueue, list[MessageExt]], None]
    #: What runs beside the pulls: it calls listeners.
    beside: Callable[[], Awaitable[None]] | None = None
    subscriptions: dict[str, SubscriptionData] = attrs.field(factory=dict, init=False)
    stats: ConsumerStats = attrs.field(factory=ConsumerStats, init=False)
    #: The queues that the application has assigned; None: the group's members share them.
    assigned: list[MessageQueue] | None = attrs.field(default=None, init=False)
    is_suspended: bool = attrs.field(default=False, init=False)
    is_closed: bool = attrs.field(default=False, init=False)
    paused: set[MessageQueue] = attrs.field(factory=set, init=False)
    rebalancer: Rebalancer = attrs.field(init=False)
    ended: trio.Event = attrs.field(factory=trio.Event, init=False)
    #: Around the commits and unlocks of the end.
    _ending: trio.CancelScope = attrs.field(factory=trio.CancelScope, init=False)
    _puller: Puller = attrs.field(init=False)
    _nursery: trio.Nursery | None = attrs.field(default=None, init=False)
    _rebalance_wanted: WakeUp = attrs.field(factory=WakeUp, init=False)
    _persist_wanted: WakeUp = attrs.field(factory=WakeUp, init=False)
    _lock_wanted: WakeUp = attrs.field(factory=WakeUp, init=False)

    def __attrs_post_init__(self) -> None:
        membership = self.membership
        self.rebalancer = Rebalancer(
            membership.config,
            membership.requests,
            membership.offset_store,
            membership.strategy,
            membership.orderly,
            self.subscriptions,
            self._on_added,
        )
        self._puller = Puller(
            self.rebalancer,
            self.stats,
            membership.pull_interval_s,
            self.on_found,
            self.rebalance_soon,
            lambda queue: self.is_suspended or queue in self.paused,
            membership.commits,
            # As RocketMQ's: those who poll want to know that a commit is the last word.
            commits_with_pulls=membership.consume_type is ConsumeType.CONSUME_PASSIVELY,
        )

    @property
    def config(self) -> GroupConfig:
        """The group's settings."""
        return self.membership.config

    @property
    def offset_store(self) -> OffsetStore:
        """How far it is."""
        return self.membership.offset_store

    @property
    def name(self) -> str:
        """A client has one consumer for each group."""
        return f"Consumer of {self.config.consumer_group}".replace("/", "_")

    def check_open(self) -> None:
        """Raise `ClientClosed` once the block is over or the client has stopped; see `MQClientInstance.check_open`."""
        self.client.check_open()
        if self.is_closed:
            raise ClientClosed(f"consumer group {self.config.consumer_group}: the block of the consumer is over")

    # --- what others want ---------------------------------------------------------------------------------------------

    def rebalance_soon(self) -> None:
        """Look at members and queues again."""
        self._rebalance_wanted.wakeup()

    def suspend(self, *, is_suspended: bool) -> None:
        """Stop pulling, or go on; what is in memory is still consumed."""
        self.is_suspended = is_suspended
        self.wake_all()

    def wake_all(self) -> None:
        """Have every queue's task look again whether it may pull."""
        for held in self.rebalancer.held.values():
            held.changed()

    def start_beside(self, task: Callable[[], Awaitable[None]]) -> None:
        """Run a task within the member, until it stops."""
        if self._nursery is not None:
            self._nursery.start_soon(task)

    async def wait_consumed(self, timeout_s: float) -> None:
        """Return when nothing is in memory that was pulled, or when the time is over."""
        with trio.move_on_after(timeout_s):
            for held in list(self.rebalancer.held.values()):
                while held.process_queue.message_count and not held.process_queue.dropped:
                    await held.wait_changed(timeout_s)

    def reset_offset(self, topic: str, offsets: dict[MessageQueue, int]) -> None:
        """Give up the queues of a topic, have these offsets kept, and take the queues again there."""
        if self._nursery is not None:
            self._nursery.start_soon(self._reset_offset, topic, offsets)

    async def _reset_offset(self, topic: str, offsets: dict[MessageQueue, int]) -> None:
        for queue, held in list(self.rebalancer.held.items()):
            if queue.topic != topic or queue not in offsets:
                continue
            self.rebalancer.drop(held)
            async with held.consuming:
                held.process_queue.clear()
                self.offset_store.table.update_offset(queue, offsets[queue], increase_only=False)
                await self.offset_store.persist([queue])
                self.rebalancer.forget(held)
        _log.info("%s: offsets of topic %s are reset", self.config.consumer_group, topic)
        self.rebalance_soon()

    def consumer_data(self) -> ConsumerData:
        """What a heartbeat says."""
        return ConsumerData(
            group_name=self.config.consumer_group,
            consume_type=self.membership.consume_type,
            message_model=self.config.message_model,
            consume_from_where=self.config.consume_from_where,
            subscription_data_set=list(self.subscriptions.values()),
        )

    # --- as a service -------------------------------------------------------------------------------------------------

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Be a member until asked to stop; then commit and unlock what it has."""
        try:
            await super().run(task_status=task_status)
            self._ending.deadline = min(self._ending.deadline, trio.current_time() + _END_S)
            with self._ending:
                await self.rebalancer.give_up_all()
        finally:
            self.ended.set()

    async def end(self) -> None:
        """Stop it, and return when it has ended. Nothing to do if it does not run."""
        if any(child.service is self for child in self.client.system.children):
            self.client.system.stop_child(self.name)
            await self.ended.wait()

    async def end_failed(self) -> None:
        """Stop it soon, whether or not this task is cancelled."""
        self._ending.deadline = trio.current_time() + _FAILED_END_S
        with trio.move_on_after(_FAILED_END_S, shield=True):
            await self.end()

    async def work(self, task_status: trio.TaskStatus[None]) -> None:
        """Rebalance, pull, lock, persist."""
        every, routes = self.client.timer.every, self.client.routes
        persist_s = self.client.config.persist_consumer_offset_interval_ms / 1000
        routes.listeners.append(self._on_route)
        try:
            with (
                every(REBALANCE_INTERVAL_S, self.rebalance_soon, self),
                every(persist_s, self._persist_wanted.wakeup, self),
                every(REBALANCE_LOCK_INTERVAL_S, self._lock_wanted.wakeup, self, first_after_s=_FIRST_LOCK_S),
            ):
                async with trio.open_nursery() as self._nursery:
                    task_status.started()
                    self._nursery.start_soon(self._rebalance_when_wanted)
                    self._nursery.start_soon(self._persist_when_wanted)
                    if self.rebalancer.locks:
                        self._nursery.start_soon(self._lock_when_wanted)
                    if self.beside is not None:
                        self._nursery.start_soon(self.beside)
        finally:
            self._nursery = None
            routes.listeners.remove(self._on_route)

    def _on_route(self, topic: str) -> None:
        if topic in self.subscriptions:
            self.rebalance_soon()

    def _on_added(self, held: HeldQueue) -> None:
        if self._nursery is not None:
            self._nursery.start_soon(self._puller.run, held)

    async def _rebalance_when_wanted(self) -> None:
        client, pauses = self.client, PausesForTopics()
        while True:
            again_s = math.inf
            if self.assigned is None:
                await self.rebalancer.rebalance()
                again_s = pauses.next_look_s(self.rebalancer.lacked_topics, trio.current_time())
            else:
                await self.rebalancer.assign_all(self.assigned)
            await self._rebalance_wanted.wait_for_running(again_s)
            client.check_open()

    async def _persist_when_wanted(self) -> None:
        while True:
            await self._persist_wanted.wait_for_running(float("inf"))
            await self.offset_store.persist(list(self.rebalancer.held))

    async def _lock_when_wanted(self) -> None:
        while True:
            again_s = trio.current_time() + _LOCK_AGAIN_S if self.rebalancer.lacks_locks else float("inf")
            await self._lock_wanted.wait_for_running(again_s)
            await self.rebalancer.lock_all()


@contextlib.asynccontextmanager
async def run_member(member: GroupMember, registered: RegisteredConsumer) -> AsyncIterator[None]:
    """Have a member of a group run for the length of a block. At its end offsets and locks are given back.

    If the block fails or is cancelled, that takes a second at most.

    Brokers hear of it before it looks for its queues. What a listener or a queue fails by comes out of the block.
    """
    client, group = member.client, member.config.consumer_group
    deadline_s = deadline_after(client.config.mq_client_api_timeout_ms)
    async with client.consumer_group(group, member.consumer_data):
        client.consumers.consumers[group] = registered
        try:
            for topic in list(member.subscriptions):
                with contextlib.suppress(ClientError):  # the rebalance asks again, and logs why it has no route
                    await client.routes.update(topic, deadline_s)
            await client.heartbeats.send_to_all(deadline_s)
            await client.system.start(member)
            try:
                yield
            finally:
                member.is_closed = True
            await member.end()
        finally:
            client.consumers.consumers.pop(group, None)
            await member.end_failed()
