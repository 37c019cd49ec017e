"""Clients of a run that speak remoting: two producers and a consumer, on machines of their own in the world.

They know which broker is the master as those do who have asked a name server, and nothing else of the brokers. A
producer sends a message again until it is answered that it is stored; so a message may be stored twice.
"""

from __future__ import annotations

import contextlib
import zlib
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence

import attrs
import trio

from rmq_actors.actors.system import open_actor_system
from rmq_actors.broker.broker_controller import BrokerController
from rmq_actors.protocols.put_completion import PutStatus
from rmq_actors.remoting.client import RemotingClient
from rmq_actors.remoting.config import RemotingClientConfig
from rmq_actors.remoting.connection import RemotingError
from rmq_actors.remoting.hooks import RpcHook
from rmq_actors.remoting.processor import ProcessorTable
from rmq_actors.testing.clients import CHAOS_TOPIC, LAST_BODY, LOOK_EVERY_S, PUT_AGAIN_S, WRITERS
from rmq_actors.testing.clients_apart import ClientsApart
from rmq_actors.testing.invariants.delayed import DELAY_LEVELS_USED
from rmq_actors.testing.invariants.read_in_the_end import LAST_READER
from rmq_actors.testing.thin_client import Pulled, ThinClient, send_request, subscription
from rmq_actors.testing.topology import CONSUMERS
from rmq_actors.tracing.events.run import ClientPull, ClientRead, ClientSend
from rmq_actors.wire.batch import encode_batch
from rmq_actors.wire.dispatch_request import SCHEDULE_TOPIC
from rmq_actors.wire.headers import decode_header
from rmq_actors.wire.headers.messages import SendMessageResponseHeader
from rmq_actors.wire.headers.offsets import PullMessageResponseHeader
from rmq_actors.wire.message_id import decode_message_id
from rmq_actors.wire.record import StoredMessage
from rmq_actors.wire.remoting_command import RemotingCommand
from rmq_actors.wire.request_code import RequestCode
from rmq_actors.wire.response_code import ResponseCode
from sim_net import Node

#: Longer than a broker takes to answer a put, whatever happens to it.
_TIMEOUT_MS = 5_000
_HOLD_MS = 2_000
#: How often a consumer asks a slave.
_OF_SLAVES = 0.25
#: How often a message that is sent back is given up at once.
_GIVEN_UP = 0.2
#: How long the last reader waits for one more message.
_LAST_HOLD_MS = 1_000
#: A message was stored, though perhaps not as safely as was asked.
_STORED = {
    ResponseCode.SUCCESS: PutStatus.PUT_OK,
    ResponseCode.FLUSH_DISK_TIMEOUT: PutStatus.FLUSH_DISK_TIMEOUT,
    ResponseCode.FLUSH_SLAVE_TIMEOUT: PutStatus.FLUSH_SLAVE_TIMEOUT,
    ResponseCode.SLAVE_NOT_AVAILABLE: PutStatus.SLAVE_NOT_AVAILABLE,
}


@attrs.frozen
class SentMessage:
    """A message, which its key names."""

    key: str
    queue_id: int
    body: bytes
    #: Its delay level; 0: it is not delayed.
    level: int = 0

    @property
    def first_queue_id(self) -> int:
        """That of the queue where it is first."""
        return self.level - 1 if self.level else self.queue_id


def _request(messages: Sequence[SentMessage]) -> RemotingCommand:
    """A batch, if there are several."""
    first, *others = messages
    if not others:
        delay = {"DELAY": str(first.level)} if first.level else {}
        return send_request(CHAOS_TOPIC, first.body, first.queue_id, {"KEYS": first.key} | delay)
    body = encode_batch([(each.body, 0, {"KEYS": each.key}) for each in messages])
    return send_request(CHAOS_TOPIC, body, first.queue_id, batch=True)


@attrs.define(eq=False, repr=False)
class _Cursor:
    """How far a reader has read a queue: the offset that it asks for next, and the one that must come."""

    queue_id: int
    asks: int = 0
    expects: int = 0


