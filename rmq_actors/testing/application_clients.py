"""Clients of a run that are this project's own: `Producer`s on a machine of their own, and `ConsumerGroups`.

They find brokers as programs do, by a name server. A message whose send failed is sent again: it may be stored twice.
A master may be lost before any slave has copied the topic that it made; then they have it made again, as operators do.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

import attrs
import trio

from rmq_actors.broker.broker_controller import BrokerController
from rmq_actors.client.admin import Admin
from rmq_actors.client.client_error import BrokerUnreachable, ClientError, NoRoute
from rmq_actors.client.config import ProducerConfig
from rmq_actors.client.producer import Producer, run_producer
from rmq_actors.client.send_result import SendResult
from rmq_actors.protocols.put_completion import PutStatus
from rmq_actors.protocols.queue_selection import select_message_queue_by_hash
from rmq_actors.protocols.send_retries import SendStatus
from rmq_actors.protocols.send_rules import RETRY_GROUP_TOPIC_PREFIX
from rmq_actors.testing.clients import CHAOS_TOPIC, LAST_BODY, LOOK_EVERY_S, PUT_AGAIN_S, WRITERS
from rmq_actors.testing.clients_apart import ClientsApart, has_delivered_all
from rmq_actors.testing.consumer_groups import ConsumerGroups, group_of, open_application_client, tell_call
from rmq_actors.tracing.events.run import ClientSend
from rmq_actors.wire.bodies.topic_configs import TopicConfig
from rmq_actors.wire.message_id import decode_message_id
from rmq_actors.wire.record import Message
from sim_net import Node

_TIMEOUT_MS = 3_000
#: An administrator asks name servers and brokers, one after the other.
_ADMIN_MS = 12_000
_QUEUES = 4
#: How often a single message goes to the queue of its key.
_BY_KEY = 0.2
_STATUS = {
    SendStatus.SEND_OK: PutStatus.PUT_OK,
    SendStatus.FLUSH_DISK_TIMEOUT: PutStatus.FLUSH_DISK_TIMEOUT,
    SendStatus.FLUSH_SLAVE_TIMEOUT: PutStatus.FLUSH_SLAVE_TIMEOUT,
    SendStatus.SLAVE_NOT_AVAILABLE: PutStatus.SLAVE_NOT_AVAILABLE,
}


@attrs.define(eq=False, repr=False)
class ApplicationClients(ClientsApart):
    """See the module."""

    groups: ConsumerGroups = attrs.field(init=False)
    _made: int = attrs.field(default=0, init=False)
    #: Those that must be sent again.
    _again: list[Message] = attrs.field(factory=list, init=False)

    def __attrs_post_init__(self) -> None:
        super().__attrs_post_init__()
        self.groups = ConsumerGroups(self.brokers, lambda: self.puts_left > 0 and self.may_write)

    def boot(self) -> None:
        """Start the machines of producers and consumers."""
        self._producers.boot(self._produce_all)
        self.groups.boot()

    def start(self, nursery: trio.Nursery) -> None:
        """Let members come and go."""
        nursery.start_soon(self._begin_groups)

    async def _begin_groups(self) -> None:
        await trio.sleep(LOOK_EVERY_S)
        await self.groups.come_and_go()

    async def stop(self) -> None:
        """Return when all have stopped in order."""
        self._stopping.set()
        await self._producers.wait_down()
        await self.groups.stop()

    @property
    def are_done(self) -> bool:
        """Whether members have stopped coming and going."""
        return self.groups.is_settled

    def has_all_delayed(self, broker: BrokerController) -> bool:
        """Whether a master has delivered whatever was sent back."""
        return has_delivered_all(broker)

    # --- producers ----------------------------------------------------------------------------------------------------

    async def _produce_all(self, node: Node) -> None:
        async with trio.open_nursery() as nursery:
            for number in range(WRITERS):
                nursery.start_soon(self._produce, number, node)

    async def _produce(self, number: int, node: Node) -> None:
        """A producer comes when there is something to send, and goes after it."""
        while not self._stopping.is_set():
            if not self._has_work:
                await trio.sleep(LOOK_EVERY_S)
                continue
            await self._with_producer(f"producer-{number}", self._send_all)

    @property
    def _has_work(self) -> bool:
        return self.may_write and self.puts_left > 0

    async def _with_producer(self, name: str, use: Callable[[Producer, Admin], Awaitable[None]]) -> None:
        workload = self.brokers.workload
        own = ProducerConfig(
            f"{name}-group",
            send_msg_timeout_ms=_TIMEOUT_MS,
            auto_batch=workload.auto_batch,
            send_latency_fault_enable=workload.latency_faults,
        )
        async with (
            open_application_client(self.brokers, self._producers, name) as client,
            run_producer(client, own) as producer,
        ):
            await use(producer, Admin(client))

    async def _send_all(self, producer: Producer, admin: Admin) -> None:
        workload, entropy = self.brokers.workload, self._producers.entropy
        while self._has_work and not self._stopping.is_set():
            failed: list[ClientError] = []
            async with trio.open_nursery() as nursery:
                for _ in range(min(workload.in_flight, self.puts_left)):
                    nursery.start_soon(self._send_next, producer, failed)
            if any(isinstance(error, NoRoute | BrokerUnreachable) for error in failed):
                await self._make_topic(admin)
            await trio.sleep(PUT_AGAIN_S if failed else entropy.random() * workload.pause_s)

    async def _make_topic(self, admin: Admin) -> None:
        """At each master that there is now. It has several requests to wait for, each with a time-out."""
        began_s, status = trio.current_time(), "ok"
        config = TopicConfig(topic_name=CHAOS_TOPIC, read_queue_nums=_QUEUES, write_queue_nums=_QUEUES)
        self._waiting += 1
        try:
            await admin.create_topic(config)
        except ClientError as error:
            status = type(error).__name__
        self._waiting -= 1
        tell_call(self.brokers, self._producers, status, "create_topic", began_s, _ADMIN_MS)

    async def _send_next(self, producer: Producer, failed: list[ClientError]) -> None:
        if self.puts_left <= 0:
            return  # batches have taken more than one message each
        messages = self._take()
        result = await self._send(producer, messages)
        if isinstance(result, ClientError):
            self.puts_left += len(messages)
            self._again += messages
            failed.append(result)

    def _take(self) -> list[Message]:
        return self._take_from(self._again, lambda: self._new(self._body(self._producers)))

    def _new(self, body: bytes) -> Message:
        self._made += 1
        return Message(CHAOS_TOPIC, body, properties={"KEYS": f"{self._made - 1}"})

    async def _send(self, producer: Producer, messages: Sequence[Message]) -> SendResult | ClientError:
        """What a producer was told, or what the send has failed by."""
        began_s = trio.current_time()
        self._waiting += 1
        result: SendResult | ClientError
        try:
            result = await self._call(producer, messages)
        except ClientError as error:
            result = error
        self._waiting -= 1
        status = type(result).__name__ if isinstance(result, ClientError) else "ok"
        tell_call(self.brokers, self._producers, status, "send", began_s, _TIMEOUT_MS)
        self._tell(messages, result)
        return result

    async def _call(self, producer: Producer, messages: Sequence[Message]) -> SendResult:
        first, *others = messages
        if others:
            return await producer.send_batch(messages)
        if self._producers.entropy.random() < _BY_KEY:
            key = first.properties["KEYS"]
            return await producer.send_by_selector(first, select_message_queue_by_hash, key)
        return await producer.send(first)

    def _tell(self, messages: Sequence[Message], result: SendResult | ClientError) -> None:
        recorder, nodes = self.brokers.recorder, self.brokers.nodes.values()
        if isinstance(result, ClientError):
            status = type(result).__name__
            for message in messages:
                told = ClientSend(
                    status=status, offset=-1, key=message.properties["KEYS"], queue_id=-1, queue_offset=-1
                )
                recorder.record(told, self.brokers.view.master.name)
            return
        for number, (message, where) in enumerate(zip(messages, result.offset_msg_id.split(","), strict=True)):
            host, offset = decode_message_id(where)
            told = ClientSend(
                status=result.status.name,
                offset=offset,
                key=message.properties["KEYS"],
                queue_id=result.queue.queue_id,
                queue_offset=result.queue_offset + number,
            )
            recorder.record(told, next(node.name for node in nodes if node.address == host.rpartition(":")[0]))

    async def put_last(self, name: str) -> tuple[PutStatus, int]:
        """See `Writers.put_last`."""
        answers: list[tuple[PutStatus, int]] = []

        async def send(producer: Producer, admin: Admin) -> None:
            result = await self._send(producer, [self._new(LAST_BODY)])
            if isinstance(result, NoRoute | BrokerUnreachable):
                await self._make_topic(admin)
            if isinstance(result, ClientError):
                answers.append((PutStatus.UNKNOWN_ERROR, 0))
            else:
                answers.append((_STATUS[result.status], decode_message_id(result.offset_msg_id)[1] + 1))

        await self._within(self._producers, lambda: self._with_producer("last-producer", send))
        return answers[0]

    # --- the end ------------------------------------------------------------------------------------------------------

    async def read_all(self, name: str) -> None:
        """Return when each group has committed every offset of its queues, and nothing waits to come again.

        A message may wait that was sent back twice, as the first answer was lost.
        """
        broker = self.brokers.broker(name)
        while not (self.has_all_delayed(broker) and self._has_consumed_all(broker)):  # noqa: ASYNC110 - brokers tell no event of it
            await trio.sleep(LOOK_EVERY_S)

    def _has_consumed_all(self, broker: BrokerController) -> bool:
        assert broker.remoting is not None
        metadata, offsets = broker.remoting.metadata, broker.store.offsets
        for kind in self.brokers.workload.kinds_of_groups:
            group = group_of(kind)
            # What an orderly or a pull consumer has is never sent back.
            topics = [CHAOS_TOPIC, f"{RETRY_GROUP_TOPIC_PREFIX}{group}"] if kind == "concurrent" else [CHAOS_TOPIC]
            for topic in topics:
                config = metadata.topics.select_topic_config(topic)
                committed = metadata.consumer_offsets.offsets_of(group, topic)
                for queue_id in range(0 if config is None else config.read_queue_nums):
                    if committed.get(queue_id, 0) < offsets.get_max_offset_in_queue(topic, queue_id):
                        return False
        return True
