"""Plain messages as rows, and the records of many of them as one buffer.

A row is what a producer sends of a message that is not delayed, takes part in no transaction, and goes to one queue.
What a record is, `wire.record` says: both doors of the broker share its encoder.
"""

from __future__ import annotations

import itertools
import struct
from collections.abc import Callable, Mapping, Sequence
from operator import attrgetter
from typing import NamedTuple

import attrs

from rmq_actors.wire.dispatch_request import PROPERTY_TAGS, DispatchRequest, tags_hash_code
from rmq_actors.wire.record import (
    BEFORE_BODY,
    HOST_FLAGS,
    MAX_PROPERTIES_BYTES,
    MESSAGE_MAGIC,
    PROPERTIES_LENGTH,
    MessageIllegal,
    body_crc,
    encode_topic,
    sys_flag_for_hosts,
)

_topic_of = attrgetter("topic")


class MessageRow(NamedTuple):
    """A message to be appended; `properties` are encoded already. `body` may be a view of a receive buffer.

    `names` are the properties as the producer sent them: whatever is derived from a record finds in them what it needs.
    """

    topic: str
    queue_id: int
    flag: int
    sys_flag: int
    born_timestamp_ms: int
    reconsume_times: int
    body: memoryview
    properties: bytes
    names: Mapping[str, str]
    #: As a record has it: see `encode_host`.
    born_host: bytes


@attrs.frozen(eq=False)
class EncodedRows:
    """The first rows, placed: record i is that of row i. `next_queue_offsets`: those after them, by topic and queue."""

    data: bytes
    begin_offset: int
    #: What a dispatcher would read of each record; their properties are `MessageRow.names`.
    requests: Sequence[DispatchRequest]
    properties_bytes: int
    store_timestamp_ms: int
    next_queue_offsets: dict[tuple[str, int], int]

    @property
    def topics(self) -> Mapping[str, tuple[int, int]]:
        """How many bytes and how many records each topic has among them."""
        names = {topic for topic, _ in self.next_queue_offsets}
        if len(names) == 1:
            return dict.fromkeys(names, (len(self.data), len(self.requests)))
        found: dict[str, tuple[int, int]] = {}
        for topic, requests in itertools.groupby(self.requests, _topic_of):
            sizes = [request.msg_size for request in requests]
            size_bytes, count = found.get(topic, (0, 0))
            found[topic] = size_bytes + sum(sizes), count + len(sizes)
        return found

    def __len__(self) -> int:
        return len(self.requests)

    @property
    def end_offset(self) -> int:
        """Where the next record begins, after all of them."""
        return self.begin_offset + len(self.data)

    @property
    def queue_offsets(self) -> Sequence[int]:
        """The place of each in its queue."""
        return [request.consume_queue_offset for request in self.requests]


def encode_rows(
    rows: Sequence[MessageRow],
    *,
    store_host: bytes,
    begin_offset: int,
    room_bytes: int,
    store_timestamp_ms: int,
    max_message_size_bytes: int,
    next_queue_offset: Callable[[str, int], int],
) -> EncodedRows:
    """Encode rows from `begin_offset` of the log on: all, or those before the first that is too long or has no room.

    Raises `MessageIllegal` for a topic that no record can have, or a number that does not fit its field.

    Longer than 70 lines because it has `record_parts` within it: a call for each record costs as much as what it does.
    """
    parts: list[bytes | memoryview] = []
    requests: list[DispatchRequest] = []
    staged: dict[tuple[str, int], int] = {}
    offset, limit, all_properties_bytes = begin_offset, begin_offset + room_bytes, 0
    head, host_flags, last_born_host = BEFORE_BODY[8, 8], 0, None
    try:
        for topic, queue_id, flag, sys_flag, born_ms, reconsume_times, body, properties, names, born_host in rows:
            if born_host is not last_born_host:
                last_born_host, head = born_host, BEFORE_BODY[len(born_host), len(store_host)]
                host_flags = sys_flag_for_hosts(0, born_host, store_host)
            encoded_topic, body_bytes, properties_bytes = encode_topic(topic), len(body), len(properties)
            if body_bytes > max_message_size_bytes or properties_bytes > MAX_PROPERTIES_BYTES:
                break
            size = head.size + body_bytes + len(encoded_topic) + 2 + properties_bytes
            if offset + size > limit:
                break
            key = (topic, queue_id)
            queue_offset = staged.get(key)
            if queue_offset is None:
                queue_offset = next_queue_offset(topic, queue_id)
            stored_flag = sys_flag & ~HOST_FLAGS | host_flags
            parts += (
                head.pack(
                    size,
                    MESSAGE_MAGIC,
                    body_crc(body),
                    queue_id,
                    flag,
                    queue_offset,
                    offset,
                    stored_flag,
                    born_ms,
                    born_host,
                    store_timestamp_ms,
                    store_host,
                    reconsume_times,
                    0,
                    body_bytes,
                ),
                body,
                encoded_topic,
                PROPERTIES_LENGTH.pack(properties_bytes),
                properties,
            )
            staged[key] = queue_offset + 1
            tags = names.get(PROPERTY_TAGS)
            tags_code = tags_hash_code(tags) if tags else 0
            requests.append(
                DispatchRequest(
                    topic, queue_id, offset, size, tags_code, store_timestamp_ms, queue_offset, stored_flag, 0, names
                )
            )
            offset += size
            all_properties_bytes += properties_bytes
    except struct.error as error:
        raise MessageIllegal(f"a number of the message does not fit its field: {error}") from error
    return EncodedRows(b"".join(parts), begin_offset, requests, all_properties_bytes, store_timestamp_ms, staged)
