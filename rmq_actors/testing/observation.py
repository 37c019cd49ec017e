"""Whether the brokers have met the faults that were made: a fault that nobody notices tests nothing."""

from __future__ import annotations

import attrs

from rmq_actors.tracing.event import Event
from rmq_actors.tracing.recorder import Recorder

#: What a campaign of the replication scenario must meet, over all its runs.
OBSERVABLE = (
    "partial_write",
    "partial_read",
    "stall",
    "partition",
    "delay",
    "reset",
    "kill",
    "restart",
    "housekeeping_master",
    "housekeeping_slave",
    "slave_timeout",
)

#: A report that takes this long after the append that it answers was held up by a fault: links take up to 20 ms each
#: way.
_LATE_S = 0.05


@attrs.define(eq=False)
class FaultObserver:
    """Records `fault.observed` the first time that each kind shows in a run; subscribe `observe` to the recorder."""

    recorder: Recorder
    observed: set[str] = attrs.field(factory=set, init=False)
    _active: dict[str, int] = attrs.field(factory=dict, init=False)
    _resets: dict[str, str] = attrs.field(factory=dict, init=False)
    _killed: bool = attrs.field(default=False, init=False)
    _sent_ns: dict[int, int] = attrs.field(factory=dict, init=False)

    def observe(self, event: Event) -> None:
        """Look at one event."""
        name = self._name(event)
        if name is not None and name not in self.observed:
            self.observed.add(name)
            self.recorder.record(event.node, "FaultObserver", "fault.observed", status=name, parent_seq=event.seq)

    def _name(self, event: Event) -> str | None:
        kind = event.kind
        if kind in {"fault.begin", "fault.end"}:
            fault = (event.attrs or {})["fault.kind"]
            self._active[fault] = self._active.get(fault, 0) + (1 if kind == "fault.begin" else -1)
            return None
        if kind in {"net.partial_write", "net.partial_read"}:
            return kind.removeprefix("net.")
        if kind == "net.held":
            return "partition" if self._active.get("Partition") else None
        if kind == "net.stall":
            return "stall" if self._active.get("Stall") else None
        if kind == "net.reset":
            self._resets[event.node] = event.status or ""
            return None
        if kind in {"ha.connection.close", "ha.client.close"}:
            return self._closed(event)
        if kind == "put.end" and event.status == "FLUSH_SLAVE_TIMEOUT":
            return "slave_timeout"
        return self._node_or_delay(event)

    def _closed(self, event: Event) -> str | None:
        if event.status == "housekeeping":
            return "housekeeping_master" if event.kind == "ha.connection.close" else "housekeeping_slave"
        if event.status == "connection_lost":
            # The network's account of the reset comes before the broker's of its lost connection.
            return {"fault": "reset", "killed": "kill"}.get(self._resets.pop(event.node, ""))
        return None

    def _node_or_delay(self, event: Event) -> str | None:
        if event.kind == "node.kill":
            self._killed = True
        elif event.kind == "store.open" and self._killed and event.offset:
            return "restart"
        elif event.kind == "ha.transfer":
            self._sent_ns.setdefault(event.conn_id or 0, event.sim_time_ns or 0)
        elif event.kind == "ha.report":
            sent_ns = self._sent_ns.pop(event.conn_id or 0, None)
            late = sent_ns is not None and (event.sim_time_ns or 0) - sent_ns > _LATE_S * 1e9
            return "delay" if late and self._active.get("Delay") else None
        return None
