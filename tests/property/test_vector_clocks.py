"""Vector clocks of any history of messages say exactly what came before what."""

from __future__ import annotations

from collections.abc import Sequence

import attrs
from hypothesis import given
from hypothesis import strategies as st

from rmq_actors.tracing.export.vector_clocks import Clock, VectorClocks, came_before


@attrs.frozen
class Step:
    """An event: of a line, after a message of an earlier event, if any."""

    line: str
    cause: int | None


@st.composite
def histories(draw: st.DrawFn, lines: Sequence[str] = ("a", "b", "c", "d")) -> list[Step]:
    length = draw(st.integers(1, 30))
    steps: list[Step] = []
    for number in range(length):
        cause = draw(st.none() | st.integers(0, number - 1)) if number else None
        steps.append(Step(draw(st.sampled_from(lines)), cause))
    return steps


def clocks_of(steps: Sequence[Step]) -> list[Clock]:
    clocks, found = VectorClocks(), list[Clock]()
    for step in steps:
        found.append(clocks.next(step.line, None if step.cause is None else found[step.cause]))
    return found


def histories_before(steps: Sequence[Step]) -> list[set[int]]:
    """For each event, those before it and itself, by following lines and messages one by one."""
    before: list[set[int]] = []
    last: dict[str, int] = {}
    for number, step in enumerate(steps):
        found = {number}
        for earlier in (last.get(step.line), step.cause):
            if earlier is not None:
                found |= before[earlier]
        before.append(found)
        last[step.line] = number
    return before


@given(histories())
def test_a_clock_says_what_came_before_and_nothing_else(steps: list[Step]) -> None:
    clocks, before = clocks_of(steps), histories_before(steps)
    for second, history in enumerate(before):
        for first, step in enumerate(steps):
            assert came_before(clocks[first], step.line, clocks[second]) == (first in history)


@given(histories())
def test_a_lines_own_clock_begins_at_1_and_grows_by_1(steps: list[Step]) -> None:
    seen: dict[str, int] = {}
    for step, clock in zip(steps, clocks_of(steps), strict=True):
        seen[step.line] = seen.get(step.line, 0) + 1
        assert clock[step.line] == seen[step.line]


@given(histories())
def test_what_is_received_dominates_what_was_sent(steps: list[Step]) -> None:
    clocks = clocks_of(steps)
    for step, clock in zip(steps, clocks, strict=True):
        if step.cause is not None:
            sent = clocks[step.cause]
            assert all(clock[line] >= count for line, count in sent.items())
            assert clock != sent


@given(histories(("a", "b")), histories(("c", "d")))
def test_lines_that_do_not_talk_stay_concurrent(one: list[Step], other: list[Step]) -> None:
    moved = [attrs.evolve(step, cause=None if step.cause is None else step.cause + len(one)) for step in other]
    clocks = clocks_of(one + moved)
    for first, step in enumerate(one):
        for second, far in enumerate(moved, len(one)):
            assert not came_before(clocks[first], step.line, clocks[second])
            assert not came_before(clocks[second], far.line, clocks[first])
