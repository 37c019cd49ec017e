"""The consumer groups of a run: own consumers, on two machines, that join, leave, are cancelled, and die.

ConsumerGroups ──▶ Member (a client, a consumer, a listener)   one task each, on one of the machines
      └── come_and_go: joins, leaves, cancels, kills a machine and starts it again
"""

from __future__ import annotations

import contextlib
import zlib
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from typing import TypeVar

import attrs
import trio

from rmq_actors.client.client_error import ClientError
from rmq_actors.client.client_instance import MQClientInstance, open_client_instance
from rmq_actors.client.config import ClientConfig
from rmq_actors.client.consumer_config import PullConsumerConfig, PushConsumerConfig
from rmq_actors.client.message_ext import MessageExt
from rmq_actors.client.message_listener import (
    Concurrently,
    ConsumeConcurrentlyContext,
    ConsumeOrderlyContext,
    MessageListener,
    Orderly,
)
from rmq_actors.client.pull_consumer import PullConsumer, run_pull_consumer
from rmq_actors.client.push_consumer import run_push_consumer
from rmq_actors.ports.entropy import Entropy
from rmq_actors.ports.environment import Environment
from rmq_actors.protocols.allocation import (
    AllocateMessageQueueAveragely,
    AllocateMessageQueueAveragelyByCircle,
    AllocateMessageQueueConsistentHash,
    AllocateMessageQueueStrategy,
)
from rmq_actors.protocols.consume_results import ConsumeConcurrentlyStatus, ConsumeOrderlyStatus
from rmq_actors.remoting.hooks import RpcHook
from rmq_actors.testing.brokers import BrokersUnderTest
from rmq_actors.testing.clients import CHAOS_TOPIC, LOOK_EVERY_S
from rmq_actors.testing.topology import CONSUMERS, OTHER_CONSUMERS
from rmq_actors.tracing.events.run import ClientCall, ClientConsume, ClientMember
from rmq_actors.tracing.recorder import Tracer
from rmq_actors.wire.bodies.heartbeat import ConsumeFromWhere
from sim_net import Node

T = TypeVar("T")

_MEMBERS_MAX = 3
#: How long a listener has a message at most.
_LISTENS_S = 0.1
_POLL_MS, _COMMIT_MS = 500, 3_000
#: What an end may take: commits and unlocks 4 s, unregistering 3 s; a second, and half a second, if it is cancelled.
_LEAVE_MS, _CANCELLED_MS = 8_000, 2_000
_PAUSES_S = (0.1, 0.5, 1.0, 3.0)
_DOWN_S = 0.5
#: How often a member that comes again after an error looks.
_AGAIN_S = 0.5
#: The level of what comes again: 1 s. What is sent back by a client that got no answer waits longer each time, a minute
#: after it has come again twice: after more, it would come when the run is long over.
_AGAIN_LEVEL, _AGAIN_MAX = 1, 3
#: Those of `ALLOCATIONS`.
_STRATEGIES: Mapping[str, AllocateMessageQueueStrategy] = {
    each.name: each
    for each in (
        AllocateMessageQueueAveragely(),
        AllocateMessageQueueAveragelyByCircle(),
        AllocateMessageQueueConsistentHash(),
    )
}
#: How long a queue stands still whose message is not consumed, with order.
_SUSPENDED_MS = 100


@attrs.define(eq=False, repr=False)
class Member:
    """One consumer: what ends it, and how."""

    kind: str
    node: Node
    number: int
    leave: trio.Event = attrs.field(factory=trio.Event)
    scope: trio.CancelScope = attrs.field(factory=trio.CancelScope)
    asked_s: float = 0.0
    is_over: bool = False
    client_id: str = ""
    tracer: Tracer | None = None

    @property
    def group(self) -> str:
        """A group's name is that of its kind."""
        return group_of(self.kind)


def group_of(kind: str) -> str:
    """The group of a kind of consumers."""
    return f"{kind}-group"


