"""Which actors live in a broker, and which clients it has (GET_BROKER_CENSUS, this project's)."""

from __future__ import annotations

from msgspec import field

from rmq_actors.wire.bodies.remoting_serializable import RemotingSerializable
from rmq_actors.wire.java_numbers import Int32


class ActorInfo(RemotingSerializable, frozen=True, kw_only=True, gc=False):
    """One actor or service. `mailbox_max`: how much its mailbox, or its queue of requests, holds; 0 if it has none."""

    kind: str | None = None
    mailbox: Int32 = 0
    mailbox_max: Int32 = 0
    path: str | None = None
    restarts: Int32 = 0
    state: str | None = None
    waiting_senders: Int32 = 0


class BrokerCensus(RemotingSerializable, frozen=True, kw_only=True):
    """All of it was so at one moment. `connections` of clients, of both ports; `held_pulls` wait for a message.

    A client counts once in `producers` for each of its groups, and so in `consumers`.
    """

    actors: list[ActorInfo] = field(default_factory=list)
    connections: Int32 = 0
    consumers: Int32 = 0
    dead_letters: Int32 = 0
    held_pulls: Int32 = 0
    producers: Int32 = 0
