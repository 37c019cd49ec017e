"""Clients of a run, and strangers beside them, whose requests are drawn from a table: `StrangerClients`.

What they ask and what is right stands in `strange_requests.py` and its like; here it is sent, and told in the trace.
"""

from __future__ import annotations

from collections.abc import Sequence

import attrs
import trio

from rmq_actors.remoting.client import RemotingClient
from rmq_actors.remoting.connection import RemotingError
from rmq_actors.testing.brokers import STORE
from rmq_actors.testing.clients import LOOK_EVERY_S, PUT_AGAIN_S
from rmq_actors.testing.invariants.read_in_the_end import LAST_READER
from rmq_actors.testing.remote_clients import RemoteClients
from rmq_actors.testing.strange_puts import MESSAGE_BYTES_MAX
from rmq_actors.testing.strange_requests import STRANGE_QUEUES, STRANGE_TOPIC, Dice, StrangeRequest, read_message
from rmq_actors.testing.strange_rules import draw
from rmq_actors.testing.thin_client import ThinClient
from rmq_actors.tracing.events.run import ClientStranger, ClientStrangerLeaves, ClientTopicPull, ClientTopicRead
from rmq_actors.wire.headers.topics import CreateTopicRequestHeader
from rmq_actors.wire.remoting_command import RemotingCommand
from rmq_actors.wire.request_code import RequestCode
from rmq_actors.wire.response_code import ResponseCode
from sim_net import Node

#: What brokers have whom strangers ask.
STORE_OF_STRANGERS = attrs.evolve(STORE, max_message_size_bytes=MESSAGE_BYTES_MAX)
_STRANGERS = 2
_GROUP = "Strangers"
_READ_AND_WRITE = 6
_TIMEOUT_MS = 5_000
#: How many requests a stranger sends at once, at most.
_BURST_MAX = 4
#: How often a broker is asked that is a slave, most likely.
_OF_SLAVES = 0.2


