"""What strangers do in a run told by hand: see `Story`."""

from __future__ import annotations

from rmq_actors.testing.invariants.read_in_the_end import LAST_READER
from rmq_actors.testing.strange_requests import MARK, STRANGE_TOPIC, read_message
from rmq_actors.tracing.events.run import ClientStranger, ClientStrangerLeaves, ClientTopicPull, ClientTopicRead
from rmq_actors.wire.dispatch_request import PROPERTY_REAL_QUEUE_ID, PROPERTY_REAL_TOPIC, SCHEDULE_TOPIC
from rmq_actors.wire.record import Message, encode_message
from tests.worlds.cluster_story import MASTER, Story


def strange_record(number: int, key: str = "s1", topic: str = STRANGE_TOPIC, queue_id: int = 0) -> bytes:
    """A message that `key` names; one for `SCHEDULE_TOPIC` waits for queue 0 of the strangers' topic."""
    properties = {"KEYS": key}
    if topic == SCHEDULE_TOPIC:
        properties |= {PROPERTY_REAL_TOPIC: STRANGE_TOPIC, PROPERTY_REAL_QUEUE_ID: "0", "DELAY": "1"}
    encoded = encode_message(Message(topic, MARK + key.encode(), queue_id, properties))
    encoded.place(queue_offset=number, physical_offset=0, store_timestamp_ms=0)
    return bytes(encoded.data)


def leads(story: Story, node: str = MASTER, term: int = 1) -> None:
    """The node writes its own log."""
    story.emit(node, "store.term", term=term, status="promoted", leads=True)


def may_leave(story: Story, key: str = "s1", queue_id: int = 0, *, is_delayed: bool = False) -> None:
    """The request that is told may leave `strange_record` of that key."""
    checksum = read_message(strange_record(0, key)).checksum
    told = ClientStrangerLeaves(
        status="delayed" if is_delayed else "plain", key="s1", queue_id=queue_id, checksum=checksum
    )
    story.recorder.record(told, MASTER)


def tell_asked(story: Story, operation: str, role: str = "MASTER", node: str = MASTER) -> None:
    """A stranger asks."""
    tell(story, operation, "asked", role, node)


def tell(
    story: Story, operation: str, status: str, role: str = "MASTER", node: str = MASTER, *, detail: str = ""
) -> None:
    """A stranger is answered."""
    told = ClientStranger(status=status, operation=operation, key="s1", role=role, detail=detail)
    story.recorder.record(told, node)


def read_last(story: Story, *messages: tuple[int, int], least: int = 0, node: str = MASTER, queue_id: int = 0) -> None:
    """The last reader gets these of a queue of a node: numbers, and where they stand."""
    pulled = ClientTopicPull(
        status="SUCCESS",
        topic=STRANGE_TOPIC,
        queue_id=queue_id,
        queue_offset=0,
        queue_offset_next=len(messages),
        queue_offset_min=least,
        asked_ns=0,
    )
    story.recorder.record(pulled, node, LAST_READER)
    for number, offset in messages:
        read = ClientTopicRead(
            status="as_sent", offset=offset, topic=STRANGE_TOPIC, queue_id=queue_id, queue_offset=number, asked_ns=0
        )
        story.recorder.record(read, node, LAST_READER)
