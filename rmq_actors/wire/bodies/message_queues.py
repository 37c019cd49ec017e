"""Queues as clients name them (MessageQueue), and the locks that orderly consumers take on them."""

from __future__ import annotations

from msgspec import field

from rmq_actors.wire.bodies.remoting_serializable import RemotingSerializable
from rmq_actors.wire.java_numbers import Int32


class MessageQueue(RemotingSerializable, frozen=True, kw_only=True, gc=False):
    """One queue of a topic on a broker; a key in several tables."""

    broker_name: str
    queue_id: Int32
    topic: str


class LockBatchRequestBody(RemotingSerializable, frozen=True, kw_only=True):
    """The queues that a consumer wants for itself."""

    client_id: str
    consumer_group: str
    mq_set: list[MessageQueue] = field(default_factory=list)


class LockBatchResponseBody(RemotingSerializable, frozen=True, kw_only=True):
    """Those that it got."""

    lock_ok_mq_set: list[MessageQueue] = field(default_factory=list, name="lockOKMQSet")


class UnlockBatchRequestBody(RemotingSerializable, frozen=True, kw_only=True):
    """The queues that a consumer gives back."""

    client_id: str
    consumer_group: str
    mq_set: list[MessageQueue] = field(default_factory=list)
