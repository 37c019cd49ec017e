"""Faults of one node: its process, its sockets, its clock."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import attrs

from sim_net.faults.fault import Fault, Undo, nothing
from sim_net.field_checks import check_count, check_finite, check_name, check_positive, check_step

if TYPE_CHECKING:
    from sim_net.world import World


def _check_rate(instance: object, attribute: attrs.Attribute[Any], value: float) -> None:
    """Validate a rate in ppm at which a clock still runs forward."""
    check_finite(instance, attribute, value)
    if not value or value <= -1_000_000:
        raise ValueError(f"ClockDrift.rate_ppm must be above -1000000 and not 0, not {value!r}")


@attrs.frozen
class ShortIO(Fault):
    """Each send and receive of `node` moves a random 1 to `bytes_max` bytes at most."""

    duration_s: float = attrs.field(validator=check_positive)
    node: str = attrs.field(validator=check_name)
    bytes_max: int = attrs.field(validator=check_count)

    def begin(self, world: World) -> Undo:
        """Limit the node's socket calls."""
        short_io = world.nodes[self.node].short_io
        short_io.begin(self.bytes_max)
        return partial(short_io.end, self.bytes_max)


@attrs.frozen
class Kill(Fault):
    """`node` is killed, and restarted `down_s` later. Nothing happens if it is down already."""

    node: str = attrs.field(validator=check_name)
    down_s: float = attrs.field(validator=check_positive)

    def begin(self, world: World) -> Undo:
        """Kill it, if it is up."""
        node = world.nodes[self.node]
        if not node.is_up:
            return nothing
        node.kill()
        return node.begin_outage(restart=True)


@attrs.frozen
class PowerLoss(Fault):
    """`node` has no power for `down_s`: its peers hear nothing, what it had not synced may be lost. Then it restarts.

    One that is down already may lose data too, and stays down as long; it restarts if a fault has taken it down.
    """

    node: str = attrs.field(validator=check_name)
    down_s: float = attrs.field(validator=check_positive)

    def begin(self, world: World) -> Undo:
        """Cut the power."""
        node = world.nodes[self.node]
        was_up = node.is_up
        node.power_loss()
        return node.begin_outage(restart=was_up)


@attrs.frozen
class Pause(Fault):
    """No task of `node` takes a step, as in a long garbage collection; its kernel goes on. Nothing, if it is down."""

    duration_s: float = attrs.field(validator=check_positive)
    node: str = attrs.field(validator=check_name)

    def begin(self, world: World) -> Undo:
        """Pause the process that runs now; a kill ends the pause."""
        node = world.nodes[self.node]
        incarnation = node.incarnation
        node.pause()

        def resume() -> None:
            if node.is_paused and node.incarnation == incarnation:
                node.resume()

        return resume


@attrs.frozen
class ClockJump(Fault):
    """`node`'s wall clock is set forward by `by_ms`, or back if that is negative, and stays so."""

    node: str = attrs.field(validator=check_name)
    by_ms: int = attrs.field(validator=check_step)

    def begin(self, world: World) -> Undo:
        """Set the clock."""
        world.nodes[self.node].wall_clock.jump(self.by_ms)
        world.journal.record(self.node, "clock.jump", by_ms=self.by_ms)
        return nothing


@attrs.frozen
class ClockDrift(Fault):
    """`node`'s wall clock gains `rate_ppm` us each second, or loses them. It keeps what it has gained or lost."""

    duration_s: float = attrs.field(validator=check_positive)
    node: str = attrs.field(validator=check_name)
    rate_ppm: float = attrs.field(validator=_check_rate)

    def begin(self, world: World) -> Undo:
        """Let it drift."""
        wall_clock = world.nodes[self.node].wall_clock
        wall_clock.begin_drift(self.rate_ppm)
        world.journal.record(self.node, "clock.drift", rate_ppm=self.rate_ppm)
        return partial(wall_clock.end_drift, self.rate_ppm)
