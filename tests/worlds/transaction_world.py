"""Producers of transactional messages at a broker in a simulated world, which answer when they are asked."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import Any

import attrs

from rmq_actors.actors.system import open_actor_system
from rmq_actors.broker.broker_controller import BrokerController
from rmq_actors.broker.transactional_message_service import TransactionalMessageService
from rmq_actors.protocols.transactional_messages import TRANS_GROUP
from rmq_actors.remoting.client import RemotingClient
from rmq_actors.remoting.config import RemotingClientConfig
from rmq_actors.remoting.connection import RemotingRequest
from rmq_actors.remoting.processor import ProcessorTable
from rmq_actors.store.config import BrokerRole
from rmq_actors.testing.thin_client import PRODUCER_GROUP, Prepared, ThinClient, end_request
from rmq_actors.wire.dispatch_request import HALF_TOPIC, OP_HALF_TOPIC
from rmq_actors.wire.headers import decode_header
from rmq_actors.wire.headers.transactions import CheckTransactionStateRequestHeader
from rmq_actors.wire.record import (
    TRANSACTION_COMMIT_TYPE,
    TRANSACTION_ROLLBACK_TYPE,
    StoredMessage,
    decode_message,
)
from rmq_actors.wire.request_code import RequestCode
from rmq_actors.wire.response_code import ResponseCode
from tests.worlds.name_server_world import CLIENT
from tests.worlds.role_world import RoleWorld

TOPIC = "TopicTx"
COMMIT, ROLLBACK, UNKNOWN = TRANSACTION_COMMIT_TYPE, TRANSACTION_ROLLBACK_TYPE, 0
TIMEOUT_MS = 6_000
#: A check each second, of what is older than a second, three times.
SETTINGS: Mapping[str, Any] = {
    "transaction_check_interval_ms": 1_000,
    "transaction_time_out_ms": 1_000,
    "transaction_check_max": 3,
}


@attrs.frozen
class Question:
    """What a producer was asked."""

    header: CheckTransactionStateRequestHeader
    message: StoredMessage
    producer: str

    @property
    def prepared(self) -> Prepared:
        """The half message that the question is about."""
        return Prepared(self.header.tran_state_table_offset, self.header.commit_log_offset, self.header.msg_id or "")


@attrs.define(eq=False)
class TransactionWorld:
    """One cluster. Messages are born when they are sent, by the world's clock."""

    servers: RoleWorld
    #: By body: how a question about the message is answered; None: not at all.
    answers: dict[bytes, int | None] = attrs.field(factory=dict)
    asked: list[Question] = attrs.field(factory=list)

    @classmethod
    def of(cls, slaves: int = 0, settings: Mapping[str, Any] | None = None, **store: Any) -> TransactionWorld:
        role = BrokerRole.SYNC_MASTER if slaves else BrokerRole.ASYNC_MASTER
        servers = RoleWorld.of(slaves, **{"broker_role": role, **store})
        servers.settings = {**SETTINGS, **(settings or {})}
        return cls(servers)

    def run(self, use: Callable[[TransactionWorld], Awaitable[None]]) -> None:
        """Call `use` once the cluster is at work, on the machine of the clients."""
        self.servers.run_well(lambda: self.servers.on_node(CLIENT, lambda: use(self)))
        assert self.servers.crashes == []

    @property
    def now_ms(self) -> int:
        """The clock of the clients."""
        return self.servers.nodes[CLIENT].wall_clock.now_ms()

    @contextlib.asynccontextmanager
    async def producer(
        self, name: str = "p-1", node: str = "a-0", group: str = PRODUCER_GROUP
    ) -> AsyncIterator[ThinClient]:
        """A producer with a connection of its own, that the broker knows of."""
        own, address = self.servers.nodes[CLIENT], self.servers.brokers[node].address
        tracer = self.servers.recorder.tracer(CLIENT)
        processors = ProcessorTable(tracer)
        processors.register([RequestCode.CHECK_TRANSACTION_STATE], lambda request: self._answer(request, name))
        async with open_actor_system(name, tracer, entropy=own.entropy) as system:
            remoting = RemotingClient(RemotingClientConfig(), own.entropy, tracer, processors)
            await system.start(remoting)
            client = ThinClient(lambda request: remoting.invoke(address, request, TIMEOUT_MS), name)
            await client.heartbeat(producers=[group])
            yield client

    def _answer(self, request: RemotingRequest, name: str) -> None:
        header = decode_header(CheckTransactionStateRequestHeader, request.command)
        question = Question(header, decode_message(memoryview(request.command.body)), name)
        self.asked.append(question)
        state = self.answers.get(question.message.body)
        if state is not None:
            request.connection.invoke_oneway(end_request(question.prepared, state, from_check=True))

    async def prepare(self, client: ThinClient, body: bytes, **fields: Any) -> Prepared:
        """Prepare a message that is born now."""
        properties = {"UNIQ_KEY": body.decode(), **fields.pop("properties", {})}
        code, prepared = await client.prepare(TOPIC, body, properties=properties, born_timestamp=self.now_ms, **fields)
        assert code == ResponseCode.SUCCESS, prepared
        assert isinstance(prepared, Prepared)
        return prepared

    def controller(self, node: str = "a-0") -> BrokerController:
        return self.servers.controller(node)

    def service(self, node: str = "a-0") -> TransactionalMessageService:
        remoting = self.controller(node).remoting
        assert remoting is not None
        return remoting.transactions

    def records(self, topic: str, node: str = "a-0", queue_id: int = 0) -> list[StoredMessage]:
        """The messages of a queue."""
        found: list[StoredMessage] = []
        reads = self.controller(node).store.reads
        while result := reads.get_message(topic, queue_id, len(found), 32).messages:
            found += [decode_message(each) for each in result]
        return found

    def bodies(self, topic: str = TOPIC, node: str = "a-0") -> list[bytes]:
        return [message.body for message in self.records(topic, node)]

    def done_to(self, node: str = "a-0") -> tuple[int, int]:
        """How far the half queue and the op queue are done with."""
        remoting = self.controller(node).remoting
        assert remoting is not None
        offsets = remoting.metadata.consumer_offsets
        return offsets.query_offset(TRANS_GROUP, HALF_TOPIC, 0), offsets.query_offset(TRANS_GROUP, OP_HALF_TOPIC, 0)
