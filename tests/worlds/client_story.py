"""What clients are told in a run told by hand: see `Story`."""

from __future__ import annotations

import zlib

from rmq_actors.testing.clients import CHAOS_TOPIC
from rmq_actors.testing.invariants.read_in_the_end import LAST_READER
from rmq_actors.tracing.events.run import ClientPull, ClientRead, ClientSend
from rmq_actors.wire.record import Message, encode_message
from tests.worlds.cluster_story import MASTER, Story


def chaos_record(queue_offset: int, key: str = "a") -> bytes:
    """A message of queue 0, which `key` names."""
    encoded = encode_message(Message(CHAOS_TOPIC, b"body", properties={"KEYS": key}))
    encoded.place(queue_offset=queue_offset, physical_offset=0, store_timestamp_ms=0)
    return bytes(encoded.data)


def tell_sent(story: Story, key: str = "a", *, offset: int = 0, queue_offset: int = 0) -> None:
    """A producer is told where its message is."""
    event = ClientSend(status="SUCCESS", offset=offset, key=key, queue_id=0, queue_offset=queue_offset)
    story.recorder.record(event, MASTER)


def tell_pull(story: Story, *, least: int = 0, actor: str = LAST_READER) -> None:
    """A consumer's pull is answered."""
    event = ClientPull(status="SUCCESS", queue_id=0, queue_offset=0, queue_offset_next=0, queue_offset_min=least)
    story.recorder.record(event, MASTER, actor)


def tell_read(
    story: Story,
    record: bytes,
    *,
    offset: int = 0,
    queue_offset: int = 0,
    expected: int | None = None,
    status: str = "as_sent",
    node: str = MASTER,
    actor: str = "Consumer",
) -> None:
    """A consumer has got a record that stands at `offset`."""
    due = queue_offset if expected is None else expected
    event = ClientRead(
        status=status,
        offset=offset,
        size=len(record),
        queue_id=0,
        queue_offset=queue_offset,
        expected=due,
        checksum=zlib.crc32(record),
    )
    story.recorder.record(event, node, actor)
