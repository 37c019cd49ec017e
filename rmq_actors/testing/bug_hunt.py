"""Finds a planted bug from a random start, and shrinks the schedule that shows it."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable

import attrs

from rmq_actors.testing.scenario import Scenario
from rmq_actors.testing.scenarios import REPLICATION, Outcome, RunResult, random_case, run_case
from sim_net.search.search import Case, find, shrink


@attrs.frozen
class Hunt:
    """Where to begin and when to give up. `time_max_s` bounds the search, `shrink_runs_max` the shrinking."""

    planted_bug: str
    start: int
    time_max_s: float = 60.0
    runs_max: int = 100_000
    shrink_runs_max: int = 100


@attrs.frozen
class Caught:
    """A planted bug that was found: the first failing case, the small one, and what it took."""

    first: Case
    result: RunResult
    runs: int
    search_s: float
    shrink_s: float


def hunt_bug(hunt: Hunt, on_progress: Callable[[str, int], object] | None = None) -> Caught | None:
    """Search, then shrink; None when the bound was reached. `on_progress` gets the phase and the runs done in it."""
    began = time.monotonic()

    def failure_of(case: Case) -> str | None:
        result = run_case(case, campaign="hunt")
        return signature(result.outcome, result.failure) if result.outcome != "passed" else None

    def report(phase: str) -> Callable[..., object]:
        return lambda runs, *_: on_progress(phase, runs) if on_progress is not None else None

    found = find(
        failure_of,
        lambda seed: random_case(seed, planted_bug=hunt.planted_bug),
        itertools.count(hunt.start),
        runs_max=hunt.runs_max,
        stop=lambda: time.monotonic() - began > hunt.time_max_s,
        on_progress=report("searching"),
    )
    if found is None:
        return None
    search_s = time.monotonic() - began
    first = run_case(found.case, campaign="hunt")
    result = shrink_failure(
        first, REPLICATION, runs_max=hunt.shrink_runs_max, campaign="hunt", on_progress=report("shrinking")
    )
    return Caught(found.case, result, found.runs, search_s, time.monotonic() - began - search_s)


def shrink_failure(
    first: RunResult,
    scenario: Scenario,
    *,
    runs_max: int,
    stop: Callable[[], bool] = lambda: False,
    on_progress: Callable[[int, Case], object] | None = None,
    on_smaller: Callable[[RunResult], object] = lambda _: None,
    campaign: str = "chaos",
) -> RunResult:
    """The run of a smaller case that fails like `first`, with its seed: another one would make another run.

    `runs_max`, `stop` and `on_progress`: see `sim_net.search.search.shrink`. `on_smaller` gets each smaller case's run.
    """
    best, wanted = first, signature(first.outcome, first.failure)

    def fails_alike(case: Case) -> bool:
        nonlocal best
        if not scenario.can_run(case):
            return False
        result = run_case(case, scenario, campaign=campaign)
        if result.outcome == "passed" or signature(result.outcome, result.failure) != wanted:
            return False
        best = result
        on_smaller(result)
        return True

    shrink(first.case, fails_alike, runs_max=runs_max, stop=stop, on_progress=on_progress)
    return best


def signature(outcome: Outcome, failure: str) -> str:
    """What makes two failures alike: how the run ended, and by which invariant or error. Times and offsets do not."""
    if outcome == "invariant":
        return failure.partition(":")[0]
    if outcome == "crash" and ": " in failure:  # who failed and when, the error, its text, or where
        return f"crash by {failure.split(': ')[1].partition(' (')[0]}"
    return outcome
