"""A recovery on a full disk: what waits is known by its offset, and by what the log has given to its queues."""

from __future__ import annotations

import errno
from collections.abc import Sequence
from pathlib import Path

import attrs
import pytest
import trio

from rmq_actors.real_io.os_disk import OsDisk
from rmq_actors.store.config import MessageStoreConfig
from rmq_actors.store.dispatch.consume_queues import ConsumeQueues
from rmq_actors.store.dispatch.dispatch_while_room import DispatchWhileRoom
from rmq_actors.store.files.layout import COMMIT_LOG_DIRECTORY
from rmq_actors.store.files.mapped_file_queue import MappedFileQueue
from rmq_actors.store.lifecycle.recovery import redo
from rmq_actors.store.log import log_walk
from rmq_actors.store.log.commit_log import CommitLog
from rmq_actors.store.log.log_walk import LogWalk
from rmq_actors.wire.dispatch_batch import DispatchBatch
from rmq_actors.wire.dispatch_request import DispatchRequest
from rmq_actors.wire.record import Message, encode_message
from tests.worlds.queue_files import request
from tests.worlds.recording import new_tracer

SIZE = 64 * 1024
RECORDS = 120


@attrs.define
class Limited:
    """A dispatcher that has room for so many batches."""

    batches_max: int
    number: int = errno.ENOSPC
    name: str = "Limited"
    taken: int = 0
    columns: int = 0

    def dispatch(self, requests: Sequence[DispatchRequest]) -> None:
        self._take(len(requests))

    def dispatch_batch(self, batch: DispatchBatch) -> None:
        self._take(len(batch))
        self.columns += 1

    def dispatch_rows(self, requests: Sequence[DispatchRequest]) -> None:
        self.dispatch(requests)

    def drain(self) -> None: ...

    def _take(self, count: int) -> None:
        if not self.batches_max:
            raise OSError(self.number, "full")
        self.batches_max -= 1
        self.taken += count

    def recover(self, durable_to: int) -> int:
        return durable_to

    async def flush(self) -> None: ...

    def delete_expired(self, log_min_offset: int) -> int:
        return 0

    def close(self) -> None: ...


def recover(root: Path, monkeypatch: pytest.MonkeyPatch, limited: Limited) -> tuple[DispatchWhileRoom, list[int]]:
    """What a recovery makes of a log of `RECORDS` in three queues, and where each record begins."""
    log = CommitLog.open(OsDisk(root), SIZE, new_tracer())
    messages = [Message("T", b"x" * (number % 7), number % 3) for number in range(RECORDS)]
    begins = [log.append_message(encode_message(message), 1).offset for message in messages]
    log.close()
    monkeypatch.setattr(log_walk, "BATCH_RECORDS", 8)
    monkeypatch.setattr(log_walk, "COLUMNS_RECORDS_FIRST", 16)
    monkeypatch.setattr(log_walk, "COLUMNS_RECORDS_MIN", 4)
    monkeypatch.setattr(log_walk, "COLUMNS_RECORDS_MAX", 10)
    queue = MappedFileQueue(OsDisk(root), COMMIT_LOG_DIRECTORY, SIZE)
    queue.load(read_only=True)
    room = DispatchWhileRoom((limited,), ConsumeQueues(OsDisk(root / "queues"), MessageStoreConfig()))
    try:
        end = trio.run(redo, LogWalk(queue, 0, 0, after_crash=True), (room,))
    finally:
        queue.close()
    assert end.end_offset == log_end(begins)
    return room, begins


def log_end(begins: list[int]) -> int:
    return begins[-1] + 92 + (RECORDS - 1) % 7


@pytest.mark.parametrize("batches", range(15))
def test_what_waits_begins_where_the_room_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, batches: int) -> None:
    limited = Limited(batches)
    room, begins = recover(tmp_path, monkeypatch, limited)
    if limited.taken == RECORDS:
        assert room.stopped_at is None
        assert room.topic_queue_table() == {}
        return
    assert room.stopped_at == begins[limited.taken]
    assert (room.last and room.last.commit_log_offset) == (begins[limited.taken - 1] if limited.taken else None)
    # Nothing is in the queues here: what the log has given away is known from the records that wait.
    assert room.topic_queue_table() == {("T", queue_id): RECORDS // 3 for queue_id in range(3)}


def test_the_records_came_as_columns_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    limited = Limited(1000)
    recover(tmp_path, monkeypatch, limited)
    assert limited.columns > 5


@pytest.mark.parametrize("batches", [0, 1, 6])
def test_a_disk_that_fails_is_no_full_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, batches: int) -> None:
    with pytest.raises(OSError, match="full"):
        recover(tmp_path, monkeypatch, Limited(batches, errno.EIO))


def test_a_record_of_a_deleted_topic_that_waits_keeps_its_number_in_further_queues(tmp_path: Path) -> None:
    """Its own queue has begun again since; a light queue that it names has not."""
    config = MessageStoreConfig(enable_lmq=True, enable_multi_dispatch=True)
    queues = ConsumeQueues(OsDisk(tmp_path), config)
    trio.run(queues.deleted.begin, ["T"], 400, 0)
    room = DispatchWhileRoom((Limited(0),), queues)
    properties = {"INNER_MULTI_DISPATCH": "%LMQ%a", "INNER_MULTI_QUEUE_OFFSET": "6"}
    room.dispatch([request(3, 300, topic="T", properties=properties)])
    assert room.topic_queue_table() == {("%LMQ%a", 0): 7}
    queues.close()
