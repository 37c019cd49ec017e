"""What the next start of a store would do, and what a person could do about the rest. Nothing is changed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Literal, NamedTuple

from rmq_actors.ports.disk import Disk
from rmq_actors.store.check.check_config import (
    ROOT_NAMES,
    is_table,
    refused_tables,
    why_of_wrong_kind,
    why_unreadable,
)
from rmq_actors.store.check.finding import Finding
from rmq_actors.store.files.exchange_file import REMEDY as NOTE_REMEDY
from rmq_actors.store.files.json_file import IS_EMPTY, IS_MISSING
from rmq_actors.store.files.layout import (
    ABORT_FILE,
    CHECKPOINT_FILE,
    COMMIT_LOG_DIRECTORY,
    CONFIG_DIRECTORY,
    CONSUME_QUEUE_DIRECTORY,
    CONSUME_QUEUE_EXT_DIRECTORY,
    CONSUMER_OFFSET_FILE,
    CUT_DIRECTORY,
    DELAY_OFFSET_FILE,
    DELETED_TOPICS_FILE,
    EXCHANGE_FILE,
    INDEX_DIRECTORY,
    SUBSCRIPTION_GROUP_FILE,
    TERM_FILE,
    TOPICS_FILE,
    TRAN_STATE_TABLE_DIRECTORY,
    parse_file_name,
)
from rmq_actors.store.files.mapped_file_queue import MappedFileQueue, StoreLayoutError
from rmq_actors.store.files.store_checkpoint import read_checkpoint
from rmq_actors.store.files.term_file import REMEDY as TERM_REMEDY
from rmq_actors.store.lifecycle.recovery import RecoveryPlan, plan_recovery
from rmq_actors.store.log.log_walk import DamagedLog, LogEnd, LogWalk
from rmq_actors.store.log.read_log import open_log
from rmq_actors.wire.dispatch_request import DELAY_LEVELS_MS

_DERIVED = (
    "if the log has all that it should, stop the broker and move"
    f" {CONSUME_QUEUE_DIRECTORY}/, {INDEX_DIRECTORY}/ and {CHECKPOINT_FILE} away:"
    " the next start makes them again from the log"
)
#: Derived files show that the log has had more than it has now: made again, they would have lost it, too.
_AFTER_THE_LOG = "see to the log first: what is made again from a log that lacks records lacks them, too"
#: What a broker that begins without a table does.
_WITHOUT: Mapping[str, str] = {
    TOPICS_FILE: "the broker has none of its topics",
    SUBSCRIPTION_GROUP_FILE: "the broker has no groups",
    CONSUMER_OFFSET_FILE: "consumers begin where their settings say",
    DELAY_OFFSET_FILE: "delayed messages come again that are still in the log",
    DELETED_TOPICS_FILE: "queues of topics come back that were deleted",
}
#: Without these, nobody misses them until a broker needs the name.
_NOT_NEEDED = (CUT_DIRECTORY, TRAN_STATE_TABLE_DIRECTORY.split("/", maxsplit=1)[0])
#: Where a setting decides whether a start needs a directory.
_NEEDED_IF = {
    CONSUME_QUEUE_EXT_DIRECTORY: ", if enableConsumeQueueExt=true",
    INDEX_DIRECTORY: ", unless messageIndexEnable=false",
}


class RepairStep(NamedTuple):
    """One step. `start`: the next start does it. `refusal`: why there is no start. `person`: what somebody could do."""

    who: Literal["start", "refusal", "person"]
    path: str
    text: str


def plan_repair(
    disk: Disk, errors: Sequence[Finding], delay_levels_ms: Sequence[int] = DELAY_LEVELS_MS
) -> Iterator[RepairStep]:
    """Steps of the next start, then advice for each of `errors`, which `check_store` has found. Raises `OSError`."""
    refusals, steps = list(_refusals(disk, errors)), list[RepairStep]()
    try:
        checkpoint = read_checkpoint(disk)
        with open_log(disk, checkpoint) as queue:
            plan = plan_recovery(queue, checkpoint, after_crash=disk.exists(ABORT_FILE))
            steps += _next_start(queue, plan, delay_levels_ms)
    except (StoreLayoutError, DamagedLog) as error:
        refusals.append((COMMIT_LOG_DIRECTORY, str(error)))
    except OSError:
        if not refusals:
            raise
    if refusals:
        steps = [
            RepairStep("refusal", path, f"the next start refuses{_NEEDED_IF.get(path, '')}: {why}")
            for path, why in refusals
        ]
    yield from steps
    wrong = [*(path for path, _ in refusals), *(finding.path for finding in errors)]
    log_is_wrong = any(path.split("/")[0] == COMMIT_LOG_DIRECTORY for path in wrong)
    derived = _AFTER_THE_LOG if log_is_wrong or any(finding.is_past_the_log for finding in errors) else _DERIVED
    for path in dict.fromkeys(finding.path for finding in errors):
        yield RepairStep("person", path, _advice(disk, path) or derived)


def _refusals(disk: Disk, errors: Sequence[Finding]) -> Iterator[tuple[str, str]]:
    """What keeps a broker from starting, but for a damaged log: the path, and why."""
    for name in ROOT_NAMES:
        why = why_of_wrong_kind(disk, name)
        if why and name not in _NOT_NEEDED:
            yield name, why
    for finding in errors:
        if "/" in finding.path and not is_table(finding.path) and finding.is_refused:
            yield finding.path, finding.text
    if not why_of_wrong_kind(disk, CONFIG_DIRECTORY):
        yield from refused_tables(disk)


def _advice(disk: Disk, path: str) -> str:
    """What a person could do about the errors of a file; "" for one that is derived from the log."""
    if path in ROOT_NAMES and why_of_wrong_kind(disk, path):
        if path == COMMIT_LOG_DIRECTORY:
            return "put the log's directory back in its place"
        return "move it away: a broker needs the name"
    directory, _, name = path.rpartition("/")
    if directory == COMMIT_LOG_DIRECTORY and parse_file_name(name) is None:
        return "move it away: it is no file of the log"
    if directory == COMMIT_LOG_DIRECTORY:
        return (
            "copy this file from a replica of the same log that has it whole; without one, `store dump FILE` prints"
            " what a file still has"
        )
    if is_table(path):
        return _advice_on_table(disk, path)
    if path == CHECKPOINT_FILE:
        return f"put back files that the log lacks; then move {CHECKPOINT_FILE} away: the log is read whole"
    return ""


def _advice_on_table(disk: Disk, path: str) -> str:
    main = path.removesuffix(".bak")
    why = why_unreadable(disk, main)
    if path != main and not why:
        return "remove it: the next change of the table writes it again"
    if main == TERM_FILE:
        return TERM_REMEDY
    if main == EXCHANGE_FILE:
        return NOTE_REMEDY
    if path != main and why in (IS_MISSING, IS_EMPTY):
        return f"put a replica's {main} in the place of that file; without one remove this one: {_WITHOUT[main]} then"
    return (
        "replace the file by its .bak, if that is right, or by a replica's; without both remove it and its .bak:"
        f" {_WITHOUT[main]} then"
    )


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
