"""Segments of one end on the wire: whatever a link does to them, they arrive once and in order."""

from __future__ import annotations

import heapq
from collections.abc import Callable
from random import Random
from typing import cast

from hypothesis import given
from hypothesis import strategies as st

from sim_net.net.endpoint import Endpoint
from sim_net.net.impairment import Cut, Held, Impairment, Lossy, Narrow, Slow
from sim_net.net.lane import Lane
from sim_net.net.link import Link, LinkConfig
from sim_net.net.network import Network
from sim_net.net.segment import DATA, FIN, NO_CONNECTION, RESET, Payload
from sim_net.net.tcp_state import ABORTED, ESTABLISHED

IMPAIRMENTS = (Cut(), Held(), Slow(0.5), Lossy(0.5), Narrow(10.0))


class Wire:
    """A lane on a link from "a" to "b", with a clock that a test winds; the network, its kernel and the end in one."""

    link_config = LinkConfig()

    def __init__(self, seed: int = 0) -> None:
        self.now_s = 0.0
        self.draw = self.draw_loss = Random(seed).random
        self.kernel = self.digest = self
        self.state = ESTABLISHED
        self.told: list[str] = []
        self.there: list[tuple[int, Payload]] = []
        self._calls: list[tuple[float, int, Callable[[], object]]] = []
        self._count = 0
        network = cast("Network", self)
        self.out, self.back = Link(network, "a", "b"), Link(network, "b", "a")
        self.lane = Lane(network, self.out, self, 1)
        self.out.endpoints[1] = cast("Endpoint", self)

    def link(self, source: str, target: str) -> Link:
        assert (source, target) == ("b", "a")
        return self.back

    def call_at(self, at_s: float, call: Callable[[], object]) -> None:
        self._count += 1
        heapq.heappush(self._calls, (at_s, self._count, call))

    def run(self, until_s: float = float("inf")) -> None:
        while self._calls and self._calls[0][0] <= until_s:
            self.now_s, _, call = heapq.heappop(self._calls)
            call()

    def add(self, piece: bytes) -> None:
        """The digest."""

    def link_cut(self) -> None:
        """The link tells its ends."""

    def resume(self, after_s: float) -> None:
        self.lane.go_on(after_s)

    def arrived(self, kind: int, payload: Payload) -> None:
        self.there.append((kind, payload))

    def held(self, kind: int, payload: Payload) -> None:
        self.told.append("held")

    def queued(self, size: int, wait_s: float) -> None:
        self.told.append(f"queued {size} for {wait_s}")

    def lost(self, kind: int, payload: Payload, count: int) -> None:
        self.told.append(f"lost {count}")

    def wait_for_acks(self) -> None:
        self.told.append("waits")

    def stop_waiting_for_acks(self) -> None:
        self.told.append("acknowledged")

    def forget(self) -> None:
        self.told.append("forgotten")


steps = st.lists(
    st.one_of(
        st.just("send"), st.sampled_from(IMPAIRMENTS), st.floats(0.0, 2.0).map(lambda seconds: round(seconds, 3))
    ),
    max_size=40,
)


@given(steps=steps, seed=st.integers(0, 1000))
def test_whatever_a_link_does_segments_arrive_once_and_in_order(
    steps: list[str | Impairment | float], seed: int
) -> None:
    wire = Wire(seed)
    sent = 0
    at_work: list[Impairment] = []
    for step in steps:
        if isinstance(step, Impairment):
            if step in at_work:
                at_work.remove(step)
                wire.out.remove(step)
            else:
                at_work.append(step)
                wire.out.add(step)
        elif isinstance(step, float):
            wire.now_s += step
            wire.run(wire.now_s)
        else:
            wire.lane.transmit(DATA, sent.to_bytes(2, "big"))
            sent += 1
        assert wire.there == [(DATA, n.to_bytes(2, "big")) for n in range(len(wire.there))]
    for impairment in at_work:
        wire.out.remove(impairment)
    wire.run()
    assert wire.there == [(DATA, n.to_bytes(2, "big")) for n in range(sent)]
    assert wire.lane.is_empty


