"""The file `checkpoint` (StoreCheckpoint): RocketMQ's three time stamps, and, after them, this store's recovery point.

RocketMQ reads and writes the first 24 of 4,096 bytes. The recovery point stands in a sector of its own that RocketMQ
leaves alone. It stays true whatever RocketMQ does with the store meanwhile: it speaks of bytes that never change.
"""

from __future__ import annotations

import struct
import zlib

import attrs

from rmq_actors.ports.disk import BytesLike, Disk, DiskFile
from rmq_actors.store.files.layout import CHECKPOINT_FILE
from rmq_actors.wire.dispatch_request import DispatchRequest

CHECKPOINT_BYTES = 4096
RECOVERY_POINT_POSITION = 512
#: RocketMQ distrusts this much of what its time stamps say.
_TIMESTAMP_SLACK_MS = 3000
_TIMESTAMPS = struct.Struct(">qqq")
# magic version fileSize offset recordOffset recordSize recordStoreTimestamp queues indexFiles queueEnds, then their CRC
_POINT = struct.Struct(">8siqqqiqiiq")
_CRC = struct.Struct(">I")
_MAGIC = b"RMQ-RPNT"
#: As the number of queues.
REBUILDING = -1
_VERSION = 2


@attrs.frozen
class RecoveryPoint:
    """Up to `offset` the log is valid and durable, and so is every entry of the queues, index and transactions.

    `record_*` name the record that ends there, so that a point beside another log is noticed (size 0: none).
    `queues` (with an entry), `index_files` and `queue_ends` (the ends of all queues, added up) tell what there was, so
    that what somebody has removed is built again: a queue that lost anything ends earlier. While that lasts `queues`
    is `REBUILDING`, and the point speaks of the log alone.
    """

    file_size_bytes: int
    offset: int
    record_offset: int = 0
    record_size: int = 0
    record_store_timestamp_ms: int = 0
    queues: int = 0
    index_files: int = 0
    queue_ends: int = 0

    @classmethod
    def behind(cls, record: DispatchRequest, file_size_bytes: int, offset: int) -> RecoveryPoint:
        """The point at `offset`, before which `record` is the last one."""
        return cls(file_size_bytes, offset, record.commit_log_offset, record.msg_size, record.store_timestamp_ms)

    @property
    def is_rebuilding(self) -> bool:
        """Whether entries of records before `offset` are not durable yet."""
        return self.queues == REBUILDING


@attrs.frozen
class Checkpoint:
    """What the file says. Time stamps are ms since the epoch, 0 when unset."""

    physic_msg_timestamp_ms: int = 0
    logics_msg_timestamp_ms: int = 0
    index_msg_timestamp_ms: int = 0
    recovery_point: RecoveryPoint | None = None

    @property
    def min_timestamp_ms(self) -> int:
        """Records older than this are in the log and the queues for certain (StoreCheckpoint.getMinTimestamp)."""
        return max(0, min(self.physic_msg_timestamp_ms, self.logics_msg_timestamp_ms) - _TIMESTAMP_SLACK_MS)

    @property
    def min_timestamp_index_ms(self) -> int:
        """The same, of the index too (getMinTimestampIndex)."""
        return min(self.min_timestamp_ms, self.index_msg_timestamp_ms)

    @property
    def is_overtaken(self) -> bool:
        """Whether the stamps are newer than the recovery point: by RocketMQ, which leaves it alone, or a torn write."""
        point = self.recovery_point
        return point is not None and self.physic_msg_timestamp_ms > point.record_store_timestamp_ms

    @property
    def is_before_first_sync(self) -> bool:
        """Whether no record had become durable when the recovery point was written, or has since, by RocketMQ."""
        return self.recovery_point is not None and not self.recovery_point.record_size and not self.is_overtaken

    @property
    def is_of_an_empty_log(self) -> bool:
        """Whether the log had no record when the recovery point was written, and queues knew of none.

        They do where the newest file is empty and all others were removed, as RocketMQ or an operator may do.
        """
        point = self.recovery_point
        return point is not None and self.is_before_first_sync and not point.queue_ends

    def encode(self) -> bytes:
        """The file's first bytes."""
        timestamps = _TIMESTAMPS.pack(
            self.physic_msg_timestamp_ms, self.logics_msg_timestamp_ms, self.index_msg_timestamp_ms
        )
        if self.recovery_point is None:
            return timestamps
        point = _POINT.pack(_MAGIC, _VERSION, *attrs.astuple(self.recovery_point))
        return timestamps.ljust(RECOVERY_POINT_POSITION, b"\0") + point + _CRC.pack(zlib.crc32(point))

    @classmethod
    def decode(cls, data: BytesLike) -> Checkpoint:
        """What the file's bytes say; a recovery point that is none, or of another version, counts as missing."""
        data = bytes(data).ljust(CHECKPOINT_BYTES, b"\0")
        point = None
        body = data[RECOVERY_POINT_POSITION : RECOVERY_POINT_POSITION + _POINT.size]
        magic, version, *fields = _POINT.unpack(body)
        if (magic, version) == (_MAGIC, _VERSION) and _CRC.unpack_from(data, RECOVERY_POINT_POSITION + _POINT.size) == (
            zlib.crc32(body),
        ):
            point = RecoveryPoint(*fields)
        physic, logics, index = _TIMESTAMPS.unpack_from(data)
        return cls(physic, logics, index, point)


