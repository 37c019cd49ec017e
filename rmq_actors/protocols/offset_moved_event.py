"""The message that says that a consumer's offset was moved (PullMessageProcessor.generateOffsetMovedEvent). Pure."""

from __future__ import annotations

import attrs

from rmq_actors.wire.bodies.encoding import encode_body
from rmq_actors.wire.bodies.message_queues import MessageQueue
from rmq_actors.wire.bodies.offsets import OffsetMovedEvent
from rmq_actors.wire.dispatch_request import PROPERTY_DELAY, PROPERTY_KEYS, PROPERTY_TAGS
from rmq_actors.wire.record import Message

#: A system topic of one queue: whoever watches consumers consumes it.
OFFSET_MOVED_EVENT_TOPIC = "OFFSET_MOVED_EVENT"
#: A group has one message about a queue in this time: a client that may only read writes no more than that.
EVENT_INTERVAL_S = 5.0
#: All groups together have so many in this time.
EVENTS_MAX = 1_000


@attrs.define(eq=False, repr=False)
class OffsetMovedEvents:
    """Which pulls are told of. RocketMQ tells of each. Time is an argument, in seconds."""

    #: When it was told of, by group, topic and queue: the earliest first.
    _told_s: dict[tuple[str, str, int], float] = attrs.field(factory=dict, init=False)

    def is_to_be_told(self, group: str, topic: str, queue_id: int, now_s: float) -> bool:
        """Whether a message is due about the offset of this pull; it is noted then."""
        while self._told_s:
            earliest = next(iter(self._told_s))
            if now_s - self._told_s[earliest] < EVENT_INTERVAL_S:
                break
            del self._told_s[earliest]
        key = (group, topic, queue_id)
        if key in self._told_s or len(self._told_s) >= EVENTS_MAX:
            return False
        self._told_s[key] = now_s
        return True


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
