"""Requests of a connection: each is ended once, by its answer, at its own deadline, or with the connection."""

from __future__ import annotations

import math

from hypothesis import given
from hypothesis import strategies as st

from rmq_actors.protocols.pending_requests import PendingRequests
from tests.worlds.lines_run import lines_of

DEADLINES = st.sampled_from([1.0, 2.0, 2.5, 4.0, math.inf])
#: A request begins with a deadline, an opaque is answered, or time goes on.
STEPS = st.lists(st.one_of(DEADLINES, st.integers(0, 12), st.just("later")), max_size=60)


@given(STEPS)
def test_each_request_is_ended_once(steps: list[float | int | str]) -> None:
    requests, deadlines, now_s = PendingRequests[int](8), dict[int, float](), 0.0
    begun = 0
    for step in steps:
        if isinstance(step, float):
            opaque = requests.begin(begun, now_s + step)
            assert (opaque is None) is (len(deadlines) == 8)
            if opaque is not None:
                assert opaque == begun
                deadlines[begun] = now_s + step
                begun += 1
        elif isinstance(step, int):
            assert requests.end(step) == (step if deadlines.pop(step, None) is not None else None)
        else:
            now_s += 1.0
            late = {opaque for opaque, deadline_s in deadlines.items() if deadline_s <= now_s}
            assert set(requests.end_expired(now_s)) == late
            deadlines = {opaque: deadline_s for opaque, deadline_s in deadlines.items() if opaque not in late}
        assert requests.next_deadline_s() == min(deadlines.values(), default=math.inf)
        assert len(requests) == len(deadlines)
    assert set(requests.end_all()) == set(deadlines)
    assert (len(requests), requests.next_deadline_s()) == (0, math.inf)


def test_a_time_out_costs_the_same_however_many_wait() -> None:
    """Behind a broker that stands still, 10,000 requests looked through all others, each of them: 5 s of CPU time."""

    def lines(waiting: int) -> int:
        requests = PendingRequests[int](waiting)
        for number in range(waiting):
            requests.begin(number, float(number))

        def end_100() -> None:
            for now_s in range(100):
                assert list(requests.end_expired(float(now_s))) == [now_s]
                assert requests.next_deadline_s() == now_s + 1

        return lines_of(end_100)

    assert lines(5000) == lines(200)


def test_deadlines_of_answered_requests_are_not_kept() -> None:
    requests = PendingRequests[str](10)
    requests.begin("waits for long", 30.0)
    for number in range(10_000):
        opaque = requests.begin("answered", 3.0 + number)
        assert opaque is not None
        requests.end(opaque)
    assert len(requests._deadlines) < 100
    assert requests.next_deadline_s() == 30.0
