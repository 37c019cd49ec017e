"""Many runs: takes seeds, gives one summary per run in the order of the seeds, writes traces and failing cases.

With several jobs the seeds are dealt out to processes, each of which writes its own trace files. They ignore SIGINT,
which a terminal sends to all processes: the process that has started them asks them to stop. What ends a worker's runs
all the same goes to that process, which raises it.
"""

from __future__ import annotations

import logging
import multiprocessing
import pickle
import queue
import signal
from collections.abc import Callable, Iterator, Sequence
from multiprocessing.queues import Queue
from multiprocessing.synchronize import Event as Stopping
from pathlib import Path
from typing import TYPE_CHECKING

import attrs

from rmq_actors.testing.case_file import CaseFile
from rmq_actors.testing.mistakes import MISTAKES, is_interrupt, told, what
from rmq_actors.testing.scenario import Scenario
from rmq_actors.testing.scenario_checks import BadScenario, what_stays_here
from rmq_actors.testing.scenarios import REPLICATION, Outcome, RunResult, random_case, run_case
from rmq_actors.testing.workload import Workload
from sim_net import fault_kind, many_runs

if TYPE_CHECKING:
    from rmq_actors.tracing.spool import TraceWriter

_POLL_S = 0.25


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


#: What a worker tells its parent: a run that has ended, or what has ended all its runs.
_Told = RunSummary | OSError | BadScenario | KeyboardInterrupt


@attrs.frozen
class Campaign:
    """What to run, over how many processes. With `out`, traces go to `out`/traces, failures to `out`/failures."""

    seeds: Sequence[int]
    scenario: Scenario = REPLICATION
    name: str = "chaos"
    jobs: int = 1
    out: Path | None = None
    planted_bug: str | None = None


def summarize(result: RunResult, out: Path | None) -> RunSummary:
    """Reduce a result, writing its case below `out`/failures if it failed."""
    path = None
    if result.outcome != "passed" and out is not None:
        scenario = result.run.scenario
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


def _never() -> bool:
    return False


def run_campaign(
    campaign: Campaign, on_summary: Callable[[RunSummary], object], stop: Callable[[], bool] = _never
) -> list[RunSummary]:
    """Run all seeds; `on_summary` sees each run in the order of the seeds.

    Raises `BadScenario`, `CampaignFailed`, and the `OSError` of what cannot be written below `out`, whichever process
    has met it; KeyboardInterrupt, too.
    Once `stop()` is true, no run begins, and the present run of this process does not count: the signal that caused the
    stop may have been an event of that run.
    """
    summaries = []
    with many_runs():
        runs = (
            _run_seeds(campaign, 0, campaign.seeds, stop) if campaign.jobs == 1 else _run_in_processes(campaign, stop)
        )
        for summary in runs:
            on_summary(summary)
            summaries.append(summary)
    return summaries


def _run_seeds(campaign: Campaign, worker: int, seeds: Sequence[int], stop: Callable[[], bool]) -> Iterator[RunSummary]:
    if campaign.out is None:
        for result in _results(campaign, seeds, stop):
            yield summarize(result, None)
        return
    from rmq_actors.tracing.spool import TraceWriter  # noqa: PLC0415  # runs without traces need no pyarrow

    with TraceWriter(campaign.out / "traces", campaign.name, campaign.scenario.name, worker=worker) as writer:
        for result in _results(campaign, seeds, stop):
            write_trace(writer, result)
            yield summarize(result, campaign.out)


def _results(campaign: Campaign, seeds: Sequence[int], stop: Callable[[], bool]) -> Iterator[RunResult]:
    for seed in seeds:
        if stop():
            return
        result = _run_seed(campaign, seed)
        if stop():
            return
        yield result


def _run_seed(campaign: Campaign, seed: int) -> RunResult:
    case = random_case(seed, scenario=campaign.scenario, planted_bug=campaign.planted_bug)
    return run_case(case, campaign.scenario, campaign=campaign.name)


