"""What the next start of a store would do, and what a person could do about the rest. Nothing is changed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Literal, NamedTuple

from rmq_actors.ports.disk import Disk
from rmq_actors.store.check.check_config import why_no_start
from rmq_actors.store.check.finding import Finding
from rmq_actors.store.files.exchange_file import REMEDY as NOTE_REMEDY
from rmq_actors.store.files.layout import (
    ABORT_FILE,
    CHECKPOINT_FILE,
    COMMIT_LOG_DIRECTORY,
    CONFIG_DIRECTORY,
    CONSUME_QUEUE_DIRECTORY,
    CUT_DIRECTORY,
    EXCHANGE_FILE,
    INDEX_DIRECTORY,
    LOCK_FILE,
    TERM_FILE,
)
from rmq_actors.store.files.mapped_file_queue import MappedFileQueue, StoreLayoutError
from rmq_actors.store.files.store_checkpoint import read_checkpoint
from rmq_actors.store.files.term_file import REMEDY as TERM_REMEDY
from rmq_actors.store.lifecycle.recovery import RecoveryPlan, plan_recovery
from rmq_actors.store.log.log_walk import DamagedLog, LogEnd, LogWalk
from rmq_actors.store.log.read_log import open_log
from rmq_actors.wire.dispatch_request import DELAY_LEVELS_MS

_DERIVED = (
    f"stop the broker and move {CONSUME_QUEUE_DIRECTORY}/, {INDEX_DIRECTORY}/ and {CHECKPOINT_FILE} away: "
    "the next start makes them again from the log"
)
_ADVICE = (
    (
        f"{COMMIT_LOG_DIRECTORY}/",
        "copy this file from a replica of the same log that has it whole; without one, `store dump` prints the rest",
    ),
    (TERM_FILE, TERM_REMEDY),
    (EXCHANGE_FILE, NOTE_REMEDY),
    (
        f"{CONFIG_DIRECTORY}/",
        "replace the file by its .bak or by a replica's; without both, remove it: the broker begins with an empty one",
    ),
    *(
        (name, "move it away: a broker needs the name")
        for name in (CONFIG_DIRECTORY, COMMIT_LOG_DIRECTORY, ABORT_FILE, LOCK_FILE)
    ),
    (CHECKPOINT_FILE, f"put back files that the log lacks; then move {CHECKPOINT_FILE} away: the log is read whole"),
)


class RepairStep(NamedTuple):
    """One step. `start`: the next start does it. `refusal`: why there is no start. `person`: what somebody could do."""

    who: Literal["start", "refusal", "person"]
    path: str
    text: str


def plan_repair(
    disk: Disk, errors: Sequence[Finding], delay_levels_ms: Sequence[int] = DELAY_LEVELS_MS
) -> Iterator[RepairStep]:
    """Steps of the next start, then advice for each of `errors`, which `check_store` has found. Raises `OSError`."""
    for path, why in why_no_start(disk):
        yield RepairStep("refusal", path, f"the next start refuses: {why}")
    checkpoint = read_checkpoint(disk)
    try:
        with open_log(disk, checkpoint) as queue:
            plan = plan_recovery(queue, checkpoint, after_crash=disk.exists(ABORT_FILE))
            yield from _next_start(queue, plan, delay_levels_ms)
    except (StoreLayoutError, DamagedLog) as error:
        yield RepairStep("refusal", COMMIT_LOG_DIRECTORY, f"the next start refuses: {error}")
    for path in dict.fromkeys(finding.path for finding in errors):
        yield RepairStep("person", path, next((text for prefix, text in _ADVICE if path.startswith(prefix)), _DERIVED))


def _next_start(queue: MappedFileQueue, plan: RecoveryPlan, delay_levels_ms: Sequence[int]) -> Iterator[RepairStep]:
    yield RepairStep("start", CHECKPOINT_FILE, f"{plan.reason}; the log is read from offset {plan.read_from}")
    if plan.drops_log:
        yield RepairStep("start", COMMIT_LOG_DIRECTORY, f"all {len(queue.files)} files of the log are removed")
        return
    end = _walk(queue, plan, delay_levels_ms)
    yield RepairStep("start", COMMIT_LOG_DIRECTORY, f"the log ends at offset {end.end_offset}")
    if end.cut_bytes:
        text = f"{end.cut_bytes} bytes past the log's end are made zeros: {end.reason}"
        yield RepairStep("start", COMMIT_LOG_DIRECTORY, text)
    if end.survivor is not None:
        text = (
            f"they hold whole records, the first at {end.survivor}: all of them are copied to {CUT_DIRECTORY}/ before"
        )
        yield RepairStep("start", CUT_DIRECTORY, text)
    redo_from = end.end_offset if plan.durable_to is None else plan.durable_to
    for directory in (CONSUME_QUEUE_DIRECTORY, INDEX_DIRECTORY):
        text = f"entries of records from offset {redo_from} on are dropped and dispatched again, to {end.end_offset}"
        if redo_from == end.end_offset:
            text = f"entries of records after offset {redo_from} are dropped"
        yield RepairStep("start", directory, f"{text}; from an earlier one, if files are missing")


def _walk(queue: MappedFileQueue, plan: RecoveryPlan, delay_levels_ms: Sequence[int]) -> LogEnd:
    walk = LogWalk(queue, plan.read_from, plan.read_from, plan.after_crash, delay_levels_ms)
    for _ in walk.batches():
        pass
    return walk.found_end
