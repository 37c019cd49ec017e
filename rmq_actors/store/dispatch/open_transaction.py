"""An open transaction, as the record that begins it has it, and what records of its end name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from rmq_actors.store.dispatch.consume_queue import parse_queue_offset
from rmq_actors.wire.dispatch_request import (
    CHECK_MAX_TIME_TOPIC,
    HALF_TOPIC,
    PROPERTY_REAL_TOPIC,
    PROPERTY_TAGS,
    PROPERTY_TRANSACTION_ORIGIN,
    PROPERTY_UNIQ_KEY,
)
from rmq_actors.wire.java_string import java_hash_code
from rmq_actors.wire.record import StoredMessage

PROPERTY_PRODUCER_GROUP = "PGROUP"
PROPERTY_TRANSACTION_PREPARED_QUEUE_OFFSET = "TRAN_PREPARED_QUEUE_OFFSET"
#: The tag of an op message, and what stands between half queue offsets in its body.
REMOVE_TAG = "d"
OFFSET_SEPARATOR = ","


class OpenTransaction(NamedTuple):
    """A prepared message without an end. `number`: of its entry in tranStateTable."""

    physical_offset: int
    size: int
    store_timestamp_s: int
    producer_group_hash: int
    number: int
    #: (queue id, queue offset) of a half message, by which op messages name it.
    half: tuple[int, int] | None
    unique_key: str | None
    #: The topic that the message is for. A key is its producer's, and tells nothing about messages of other topics.
    real_topic: str
    #: The offset of the half message that checks have stored again as this one; its own if it does not name any.
    origin: int
    #: The half message that this one was stored for again by RocketMQ, while it was immune: ends may name that one.
    stands_for: tuple[int, int] | None = None


def halves_named(op: StoredMessage) -> Sequence[int]:
    """The queue offsets of half messages that an op message ends; none, if it does anything else."""
    if op.properties.get(PROPERTY_TAGS) != REMOVE_TAG:
        return ()
    numbers = map(parse_queue_offset, op.body.decode("latin-1").split(OFFSET_SEPARATOR))
    return [number for number in numbers if number is not None]


def open_transaction(
    offset: int,
    size: int,
    store_timestamp_ms: int,
    properties: Mapping[str, str],
    number: int,
    half: tuple[int, int] | None,
    topic: str,
) -> OpenTransaction:
    """What a record begins, by its fields and properties."""
    return OpenTransaction(
        offset,
        size,
        _seconds(store_timestamp_ms),
        group_hash(properties.get(PROPERTY_PRODUCER_GROUP)),
        number,
        half,
        properties.get(PROPERTY_UNIQ_KEY),
        real_topic_of(topic, properties),
        transaction_origin(offset, properties),
        stands_for(half, properties),
    )


def _seconds(timestamp_ms: int) -> int:
    """As an int32, wrapped as Java's cast does."""
    return (timestamp_ms // 1000 + (1 << 31)) % (1 << 32) - (1 << 31)


def half_of(topic: str, queue_id: int, queue_offset: int) -> tuple[int, int] | None:
    """How op messages name a half message; None for any other message."""
    return (queue_id, queue_offset) if topic == HALF_TOPIC else None


def stands_for(half: tuple[int, int] | None, properties: Mapping[str, str]) -> tuple[int, int] | None:
    """Which half message of its queue RocketMQ has stored again as this one, because it was immune."""
    number = parse_queue_offset(properties.get(PROPERTY_TRANSACTION_PREPARED_QUEUE_OFFSET, ""))
    return None if half is None or number is None else (half[0], number)


def transaction_origin(physical_offset: int, properties: Mapping[str, str]) -> int:
    """Which half message one stands for, by its offset in the log: itself, unless it names another one."""
    named = parse_queue_offset(properties.get(PROPERTY_TRANSACTION_ORIGIN, ""))
    return physical_offset if named is None else named


def real_topic_of(topic: str, properties: Mapping[str, str]) -> str:
    """Where the message goes when it is committed; a prepared one of 3.x is in its own topic."""
    return properties.get(PROPERTY_REAL_TOPIC, "") if topic in {HALF_TOPIC, CHECK_MAX_TIME_TOPIC} else topic


def group_hash(group: str | None) -> int:
    """As tranStateTable has a producer group: Java's hash code."""
    return java_hash_code(group or "")
