"""The way from one node to another: latency, bandwidth, and the faults that are at work on it.

There is a link for each ordered pair of nodes, made when first used. A link knows nothing of TCP: what a connection
does about a segment that does not pass is in `endpoint`. Faults add values of `impairment` to a link and remove them
again; what they come to together is computed then, and not for each segment. One flag, `impeded`, says whether any of
them is at work: a segment on a link without faults looks at nothing else.
"""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, Final

import attrs
from attrs import validators

from sim_net.field_checks import check_count, check_not_negative, check_positive

if TYPE_CHECKING:
    from sim_net.net.datagram_socket import Flight
    from sim_net.net.endpoint import Endpoint
    from sim_net.net.impairment import Impairment
    from sim_net.net.network import Network

_LOOPBACK_S: Final = 20e-6


@attrs.frozen
class LinkConfig:
    """How every link behaves without faults. Latency is one way, drawn for each segment; order is kept."""

    #: The least and the most time that a segment is on its way. Far apart they let segments of different connections
    #: overtake each other, and runs meet more orders; equal ones make a network without jitter.
    latency_min_s: float = attrs.field(default=0.000_1, validator=check_not_negative)
    #: See `latency_min_s`.
    latency_max_s: float = attrs.field(default=0.001, validator=check_not_negative)
    #: How many bytes travel together. Smaller segments let a receiver see more parts of what was sent at once, and cost
    #: more kernel events.
    segment_bytes: int = attrs.field(default=16_384, validator=check_count)
    #: After a cut is over, a sender tries again within this time: how long a partition outlasts its end.
    retransmit_max_s: float = attrs.field(default=0.2, validator=check_not_negative)
    #: Data that is not acknowledged for this long ends the connection with ETIMEDOUT. The default is Linux's, with
    #: tcp_retries2 = 15; a shorter time shows what a program does then without a partition of 15 minutes.
    retransmit_timeout_s: float = attrs.field(default=924.6, validator=check_positive)
    #: Payload bytes that a link takes per second, first come, first served; the others queue. None is no limit.
    #: Loopback has none.
    bandwidth_bytes_per_s: float | None = attrs.field(default=None, validator=validators.optional(check_positive))

    def __attrs_post_init__(self) -> None:
        if self.latency_max_s < self.latency_min_s:
            raise ValueError(f"latency_max_s ({self.latency_max_s}) is below latency_min_s ({self.latency_min_s})")


