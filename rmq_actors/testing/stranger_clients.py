"""Clients of a run, and strangers beside them, whose requests are drawn from a table: `StrangerClients`.

What they ask and what is right stands in `strange_requests.py` and its like; here it is sent, and told in the trace.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping

import attrs
import msgspec
import trio

from rmq_actors.remoting.client import RemotingClient
from rmq_actors.remoting.connection import RemotingError
from rmq_actors.remoting.processor import ProcessorTable
from rmq_actors.testing.brokers import HA_CONNECTIONS_MAX, STORE
from rmq_actors.testing.clients import LOOK_EVERY_S, PUT_AGAIN_S
from rmq_actors.testing.invariants.read_in_the_end import LAST_READER
from rmq_actors.testing.read_queue import Found, read_queue
from rmq_actors.testing.remote_clients import RemoteClients
from rmq_actors.testing.strange_bytes import NO_FRAME
from rmq_actors.testing.strange_puts import MESSAGE_BYTES_MAX
from rmq_actors.testing.strange_requests import (
    GROUP,
    NOT_ASKED,
    STRANGE_QUEUES,
    STRANGE_TOPIC,
    UNANSWERED,
    WAITING_PUTS_MAX,
    Dice,
    StrangeRequest,
    overtaken,
    read_message,
)
from rmq_actors.testing.strange_rules import ANSWERED_AT_ONCE, draw
from rmq_actors.testing.stranger_peers import StrangerPeers
from rmq_actors.testing.thin_client import Pulled, ThinClient
from rmq_actors.tracing.events.run import ClientStranger, ClientStrangerLeaves
from rmq_actors.wire.address import parse_address
from rmq_actors.wire.frame_reader import FrameReader
from rmq_actors.wire.headers.topics import CreateTopicRequestHeader
from rmq_actors.wire.remoting_command import RemotingCommand, encode_command
from rmq_actors.wire.request_code import RequestCode
from rmq_actors.wire.response_code import ResponseCode
from sim_net import Node

#: What brokers have whom strangers ask.
STORE_OF_STRANGERS = attrs.evolve(
    STORE,
    max_message_size_bytes=MESSAGE_BYTES_MAX,
    waiting_puts_max=WAITING_PUTS_MAX,
    enable_lmq=True,
    enable_multi_dispatch=True,
)
_STRANGERS = 2
#: How many lean on ports at a time; and how often so many come to the HA port that it would be full of them.
_AT_HA, _AT_REMOTING, _CROWDS = 2, 2, 0.2
_READ_AND_WRITE = 6
_TIMEOUT_MS = 5_000
#: How many requests a stranger sends at once, at most.
_BURST_MAX = 6
#: How often they go out in one write.
_BURSTS = 0.5
#: How often so many of one kind come in one write: more than may wait, or what is answered at once, and no frame then.
_OF_FLOODS, _FLOOD, _FLOODS = 0.1, 12, ("good", *ANSWERED_AT_ONCE)
#: How often a broker is asked that is a slave, most likely.
_OF_SLAVES = 0.35


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

    def _answers(self, processors: ProcessorTable) -> None:
        """A stranger takes what others reply."""
        processors.register([RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT], lambda each: each.command.response(0))

    # --- strangers --------------------------------------------------------------------------------------------------

    async def _produce_all(self, node: Node) -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(super()._produce_all, node)
            for number in range(_STRANGERS):
                nursery.start_soon(self._visit_all, number, node)

    async def _consume_all(self, node: Node) -> None:
        dice = Dice(node.entropy)
        at_ha = HA_CONNECTIONS_MAX if dice.random() < _CROWDS else _AT_HA
        async with trio.open_nursery() as nursery:
            nursery.start_soon(super()._consume_all, node)
            nursery.start_soon(StrangerPeers(self.brokers, self._stopping).run, dice, at_ha, _AT_REMOTING)

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
        kind = rng.choice(_FLOODS) if rng.random() < _OF_FLOODS else None
        count = min(_FLOOD if kind else 1 + rng.randrange(_BURST_MAX), self.strangers_left)
        self.strangers_left -= count
        requests: dict[str, StrangeRequest] = {}
        for _ in range(count):
            self._asked += 1
            key = f"s{self._asked}"
            requests[key] = draw(rng, key, self.brokers.workload.log_file_bytes, kind)
        codes: list[int] = []
        is_burst = kind is not None or rng.random() < _BURSTS
        if is_burst and all(len(request.steps) == 1 for request in requests.values()):
            await self._ask_in_one_write(broker, requests, codes)
        else:
            async with trio.open_nursery() as nursery:
                for key, request in requests.items():
                    nursery.start_soon(self._ask, remoting, broker, request, key, codes)
        return ResponseCode.TOPIC_NOT_EXIST not in codes

    async def _ask(
        self, remoting: RemotingClient, broker: str, request: StrangeRequest, key: str, codes: list[int]
    ) -> None:
        self._note_asked(broker, request, key)
        status, detail, answers = NOT_ASKED, "", list[RemotingCommand]()
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

    async def _ask_in_one_write(self, broker: str, requests: Mapping[str, StrangeRequest], codes: list[int]) -> None:
        """On a connection of its own: what is asked first is done first."""
        commands = [request.steps[0](()) for request in requests.values()]
        for key, request in requests.items():
            self._note_asked(broker, request, key)
        frames = [
            encode_command(msgspec.structs.replace(command, opaque=opaque))
            for opaque, command in enumerate(commands)
            if command is not None
        ]
        kinds = {request.kind for request in requests.values()}
        tail = NO_FRAME if kinds.issubset(ANSWERED_AT_ONCE) else b""
        is_over, answers = False, dict[int, RemotingCommand]()
        with trio.move_on_after(_TIMEOUT_MS / 1000), contextlib.suppress(OSError, trio.BrokenResourceError):
            stream = await trio.open_tcp_stream(*parse_address(self.brokers.addresses(broker).remoting))
            async with stream:
                await stream.send_all(b"".join(frames) + tail)
                is_over = await _receive(stream, answers, len(frames))
        wrong = overtaken([(request, answers.get(number)) for number, request in enumerate(requests.values())])
        for number, (key, request) in enumerate(requests.items()):
            answer = answers.get(number)
            if answer is None:
                self._note(broker, request, key, UNANSWERED if is_over and tail else "no_answer")
                continue
            codes.append(answer.code)
            detail = request.wrong(self._role(broker), [answer]) or wrong
            self._note(broker, request, key, ResponseCode(answer.code).name, detail)

    def _note_asked(self, broker: str, request: StrangeRequest, key: str) -> None:
        for left in request.leaves:
            self._may_be.add(left.checksum)
            status = "delayed" if left.is_delayed else "plain"
            told = ClientStrangerLeaves(status=status, key=key, queue_id=left.queue_id, checksum=left.checksum)
            self.brokers.recorder.record(told, broker)
        self._note(broker, request, key, "asked")

    def _note(self, broker: str, request: StrangeRequest, key: str, status: str, detail: str = "") -> None:
        told = ClientStranger(status=status, operation=request.kind, key=key, role=self._role(broker), detail=detail)
        self.brokers.recorder.record(told, broker)

    def _role(self, name: str) -> str:
        """As the broker says; "" while it does not run, and while it changes its role."""
        if name not in self.brokers.running:
            return ""
        broker = self.brokers.broker(name)
        if broker.remoting is None or broker.remoting.open_store is None:
            return ""
        return "SLAVE" if broker.config.is_slave else "MASTER"

    def _at_broker(self, remoting: RemotingClient, broker: str) -> ThinClient:
        address = self.brokers.addresses(broker).remoting

        async def ask(request: RemotingCommand) -> RemotingCommand:
            return await remoting.invoke(address, request, _TIMEOUT_MS)

        return ThinClient(ask, "stranger", GROUP)

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

        def found(pulled: Pulled) -> Iterator[Found]:
            for message in map(read_message, pulled.records):
                is_as_sent = message.topic == STRANGE_TOPIC and message.checksum in self._may_be
                yield Found(message.offset, message.queue_offset, is_as_sent)

        end = await read_queue(self.brokers, client, broker, STRANGE_TOPIC, queue_id, LAST_READER, found)
        return end is not None


async def _receive(stream: trio.SocketStream, answers: dict[int, RemotingCommand], count: int) -> bool:
    """Take so many answers, or as many as there are; whether the peer has ended the connection in order."""
    reader = FrameReader()
    while len(answers) < count:
        data = await stream.receive_some()
        if not data:
            return True
        rest = memoryview(data)
        while rest:
            with reader.free_space() as space:
                size = min(len(space), len(rest))
                space[:size] = rest[:size]
            reader.received(size)
            rest = rest[size:]
        while commands := reader.commands():
            answers.update({command.opaque: command for command in commands})
    return False
