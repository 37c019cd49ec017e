"""Requests as RocketMQ's clients make them, and nothing above them: send, pull, heartbeat, lock.

A client is made with what takes a request to a broker, so that it is the same in a simulated world and on real sockets.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence

import attrs

from rmq_actors.protocols.transactional_messages import PROPERTY_PRODUCER_GROUP, PROPERTY_TRANSACTION_PREPARED
from rmq_actors.wire.batch import encode_batch
from rmq_actors.wire.bodies.clients import GetConsumerListByGroupResponseBody
from rmq_actors.wire.bodies.decoding import decode_body
from rmq_actors.wire.bodies.encoding import encode_body
from rmq_actors.wire.bodies.heartbeat import (
    ConsumeFromWhere,
    ConsumerData,
    ConsumeType,
    HeartbeatData,
    MessageModel,
    ProducerData,
    SubscriptionData,
)
from rmq_actors.wire.bodies.message_queues import (
    LockBatchRequestBody,
    LockBatchResponseBody,
    MessageQueue,
    UnlockBatchRequestBody,
)
from rmq_actors.wire.dispatch_request import PROPERTY_UNIQ_KEY
from rmq_actors.wire.headers import CommandHeader, decode_header, encode_header
from rmq_actors.wire.headers.clients import GetConsumerListByGroupRequestHeader, UnregisterClientRequestHeader
from rmq_actors.wire.headers.messages import (
    ConsumerSendMsgBackRequestHeader,
    SendMessageRequestHeaderV2,
    SendMessageResponseHeader,
)
from rmq_actors.wire.headers.offsets import (
    PullMessageRequestHeader,
    PullMessageResponseHeader,
    QueryConsumerOffsetRequestHeader,
    QueryConsumerOffsetResponseHeader,
    UpdateConsumerOffsetRequestHeader,
)
from rmq_actors.wire.headers.topics import CreateTopicRequestHeader
from rmq_actors.wire.headers.transactions import EndTransactionRequestHeader
from rmq_actors.wire.message_id import decode_message_id
from rmq_actors.wire.properties import encode_properties
from rmq_actors.wire.pull_sys_flag import PullSysFlag
from rmq_actors.wire.record import TRANSACTION_PREPARED_TYPE, StoredMessage, decode_message
from rmq_actors.wire.remoting_command import RemotingCommand
from rmq_actors.wire.request_code import RequestCode
from rmq_actors.wire.response_code import ResponseCode

DEFAULT_TOPIC = "TBW102"
#: The group that transactional messages are sent by.
PRODUCER_GROUP = "PG"
_READ_AND_WRITE = 6
Ask = Callable[[RemotingCommand], Awaitable[RemotingCommand]]


@attrs.frozen
class Pulled:
    """The answer to a pull; without a header where the broker refused it."""

    code: int
    remark: str | None
    header: PullMessageResponseHeader | None
    messages: Sequence[StoredMessage]
    #: The bytes of each message, as they stand in the broker's log.
    records: Sequence[bytes] = ()

    @property
    def bodies(self) -> list[bytes]:
        """What producers have sent."""
        return [message.body for message in self.messages]


def send_request(
    topic: str,
    body: bytes,
    queue_id: int = 0,
    properties: Mapping[str, str] | None = None,
    *,
    batch: bool = False,
    **fields: object,
) -> RemotingCommand:
    """A SEND_MESSAGE_V2, or a SEND_BATCH_MESSAGE."""
    header = SendMessageRequestHeaderV2(
        **{
            "producer_group": "PG",
            "topic": topic,
            "default_topic": DEFAULT_TOPIC,
            "default_topic_queue_nums": 4,
            "queue_id": queue_id,
            "sys_flag": 0,
            "born_timestamp": 1,
            "flag": 0,
            "properties": encode_properties(properties or {}).decode(),
            "batch": batch,
            **fields,
        }  # type: ignore[arg-type]
    )
    code = RequestCode.SEND_BATCH_MESSAGE if batch else RequestCode.SEND_MESSAGE_V2
    return RemotingCommand(code, encode_header(header), body=body)


def make_topic_request(topic: str, queues: int = 1) -> RemotingCommand:
    """UPDATE_AND_CREATE_TOPIC, as an operator asks it: a topic with as many queues for writing as for reading."""
    header = CreateTopicRequestHeader(topic, DEFAULT_TOPIC, queues, queues, _READ_AND_WRITE, "SINGLE_TAG")
    return RemotingCommand(RequestCode.UPDATE_AND_CREATE_TOPIC, encode_header(header))


@attrs.frozen
class Prepared:
    """A half message, by which its transaction is ended."""

    queue_offset: int
    offset: int
    key: str = ""


def end_request(
    prepared: Prepared, state: int, group: str = PRODUCER_GROUP, *, from_check: bool = False
) -> RemotingCommand:
    """END_TRANSACTION; as a client answers CHECK_TRANSACTION_STATE, too."""
    header = EndTransactionRequestHeader(
        group, prepared.queue_offset, prepared.offset, state, prepared.key, from_check, prepared.key
    )
    return RemotingCommand(RequestCode.END_TRANSACTION, encode_header(header))


def subscription(topic: str, tags: str = "*", version: int = 1) -> SubscriptionData:
    """What a consumer's heartbeat says of a topic."""
    return SubscriptionData(topic=topic, sub_string=tags, sub_version=version)