@attrs.define(eq=False, repr=False)
class RemoteClients(ClientsApart):
    """See the module. Each message that a consumer reads is compared with what a producer has sent."""

    _consumers: Node = attrs.field(init=False)
    #: By key, and by queue those that must be sent again.
    _sent: dict[str, SentMessage] = attrs.field(factory=dict, init=False)
    _again: dict[int, list[SentMessage]] = attrs.field(
        factory=lambda: {queue: [] for queue in range(WRITERS)}, init=False
    )

    def __attrs_post_init__(self) -> None:
        super().__attrs_post_init__()
        self._consumers = self.brokers.world.node(CONSUMERS)

    def boot(self) -> None:
        """Start both machines."""
        self._producers.boot(self._produce_all)
        self._consumers.boot(self._consume_all)

    async def stop(self) -> None:
        """Return when both have stopped in order."""
        self._stopping.set()
        await self._producers.wait_down()
        await self._consumers.wait_down()

    def _master(self) -> str | None:
        brokers = self.brokers
        return next((name for name in brokers.running if self.is_put_to(brokers.broker(name), name)), None)

    def _answers(self, processors: ProcessorTable) -> None:
        """What else clients answer."""

    def _hooks(self, name: str) -> Sequence[RpcHook]:
        """What looks at the requests of the client of that name."""
        return ()

    @contextlib.asynccontextmanager
    async def _open(self, name: str, node: Node) -> AsyncIterator[RemotingClient]:
        tracer = self.brokers.recorder.tracer(node.name)
        async with open_actor_system(name, tracer, entropy=node.entropy) as system:
            processors = ProcessorTable(tracer)
            processors.register([RequestCode.NOTIFY_CONSUMER_IDS_CHANGED], lambda _: None)
            self._answers(processors)
            remoting = RemotingClient(RemotingClientConfig(), node.entropy, tracer, processors, self._hooks(name))
            await system.start(remoting)
            yield remoting

    def _client(self, remoting: RemotingClient, broker: str, timeout_ms: int = _TIMEOUT_MS) -> ThinClient:
        address = self.brokers.addresses(broker).remoting
        return ThinClient(lambda request: remoting.invoke(address, request, timeout_ms), "consumer-1", "ChaosGroup")

    # --- producers --------------------------------------------------------------------------------------------------

    async def _produce_all(self, node: Node) -> None:
        async with trio.open_nursery() as nursery:
            for queue_id in range(WRITERS):
                nursery.start_soon(self._produce, queue_id, node)

    async def _produce(self, queue_id: int, node: Node) -> None:
        workload = self.brokers.workload
        async with self._open(f"producer-{queue_id}", node) as remoting:
            while not self._stopping.is_set():
                master = self._master()
                if master is None or not self.may_write or self.puts_left <= 0:
                    for connection in list(remoting.connections.values()):
                        connection.stop()
                    await trio.sleep(LOOK_EVERY_S)
                    continue
                stored: list[PutStatus | None] = []
                async with trio.open_nursery() as nursery:
                    for _ in range(min(workload.in_flight, self.puts_left)):
                        nursery.start_soon(self._send_next, remoting, master, queue_id, stored)
                refused = stored.count(None)
                await trio.sleep(PUT_AGAIN_S if refused else node.entropy.random() * workload.pause_s)

    async def _send_next(
        self, remoting: RemotingClient, master: str, queue_id: int, stored: list[PutStatus | None]
    ) -> None:
        if self.puts_left <= 0:
            return  # batches have taken more than one message each
        messages = self._take(queue_id)
        self._waiting += 1
        status, _ = await self._send(remoting, master, messages)
        self._waiting -= 1
        if status is None:
            self.puts_left += len(messages)
            self._again[queue_id] += messages
        stored.append(status)

    def _take(self, queue_id: int) -> list[SentMessage]:
        def new() -> SentMessage:
            return self._new(queue_id, self._body(self._producers), self._draw_level())

        # A batch cannot be delayed.
        return self._take_from(self._again[queue_id], new, lambda message: message.level > 0)

    def _draw_level(self) -> int:
        delays, entropy = self.brokers.workload.delays, self._producers.entropy
        return 1 + int(entropy.random() * DELAY_LEVELS_USED) if delays and entropy.random() < delays else 0

    def _message(self, key: str, queue_id: int, body: bytes) -> SentMessage:
        return SentMessage(key, queue_id, body)

    def _new(self, queue_id: int, body: bytes, level: int = 0) -> SentMessage:
        message = attrs.evolve(self._message(f"{len(self._sent)}", queue_id, body), level=level)
        self._sent[message.key] = message
        return message

    async def _send(
        self, remoting: RemotingClient, master: str, messages: Sequence[SentMessage]
    ) -> tuple[PutStatus | None, int]:
        """The answer, and where the last message is; None: they were refused, or the answer is lost."""
        code, first, offsets = -1, -1, [-1] * len(messages)
        try:
            answer = await self._client(remoting, master).ask(_request(messages))
        except RemotingError as error:
            status = type(error).__name__
        else:
            code, status = answer.code, ResponseCode(answer.code).name
            if "msgId" in (answer.ext_fields or {}):
                placed = decode_header(SendMessageResponseHeader, answer)
                first = placed.queue_offset
                offsets = [decode_message_id(each)[1] for each in placed.msg_id.split(",")]
        for number, (message, offset) in enumerate(zip(messages, offsets, strict=True)):
            queue_offset = first + number if offset >= 0 else -1
            told = ClientSend(
                status=status,
                key=message.key,
                queue_id=message.first_queue_id,
                queue_offset=queue_offset,
                offset=offset,
            )
            self.brokers.recorder.record(told, master)
        return _STORED.get(ResponseCode(code)) if code >= 0 else None, offsets[-1]

    async def put_last(self, name: str) -> tuple[PutStatus, int]:
        """See `Writers.put_last`."""
        answers: list[tuple[PutStatus, int]] = []

        async def send(remoting: RemotingClient) -> None:
            status, offset = await self._send(remoting, name, [self._new(0, LAST_BODY)])
            answers.append((status or PutStatus.UNKNOWN_ERROR, offset + 1))

        await self._at(self._producers, "last-producer", send)
        return answers[0]

    # --- the consumer -----------------------------------------------------------------------------------------------

    async def _consume_all(self, node: Node) -> None:
        async with self._open("consumer", node) as remoting, trio.open_nursery() as nursery:
            for queue_id in range(WRITERS):
                nursery.start_soon(self._consume, remoting, _Cursor(queue_id))
            nursery.start_soon(self._beat, remoting)

    async def _beat(self, remoting: RemotingClient) -> None:
        while not self._stopping.is_set():
            if (master := self._master()) is not None:
                with contextlib.suppress(RemotingError):
                    await self._client(remoting, master).heartbeat(subscription(CHAOS_TOPIC))
            with trio.move_on_after(_HOLD_MS / 1000):
                await self._stopping.wait()

    async def _consume(self, remoting: RemotingClient, cursor: _Cursor) -> None:
        """Read what comes, until the run is over."""
        while not self._stopping.is_set():
            broker = self._source()
            pulled = None if broker is None else await self._pull(remoting, broker, cursor, "Consumer", _HOLD_MS)
            if pulled is None or not pulled.messages:
                await trio.sleep(LOOK_EVERY_S)
            elif self.brokers.workload.retries:
                await self._send_some_back(remoting, pulled.messages)

    async def _send_some_back(self, remoting: RemotingClient, messages: Sequence[StoredMessage]) -> None:
        """What could not be consumed: it comes to the group again, or goes to its dead letters."""
        entropy = self._consumers.entropy
        for message in messages:
            master = self._master()
            # Once all is put, what is sent back would come after the end of the run.
            if self.puts_left <= 0 or master is None or entropy.random() >= self.brokers.workload.retries:
                continue
            level = -1 if entropy.random() < _GIVEN_UP else 1 + int(entropy.random() * DELAY_LEVELS_USED)
            self._waiting += 1
            with contextlib.suppress(RemotingError):
                await self._client(remoting, master).send_back(message, level)
            self._waiting -= 1

    def has_all_delayed(self, broker: BrokerController) -> bool:
        """Whether a master has delivered every delayed message."""
        assert broker.remoting is not None
        delivered, offsets = broker.remoting.metadata.delay_offsets.offset_table, broker.store.offsets
        return all(
            delivered.get(level, 0) == offsets.get_max_offset_in_queue(SCHEDULE_TOPIC, level - 1)
            for level in range(1, DELAY_LEVELS_USED + 1)
        )

    def _source(self) -> str | None:
        """Mostly the master; a consumer tells flipped bits by a message's checksum, and leaves such a slave alone."""
        brokers, entropy = self.brokers, self._consumers.entropy
        slaves = [name for name in brokers.running if not brokers.view.nodes[name].rotten]
        if slaves and entropy.random() < _OF_SLAVES:
            return slaves[int(entropy.random() * len(slaves))]
        return self._master()

    async def read_all(self, name: str) -> None:
        """A reader that knows nothing yet reads every queue of broker `name` to its end."""

        async def read(remoting: RemotingClient) -> None:
            for queue_id in range(WRITERS):
                cursor, is_at_end = _Cursor(queue_id), False
                while not is_at_end:
                    before = cursor.asks
                    pulled = await self._pull(remoting, name, cursor, LAST_READER, _LAST_HOLD_MS)
                    if pulled is None:
                        await trio.sleep(LOOK_EVERY_S)
                    is_at_end = pulled is not None and not pulled.messages and cursor.asks == before

        await self._at(self._consumers, "last-reader", read)

    async def _pull(
        self, remoting: RemotingClient, broker: str, cursor: _Cursor, reader: str, hold_ms: int
    ) -> Pulled | None:
        """The answer, after the cursor has gone on; None if there is none, or it does not come from the queue."""
        client, asked = self._client(remoting, broker, hold_ms + _TIMEOUT_MS), cursor.asks
        try:
            commit = None if reader == LAST_READER else asked
            pulled = await client.pull(CHAOS_TOPIC, asked, cursor.queue_id, hold_ms=hold_ms, commit=commit)
        except RemotingError:
            return None
        if pulled.header is None:
            return None
        self._tell(pulled, pulled.header, broker, cursor, reader)
        cursor.asks = pulled.header.next_begin_offset
        cursor.expects = pulled.messages[-1].queue_offset + 1 if pulled.messages else cursor.asks
        return pulled

    def _tell(
        self, pulled: Pulled, header: PullMessageResponseHeader, broker: str, cursor: _Cursor, reader: str
    ) -> None:
        recorder, expected = self.brokers.recorder, cursor.expects
        told = ClientPull(
            status=ResponseCode(pulled.code).name,
            queue_id=cursor.queue_id,
            queue_offset=cursor.asks,
            queue_offset_next=header.next_begin_offset,
            queue_offset_min=header.min_offset,
        )
        recorder.record(told, broker, reader)
        for message, record in zip(pulled.messages, pulled.records, strict=True):
            read = ClientRead(
                status="as_sent" if self._is_as_sent(message, cursor.queue_id) else "altered",
                queue_id=cursor.queue_id,
                queue_offset=message.queue_offset,
                expected=expected,
                offset=message.physical_offset,
                size=len(record),
                checksum=zlib.crc32(record),
            )
            recorder.record(read, broker, reader)
            expected = message.queue_offset + 1

    def _is_as_sent(self, message: StoredMessage, queue_id: int) -> bool:
        sent = self._sent.get(message.properties.get("KEYS", ""))
        found = message.topic, message.queue_id, message.body
        return sent is not None and found == (CHAOS_TOPIC, queue_id, sent.body) and sent.queue_id == queue_id

    async def _at(self, node: Node, name: str, use: Callable[[RemotingClient], Awaitable[None]]) -> None:
        """Run `use` in the node's process, with a client of its own."""

        async def run() -> None:
            async with self._open(name, node) as remoting:
                await use(remoting)

        await self._within(node, run)
