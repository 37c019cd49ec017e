"""Makes one offset of the reports of live slaves: everything before it is replicated.

In RocketMQ any report of any peer raises push2SlaveMaxOffset, which never falls, so 8 stray bytes on the HA port
acknowledge every later put (#3015). Here a report counts while its connection lives.
"""

from __future__ import annotations

import attrs


@attrs.frozen
class ReplicationState:
    """What the store needs to know of the slaves: `acks_required` of them have everything before `replicated_to`.

    With `acks_min` (enableAutoInSyncReplicas) fewer may do, and how many depends on the master's end: see `seen_from`.
    """

    live_slaves: int = 0
    replicated_to: int = 0
    acks_required: int = 1
    acks_min: int | None = None
    #: With `acks_min`: the newest report of each slave that has reported, the highest first.
    reports: tuple[int, ...] = ()

    def seen_from(self, master_put_where: int, fallbehind_max_bytes: int) -> ReplicationState:
        """This state for a put that ends at `master_put_where`: no more slaves are required than are near enough.

        RocketMQ 5 counts them in HAService.inSyncReplicasNums. There a slave that has reported nothing counts as near,
        but no more count than the name server knows.
        """
        if self.acks_min is None:
            return self
        in_sync = sum(master_put_where - report < fallbehind_max_bytes for report in self.reports)
        acks = max(self.acks_min, min(self.acks_required, in_sync))
        return ReplicationState(self.live_slaves, _reached_by(acks, self.reports), acks)

    @property
    def is_needed(self) -> bool:
        """Whether a put has to wait for a slave at all: not if the master may go on alone."""
        return self.acks_required > 0

    def is_slave_ok(self, master_put_where: int, fallbehind_max_bytes: int) -> bool:
        """Whether a put that ends at `master_put_where` may wait for slaves (HAService.isSlaveOK): enough, and near."""
        return self.live_slaves >= self.acks_required and master_put_where - self.replicated_to < fallbehind_max_bytes


@attrs.define(eq=False, repr=False)
class GroupTransfer:
    """The reports of the live connections, by connection number. `acks_required` slaves make an offset replicated.

    With `acks_min` below it, as many as are in sync are enough, but never fewer than that (enableAutoInSyncReplicas).
    """

    acks_required: int = 1
    acks_min: int | None = None
    #: None: nothing yet. It has the same connections as `_hosts`.
    _reports: dict[int, int | None] = attrs.field(factory=dict, init=False)
    _hosts: dict[int, str] = attrs.field(factory=dict, init=False)
    #: Connections that have been silent since a newer one came from the same host: it may be the same slave. Each is in
    #: `_reports`.
    _doubtful: dict[int, None] = attrs.field(factory=dict, init=False)

    def connected(self, conn_id: int, host: str = "") -> ReplicationState:
        """A slave connected, and has reported nothing yet. Several may share a `host`; "" is a host of its own."""
        self._reports.setdefault(conn_id, None)
        self._hosts[conn_id] = host
        if host:
            self._doubtful.update((each, None) for each, of in self._hosts.items() if of == host and each != conn_id)
        assert self._reports.keys() == self._hosts.keys() >= self._doubtful.keys()
        return self.state()

    def reported(self, conn_id: int, offset: int) -> ReplicationState:
        """A slave has everything before `offset`. A report of a connection that is gone does not count."""
        if conn_id in self._reports:
            self._reports[conn_id] = offset
            self._doubtful.pop(conn_id, None)
        return self.state()

    def disconnected(self, conn_id: int) -> ReplicationState:
        """A connection ended: what its slave reported no longer counts."""
        for of_connections in (self._reports, self._hosts, self._doubtful):
            of_connections.pop(conn_id, None)
        assert self._reports.keys() == self._hosts.keys() >= self._doubtful.keys()
        return self.state()

    def _counted(self) -> list[int]:
        """The reports of certainly different slaves: the protocol has no names, and lost connections live on."""
        if not self._doubtful:
            return [report for report in self._reports.values() if report is not None]
        counted: list[int] = []
        for host in dict.fromkeys(self._hosts.values()):
            of_host = {conn_id: self._reports[conn_id] for conn_id, of in self._hosts.items() if of == host}
            sure = sorted(
                each for conn_id, each in of_host.items() if each is not None and conn_id not in self._doubtful
            )
            doubtful = [each for conn_id, each in of_host.items() if each is not None and conn_id in self._doubtful]
            if doubtful:  # it may be one of the other slaves on that host
                sure[-1:] = [max([*sure[-1:], *doubtful])]
            counted += sure
        return counted

    def state(self) -> ReplicationState:
        """The highest offset that enough live slaves have reached; 0 when there are too few slaves."""
        reports = tuple(sorted(self._counted(), reverse=True))
        state = ReplicationState(len(self._reports), _reached_by(self.acks_required, reports), self.acks_required)
        return state if self.acks_min is None else attrs.evolve(state, acks_min=self.acks_min, reports=reports)


def _reached_by(acks: int, reports: tuple[int, ...]) -> int:
    return reports[acks - 1] if 0 < acks <= len(reports) else 0
