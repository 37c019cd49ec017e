"""Many runs: seeds in, one summary a run out, in the order of the seeds; traces and failing cases as files.

With several jobs the seeds are dealt out to processes, each of which writes trace files of its own.
"""

from __future__ import annotations

import logging
import multiprocessing
import queue
from collections.abc import Callable, Iterator, Sequence
from multiprocessing.queues import Queue
from pathlib import Path
from typing import TYPE_CHECKING

import attrs

from rmq_actors.testing.case_file import CaseFile
from rmq_actors.testing.scenarios import SCENARIO, Outcome, RunResult, random_case, run_case, scenario_of
from rmq_actors.testing.workload import Workload
from sim_net import fault_kind, many_runs

if TYPE_CHECKING:
    from rmq_actors.tracing.spool import TraceWriter

_POLL_S = 1.0


class CampaignFailed(RuntimeError):
    """A worker process ended before its runs were done."""


@attrs.frozen
class RunSummary:
    """What is kept of a run once its trace is written."""

    seed: int
    outcome: Outcome
    failure: str
    digest: str
    events: int
    virtual_s: float
    acked: int
    checks: int
    fired: frozenset[str]
    observed: frozenset[str]
    under_load: frozenset[str]
    #: The role of the master, how it and its slaves flush.
    combination: tuple[str, str, str]
    case_path: Path | None = None


@attrs.frozen
class Campaign:
    """What to run, over how many processes. With `out`, traces go to `out`/traces, failures to `out`/failures."""

    seeds: Sequence[int]
    scenario: str = SCENARIO
    name: str = "chaos"
    jobs: int = 1
    out: Path | None = None
    planted_bug: str | None = None


def summarize(result: RunResult, out: Path | None) -> RunSummary:
    """Reduce a result, writing its case below `out`/failures if it failed."""
    path = None
    if result.outcome != "passed" and out is not None:
        scenario = scenario_of(result.case)
        path = out / "failures" / f"{scenario}-{result.case.seed}.json"
        CaseFile(scenario, result.case, result.outcome, result.failure).save(path)
    workload = Workload.of(result.case.parameters)
    return RunSummary(
        result.case.seed,
        result.outcome,
        result.failure,
        result.digest,
        len(result.events),
        result.virtual_s,
        result.acked,
        result.checks,
        frozenset(fault_kind(fault) for fault in result.case.schedule.faults),
        result.observed,
        result.under_load,
        (workload.master_role, workload.master_flush, workload.slave_flush),
        path,
    )


def write_trace(writer: TraceWriter, result: RunResult) -> None:
    """Add a run to a trace."""
    writer.write_run(
        result.run,
        result.events,
        outcome=result.outcome,
        fault_kinds=sorted({fault_kind(fault) for fault in result.case.schedule.faults}),
    )


def run_campaign(campaign: Campaign, on_summary: Callable[[RunSummary], object]) -> list[RunSummary]:
    """Run all seeds; `on_summary` sees each run in the order of the seeds. Raises `CampaignFailed`."""
    summaries = []
    with many_runs():
        runs = _run_seeds(campaign, 0, campaign.seeds) if campaign.jobs == 1 else _run_in_processes(campaign)
        for summary in runs:
            on_summary(summary)
            summaries.append(summary)
    return summaries


def _run_seeds(campaign: Campaign, worker: int, seeds: Sequence[int]) -> Iterator[RunSummary]:
    if campaign.out is None:
        for seed in seeds:
            yield summarize(_run_seed(campaign, seed), None)
        return
    from rmq_actors.tracing.spool import TraceWriter  # noqa: PLC0415  # runs without traces need no pyarrow

    with TraceWriter(campaign.out / "traces", campaign.name, campaign.scenario, worker=worker) as writer:
        for seed in seeds:
            result = _run_seed(campaign, seed)
            write_trace(writer, result)
            yield summarize(result, campaign.out)


def _run_seed(campaign: Campaign, seed: int) -> RunResult:
    case = random_case(seed, scenario=campaign.scenario, planted_bug=campaign.planted_bug)
    return run_case(case, campaign=campaign.name)


def _work(campaign: Campaign, worker: int, seeds: Sequence[int], done: Queue[RunSummary]) -> None:
    # What brokers log of their peers' deaths is in the traces; the parent's settings do not reach a spawned process.
    logging.getLogger("rmq_actors").setLevel(logging.CRITICAL)
    with many_runs():
        for summary in _run_seeds(campaign, worker, seeds):
            done.put(summary)


def _run_in_processes(campaign: Campaign) -> Iterator[RunSummary]:
    context = multiprocessing.get_context("spawn")
    done: Queue[RunSummary] = context.Queue()
    workers = [
        context.Process(
            target=_work, args=(campaign, number, campaign.seeds[number :: campaign.jobs], done), daemon=True
        )
        for number in range(campaign.jobs)
    ]
    for worker in workers:
        worker.start()
    early: dict[int, RunSummary] = {}
    try:
        for seed in campaign.seeds:
            while seed not in early:
                summary = _take(done, workers)
                early[summary.seed] = summary
            yield early.pop(seed)
        for worker in workers:
            worker.join()
            if worker.exitcode:
                raise CampaignFailed(f"a worker ended with exit code {worker.exitcode}")
    finally:
        for worker in workers:
            worker.kill()


def _take(done: Queue[RunSummary], workers: Sequence[multiprocessing.process.BaseProcess]) -> RunSummary:
    while True:
        try:
            return done.get(timeout=_POLL_S)
        except queue.Empty:
            for worker in workers:
                if worker.exitcode:
                    raise CampaignFailed(f"a worker ended with exit code {worker.exitcode}") from None
