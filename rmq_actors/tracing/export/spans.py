"""What lasts from one event to another: puts, lives of nodes, pauses, faults, connections.

Pure. Each span begins once and ends once: with what ends it, with its node's life, or with the trace.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import attrs

from rmq_actors.tracing.export.causes import Causes, Row
from rmq_actors.tracing.export.facts import facts_of

_DEATHS = frozenset({"node.kill", "node.power_loss", "node.stop"})
#: Kinds that begin and end a span of a category, and the facts that say which.
_BOUNDS: Mapping[str, tuple[str, bool, str]] = {
    "node.boot": ("life", True, ""),
    "node.pause": ("pause", True, ""),
    "node.resume": ("pause", False, ""),
    "fault.begin": ("fault", True, "fault_id"),
    "fault.end": ("fault", False, "fault_id"),
    "ha.connection.open": ("slave", True, "conn_id"),
    "ha.connection.close": ("slave", False, "conn_id"),
    "ha.client.connect": ("master", True, ""),
    "ha.client.close": ("master", False, ""),
}


@attrs.frozen
class Span:
    """One end of a span. Within a node, `category` and `key` say which span."""

    node: str
    category: str
    key: str
    name: str
    begins: bool
    facts: Mapping[str, object]


@attrs.define(eq=False, repr=False)
class Spans:
    """Give it events in order; it says which spans begin or end there."""

    #: By node, then by category and what says which.
    _open: dict[str, dict[tuple[str, str], Span]] = attrs.field(
        factory=dict[str, dict[tuple[str, str], Span]], init=False
    )
    _count: int = attrs.field(default=0, init=False)

    def of(self, event: Row, causes: Causes[Any]) -> Iterator[Span]:
        """Ends come before beginnings. `causes` has seen the event."""
        kind, node = event["kind"], event["node"]
        if kind in _DEATHS:
            yield from self._all(node, {"status": kind})
        elif kind == "put.begin":
            last = event.get("msg_id_last", event["msg_id"])
            count = last - event["msg_id"] + 1
            name = "put" if count == 1 else f"put of {count}"
            yield from self._begin(node, "put", str(last), name, facts_of(event))
        elif kind == "put.end":
            facts = facts_of(event)
            for number in range(event["msg_id"], event.get("msg_id_last", event["msg_id"]) + 1):
                yield from self._end(node, "put", str(number), facts)
        elif kind in _BOUNDS:
            category, begins, which = _BOUNDS[kind]
            key = str(event[which]) if which else ""
            if begins:
                yield from self._begin(node, category, key, _name(category, event), facts_of(event))
            else:
                slave = causes.slave_of(node, event["conn_id"]) if category == "slave" else None
                yield from self._end(node, category, key, facts_of(event) | ({"slave": slave} if slave else {}))

    def rest(self) -> Iterator[Span]:
        """The ends of all that is not over when the trace is."""
        for node in self._open:
            yield from self._all(node, {"status": "the trace ends"})

    def _begin(self, node: str, category: str, which: str, name: str, facts: Mapping[str, object]) -> Iterator[Span]:
        yield from self._end(node, category, which, {"status": "another one begins"})
        self._count += 1
        span = Span(node, category, f"{self._count:#x}", name, begins=True, facts=facts)
        self._open.setdefault(node, {})[category, which] = span
        yield span

    def _end(self, node: str, category: str, which: str, facts: Mapping[str, object]) -> Iterator[Span]:
        span = self._open.get(node, {}).pop((category, which), None)
        if span is not None:
            yield attrs.evolve(span, begins=False, facts=facts)

    def _all(self, node: str, facts: Mapping[str, object]) -> Iterator[Span]:
        for category, which in reversed(list(self._open.get(node, ()))):
            yield from self._end(node, category, which, facts)


def _name(category: str, event: Row) -> str:
    if category == "life":
        return f"life {event.get('life', '')}".rstrip()
    if category == "pause":
        return "paused"
    told = event["attrs"]
    if category == "fault":
        return f"{told['fault.kind']} {told['fault.nodes']}".rstrip()
    return f"{category} {told['network.peer.address']}"