def read_checkpoint(disk: Disk) -> Checkpoint:
    """What the file says; nothing, when it is not there. Raises `OSError`."""
    if not disk.exists(CHECKPOINT_FILE):
        return Checkpoint()
    file = disk.open(CHECKPOINT_FILE, read_only=True)
    try:
        return Checkpoint.decode(file.map()[:CHECKPOINT_BYTES])
    finally:
        file.close()


@attrs.define(eq=False, repr=False)
class StoreCheckpoint:
    """The open file."""

    _disk: Disk
    _file: DiskFile
    #: What was last made durable, or found.
    checkpoint: Checkpoint
    _is_new: bool

    @classmethod
    def open(cls, disk: Disk) -> StoreCheckpoint:
        """Open the file, or create it. Raises `OSError`."""
        checkpoint = read_checkpoint(disk)
        is_new = not disk.exists(CHECKPOINT_FILE)
        file = disk.open(CHECKPOINT_FILE, allocate_bytes=CHECKPOINT_BYTES)
        try:
            if file.size_bytes != CHECKPOINT_BYTES:  # a crash came between its creation and its first sync
                file.truncate(CHECKPOINT_BYTES)
        except BaseException:
            file.close()
            raise
        return cls(disk, file, checkpoint, is_new)

    def begin_at(self, offset: int) -> DiskFile:
        """A slave's log begins at `offset`, where its master's does: nothing stands before it, so all of that is there.

        Queues have no entry then, though an empty file of one may begin with a later index: that end does not count.
        Survives a kill; a power cut only once the file, which is returned, was synced. Raises `OSError`.
        """
        point = self.checkpoint.recovery_point
        if point is not None:
            queues = REBUILDING if point.is_rebuilding else 0
            self.checkpoint = Checkpoint(recovery_point=RecoveryPoint(point.file_size_bytes, offset, queues=queues))
            self._file.write_at(0, self.checkpoint.encode())
        return self._file

    async def write(self, checkpoint: Checkpoint) -> None:
        """Replace what the file says; durable on return. Raises `OSError`: then either may be what it says."""
        self._file.write_at(0, checkpoint.encode())
        await self._file.sync()
        if self._is_new:
            await self._disk.sync_directory("")
            self._is_new = False
        self.checkpoint = checkpoint

    async def begin_rebuilding(self, point: RecoveryPoint) -> None:
        """Say that only the log is durable: entries of old records are about to be written. As `write`."""
        await self.write(attrs.evolve(self.checkpoint, recovery_point=attrs.evolve(point, queues=REBUILDING)))

    async def miss_nothing(self) -> None:
        """Say nothing of how many queues and entries there are: some are about to be removed. As `write`."""
        point = self.checkpoint.recovery_point
        if point is not None and point.queue_ends:
            point = attrs.evolve(point, queues=REBUILDING if point.is_rebuilding else 0, queue_ends=0)
            await self.write(attrs.evolve(self.checkpoint, recovery_point=point))

    def close(self) -> None:
        """Close the file."""
        self._file.close()
