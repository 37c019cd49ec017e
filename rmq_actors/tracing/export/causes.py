"""Which event of one node came of which event of another: what a trace says of bytes that went over the wire.

Pure. A link is told only where it is certain, so of two events without one nothing is known. Certain are:

- a master's `ha.report` comes of a slave's `ha.client.report` of the same offset;
- a slave's `log.append` comes of the master's `ha.transfer` that has the append's last byte;
- a `client.send` that names an offset comes of the `put.begin` that stored this offset on the broker that was asked;
  such clients are in simulated runs alone.

The first two need to know which connection of a master (`ha.connection.open`) is which of a slave
(`ha.client.connect`). No event says so; the reports do. What a master received on a connection is a part of what its
slave reported before, in the same order. Once a single slave's connection fits, it is that one. In simulated runs,
where each node has an address of its own, `addresses_of` finds these first, and then they tell from the first report
on. All slaves must leave traces.

What can be no cause any more is let go. Of a slave whose connection is not known yet, all reports are kept.
"""

from __future__ import annotations

import bisect
from collections import deque
from collections.abc import Iterable, Mapping
from typing import Any, Generic, TypeVar

import attrs

T = TypeVar("T")

#: An event, by the names of a trace's columns.
Row = Mapping[str, Any]

#: What other lines may hear of. None of these comes of an event of another line.
SENDS = frozenset({"ha.client.report", "ha.transfer", "put.begin"})
#: What happens in programs of clients that have a node of their own. Of all others the node is the broker that they
#: asked.
_OF_CLIENT_NODES = frozenset({"client.consume", "client.member", "client.call"})
#: They end all connections of a node.
_DEATHS = frozenset({"node.kill", "node.power_loss", "node.stop", "node.boot"})
#: After these a node appends what is its own.
_NO_SLAVE = _DEATHS | {"ha.client.close", "put.begin", "store.open", "log.truncate", "broker.role", "operator.promote"}


def line_of(event: Row) -> str:
    """Where an event is in an order with others: its node, or the clients that ask this node; "" is the world."""
    node: str = event["node"]
    kind: str = event["kind"]
    return f"{node}.clients" if kind.startswith("client.") and kind not in _OF_CLIENT_NODES else node


@attrs.define(eq=False, repr=False)
class _Puts(Generic[T]):
    """Which offsets of a node were stored by which `put.begin`, as far as there was one only."""

    starts: list[int] = attrs.field(factory=list[int])
    ends: list[int] = attrs.field(factory=list[int])
    events: list[T] = attrs.field(factory=list[T])
    #: From here on the log was written again after it had been cut.
    limit: int | None = None

    def add(self, start: int, size: int, event: T) -> None:
        if self.ends and start < self.ends[-1]:
            self.limit = start if self.limit is None else min(start, self.limit)
        elif self.limit is None:
            self.starts.append(start)
            self.ends.append(start + size)
            self.events.append(event)

    def of(self, offset: int) -> T | None:
        place = bisect.bisect_right(self.starts, offset) - 1
        if place < 0 or offset >= self.ends[place] or (self.limit is not None and offset >= self.limit):
            return None
        return self.events[place]


@attrs.define(eq=False, repr=False)
class _SlaveEnd(Generic[T]):
    """The slave's end of a connection: what it reported, as (offset, event), until the master has received it."""

    node: str
    reports: list[tuple[int, T]] = attrs.field(factory=list[tuple[int, T]])
    #: Once it is known.
    master: _MasterEnd[T] | None = None
    #: Its master has received what it had not reported: no report of it is sure any more.
    is_strange: bool = False

    def place(self, offset: int, begin: int = 0) -> int | None:
        """Which report, from a place on, is the first one of this offset."""
        return next((at for at in range(begin, len(self.reports)) if self.reports[at][0] == offset), None)

    def received(self, place: int) -> T:
        """The master has received this report, and will receive no earlier one."""
        _, event = self.reports[place]
        del self.reports[: place + 1]
        return event


@attrs.define(eq=False, repr=False)
class _MasterEnd(Generic[T]):
    """The master's end of a connection, and which slave's ends it may be of."""

    node: str
    host: str
    #: To each end that fits, up to where its reports were received; None: nothing was received yet.
    fitting: dict[_SlaveEnd[T], int] | None = None
    slave: _SlaveEnd[T] | None = None
    #: What was transferred, as (offset, end, event), until the slave has it.
    transfers: deque[tuple[int, int, T]] = attrs.field(factory=deque[tuple[int, int, T]])


