"""What flushDiskType decides, one class per mode.

A flush mode says which service syncs the log, whether a put waits for that, and how far others see the log: only up to
what is synced, or up to the last byte. A new mode is a member of `FlushDiskType` and a class here; nobody else asks
which mode it is, except the transient store pool (`MessageStoreConfig.uses_transient_store_pool`).
"""

from __future__ import annotations

import abc
from typing import ClassVar

import attrs

from rmq_actors.actors.services.channels import Broadcast
from rmq_actors.store.config import FlushDiskType, MessageStoreConfig
from rmq_actors.store.log.commit_log import CommitLog
from rmq_actors.store.log.flush_services import FlushOutcome, FlushService
from rmq_actors.tracing.recorder import Tracer


@attrs.frozen(eq=False)
class VisibleEnd(abc.ABC):
    """The offset after the last byte of the log that others may see.

    The others are consumers, whatever is derived from the log, slaves, and the master to which this slave reports.
    Whoever follows the log subscribes to `growth` first, then asks for `offset`, then waits.
    """

    _commit_log: CommitLog
    #: Wakes its receivers when `offset` may have moved. The values say nothing more: ask for `offset`.
    growth: Broadcast[int] | Broadcast[FlushOutcome]
    #: Whether a power cut takes back nothing of what others see.
    is_durable: ClassVar[bool]

    @abc.abstractmethod
    def offset(self) -> int:
        """Where it is now."""


@attrs.frozen(eq=False)
class AppendedEnd(VisibleEnd):
    """Others see everything that the log holds, synced or not."""

    is_durable = False

    def offset(self) -> int:
        """The log's end."""
        return self._commit_log.max_offset


@attrs.frozen(eq=False)
class SyncedEnd(VisibleEnd):
    """Others see only what is synced: nobody reads what a power cut can take back (RocketMQ's #8239)."""

    is_durable = True

    def offset(self) -> int:
        """The end of what is synced."""
        return self._commit_log.flushed_where


class FlushMode(abc.ABC):
    """What one value of flushDiskType means."""

    #: Whether a put waits until its record is synced.
    puts_wait_for_sync: ClassVar[bool]
    #: Whether a file that is warmed up is synced on the way, so that the first real sync finds little to do.
    syncs_while_warming_up: ClassVar[bool]

    @abc.abstractmethod
    def flush_service(
        self, config: MessageStoreConfig, commit_log: CommitLog, outcomes: Broadcast[FlushOutcome], tracer: Tracer
    ) -> FlushService:
        """The service that syncs the log."""

    @abc.abstractmethod
    def visible_end(
        self, commit_log: CommitLog, log_end: Broadcast[int], outcomes: Broadcast[FlushOutcome]
    ) -> VisibleEnd:
        """How far others see the log."""


class SyncFlush(FlushMode):
    """SYNC_FLUSH: each put waits for a sync, and nobody sees what is not synced."""

    puts_wait_for_sync = True
    syncs_while_warming_up = True

    def flush_service(
        self, config: MessageStoreConfig, commit_log: CommitLog, outcomes: Broadcast[FlushOutcome], tracer: Tracer
    ) -> FlushService:
        """GroupCommitService: it syncs as soon as it is asked."""
        return FlushService("GroupCommitService", 0.0, commit_log, outcomes, tracer)

    def visible_end(
        self, commit_log: CommitLog, log_end: Broadcast[int], outcomes: Broadcast[FlushOutcome]
    ) -> VisibleEnd:
        """The end of what is synced."""
        return SyncedEnd(commit_log, outcomes)


class AsyncFlush(FlushMode):
    """ASYNC_FLUSH: the log is synced from time to time, and everybody sees all of it at once."""

    puts_wait_for_sync = False
    syncs_while_warming_up = False

    def flush_service(
        self, config: MessageStoreConfig, commit_log: CommitLog, outcomes: Broadcast[FlushOutcome], tracer: Tracer
    ) -> FlushService:
        """FlushRealTimeService: it syncs once per interval, if enough pages are new."""
        return FlushService(
            "FlushRealTimeService",
            config.flush_interval_commit_log_ms / 1000,
            commit_log,
            outcomes,
            tracer,
            config.flush_commit_log_least_pages,
            config.flush_commit_log_thorough_interval_ms / 1000,
        )

    def visible_end(
        self, commit_log: CommitLog, log_end: Broadcast[int], outcomes: Broadcast[FlushOutcome]
    ) -> VisibleEnd:
        """The log's end."""
        return AppendedEnd(commit_log, log_end)


_MODES: dict[FlushDiskType, FlushMode] = {
    FlushDiskType.SYNC_FLUSH: SyncFlush(),
    FlushDiskType.ASYNC_FLUSH: AsyncFlush(),
}


def flush_mode(config: MessageStoreConfig) -> FlushMode:
    """The mode that `config` asks for."""
    return _MODES[config.flush_disk_type]