@attrs.define(eq=False, repr=False)
class ConsumerGroups:
    """See the module. `may_send_back`: whether a listener may still have a message come again."""

    brokers: BrokersUnderTest
    may_send_back: Callable[[], bool]
    members: list[Member] = attrs.field(factory=list, init=False)
    is_stopping: trio.Event = attrs.field(factory=trio.Event, init=False)
    #: Whether members have stopped coming and going.
    is_settled: bool = attrs.field(default=False, init=False)
    _machines: Sequence[Node] = attrs.field(init=False)
    _entropy: Entropy = attrs.field(init=False)
    #: How many members there were.
    _made: int = attrs.field(default=0, init=False)

    def __attrs_post_init__(self) -> None:
        world = self.brokers.world
        self._machines = [world.node(CONSUMERS), world.node(OTHER_CONSUMERS)]
        self._entropy = self._machines[0].entropy

    def boot(self) -> None:
        """Start both machines, with no member on them."""
        for node in self._machines:
            node.boot(self._live)

    async def stop(self) -> None:
        """Return when all members have left in order, and the machines are down."""
        self.is_stopping.set()
        for node in self._machines:
            await node.wait_down()

    async def _live(self, node: Node) -> None:
        await self.is_stopping.wait()
        for member in self._of(node):
            self._leave(member)
        while self._of(node):  # noqa: ASYNC110 - each ends in a task of its own
            await trio.sleep(LOOK_EVERY_S)

    def _of(self, node: Node) -> list[Member]:
        return [member for member in self.members if member.node is node]

    # --- who comes, who goes ------------------------------------------------------------------------------------------

    async def come_and_go(self) -> None:
        """A member or two for each group, then as many changes as the case says."""
        kinds = self.brokers.workload.kinds_of_groups
        for kind in kinds:
            for _ in range(self._choose((1, 2))):
                self._join(kind)
        for _ in range(self.brokers.workload.member_changes):
            await trio.sleep(self._choose(_PAUSES_S))
            await self._change(kinds)
        for kind in kinds:
            if not any(member.kind == kind and not member.asked_s for member in self.members):
                self._join(kind)
        self.is_settled = True

    async def _change(self, kinds: Sequence[str]) -> None:
        change = self._choose(("join", "join", "leave", "cancel", "crash"))
        staying = [member for member in self.members if not member.asked_s]
        if change == "join" or not staying:
            kind = self._choose(kinds)
            if sum(member.kind == kind for member in self.members) < _MEMBERS_MAX:
                self._join(kind)
        elif change == "leave":
            self._leave(self._choose(staying))
        elif change == "cancel":
            member = self._choose(staying)
            member.asked_s = trio.current_time()
            member.scope.cancel()
        else:
            await self._crash(self._choose(self._machines))

    async def _crash(self, node: Node) -> None:
        died = self._of(node)
        node.kill()
        self.members = [member for member in self.members if member.node is not node]
        for member in died:
            self._tell_member("crashed", member)
        await trio.sleep(_DOWN_S)
        node.restart()
        for member in died:
            self._join(member.kind, node)

    def _join(self, kind: str, node: Node | None = None) -> None:
        self._made += 1
        member = Member(kind, node or self._choose(self._machines), self._made)
        self.members.append(member)
        member.node.start_soon(self._run, member)

    def _choose(self, values: Sequence[T]) -> T:
        return values[int(self._entropy.random() * len(values))]

    @staticmethod
    def _leave(member: Member) -> None:
        member.asked_s = member.asked_s or trio.current_time()
        member.leave.set()

    # --- one member, on its machine -----------------------------------------------------------------------------------

    async def _run(self, member: Member) -> None:
        with member.scope:
            while not member.leave.is_set():
                try:
                    await self._consume(member)
                except* ClientError:  # nobody there yet: as an application does, it begins again
                    await trio.sleep(_AGAIN_S)
        self.members.remove(member)
        member.is_over = True
        if member.client_id:
            was_cancelled = member.scope.cancelled_caught
            self._tell_member("cancelled" if was_cancelled else "left", member)
            name, timeout_ms = ("cancelled", _CANCELLED_MS) if was_cancelled else ("leave", _LEAVE_MS)
            tell_call(self.brokers, member.node, "ok", name, member.asked_s, timeout_ms)

    async def _consume(self, member: Member) -> None:
        async with open_application_client(self.brokers, member.node, f"{member.kind}-{member.number}") as client:
            member.client_id, member.tracer = client.client_id, client.tracer
            self._tell_member("joined", member)
            workload = self.brokers.workload
            group, topics, strategy = member.group, {CHAOS_TOPIC: "*"}, _STRATEGIES[workload.allocation]
            first = ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET
            if member.kind == "pull":
                own = PullConsumerConfig(group, consume_from_where=first, auto_commit=False, poll_batch_size=4)
                async with run_pull_consumer(client, own, topics, strategy=strategy) as pulling:
                    await self._poll(member, pulling)
                    # What was under way when it was asked to leave had a time-out of its own.
                    member.asked_s = trio.current_time()
                return
            config = PushConsumerConfig(group, consume_from_where=first, consume_thread_max=4)
            listener: MessageListener = self._orderly(member)
            if member.kind == "concurrent":
                listener = self._concurrently(member)
                config = attrs.evolve(config, consume_message_batch_max_size=workload.consume_batch)
            async with run_push_consumer(client, config, topics, listener, strategy=strategy):
                await member.leave.wait()

    async def _poll(self, member: Member, consumer: PullConsumer) -> None:
        while not member.leave.is_set():
            began_s = trio.current_time()
            messages = await consumer.poll(_POLL_MS)
            tell_call(self.brokers, member.node, "ok", "poll", began_s, _POLL_MS)
            for message in messages:
                self._tell(member, "begin", message, message.topic)
            await self._work(member)
            for message in messages:
                self._tell(member, "consumed", message, message.topic)
            if messages:
                began_s, status = trio.current_time(), "ok"
                try:
                    await consumer.commit(_COMMIT_MS)
                except ClientError as error:
                    status = type(error).__name__
                tell_call(self.brokers, member.node, status, "commit", began_s, _COMMIT_MS)

    def _concurrently(self, member: Member) -> Concurrently:
        async def consume(
            messages: Sequence[MessageExt], context: ConsumeConcurrentlyContext
        ) -> ConsumeConcurrentlyStatus:
            context.delay_level_when_next_consume = _AGAIN_LEVEL
            if await self._listen(member, messages, context.message_queue.topic):
                return ConsumeConcurrentlyStatus.CONSUME_SUCCESS
            return ConsumeConcurrentlyStatus.RECONSUME_LATER

        return Concurrently(consume)

    def _orderly(self, member: Member) -> Orderly:
        async def consume(messages: Sequence[MessageExt], context: ConsumeOrderlyContext) -> ConsumeOrderlyStatus:
            context.suspend_current_queue_time_ms = _SUSPENDED_MS
            if await self._listen(member, messages, context.message_queue.topic):
                return ConsumeOrderlyStatus.SUCCESS
            return ConsumeOrderlyStatus.SUSPEND_CURRENT_QUEUE_A_MOMENT

        return Orderly(consume)

    async def _listen(self, member: Member, messages: Sequence[MessageExt], topic: str) -> bool:
        """Consume, or say that they are to come again."""
        for message in messages:
            self._tell(member, "begin", message, topic)
        try:
            await self._work(member)
        except trio.Cancelled:
            for message in messages:
                self._tell(member, "cancelled", message, topic)
            raise
        may_be_later = all(message.reconsume_times < _AGAIN_MAX for message in messages)
        is_later = (
            self.may_send_back() and member.node.entropy.random() < self.brokers.workload.retries and may_be_later
        )
        for message in messages:
            self._tell(member, "later" if is_later else "consumed", message, topic)
        return not is_later

    async def _work(self, member: Member) -> None:
        await trio.sleep(member.node.entropy.random() * _LISTENS_S)

    # --- what is told -------------------------------------------------------------------------------------------------

    def _tell(self, member: Member, status: str, message: MessageExt, topic: str) -> None:
        told = ClientConsume(
            status=status,
            offset=message.physical_offset,
            group=member.group,
            client=member.client_id,
            topic=topic,
            queue_id=message.queue_id,
            queue_offset=message.queue_offset,
            key=message.keys or "",
            checksum=zlib.crc32(message.body),
        )
        assert member.tracer is not None
        member.tracer.emit(told)  # not after its machine has died

    def _tell_member(self, status: str, member: Member) -> None:
        if member.client_id:
            told = ClientMember(status=status, group=member.group, client=member.client_id)
            self.brokers.recorder.record(told, member.node.name)


def tell_call(brokers: BrokersUnderTest, node: Node, status: str, name: str, began_s: float, timeout_ms: int) -> None:
    """A call of a client has ended now."""
    elapsed_ms = round((trio.current_time() - began_s) * 1000, 3)
    brokers.recorder.record(
        ClientCall(status=status, name=name, elapsed_ms=elapsed_ms, timeout_ms=timeout_ms), node.name
    )


@contextlib.asynccontextmanager
async def open_application_client(
    brokers: BrokersUnderTest, node: Node, name: str, hooks: Sequence[RpcHook] = ()
) -> AsyncIterator[MQClientInstance]:
    """A client on a machine, whose process runs this task. It hears of changes soon."""
    assert brokers.name_server is not None
    config = ClientConfig(
        brokers.name_server,
        client_ip=node.address,
        instance_name=name,
        poll_name_server_interval_ms=2_000,
        heartbeat_broker_interval_ms=2_000,
        persist_consumer_offset_interval_ms=1_000,
    )
    tracer = brokers.recorder.tracer(node.name)
    node.on_fence(tracer.fence)
    environment = Environment(node.disk, node.wall_clock, node.entropy)
    async with open_client_instance(config, environment, tracer, hooks=hooks) as client:
        yield client
