"""`MessagePuts` over a log that stands alone: no service runs, the disk may be broken, the wall clock is set."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import attrs

from rmq_actors.actors.services.channels import LatestReceiver, LatestSender
from rmq_actors.actors.services.timer import Timer
from rmq_actors.ports.environment import Environment
from rmq_actors.store.config import MessageStoreConfig
from rmq_actors.store.dispatch.handed_rows import HandedRows
from rmq_actors.store.log.allocate_mapped_file_service import ALLOCATE_REQUESTS
from rmq_actors.store.log.commit_log import CommitLog
from rmq_actors.store.log.flush_modes import flush_mode
from rmq_actors.store.log.flush_services import COMMIT_REQUESTS, FLUSH_OUTCOMES
from rmq_actors.store.message_store import DELAYED, LOG_END
from rmq_actors.store.puts.message_puts import MessagePuts
from rmq_actors.store.puts.put_completion_service import PutCompletionService
from rmq_actors.store.running_flags import RunningFlags
from rmq_actors.store.store_stats import StoreStatsService
from rmq_actors.tracing.recorder import Recorder
from rmq_actors.wire.record import StoredMessage, check_record, decode_record
from tests.worlds.faulty_disk import FaultyDisk
from tests.worlds.recording import new_recorder
from tests.worlds.running_store import NoEntropy


@attrs.define
class SetClock:
    """A wall clock that shows what it was set to."""

    ms: int = 1_700_000_000_000

    def now_ms(self) -> int:
        return self.ms

    def utc_offset_s(self, at_ms: int) -> int:
        return 0


@attrs.define(eq=False)
class LogPuts:
    """Puts of an ASYNC_FLUSH, ASYNC_MASTER store unless `settings` say otherwise; told_*: what was told last."""

    log: CommitLog
    puts: MessagePuts
    disk: FaultyDisk
    clock: SetClock
    recorder: Recorder
    told_commits: LatestReceiver[int]
    told_files: LatestReceiver[int]

    @classmethod
    def open(cls, root: Path, file_size_bytes: int = 1000, **settings: Any) -> LogPuts:
        config = MessageStoreConfig(mapped_file_size_commit_log_bytes=file_size_bytes, **settings)
        disk, clock, recorder = FaultyDisk(root), SetClock(), new_recorder()
        tracer = recorder.tracer("node")
        log = CommitLog.open(disk, file_size_bytes, tracer)
        commits: tuple[LatestSender[int], LatestReceiver[int]] = COMMIT_REQUESTS.open()
        files: tuple[LatestSender[int], LatestReceiver[int]] = ALLOCATE_REQUESTS.open()
        outcomes = FLUSH_OUTCOMES.open()
        puts = MessagePuts(
            config,
            log,
            LOG_END.open(),
            DELAYED.open(),
            Environment(disk, clock, NoEntropy()),
            tracer,
            flush_mode(config).flush_service(config, log, outcomes, tracer),
            PutCompletionService(config, outcomes),
            RunningFlags(),
            StoreStatsService(clock, Timer()),
            commits[0],
            files[0],
            HandedRows(),
        )
        return cls(log, puts, disk, clock, recorder, commits[1], files[1])

    def messages(self) -> list[StoredMessage]:
        """Every record that may be read, in order, by nothing but the record format."""
        return read_messages(self.log)

    def emitted(self, kind: str) -> list[tuple[int | None, int | None]]:
        """Offset and size of each event of this kind."""
        return [(event.offset, event.size) for event in self.recorder.events if event.kind == kind]


def read_messages(log: CommitLog) -> list[StoredMessage]:
    """Every record of a log, in order."""
    found, offset = [], log.min_offset
    while offset < log.max_offset:
        end_of_file = min(log.max_offset, offset - offset % log.file_size_bytes + log.file_size_bytes)
        view = log.select(offset, end_of_file - offset)
        check = check_record(view, 0, offset)
        assert check.what != "invalid", check.reason
        if check.what == "message":
            found.append(decode_record(view, 0, offset, check=check))
        offset += check.size
    return found
