"""A client of a real server that speaks RocketMQ's remoting frames and nothing above them; its calls block.

Enough to put messages of every kind and to find each of them again: by its queue, by a key, by its offset, by its time.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import socket
import struct
import time
from collections.abc import Iterator, Mapping, Sequence

import attrs

from rmq_actors.wire.properties import encode_properties
from rmq_actors.wire.record import (
    TRANSACTION_COMMIT_TYPE,
    TRANSACTION_PREPARED_TYPE,
    TRANSACTION_ROLLBACK_TYPE,
    StoredMessage,
    decode_record,
)

PULL_MESSAGE = 11
QUERY_MESSAGE = 12
SEARCH_OFFSET_BY_TIMESTAMP = 29
GET_MAX_OFFSET = 30
GET_MIN_OFFSET = 31
VIEW_MESSAGE_BY_ID = 33
END_TRANSACTION = 37
SEND_MESSAGE_V2 = 310
SEND_BATCH_MESSAGE = 320

SUCCESS = 0

#: The `version` of a 4.9.7 peer; older ones are answered differently.
V4_9_7 = 407
CALL_TIMEOUT_S = 180.0

PRODUCER_GROUP = "PG_interop"
CONSUMER_GROUP = "CG_interop"
#: Queues of a topic that is made by its first message.
QUEUES = 4

_RESPONSE_FLAG = 1
_SUBSCRIPTION_FLAG = 4
_FRAME = struct.Struct(">ii")
_BATCH_ITEM = struct.Struct(">iiiii")
_RECORD_HEAD = struct.Struct(">i24xq")


class CallRefused(Exception):
    """The broker answered with another code than SUCCESS; says which request, the code and its remark."""


@attrs.frozen
class Response:
    """The header of a response, and its body."""

    code: int
    fields: Mapping[str, str]
    remark: str
    body: bytes


@attrs.frozen
class Sent:
    """Where the broker says that it put a message."""

    queue_id: int
    queue_offset: int
    physical_offset: int


@attrs.define(eq=False)
class JavaClient:
    """One connection. Create with `connect`."""

    _connection: socket.socket
    _opaques: Iterator[int] = attrs.field(factory=itertools.count, init=False)

    @classmethod
    @contextlib.contextmanager
    def connect(cls, port: int) -> Iterator[JavaClient]:
        """A client of the broker, or name server, that listens on a port of this machine."""
        with socket.create_connection(("127.0.0.1", port), timeout=CALL_TIMEOUT_S) as connection:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            yield cls(connection)

    def call(self, code: int, fields: Mapping[str, object], body: bytes = b"", *, version: int = V4_9_7) -> Response:
        """Send a request and wait for its response, whatever its code."""
        opaque = next(self._opaques)
        header = json.dumps(
            {
                "code": code,
                "extFields": {name: str(value) for name, value in fields.items()},
                "flag": 0,
                "language": "JAVA",
                "opaque": opaque,
                "serializeTypeCurrentRPC": "JSON",
                "version": version,
            }
        ).encode()
        self._connection.sendall(_FRAME.pack(4 + len(header) + len(body), len(header)) + header + body)
        while True:
            size, header_size = _FRAME.unpack(self._receive(_FRAME.size))
            frame = self._receive(size - 4)
            answer = json.loads(frame[: header_size & 0xFFFFFF])
            # A broker sends requests of its own on the connection, too.
            if answer["flag"] & _RESPONSE_FLAG and answer["opaque"] == opaque:
                return Response(
                    answer["code"],
                    answer.get("extFields") or {},
                    answer.get("remark") or "",
                    frame[header_size & 0xFFFFFF :],
                )

    # Puts.

    def send_message(
        self, topic: str, body: bytes, *, queue_id: int = 0, properties: str = "", sys_flag: int = 0
    ) -> Response:
        """One message; the response as it is."""
        return self.call(SEND_MESSAGE_V2, _send_fields(topic, queue_id, properties, sys_flag), body)

    def put(self, topic: str, body: bytes, *, queue_id: int = 0, properties: Mapping[str, str] | None = None) -> Sent:
        """One message. Raises `CallRefused`."""
        text = encode_properties(properties or {}).decode()
        fields = _send_fields(topic, queue_id, text, sys_flag=0)
        return _sent(self._ask(SEND_MESSAGE_V2, fields, body).fields)[0]

    def put_batch(
        self, topic: str, items: Sequence[tuple[bytes, Mapping[str, str]]], *, queue_id: int = 0
    ) -> list[Sent]:
        """Bodies with their properties, as one batch. Raises `CallRefused`."""
        return self.put_raw_batch(
            topic, [(body, encode_properties(properties)) for body, properties in items], queue_id=queue_id
        )

    def put_raw_batch(
        self, topic: str, items: Sequence[tuple[bytes, bytes]], *, queue_id: int = 0, common: str = "WAIT\x01true"
    ) -> list[Sent]:
        """The same with properties that are encoded, whatever they are; `common`: those of the batch."""
        parts = []
        for body, properties in items:
            total = _BATCH_ITEM.size + len(body) + 2 + len(properties)
            parts += [_BATCH_ITEM.pack(total, 0, 0, 0, len(body)), body, struct.pack(">h", len(properties)), properties]
        fields = _send_fields(topic, queue_id, common, sys_flag=0) | {"m": "true"}
        return _sent(self._ask(SEND_BATCH_MESSAGE, fields, b"".join(parts)).fields)

    def put_in_transaction(self, topic: str, body: bytes, properties: Mapping[str, str], *, commit: bool) -> Sent:
        """A half message that is committed or rolled back; where the half message is. Raises `CallRefused`."""
        text = encode_properties({**properties, "TRAN_MSG": "true", "PGROUP": PRODUCER_GROUP}).decode()
        prepared = self._ask(
            SEND_MESSAGE_V2, _send_fields(topic, 0, text, sys_flag=TRANSACTION_PREPARED_TYPE), body
        ).fields
        half = _sent(prepared)[0]
        self._ask(
            END_TRANSACTION,
            {
                "producerGroup": PRODUCER_GROUP,
                "commitLogOffset": half.physical_offset,
                "tranStateTableOffset": half.queue_offset,
                "msgId": properties["UNIQ_KEY"],
                "transactionId": properties["UNIQ_KEY"],
                "commitOrRollback": TRANSACTION_COMMIT_TYPE if commit else TRANSACTION_ROLLBACK_TYPE,
                "fromTransactionCheck": "false",
            },
        )
        return half

    # Reads.

    def max_offset(self, topic: str, queue_id: int) -> int:
        """The offset after a queue's last message."""
        return int(self._ask(GET_MAX_OFFSET, {"topic": topic, "queueId": queue_id}).fields["offset"])

    def min_offset(self, topic: str, queue_id: int) -> int:
        """The offset of a queue's first message."""
        return int(self._ask(GET_MIN_OFFSET, {"topic": topic, "queueId": queue_id}).fields["offset"])

    def offset_at(self, topic: str, queue_id: int, timestamp_ms: int) -> int:
        """The queue offset that belongs to a store time."""
        fields = {"topic": topic, "queueId": queue_id, "timestamp": timestamp_ms}
        return int(self._ask(SEARCH_OFFSET_BY_TIMESTAMP, fields).fields["offset"])

    def pull_queue(self, topic: str, queue_id: int, subscription: str = "*") -> list[StoredMessage]:
        """Every message of a queue that a consumer with this subscription is given. Raises `CallRefused`."""
        messages: list[StoredMessage] = []
        at, end = self.min_offset(topic, queue_id), self.max_offset(topic, queue_id)
        while at < end:
            response = self.call(
                PULL_MESSAGE,
                {
                    "consumerGroup": CONSUMER_GROUP,
                    "topic": topic,
                    "queueId": queue_id,
                    "queueOffset": at,
                    "maxMsgNums": 32,
                    "sysFlag": _SUBSCRIPTION_FLAG,
                    "commitOffset": 0,
                    "suspendTimeoutMillis": 0,
                    "subscription": subscription,
                    "subVersion": 0,
                    "expressionType": "TAG",
                },
            )
            # PULL_RETRY_IMMEDIATELY: the tags of none that it looked at match.
            if response.code not in {SUCCESS, 20}:
                raise CallRefused(f"pull {topic}-{queue_id} at {at}: code {response.code}, {response.remark!r}")
            messages += decode_records(response.body)
            at = int(response.fields["nextBeginOffset"])
        return messages

    def query(self, topic: str, key: str) -> list[StoredMessage]:
        """Every message of a topic that the index has for a key: collisions of hashes, too."""
        response = self.call(
            QUERY_MESSAGE,
            {"topic": topic, "key": key, "maxNum": 64, "beginTimestamp": 0, "endTimestamp": 2**62},
        )
        return decode_records(response.body)

    def view(self, physical_offset: int) -> StoredMessage:
        """The message at an offset of the commit log. Raises `CallRefused`."""
        (message,) = decode_records(self._ask(VIEW_MESSAGE_BY_ID, {"offset": physical_offset}).body)
        return message

    def _ask(self, code: int, fields: Mapping[str, object], body: bytes = b"") -> Response:
        response = self.call(code, fields, body)
        if response.code != SUCCESS:
            raise CallRefused(f"request {code} {dict(fields)}: code {response.code}, {response.remark!r}")
        return response

    def _receive(self, size: int) -> bytes:
        data = bytearray()
        while len(data) < size:
            part = self._connection.recv(size - len(data))
            if not part:
                raise ConnectionError(f"the broker hung up after {len(data)} of {size} bytes")
            data += part
        return bytes(data)


def decode_records(data: bytes) -> list[StoredMessage]:
    """The records that stand after one another, each checked against the offset that it names itself."""
    view, messages, at = memoryview(data), [], 0
    while at < len(data):
        size, physical_offset = _RECORD_HEAD.unpack_from(view, at)
        messages.append(decode_record(view[: at + size], at, physical_offset))
        at += size
    return messages


def _send_fields(topic: str, queue_id: int, properties: str, sys_flag: int) -> dict[str, object]:
    return {
        "a": PRODUCER_GROUP,
        "b": topic,
        "c": "TBW102",
        "d": QUEUES,
        "e": queue_id,
        "f": sys_flag,
        "g": time.time_ns() // 1_000_000,
        "h": 0,
        "i": properties,
        "j": 0,
        "k": "false",
        "m": "false",
    }


def _sent(fields: Mapping[str, str]) -> list[Sent]:
    """A message id ends in the physical offset, in hex; a batch has as many, after one another's queue offsets."""
    queue_id, first = int(fields["queueId"]), int(fields["queueOffset"])
    return [
        Sent(queue_id, first + number, int(msg_id[-16:], 16))
        for number, msg_id in enumerate(fields["msgId"].split(","))
    ]
