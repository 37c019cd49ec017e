"""Sends messages (DefaultMQProducer): one or a batch, to the next queue or a named one, in a transaction.

    send ── check ── make ready ──┬─▶ route ─▶ choose a queue ─▶ request ──▶ stored: SendResult
                                  └──────────── retry at once ◀──────┘ refused, lost, timed out

One deadline counts for all of that. Any number of tasks may send at the same time: each waits for its own answer.
"""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import AsyncIterator, Callable, Sequence
from typing import TypeVar

import attrs
import trio

from rmq_actors.client.client_error import (
    BadAnswer,
    BrokerRefused,
    BrokerUnreachable,
    ClientError,
    ClientTimeout,
    MessageRefused,
    NoRoute,
    SendFailed,
)
from rmq_actors.client.client_instance import MQClientInstance
from rmq_actors.client.config import ProducerConfig
from rmq_actors.client.produce_accumulator import ProduceAccumulator
from rmq_actors.client.requests import deadline_after
from rmq_actors.client.send_result import LocalTransactionState, SendResult, TransactionSendResult
from rmq_actors.client.transactions import (
    TransactionCheckService,
    TransactionListener,
    end_transaction_command,
    returned_state,
)
from rmq_actors.protocols.message_accumulation import AggregateKey, may_be_batched
from rmq_actors.protocols.message_checks import check_batch, check_message, check_queue
from rmq_actors.protocols.queue_selection import LatencyFaultTolerance, MQFaultStrategy, SendWhichQueue
from rmq_actors.protocols.send_requests import Outgoing, outgoing_batch, outgoing_message, send_command
from rmq_actors.protocols.send_retries import SEND_STATUS, SendRetries, SendStatus
from rmq_actors.protocols.topic_publish_info import TopicPublishInfo
from rmq_actors.protocols.transactional_messages import PROPERTY_PRODUCER_GROUP, PROPERTY_TRANSACTION_PREPARED
from rmq_actors.settings.argument_checks import check_arguments, checked
from rmq_actors.wire.bodies.message_queues import MessageQueue
from rmq_actors.wire.dispatch_request import PROPERTY_DELAY
from rmq_actors.wire.headers.codec import decode_header
from rmq_actors.wire.headers.messages import SendMessageResponseHeader
from rmq_actors.wire.message_id import MessageIdError, decode_message_id
from rmq_actors.wire.properties import PROPERTY_WAIT_STORE_MSG_OK
from rmq_actors.wire.record import Message, MessageIllegal
from rmq_actors.wire.remoting_command import RemotingCommand, RemotingCommandError
from rmq_actors.wire.unique_id import UniqueIds

A = TypeVar("A")

#: Chooses a queue of those that messages of the topic may go to, by the message and an argument of the caller.
MessageQueueSelector = Callable[[Sequence[MessageQueue], Message, A], MessageQueue]

_COUNTER_SPAN = 2**31
#: With less time left than this, a time-out is over: requests take whole ms.
_OVER_S = 0.001
#: Longer time-outs are looked at more closely.
_TIMEOUT_END_MS = 2**31


