"""A run in the JSON of the Trace Event Format, which Perfetto's page opens.

Nodes are processes, actors are threads. Every event is there: as an instant, or, if it is of a message between nodes,
as a slice of a nanosecond, because arrows join slices. Where two events bound something there is a span beside: a put,
a life of a node, a pause, a fault, a connection. A counter says how far each slave is behind.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping

import attrs

from rmq_actors.tracing.export.causes import SENDS, Causes, Row
from rmq_actors.tracing.export.facts import facts_of
from rmq_actors.tracing.export.spans import Span, Spans

#: The name of the process of what happens to the run: faults, its start and end.
WORLD = "world"
Entry = dict[str, object]


def perfetto_lines(events: Iterable[Row], causes: Causes[int], about: Mapping[str, object]) -> Iterator[str]:
    """The JSON, line by line, without line ends; `causes` has seen no event yet; `about`: what it says of the run."""
    head = {"displayTimeUnit": "ms", "otherData": dict(about)}
    yield f'{json.dumps(head)[:-1]}, "traceEvents": ['
    before = ""
    for entry in trace_entries(events, causes):
        if before:
            yield f"{before},"
        before = json.dumps(entry)
    yield before
    yield "]}"


def trace_entries(events: Iterable[Row], causes: Causes[int]) -> Iterator[Entry]:
    """The entries of `traceEvents`."""
    export = _Export(causes)
    for event in events:
        yield from export.entries(event)
    yield from export.rest()


@attrs.define(eq=False, repr=False)
class _Export:
    _causes: Causes[int]
    _spans: Spans = attrs.field(factory=Spans, init=False)
    _pids: dict[str, int] = attrs.field(factory=dict[str, int], init=False)
    #: Perfetto's threads have numbers that no other process, nor its main thread, has.
    _tids: dict[tuple[str, str], int] = attrs.field(factory=dict[tuple[str, str], int], init=False)
    #: So many events may be the beginnings of arrows, which have their numbers.
    _arrows: int = attrs.field(default=0, init=False)
    _log_ends: dict[str, int] = attrs.field(factory=dict[str, int], init=False)
    #: Real runs are told from their first event on.
    _first_ns: int | None = attrs.field(default=None, init=False)
    _last_us: float = attrs.field(default=0.0, init=False)

    def entries(self, event: Row) -> Iterator[Entry]:
        """Those of an event, after those that name its process and thread if they are new."""
        at_us = self._time_us(event)
        self._last_us = max(self._last_us, at_us)
        yield from self._names(event["node"], event["actor"])
        yield self._entry(event, at_us)
        for span in self._spans.of(event, self._causes):
            yield self._bound(span, at_us)
        yield from self._lag(event, at_us)

    def rest(self) -> Iterator[Entry]:
        """The ends of what did not end."""
        for span in self._spans.rest():
            yield self._bound(span, self._last_us)

    def _time_us(self, event: Row) -> float:
        virtual_ns: int | None = event.get("sim_time_ns")
        if virtual_ns is not None:
            return virtual_ns / 1000
        wall_ns: int = event["wall_time_ns"]
        if self._first_ns is None:
            self._first_ns = wall_ns
        return max(wall_ns - self._first_ns, 0) / 1000

    def _names(self, node: str, actor: str) -> Iterator[Entry]:
        if node not in self._pids:
            self._pids[node] = pid = self._free_number()
            yield {"name": "process_name", "ph": "M", "pid": pid, "tid": pid, "args": {"name": node or WORLD}}
        if (node, actor) not in self._tids:
            self._tids[node, actor] = tid = self._free_number()
            named = {"name": actor or "-"}
            yield {"name": "thread_name", "ph": "M", "pid": self._pids[node], "tid": tid, "args": named}

    def _free_number(self) -> int:
        return len(self._pids) + len(self._tids) + 1

    def _entry(self, event: Row, at_us: float) -> Entry:
        node, kind = event["node"], event["kind"]
        entry: Entry = {"name": kind, "cat": kind.partition(".")[0], "ts": at_us}
        entry |= {"pid": self._pids[node], "tid": self._tids[node, event["actor"]]}
        entry["args"] = {"seq": event["seq"], **facts_of(event)}
        if kind in SENDS:
            self._arrows += 1
            self._causes.sent(event, self._arrows)
            return entry | {"ph": "X", "dur": 0.001, "bind_id": hex(self._arrows), "flow_out": True}
        if (number := self._causes.cause(event)) is not None:
            return entry | {"ph": "X", "dur": 0.001, "bind_id": hex(number), "flow_in": True}
        return entry | {"ph": "i", "s": "t"}

    def _bound(self, span: Span, at_us: float) -> Entry:
        entry: Entry = {"name": span.name, "cat": span.category, "ph": "b" if span.begins else "e", "ts": at_us}
        entry |= {"pid": self._pids[span.node], "id2": {"local": span.key}}
        return entry | {"tid": self._pids[span.node], "args": dict(span.facts)}

    def _lag(self, event: Row, at_us: float) -> Iterator[Entry]:
        kind, node = event["kind"], event["node"]
        if kind == "log.append":
            self._log_ends[node] = event["offset"] + event["size"]
        elif kind == "store.open":
            self._log_ends[node] = event["offset"]
        elif kind == "ha.report" and node in self._log_ends:
            slave = self._causes.slave_of(node, event["conn_id"]) or f"connection {event['conn_id']}"
            lag = {"bytes": max(self._log_ends[node] - event["offset"], 0)}
            tid = self._tids[node, event["actor"]]
            where = {"ts": at_us, "pid": self._pids[node], "tid": tid}
            yield {"name": f"lag of {slave}", "cat": "ha", "ph": "C", **where, "args": lag}
