"""The three steps of `rmq-actors demo`, and what it prints about them."""

from __future__ import annotations

import importlib.resources
import random
import shutil
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import attrs
import trio
import typer
from rich.console import Console
from rich.table import Table

from rmq_actors.actors.restart import first_leaf
from rmq_actors.analysis.report import report
from rmq_actors.cli import interrupts
from rmq_actors.cli.failures import replay_command
from rmq_actors.cli.progress import progress_bar
from rmq_actors.embedding.cluster import RealCluster, log_sha256, open_cluster
from rmq_actors.embedding.real_recorder import real_recorder
from rmq_actors.protocols.put_completion import PutStatus
from rmq_actors.real_io.os_disk import OsDisk
from rmq_actors.store.check.check_store import check_store
from rmq_actors.store.config import BrokerRole, MessageStoreConfig
from rmq_actors.testing.bug_hunt import Caught, Hunt, hunt_bug
from rmq_actors.testing.campaign import Campaign, RunSummary, run_campaign, write_trace
from rmq_actors.testing.case_file import CaseFile
from rmq_actors.testing.observation import OBSERVABLE, RARELY_OBSERVED
from rmq_actors.testing.planted_bugs import PLANTED_BUGS
from rmq_actors.testing.scenarios import REPLICATION
from rmq_actors.tracing.event import RunInfo
from rmq_actors.tracing.events.run import RunEnd, RunStart
from rmq_actors.tracing.recorder import Recorder
from rmq_actors.tracing.spool import TraceWriter
from rmq_actors.wire.record import Message

_GOLDEN_STORE = "golden/store_master_clean"
#: The file size with which RocketMQ wrote it.
_GOLDEN_CONFIG = MessageStoreConfig(
    broker_role=BrokerRole.SYNC_MASTER,
    mapped_file_size_commit_log_bytes=256 * 1024,
    mapped_file_size_consume_queue_bytes=2000,
    max_hash_slot_num=500,
    max_index_num=2000,
)
_WRITERS = 8
_PUTS_PER_WRITER = 300
PLANTED_BUG = "stale_frame"
_CAMPAIGN = "demo"


class DemoFailed(Exception):
    """A step did not show what it should."""


@attrs.frozen
class Replicated:
    """What step 1 showed."""

    golden_bytes: int
    messages: int
    size_bytes: int
    files_rolled: int
    sha256_master: str
    sha256_slave: str
    seconds: float

    @property
    def identical(self) -> bool:
        """Whether both logs are the same bytes."""
        return self.sha256_master == self.sha256_slave


def copy_golden_store(target: Path) -> None:
    """Put a copy of the store that RocketMQ 4.9.7 wrote at `target`."""
    source = importlib.resources.files("rmq_actors.testing").joinpath(_GOLDEN_STORE)
    with importlib.resources.as_file(source) as path:
        shutil.copytree(path, target)


async def _replicate(directory: Path, recorder: Recorder, on_put: Callable[[], object]) -> Replicated:
    began = time.monotonic()
    copy_golden_store(directory / "master")
    file_size = _GOLDEN_CONFIG.mapped_file_size_commit_log_bytes
    async with open_cluster(directory, slaves=1, store=_GOLDEN_CONFIG, recorder=recorder) as cluster:
        await cluster.wait_until_replicated()
        log, slave_log = cluster.master.store.commit_log, cluster.slaves[0].store.commit_log
        before = log.max_offset
        async with trio.open_nursery() as nursery:
            for writer in range(_WRITERS):
                nursery.start_soon(_write, cluster, writer, on_put)
        await cluster.wait_until_replicated()
        return Replicated(
            golden_bytes=before,
            messages=_WRITERS * _PUTS_PER_WRITER,
            size_bytes=log.max_offset - log.min_offset,
            files_rolled=log.max_offset // file_size - before // file_size,
            sha256_master=log_sha256(log),
            sha256_slave=log_sha256(slave_log),
            seconds=time.monotonic() - began,
        )


async def _write(cluster: RealCluster, writer: int, on_put: Callable[[], object]) -> None:
    for number in range(_PUTS_PER_WRITER):
        body = f"message {number} of writer {writer} ".encode() * (1 + number % 20)
        result = await cluster.master.put_message(Message("Demo", body, writer, {"KEYS": f"{writer}-{number}"}))
        if result.status is not PutStatus.PUT_OK:
            raise DemoFailed(f"put {number} of writer {writer} was answered {result.status.value} {result.reason}")
        on_put()


def replicate(out: Path, console: Console) -> Replicated:
    """Step 1: real files, real sockets. Raises `DemoFailed`."""
    info = RunInfo(_CAMPAIGN, "cluster", 0, source="broker")
    recorder = real_recorder(info)
    with TraceWriter(out / "traces", info.campaign, info.scenario) as writer, progress_bar(console) as progress:
        run = writer.open_run(info)
        recorder.subscribe(run)
        recorder.record(RunStart(), actor="demo")
        task = progress.add_task("replicate: sync puts", total=_WRITERS * _PUTS_PER_WRITER)
        try:
            done = trio.run(_replicate, out / "store", recorder, lambda: progress.advance(task))
        except* DemoFailed as group:
            raise first_leaf(group) from None
        outcome = "passed" if done.identical else "invariant"
        recorder.record(RunEnd(status=outcome), actor="demo")
        run.end(outcome)
    if not done.identical:
        raise DemoFailed(f"the logs differ: SHA-256 {done.sha256_master} and {done.sha256_slave}")
    if not done.files_rolled:
        raise DemoFailed("no commit-log file was rolled")
    for name in ("master", "slave-1"):
        wrong = next(check_store(OsDisk(out / "store" / name)), None)
        if wrong is not None:
            raise DemoFailed(f"store check finds something wrong with the {name}'s store: {wrong}")
    return done


