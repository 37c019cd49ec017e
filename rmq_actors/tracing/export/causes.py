"""Which event of one node came of which event of another: what a trace says of bytes that went over the wire.

Pure. A link is told only where it is certain, so of two events without one nothing is known. Certain are:

- a master's `ha.report` comes of a slave's `ha.client.report` of the same offset;
- a slave's `log.append` comes of the master's `ha.transfer` that has the append's last byte;
- a `client.send` that names an offset comes of the `put.begin` that stored this offset on the broker that was asked.

The first two need to know which connection of a master (`ha.connection.open`) is which of a slave
(`ha.client.connect`). No event says so; the reports do. What a master received on a connection is a part of what its
slave reported before, in the same order. Once a single slave's connection fits, it is that one. In simulated runs,
where each node has an address of its own, `addresses_of` finds these first, and then they tell from the first report
on. All slaves must leave traces.
"""

from __future__ import annotations

import bisect
from collections.abc import Iterable, Mapping
from typing import Any

import attrs

#: An event, by the names of a trace's columns.
Row = Mapping[str, Any]
#: An event's name: the line that it is on, and its seq.
EventId = tuple[str, int]

#: What other lines may hear of.
SENDS = frozenset({"ha.client.report", "ha.transfer", "put.begin"})
#: Events of clients that have no node of their own: their node is the broker that they asked.
_OF_CLIENTS = frozenset(
    {
        *("client.send", "client.pull", "client.read", "client.table", "client.transaction"),
        *("client.topic", "client.topic_offset", "client.topic_pull", "client.topic_read"),
    }
)
#: They end all connections of a node.
_DEATHS = frozenset({"node.kill", "node.power_loss", "node.stop", "node.boot"})
#: After these a node appends what is its own.
_NO_SLAVE = _DEATHS | {"ha.client.close", "put.begin", "store.open", "log.truncate", "broker.role", "operator.promote"}


def line_of(event: Row) -> str:
    """Where an event is in an order with others: its node, or the clients that ask this node; "" is the world."""
    node: str = event["node"]
    return f"{node}.clients" if event["kind"] in _OF_CLIENTS else node


@attrs.define(eq=False, repr=False)
class _Puts:
    """Which offsets of a node were stored by which `put.begin`, as far as there was one only."""

    starts: list[int] = attrs.field(factory=list[int])
    ends: list[int] = attrs.field(factory=list[int])
    seqs: list[int] = attrs.field(factory=list[int])
    #: From here on the log was written again after it had been cut.
    limit: int | None = None

    def add(self, event: Row) -> None:
        start = event["offset"]
        if self.ends and start < self.ends[-1]:
            self.limit = start if self.limit is None else min(start, self.limit)
        else:
            self.starts.append(start)
            self.ends.append(start + event["size"])
            self.seqs.append(event["seq"])

    def seq_of(self, offset: int) -> int | None:
        place = bisect.bisect_right(self.starts, offset) - 1
        if place < 0 or offset >= self.ends[place] or (self.limit is not None and offset >= self.limit):
            return None
        return self.seqs[place]


@attrs.define(eq=False, repr=False)
class _SlaveEnd:
    """The slave's end of a connection: what it reported, as (offset, seq)."""

    node: str
    reports: list[tuple[int, int]] = attrs.field(factory=list[tuple[int, int]])
    #: Once it is known.
    master: _MasterEnd | None = None


@attrs.define(eq=False, repr=False)
class _MasterEnd:
    """The master's end of a connection, and which slave's ends it may be of."""

    node: str
    host: str
    #: To each end that fits, up to where its reports were received.
    fitting: dict[_SlaveEnd, int] = attrs.field(factory=dict["_SlaveEnd", int])
    #: What was transferred, as (offset, end, seq), until the slave has it.
    transfers: list[tuple[int, int, int]] = attrs.field(factory=list[tuple[int, int, int]])
    received: list[int] = attrs.field(factory=list[int])
    slave: _SlaveEnd | None = None