def _work(pickled: bytes, worker: int, seeds: Sequence[int], done: Queue[_Told], stopping: Stopping) -> None:
    # The traces have what brokers log about their peers' deaths; the parent's settings do not reach a spawned process.
    logging.getLogger("rmq_actors").setLevel(logging.CRITICAL)
    parent = multiprocessing.parent_process()

    def stop() -> bool:
        # A parent that was killed has told nobody.
        return stopping.is_set() or (parent is not None and not parent.is_alive())

    try:
        with many_runs():
            for summary in _run_seeds(_unpickled(pickled), worker, seeds, stop):
                done.put(summary)
    except (OSError, BadScenario) as error:  # `out` has no room, say: the parent's to tell
        done.put(error)
    except BaseException as error:
        if not is_interrupt(error):
            raise
        done.put(KeyboardInterrupt())


def _run_in_processes(campaign: Campaign, stop: Callable[[], bool]) -> Iterator[RunSummary]:
    pickled = _pickled(campaign)
    context = multiprocessing.get_context("spawn")
    done: Queue[_Told] = context.Queue()
    stopping = context.Event()
    workers = [
        context.Process(
            target=_work, args=(pickled, number, campaign.seeds[number :: campaign.jobs], done, stopping), daemon=True
        )
        for number in range(campaign.jobs)
    ]
    _start_without_interrupts(workers)
    early: dict[int, RunSummary] = {}
    try:
        for seed in campaign.seeds:
            while seed not in early:
                summary = _take(done, workers, stop, stopping)
                if summary is None:  # they were stopped: some of the remaining seeds may have been run
                    yield from (early[left] for left in sorted(early))
                    return
                early[summary.seed] = summary
            yield early.pop(seed)
        for worker in workers:
            worker.join()
            if worker.exitcode:
                raise CampaignFailed(f"a worker ended with exit code {worker.exitcode}")
    finally:
        for worker in workers:
            worker.kill()


def _start_without_interrupts(workers: Sequence[multiprocessing.process.BaseProcess]) -> None:
    """A process inherits which signals are blocked; one that came to this process meanwhile is delivered afterwards."""
    blocked = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        for worker in workers:
            worker.start()
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, blocked)


def _take(
    done: Queue[_Told],
    workers: Sequence[multiprocessing.process.BaseProcess],
    stop: Callable[[], bool],
    stopping: Stopping,
) -> RunSummary | None:
    """The next run that has ended; None: all workers were stopped. Raises what has ended the runs of a worker."""
    while True:
        if stop():
            stopping.set()
        # Once a worker has ended, all that it has put is there.
        have_ended = all(worker.exitcode == 0 for worker in workers)
        try:
            ended = done.get(timeout=_POLL_S)
        except queue.Empty:
            if have_ended and stopping.is_set():
                return None
            if have_ended:  # by `os._exit` in a scenario, say
                raise CampaignFailed("a worker ended with exit code 0 before its runs were done") from None
            for worker in workers:
                if worker.exitcode:
                    raise CampaignFailed(f"a worker ended with exit code {worker.exitcode}") from None
        else:
            if isinstance(ended, BaseException):
                raise ended
            return ended


def _pickled(campaign: Campaign) -> bytes:
    """What a worker is given. Raises `BadScenario` naming what of the scenario has no name in a module."""
    try:
        return pickle.dumps(campaign)
    except MISTAKES as error:
        culprit = what_stays_here(campaign.scenario) or what(error)
        raise BadScenario(
            f"scenario {campaign.scenario.name} cannot go to several processes: {culprit}. Define it in a module, "
            "under a name of its own, or run in one process"
        ) from error


def _unpickled(pickled: bytes) -> Campaign:
    try:
        campaign: Campaign = pickle.loads(pickled)  # noqa: S301 - the parent's own
    except MISTAKES as error:
        raise BadScenario(f"a worker cannot import the scenario: {told(error)}") from error
    return campaign
