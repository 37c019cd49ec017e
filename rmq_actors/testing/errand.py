"""What an errand of a client is made of: `Errand`, with visitors on connections of their own.

The errands themselves are in `errands.py`, and in `errands_of_transactions.py` and its like.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Callable

import attrs
import trio

from rmq_actors.actors.system import open_actor_system
from rmq_actors.broker.config import BrokerConfig
from rmq_actors.remoting.client import RemotingClient
from rmq_actors.remoting.config import RemotingClientConfig
from rmq_actors.remoting.connection import RemotingRequest
from rmq_actors.remoting.processor import ProcessorTable
from rmq_actors.testing.brokers import BrokersUnderTest
from rmq_actors.testing.thin_client import Prepared, Pulled, ThinClient
from rmq_actors.tracing.events.run import FaultBegin
from rmq_actors.wire.headers import decode_header
from rmq_actors.wire.headers.messages import SendMessageResponseHeader
from rmq_actors.wire.headers.transactions import CheckTransactionStateRequestHeader
from rmq_actors.wire.message_id import decode_message_id
from rmq_actors.wire.record import StoredMessage, decode_message
from rmq_actors.wire.remoting_command import RemotingCommand
from rmq_actors.wire.request_code import RequestCode
from rmq_actors.wire.response_code import ResponseCode
from sim_net import ClockDrift, ClockJump, Node

#: Within this time comes what should come at once: links take up to 20 ms, and a pool is committed each 200 ms.
AT_ONCE_S = 1.0
_TIMEOUT_MS = 10_000
_CLOCK_FAULTS = frozenset({ClockJump.__name__, ClockDrift.__name__})


class GivenUp(Exception):
    """Something was refused that the errand needs: it says nothing."""


def minds_all(_: FaultBegin) -> bool:
    """No fault is ignored."""
    return False


def is_of_a_clock(fault: FaultBegin) -> bool:
    """What is measured in seconds that pass does not depend on wall clocks."""
    return fault.fault_kind in _CLOCK_FAULTS


@attrs.define(eq=False, repr=False)
class Visitor:
    """One client, and what the broker has told and asked it."""

    client: ThinClient
    #: How often it was told that the members of its group have changed.
    told: int = 0
    #: The half messages that it was asked about, and what each question has of the message.
    asked: list[Prepared] = attrs.field(factory=list)
    questions: list[StoredMessage] = attrs.field(factory=list)
    _came: trio.Event = attrs.field(factory=trio.Event, init=False)

    def came(self) -> None:
        """Something was told or asked."""
        self._came.set()
        self._came = trio.Event()

    async def wait(self, is_so: Callable[[], bool], limit_s: float) -> bool:
        """Return when what it was told makes it so, or after `limit_s`; whether it is so."""
        with trio.move_on_after(limit_s):
            while not is_so():
                await self._came.wait()
        return is_so()


@attrs.define(eq=False, repr=False)
class Errand:
    """One errand at the broker `master`: it has a topic and a group of its own."""

    number: int
    master: str
    brokers: BrokersUnderTest
    node: Node
    _visitors: int = attrs.field(default=0, init=False)

    @property
    def topic(self) -> str:
        """A topic that no other errand has."""
        return f"Errand-{self.number}"

    @property
    def group(self) -> str:
        """A group that no other errand has."""
        return f"GroupOfErrand-{self.number}"

    def a_slave(self) -> str:
        """One that follows, by its name. Raises `GivenUp` if there is none."""
        brokers = self.brokers
        slaves = [each for each in brokers.running if each != self.master and brokers.status(each).is_following]
        if not slaves:
            raise GivenUp
        return slaves[self.below(len(slaves))]

    @property
    def config(self) -> BrokerConfig:
        """The settings that the master has now. Raises `GivenUp` if it does not run."""
        if self.master not in self.brokers.running:
            raise GivenUp
        return self.brokers.broker(self.master).config

    def below(self, count: int) -> int:
        """A number that is drawn."""
        return int(self.node.entropy.random() * count)

    @contextlib.asynccontextmanager
    async def visitor(self, broker: str = "") -> AsyncIterator[Visitor]:
        """A client of the master, or of another broker, on a connection of its own."""
        async with self._visitor(self.brokers.addresses(broker or self.master).remoting) as visitor:
            yield visitor

    @contextlib.asynccontextmanager
    async def visitor_of_name_server(self) -> AsyncIterator[Visitor]:
        """One that asks the name server."""
        assert self.brokers.name_server is not None
        async with self._visitor(self.brokers.name_server) as visitor:
            yield visitor

    @contextlib.asynccontextmanager
    async def _visitor(self, address: str) -> AsyncIterator[Visitor]:
        self._visitors += 1
        name = f"errand-{self.number}-{self._visitors}"
        tracer = self.brokers.recorder.tracer(self.node.name)
        async with open_actor_system(name, tracer, entropy=self.node.entropy) as system:
            processors = ProcessorTable(tracer)
            remoting = RemotingClient(RemotingClientConfig(), self.node.entropy, tracer, processors)

            async def ask(request: RemotingCommand) -> RemotingCommand:
                answer = await remoting.invoke(address, request, _TIMEOUT_MS)
                if answer.code == ResponseCode.SERVICE_NOT_AVAILABLE:
                    raise GivenUp  # its role begins to change, of which it tells when that is done
                return answer

            visitor = Visitor(ThinClient(ask, name, self.group))

            def note(_: RemotingRequest) -> None:
                visitor.told += 1
                visitor.came()

            def note_question(request: RemotingRequest) -> None:
                header = decode_header(CheckTransactionStateRequestHeader, request.command)
                message = decode_message(memoryview(request.command.body))
                key = message.properties.get("UNIQ_KEY", "")
                visitor.questions.append(message)
                visitor.asked.append(Prepared(header.tran_state_table_offset, header.commit_log_offset, key))
                visitor.came()

            processors.register([RequestCode.NOTIFY_CONSUMER_IDS_CHANGED], note)
            processors.register([RequestCode.CHECK_TRANSACTION_STATE], note_question)
            # Who wants to know how it is gets no answer.
            processors.register([RequestCode.GET_CONSUMER_RUNNING_INFO], lambda _: None)
            await system.start(remoting)
            yield visitor

    # --- steps ------------------------------------------------------------------------------------------------------

    async def send(self, client: ThinClient, body: bytes, topic: str = "", **fields: object) -> int:
        """Where the message is in the log. Raises `GivenUp` unless it is as safe as was asked."""
        code, sent = await client.send(topic or self.topic, body, 0, {"KEYS": body.decode()}, **fields)
        if code != ResponseCode.SUCCESS or not isinstance(sent, SendMessageResponseHeader):
            raise GivenUp
        return decode_message_id(sent.msg_id)[1]

    async def read(self, client: ThinClient, topic: str = "", limit_s: float = AT_ONCE_S, count: int = 1) -> Pulled:
        """Queue 0 from its beginning, once it has `count` messages, at the latest after `limit_s`."""
        over_at_s = trio.current_time() + limit_s
        while True:
            pulled = await client.pull(topic or self.topic, 0)
            if len(pulled.messages) >= count or trio.current_time() >= over_at_s:
                return pulled
            await trio.sleep(limit_s / 10)


def check(answer: RemotingCommand) -> RemotingCommand:
    """Raises `GivenUp` if it is a refusal."""
    if answer.code != ResponseCode.SUCCESS:
        raise GivenUp
    return answer
