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
from rmq_actors.store.check.check_config import check_config, check_names, known_topics
from rmq_actors.store.check.check_consume_queue_ext import ConsumeQueueExtCheck
from rmq_actors.store.check.check_consume_queues import ConsumeQueuesCheck
from rmq_actors.store.check.check_index import IndexCheck
from rmq_actors.store.check.check_transactions import TransactionsCheck
from rmq_actors.store.check.finding import CheckContext, CheckSummary, Finding, Progress
from rmq_actors.store.files.deleted_topics import DeletedTopics
from rmq_actors.store.files.json_file import ConfigFileDamaged
from rmq_actors.store.files.layout import ABORT_FILE
from rmq_actors.store.files.mapped_file_queue import StoreLayoutError
from rmq_actors.store.files.store_checkpoint import Checkpoint
from rmq_actors.store.lifecycle.recovery import plan_recovery
from rmq_actors.store.log.log_walk import DamagedLog
from rmq_actors.store.log.read_log import open_log
from rmq_actors.wire.dispatch_request import DELAY_LEVELS_MS, DispatchRequest

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
    findings += check_config(disk, context.summary)
    transactions = TransactionsCheck.load(disk, context, log.row.min_offset, findings)
    yield from findings
    yield from check_names(disk)
    queues = ConsumeQueuesCheck(
        disk, context, log.row, _teller_of_deleted(disk), _deleted_topics(disk), ConsumeQueueExtCheck(disk, context)
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
    yield from queues.finish(log.end_offset)
    yield from index.finish(log.end_offset)
    yield from transactions.finish()
    yield from checkpoint.finish(log.row, log.end_offset, log.newest_store_timestamp_ms, context)


def _deleted_topics(disk: Disk) -> DeletedTopics:
    """The table; an empty one where it cannot be read, which is a finding of its own."""
    try:
        return DeletedTopics.load(disk, quietly=True)
    except ConfigFileDamaged:
        return DeletedTopics.empty(disk)


def _plan(disk: Disk, context: CheckContext, checkpoint: Checkpoint) -> None:
    """From where on the next start mends, and up to where queues must have files that fit."""
    after_crash = disk.exists(ABORT_FILE)
    try:
        with open_log(disk, checkpoint) as queue:
            plan, log_min = plan_recovery(queue, checkpoint, after_crash=after_crash), queue.min_offset
    except (StoreLayoutError, DamagedLog, OSError):  # the next start refuses: it mends nothing
        return
    point = checkpoint.recovery_point
    is_rebuilding = plan.is_trusted and point is not None and point.is_rebuilding
    context.queues_to = log_min if is_rebuilding else plan.durable_to
    if not after_crash:
        return
    context.recover_from = plan.durable_to
    if plan.is_trusted:
        context.durable_to = plan.durable_to


def _teller_of_deleted(disk: Disk) -> Callable[[str], bool]:
    """What tells a topic that was deleted: topics.json has others."""
    topics = known_topics(disk)

    def is_deleted(topic: str) -> bool:
        return bool(topics) and topic not in topics and not topic.startswith(_OWN_TOPICS)

    return is_deleted
