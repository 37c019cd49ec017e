"""Chaos runs of the frozen reference workload, one process: a master and two slaves, every kind of check, tracing on.

`reference_workload.json` is the case; each run of a round has another seed, so another interleaving of the same puts
and faults. `python -m tests.bench.chaos_runs --help`.
"""

from __future__ import annotations

import itertools
import logging
import time
from pathlib import Path

import attrs

from rmq_actors.testing.scenarios import RunResult, run_case
from rmq_actors.tracing.event import of_kind
from rmq_actors.tracing.events.store import LogAppend
from sim_net import fault_kind, many_runs
from sim_net.search.search import Case
from tests.bench.measuring import arguments, measure, report

WORKLOAD = Path(__file__).parent / "reference_workload.json"
RUNS_A_ROUND = 30
GOAL = "60"


def run_all(case: Case, seeds: range) -> tuple[float, list[RunResult]]:
    """CPU seconds of a run of each seed, and the results. RuntimeError if one fails."""
    began = time.process_time()
    results = [run_case(attrs.evolve(case, seed=seed), campaign="bench") for seed in seeds]
    took_s = time.process_time() - began
    failed = next((result for result in results if result.outcome != "passed"), None)
    if failed is not None:
        raise RuntimeError(f"seed {failed.case.seed}: {failed.outcome}: {failed.failure}")
    return took_s, results


def describe(case: Case, results: list[RunResult]) -> list[str]:
    """What a run of the workload consists of."""
    ends = [event.offset + event.size for event in of_kind(results[0].events, LogAppend)]
    virtual_s = min(result.virtual_s for result in results)
    events = sum(len(result.events) for result in results) / len(results)
    puts, faults = case.parameters["puts"], ", ".join(fault_kind(fault) for fault in case.schedule.faults)
    return [
        f"a run: {virtual_s:.1f} virtual s or more, {puts} puts and a last one, {max(ends)} bytes of log",
        f"{events:.0f} traced events a run; faults: {faults}",
    ]


def main() -> None:
    """Measure and print."""
    options = arguments(__doc__, rounds=9)
    logging.disable(logging.CRITICAL)
    case = Case.from_json(WORKLOAD.read_text(encoding="utf-8"))
    starts = itertools.count(step=RUNS_A_ROUND)
    results: list[RunResult] = []

    def once() -> float:
        start = next(starts)
        took_s, results[:] = run_all(case, range(start, start + RUNS_A_ROUND))
        return RUNS_A_ROUND / took_s

    with many_runs():
        figure = measure("chaos runs", "runs / CPU s", once, rounds=options.rounds, per_second=True, goal=GOAL)
    report([figure], notes=describe(case, results), as_json=options.json)


if __name__ == "__main__":
    main()
