"""What the nodes of a world do in a stretch of a run: steps of their tasks, and operations of their disks."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, Protocol

import attrs
import trio

from sim_net.kernel.identity import current_incarnation

if TYPE_CHECKING:
    from trio.lowlevel import Task


class Disk(Protocol):
    """What tells of its operations."""

    observers: list[Callable[[str], object]]


@attrs.define(eq=False, repr=False)
class Usage(trio.abc.Instrument):
    """What was counted so far, by the node's name and the name of the task, or of the operation of its disk."""

    steps: Counter[tuple[str, str]] = attrs.field(factory=Counter, init=False)
    disk_operations: Counter[tuple[str, str]] = attrs.field(factory=Counter, init=False)

    def before_task_step(self, task: Task) -> None:
        """Count a step, if the task is a node's."""
        incarnation = task.context.get(current_incarnation)
        if incarnation is not None:
            self.steps[incarnation.node.name, task.name] += 1

    def count_disk_operation(self, node: str, operation: str) -> None:
        """Count an operation."""
        self.disk_operations[node, operation] += 1


@contextlib.contextmanager
def counting(disks: Mapping[str, Disk]) -> Iterator[Usage]:
    """Count within the block. Nothing that a run depends on changes by that. `disks` are those of the nodes."""
    usage = Usage()
    observers = {name: partial(usage.count_disk_operation, name) for name in disks}
    for name, observer in observers.items():
        disks[name].observers.append(observer)
    trio.lowlevel.add_instrument(usage)
    try:
        yield usage
    finally:
        trio.lowlevel.remove_instrument(usage)
        for name, observer in observers.items():
            disks[name].observers.remove(observer)
