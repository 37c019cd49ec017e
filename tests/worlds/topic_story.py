"""What clients do with a topic that comes and goes, in a run told by hand: see `Story`."""

from __future__ import annotations

from rmq_actors.testing.invariants.read_in_the_end import LAST_READER
from rmq_actors.testing.invariants.topic_lives import TOPICS
from rmq_actors.tracing.events.run import ClientTopic, ClientTopicOffset, ClientTopicPull, ClientTopicRead
from rmq_actors.wire.record import Message, encode_message
from tests.worlds.cluster_story import MASTER, Story

TOPIC = TOPICS[0]


def topic_record(queue_offset: int) -> bytes:
    """A message of queue 0."""
    encoded = encode_message(Message(TOPIC, b"body"))
    encoded.place(queue_offset=queue_offset, physical_offset=0, store_timestamp_ms=0)
    return bytes(encoded.data)


def ask(story: Story, operation: str, status: str = "SUCCESS", node: str = MASTER) -> None:
    """A client asks for it, and is answered."""
    for each in ("asked", status):
        story.recorder.record(ClientTopic(status=each, operation=operation, topic=TOPIC), node)


def tell_offset(story: Story, operation: str, offset: int, node: str = MASTER) -> None:
    """A group commits its offset, or asks for it."""
    event = ClientTopicOffset(
        status="SUCCESS", operation=operation, topic=TOPIC, queue_id=0, queue_offset=offset, asked_ns=now_ns(story)
    )
    story.recorder.record(event, node)


def serve(
    story: Story, queue_offset: int, offset: int, node: str = MASTER, *, actor: str = "Reader", status: str = "as_sent"
) -> None:
    """A consumer gets a message."""
    event = ClientTopicRead(
        status=status, offset=offset, topic=TOPIC, queue_id=0, queue_offset=queue_offset, asked_ns=now_ns(story)
    )
    story.recorder.record(event, node, actor)


def read_last(story: Story, *messages: tuple[int, int], node: str = MASTER) -> None:
    """The last reader gets these of a node: numbers, and where they stand."""
    event = ClientTopicPull(
        status="SUCCESS",
        topic=TOPIC,
        queue_id=0,
        queue_offset=0,
        queue_offset_next=len(messages),
        queue_offset_min=0,
        asked_ns=now_ns(story),
    )
    story.recorder.record(event, node, LAST_READER)
    for number, offset in messages:
        serve(story, number, offset, node, actor=LAST_READER)


def now_ns(story: Story) -> int:
    return round(story.now_s * 1e9)
