"""In the end slaves have their master's tables."""

from __future__ import annotations

from collections.abc import Mapping

from rmq_actors.testing.invariants.invariant import Invariant
from rmq_actors.testing.view import TABLES, ClusterView
from rmq_actors.tracing.event import Event


class TablesEqual(Invariant[Event]):
    """A slave that has not halted has the topics and groups of its master, and no smaller offset of a consumer."""

    name = "tables_equal"

    def at_end(self, view: ClusterView) -> str | None:
        """What the files of stopped brokers have."""
        if not view.has_tables:
            return None  # nobody has waited for them
        evidence, master = view.evidence, view.master.name
        names = {part: evidence.table(master, part) for part in TABLES}
        offsets = evidence.consumer_offsets(master)
        for slave in view.slaves:
            if slave.has_halted:
                continue  # it takes nothing over
            for part, of_master in names.items():
                # Those that each broker has from its start are in no file before its first change.
                if differ := (evidence.table(slave.name, part) ^ of_master) & view.asked_for[part]:
                    return f"{slave.name} and {master} differ in {', '.join(sorted(differ))} of {part}"
            if (detail := _behind(evidence.consumer_offsets(slave.name), offsets)) is not None:
                return f"{slave.name} has {detail}"
        return None


def _behind(own: Mapping[str, Mapping[int, int]], master: Mapping[str, Mapping[int, int]]) -> str | None:
    for key, offsets in master.items():
        for queue, offset in offsets.items():
            mine = own.get(key, {}).get(queue, -1)
            if mine < offset:
                return f"offset {mine} of {key} in queue {queue}, its master {offset}"
    return None
