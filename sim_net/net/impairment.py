"""What can be wrong with a link, as values: a link keeps a list of those that are at work on it.

An impairment is data and does nothing itself: `link` asks each one what it changes. So two of them overlap and end in
any order, and a new one that changes what is listed in `Impairment` is a class of a few lines.
"""

from __future__ import annotations

from collections.abc import Callable

import attrs


class Impairment:
    """The base: a link that is as good as without it. A kind overrides what it changes."""

    __slots__ = ()

    #: Whether each packet must ask the link. Not if it stops no packet, or changes datagrams alone.
    impedes = True
    #: Nothing passes. TCP sends it again once the link passes; a datagram is lost.
    cuts = False
    #: Nothing passes, and nothing is lost: it goes on its way, in order, once the link passes.
    holds = False
    #: No data leaves, because the receivers' windows are shut. Everything else passes.
    stalls = False
    #: How much longer each packet takes. Several add up.
    extra_s: float = 0.0
    #: How likely each packet is lost.
    loss: float = 0.0
    #: How likely each datagram arrives twice. TCP would drop the second, so nothing is seen of it.
    duplication: float = 0.0
    #: How many payload bytes leave per second. The least of several limits counts.
    bytes_per_s: float | None = None

    def reordering_s(self, happens: Callable[[float], bool]) -> float:
        """How much longer than its turn a datagram takes; `happens` draws whether something this likely does."""
        del happens
        return 0.0


@attrs.frozen
class Cut(Impairment):
    """Nothing passes, and what is on its way is lost."""

    cuts = True


@attrs.frozen
class Held(Impairment):
    """Nothing passes; it is kept."""

    holds = True


@attrs.frozen
class ShutWindows(Impairment):
    """No data leaves."""

    impedes = False
    stalls = True


@attrs.frozen
class Slow(Impairment):
    """Each packet takes longer."""

    extra_s: float


@attrs.frozen
class Lossy(Impairment):
    """Packets are lost."""

    loss: float


@attrs.frozen
class Duplicating(Impairment):
    """Datagrams arrive twice."""

    impedes = False
    duplication: float


@attrs.frozen
class Narrow(Impairment):
    """The bandwidth is limited."""

    bytes_per_s: float | None


@attrs.frozen
class Reordering(Impairment):
    """A datagram is overtaken with `probability`: it takes `late_s` longer than its turn."""

    impedes = False
    probability: float
    late_s: float

    def reordering_s(self, happens: Callable[[float], bool]) -> float:
        """`late_s`, if it happens."""
        return self.late_s if happens(self.probability) else 0.0
