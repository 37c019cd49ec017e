"""Which queues a consumer has (RebalanceImpl): asked again every 20 s, at a broker's notice, and when routes change.

members (a broker)  ─┐
queues (the route)  ─┴▶ strategy ─▶ plan ─▶ remove: commit, unlock     (`protocols.rebalance` decides)
└─▶ add: lock, where to begin, pull
"""

from __future__ import annotations

import contextlib
import logging
import math
from collections.abc import Callable, Collection, Iterable, Mapping

import attrs
import trio

from rmq_actors.client.client_error import ClientError, NoRoute
from rmq_actors.client.consumer_config import GroupConfig
from rmq_actors.client.consumer_requests import ConsumerRequests
from rmq_actors.client.held_queue import HeldQueue
from rmq_actors.client.message_ext import MessageExt
from rmq_actors.client.offset_store import OffsetStore
from rmq_actors.client.requests import deadline_after
from rmq_actors.protocols.allocation import AllocateMessageQueueStrategy
from rmq_actors.protocols.consume_from import AskBroker, BeginAt, compute_pull_from_where
from rmq_actors.protocols.process_queue import ProcessQueue
from rmq_actors.protocols.rebalance import (
    assigned_queues,
    by_broker_name,
    plan_rebalance,
    queues_of_other_topics,
)
from rmq_actors.protocols.send_rules import RETRY_GROUP_TOPIC_PREFIX
from rmq_actors.tracing.events.consumer import ConsumerQueue
from rmq_actors.wire.bodies.heartbeat import MessageModel, SubscriptionData
from rmq_actors.wire.bodies.message_queues import MessageQueue

_log = logging.getLogger(__name__)

#: How long a queue that is given up may still be with a listener, with order, before it is tried the next time.
_CONSUMING_WAIT_S = 1.0
_LOCK_TIMEOUT_MS = 1_000
_HALF_AN_HOUR_MS = 30 * 60 * 1000


@attrs.define(eq=False, repr=False)
class _Failures:
    """Why the queues of topics stay as they are."""

    #: By topic, what is so, and whether that ends by itself.
    topics: dict[str, tuple[str, bool]] = attrs.field(factory=dict, init=False)

    def note(self, group: str, topic: str, error: ClientError) -> None:
        """Tell it once, until it is another one."""
        # The topic of retries comes with the group's first heartbeat.
        quiet = topic.startswith(RETRY_GROUP_TOPIC_PREFIX) and isinstance(error, NoRoute)
        level = logging.DEBUG if quiet or self.topics.get(topic) == (str(error), quiet) else logging.WARNING
        _log.log(level, "%s: queues of topic %s stay as they are: %s", group, topic, error)
        self.topics[topic] = str(error), quiet


