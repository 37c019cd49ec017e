"""Checking a store directory from its files alone: the log, and whether all that is derived from it agrees.

The log is read once, and everything else is followed beside it. Memory: the list of files; for each queue a few hundred
bytes, and a mapping of one file for at most 4,096 of them; four bytes for each hash slot of one index file; two numbers
for each damaged place of the log. Nothing is changed, and nothing may change meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from rmq_actors.ports.disk import Disk
from rmq_actors.store.check.check_checkpoint import CheckpointCheck
from rmq_actors.store.check.check_commit_log import CommitLogCheck
from rmq_actors.store.check.check_consume_queue_ext import ConsumeQueueExtCheck
from rmq_actors.store.check.check_consume_queues import ConsumeQueuesCheck
from rmq_actors.store.check.check_index import IndexCheck
from rmq_actors.store.check.check_transactions import TransactionsCheck
from rmq_actors.store.check.finding import CheckContext, CheckSummary, Finding, Progress
from rmq_actors.store.files.deleted_topics import DeletedTopics
from rmq_actors.store.files.json_file import ConfigFileDamaged
from rmq_actors.store.files.layout import (
    ABORT_FILE,
    CHECKPOINT_FILE,
    COMMIT_LOG_DIRECTORY,
    CONFIG_DIRECTORY,
    CONSUME_QUEUE_DIRECTORY,
    CONSUME_QUEUE_EXT_DIRECTORY,
    CUT_DIRECTORY,
    INDEX_DIRECTORY,
    LOCK_FILE,
    TRAN_STATE_TABLE_DIRECTORY,
)
from rmq_actors.store.files.mapped_file_queue import StoreLayoutError
from rmq_actors.store.files.store_checkpoint import Checkpoint
from rmq_actors.store.lifecycle.recovery import plan_recovery
from rmq_actors.store.log.read_log import open_log
from rmq_actors.wire.dispatch_request import DELAY_LEVELS_MS, DispatchRequest
from rmq_actors.wire.fastjson import FastJsonError, JsonValue, parse_fastjson

_KNOWN = {
    ABORT_FILE,
    CHECKPOINT_FILE,
    COMMIT_LOG_DIRECTORY,
    CONFIG_DIRECTORY,
    CONSUME_QUEUE_DIRECTORY,
    CONSUME_QUEUE_EXT_DIRECTORY,
    CUT_DIRECTORY,
    INDEX_DIRECTORY,
    LOCK_FILE,
    TRAN_STATE_TABLE_DIRECTORY.split("/", maxsplit=1)[0],
}
_TOPICS_FILE = f"{CONFIG_DIRECTORY}/topics.json"
#: Brokers make these topics without a line in topics.json.
_OWN_TOPICS = ("RMQ_SYS_", "SCHEDULE_TOPIC_XXXX", "%LMQ%")


def check_store(
    disk: Disk,
    summary: CheckSummary | None = None,
    *,
    delay_levels_ms: Sequence[int] = DELAY_LEVELS_MS,
    max_hash_slot_num: int | None = None,
    progress: Progress | None = None,
) -> Iterator[Finding]:
    """Everything that is wrong with a store, or worth a note; nothing for one that was stopped in order, or recovered.

    `delay_levels_ms`: messageDelayLevel. `max_hash_slot_num`: maxHashSlotNum, found out from the index when None.
    """
    findings: list[Finding] = []
    context = CheckContext(summary=summary or CheckSummary())
    checkpoint = CheckpointCheck.load(disk, context, findings)
    _plan(disk, context, checkpoint.checkpoint)
    log = CommitLogCheck.open(disk, context, progress, delay_levels_ms, findings)
    is_deleted = _check_config(disk, context, findings)
    transactions = TransactionsCheck.load(disk, context, log.row.min_offset, findings)
    yield from findings
    yield from _unknown_names(disk)
    queues = ConsumeQueuesCheck(
        disk, context, log.row, is_deleted, _deleted_topics(disk), ConsumeQueueExtCheck(disk, context)
    )
    yield from queues.load()
    index = IndexCheck(disk, context, log.row.min_offset, max_hash_slot_num)
    yield from index.load()
    for item in log.walk():
        if isinstance(item, DispatchRequest):
            if item.commit_log_offset == checkpoint.record_offset:
                checkpoint.take(item)
            if item.is_passed_over:
                queues.pass_over(item)
                continue
            yield from queues.take(item)
            yield from index.take(item)
            if transactions.has_files:
                yield from transactions.take(item)
        else:
            yield item
    yield from queues.finish()
    yield from index.finish(log.end_offset)
    yield from transactions.finish()
    yield from checkpoint.finish(log.row, log.end_offset, log.newest_store_timestamp_ms, context)


def _deleted_topics(disk: Disk) -> DeletedTopics:
    """The table; an empty one where it cannot be read, which is a finding of its own."""
    try:
        return DeletedTopics.load(disk)
    except ConfigFileDamaged:
        return DeletedTopics.empty(disk)


def _plan(disk: Disk, context: CheckContext, checkpoint: Checkpoint) -> None:
    """After a crash: from where on the next start mends."""
    if not disk.exists(ABORT_FILE):
        return
    try:
        with open_log(disk, checkpoint) as queue:
            plan = plan_recovery(queue, checkpoint, after_crash=True)
    except (StoreLayoutError, OSError):  # the next start refuses: it mends nothing
        return
    context.recover_from = plan.durable_to
    if plan.is_trusted:
        context.durable_to = plan.durable_to


def _check_config(disk: Disk, context: CheckContext, findings: list[Finding]) -> Callable[[str], bool]:
    """Parse `config/`; what is wrong there goes to `findings`. Returns what tells a deleted topic."""
    topics: frozenset[object] = frozenset()
    for name in disk.list(CONFIG_DIRECTORY):
        path = f"{CONFIG_DIRECTORY}/{name}"
        context.summary.files += 1
        if name.endswith(".tmp"):
            findings.append(Finding(path, 0, "note", "a file that was being replaced when the broker stopped"))
            continue
        if not name.removesuffix(".bak").endswith(".json"):
            findings.append(Finding(path, 0, "note", "unknown: not read"))
            continue
        try:
            value = _read_json(disk, path)
        except (FastJsonError, OSError) as error:
            text = error.strerror if isinstance(error, OSError) else str(error)
            findings.append(Finding(path, 0, "error", f"cannot be read: {text}"))
            continue
        if path == _TOPICS_FILE and isinstance(value, dict):
            table = value.get("topicConfigTable")
            topics = frozenset(table) if isinstance(table, dict) else frozenset()

    def is_deleted(topic: str) -> bool:
        return bool(topics) and topic not in topics and not topic.startswith(_OWN_TOPICS)

    return is_deleted


def _read_json(disk: Disk, path: str) -> JsonValue:
    file = disk.open(path, read_only=True)
    try:
        return parse_fastjson(file.map())
    finally:
        file.close()


def _unknown_names(disk: Disk) -> Iterator[Finding]:
    for name in disk.list(""):
        if name not in _KNOWN:
            yield Finding(name, 0, "note", "unknown: not read")