@attrs.define(eq=False, repr=False)
class StrangerClients(RemoteClients):
    """See the module. `strangers_left` is how many requests are yet to be made."""

    strangers_left: int = attrs.field(default=0, init=False)
    _visiting: int = attrs.field(default=0, init=False)
    _asked: int = attrs.field(default=0, init=False)
    #: What may be in a log.
    _may_be: set[int] = attrs.field(factory=set, init=False)

    def __attrs_post_init__(self) -> None:
        super().__attrs_post_init__()
        self.strangers_left = self.brokers.workload.strangers

    @property
    def are_done(self) -> bool:
        """Whether all strangers have gone."""
        return self.strangers_left <= 0 and not self._visiting

    # --- strangers --------------------------------------------------------------------------------------------------

    async def _produce_all(self, node: Node) -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(super()._produce_all, node)
            for number in range(_STRANGERS):
                nursery.start_soon(self._visit_all, number, node)

    async def _visit_all(self, number: int, node: Node) -> None:
        rng = Dice(node.entropy)
        has_topic = False
        async with self._open(f"stranger-{number}", node) as remoting:
            while not self._stopping.is_set():
                master = self._master()
                if master is None or not self.may_write or self.strangers_left <= 0:
                    await self._rest(remoting)
                    continue
                self._visiting += 1
                self._waiting += 1
                has_topic = has_topic or await self._make_topic(remoting, master)
                if has_topic:
                    has_topic = await self._visit(remoting, master, rng)
                self._waiting -= 1
                self._visiting -= 1
                await trio.sleep(rng.random() * self.brokers.workload.pause_s if has_topic else PUT_AGAIN_S)

    async def _rest(self, remoting: RemotingClient) -> None:
        """Let go of brokers for a moment."""
        for connection in list(remoting.connections.values()):
            connection.stop()
        await trio.sleep(LOOK_EVERY_S)

    async def _make_topic(self, remoting: RemotingClient, master: str) -> bool:
        header = CreateTopicRequestHeader(
            STRANGE_TOPIC, "TBW102", STRANGE_QUEUES, STRANGE_QUEUES, _READ_AND_WRITE, "SINGLE_TAG"
        )
        try:
            answer = await self._at_broker(remoting, master).request(RequestCode.UPDATE_AND_CREATE_TOPIC, header)
        except RemotingError:
            return False
        return answer.code == ResponseCode.SUCCESS

    async def _visit(self, remoting: RemotingClient, master: str, rng: Dice) -> bool:
        """Ask some things at once; whether the topic was there."""
        broker = rng.choice(self.brokers.running) if rng.random() < _OF_SLAVES else master
        count = min(1 + rng.randrange(_BURST_MAX), self.strangers_left)
        self.strangers_left -= count
        requests = list[StrangeRequest]()
        for _ in range(count):
            self._asked += 1
            requests.append(draw(rng, f"s{self._asked}", self.brokers.workload.log_file_bytes))
        codes: list[int] = []
        async with trio.open_nursery() as nursery:
            for number, request in enumerate(requests):
                nursery.start_soon(self._ask, remoting, broker, request, f"s{self._asked - count + number + 1}", codes)
        return ResponseCode.TOPIC_NOT_EXIST not in codes

    async def _ask(
        self, remoting: RemotingClient, broker: str, request: StrangeRequest, key: str, codes: list[int]
    ) -> None:
        recorder = self.brokers.recorder
        for left in request.leaves:
            self._may_be.add(left.checksum)
            status = "delayed" if left.is_delayed else "plain"
            recorder.record(
                ClientStrangerLeaves(status=status, key=key, queue_id=left.queue_id, checksum=left.checksum), broker
            )
        self._note(broker, request, key, "asked")
        status, detail, answers = "not_asked", "", list[RemotingCommand]()
        try:
            for step in request.steps:
                command = step(answers)
                if command is None:
                    break
                answers.append(await self._at_broker(remoting, broker).ask(command))
        except RemotingError as error:
            status = type(error).__name__
        if len(answers) == len(request.steps):
            answer = answers[request.judged]
            status, detail = ResponseCode(answer.code).name, request.wrong(self._role(broker), answers)
            codes.append(answer.code)
        self._note(broker, request, key, status, detail)

    def _note(self, broker: str, request: StrangeRequest, key: str, status: str, detail: str = "") -> None:
        told = ClientStranger(status=status, operation=request.kind, key=key, role=self._role(broker), detail=detail)
        self.brokers.recorder.record(told, broker)

    def _role(self, name: str) -> str:
        """As the broker says; "" while it does not run."""
        brokers = self.brokers
        if name not in brokers.running:
            return ""
        return "SLAVE" if brokers.broker(name).config.is_slave else "MASTER"

    def _at_broker(self, remoting: RemotingClient, broker: str) -> ThinClient:
        address = self.brokers.addresses(broker).remoting

        async def ask(request: RemotingCommand) -> RemotingCommand:
            return await remoting.invoke(address, request, _TIMEOUT_MS)

        return ThinClient(ask, "stranger", _GROUP)

    # --- the last reader --------------------------------------------------------------------------------------------

    async def read_all(self, name: str) -> None:
        """Also what strangers have left, at each broker."""
        await super().read_all(name)
        brokers = self.brokers

        async def read(remoting: RemotingClient) -> None:
            for broker in brokers.running:
                for queue_id in range(0 if broker in brokers.view.halted else STRANGE_QUEUES):
                    while not await self._read_queue(self._at_broker(remoting, broker), broker, queue_id):  # noqa: ASYNC110 - asks
                        await trio.sleep(LOOK_EVERY_S)

        await self._at(self._consumers, "last-reader-of-strangers", read)

    async def _read_queue(self, client: ThinClient, broker: str, queue_id: int) -> bool:
        """Read a queue from its beginning to its end; whether that was possible."""
        offset = 0
        while True:
            asked_ns = self.brokers.world.now_ns
            try:
                pulled = await client.pull(STRANGE_TOPIC, offset, queue_id)
            except RemotingError:
                return False
            header = pulled.header
            told = ClientTopicPull(
                status=ResponseCode(pulled.code).name,
                topic=STRANGE_TOPIC,
                queue_id=queue_id,
                queue_offset=offset,
                queue_offset_next=-1 if header is None else header.next_begin_offset,
                queue_offset_min=-1 if header is None else header.min_offset,
                asked_ns=asked_ns,
            )
            self.brokers.recorder.record(told, broker, LAST_READER)
            if header is None:
                return pulled.code == ResponseCode.TOPIC_NOT_EXIST
            self._tell_read(pulled.records, broker, queue_id, asked_ns)
            if not pulled.messages and header.next_begin_offset == offset:
                return True
            offset = header.next_begin_offset

    def _tell_read(self, records: Sequence[bytes], broker: str, queue_id: int, asked_ns: int) -> None:
        for record in records:
            found = read_message(record)
            is_as_sent = found.topic == STRANGE_TOPIC and found.checksum in self._may_be
            told = ClientTopicRead(
                status="as_sent" if is_as_sent else "altered",
                offset=found.offset,
                topic=STRANGE_TOPIC,
                queue_id=queue_id,
                queue_offset=found.queue_offset,
                asked_ns=asked_ns,
            )
            self.brokers.recorder.record(told, broker, LAST_READER)