@attrs.define(eq=False, repr=False)
class Producer:
    """A running producer of one group: see `open_producer`.

    Each method raises a `ClientError`: `MessageRefused` before anything is sent, `NoRoute`, `BrokerRefused`,
    `SendFailed` after the last attempt, `ClientTimeout` when `timeout_ms` (sendMsgTimeout by default) is over, and
    `ClientClosed`. After `SendFailed` and `ClientTimeout` the message may have been stored all the same. A cancelled
    send is given up: whether the message is stored is not known either.
    """

    config: ProducerConfig
    _instance: MQClientInstance
    _listener: TransactionListener | None
    _strategy: MQFaultStrategy
    _unique_ids: UniqueIds
    _counters: dict[str, SendWhichQueue] = attrs.field(factory=dict, init=False)
    #: With autoBatch.
    _accumulator: ProduceAccumulator | None = attrs.field(default=None, init=False)

    @property
    def client_id(self) -> str:
        """How brokers name this client."""
        return self._instance.client_id

    async def send(
        self, message: Message, *, queue: MessageQueue | None = None, timeout_ms: int | None = None
    ) -> SendResult:
        """Send a message and return when a broker has stored it: to the next queue, or to this one and no other.

        What counts of the message are topic, body, properties and flag. Property DELAY is a level: the message is
        delivered later. A message to the next queue is sent again if it fails, retryTimesWhenSendFailed times.
        """
        # `checked` would take a fifth of what follows.
        if type(message) is not Message or queue is not None or not _is_timeout(timeout_ms):
            check_arguments(Producer.send, message=message, queue=queue, timeout_ms=timeout_ms)
        deadline_s = self._deadline(timeout_ms)
        outgoing = self._make_ready(message)
        if queue is not None:
            self._refuse(check_queue(queue, message.topic))
        return await self._send_one(message, outgoing, queue, deadline_s)

    @checked
    async def send_by_selector(
        self, message: Message, selector: MessageQueueSelector[A], argument: A, *, timeout_ms: int | None = None
    ) -> SendResult:
        """Send to the queue that `selector` chooses, once: messages of one queue keep their order.

        `protocols.queue_selection.select_message_queue_by_hash` chooses as Java's SelectMessageQueueByHash does.
        Raises `TypeError` if `selector` returns no `MessageQueue`, as an async function does.
        """
        deadline_s = self._deadline(timeout_ms)
        outgoing = self._make_ready(message)
        info = await self._publish_info(message.topic, deadline_s)
        queue = selector(info.queues, message, argument)
        if not isinstance(queue, MessageQueue):
            raise _no_queue(selector, queue)
        self._refuse(check_queue(queue, message.topic))
        return await self._send_one(message, outgoing, queue, deadline_s)

    @checked
    async def send_batch(
        self, messages: Sequence[Message], *, queue: MessageQueue | None = None, timeout_ms: int | None = None
    ) -> SendResult:
        """Send messages of one topic as one request: all are stored, one after the other in one queue, or none."""
        deadline_s = self._deadline(timeout_ms)
        self._refuse(check_batch(messages, self.config.max_message_size_bytes))
        try:
            outgoing = outgoing_batch(messages, [self._next_id() for _ in messages])
        except ValueError as error:
            raise MessageRefused(str(error)) from error
        if len(outgoing.body) > self.config.max_message_size_bytes:
            self._refuse(
                f"a batch of {len(outgoing.body)} bytes: at most {self.config.max_message_size_bytes} are allowed"
            )
        if queue is not None:
            self._refuse(check_queue(queue, outgoing.topic))
        return await self._send(outgoing, queue, deadline_s)

    @checked
    async def send_oneway(
        self, message: Message, *, queue: MessageQueue | None = None, timeout_ms: int | None = None
    ) -> None:
        """Send a message that nobody answers for: it is fast, and may be lost without a word."""
        deadline_s = self._deadline(timeout_ms)
        outgoing = self._make_ready(message)
        if queue is None:
            queue = self._select(await self._publish_info(message.topic, deadline_s), None)
        else:
            self._refuse(check_queue(queue, message.topic))
        address = await self._master_address(queue, deadline_s)
        await self._instance.requests.invoke_oneway(address, self._command(outgoing, queue), deadline_s)

    @checked
    async def send_in_transaction(
        self, message: Message, argument: object = None, *, timeout_ms: int | None = None
    ) -> TransactionSendResult:
        """Store a half message, run the listener's local transaction, and tell the broker how that ended.

        Consumers see the message once it is committed. If the broker is not told, it asks a producer of the group. So
        what the local transaction raises is raised here, and the broker asks later. A half message that is not stored
        as safely as was asked is rolled back, and the local transaction does not run. A delay is ignored.

        `timeout_ms` is for storing the half message. The local transaction takes its own time, and after it telling the
        broker up to mqClientApiTimeout (3 s): that is tried also when `timeout_ms` is over.
        """
        self._instance.check_open()
        if self._listener is None:
            self._refuse("a transaction needs a transaction_listener: give one to open_producer")
        listener = self._listener
        assert listener is not None
        deadline_s = self._deadline(timeout_ms)
        properties = {name: value for name, value in message.properties.items() if name != PROPERTY_DELAY}
        properties[PROPERTY_TRANSACTION_PREPARED] = "true"
        properties[PROPERTY_PRODUCER_GROUP] = self.config.producer_group
        half = attrs.evolve(message, properties=properties)
        stored = await self._send(self._make_ready(half), None, deadline_s)
        state, remark = LocalTransactionState.ROLLBACK_MESSAGE, None
        try:
            if stored.status is SendStatus.SEND_OK:
                state = LocalTransactionState.UNKNOW
                returned = await listener.execute_local_transaction(message, stored.msg_id, argument)
                state, remark = returned_state("execute_local_transaction", returned)
        except Exception as error:
            remark = f"executeLocalTransactionBranch exception: {type(error).__name__}: {error}"[:1000]
            raise
        finally:
            await self._end_transaction(stored, state, remark)
        return TransactionSendResult(stored, state)

    @checked
    async def queues_of(self, topic: str, *, timeout_ms: int | None = None) -> Sequence[MessageQueue]:
        """The queues that messages of a topic may go to now (fetchPublishMessageQueues)."""
        return (await self._publish_info(topic, self._deadline(timeout_ms))).queues

    async def start_accumulator(self) -> None:
        """With autoBatch: have messages of concurrent tasks sent together from now on. For `run_producer`."""
        if self.config.auto_batch:
            accumulator = ProduceAccumulator(self.config, self._send)
            await self._instance.system.start(accumulator)
            self._accumulator = accumulator

    # --- one send -----------------------------------------------------------------------------------------------------

    async def _send_one(
        self, message: Message, outgoing: Outgoing, queue: MessageQueue | None, deadline_s: float
    ) -> SendResult:
        accumulator = self._accumulator
        if accumulator is None or not may_be_batched(message, outgoing):
            return await self._send(outgoing, queue, deadline_s)
        key = AggregateKey(outgoing.topic, queue, message.properties.get(PROPERTY_WAIT_STORE_MSG_OK))
        return await accumulator.send(key, outgoing, deadline_s)

    async def _send(self, outgoing: Outgoing, queue: MessageQueue | None, deadline_s: float) -> SendResult:
        """All attempts. A message to a queue that the caller has chosen has one."""
        config = self.config
        retries = SendRetries(
            0 if queue is not None else config.retry_times_when_send_failed,
            config.retry_another_broker_when_not_store_ok,
        )
        brokers, stored = list[str](), None
        while True:
            chosen = queue
            if chosen is None:
                try:
                    info = await self._publish_info(outgoing.topic, deadline_s)
                except ClientError as error:
                    if not brokers:
                        raise
                    return _outcome(outgoing.topic, brokers, stored, error, is_over=_is_over(deadline_s))
                chosen = self._select(info, brokers[-1] if brokers else None)
            brokers.append(chosen.broker_name)
            begun_s = trio.current_time() if config.send_latency_fault_enable else 0.0
            try:
                stored = await self._attempt(outgoing, chosen, deadline_s)
            except MessageRefused:
                raise  # it fits no frame, whatever broker it is for
            except ClientError as error:
                self._learn(chosen, begun_s, failed=True)
                self._instance.routes.refresh_soon()
                is_over = _is_over(deadline_s)
                if isinstance(error, BrokerRefused):
                    goes_on = retries.after_refusal(error.code)
                else:
                    goes_on = retries.after_failure()
                if goes_on and not is_over:
                    continue
                if isinstance(error, BrokerRefused) and len(brokers) == 1:
                    raise
                return _outcome(outgoing.topic, brokers, stored, error, is_over=is_over)
            self._learn(chosen, begun_s, failed=False)
            if not retries.after_stored(stored.status):
                return stored

    async def _attempt(self, outgoing: Outgoing, queue: MessageQueue, deadline_s: float) -> SendResult:
        address = await self._master_address(queue, deadline_s)
        per_request_ms = self.config.send_msg_max_timeout_per_request_ms
        if per_request_ms >= 0:
            deadline_s = min(deadline_s, deadline_after(per_request_ms))
        answer = await self._instance.requests.invoke(
            address, self._command(outgoing, queue), deadline_s, accepted=SEND_STATUS
        )
        try:
            header = decode_header(SendMessageResponseHeader, answer)
        except RemotingCommandError as error:
            raise BadAnswer(f"{address}: the answer to a message cannot be read: {error}") from error
        stored_in = MessageQueue(topic=queue.topic, broker_name=queue.broker_name, queue_id=header.queue_id)
        return SendResult(
            SEND_STATUS[answer.code],
            outgoing.msg_id,
            header.msg_id,
            stored_in,
            header.queue_offset,
            header.transaction_id,
        )

    def _learn(self, queue: MessageQueue, begun_s: float, *, failed: bool) -> None:
        if not self.config.send_latency_fault_enable:
            return
        now_s = trio.current_time()
        self._strategy.update_fault_item(queue.broker_name, (now_s - begun_s) * 1000, now_s * 1000, isolation=failed)

    def _select(self, info: TopicPublishInfo, last_broker_name: str | None) -> MessageQueue:
        counter = self._counters.get(info.topic)
        if counter is None:
            begin = int(self._instance.environment.entropy.random() * _COUNTER_SPAN)
            counter = self._counters[info.topic] = SendWhichQueue(begin)
        now_s = trio.current_time() if self.config.send_latency_fault_enable else 0.0
        return self._strategy.select_one_message_queue(info, counter, last_broker_name, now_s * 1000)

    async def _publish_info(self, topic: str, deadline_s: float) -> TopicPublishInfo:
        routes, config = self._instance.routes, self.config
        info = routes.known_publish_info(topic)
        if info is not None:
            return info
        return await routes.publish_info(topic, deadline_s, config.create_topic_key, config.default_topic_queue_nums)

    async def _master_address(self, queue: MessageQueue, deadline_s: float) -> str:
        """Where to send; the route is asked for again if the broker's master is not known."""
        routes = self._instance.routes
        address = routes.master_address(queue.broker_name)
        # A topic that no broker has yet is where the one is that it will be made after.
        for topic in (queue.topic, self.config.create_topic_key):
            if address is None:
                with contextlib.suppress(NoRoute):
                    await routes.update(topic, deadline_s)
                address = routes.master_address(queue.broker_name)
        if address is None:
            raise BrokerUnreachable(f"topic {queue.topic}: no master of {queue.broker_name} is known")
        return self._instance.config.send_address(address)

    def _command(self, outgoing: Outgoing, queue: MessageQueue) -> RemotingCommand:
        config = self.config
        return send_command(
            outgoing,
            queue,
            config.producer_group,
            self._instance.environment.wall_clock.now_ms(),
            default_topic=config.create_topic_key,
            default_topic_queue_nums=config.default_topic_queue_nums,
        )

    def _make_ready(self, message: Message) -> Outgoing:
        config = self.config
        self._refuse(check_message(message, config.max_message_size_bytes))
        try:
            return outgoing_message(
                message, self._next_id(), config.compress_msg_body_over_howmuch_bytes, config.compress_level
            )
        except (ValueError, MessageIllegal) as error:
            raise MessageRefused(f"topic {message.topic}: {error}") from error

    def _next_id(self) -> str:
        clock = self._instance.environment.wall_clock
        now_ms = clock.now_ms()
        return self._unique_ids.next(now_ms, clock.utc_offset_s)

    def _deadline(self, timeout_ms: int | None) -> float:
        self._instance.check_open()
        return deadline_after(self.config.send_msg_timeout_ms if timeout_ms is None else timeout_ms)

    @staticmethod
    def _refuse(why: str | None) -> None:
        if why is not None:
            raise MessageRefused(why)

    async def _end_transaction(self, stored: SendResult, state: LocalTransactionState, remark: str | None) -> None:
        """Tell the broker, which may not hear of it: then it asks."""
        address = self._instance.routes.master_address(stored.queue.broker_name)
        if address is None:
            return
        try:
            offset = decode_message_id(stored.offset_msg_id)[1]
        except MessageIdError as error:
            raise BadAnswer(f"{address}: {error}") from error
        command = end_transaction_command(
            self.config.producer_group, state, stored.queue_offset, offset, stored.msg_id, stored.transaction_id, remark
        )
        deadline_s = deadline_after(self._instance.config.mq_client_api_timeout_ms)
        with contextlib.suppress(ClientError):
            await self._instance.requests.invoke_oneway(address, command, deadline_s)


