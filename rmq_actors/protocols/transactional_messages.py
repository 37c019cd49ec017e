"""The messages of a transaction, one made of the other (TransactionalMessageBridge, EndTransactionProcessor).

A producer's message is prepared: stored in the half topic, where no consumer sees it. Its transaction ends with a
commit, the message in its real topic, or with a rollback; either way an op message names the half message that is
done. A half message that was asked about is stored again, at the end of its queue, with how often that was. One that
is given up goes to a topic of its own.

Pure. Properties are those that a RocketMQ broker stores, so that each of both can go on with the other's store.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

import attrs

from rmq_actors.protocols.send_rules import Refusal
from rmq_actors.wire.dispatch_request import (
    CHECK_MAX_TIME_TOPIC,
    HALF_TOPIC,
    OP_HALF_TOPIC,
    PROPERTY_DELAY,
    PROPERTY_INNER_MULTI_QUEUE_OFFSET,
    PROPERTY_TAGS,
    PROPERTY_TRANSACTION_ORIGIN,
    PROPERTY_UNIQ_KEY,
)
from rmq_actors.wire.headers.transactions import EndTransactionRequestHeader
from rmq_actors.wire.properties import PROPERTY_WAIT_STORE_MSG_OK, encode_properties
from rmq_actors.wire.record import (
    MAX_PROPERTIES_BYTES,
    TRANSACTION_COMMIT_TYPE,
    TRANSACTION_PREPARED_TYPE,
    TRANSACTION_ROLLBACK_TYPE,
    Message,
    PropertiesSizeExceeded,
    StoredMessage,
)
from rmq_actors.wire.response_code import ResponseCode

PROPERTY_TRANSACTION_PREPARED = "TRAN_MSG"
PROPERTY_PRODUCER_GROUP = "PGROUP"
PROPERTY_REAL_TOPIC = "REAL_TOPIC"
PROPERTY_REAL_QUEUE_ID = "REAL_QID"
PROPERTY_TRANSACTION_CHECK_TIMES = "TRANSACTION_CHECK_TIMES"
PROPERTY_TRANSACTION_PREPARED_QUEUE_OFFSET = "TRAN_PREPARED_QUEUE_OFFSET"
PROPERTY_CHECK_IMMUNITY_TIME_IN_SECONDS = "CHECK_IMMUNITY_TIME_IN_SECONDS"
#: The consumer group whose offsets say how far half and op queues are done with (MixAll.CID_SYS_RMQ_TRANS).
TRANS_GROUP = "CID_RMQ_SYS_TRANS"
#: The tag of an op message that ends what its body names.
REMOVE_TAG = "d"

#: What a producer cannot mean in a message that it prepares. Java's clears DELAY; the others are the broker's own, and
#: a message that was consumed and is sent on carries them: a count of checks, and indexes in further queues, which
#: would show the half message there.
_NOT_PREPARED = frozenset(
    {
        PROPERTY_DELAY,
        PROPERTY_TRANSACTION_CHECK_TIMES,
        PROPERTY_TRANSACTION_PREPARED_QUEUE_OFFSET,
        PROPERTY_TRANSACTION_ORIGIN,
        PROPERTY_INNER_MULTI_QUEUE_OFFSET,
    }
)
#: How many bytes the count of checks takes beside the properties that a message is prepared with, at most, and the
#: origin of a copy.
_ROOM_FOR_CHECKS_BYTES = (
    len(PROPERTY_TRANSACTION_CHECK_TIMES) + 2 + len(str(2**31)) + len(PROPERTY_TRANSACTION_ORIGIN) + 2 + len(str(2**63))
)
_INT32 = re.compile(r"[+-]?[0-9]{1,10}")
_NOT_FOUND = Refusal(ResponseCode.SYSTEM_ERROR, "Find prepared transaction message failed")


def begins_transaction(message: Message) -> bool:
    """Whether a producer wants its message prepared.

    Not if it is a retry of a message that was committed: consumers up to 4.6.0 send that back with all its properties.
    """
    properties = message.properties
    is_retry = message.reconsume_times > 0 and properties.get(PROPERTY_DELAY, "0") != "0"
    return properties.get(PROPERTY_TRANSACTION_PREPARED, "").lower() == "true" and not is_retry


def without_transaction(message: Message) -> Message:
    """A message that is in no transaction, whatever its system flag says: a retry of one that was committed."""
    if not message.sys_flag & TRANSACTION_ROLLBACK_TYPE:
        return message
    return attrs.evolve(message, sys_flag=message.sys_flag & ~TRANSACTION_ROLLBACK_TYPE)


def check_transaction(message: Message, broker_ip: str, *, is_rejected: bool) -> Refusal | None:
    """Why a producer's message, a single one, is refused for what it says of transactions.

    `is_rejected`: this broker takes no transactional messages (rejectTransactionMessage).
    """
    kind = message.sys_flag & TRANSACTION_ROLLBACK_TYPE
    is_marked = message.properties.get(PROPERTY_TRANSACTION_PREPARED, "").lower() == "true"
    if kind and not (is_marked and kind == TRANSACTION_PREPARED_TYPE):
        # No client sends one. It would be hidden from its queue, or end another's transaction in the store's table.
        return Refusal(
            ResponseCode.MESSAGE_ILLEGAL,
            f"system flag {message.sys_flag} says that the message is in a transaction: only one with property "
            f"{PROPERTY_TRANSACTION_PREPARED} is, and it begins it",
        )
    if begins_transaction(message) and is_rejected:
        return Refusal(ResponseCode.NO_PERMISSION, f"the broker[{broker_ip}] sending transaction message is forbidden")
    return None


def half_message(message: Message) -> Message:
    """A producer's message as it is prepared (parseHalfMessageInner).

    Raises `PropertiesSizeExceeded` if there were no room left to count its checks.
    """
    properties = {name: value for name, value in message.properties.items() if name not in _NOT_PREPARED}
    properties[PROPERTY_REAL_TOPIC] = message.topic
    properties[PROPERTY_REAL_QUEUE_ID] = str(message.queue_id)
    size = len(encode_properties(properties)) + _ROOM_FOR_CHECKS_BYTES
    if size > MAX_PROPERTIES_BYTES:
        raise PropertiesSizeExceeded(
            f"properties of {size} bytes with what a broker adds: at most {MAX_PROPERTIES_BYTES} are allowed"
        )
    return attrs.evolve(
        message,
        topic=HALF_TOPIC,
        queue_id=0,
        properties=properties,
        sys_flag=message.sys_flag & ~TRANSACTION_ROLLBACK_TYPE,
        delay_time_level=0,
    )


def is_half(message: StoredMessage) -> bool:
    """Whether a transaction can begin with this record: a half message, or a prepared one of 3.x."""
    return message.topic == HALF_TOPIC or is_of_3(message)


def is_of_3(message: StoredMessage) -> bool:
    """Whether it was prepared by RocketMQ 3.x: in its own topic, which no consumer sees for its system flag."""
    return message.topic != HALF_TOPIC and message.sys_flag & TRANSACTION_ROLLBACK_TYPE == TRANSACTION_PREPARED_TYPE


def real_queue(half: StoredMessage) -> tuple[str, int] | None:
    """The topic and the queue that the message is for; None if it does not say it."""
    if is_of_3(half):
        return half.topic, half.queue_id
    topic = half.properties.get(PROPERTY_REAL_TOPIC)
    queue_id = half.properties.get(PROPERTY_REAL_QUEUE_ID, "")
    if not topic or _INT32.fullmatch(queue_id) is None or not 0 <= int(queue_id) < 2**31:
        return None
    return topic, int(queue_id)


def why_not_ended(half: StoredMessage | None, header: EndTransactionRequestHeader) -> Refusal | None:
    """Why a request cannot end the transaction of the record that it names (checkPrepareMessage).

    The record must be a half message, which RocketMQ does not ask: there any message can be copied to any topic.
    """
    if half is None or not is_half(half) or real_queue(half) is None:
        return _NOT_FOUND
    if half.properties.get(PROPERTY_PRODUCER_GROUP) != header.producer_group:
        return Refusal(ResponseCode.SYSTEM_ERROR, "The producer group wrong")
    if half.queue_offset != header.tran_state_table_offset:
        return Refusal(ResponseCode.SYSTEM_ERROR, "The transaction state table offset wrong")
    if half.physical_offset != header.commit_log_offset:
        return Refusal(ResponseCode.SYSTEM_ERROR, "The commit log offset wrong")
    return None


def committed_message(half: StoredMessage) -> Message:
    """The message in its real topic (endMessageTransaction); only for a half message that names one."""
    real = real_queue(half)
    assert real is not None, f"the half message at {half.physical_offset} names no topic"
    return attrs.evolve(
        _as_it_is(half),
        topic=real[0],
        queue_id=real[1],
        properties=_of_its_producer(half),
        sys_flag=half.sys_flag & ~TRANSACTION_ROLLBACK_TYPE | TRANSACTION_COMMIT_TYPE,
        prepared_transaction_offset=half.physical_offset,
        delay_time_level=None,
    )


def rolled_back_message(half: StoredMessage) -> Message:
    """What ends a prepared message of 3.x that no consumer may see: it has no body, and no queue shows it."""
    return attrs.evolve(
        _as_it_is(half),
        body=b"",
        sys_flag=half.sys_flag & ~TRANSACTION_ROLLBACK_TYPE | TRANSACTION_ROLLBACK_TYPE,
        prepared_transaction_offset=half.physical_offset,
    )


def op_message(half: StoredMessage, store_host: str, now_ms: int) -> Message:
    """Says that the half message is done (addRemoveTagInTransactionOp)."""
    return Message(
        topic=OP_HALF_TOPIC,
        body=b"%d" % half.queue_offset,
        queue_id=half.queue_id,
        properties={PROPERTY_WAIT_STORE_MSG_OK: "true", PROPERTY_TAGS: REMOVE_TAG},
        born_timestamp_ms=now_ms,
        born_host=store_host,
        store_host=store_host,
    )


def half_message_again(half: StoredMessage, check_times: int, *, names_origin: bool = False) -> Message:
    """The half message as it is stored before its producers are asked for the `check_times`th time.

    `names_origin`: its key does not tell which half message that is, so the copy says it.
    """
    properties = {**_named(half, names_origin=names_origin), PROPERTY_TRANSACTION_CHECK_TIMES: str(check_times)}
    return attrs.evolve(_as_it_is(half), properties=properties)


def _named(half: StoredMessage, *, names_origin: bool) -> dict[str, str]:
    """Its properties for a copy. What the half message itself names stays: all copies name the first one.

    A half message that was prepared by an earlier release may have no room for it.
    """
    properties = {**half.properties}
    if names_origin and PROPERTY_TRANSACTION_ORIGIN not in properties:
        named = {**properties, PROPERTY_TRANSACTION_ORIGIN: str(half.physical_offset)}
        if len(encode_properties(named)) + _ROOM_FOR_CHECKS_BYTES <= MAX_PROPERTIES_BYTES:
            return named
    return properties


def is_half_again(later: StoredMessage, half: StoredMessage) -> bool:
    """Whether one half message was stored for the other one, by a check, or after that was given up and resumed.

    A key alone does not tell: a producer that sends again repeats it, and others may use it. RocketMQ's copies have
    the same place, group, body and birth, if not the same flag; producers' own messages have no count of checks.
    """
    return (
        later.physical_offset > half.physical_offset
        and PROPERTY_TRANSACTION_CHECK_TIMES in later.properties
        and unique_key(later) == unique_key(half)
        and later.properties.get(PROPERTY_PRODUCER_GROUP) == half.properties.get(PROPERTY_PRODUCER_GROUP)
        and real_queue(later) == real_queue(half)
        and (later.born_timestamp_ms, later.born_host) == (half.born_timestamp_ms, half.born_host)
        and later.body == half.body
    )


def given_up_message(half: StoredMessage, *, names_origin: bool = False) -> Message:
    """The half message as it is kept for an operator once nobody is asked any more (toMessageExtBrokerInner).

    `names_origin`: see `half_message_again`.
    """
    real = real_queue(half)
    assert real is not None, f"the half message at {half.physical_offset} names no topic"
    return attrs.evolve(
        _as_it_is(half),
        topic=CHECK_MAX_TIME_TOPIC,
        queue_id=0,
        properties={
            **_named(half, names_origin=names_origin),
            PROPERTY_REAL_TOPIC: real[0],
            PROPERTY_REAL_QUEUE_ID: str(real[1]),
        },
        sys_flag=half.sys_flag & ~TRANSACTION_ROLLBACK_TYPE,
    )


def resumed_message(given_up: StoredMessage) -> Message:
    """A message that was given up as a half message again, of which nobody was asked yet (resumeCheckHalfMessage)."""
    return attrs.evolve(
        _as_it_is(given_up),
        topic=HALF_TOPIC,
        queue_id=0,
        properties={**given_up.properties, PROPERTY_TRANSACTION_CHECK_TIMES: "0"},
    )


def asked_message(half: StoredMessage) -> Message:
    """The half message as a producer is asked about it: under its real topic and queue, and WAIT is false."""
    real = real_queue(half)
    assert real is not None, f"the half message at {half.physical_offset} names no topic"
    properties = {**_of_its_producer(half), PROPERTY_WAIT_STORE_MSG_OK: "false"}
    return attrs.evolve(_as_it_is(half), topic=real[0], queue_id=real[1], properties=properties)


def unique_key(half: StoredMessage) -> str | None:
    """What its producer tells the message by; None or empty for a client that sets none."""
    return half.properties.get(PROPERTY_UNIQ_KEY)


def _of_its_producer(half: StoredMessage) -> Mapping[str, str]:
    """Its properties without the one that is this project's alone."""
    return {name: value for name, value in half.properties.items() if name != PROPERTY_TRANSACTION_ORIGIN}


def _as_it_is(stored: StoredMessage) -> Message:
    """RocketMQ's copies of half messages lose flag and reconsumeTimes; these do not. They are not delayed."""
    return Message(
        topic=stored.topic,
        body=stored.body,
        queue_id=stored.queue_id,
        properties=stored.properties,
        flag=stored.flag,
        sys_flag=stored.sys_flag,
        born_timestamp_ms=stored.born_timestamp_ms,
        born_host=stored.born_host,
        store_host=stored.store_host,
        reconsume_times=stored.reconsume_times,
        delay_time_level=0,
    )