@attrs.frozen
class ThinClient:
    """One client; `ask` takes its requests to the broker, always on the same connection."""

    ask: Ask
    client_id: str = "client-1"
    group: str = "CG"

    async def request(
        self, code: RequestCode, header: CommandHeader | None = None, body: bytes = b""
    ) -> RemotingCommand:
        """Any request: its answer."""
        return await self.ask(RemotingCommand(code, None if header is None else encode_header(header), body=body))

    async def send(
        self, topic: str, body: bytes, queue_id: int = 0, properties: Mapping[str, str] | None = None, **fields: object
    ) -> tuple[int, SendMessageResponseHeader | str | None]:
        """The code of the answer, and where the message is, or why it is not stored."""
        answer = await self.ask(send_request(topic, body, queue_id, properties, **fields))  # type: ignore[arg-type]
        if "msgId" not in (answer.ext_fields or {}):
            return answer.code, answer.remark
        return answer.code, decode_header(SendMessageResponseHeader, answer)

    async def prepare(
        self, topic: str, body: bytes, queue_id: int = 0, properties: Mapping[str, str] | None = None, **fields: object
    ) -> tuple[int, Prepared | str | None]:
        """Send a message whose transaction is to be ended: the code of the answer, and the half message."""
        marked = {**(properties or {}), PROPERTY_TRANSACTION_PREPARED: "true", PROPERTY_PRODUCER_GROUP: PRODUCER_GROUP}
        code, sent = await self.send(topic, body, queue_id, marked, **{"sys_flag": TRANSACTION_PREPARED_TYPE, **fields})
        if not isinstance(sent, SendMessageResponseHeader):
            return code, sent
        return code, Prepared(sent.queue_offset, decode_message_id(sent.msg_id)[1], marked.get(PROPERTY_UNIQ_KEY, ""))

    async def end(self, prepared: Prepared, state: int, group: str = PRODUCER_GROUP) -> RemotingCommand:
        """Commit (8) or roll back (12) what was prepared."""
        return await self.ask(end_request(prepared, state, group))

    async def send_batch(self, topic: str, bodies: Sequence[bytes]) -> RemotingCommand:
        """All messages in one request."""
        return await self.ask(send_request(topic, encode_batch([(body, 0, {}) for body in bodies]), batch=True))

    async def heartbeat(self, *subscriptions: SubscriptionData, producers: Sequence[str] = ()) -> RemotingCommand:
        """One heartbeat: as a consumer of its group if it subscribes anything."""
        consumer = ConsumerData(
            consume_from_where=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET,
            consume_type=ConsumeType.CONSUME_PASSIVELY,
            group_name=self.group,
            message_model=MessageModel.CLUSTERING,
            subscription_data_set=list(subscriptions),
        )
        data = HeartbeatData(
            client_id=self.client_id,
            consumer_data_set=[consumer] if subscriptions else [],
            producer_data_set=[ProducerData(group_name=name) for name in producers],
        )
        return await self.request(RequestCode.HEART_BEAT, body=encode_body(data))

    async def leave(self) -> RemotingCommand:
        """The group, as a consumer that shuts down does."""
        return await self.request(
            RequestCode.UNREGISTER_CLIENT, UnregisterClientRequestHeader(self.client_id, None, self.group)
        )

    async def pull(
        self,
        topic: str,
        offset: int,
        queue_id: int = 0,
        *,
        hold_ms: int = 0,
        tags: str | None = "*",
        commit: int | None = None,
        max_messages: int = 32,
    ) -> Pulled:
        """Pull; `tags` None: what the group's heartbeats subscribe counts."""
        flags = PullSysFlag(0)
        flags |= PullSysFlag.SUSPEND if hold_ms else PullSysFlag(0)
        flags |= PullSysFlag.SUBSCRIPTION if tags is not None else PullSysFlag(0)
        flags |= PullSysFlag.COMMIT_OFFSET if commit is not None else PullSysFlag(0)
        header = PullMessageRequestHeader(
            self.group, topic, queue_id, offset, max_messages, int(flags), commit or 0, hold_ms, 0, tags
        )
        answer = await self.request(RequestCode.PULL_MESSAGE, header)
        if "nextBeginOffset" not in (answer.ext_fields or {}):
            return Pulled(answer.code, answer.remark, None, ())
        records, found = _records(answer.body), decode_header(PullMessageResponseHeader, answer)
        return Pulled(
            answer.code, answer.remark, found, [decode_message(memoryview(each)) for each in records], records
        )

    async def send_back(
        self, message: StoredMessage, delay_level: int = 0, max_reconsume_times: int | None = None
    ) -> RemotingCommand:
        """Have a message that the group could not consume delivered to it again."""
        header = ConsumerSendMsgBackRequestHeader(
            message.physical_offset, self.group, delay_level, max_reconsume_times=max_reconsume_times
        )
        return await self.request(RequestCode.CONSUMER_SEND_MSG_BACK, header)

    async def members(self) -> list[str] | None:
        """The client ids of the group; None if there is no such group."""
        header = GetConsumerListByGroupRequestHeader(self.group)
        answer = await self.request(RequestCode.GET_CONSUMER_LIST_BY_GROUP, header)
        if answer.code != ResponseCode.SUCCESS:
            return None
        return decode_body(GetConsumerListByGroupResponseBody, answer.body).consumer_id_list

    async def commit(self, topic: str, offset: int, queue_id: int = 0) -> RemotingCommand:
        """How far the group has consumed a queue."""
        header = UpdateConsumerOffsetRequestHeader(self.group, topic, queue_id, offset)
        return await self.request(RequestCode.UPDATE_CONSUMER_OFFSET, header)

    async def committed(self, topic: str, queue_id: int = 0) -> int | None:
        """The group's offset; None if the broker knows of none."""
        header = QueryConsumerOffsetRequestHeader(self.group, topic, queue_id)
        answer = await self.request(RequestCode.QUERY_CONSUMER_OFFSET, header)
        if answer.code != ResponseCode.SUCCESS:
            return None
        return decode_header(QueryConsumerOffsetResponseHeader, answer).offset

    async def lock(self, *queues: MessageQueue) -> list[MessageQueue]:
        """Those of the queues that this client has now."""
        asked = LockBatchRequestBody(client_id=self.client_id, consumer_group=self.group, mq_set=list(queues))
        answer = await self.request(RequestCode.LOCK_BATCH_MQ, body=encode_body(asked))
        return decode_body(LockBatchResponseBody, answer.body).lock_ok_mq_set

    async def unlock(self, *queues: MessageQueue) -> RemotingCommand:
        """Give locks back."""
        asked = UnlockBatchRequestBody(client_id=self.client_id, consumer_group=self.group, mq_set=list(queues))
        return await self.request(RequestCode.UNLOCK_BATCH_MQ, body=encode_body(asked))


def _records(body: bytes) -> list[bytes]:
    found = list[bytes]()
    while body:
        size = int.from_bytes(body[:4], "big")
        found.append(body[:size])
        body = body[size:]
    return found
