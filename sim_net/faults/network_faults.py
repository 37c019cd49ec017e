"""Faults of the network between two nodes."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import attrs

from sim_net.faults.fault import Fault, Undo, nothing
from sim_net.field_checks import check_flag, check_name, check_not_negative, check_positive, check_probability

if TYPE_CHECKING:
    from sim_net.net.link import Link
    from sim_net.world import World


def _links(world: World, a: str, b: str, *, two_way: bool) -> list[Link]:
    """The link from `a` to `b`, and the one back if `two_way`."""
    links = [world.network.link(a, b)]
    return [*links, world.network.link(b, a)] if two_way else links


def _all(undos: list[Undo]) -> Undo:
    def undo() -> None:
        for each in undos:
            each()

    return undo


@attrs.frozen
class Delay(Fault):
    """Everything between `a` and `b` takes `extra_s` longer; from `a` to `b` only, if not `two_way`."""

    duration_s: float = attrs.field(validator=check_positive)
    a: str = attrs.field(validator=check_name)
    b: str = attrs.field(validator=check_name)
    extra_s: float = attrs.field(validator=check_not_negative)
    two_way: bool = attrs.field(default=True, validator=check_flag)

    def begin(self, world: World) -> Undo:
        """Slow the links down."""
        links = _links(world, self.a, self.b, two_way=self.two_way)
        for link in links:
            link.slow_down(self.extra_s)
        return _all([partial(link.speed_up, self.extra_s) for link in links])


@attrs.frozen
class Partition(Fault):
    """Nothing passes between `a` and `b`; from `a` to `b` only, if not `two_way`. TCP sends it again after healing."""

    duration_s: float = attrs.field(validator=check_positive)
    a: str = attrs.field(validator=check_name)
    b: str = attrs.field(validator=check_name)
    two_way: bool = attrs.field(default=True, validator=check_flag)

    def begin(self, world: World) -> Undo:
        """Cut the links."""
        links = _links(world, self.a, self.b, two_way=self.two_way)
        for link in links:
            link.cut()
        return _all([link.heal for link in links])


@attrs.frozen
class Hold(Fault):
    """What passes between `a` and `b` is kept, resets and datagrams too, and goes on in order when the fault ends."""

    duration_s: float = attrs.field(validator=check_positive)
    a: str = attrs.field(validator=check_name)
    b: str = attrs.field(validator=check_name)
    two_way: bool = attrs.field(default=True, validator=check_flag)

    def begin(self, world: World) -> Undo:
        """Hold the links."""
        links = _links(world, self.a, self.b, two_way=self.two_way)
        for link in links:
            link.hold()
        return _all([link.release for link in links])


@attrs.frozen
class Loss(Fault):
    """Each packet between `a` and `b` is lost with `probability`.

    TCP sends it again: after 0.2 s (1 s in a handshake), twice that the next time and so on, or when a later segment
    arrives. A datagram is gone.
    """

    duration_s: float = attrs.field(validator=check_positive)
    a: str = attrs.field(validator=check_name)
    b: str = attrs.field(validator=check_name)
    probability: float = attrs.field(validator=check_probability)
    two_way: bool = attrs.field(default=True, validator=check_flag)

    def begin(self, world: World) -> Undo:
        """Make the links lossy."""
        links = _links(world, self.a, self.b, two_way=self.two_way)
        for link in links:
            link.lose(self.probability)
        return _all([partial(link.stop_losing, self.probability) for link in links])


@attrs.frozen
class Bandwidth(Fault):
    """No more than `bytes_per_s` payload bytes pass in a second from `a` to `b`; and back, if `two_way`."""

    duration_s: float = attrs.field(validator=check_positive)
    a: str = attrs.field(validator=check_name)
    b: str = attrs.field(validator=check_name)
    bytes_per_s: float = attrs.field(validator=check_positive)
    two_way: bool = attrs.field(default=True, validator=check_flag)

    def begin(self, world: World) -> Undo:
        """Throttle the links."""
        links = _links(world, self.a, self.b, two_way=self.two_way)
        for link in links:
            link.throttle(self.bytes_per_s)
        return _all([partial(link.unthrottle, self.bytes_per_s) for link in links])


@attrs.frozen
class Duplicate(Fault):
    """Each datagram between `a` and `b` arrives twice with `probability`. TCP hides it, so it is left alone."""

    duration_s: float = attrs.field(validator=check_positive)
    a: str = attrs.field(validator=check_name)
    b: str = attrs.field(validator=check_name)
    probability: float = attrs.field(validator=check_probability)
    two_way: bool = attrs.field(default=True, validator=check_flag)

    def begin(self, world: World) -> Undo:
        """Let the links duplicate."""
        links = _links(world, self.a, self.b, two_way=self.two_way)
        for link in links:
            link.duplicate(self.probability)
        return _all([partial(link.stop_duplicating, self.probability) for link in links])


@attrs.frozen
class Reorder(Fault):
    """Each datagram between `a` and `b` takes `extra_s` longer with `probability`: others overtake it. TCP hides it."""

    duration_s: float = attrs.field(validator=check_positive)
    a: str = attrs.field(validator=check_name)
    b: str = attrs.field(validator=check_name)
    probability: float = attrs.field(validator=check_probability)
    extra_s: float = attrs.field(validator=check_positive)
    two_way: bool = attrs.field(default=True, validator=check_flag)

    def begin(self, world: World) -> Undo:
        """Let the links reorder."""
        links = _links(world, self.a, self.b, two_way=self.two_way)
        for link in links:
            link.reorder(self.probability, self.extra_s)
        return _all([partial(link.stop_reordering, self.probability, self.extra_s) for link in links])


@attrs.frozen
class Stall(Fault):
    """`b`'s receive windows for `a` are shut: what `a` sends stays in its buffers, then its sends wait."""

    duration_s: float = attrs.field(validator=check_positive)
    a: str = attrs.field(validator=check_name)
    b: str = attrs.field(validator=check_name)

    def begin(self, world: World) -> Undo:
        """Shut the windows."""
        link = world.network.link(self.a, self.b)
        link.stall()
        return link.unstall


@attrs.frozen
class Reset(Fault):
    """Every connection between `a` and `b` is reset, at both ends."""

    a: str = attrs.field(validator=check_name)
    b: str = attrs.field(validator=check_name)

    def begin(self, world: World) -> Undo:
        """Reset them."""
        world.network.reset(self.a, self.b, "fault")
        return nothing
