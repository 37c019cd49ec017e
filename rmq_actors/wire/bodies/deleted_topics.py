"""Where the present lives of a master's topics begin (GET_DELETED_TOPICS, this project's)."""

from __future__ import annotations

import msgspec

from rmq_actors.wire.bodies.remoting_serializable import RemotingSerializable
from rmq_actors.wire.java_numbers import Int64


class DeletedTopicsInfo(RemotingSerializable, frozen=True, kw_only=True):
    """`points`: by topic, and by queue id or "*" for all, the log offset before which records do not count.

    `min_offset`: where the log begins; what was deleted before that the master has forgotten.
    """

    min_offset: Int64 = 0
    points: dict[str, dict[str, Int64]] = msgspec.field(default_factory=dict)