@attrs.define(eq=False, repr=False)
class Causes:
    """Give it the events of a run, in order; it says which event of another node each one comes of."""

    #: Simulated nodes by their addresses, as far as they are known.
    addresses: dict[str, str] = attrs.field(factory=dict[str, str])
    _slave_ends: list[_SlaveEnd] = attrs.field(factory=list[_SlaveEnd], init=False)
    _following: dict[str, _SlaveEnd] = attrs.field(factory=dict[str, _SlaveEnd], init=False)
    _master_ends: dict[tuple[str, int], _MasterEnd] = attrs.field(factory=dict[tuple[str, int], _MasterEnd], init=False)
    _puts: dict[str, _Puts] = attrs.field(factory=dict[str, _Puts], init=False)

    def cause(self, event: Row) -> EventId | None:
        """The event of another node that this one comes of, if that is certain."""
        kind, node = event["kind"], event["node"]
        if kind == "ha.report":
            return self._report(event)
        if kind == "log.append":
            return self._append(event)
        if kind == "client.send":
            seq = self._puts.setdefault(node, _Puts()).seq_of(event["offset"])
            return None if seq is None else (node, seq)
        self._note(kind, node, event)
        return None

    def _note(self, kind: str, node: str, event: Row) -> None:
        """Remember what later events may come of."""
        if kind == "put.begin":
            self._puts.setdefault(node, _Puts()).add(event)
        if kind == "ha.client.report":
            if (end := self._following.get(node)) is not None:
                end.reports.append((event["offset"], event["seq"]))
        elif kind == "ha.transfer":
            if (master := self._master_ends.get((node, event["conn_id"]))) is not None:
                first = event["offset"]
                master.transfers.append((first, first + event["size"], event["seq"]))
        elif kind == "ha.client.connect":
            self._following[node] = end = _SlaveEnd(node)
            self._slave_ends.append(end)
        elif kind == "ha.connection.open":
            host = event["attrs"]["network.peer.address"].rpartition(":")[0] if "sim_time_ns" in event else ""
            self._master_ends[node, event["conn_id"]] = _MasterEnd(node, host)
        elif kind == "ha.connection.close":
            self._master_ends.pop((node, event["conn_id"]), None)
        elif kind in _NO_SLAVE:
            self._following.pop(node, None)
            if kind in _DEATHS:
                for key in [key for key in self._master_ends if key[0] == node]:
                    del self._master_ends[key]

    def slave_of(self, master: str, conn_id: int) -> str | None:
        """Which slave a connection is of, once that is certain."""
        end = self._master_ends.get((master, conn_id))
        return end.slave.node if end is not None and end.slave is not None else None

    def _report(self, event: Row) -> EventId | None:
        master = self._master_ends.get((event["node"], event["conn_id"]))
        if master is None:
            return None
        offset = event["offset"]
        if master.slave is None:
            self._match(master, offset)
        else:
            master.fitting = _that_fit(master.fitting, offset)
        if master.slave is None or not master.fitting:
            return None
        slave = master.slave
        return slave.node, slave.reports[master.fitting[slave] - 1][1]

    def _match(self, master: _MasterEnd, offset: int) -> None:
        """Narrow down which slave's end this is."""
        known = self.addresses.get(master.host)
        fitting = {
            end: 0
            for end in self._slave_ends
            if end.master is None and end.node != master.node and known in (None, end.node)
        }
        master.received.append(offset)
        for received in master.received:
            fitting = _that_fit(fitting, received)
        if len(fitting) == 1:
            (slave,) = fitting
            master.slave, master.fitting, slave.master = slave, fitting, master
            self._slave_ends.remove(slave)
            master.received.clear()
            if master.host:
                self.addresses[master.host] = slave.node

    def _append(self, event: Row) -> EventId | None:
        slave = self._following.get(event["node"])
        if slave is None or slave.master is None:
            return None
        master, end = slave.master, event["offset"] + event["size"]
        for place, (first, last, seq) in enumerate(master.transfers):
            if first < end <= last:
                del master.transfers[:place]
                return master.node, seq
        return None


def _that_fit(ends: Mapping[_SlaveEnd, int], offset: int) -> dict[_SlaveEnd, int]:
    """Those that have reported the offset after what was received before, with the place after that report."""
    return {
        end: place + 1
        for end, begin in ends.items()
        if (place := next((at for at in range(begin, len(end.reports)) if end.reports[at][0] == offset), -1)) >= 0
    }


#: What tells which connection is which: other kinds of events need not be given for that.
CONNECTION_KINDS = _NO_SLAVE | {
    *("ha.client.connect", "ha.client.report", "ha.connection.open", "ha.connection.close", "ha.report"),
}


def addresses_of(events: Iterable[Row]) -> dict[str, str]:
    """The slaves of a simulated run by their addresses; of a real one, whose nodes may share one, none."""
    causes = Causes()
    for event in events:
        causes.cause(event)
    return causes.addresses
