"""The nemesis: applies faults to a world, on kernel timers."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from sim_net.faults import Delay, Fault, Kill, Partition, Reset, ShortIO, Stall, fault_kind, fault_nodes

if TYPE_CHECKING:
    from collections.abc import Callable

    from sim_net.network import Link
    from sim_net.node import Node
    from sim_net.schedule import Schedule
    from sim_net.world import World


class Nemesis:
    """Begins and ends faults, and journals both."""

    def __init__(self, world: World) -> None:
        self._world = world

    def start(self, schedule: Schedule) -> None:
        """Apply every fault; its place is its id. ValueError, and nothing applied, if one names no node."""
        for fault_id, fault in enumerate(schedule.faults):
            self._check(fault, fault_id)
        for fault_id, fault in enumerate(schedule.faults):
            self.apply(fault, fault_id)

    def apply(self, fault: Fault, fault_id: int) -> None:
        """Let a fault begin at its time."""
        self._check(fault, fault_id)
        self._world.at(fault.at_s, lambda: self._begin(fault, fault_id))

    def _check(self, fault: Fault, fault_id: int) -> None:
        for name in fault_nodes(fault):
            if name not in self._world.nodes:
                raise ValueError(
                    f"fault {fault_id}, {fault}: no node is called {name!r}; there are {', '.join(self._world.nodes)}"
                )

    def _begin(self, fault: Fault, fault_id: int) -> None:
        world = self._world
        world.journal.record("", "fault.begin", **_attributes(fault, fault_id))
        undo = self._do(fault)

        def end() -> None:
            undo()
            world.journal.record("", "fault.end", **_attributes(fault, fault_id))

        if isinstance(fault, Reset):
            end()
        else:
            world.at(world.now_s + (fault.down_s if isinstance(fault, Kill) else fault.duration_s), end)

    def _do(self, fault: Fault) -> Callable[[], None]:
        """Begin; the function returned undoes it."""
        world = self._world
        if isinstance(fault, Kill):
            return self._kill(world.nodes[fault.node])
        if isinstance(fault, ShortIO):
            short_io = world.nodes[fault.node].short_io
            short_io.begin(fault.bytes_max)
            return partial(short_io.end, fault.bytes_max)
        if isinstance(fault, Reset):
            world.network.reset(fault.a, fault.b, "fault")
            return _nothing
        links = [world.network.link(fault.a, fault.b)]
        if isinstance(fault, Delay | Partition) and fault.two_way:
            links.append(world.network.link(fault.b, fault.a))
        undo = [_trouble(fault, link) for link in links]

        def undo_all() -> None:
            for each in undo:
                each()

        return undo_all

    def _kill(self, node: Node) -> Callable[[], None]:
        if not node.is_up:
            return _nothing
        node.kill()

        def restart() -> None:
            if not node.is_up and not self._world.is_closing:
                node.restart()

        return restart


def _trouble(fault: Delay | Partition | Stall, link: Link) -> Callable[[], None]:
    if isinstance(fault, Delay):
        link.slow_down(fault.extra_s)
        return partial(link.speed_up, fault.extra_s)
    if isinstance(fault, Partition):
        link.cut()
        return link.heal
    link.stall()
    return link.unstall


def _nothing() -> None:
    """Undo what leaves no state behind."""


def _attributes(fault: Fault, fault_id: int) -> dict[str, str | int]:
    return {"fault_id": fault_id, "fault.kind": fault_kind(fault)}
