"""The message that says that a consumer's offset was moved (PullMessageProcessor.generateOffsetMovedEvent). Pure."""

from __future__ import annotations

from rmq_actors.wire.bodies.encoding import encode_body
from rmq_actors.wire.bodies.message_queues import MessageQueue
from rmq_actors.wire.bodies.offsets import OffsetMovedEvent
from rmq_actors.wire.dispatch_request import PROPERTY_DELAY, PROPERTY_KEYS, PROPERTY_TAGS
from rmq_actors.wire.record import Message

#: A system topic of one queue: whoever watches consumers consumes it.
OFFSET_MOVED_EVENT_TOPIC = "OFFSET_MOVED_EVENT"


def offset_moved_message(
    group: str, queue: MessageQueue, asked_offset: int, new_offset: int, store_host: str, now_ms: int
) -> Message:
    """What a master keeps of a pull that it answers PULL_OFFSET_MOVED; tag and key are the group.

    Raises `ValueError` for text that JSON cannot hold.
    """
    event = OffsetMovedEvent(
        consumer_group=group, message_queue=queue, offset_new=new_offset, offset_request=asked_offset
    )
    return Message(
        OFFSET_MOVED_EVENT_TOPIC,
        encode_body(event),
        properties={PROPERTY_KEYS: group, PROPERTY_DELAY: "0", PROPERTY_TAGS: group},
        born_timestamp_ms=now_ms,
        born_host=store_host,
        store_host=store_host,
        delay_time_level=0,
    )