class Link:
    """One direction between two nodes."""

    __slots__ = (
        "_bandwidth_bytes_per_s",
        "_bytes_per_s",
        "_extra_s",
        "_free_at_s",
        "_impairments",
        "_network",
        "_spared_by_duplication",
        "_spared_by_loss",
        "cuts",
        "endpoints",
        "holds",
        "impeded",
        "last_datagram_s",
        "least_s",
        "source_name",
        "span_s",
        "stalls",
        "target_name",
        "throttled",
        "waiting",
    )

    def __init__(self, network: Network, source: str, target: str) -> None:
        config = network.link_config
        loopback = source == target
        #: The latency of a segment is `least_s` and up to `span_s` more.
        self.least_s = _LOOPBACK_S if loopback else config.latency_min_s
        self.span_s = 0.0 if loopback else config.latency_max_s - config.latency_min_s
        self.source_name = source
        self.target_name = target
        #: The connection ends that send on this link, by serial number, oldest first.
        self.endpoints: dict[int, Endpoint] = {}
        #: When the latest datagram arrives, of those that keep their order.
        self.last_datagram_s = 0.0
        #: The datagrams that are held, oldest first.
        self.waiting: list[Flight] = []
        self._network = network
        self._bandwidth_bytes_per_s = None if loopback else config.bandwidth_bytes_per_s
        self._free_at_s = 0.0
        self._impairments: list[Impairment] = []
        self._look()

    # --- what a segment meets ---------------------------------------------------------------------------------------

    @property
    def blocked(self) -> bool:
        """Whether nothing passes now."""
        return self.cuts or self.holds

    def latency_s(self) -> float:
        """The time that a segment is on its way, in seconds, once it has left."""
        return self.least_s + self.span_s * self._network.draw() + self._extra_s

    def queueing_s(self, size: int) -> float:
        """Take up the bandwidth for `size` bytes: how long it is until the last of them has left, in seconds."""
        rate = self._bytes_per_s
        if rate is None:
            return 0.0
        now_s = self._network.kernel.now_s
        self._free_at_s = max(now_s, self._free_at_s) + size / rate
        return self._free_at_s - now_s

    def loses(self) -> bool:
        """Whether a packet is lost."""
        return self._happens(self._spared_by_loss)

    def duplicates(self) -> bool:
        """Whether a datagram arrives twice."""
        return self._happens(self._spared_by_duplication)

    def reordering_s(self) -> float:
        """How much longer than its turn a datagram takes, in seconds."""
        return sum(
            each.reordering_s(lambda probability: self._happens(1.0 - probability)) for each in self._impairments
        )

    def _happens(self, spared: float) -> bool:
        """Whether an accident happens that spares a packet with probability `spared`. Draws only if it may."""
        return spared < 1.0 and self._network.draw_loss() >= spared

    # --- impairments ------------------------------------------------------------------------------------------------

    def add(self, impairment: Impairment) -> None:
        """Let something be wrong with the link, until it is removed. Whatever else is wrong stays so."""
        self._impairments.append(impairment)
        self._look()
        if impairment.cuts:
            for endpoint in list(self.endpoints.values()):
                endpoint.link_cut()

    def remove(self, impairment: Impairment) -> None:
        """Undo one `add` of an equal value. ValueError if there is none.

        What waits for the link goes on once nothing blocks it any more: after a cut TCP sends again what did not get
        through, after a hold what was kept goes on its way, in order. What waits for its turn keeps it.
        """
        self._impairments.remove(impairment)
        self._look()
        if impairment.bytes_per_s is not None:
            self._free_at_s = 0.0
        if (impairment.cuts or impairment.holds) and not self.blocked:
            self._go_on(sends_again=impairment.cuts)
        if impairment.stalls and not self.stalls:
            for endpoint in list(self.endpoints.values()):
                endpoint.pump()

    def _go_on(self, *, sends_again: bool) -> None:
        """Nothing blocks the link any more."""
        network = self._network
        for endpoint in list(self.endpoints.values()):
            endpoint.resume(network.draw() * network.link_config.retransmit_max_s if sends_again else 0.0)
        if sends_again:
            for endpoint in list(network.link(self.target_name, self.source_name).endpoints.values()):
                endpoint.way_back_healed()
        waiting, self.waiting = self.waiting, []
        for flight in waiting:
            flight.go_on()

    def _look(self) -> None:
        """Compute what all impairments come to together."""
        all_of_them = self._impairments
        #: Whether nothing passes: TCP sends it again once nothing blocks the link.
        self.cuts = any(each.cuts for each in all_of_them)
        #: Whether nothing passes: it goes on its way once nothing blocks the link.
        self.holds = any(each.holds for each in all_of_them)
        #: Whether no data leaves: the receivers' windows are shut.
        self.stalls = any(each.stalls for each in all_of_them)
        self._extra_s = sum(each.extra_s for each in all_of_them)
        self._spared_by_loss = prod(1.0 - each.loss for each in all_of_them)
        self._spared_by_duplication = prod(1.0 - each.duplication for each in all_of_them)
        limits = [each.bytes_per_s for each in all_of_them if each.bytes_per_s is not None]
        #: Whether a fault limits the bandwidth.
        self.throttled = bool(limits)
        own = self._bandwidth_bytes_per_s
        self._bytes_per_s = min(limits if own is None else [*limits, own], default=None)
        #: Whether anything but latency, stalls and what happens to datagrams alone is at work.
        self.impeded = own is not None or any(each.impedes for each in all_of_them)