def _no_queue(selector: object, returned: object) -> TypeError:
    why = ""
    if inspect.iscoroutine(returned):
        returned.close()  # else Python warns of a coroutine that nobody awaited
        why = ": a selector is no async function"
    return TypeError(f"selector {selector!r} returns {returned!r} and no MessageQueue{why}")


def _is_timeout(timeout_ms: int | None) -> bool:
    """Whether a time-out is certainly one."""
    return timeout_ms is None or (type(timeout_ms) is int and 0 <= timeout_ms < _TIMEOUT_END_MS)


def _is_over(deadline_s: float) -> bool:
    return trio.current_time() >= deadline_s - _OVER_S


def _outcome(
    topic: str, brokers: Sequence[str], stored: SendResult | None, last: ClientError, *, is_over: bool
) -> SendResult:
    """What the caller of a send gets when no attempt follows: what a broker has stored less safely, or an error."""
    if stored is not None:
        return stored
    if is_over:
        raise ClientTimeout(f"topic {topic}: not stored in time, sent to {', '.join(brokers)}: {last}") from last
    raise SendFailed(topic, brokers, last) from last


@contextlib.asynccontextmanager
async def run_producer(
    instance: MQClientInstance, config: ProducerConfig, transaction_listener: TransactionListener | None = None
) -> AsyncIterator[Producer]:
    """A producer of a client, for the length of a block. A client has one producer with a `transaction_listener`."""
    entropy = instance.environment.entropy
    worst = SendWhichQueue(int(entropy.random() * _COUNTER_SPAN))
    strategy = MQFaultStrategy(config.send_latency_fault_enable, LatencyFaultTolerance(worst))
    unique_ids = UniqueIds(instance.config.client_ip, entropy.token_bytes(6))
    instance.routes.keep(config.create_topic_key)
    if transaction_listener is not None:
        checks = TransactionCheckService(instance, config, transaction_listener)
        checks.register()
        await instance.system.start(checks)
    producer = Producer(config, instance, transaction_listener, strategy, unique_ids)
    await producer.start_accumulator()
    async with instance.producer_group(config.producer_group):
        yield producer
