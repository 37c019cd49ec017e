"""Checking the file `checkpoint` against the log. Nothing is changed."""

from __future__ import annotations

from collections.abc import Iterator

import attrs

from rmq_actors.ports.disk import Disk
from rmq_actors.store.check.check_files import FileRow
from rmq_actors.store.check.finding import CANNOT_BE_OPENED, PAST_THE_LOG, CheckContext, Finding, Severity
from rmq_actors.store.files.layout import CHECKPOINT_FILE
from rmq_actors.store.files.store_checkpoint import CHECKPOINT_BYTES, RECOVERY_POINT_POSITION, Checkpoint
from rmq_actors.wire.dispatch_request import DispatchRequest

_TIMESTAMPS_BYTES = 24


@attrs.define(eq=False, repr=False)
class CheckpointCheck:
    """What the file says. `record_offset`: where the record stands that the recovery point names, -1 for none."""

    checkpoint: Checkpoint = attrs.field(factory=Checkpoint)
    record_offset: int = -1
    _is_there: bool = False
    _record: DispatchRequest | None = None

    @classmethod
    def load(cls, disk: Disk, context: CheckContext, findings: list[Finding]) -> CheckpointCheck:
        """Read the file; what is wrong with it alone goes to `findings`."""
        if not disk.exists(CHECKPOINT_FILE):
            return cls()
        context.summary.files += 1
        try:
            file = disk.open(CHECKPOINT_FILE, read_only=True)
        except OSError as error:
            findings.append(Finding(CHECKPOINT_FILE, 0, "error", f"{CANNOT_BE_OPENED}: {error.strerror}"))
            return cls()
        data = bytes(file.map()[:CHECKPOINT_BYTES])
        size_bytes = file.size_bytes
        file.close()
        if size_bytes != CHECKPOINT_BYTES:
            # A crash may come between its creation and its first sync.
            severity: Severity = "recoverable" if not any(data) and context.recover_from is not None else "error"
            text = f"the file is {size_bytes} bytes long, a checkpoint has {CHECKPOINT_BYTES}"
            findings.append(Finding(CHECKPOINT_FILE, 0, severity, text))
        checkpoint = Checkpoint.decode(data)
        if checkpoint.recovery_point is None and any(data[_TIMESTAMPS_BYTES:]):
            text = "the recovery point is not valid (magic, version, checksum), or not this project's: it is not used"
            findings.append(Finding(CHECKPOINT_FILE, RECOVERY_POINT_POSITION, "error", text))
        point = checkpoint.recovery_point
        return cls(checkpoint, point.record_offset if point is not None and point.record_size else -1, is_there=True)

    def take(self, record: DispatchRequest) -> None:
        """Remember the record that the recovery point names."""
        self._record = record

    def finish(self, log: FileRow, log_end_offset: int, newest_ms: int, context: CheckContext) -> Iterator[Finding]:
        """What the log says of it, once it was read."""
        if not self._is_there:
            if context.summary.records:
                yield Finding(CHECKPOINT_FILE, 0, "note", "there is none: a start after a crash reads the whole log")
            return
        checkpoint = self.checkpoint
        for position, name, value in (
            (0, "physicMsgTimestamp", checkpoint.physic_msg_timestamp_ms),
            (8, "logicsMsgTimestamp", checkpoint.logics_msg_timestamp_ms),
            (16, "indexMsgTimestamp", checkpoint.index_msg_timestamp_ms),
        ):
            if value < 0:
                yield Finding(CHECKPOINT_FILE, position, "error", f"{name} {value} is no time")
            elif value > newest_ms:
                text = f"{name} {value} is later than the newest record was stored, {newest_ms}"
                yield Finding(CHECKPOINT_FILE, position, "note", text)
        yield from self._check_point(log, log_end_offset, context)

    def _check_point(self, log: FileRow, log_end_offset: int, context: CheckContext) -> Iterator[Finding]:
        point, record = self.checkpoint.recovery_point, self._record
        if point is None:
            return
        text = ""
        if log.files and point.file_size_bytes != log.file_size_bytes:
            text = f"is of a log with files of {point.file_size_bytes} bytes; these have {log.file_size_bytes}"
        elif not log.files and self.checkpoint.is_of_an_empty_log:
            return  # it began late: its file has gone, and the next one is not there yet
        elif point.offset > log_end_offset:
            text = f"{point.offset} is {PAST_THE_LOG}, {log_end_offset}: durable records are missing"
        elif log.files and point.offset < log.min_offset:
            if self.checkpoint.is_overtaken:  # by RocketMQ, which has cleaned the log since
                return
            why = "files are missing before it"
            if self.checkpoint.is_before_first_sync and context.recover_from is not None:
                why = "the next start gives the log up"
            text = f"{point.offset} is before the log's first byte, {log.min_offset}: {why}"
        elif point.offset == log.min_offset or self.record_offset in context.damaged:
            return
        elif record is None:
            text = f"{point.offset}: no record stands at {point.record_offset}, where the one that it names was"
        elif (record.msg_size, record.store_timestamp_ms) != (point.record_size, point.record_store_timestamp_ms):
            text = f"{point.offset} names another record than the one that stands at {point.record_offset}"
        if text:
            yield Finding(CHECKPOINT_FILE, RECOVERY_POINT_POSITION, "error", f"the recovery point {text}")
