"""Makes the log's next file before it is needed (AllocateMappedFileService), so that no put waits for it.

The file is the log's as soon as it is created: warming it up, that is writing it full of zeros so that its blocks are
allocated, goes on while nobody needs it, and ends where the log begins to write. Without this service, or when it has
failed, the log creates its next file itself.
"""

from __future__ import annotations

import contextlib
import logging

import attrs
import trio

from rmq_actors.actors.services.channels import LatestChannel, LatestReceiver
from rmq_actors.actors.services.service import ServiceThread
from rmq_actors.ports.disk import Disk
from rmq_actors.store.config import MessageStoreConfig
from rmq_actors.store.files.layout import COMMIT_LOG_DIRECTORY, file_name
from rmq_actors.store.files.mapped_file import PreparedFile
from rmq_actors.store.files.mapped_file_queue import PAGE_BYTES
from rmq_actors.store.log.commit_log import CommitLog
from rmq_actors.store.log.flush_modes import flush_mode
from rmq_actors.tracing.events.store import LogAllocate
from rmq_actors.tracing.recorder import Tracer

_log = logging.getLogger(__name__)

_ZEROS = bytes(1024 * 1024)

ALLOCATE_REQUESTS = LatestChannel[int].declare(
    "store.allocate_requests",
    carries="where the log's next file will begin",
    sender="MessageStore",
    receiver="AllocateMappedFileService",
)


@attrs.define(eq=False, repr=False)
class AllocateMappedFileService(ServiceThread):
    """Keeps one file prepared. What it could not make is made by the log when it needs it, or refused then."""

    name = "AllocateMappedFileService"
    _config: MessageStoreConfig
    _commit_log: CommitLog
    _disk: Disk
    _tracer: Tracer
    _requests: LatestReceiver[int]

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Prepare files until asked to stop; then remove the one that was not needed."""
        try:
            await super().run(task_status=task_status)
        finally:
            self._withdraw()

    async def work(self, task_status: trio.TaskStatus[None]) -> None:
        """Prepare what is asked for."""
        task_status.started()
        async for from_offset in self._requests:
            await self._prepare(from_offset)

    async def _prepare(self, from_offset: int) -> None:
        if from_offset != self._commit_log.next_file_offset:
            return  # the log went on meanwhile; the next request is here already
        self._withdraw()
        path = f"{COMMIT_LOG_DIRECTORY}/{file_name(from_offset)}"
        size_bytes = self._commit_log.file_size_bytes
        try:
            file = self._disk.open(path, allocate_bytes=size_bytes, exclusive=True)
        except OSError as error:
            self._note_failure(from_offset, error)
            return
        prepared = PreparedFile(from_offset, file)
        self._commit_log.offer(prepared)
        self._tracer.emit(LogAllocate(offset=from_offset, status="ok"))
        if self._config.warm_maped_file_enable:
            try:
                await self._warm_up(prepared)
            except OSError as error:
                self._note_failure(from_offset, error)
                if prepared.taken:
                    # The failed sync may have been one of the log's bytes, and older kernels tell of it only once.
                    self._commit_log.note_failed_sync(error)
                else:
                    self._withdraw()  # gives the space back to the file in use

    async def _warm_up(self, prepared: PreparedFile) -> None:
        """Write the file full of zeros while it is not in use. Raises `OSError`."""
        syncs = flush_mode(self._config).syncs_while_warming_up
        sync_every = self._config.flush_least_pages_when_warm_maped_file * PAGE_BYTES
        position = synced = 0
        # The system tells each open file of a lost page: a sync here takes no error away from the log's own.
        with contextlib.closing(self._disk.open(prepared.file.path)) as file:
            while not prepared.taken and position < file.size_bytes:
                chunk = min(len(_ZEROS), file.size_bytes - position, sync_every)
                file.write_at(position, _ZEROS[:chunk])
                position += chunk
                if syncs and (position - synced >= sync_every or position == file.size_bytes):
                    synced = position
                    await file.sync()
                await trio.lowlevel.checkpoint()

    def _note_failure(self, from_offset: int, error: OSError) -> None:
        _log.warning("%s: no file prepared for offset %d: %s", self.name, from_offset, error)
        self._tracer.emit(LogAllocate(offset=from_offset, status=type(error).__name__))

    def _withdraw(self) -> None:
        """Remove the prepared file, unless the log has taken it. One that cannot be removed stays, for the log."""
        prepared = self._commit_log.prepared
        if prepared is None:
            return
        with contextlib.suppress(FileNotFoundError):
            try:
                self._disk.remove(prepared.file.path)
            except OSError as error:
                _log.warning("%s: %s stays, empty: %s", self.name, prepared.file.path, error)
                return
        self._commit_log.withdraw()
        prepared.file.close()
