"""Plain messages as rows, and the records of many of them as one buffer.

A row is what a producer sends of a message that is not delayed, takes part in no transaction, and goes to one queue.
What a record is, `wire.record` says: both doors of the broker share its encoder.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import attrs

from rmq_actors.wire.dispatch_request import PROPERTY_TAGS, DispatchRequest, tags_hash_code
from rmq_actors.wire.record import (
    MAX_PROPERTIES_BYTES,
    RECORD_OVERHEAD_BYTES,
    encode_topic,
    record_parts,
    sys_flag_for_hosts,
)


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
    born_host: bytes,
    store_host: bytes,
    begin_offset: int,
    room_bytes: int,
    store_timestamp_ms: int,
    max_message_size_bytes: int,
    next_queue_offset: Callable[[str, int], int],
) -> EncodedRows:
    """Encode rows from `begin_offset` of the log on: all, or those before the first that is too long or has no room.

    Raises `MessageIllegal` for a topic that no record can have, or a number that does not fit its field.
    """
    fixed_bytes = RECORD_OVERHEAD_BYTES + len(born_host) + len(store_host) - 16
    parts: list[bytes | memoryview] = []
    requests: list[DispatchRequest] = []
    staged: dict[tuple[str, int], int] = {}
    offset, limit, properties_bytes = begin_offset, begin_offset + room_bytes, 0
    for topic, queue_id, flag, sys_flag, born_timestamp_ms, reconsume_times, body, properties, names in rows:
        encoded_topic = encode_topic(topic)
        if len(body) > max_message_size_bytes or len(properties) > MAX_PROPERTIES_BYTES:
            break
        size = fixed_bytes + len(body) + len(encoded_topic) - 1 + len(properties)
        if offset + size > limit:
            break
        key = (topic, queue_id)
        queue_offset = staged.get(key)
        if queue_offset is None:
            queue_offset = next_queue_offset(topic, queue_id)
        stored_flag = sys_flag_for_hosts(sys_flag, born_host, store_host)
        parts += record_parts(
            queue_id,
            flag,
            stored_flag,
            born_timestamp_ms,
            born_host,
            store_host,
            reconsume_times,
            0,
            body,
            encoded_topic,
            properties,
            queue_offset=queue_offset,
            physical_offset=offset,
            store_timestamp_ms=store_timestamp_ms,
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
        properties_bytes += len(properties)
    return EncodedRows(b"".join(parts), begin_offset, requests, properties_bytes, store_timestamp_ms, staged)