@attrs.define(eq=False, repr=False)
class Causes(Generic[T]):
    """Give it the events of a run, in order; it says which event of another node each one comes of."""

    #: Simulated nodes by their addresses, as far as they are known.
    addresses: dict[str, str] = attrs.field(factory=dict[str, str])
    #: Those whose master's end is not known, in the order in which they connected.
    _slave_ends: dict[_SlaveEnd[T], None] = attrs.field(factory=dict[_SlaveEnd[T], None], init=False)
    _following: dict[str, _SlaveEnd[T]] = attrs.field(factory=dict[str, _SlaveEnd[T]], init=False)
    _master_ends: dict[tuple[str, int], _MasterEnd[T]] = attrs.field(
        factory=dict[tuple[str, int], _MasterEnd[T]], init=False
    )
    _puts: dict[str, _Puts[T]] = attrs.field(factory=dict[str, _Puts[T]], init=False)

    def sent(self, event: Row, what: T) -> None:
        """An event of `SENDS`: those that come of it later get `what` for an answer."""
        kind, node = event["kind"], event["node"]
        if kind == "ha.client.report":
            if (end := self._following.get(node)) is not None and not end.is_strange:
                end.reports.append((event["offset"], what))
        elif kind == "ha.transfer":
            master, first = self._master_ends.get((node, event["conn_id"])), event["offset"]
            if master is not None and event["size"]:
                master.transfers.append((first, first + event["size"], what))
        else:
            self._leave(node)
            if "sim_time_ns" in event:
                self._puts.setdefault(node, _Puts()).add(event["offset"], event["size"], what)

    def cause(self, event: Row) -> T | None:
        """What was given with the event of another node that this one comes of, if that is certain."""
        kind, node = event["kind"], event["node"]
        if kind == "ha.report":
            return self._report(event)
        if kind == "log.append":
            return self._append(event)
        if kind == "client.send":
            puts = self._puts.get(node)
            return None if puts is None else puts.of(event["offset"])
        self._note(kind, node, event)
        return None

    def _note(self, kind: str, node: str, event: Row) -> None:
        """Remember which connections there are."""
        if kind == "ha.client.connect":
            self._leave(node)
            self._following[node] = end = _SlaveEnd[T](node)
            self._slave_ends[end] = None
        elif kind == "ha.connection.open":
            host = event["attrs"]["network.peer.address"].rpartition(":")[0] if "sim_time_ns" in event else ""
            self._master_ends[node, event["conn_id"]] = _MasterEnd[T](node, host)
        elif kind == "ha.connection.close":
            self._master_ends.pop((node, event["conn_id"]), None)
        elif kind in _NO_SLAVE:
            self._leave(node)
            if kind in _DEATHS:
                for key in [key for key in self._master_ends if key[0] == node]:
                    del self._master_ends[key]

    def _leave(self, node: str) -> None:
        """The node's connection to its master is over. What it has reported may still arrive."""
        end = self._following.pop(node, None)
        if end is not None and not end.reports:
            self._slave_ends.pop(end, None)

    def slave_of(self, master: str, conn_id: int) -> str | None:
        """Which slave a connection is of, once that is certain."""
        end = self._master_ends.get((master, conn_id))
        return end.slave.node if end is not None and end.slave is not None else None

    def _report(self, event: Row) -> T | None:
        master, offset = self._master_ends.get((event["node"], event["conn_id"])), event["offset"]
        if master is None:
            return None
        while master.transfers and master.transfers[0][1] <= offset:  # the slave has said that it has them
            master.transfers.popleft()
        slave = master.slave
        if slave is None:
            return self._match(master, offset)
        if (place := slave.place(offset)) is not None:
            return slave.received(place)
        slave.is_strange = True
        slave.reports.clear()
        return None

    def _match(self, master: _MasterEnd[T], offset: int) -> T | None:
        """Narrow down which slave's end this is; if it is known now, the report."""
        # Whose first report this is has connected before.
        before = dict.fromkeys(self._slave_ends, 0) if master.fitting is None else master.fitting
        known = self.addresses.get(master.host)
        master.fitting = {
            end: place + 1
            for end, begin in before.items()
            if end.master is None and end.node != master.node and known in (None, end.node)
            if (place := end.place(offset, begin)) is not None
        }
        if len(master.fitting) != 1:
            return None
        ((slave, begin),) = master.fitting.items()
        master.slave, slave.master = slave, master
        master.fitting.clear()
        del self._slave_ends[slave]
        if master.host:
            self.addresses[master.host] = slave.node
        return slave.received(begin - 1)

    def _append(self, event: Row) -> T | None:
        slave = self._following.get(event["node"])
        if slave is None or slave.master is None:
            return None
        transfers, end = slave.master.transfers, event["offset"] + event["size"]
        while transfers and transfers[0][1] < end:
            transfers.popleft()
        return transfers[0][2] if transfers and transfers[0][0] < end else None


#: What tells which connection is which: other kinds of events need not be given for that.
CONNECTION_KINDS = _NO_SLAVE | {
    *("ha.client.connect", "ha.client.report", "ha.connection.open", "ha.connection.close", "ha.report"),
}


def addresses_of(events: Iterable[Row]) -> dict[str, str]:
    """The slaves of a simulated run by their addresses."""
    causes = Causes[None]()
    for event in events:
        if event["kind"] in SENDS:
            causes.sent(event, None)
        else:
            causes.cause(event)
    return causes.addresses
