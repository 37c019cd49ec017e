"""Facts 13 and 14 of `sim_net.kernel.determinism`: what stands in for parts of Trio does what these do."""

from __future__ import annotations

import math
from collections import Counter

import pytest
import trio
import trio.testing
from trio._core import _instrumentation, _run

from sim_net import World
from sim_net.kernel.determinism import cheaper_trio

SCOPES = "_might_change_registered_deadline"


def deadlines_of_scopes() -> list[object]:
    """What Trio's loop knows of deadlines after each change of some scopes."""
    seen: list[object] = []

    def note(*scopes: trio.CancelScope) -> None:
        deadlines = _run.GLOBAL_RUN_CONTEXT.runner.deadlines
        entries = sorted(deadline for deadline, _, _ in deadlines._heap)
        seen.append((entries, deadlines._active, [scope._registered_deadline for scope in scopes]))

    async def fail_within(scope: trio.CancelScope) -> None:
        with scope:
            note(scope)
            await trio.lowlevel.checkpoint()
            raise KeyError("fails within")

    async def main() -> None:
        outer, inner, left = trio.CancelScope(deadline=5), trio.CancelScope(), trio.CancelScope(deadline=10)
        note(outer, inner)
        with outer:
            note(outer, inner)
            with inner:
                note(outer, inner)
                inner.deadline = 3.0
                note(outer, inner)
                outer.deadline = math.inf
                note(outer, inner)
                inner.deadline = 2
                note(outer, inner)
                await trio.sleep_forever()
            note(outer, inner)
            outer.deadline = 9
            note(outer, inner)
            with pytest.raises(KeyError, match="fails within"):
                await fail_within(left)
            note(left)
            outer.cancel()
            note(outer, inner)
            outer.deadline = 11
            note(outer, inner)
        note(outer, inner)
        with trio.CancelScope(deadline=1) as late:
            note(late)
            await trio.lowlevel.checkpoint()
        note(late)

    trio.run(main, clock=trio.testing.MockClock(autojump_threshold=0))
    return seen


def test_fact_13_scopes_register_their_deadlines_as_trio_has_it() -> None:
    real = vars(trio.CancelScope)[SCOPES]
    expected = deadlines_of_scopes()
    assert len({repr(each) for each in expected}) >= 8
    with cheaper_trio():
        assert vars(trio.CancelScope)[SCOPES] is not real
        with cheaper_trio():
            assert deadlines_of_scopes() == expected
        assert vars(trio.CancelScope)[SCOPES] is not real
    assert vars(trio.CancelScope)[SCOPES] is real


class Counting(trio.abc.Instrument):
    def __init__(self) -> None:
        self.steps: Counter[str] = Counter()

    def before_task_step(self, task: trio.lowlevel.Task) -> None:
        self.steps[task.name.rpartition(".")[2]] += 1


class Failing(trio.abc.Instrument):
    def before_task_step(self, task: trio.lowlevel.Task) -> None:
        raise ValueError(task.name)


def steps_that_instruments_see(caplog: pytest.LogCaptureFixture) -> tuple[int, int, int]:
    """What one sees that is there from the start, and one that comes later; how many failures are logged."""
    first, later, failing = Counting(), Counting(), Failing()

    async def main() -> None:
        trio.lowlevel.add_instrument(later)
        trio.lowlevel.add_instrument(later)
        trio.lowlevel.add_instrument(failing)
        await trio.lowlevel.checkpoint()
        with pytest.raises(KeyError):
            trio.lowlevel.remove_instrument(failing)
        trio.lowlevel.remove_instrument(first)
        await trio.lowlevel.checkpoint()

    caplog.clear()
    trio.run(main, instruments=[first])
    return first.steps["main"], later.steps["main"], len(caplog.records)


def test_fact_14_instruments_are_called_removed_and_dropped_when_they_fail(caplog: pytest.LogCaptureFixture) -> None:
    assert steps_that_instruments_see(caplog) == (2, 2, 1)
    with cheaper_trio():
        assert vars(_run)["Instruments"] is not _instrumentation.Instruments
        assert steps_that_instruments_see(caplog) == (2, 2, 1)
    assert vars(_run)["Instruments"] is _instrumentation.Instruments


def test_a_world_has_them_for_its_run_alone() -> None:
    found: list[object] = []

    async def main(_: World) -> None:
        found.append(vars(trio.CancelScope)[SCOPES])

    real = vars(trio.CancelScope)[SCOPES]
    World(0).run(main)
    assert found != [real]
    assert vars(trio.CancelScope)[SCOPES] is real