@attrs.define(eq=False, repr=False)
class Rebalancer:
    """The queues of one consumer. One task at a time calls `rebalance`."""

    config: GroupConfig
    requests: ConsumerRequests
    offset_store: OffsetStore
    strategy: AllocateMessageQueueStrategy
    #: Whether queues are locked at their brokers.
    orderly: bool
    #: By topic.
    subscriptions: Mapping[str, SubscriptionData]
    #: A queue is this consumer's from now on: pull it.
    on_added: Callable[[HeldQueue], None]
    held: dict[MessageQueue, HeldQueue] = attrs.field(factory=dict, init=False)
    #: Where queues begin that are not held yet, whatever the store says.
    seeks: dict[MessageQueue, int] = attrs.field(factory=dict, init=False)
    #: Queues whose lock was asked for, and that are not held: their brokers may have granted it all the same.
    _asked_locks: set[MessageQueue] = attrs.field(factory=set, init=False)
    _failures: _Failures = attrs.field(factory=_Failures, init=False)
    #: When the consumer started, ms since the epoch.
    start_timestamp_ms: int = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self.start_timestamp_ms = self.requests.client.environment.wall_clock.now_ms()

    @property
    def locks(self) -> bool:
        """Whether this consumer needs a broker's lock on a queue."""
        return self.orderly and self.config.message_model is MessageModel.CLUSTERING

    @property
    def lacked_topics(self) -> Collection[str]:
        """The topics whose queues could not be found out the last time."""
        failed = self._failures.topics.items()
        return [topic for topic, (_, quiet) in failed if topic in self.subscriptions and not quiet]

    async def rebalance(self) -> None:
        """Give up and take what members and queues ask for. What fails is tried the next time."""
        for topic in list(self.subscriptions):
            try:
                await self._rebalance_topic(topic)
            except ClientError as error:
                self._failures.note(self.config.consumer_group, topic, error)
            else:
                self._failures.topics.pop(topic, None)
        for queue in queues_of_other_topics(self.subscriptions, self.held):
            await self.remove(queue)

    async def _rebalance_topic(self, topic: str) -> None:
        client, group = self.requests.client, self.config.consumer_group
        await client.routes.route(topic, self._deadline())
        queues = client.routes.known_subscribe_queues(topic)
        assigned: Collection[MessageQueue] = queues
        if self.config.message_model is MessageModel.CLUSTERING and queues:
            members = await self.requests.find_consumer_id_list(topic, self._deadline())
            assigned = () if not members else assigned_queues(self.strategy, group, client.client_id, queues, members)
            if not members:
                return  # the broker has not heard of this consumer yet
        await self.assign(topic, assigned)

    async def assign_all(self, assigned: Collection[MessageQueue]) -> None:
        """Have exactly these queues of all topics, as far as they can be had now."""
        for topic in dict.fromkeys(queue.topic for queue in (*self.held, *assigned)):
            await self.assign(topic, [queue for queue in assigned if queue.topic == topic])

    async def assign(self, topic: str, assigned: Collection[MessageQueue]) -> None:
        """Have exactly these queues of a topic, as far as they can be had now."""
        pulled = {
            queue: -math.inf if each.is_leaving else each.process_queue.last_pull_s for queue, each in self.held.items()
        }
        for queue in [each for each in self._asked_locks if each.topic == topic and each not in assigned]:
            await self._unlock([queue])
        plan = plan_rebalance(topic, assigned, pulled, trio.current_time())
        if plan.is_empty:
            return
        # A broker that is silent holds up no other: what is committed late is consumed again by who has the queue now.
        async with trio.open_nursery() as nursery:
            for queue in plan.remove:
                nursery.start_soon(self.remove, queue)
        async with trio.open_nursery() as nursery:
            for queues in by_broker_name(plan.add).values():
                nursery.start_soon(self._add_all, queues)
        _log.info(
            "%s: %d queues of topic %s are this consumer's: %s given up, %s taken",
            self.config.consumer_group,
            sum(queue.topic == topic for queue in self.held),
            topic,
            len(plan.remove),
            len(plan.add),
        )

    async def remove(self, queue: MessageQueue) -> bool:
        """Give a queue up: pull no more, commit, unlock. False: a listener still has it; it is tried the next time."""
        held = self.held.get(queue)
        if held is None:
            return True
        self.drop(held)
        if not self.locks:
            await self._let_go(held)
            return True
        with trio.move_on_after(_CONSUMING_WAIT_S) as waiting:
            await held.consuming.acquire()
        if waiting.cancelled_caught:
            held.is_leaving = True
            _log.warning("%s: %s is still consumed, its lock stays", self.config.consumer_group, queue)
            return False
        try:
            await self._let_go(held)
            await self._unlock([queue])
        finally:
            held.consuming.release()
        return True

    async def _let_go(self, held: HeldQueue) -> None:
        await self.offset_store.persist([held.queue])
        self.forget(held)

    def forget(self, held: HeldQueue) -> None:
        """Nothing of a queue is this consumer's any more."""
        if self.held.get(held.queue) is held:
            del self.held[held.queue]
            self.offset_store.table.remove_offset(held.queue)
            self.requests.nodes.forget(held.queue)

    async def _add_all(self, queues: Iterable[MessageQueue]) -> None:
        for queue in queues:
            if queue not in self.held:
                await self._add(queue)

    async def _add(self, queue: MessageQueue) -> None:
        if self.locks:
            self._asked_locks.add(queue)
        if self.locks and not await self._lock([queue]):
            _log.info("%s: %s is locked by another consumer", self.config.consumer_group, queue)
            return
        self.offset_store.table.remove_offset(queue)
        begin = self.seeks.get(queue)
        if begin is None:
            try:
                begin = await self.compute_pull_from_where(queue)
            except ClientError as error:
                _log.warning("%s: where %s begins is not known: %s", self.config.consumer_group, queue, error)
                return
        begin = self.seeks.pop(queue, begin)  # there may be a seek that came while the store was asked
        if begin is not None:
            self._hold(queue, begin)

    def _hold(self, queue: MessageQueue, offset: int) -> None:
        now_s = trio.current_time()
        process_queue = ProcessQueue[MessageExt](last_pull_s=now_s, last_consume_s=now_s)
        process_queue.locked, process_queue.last_lock_s = self.locks, now_s
        held = self.held[queue] = HeldQueue(queue, process_queue, offset)
        self._asked_locks.discard(queue)
        self._tell("taken", held)
        self.on_added(held)

    def drop(self, held: HeldQueue) -> None:
        """Nothing more of a queue is pulled, nor given to a listener. It is told once."""
        if not held.process_queue.dropped:
            self._tell("given_up", held)
        held.drop()

    def drop_within_its_pull(self, held: HeldQueue) -> None:
        """The same for the task that pulls it, which goes on."""
        self._tell("given_up", held)
        held.process_queue.dropped = True
        held.changed()

    def _tell(self, status: str, held: HeldQueue) -> None:
        client, queue = self.requests.client, held.queue
        client.tracer.emit(
            ConsumerQueue(
                status=status,
                group=self.config.consumer_group,
                client=client.client_id,
                topic=queue.topic,
                broker_name=queue.broker_name,
                queue_id=queue.queue_id,
                queue_offset=held.next_offset,
            )
        )

    def seek(self, queue: MessageQueue, offset: int) -> None:
        """Go on at an offset: now, or once the queue is this consumer's."""
        held = self.held.get(queue)
        if held is None or held.process_queue.dropped:
            self.seeks[queue] = offset
            return
        self.drop(held)
        self._hold(queue, offset)

    async def take_again(self, held: HeldQueue, offset: int) -> bool:
        """Go on at an offset with a queue that was dropped within its pull. False: its lock is not to be had now."""
        is_locked = not self.locks or await self._lock([held.queue])
        if held.pulling.cancel_called:  # it was given up meanwhile
            return True
        if not is_locked:
            self.forget(held)
            return False
        # There may be a seek that came since it was dropped.
        self._hold(held.queue, self.seeks.pop(held.queue, offset))
        return True

    async def compute_pull_from_where(self, queue: MessageQueue) -> int | None:
        """The offset where a queue's pulls begin; None: that is not known now. Raises `ClientError`."""
        stored = await self.offset_store.read_from_store(queue)
        begin = compute_pull_from_where(self.config.consume_from_where, stored, queue.topic)
        if begin is None or isinstance(begin, BeginAt):
            return None if begin is None else begin.offset
        assert isinstance(begin, AskBroker)
        if begin.lookup == "max_offset":
            return await self.requests.max_offset(queue, self._deadline())
        timestamp_ms = self.config.consume_timestamp_ms
        if timestamp_ms == -1:
            timestamp_ms = self.start_timestamp_ms - _HALF_AN_HOUR_MS
        return await self.requests.search_offset(queue, timestamp_ms, self._deadline())

    # --- locks --------------------------------------------------------------------------------------------------------

    async def lock_all(self) -> None:
        """Renew the locks of all queues, and note those that another consumer has now."""
        async with trio.open_nursery() as nursery:
            for queues in by_broker_name(self.held).values():
                nursery.start_soon(self._lock, queues)

    @property
    def lacks_locks(self) -> bool:
        """Whether a queue is held without its lock."""
        return any(not held.process_queue.locked for held in self.held.values())

    async def _lock(self, queues: list[MessageQueue]) -> bool:
        """Ask for locks of one broker; whether it granted all. Without an answer, locks count until they expire."""
        try:
            granted = await self.requests.lock_batch_mq(queues[0].broker_name, queues, deadline_after(_LOCK_TIMEOUT_MS))
        except ClientError as error:
            _log.warning("%s: %d queues are not locked: %s", self.config.consumer_group, len(queues), error)
            return False
        now_s, lost = trio.current_time(), dict[str, None]()
        self._asked_locks.difference_update(set(queues) - granted)
        for queue in queues:
            held = self.held.get(queue)
            if held is None:
                continue
            if queue not in granted:
                lost[queue.topic] = None
            held.process_queue.locked = queue in granted
            if queue in granted:
                held.process_queue.last_lock_s = now_s
            held.changed()
        if lost and await self._has_new_master(queues[0].broker_name, lost):
            return await self._lock(queues)
        return granted.issuperset(queues)

    async def _has_new_master(self, broker_name: str, topics: Iterable[str]) -> bool:
        """Ask name servers: a broker that gives no lock any more may be a slave by now."""
        routes = self.requests.client.routes
        before = routes.master_address(broker_name)
        for topic in topics:
            with contextlib.suppress(ClientError):
                await routes.update(topic, deadline_after(_LOCK_TIMEOUT_MS))
        return routes.master_address(broker_name) not in (before, None)

    async def lock_again(self, held: HeldQueue) -> bool:
        """Ask for a lock that was lost or has expired (tryLockLaterAndReconsume)."""
        return await self._lock([held.queue])

    async def _unlock(self, queues: list[MessageQueue]) -> None:
        self._asked_locks.difference_update(queues)
        try:
            await self.requests.unlock_batch_mq(queues[0].broker_name, queues, deadline_after(_LOCK_TIMEOUT_MS))
        except ClientError as error:
            _log.warning("%s: locks are not given back, they expire: %s", self.config.consumer_group, error)

    # --- the end ------------------------------------------------------------------------------------------------------

    async def give_up_all(self) -> None:
        """The consumer stops: commit and unlock everything."""
        queues = list(self.held)
        for held in list(self.held.values()):
            self.drop(held)
        if self.locks:
            # At the same time: a broker that is silent holds up no other.
            async with trio.open_nursery() as nursery:
                for queue in queues:
                    nursery.start_soon(self.remove, queue)
                for queue in list(self._asked_locks):
                    nursery.start_soon(self._unlock, [queue])
            return
        await self.offset_store.persist(queues)
        for held in list(self.held.values()):
            self.forget(held)

    def _deadline(self) -> float:
        return deadline_after(self.requests.client.config.mq_client_api_timeout_ms)
