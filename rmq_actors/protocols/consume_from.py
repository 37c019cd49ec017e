"""Where a consumer begins in a queue (computePullFromWhere): at its group's offset, and without one where it says.

Queues of retries are not what an operator means by "from the last message": their messages were this group's already.
"""

from __future__ import annotations

from typing import Literal

import attrs

from rmq_actors.protocols.send_rules import RETRY_GROUP_TOPIC_PREFIX
from rmq_actors.wire.bodies.heartbeat import ConsumeFromWhere

#: What an offset store says of a queue without an offset, and of one whose offset could not be asked.
NO_OFFSET = -1
OFFSET_UNKNOWN = -2

Lookup = Literal["max_offset", "offset_of_time"]


@attrs.frozen
class BeginAt:
    """At an offset."""

    offset: int


@attrs.frozen
class AskBroker:
    """Where the broker says: at the queue's end, or at the first message of a time."""

    lookup: Lookup


def compute_pull_from_where(where: ConsumeFromWhere, stored_offset: int, topic: str) -> BeginAt | AskBroker | None:
    """Where to begin; None: not now, as the stored offset is not known. `stored_offset` -1: there is none."""
    if stored_offset >= 0:
        return BeginAt(stored_offset)
    if stored_offset != NO_OFFSET:
        return None
    is_retry = topic.startswith(RETRY_GROUP_TOPIC_PREFIX)
    if where is ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET:
        return BeginAt(0)
    if where is ConsumeFromWhere.CONSUME_FROM_TIMESTAMP:
        return AskBroker("max_offset" if is_retry else "offset_of_time")
    return BeginAt(0) if is_retry else AskBroker("max_offset")
