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

    def is_slave_ok(self, master_put_where: int, fallbehind_max_bytes: int) -> bool:
        """Whether a put that ends at `master_put_where` may wait for slaves (HAService.isSlaveOK): enough, and near."""
        return self.live_slaves >= self.acks_required and master_put_where - self.replicated_to < fallbehind_max_bytes


@attrs.define(eq=False)
class GroupTransfer:
    """The reports of the live connections, by connection number. `acks_required` slaves make an offset replicated."""

    acks_required: int = 1
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
        """The highest offset that `acks_required` live slaves have reached; 0 when there are too few slaves."""
        offsets = sorted(self._reports.values(), reverse=True)
        enough = len(offsets) >= self.acks_required
        replicated_to = offsets[self.acks_required - 1] if enough else 0
        return ReplicationState(len(offsets), replicated_to, self.acks_required)
