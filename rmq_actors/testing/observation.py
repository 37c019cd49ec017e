"""Whether the brokers have met the faults that were made: a fault that nobody notices tests nothing."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

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
    "power_loss",
    "pause",
    "hold",
    "loss",
    "bandwidth",
    "disk_slow",
    "disk_stuck",
    "disk_error",
    "disk_full",
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
    _powerless: set[str] = attrs.field(factory=set, init=False)
    _sent_ns: dict[int, int] = attrs.field(factory=dict, init=False)
    #: The node that last went on after a pause, and when.
    _resumed: tuple[str, int] = attrs.field(default=("", 0), init=False)
    _names: Mapping[str, Callable[[Event], str | None]] = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self._names = {
            "fault.begin": self._fault_begins,
            "fault.end": self._fault_ends,
            "net.partial_write": lambda _: "partial_write",
            "net.partial_read": lambda _: "partial_read",
            "net.held": self._held,
            "net.lost": lambda _: "loss",
            "net.queued": lambda _: "bandwidth",
            "storage.slow": lambda _: "disk_slow",
            "storage.stuck": lambda _: "disk_stuck",
            "storage.error": lambda event: {"EIO": "disk_error", "ENOSPC": "disk_full"}.get(event.status or ""),
            "node.resume": self._resume,
            "ha.heartbeat": self._goes_on,
            "ha.client.report": self._goes_on,
            "log.flush": self._goes_on,
            "net.stall": lambda _: "stall" if self._active.get("Stall") else None,
            "net.reset": self._reset,
            "ha.connection.close": self._closed,
            "ha.client.close": self._closed,
            "put.end": lambda event: "slave_timeout" if event.status == "FLUSH_SLAVE_TIMEOUT" else None,
            "node.kill": self._kill,
            "node.power_loss": self._power_loss,
            "store.open": self._opened,
            "ha.transfer": self._transfer,
            "ha.report": self._report,
        }

    @property
    def kinds(self) -> Collection[str]:
        """The kinds of events that `observe` looks at."""
        return self._names.keys()

    def observe(self, event: Event) -> None:
        """Look at one event: subscribe this to the run's recorder, for `kinds`."""
        name_of = self._names.get(event.kind)
        name = name_of(event) if name_of is not None else None
        if name is not None and name not in self.observed:
            self.observed.add(name)
            self.recorder.record(event.node, "FaultObserver", "fault.observed", status=name, parent_seq=event.seq)

    def _fault_begins(self, event: Event) -> None:
        fault = (event.attrs or {})["fault.kind"]
        self._active[fault] = self._active.get(fault, 0) + 1

    def _fault_ends(self, event: Event) -> None:
        self._active[(event.attrs or {})["fault.kind"]] -= 1

    def _reset(self, event: Event) -> None:
        self._resets[event.node] = event.status or ""

    def _held(self, _: Event) -> str | None:
        names = {"Partition": "partition", "Hold": "hold"}
        causes = [name for kind, name in names.items() if self._active.get(kind)]
        return next((name for name in causes if name not in self.observed), None)

    def _resume(self, event: Event) -> None:
        self._resumed = event.node, event.sim_time_ns or 0

    def _goes_on(self, event: Event) -> str | None:
        """Work that is done in the very instant in which its node goes on has waited for that."""
        return "pause" if (event.node, event.sim_time_ns) == self._resumed else None

    def _closed(self, event: Event) -> str | None:
        if event.status == "housekeeping":
            return "housekeeping_master" if event.kind == "ha.connection.close" else "housekeeping_slave"
        if event.status == "connection_lost":
            # The network's account of the reset comes before the broker's of its lost connection.
            return {"fault": "reset", "killed": "kill"}.get(self._resets.pop(event.node, ""))
        return None

    def _kill(self, event: Event) -> None:
        self._killed = True

    def _power_loss(self, event: Event) -> None:
        self._powerless.add(event.node)

    def _opened(self, event: Event) -> str | None:
        if event.node in self._powerless:
            return "power_loss"
        return "restart" if self._killed and event.offset else None

    def _transfer(self, event: Event) -> None:
        self._sent_ns.setdefault(event.conn_id or 0, event.sim_time_ns or 0)

    def _report(self, event: Event) -> str | None:
        sent_ns = self._sent_ns.pop(event.conn_id or 0, None)
        late = sent_ns is not None and (event.sim_time_ns or 0) - sent_ns > _LATE_S * 1e9
        return "delay" if late and self._active.get("Delay") else None
