"""Faults of the network between two nodes. All but `Reset` impair the links between them while they last."""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING

import attrs

from sim_net.faults.fault import Fault, Undo, nothing
from sim_net.field_checks import check_flag, check_name, check_not_negative, check_positive, check_probability
from sim_net.net.impairment import Cut, Duplicating, Held, Impairment, Lossy, Narrow, Reordering, ShutWindows, Slow

if TYPE_CHECKING:
    from sim_net.world import World


@attrs.frozen
class LinkFault(Fault):
    """Something is wrong with the link from `a` to `b` for `duration_s`; with the link back too, if `two_way`."""

    duration_s: float = attrs.field(validator=check_positive)
    a: str = attrs.field(validator=check_name)
    b: str = attrs.field(validator=check_name)

    #: A kind that leaves the choice has a field of this name, and declares it last: the order of fields is the order
    #: of arguments, of JSON, and of what a seed draws.
    two_way = False

    @abstractmethod
    def impairment(self) -> Impairment:
        """What is wrong."""

    def begin(self, world: World) -> Undo:
        """Impair the links."""
        links = [world.network.link(self.a, self.b)]
        if self.two_way:
            links.append(world.network.link(self.b, self.a))
        impairment = self.impairment()
        for link in links:
            link.add(impairment)

        def undo() -> None:
            for link in links:
                link.remove(impairment)

        return undo


@attrs.frozen
class Delay(LinkFault):
    """Everything between `a` and `b` takes `extra_s` longer; from `a` to `b` only, if not `two_way`."""

    extra_s: float = attrs.field(validator=check_not_negative)
    two_way: bool = attrs.field(default=True, validator=check_flag)

    def impairment(self) -> Impairment:
        """Packets take longer."""
        return Slow(self.extra_s)


@attrs.frozen
class Partition(LinkFault):
    """Nothing passes between `a` and `b`; from `a` to `b` only, if not `two_way`. TCP sends it again after healing."""

    two_way: bool = attrs.field(default=True, validator=check_flag)

    def impairment(self) -> Impairment:
        """Nothing passes."""
        return Cut()


@attrs.frozen
class Hold(LinkFault):
    """What passes between `a` and `b` is kept, resets and datagrams too, and goes on in order when the fault ends."""

    two_way: bool = attrs.field(default=True, validator=check_flag)

    def impairment(self) -> Impairment:
        """What comes is kept."""
        return Held()


@attrs.frozen
class Loss(LinkFault):
    """Each packet between `a` and `b` is lost with `probability`.

    TCP sends it again: after 0.2 s (1 s in a handshake), twice that the next time and so on, or when a later segment
    arrives. A datagram is gone.
    """

    probability: float = attrs.field(validator=check_probability)
    two_way: bool = attrs.field(default=True, validator=check_flag)

    def impairment(self) -> Impairment:
        """Packets are lost."""
        return Lossy(self.probability)


@attrs.frozen
class Bandwidth(LinkFault):
    """No more than `bytes_per_s` payload bytes pass in a second from `a` to `b`; and back, if `two_way`."""

    bytes_per_s: float = attrs.field(validator=check_positive)
    two_way: bool = attrs.field(default=True, validator=check_flag)

    def impairment(self) -> Impairment:
        """The bandwidth is limited."""
        return Narrow(self.bytes_per_s)


@attrs.frozen
class Duplicate(LinkFault):
    """Each datagram between `a` and `b` arrives twice with `probability`. TCP hides it, so it is left alone."""

    probability: float = attrs.field(validator=check_probability)
    two_way: bool = attrs.field(default=True, validator=check_flag)

    def impairment(self) -> Impairment:
        """Datagrams arrive twice."""
        return Duplicating(self.probability)


@attrs.frozen
class Reorder(LinkFault):
    """Each datagram between `a` and `b` takes `extra_s` longer with `probability`: others overtake it. TCP hides it."""

    probability: float = attrs.field(validator=check_probability)
    extra_s: float = attrs.field(validator=check_positive)
    two_way: bool = attrs.field(default=True, validator=check_flag)

    def impairment(self) -> Impairment:
        """Datagrams are overtaken."""
        return Reordering(self.probability, self.extra_s)


@attrs.frozen
class Stall(LinkFault):
    """`b`'s receive windows for `a` are shut: what `a` sends stays in its buffers, then its sends wait."""

    def impairment(self) -> Impairment:
        """Windows are shut."""
        return ShutWindows()


@attrs.frozen
class Reset(Fault):
    """Every connection between `a` and `b` is reset, at both ends."""

    a: str = attrs.field(validator=check_name)
    b: str = attrs.field(validator=check_name)

    def begin(self, world: World) -> Undo:
        """Reset them."""
        world.network.reset(self.a, self.b, "fault")
        return nothing
