"""Faults of one node's disk."""

from __future__ import annotations

import errno
from functools import partial
from typing import TYPE_CHECKING, Any, Final, cast

import attrs

from sim_net.disk.disk_rule import OPERATIONS, Operation
from sim_net.faults.fault import Fault, Undo, nothing
from sim_net.field_checks import check_count, check_name, check_not_negative, check_positive, check_text

if TYPE_CHECKING:
    from sim_net.world import World

_NUMBERS: Final = {name: number for number, name in errno.errorcode.items()}


def _check_error(instance: object, attribute: attrs.Attribute[Any], value: object) -> None:
    if not isinstance(value, str) or value not in _NUMBERS:
        where = f"{type(instance).__name__}.{attribute.name}"
        raise ValueError(f"{where} must be the name of an errno (EIO, ENOSPC), not {value!r}")


def _check_operation(instance: object, attribute: attrs.Attribute[Any], value: object) -> None:
    if value not in ("", *OPERATIONS):
        where = f"{type(instance).__name__}.{attribute.name}"
        raise ValueError(f"{where} must be empty or one of {', '.join(OPERATIONS)}, not {value!r}")


def _check_bytes(instance: object, attribute: attrs.Attribute[Any], value: object) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise ValueError(f"{type(instance).__name__}.{attribute.name} must be a whole number of bytes, not {value!r}")


@attrs.frozen
class DiskError(Fault):
    """Operations fail with an errno, without effect: the `nth` that matches, each `every`-th after it, `count` in all.

    An operation matches by its name, or any if `operation` is empty, and if its path contains `path`. After a failed
    sync the pages that it should have written are clean, but not durable; the next one succeeds.
    """

    duration_s: float = attrs.field(validator=check_positive)
    node: str = attrs.field(validator=check_name)
    error: str = attrs.field(default="EIO", validator=_check_error)
    operation: str = attrs.field(default="", validator=_check_operation)
    path: str = attrs.field(default="", validator=check_text)
    nth: int = attrs.field(default=1, validator=check_count)
    every: int = attrs.field(default=1, validator=check_count)
    count: int = attrs.field(default=1, validator=check_count)

    def begin(self, world: World) -> Undo:
        """Let them fail."""
        operation = cast("Operation", self.operation) if self.operation else None
        rule = world.nodes[self.node].disk.fail(
            _NUMBERS[self.error],
            operation=operation,
            path=self.path,
            nth=self.nth,
            every=self.every,
            count=self.count,
        )
        return rule.end


@attrs.frozen
class DiskFull(Fault):
    """No more than `free_bytes` fit on the disk beside what is used as it begins: ENOSPC beyond that."""

    duration_s: float = attrs.field(validator=check_positive)
    node: str = attrs.field(validator=check_name)
    free_bytes: int = attrs.field(default=0, validator=_check_bytes)

    def begin(self, world: World) -> Undo:
        """Fill it up."""
        return world.nodes[self.node].disk.fill_up(self.free_bytes)


@attrs.frozen
class DiskSlow(Fault):
    """Each sync that begins takes `extra_s` longer."""

    duration_s: float = attrs.field(validator=check_positive)
    node: str = attrs.field(validator=check_name)
    extra_s: float = attrs.field(validator=check_not_negative)

    def begin(self, world: World) -> Undo:
        """Slow it down."""
        disk = world.nodes[self.node].disk
        disk.slow_down(self.extra_s)
        return partial(disk.speed_up, self.extra_s)


@attrs.frozen
class DiskStuck(Fault):
    """No sync comes to its end, not even those under way, until the fault does or the process dies."""

    duration_s: float = attrs.field(validator=check_positive)
    node: str = attrs.field(validator=check_name)

    def begin(self, world: World) -> Undo:
        """Stick."""
        disk = world.nodes[self.node].disk
        disk.stick()
        return disk.unstick


@attrs.frozen
class BitRot(Fault):
    """`bits` durable bits flip, each in some file whose path contains `path`, where something was written."""

    node: str = attrs.field(validator=check_name)
    path: str = attrs.field(default="", validator=check_text)
    bits: int = attrs.field(default=1, validator=check_count)

    def begin(self, world: World) -> Undo:
        """Flip them."""
        for _ in range(self.bits):
            world.nodes[self.node].disk.rot(self.path)
        return nothing


@attrs.frozen
class MisdirectedWrite(Fault):
    """Writes land some sectors away from their place in the file: those that `nth`, `every` and `count` name.

    Of the writes to files whose path contains `path`, as in `DiskError`.
    """

    duration_s: float = attrs.field(validator=check_positive)
    node: str = attrs.field(validator=check_name)
    path: str = attrs.field(default="", validator=check_text)
    nth: int = attrs.field(default=1, validator=check_count)
    every: int = attrs.field(default=1, validator=check_count)
    count: int = attrs.field(default=1, validator=check_count)

    def begin(self, world: World) -> Undo:
        """Misdirect them."""
        disk = world.nodes[self.node].disk
        return disk.misdirect(path=self.path, nth=self.nth, every=self.every, count=self.count).end