def break_it(out: Path, runs: int, jobs: int, console: Console) -> list[RunSummary]:
    """Step 2a: `runs` seeded chaos runs. Raises `DemoFailed` if one fails, or a kind of fault was not met."""
    with interrupts.held_back() as stopped, progress_bar(console) as progress:
        task = progress.add_task("chaos: a master, two slaves", total=runs)
        campaign = Campaign(range(runs), name=_CAMPAIGN, jobs=jobs, out=out)
        summaries = run_campaign(campaign, lambda _: progress.advance(task), stopped)
        if stopped():
            raise KeyboardInterrupt
    for summary in summaries:
        if summary.outcome != "passed":
            raise DemoFailed(f"seed {summary.seed}: {summary.outcome}: {summary.failure}")
    observed = Counter(kind for summary in summaries for kind in summary.observed)
    missing = [kind for kind in OBSERVABLE if not observed[kind] and kind not in RARELY_OBSERVED]
    if missing:
        raise DemoFailed(f"no run observed: {', '.join(missing)}")
    return summaries


def find_bug(out: Path, console: Console) -> tuple[Caught, Path]:
    """Step 2b: from a random start, find the planted bug and make its schedule small. Raises `DemoFailed`."""
    hunt = Hunt(PLANTED_BUG, start=random.SystemRandom().randrange(10**9))
    with interrupts.held_back() as stopped, progress_bar(console) as progress:
        task = progress.add_task("", total=None)

        def show(phase: str, runs: int) -> None:
            if stopped():
                raise KeyboardInterrupt
            progress.update(task, description=f"planted bug: {phase}, runs", completed=runs)

        caught = hunt_bug(hunt, show)
    if caught is None:
        raise DemoFailed(f"the planted bug {hunt.planted_bug} was not found in {hunt.time_max_s:g} s from {hunt.start}")
    path = out / "failures" / f"{hunt.planted_bug}.json"
    CaseFile(REPLICATION.name, caught.result.case, caught.result.outcome, caught.result.failure).save(path)
    with TraceWriter(out / "traces", "hunt", REPLICATION.name) as writer:
        write_trace(writer, caught.result)
    return caught, path


def demo_facts(done: Replicated, caught: Caught, path: Path) -> dict[str, object]:
    """What the report says beyond what the traces know: `demo.json`."""
    bug = PLANTED_BUGS[PLANTED_BUG]
    return {
        "replication": {
            "messages": done.messages,
            "bytes": done.size_bytes,
            "files_rolled": done.files_rolled,
            "sha256_master": done.sha256_master,
            "sha256_slave": done.sha256_slave,
            "identical": done.identical,
        },
        "planted_bug": {
            "name": bug.name,
            "description": bug.description,
            "runs_to_find": caught.runs,
            "seconds": round(caught.search_s, 2),
            "original_faults": len(caught.first.schedule),
            "shrunk_schedule": caught.result.case.schedule.to_list(),
            "replay_command": replay_command(path),
            "failure": caught.result.failure,
        },
    }


def print_summary(console: Console, done: Replicated, summaries: list[RunSummary], caught: Caught) -> None:
    """Print what the three steps showed, in a few lines."""
    table = Table("step", "result", box=None, header_style="bold", title_justify="left")
    table.add_row("replicated", f"{done.golden_bytes} bytes that RocketMQ 4.9.7 wrote, then {done.messages} sync puts")
    table.add_row(
        "", f"{done.size_bytes} bytes on both sides, {done.files_rolled} files rolled, in {done.seconds:.1f} s"
    )
    table.add_row("SHA-256", f"{done.sha256_master[:32]}... on master and slave")
    acked, checks = sum(run.acked for run in summaries), sum(run.checks for run in summaries)
    table.add_row("chaos runs", f"{len(summaries)} passed: {acked} puts acknowledged, {checks} checks of invariants")
    observed = Counter(kind for summary in summaries for kind in summary.observed)
    table.add_row("met faults", ", ".join(f"{kind} {observed[kind]}" for kind in OBSERVABLE))
    small, first = len(caught.result.case.schedule), len(caught.first.schedule)
    table.add_row("planted bug", f"found in run {caught.runs} ({caught.search_s:.1f} s), {first} faults made {small}")
    console.print(table)


def clear(out: Path) -> None:
    """Remove what an earlier demo left, and nothing else. Raises `typer.BadParameter` for any other store."""
    if (out / "store").exists() and not (out / "traces" / "v1" / f"campaign={_CAMPAIGN}").is_dir():
        raise typer.BadParameter(f"{out / 'store'} is no demo's: choose another directory", param_hint="--out")
    for name in ("store", "traces", "failures", "tables"):
        shutil.rmtree(out / name, ignore_errors=True)
    for name in ("demo.json", "report.html"):
        (out / name).unlink(missing_ok=True)


def analyse(out: Path, console: Console) -> Path:
    """Step 3: the Spark job over both traces, and the page. Raises `TraceSourceError`, `TraceCheckFailed`."""
    with progress_bar(console) as progress:
        task = progress.add_task("analyse", total=None)

        def show(what: str, done: int, total: int) -> None:
            progress.update(task, description=f"analyse in Spark: {what}", completed=done, total=total)

        _, page = report(str(out / "traces"), str(out), demo_json=out / "demo.json", progress=show)
    return page
