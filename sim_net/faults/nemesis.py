"""The nemesis: applies faults to a world, at their times or when the event comes that they wait for."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

import attrs

from sim_net.faults.fault import Fault
from sim_net.faults.faults import fault_kind

if TYPE_CHECKING:
    from sim_net.faults.schedule import Schedule
    from sim_net.kernel.journal import JournalEntry
    from sim_net.world import World

#: Tells the nemesis that something has happened: the node's name, and the kind of event.
Announce = Callable[[str, str], None]


@attrs.define(eq=False)
class AppliedFault:
    """A fault that was given to a world, and how far it has come."""

    fault: Fault
    fault_id: int
    #: When it is over, in virtual seconds; None while it waits for its event, and for ever if that never came.
    ends_s: float | None = None
    begun: bool = False
    _events_left: int = 0

    def count(self, node: str, kind: str) -> bool:
        """An event has happened: whether it is the one that the fault waits for."""
        on = self.fault.on
        if on is None or not on.matches(node, kind):
            return False
        self._events_left -= 1
        return not self._events_left


class Nemesis:
    """Begins and ends faults, and journals both."""

    def __init__(self, world: World) -> None:
        self._world = world
        #: Every fault that was applied, in that order.
        self.faults: list[AppliedFault] = []
        self._waiting: list[AppliedFault] = []
        self._trace_sources: list[Callable[[Announce], object]] = []
        self._listens = False

    def start(self, schedule: Schedule) -> None:
        """Apply every fault; its place is its id. ValueError, and nothing applied, if one names no node."""
        for fault_id, fault in enumerate(schedule.faults):
            self._check(fault, fault_id)
        for fault_id, fault in enumerate(schedule.faults):
            self.apply(fault, fault_id)

    def apply(self, fault: Fault, fault_id: int) -> None:
        """Let a fault begin at its time, or after its event."""
        self._check(fault, fault_id)
        applied = AppliedFault(fault, fault_id, events_left=0 if fault.on is None else fault.on.nth)
        self.faults.append(applied)
        if fault.on is None:
            self._begin_at(applied, fault.at_s)
            return
        self._waiting.append(applied)
        if not self._listens:
            self._listens = True
            self._world.journal.subscribe(self._entry)
            for start in self._trace_sources:
                start(self.announce)

    def stop_waiting(self) -> None:
        """Call off the faults whose event has not come."""
        self._waiting.clear()

    def trace_source(self, start: Callable[[Announce], object]) -> None:
        """Call `start(announce)` once a fault waits for an event (at once, if one does)."""
        self._trace_sources.append(start)
        if self._listens:
            start(self.announce)

    def announce(self, node: str, kind: str) -> None:
        """An event has happened, outside the world's own parts. A fault that follows it by 0 s begins before return."""
        for applied in self._due(node, kind):
            if applied.fault.at_s:
                self._begin_at(applied, self._world.now_s + applied.fault.at_s)
                continue
            try:
                self._begin(applied)
            except BaseException as error:  # noqa: BLE001 - the caller is the program under test
                self._world.fail(error)

    def _entry(self, entry: JournalEntry) -> None:
        # Later, as the task that records an entry may be half-way through something.
        for applied in self._due(entry.node, entry.kind):
            self._begin_at(applied, self._world.now_s + applied.fault.at_s)

    def _due(self, node: str, kind: str) -> list[AppliedFault]:
        """Count an event; the faults that waited for just this one, and wait no longer."""
        due = [applied for applied in self._waiting if applied.count(node, kind)]
        for applied in due:
            self._waiting.remove(applied)
        return due

    def _check(self, fault: Fault, fault_id: int) -> None:
        for name in (*fault.nodes, *((fault.on.node,) if fault.on is not None and fault.on.node else ())):
            if name not in self._world.nodes:
                raise ValueError(
                    f"fault {fault_id}, {fault}: no node is called {name!r}; there are {', '.join(self._world.nodes)}"
                )

    def _begin_at(self, applied: AppliedFault, time_s: float) -> None:
        applied.ends_s = max(time_s, self._world.now_s) + applied.fault.lasts_s
        self._world.at(time_s, partial(self._begin, applied))

    def _begin(self, applied: AppliedFault) -> None:
        world = self._world
        fault = applied.fault
        attributes: dict[str, str | int] = {
            "fault_id": applied.fault_id,
            "fault.kind": fault_kind(fault),
            "fault.nodes": ",".join(fault.nodes),
        }
        applied.begun = True
        world.journal.record("", "fault.begin", **attributes)
        undo = fault.begin(world)

        def end() -> None:
            undo()
            world.journal.record("", "fault.end", **attributes)

        applied.ends_s = world.now_s + fault.lasts_s
        if fault.lasts_s:
            world.at(applied.ends_s, end)
        else:
            end()
