"""A plain message as a row: what a dispatcher would read of its record, known to the task that has put it."""

from __future__ import annotations

from rmq_actors.wire.dispatch_request import (
    PROPERTY_INNER_MULTI_DISPATCH,
    PROPERTY_KEYS,
    PROPERTY_TAGS,
    PROPERTY_UNIQ_KEY,
    SCHEDULE_TOPIC,
    TRANSACTION_TOPICS,
    DispatchRequest,
    tags_hash_code,
)
from rmq_actors.wire.record import TRANSACTION_ROLLBACK_TYPE, EncodedMessage, Message

_SPECIAL_TOPICS = TRANSACTION_TOPICS | {SCHEDULE_TOPIC}
_KEY_PROPERTIES = (PROPERTY_UNIQ_KEY, PROPERTY_KEYS)


def row_of_message(
    message: Message, encoded: EncodedMessage, offset: int, queue_offset: int, store_timestamp_ms: int
) -> DispatchRequest | None:
    """The row of a message that was appended at `offset`; None if it is not a plain one.

    One that is delayed, takes part in a transaction or goes to further queues is read from the log. The row's
    properties are those that something is derived from, whatever becomes of the message's.
    """
    topic, queue_id = encoded.topic_queue
    names = message.properties
    if (
        topic != message.topic
        or topic in _SPECIAL_TOPICS
        or encoded.sys_flag & TRANSACTION_ROLLBACK_TYPE
        or PROPERTY_INNER_MULTI_DISPATCH in names
    ):
        return None
    # A reader finds no empty property.
    keys = {name: value for name in _KEY_PROPERTIES if (value := names.get(name))}
    tags = names.get(PROPERTY_TAGS)
    return DispatchRequest(
        topic,
        queue_id,
        offset,
        len(encoded.data),
        tags_hash_code(tags) if tags else 0,
        store_timestamp_ms,
        queue_offset,
        encoded.sys_flag,
        message.prepared_transaction_offset,
        keys,
    )
