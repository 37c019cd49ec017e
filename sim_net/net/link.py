"""The way from one node to another: latency, bandwidth, and the faults that are at work on it.

There is a link for each ordered pair of nodes, made when first used. A link knows nothing of TCP: what a connection
does about a segment that does not pass is in `connection`. Faults may overlap, so each kind is counted or listed. One
flag, `impeded`, says whether any of them is at work: a segment on a link without faults looks at nothing else.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import attrs
from attrs import validators

from sim_net.field_checks import check_count, check_not_negative, check_positive

if TYPE_CHECKING:
    from sim_net.net.connection import Endpoint
    from sim_net.net.datagram_socket import Flight
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
        "_delays_s",
        "_duplications",
        "_free_at_s",
        "_losses",
        "_network",
        "_reorderings",
        "_throttles_bytes_per_s",
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
        #: While there are any, nothing passes: TCP sends it again, once there are none.
        self.cuts = 0
        #: While there are any, nothing passes: it goes on its way once there are none.
        self.holds = 0
        #: While there are any, no data leaves: the receivers' windows are shut.
        self.stalls = 0
        #: The connection ends that send on this link, by serial number, oldest first.
        self.endpoints: dict[int, Endpoint] = {}
        #: When the latest datagram arrives, of those that keep their order.
        self.last_datagram_s = 0.0
        #: The datagrams that are held, oldest first.
        self.waiting: list[Flight] = []
        self._network = network
        self._delays_s: list[float] = []
        self._losses: list[float] = []
        self._duplications: list[float] = []
        self._reorderings: list[tuple[float, float]] = []
        self._throttles_bytes_per_s: list[float] = []
        self._bandwidth_bytes_per_s = None if loopback else config.bandwidth_bytes_per_s
        self._free_at_s = 0.0
        #: Whether anything but latency and stalls is at work.
        self.impeded = self._bandwidth_bytes_per_s is not None

    # --- what a segment meets ---------------------------------------------------------------------------------------

    @property
    def blocked(self) -> bool:
        """Whether nothing passes now."""
        return self.cuts > 0 or self.holds > 0

    def latency_s(self) -> float:
        """The time that a segment is on its way, in seconds, once it has left."""
        latency_s = self.least_s + self.span_s * self._network.draw()
        return latency_s + sum(self._delays_s) if self._delays_s else latency_s

    def queueing_s(self, size: int) -> float:
        """Take up the bandwidth for `size` bytes: how long it is until the last of them has left, in seconds."""
        rates = self._throttles_bytes_per_s
        rate = min(rates) if rates else self._bandwidth_bytes_per_s
        if rate is None:
            return 0.0
        if self._bandwidth_bytes_per_s is not None:
            rate = min(rate, self._bandwidth_bytes_per_s)
        now_s = self._network.kernel.now_s
        self._free_at_s = max(now_s, self._free_at_s) + size / rate
        return self._free_at_s - now_s

    @property
    def throttled(self) -> bool:
        """Whether a fault limits the bandwidth."""
        return bool(self._throttles_bytes_per_s)

    def loses(self) -> bool:
        """Whether a packet is lost."""
        return self._happens(self._losses)

    def duplicates(self) -> bool:
        """Whether a datagram arrives twice."""
        return self._happens(self._duplications)

    def reordering_s(self) -> float:
        """How much longer than its turn a datagram takes, in seconds."""
        return sum(extra_s for probability, extra_s in self._reorderings if self._happens([probability]))

    def _happens(self, probabilities: list[float]) -> bool:
        """Whether at least one of several accidents happens."""
        if not probabilities:
            return False
        spared = 1.0
        for probability in probabilities:
            spared *= 1.0 - probability
        return self._network.draw_loss() >= spared

    # --- faults -----------------------------------------------------------------------------------------------------

    def slow_down(self, extra_s: float) -> None:
        """Let every packet take `extra_s` seconds longer."""
        self._delays_s.append(extra_s)
        self._look()

    def speed_up(self, extra_s: float) -> None:
        """Undo one `slow_down` of `extra_s`."""
        self._delays_s.remove(extra_s)
        self._look()

    def throttle(self, bytes_per_s: float) -> None:
        """Let no more than `bytes_per_s` payload bytes leave in a second; of several limits the least counts."""
        self._throttles_bytes_per_s.append(bytes_per_s)
        self._look()

    def unthrottle(self, bytes_per_s: float) -> None:
        """Undo one `throttle` of `bytes_per_s`. What waits for its turn keeps it."""
        self._throttles_bytes_per_s.remove(bytes_per_s)
        self._free_at_s = 0.0
        self._look()

    def lose(self, probability: float) -> None:
        """Lose each packet with `probability`: TCP sends it again."""
        self._losses.append(probability)
        self._look()

    def stop_losing(self, probability: float) -> None:
        """Undo one `lose` of `probability`."""
        self._losses.remove(probability)
        self._look()

    def duplicate(self, probability: float) -> None:
        """Let each datagram arrive twice with `probability`. TCP would drop the second, so nothing is seen of it."""
        self._duplications.append(probability)

    def stop_duplicating(self, probability: float) -> None:
        """Undo one `duplicate` of `probability`."""
        self._duplications.remove(probability)

    def reorder(self, probability: float, extra_s: float) -> None:
        """Let each datagram be overtaken with `probability`: it takes `extra_s` seconds longer. TCP restores order."""
        self._reorderings.append((probability, extra_s))

    def stop_reordering(self, probability: float, extra_s: float) -> None:
        """Undo one `reorder` of the same."""
        self._reorderings.remove((probability, extra_s))

    def cut(self) -> None:
        """Let nothing through."""
        self.cuts += 1
        self._look()
        for endpoint in list(self.endpoints.values()):
            endpoint.link_cut()

    def heal(self) -> None:
        """Undo one `cut`; after the last one, TCP sends again what did not get through."""
        self.cuts -= 1
        self._look()
        if self.blocked:
            return
        network = self._network
        for endpoint in list(self.endpoints.values()):
            endpoint.resume(network.draw() * network.link_config.retransmit_max_s)
        for endpoint in list(network.link(self.target_name, self.source_name).endpoints.values()):
            endpoint.way_back_healed()
        self._let_datagrams_go()

    def hold(self) -> None:
        """Keep whatever comes."""
        self.holds += 1
        self._look()

    def release(self) -> None:
        """Undo one `hold`; after the last one, what was kept goes on its way, in order."""
        self.holds -= 1
        self._look()
        if self.blocked:
            return
        for endpoint in list(self.endpoints.values()):
            endpoint.resume(0.0)
        self._let_datagrams_go()

    def stall(self) -> None:
        """Shut the receivers' windows: no data leaves."""
        self.stalls += 1

    def unstall(self) -> None:
        """Undo one `stall`; after the last one, data flows."""
        self.stalls -= 1
        if not self.stalls:
            for endpoint in list(self.endpoints.values()):
                endpoint.pump()

    def _let_datagrams_go(self) -> None:
        waiting, self.waiting = self.waiting, []
        for flight in waiting:
            flight.go_on()

    def _look(self) -> None:
        self.impeded = (
            self.cuts > 0
            or self.holds > 0
            or bool(self._delays_s or self._losses or self._throttles_bytes_per_s)
            or self._bandwidth_bytes_per_s is not None
        )
