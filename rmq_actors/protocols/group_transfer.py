"""From the reports of live slaves to one offset: everything before it is replicated.

RocketMQ's push2SlaveMaxOffset is raised by any report of any peer and never falls, so a stray 8 bytes on the HA port
acknowledge every later put (#3015). Here a report counts for as long as its connection lives.
"""

from __future__ import annotations

import attrs


@attrs.frozen
class ReplicationState:
    """What the store needs to know of the slaves."""

    live_slaves: int = 0
    replicated_to: int = 0
    acks_required: int = 1

    @property
    def is_needed(self) -> bool:
        """Whether a put has to wait for any slave: not while a master may go on alone."""
        return self.acks_required > 0

    def is_slave_ok(self, master_put_where: int, fallbehind_max_bytes: int) -> bool:
        """Whether a put that ends at `master_put_where` may wait for slaves (HAService.isSlaveOK): enough, and near."""
        return self.live_slaves >= self.acks_required and master_put_where - self.replicated_to < fallbehind_max_bytes


@attrs.define(eq=False)
class GroupTransfer:
    """The reports of the live connections, by connection number. `acks_required` slaves make an offset replicated.

    With `acks_min` below it, as many as live are enough, but never fewer than that (enableAutoInSyncReplicas).
    """

    acks_required: int = 1
    acks_min: int | None = None
    _reports: dict[int, int] = attrs.field(factory=dict, init=False)

    def connected(self, conn_id: int) -> ReplicationState:
        """A slave connected; it has reported nothing yet."""
        self._reports.setdefault(conn_id, 0)
        return self.state()

    def reported(self, conn_id: int, offset: int) -> ReplicationState:
        """A slave has everything before `offset`. A report of a connection that is gone does not count."""
        if conn_id in self._reports:
            self._reports[conn_id] = offset
        return self.state()

    def disconnected(self, conn_id: int) -> ReplicationState:
        """A connection ended: what its slave reported no longer counts."""
        self._reports.pop(conn_id, None)
        return self.state()

    def state(self) -> ReplicationState:
        """The highest offset that enough live slaves have reached; 0 when there are too few slaves."""
        offsets = sorted(self._reports.values(), reverse=True)
        acks = self.acks_required
        if self.acks_min is not None:
            acks = min(acks, max(self.acks_min, len(offsets)))
        replicated_to = offsets[acks - 1] if 0 < acks <= len(offsets) else 0
        return ReplicationState(len(offsets), replicated_to, acks)
