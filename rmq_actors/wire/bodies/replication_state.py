"""What a broker answers about replication in one step (GET_REPLICATION_STATE, this project's)."""

from __future__ import annotations

from rmq_actors.wire.bodies.remoting_serializable import RemotingSerializable
from rmq_actors.wire.java_numbers import Int64


class ReplicationStateInfo(RemotingSerializable, frozen=True, kw_only=True):
    """All of it was so at one moment. `leads_term`: the broker was promoted to `term`; it may be a slave again.

    `followed_address`: where a slave's master serves its log; `followed`: it does so now. `halted`: why the slave asks
    it no more, nothing if it does. `ha_address`: where this broker serves its own log.
    """

    broker_id: Int64 = 0
    broker_name: str | None = None
    broker_role: str | None = None
    flushed_offset: Int64 = 0
    followed: bool = False
    followed_address: str | None = None
    ha_address: str | None = None
    halted: str | None = None
    leads_term: bool = False
    max_offset: Int64 = 0
    min_offset: Int64 = 0
    term: Int64 = 0
