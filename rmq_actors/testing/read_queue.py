"""Reads a queue from its beginning to its end, and tells in the trace what each pull gave: `read_queue`."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import attrs

from rmq_actors.remoting.connection import RemotingError
from rmq_actors.testing.brokers import BrokersUnderTest
from rmq_actors.testing.thin_client import Pulled, ThinClient
from rmq_actors.tracing.events.run import ClientTopicPull, ClientTopicRead
from rmq_actors.wire.response_code import ResponseCode


@attrs.frozen
class Found:
    """A message that a pull gave: its place in the log and in its queue, and whether somebody has sent it so."""

    offset: int
    queue_offset: int
    is_as_sent: bool


async def read_queue(
    brokers: BrokersUnderTest,
    client: ThinClient,
    broker: str,
    topic: str,
    queue_id: int,
    reader: str,
    found: Callable[[Pulled], Iterable[Found]],
) -> int | None:
    """Where the queue ends; None if there is no answer. `reader` is the actor that tells, `found` looks at a pull."""
    offset = 0
    while True:
        asked_ns = brokers.world.now_ns
        try:
            pulled = await client.pull(topic, offset, queue_id)
        except RemotingError:
            return None
        header = pulled.header
        told = ClientTopicPull(
            status=ResponseCode(pulled.code).name,
            topic=topic,
            queue_id=queue_id,
            queue_offset=offset,
            queue_offset_next=-1 if header is None else header.next_begin_offset,
            queue_offset_min=-1 if header is None else header.min_offset,
            asked_ns=asked_ns,
        )
        brokers.recorder.record(told, broker, reader)
        if header is None:
            return offset if pulled.code == ResponseCode.TOPIC_NOT_EXIST else None
        for message in found(pulled):
            read = ClientTopicRead(
                status="as_sent" if message.is_as_sent else "altered",
                offset=message.offset,
                topic=topic,
                queue_id=queue_id,
                queue_offset=message.queue_offset,
                asked_ns=asked_ns,
            )
            brokers.recorder.record(read, broker, reader)
        if not pulled.messages and header.next_begin_offset == offset:
            return offset
        offset = header.next_begin_offset
