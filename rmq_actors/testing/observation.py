"""Whether the brokers have met the faults of a run: a fault that nobody notices tests nothing."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any

import attrs

from rmq_actors.testing.invariants import DamagedMaster, FollowedUnasked, QueueBegunAgain
from rmq_actors.testing.view import ClusterView
from rmq_actors.tracing.event import Event
from rmq_actors.tracing.events.broker import BrokerRoleEvent
from rmq_actors.tracing.events.ha import (
    HaClientClose,
    HaClientHalt,
    HaClientReport,
    HaConnectionClose,
    HaConnectionOpen,
    HaHeartbeat,
    HaReport,
    HaTransfer,
)
from rmq_actors.tracing.events.network import (
    NetConnect,
    NetHeld,
    NetLost,
    NetPartialRead,
    NetPartialWrite,
    NetQueued,
    NetReset,
    NetStall,
)
from rmq_actors.tracing.events.node import ClockJump, NodeKill, NodePowerLoss, NodeResume
from rmq_actors.tracing.events.run import FaultBegin, FaultEnd, FaultObserved
from rmq_actors.tracing.events.storage import (
    StorageError,
    StorageLost,
    StorageRot,
    StorageSlow,
    StorageStuck,
    StorageTorn,
)
from rmq_actors.tracing.events.store import LogAppend, LogDelete, LogFlush, LogTruncate, PutEnd, StoreOpen
from rmq_actors.tracing.recorder import Recorder
from sim_net import ClockDrift, Fault, Partition, Schedule, fault_kind

#: What a campaign of either scenario must meet, over all its runs.
OBSERVABLE = (
    "partial_write",
    "partial_read",
    "stall",
    "partition",
    "partition_one_way",
    "connect_refused",
    "connect_timeout",
    "second_connection",
    "delay",
    "reset",
    "kill",
    "restart",
    "power_loss",
    "unsynced_lost",
    "torn_pages",
    "pause",
    "clock_jump",
    "clock_drift",
    "hold",
    "loss",
    "bandwidth",
    "disk_slow",
    "disk_stuck",
    "disk_error",
    "sync_failed",
    "disk_full",
    "housekeeping_master",
    "housekeeping_slave",
    "slave_timeout",
)
#: What a campaign without fail-overs meets, too.
OBSERVABLE_IN_REPLICATION = ("log_cleaned", "offset_gone", "answered_from_pool", "bit_rot")
#: What a few hundred runs may not meet.
RARELY_OBSERVED = frozenset({"torn_pages", "clock_drift", "disk_error"})
#: The limits at which a run ends.
UNASKED = FollowedUnasked.name
DAMAGED_MASTER = DamagedMaster.name
QUEUE_BEGUN_AGAIN = QueueBegunAgain.name
#: What a campaign with fail-overs meets, too.
OBSERVABLE_IN_FAIL_OVERS = ("promotion", "step_down", "halt", "truncation", "master_behind")
#: All that there is; a limit of one's own is met under its name, too.
ALL_OBSERVABLE = frozenset(
    {
        *(*OBSERVABLE, *OBSERVABLE_IN_REPLICATION, *OBSERVABLE_IN_FAIL_OVERS),
        *(UNASKED, DAMAGED_MASTER, QUEUE_BEGUN_AGAIN),
    }
)

#: A report that takes this long after the append that it answers was held up by a fault: links take up to 20 ms each
#: way.
_LATE_S = 0.05


@attrs.define(eq=False, repr=False)
class FaultObserver:
    """Records `fault.observed` the first time that each kind shows in a run; subscribe `observe` to the recorder.

    `under_load` are the kinds of faults that struck while it mattered: bytes of the log were on their way to a slave
    that the fault is of, or a put waited on the master that it is of.
    """

    recorder: Recorder
    _schedule: Schedule
    #: It must see each event first.
    _view: ClusterView
    observed: set[str] = attrs.field(factory=set, init=False)
    under_load: set[str] = attrs.field(factory=set, init=False)
    _active: dict[str, int] = attrs.field(factory=dict, init=False)
    #: The faults at work, by id.
    _at_work: dict[int, Fault] = attrs.field(factory=dict, init=False)
    #: The connections of each slave to each master.
    _connections: dict[tuple[str, str], set[int]] = attrs.field(factory=dict, init=False)
    _jumped: set[str] = attrs.field(factory=set, init=False)
    _resets: dict[str, str] = attrs.field(factory=dict, init=False)
    _killed: bool = attrs.field(default=False, init=False)
    _powerless: set[str] = attrs.field(factory=set, init=False)
    #: When bytes were sent that no report has followed yet, by node and connection.
    _sent_ns: dict[tuple[str, int], int] = attrs.field(factory=dict, init=False)
    #: The node that last went on after a pause, and when.
    _resumed: tuple[str, int] = attrs.field(default=("", 0), init=False)
    _names: Mapping[type[Event], Callable[[Any], str | None]] = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self._names = {
            FaultBegin: self._fault_begins,
            FaultEnd: self._fault_ends,
            NetPartialWrite: lambda _: "partial_write",
            NetPartialRead: lambda _: "partial_read",
            NetHeld: self._held,
            NetLost: lambda _: "loss",
            NetQueued: lambda _: "bandwidth",
            StorageSlow: lambda _: "disk_slow",
            StorageStuck: lambda _: "disk_stuck",
            StorageError: self._disk_error,
            StorageLost: lambda event: "unsynced_lost" if event.status == "data" else None,
            StorageTorn: lambda _: "torn_pages",
            NetConnect: lambda event: "connect_refused" if event.status == "refused" else None,
            ClockJump: self._jump,
            LogAppend: self._append,
            HaConnectionOpen: self._connected,
            HaClientHalt: lambda _: "halt",
            LogTruncate: lambda _: "truncation",
            LogDelete: lambda _: "log_cleaned",
            StorageRot: lambda _: "bit_rot",
            BrokerRoleEvent: self._role,
            NodeResume: self._resume,
            HaHeartbeat: self._goes_on,
            HaClientReport: self._goes_on,
            LogFlush: self._goes_on,
            NetStall: lambda _: "stall" if self._active.get("Stall") else None,
            NetReset: self._reset,
            HaConnectionClose: self._closed,
            HaClientClose: self._closed,
            PutEnd: self._put_ended,
            NodeKill: self._kill,
            NodePowerLoss: self._power_loss,
            StoreOpen: self._opened,
            HaTransfer: self._transfer,
            HaReport: self._report,
        }

    @property
    def kinds(self) -> Collection[type[Event]]:
        """The kinds of events that `observe` looks at."""
        return self._names.keys()

    def observe(self, event: Event) -> None:
        """Look at one event: subscribe this to the run's recorder, for `kinds`."""
        name_of = self._names.get(type(event))
        name = name_of(event) if name_of is not None else None
        if name is not None and name not in self.observed:
            self.observed.add(name)
            self.recorder.record(FaultObserved(status=name, parent_seq=event.seq), event.node, "FaultObserver")

    def _fault_begins(self, event: FaultBegin) -> None:
        self._active[event.fault_kind] = self._active.get(event.fault_kind, 0) + 1
        if event.fault_id < len(self._schedule.faults):  # not one that clients have set off
            self._at_work[event.fault_id] = self._schedule.faults[event.fault_id]
            self._weigh()

    def _fault_ends(self, event: FaultEnd) -> None:
        self._active[event.fault_kind] -= 1
        self._at_work.pop(event.fault_id, None)

    def _weigh(self) -> None:
        """Which of the faults at work matter now."""
        for fault in self._at_work.values():
            kind = fault_kind(fault)
            if kind not in self.under_load and self._matters(fault):
                self.under_load.add(kind)

    def _matters(self, fault: Fault) -> bool:
        view = self._view
        slaves = [view.nodes[node] for node in fault.nodes if node in view.nodes and node != view.master.name]
        if slaves:
            return any(view.lacks(slave) for slave in slaves)
        return view.unanswered > 0 or any(view.lacks(slave) for slave in view.slaves)

    def _append(self, event: LogAppend) -> str | None:
        if event.node == self._view.master.name:
            self._weigh()
            if event.node in self._jumped:
                return "clock_jump"  # a record's time is not later than that of the one before it, or much later
            if any(isinstance(each, ClockDrift) and each.node == event.node for each in self._at_work.values()):
                return "clock_drift"
        return None

    def _jump(self, event: ClockJump) -> None:
        self._jumped.add(event.node)

    def _disk_error(self, event: StorageError) -> str | None:
        if event.operation.startswith("sync"):
            return "sync_failed"
        return {"EIO": "disk_error", "ENOSPC": "disk_full"}.get(event.status)

    def _connected(self, event: HaConnectionOpen) -> str | None:
        host = event.peer_address.rpartition(":")[0]
        if not self._view.node_of(host):
            return None  # a stranger
        connections = self._connections.setdefault((event.node, host), set())
        connections.add(event.conn_id)
        return "second_connection" if len(connections) > 1 else None

    def _role(self, event: BrokerRoleEvent) -> str | None:
        if event.status != "changed":
            return None
        return "step_down" if event.role == "SLAVE" else "promotion"

    def _reset(self, event: NetReset) -> None:
        self._resets[event.node] = event.status

    def _held(self, _: NetHeld) -> str | None:
        names = {"Partition": "partition", "Hold": "hold"}
        causes = [name for kind, name in names.items() if self._active.get(kind)]
        if any(isinstance(each, Partition) and not each.two_way for each in self._at_work.values()):
            causes.append("partition_one_way")
        return next((name for name in causes if name not in self.observed), None)

    def _resume(self, event: NodeResume) -> None:
        self._resumed = event.node, event.sim_time_ns or 0

    def _goes_on(self, event: HaHeartbeat | HaClientReport | LogFlush) -> str | None:
        """Work that is done in the very instant in which its node goes on has waited for that."""
        return "pause" if (event.node, event.sim_time_ns) == self._resumed else None

    def _closed(self, event: HaConnectionClose | HaClientClose) -> str | None:
        if isinstance(event, HaConnectionClose):
            for (node, _), connections in self._connections.items():
                if node == event.node:
                    connections.discard(event.conn_id)
        if event.status == "offset_gone":
            return "offset_gone"
        if event.status == "connect_timeout":
            return "connect_timeout"
        if event.status == "housekeeping":
            return "housekeeping_master" if isinstance(event, HaConnectionClose) else "housekeeping_slave"
        if event.status == "connection_lost":
            # The network's account of the reset comes before the broker's of its lost connection.
            return {"fault": "reset", "killed": "kill"}.get(self._resets.pop(event.node, ""))
        return None

    def _put_ended(self, event: PutEnd) -> str | None:
        if event.status == "PUT_OK" and event.offset > self._view.nodes[event.node].end:
            return "answered_from_pool"
        return "slave_timeout" if event.status == "FLUSH_SLAVE_TIMEOUT" else None

    def _kill(self, event: NodeKill) -> None:
        self._killed = True

    def _power_loss(self, event: NodePowerLoss) -> None:
        self._powerless.add(event.node)

    def _opened(self, event: StoreOpen) -> str | None:
        self._forget_connections(event.node)
        end, view = event.offset, self._view
        if event.node == view.master.name and any(slave.end > end for slave in view.slaves):
            return "master_behind"
        if event.node in self._powerless:
            return "power_loss"
        return "restart" if self._killed and event.offset else None

    def _forget_connections(self, node: str) -> None:
        """A node's process has begun again, and counts them from 1."""
        self._connections = {key: connections for key, connections in self._connections.items() if key[0] != node}
        self._sent_ns = {key: sent_ns for key, sent_ns in self._sent_ns.items() if key[0] != node}

    def _transfer(self, event: HaTransfer) -> None:
        self._sent_ns.setdefault((event.node, event.conn_id), event.sim_time_ns or 0)

    def _report(self, event: HaReport) -> str | None:
        sent_ns = self._sent_ns.pop((event.node, event.conn_id), None)
        late = sent_ns is not None and (event.sim_time_ns or 0) - sent_ns > _LATE_S * 1e9
        return "delay" if late and self._active.get("Delay") else None
