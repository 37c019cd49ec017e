"""A client of sockets and struct alone: what a producer and a consumer in Python cost at the least.

It writes RocketMQ's frames as they are (JSON headers, SEND_MESSAGE_V2 and PULL_MESSAGE) to one connection, and takes
every field of each pulled record apart. It has no routes, retries, time-outs, tasks or checks.
"""

from __future__ import annotations

import re
import socket
import struct
import time
from collections.abc import Callable, Iterator
from typing import NamedTuple

_FRAME = struct.Struct(">iI")
#: totalSize, magic, bodyCRC, queueId, flag, queueOffset, physicalOffset, sysFlag, bornTimestamp, bornHost (address and
#: port), storeTimestamp, storeHost, reconsumeTimes, preparedTransactionOffset, and the length of the body.
_RECORD = struct.Struct(">iiiiiqqiq4siq4siiqi")
_SHORT = struct.Struct(">h")
_SUCCESS, _OPAQUE = b'"code":0,', re.compile(rb'"opaque":(\d+)')
_NEXT_OFFSET = re.compile(rb'"nextBeginOffset":"(\d+)"')
_SEND, _PULL, _ROUTE = 310, 11, 105
_HOST_AND_PORT = re.compile(rb'0:"([^":]+):(\d+)"')
#: The subscription of a pull comes with it, and nothing is waited for.
_SUBSCRIPTION = 4


class Record(NamedTuple):
    """Every field of a pulled message."""

    total_size: int
    magic: int
    body_crc: int
    queue_id: int
    flag: int
    queue_offset: int
    physical_offset: int
    sys_flag: int
    born_timestamp_ms: int
    born_host: str
    store_timestamp_ms: int
    store_host: str
    reconsume_times: int
    prepared_transaction_offset: int
    body: bytes
    topic: str
    properties: dict[str, str]


def frame(code: int, opaque: int, fields: str, body: bytes = b"") -> bytes:
    """A request. `fields` is the inside of the extFields."""
    header = (
        f'{{"code":{code},"extFields":{{{fields}}},"flag":0,"language":"PYTHON","opaque":{opaque},'
        '"serializeTypeCurrentRPC":"JSON","version":399}'
    ).encode()
    return _FRAME.pack(4 + len(header) + len(body), len(header)) + header + body


def records_of(body: bytes) -> Iterator[Record]:
    """The messages of a pull's answer, each with all that it has."""
    at = 0
    while at < len(body):
        (
            size,
            magic,
            crc,
            queue_id,
            flag,
            queue_offset,
            physical_offset,
            sys_flag,
            born_ms,
            born_address,
            born_port,
            store_ms,
            store_address,
            store_port,
            reconsume_times,
            prepared,
            body_length,
        ) = _RECORD.unpack_from(body, at)
        begin = at + _RECORD.size
        end = begin + body_length
        topic_end = end + 1 + body[end]
        (length,) = _SHORT.unpack_from(body, topic_end)
        text = body[topic_end + 2 : topic_end + 2 + length].decode()
        yield Record(
            size,
            magic,
            crc,
            queue_id,
            flag,
            queue_offset,
            physical_offset,
            sys_flag,
            born_ms,
            f"{socket.inet_ntoa(born_address)}:{born_port}",
            store_ms,
            f"{socket.inet_ntoa(store_address)}:{store_port}",
            reconsume_times,
            prepared,
            body[begin:end],
            body[end + 1 : topic_end].decode(),
            dict(each.split("\x01", 1) for each in text.split("\x02") if each),
        )
        at += size


class Connection:
    """One connection; answers come in any order."""

    def __init__(self, host: str, port: int) -> None:
        self._socket = socket.create_connection((host, port))
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._rest = b""

    def close(self) -> None:
        """End it."""
        self._socket.close()

    def send(self, data: bytes) -> None:
        """Frames."""
        self._socket.sendall(data)

    def answers(self) -> list[tuple[bytes, bytes]]:
        """The headers and bodies of the answers that are there: one at least."""
        found = list[tuple[bytes, bytes]]()
        data, at = self._rest, 0
        while not found:
            came = self._socket.recv(1 << 20)
            if not came:
                raise ConnectionError("the broker has closed the connection")
            data = data[at:] + came if len(data) > at else came
            at = 0
            while len(data) - at >= _FRAME.size:
                size, length = _FRAME.unpack_from(data, at)
                if len(data) - at < 4 + size:
                    break
                header_end = at + _FRAME.size + (length & 0xFFFFFF)
                found.append((data[at + _FRAME.size : header_end], data[header_end : at + 4 + size]))
                at += 4 + size
        self._rest = data[at:]
        return found


def master_of(name_server: str, topic: str) -> tuple[str, int]:
    """Where a topic's only master is."""
    host, _, port = name_server.rpartition(":")
    connection = Connection(host, int(port))
    try:
        connection.send(frame(_ROUTE, 0, f'"topic":"{topic}"'))
        ((_, body),) = connection.answers()
    finally:
        connection.close()
    found = _HOST_AND_PORT.search(body)
    assert found is not None, body
    return found[1].decode(), int(found[2])


#: Told how many messages were sent or came, and how many of them failed; whether to go on.
Done = Callable[[int, int], bool]


def send_all(connection: Connection, topic: str, body: bytes, in_flight: int, done: Done) -> None:
    """Send messages to the queues in turn, so many at a time, until `done` says otherwise."""
    opaque, head = 0, f'"a":"PG_bare","b":"{topic}","c":"TBW102","d":"4","f":"0"'
    tail = '"h":"0","j":"0","k":"false","m":"false"'
    waiting, goes_on = 0, True
    while goes_on or waiting:
        if goes_on:
            frames, born_ms = [], int(time.time() * 1000)
            while waiting < in_flight:
                opaque += 1
                properties = f"TAGS\\u0001TagA\\u0002KEYS\\u0001OrderID188\\u0002UNIQ_KEY\\u0001{opaque:032X}"
                fields = f'{head},"e":"{opaque % 4}","g":"{born_ms}","i":"{properties}",{tail}'
                frames.append(frame(_SEND, opaque, fields, body))
                waiting += 1
            connection.send(b"".join(frames))
        answers = connection.answers()
        waiting -= len(answers)
        failed = sum(_SUCCESS not in header for header, _ in answers)
        goes_on = done(len(answers), failed)


def pull_all(connection: Connection, topic: str, queues: int, done: Done) -> None:
    """Pull 32 messages of each queue after the other, from the first and then again, until `done` says otherwise."""
    offsets, goes_on, waiting = dict.fromkeys(range(queues), 0), True, 0

    def ask(queue_id: int) -> None:
        fields = (
            f'"consumerGroup":"CG_bare","topic":"{topic}","queueId":"{queue_id}","queueOffset":"{offsets[queue_id]}",'
            f'"maxMsgNums":"32","sysFlag":"{_SUBSCRIPTION}","commitOffset":"0","suspendTimeoutMillis":"0",'
            '"subscription":"*","subVersion":"0","expressionType":"TAG"'
        )
        connection.send(frame(_PULL, queue_id, fields))

    for queue_id in offsets:
        ask(queue_id)
        waiting += 1
    while waiting:
        for header, body in connection.answers():
            waiting -= 1
            opaque, following = _OPAQUE.search(header), _NEXT_OFFSET.search(header)
            assert opaque is not None, header
            queue_id, count = int(opaque[1]), sum(1 for _ in records_of(body))
            offsets[queue_id] = int(following[1]) if count and following is not None else 0
            goes_on = done(count, 0) and goes_on
            if goes_on:
                ask(queue_id)
                waiting += 1