def test_the_end_follows_the_data_through_a_cut() -> None:
    wire = Wire()
    wire.lane.transmit(DATA, b"on its way")
    wire.out.add(Cut())
    wire.lane.transmit(FIN, 0)
    wire.run()
    assert wire.there == []
    assert wire.told == ["held", "held"]
    wire.out.remove(Cut())
    wire.run()
    assert wire.there == [(DATA, b"on its way"), (FIN, 0)]


def test_a_reset_does_not_outlive_a_cut_unless_it_answers() -> None:
    wire = Wire()
    wire.out.add(Cut())
    wire.lane.transmit(RESET, "closed")
    assert wire.lane.is_empty
    wire.lane.transmit(RESET, NO_CONNECTION)
    wire.out.remove(Cut())
    wire.run()
    assert wire.there == [(RESET, NO_CONNECTION)]


def test_a_reset_is_held_like_anything_else() -> None:
    wire = Wire()
    wire.out.add(Held())
    wire.lane.transmit(RESET, "closed")
    wire.run()
    assert (wire.there, wire.told) == ([], ["held"])
    wire.out.remove(Held())
    wire.run()
    assert wire.there == [(RESET, "closed")]


def test_a_lost_reset_is_gone_and_lost_data_is_sent_again_ever_later() -> None:
    wire = Wire()
    wire.out.add(Lossy(1.0))
    wire.lane.transmit(RESET, "closed")
    wire.run()
    assert (wire.told, wire.lane.is_empty) == (["lost 1", "forgotten"], True)
    wire = Wire()
    wire.out.add(Lossy(1.0))
    wire.lane.transmit(DATA, b"data")
    wire.run(1.0)
    assert wire.told == ["lost 1", "waits", "lost 2", "waits", "lost 3", "waits"]
    wire.out.remove(Lossy(1.0))
    wire.run()
    assert (wire.there, wire.told[-1]) == ([(DATA, b"data")], "acknowledged")


def test_a_crashed_end_loses_what_waits_for_a_cut_link_and_all_after_it() -> None:
    wire = Wire()
    wire.out.add(Cut())
    wire.lane.transmit(DATA, b"data")
    wire.out.add(Held())
    wire.state = ABORTED
    wire.lane.lose_parked()
    assert wire.lane.is_empty
    wire.out.remove(Held())
    wire.out.remove(Cut())
    wire.run()
    assert wire.there == []


def test_a_crashed_end_is_forgotten_when_its_last_segment_is_out() -> None:
    wire = Wire()
    wire.lane.transmit(DATA, b"data")
    wire.state = ABORTED
    wire.run()
    assert (wire.there, wire.told) == ([(DATA, b"data")], ["forgotten"])


def test_an_event_that_is_left_over_from_a_loss_takes_nothing_that_waits() -> None:
    wire = Wire()
    wire.out.add(Lossy(1.0))
    wire.lane.transmit(DATA, b"lost once")
    wire.run(0.1)
    wire.out.remove(Lossy(1.0))
    wire.lane.transmit(DATA, b"brings it along")
    wire.run(0.15)
    arrived = [(DATA, b"lost once"), (DATA, b"brings it along")]
    assert wire.there == arrived
    wire.out.add(Cut())
    wire.lane.transmit(DATA, b"waits")
    wire.run()
    assert wire.there == arrived
    wire.out.remove(Cut())
    wire.run()
    assert wire.there == [*arrived, (DATA, b"waits")]


def test_what_waits_does_not_stir_while_anything_blocks_the_link() -> None:
    wire = Wire()
    wire.out.add(Cut())
    wire.out.add(Held())
    wire.lane.transmit(DATA, b"data")
    wire.out.remove(Cut())
    wire.run()
    assert (wire.there, wire.told) == ([], ["held"])
    wire.out.remove(Held())
    wire.run()
    assert wire.there == [(DATA, b"data")]
