"""A delayed message when its time has come: the message that its record in SCHEDULE_TOPIC_XXXX was made of.

RocketMQ's ScheduleMessageService.messageTimeup. Properties stay as they are stored, DELAY, REAL_TOPIC and REAL_QID too.
"""

from __future__ import annotations

import re

from rmq_actors.wire.dispatch_request import HALF_TOPIC, PROPERTY_REAL_QUEUE_ID, PROPERTY_REAL_TOPIC
from rmq_actors.wire.record import TRANSACTION_BITS, Message, StoredMessage

_QUEUE_ID = re.compile(r"[0-9]{1,9}")


class Undeliverable(ValueError):
    """The record does not say where its message goes, or it must not go there."""


def message_timeup(stored: StoredMessage) -> Message:
    """The message to put: not delayed again. Raises `Undeliverable`."""
    topic, queue_id = stored.properties.get(PROPERTY_REAL_TOPIC), stored.properties.get(PROPERTY_REAL_QUEUE_ID)
    if not topic or queue_id is None or _QUEUE_ID.fullmatch(queue_id) is None:
        raise Undeliverable(f"{PROPERTY_REAL_TOPIC} {topic!r} and {PROPERTY_REAL_QUEUE_ID} {queue_id!r} are no queue")
    if topic == HALF_TOPIC:
        raise Undeliverable(f"a delayed message cannot become a half message of a transaction, in {HALF_TOPIC}")
    return Message(
        topic=topic,
        body=stored.body,
        queue_id=int(queue_id),
        properties=stored.properties,
        flag=stored.flag,
        # RocketMQ keeps the bits of a commit, without the offset of what it commits.
        sys_flag=stored.sys_flag & ~TRANSACTION_BITS,
        born_timestamp_ms=stored.born_timestamp_ms,
        born_host=stored.born_host,
        store_host=stored.store_host,
        reconsume_times=stored.reconsume_times,
        delay_time_level=0,
    )
