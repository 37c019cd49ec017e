"""Dispatched as columns or record by record, a log gives the same files, whatever fails on the way."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import attrs
import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st

from rmq_actors.ports.disk import Disk
from rmq_actors.real_io.os_disk import OsDisk
from rmq_actors.store.config import MessageStoreConfig
from rmq_actors.store.dispatch import reput_message_service
from rmq_actors.store.dispatch.commit_log_dispatcher import CommitLogDispatcher
from rmq_actors.store.dispatch.consume_queues import ConsumeQueues
from rmq_actors.store.dispatch.index_service import IndexService
from rmq_actors.store.dispatch.reput_message_service import Reput
from rmq_actors.store.dispatch.transaction_state_service import TransactionStateService
from rmq_actors.store.files.mapped_file_queue import MappedFileQueue
from rmq_actors.store.lifecycle import recovery
from rmq_actors.store.log import log_walk
from rmq_actors.store.log.log_walk import DamagedLog, LogWalk
from rmq_actors.wire.dispatch_batch import DispatchBatch
from rmq_actors.wire.dispatch_request import DELAY_LEVELS_MS, HALF_TOPIC, DispatchRequest
from rmq_actors.wire.record import (
    TRANSACTION_COMMIT_TYPE,
    Message,
    StoredMessage,
    check_record,
    decode_record,
    encode_blank,
    encode_message,
)
from tests.worlds.faulty_disk import FaultyDisk
from tests.worlds.running_store import StillClock

FILE_BYTES = 4096
TIMESTAMP_MS = 1_700_000_000_000


@attrs.frozen
class Log:
    """As much of a `CommitLog` as dispatch asks for."""

    data: bytes
    min_offset: int = 0

    def file_at(self, offset: int) -> tuple[memoryview, int]:
        begin = offset - offset % FILE_BYTES
        return memoryview(self.data)[begin : begin + FILE_BYTES], begin

    def read_record(self, offset: int) -> StoredMessage | None:
        view, begin = self.file_at(offset)
        check = check_record(view, offset - begin, offset)
        return decode_record(view, offset - begin, offset, check=check) if check.what == "message" else None


def make_log(messages: Sequence[tuple[Message, int]]) -> Log:
    """Messages, each with how many indexes of its queue it passes over.

    None is number 0 of a queue that has messages: that lets it begin again, which is not for `Reput` to do.
    """
    data, next_index = bytearray(), dict[tuple[str, int], int]()
    for number, (message, gap) in enumerate(messages):
        record = encode_message(message)
        room = FILE_BYTES - len(data) % FILE_BYTES
        if len(record.data) + 8 > room:
            data += encode_blank(room) + bytes(room - 8)
        index = 0
        if record.takes_queue_offset:
            following = next_index.get(record.topic_queue, 0)
            index = max(min(following, 1), following + gap)
            next_index[record.topic_queue] = index + 1
        timestamp_ms = TIMESTAMP_MS + 300 * number
        record.place(queue_offset=index, physical_offset=len(data), store_timestamp_ms=timestamp_ms)
        data += record.data
    return Log(bytes(data))


COMMON = st.builds(
    lambda topic, queue_id, tag, keys: Message(
        topic, b"body" * 10, queue_id, {"UNIQ_KEY": f"{keys:>8}", "TAGS": tag, "KEYS": keys}
    ),
    st.sampled_from(["T", "U", "a/b"]),
    st.integers(0, 1),
    st.sampled_from(["TagA", "TagB"]),
    st.sampled_from(["a", "b c", "a a"]),
)
ODD = st.sampled_from(
    [
        Message("T", b"", 0, {"KEYS": "k", "UNIQ_KEY": "\u00f6"}),
        Message("T", b"", 0, {"KEYS": "k"}, born_host="[::1]:1"),
        Message("T", b"", 0, {"INNER_MULTI_DISPATCH": "%LMQ%x,y", "INNER_MULTI_QUEUE_OFFSET": "0,0"}),
        Message("SCHEDULE_TOPIC_XXXX", b"", 0, {"DELAY": "3", "KEYS": "k"}),
        Message(HALF_TOPIC, b"", 0, {"PGROUP": "g", "UNIQ_KEY": "u"}),
        Message("RMQ_SYS_TRANS_OP_HALF_TOPIC", b"0", 0, {"TAGS": "d"}),
        Message("T", b"", 0, sys_flag=TRANSACTION_COMMIT_TYPE),
    ]
)
GAPS = st.sampled_from([0] * 8 + [1, 3, -1])


@st.composite
def logs(draw: st.DrawFn) -> Log:
    """Runs of messages, mostly common ones."""
    messages: list[tuple[Message, int]] = []
    for _ in range(draw(st.integers(1, 8))):
        kinds = draw(st.lists(st.one_of(COMMON, COMMON, ODD), min_size=1, max_size=3))
        count = draw(st.integers(1, 25))
        messages += [(kinds[number % len(kinds)], draw(GAPS) if number < 2 else 0) for number in range(count)]
    return make_log(messages)


def dispatchers(disk: Disk, log: Log, config: MessageStoreConfig) -> list[CommitLogDispatcher]:
    """All there are, empty."""
    result: list[CommitLogDispatcher] = [
        ConsumeQueues(disk, config),
        IndexService(disk, config, StillClock()),
        TransactionStateService(disk, log.read_record, table_file_size_bytes=240, redo_log_file_size_bytes=200),
    ]
    for dispatcher in result:
        dispatcher.recover(0)
    return result


def dispatch_all(
    disk: Disk, log: Log, config: MessageStoreConfig, records_min: int, failed: Callable[[], None]
) -> list[CommitLogDispatcher]:
    """Dispatch to the end, as columns where `records_min` wait; what fails comes again."""
    result = dispatchers(disk, log, config)
    commit_log: Any = log
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(reput_message_service, "COLUMNS_RECORDS_FIRST", records_min)
        patch.setattr(reput_message_service, "COLUMNS_RECORDS_MIN", records_min)
        patch.setattr(reput_message_service, "COLUMNS_RECORDS_MAX", 40)
        reput = Reput(commit_log, result, DELAY_LEVELS_MS, 0, None)
        while reput.reput_from_offset < len(log.data):
            try:
                reput.dispatch_some(len(log.data))
            except OSError:
                failed()
    return result


def write_log(root: Path, data: bytes) -> MappedFileQueue:
    """The files of a log that ends with `data`, zeros after it."""
    queue = MappedFileQueue(OsDisk(root), "commitlog", FILE_BYTES)
    for begin in range(0, len(data), FILE_BYTES):
        part = data[begin : begin + FILE_BYTES]
        queue.add_file(begin).append(part, advance=FILE_BYTES)
    return queue


def walk_all(queue: MappedFileQueue, trusted_to: int, records_first: int, *, check_crc: bool) -> tuple[object, ...]:
    """What recovery finds, and what it dispatches, as columns or one by one."""
    walk = LogWalk(queue, 0, trusted_to, after_crash=True, check_crc=check_crc)
    offsets = list[int]()

    class Listener:
        """It notes what it gets."""

        def dispatch(self, requests: Sequence[DispatchRequest]) -> None:
            offsets.extend(each.commit_log_offset for each in requests)

        def dispatch_batch(self, batch: DispatchBatch) -> None:
            offsets.extend(batch.commit_log_offsets.tolist())

    listener: Any = Listener()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(log_walk, "COLUMNS_RECORDS_FIRST", records_first)
        patch.setattr(log_walk, "COLUMNS_RECORDS_MIN", 1)
        patch.setattr(log_walk, "COLUMNS_RECORDS_MAX", 10)
        patch.setattr(log_walk, "BATCH_RECORDS", 3)
        try:
            end: object = trio.run(recovery.redo, walk, [listener])
        except DamagedLog as error:
            end = str(error)
    return end, walk.last, offsets


def files(root: Path) -> dict[str, bytes]:
    return {str(path.relative_to(root)): path.read_bytes() for path in root.rglob("*") if path.is_file()}


def fail_not() -> None:
    raise AssertionError("nothing fails here")


@given(
    log=logs(),
    ext=st.booleans(),
    multi_dispatch=st.booleans(),
    units=st.sampled_from([3, 7, 1000]),
    space_bytes=st.none() | st.integers(0, 2000),
    more_bytes=st.integers(300, 2000),
)
def test_columns_give_the_files_that_single_records_give(
    tmp_path_factory: pytest.TempPathFactory,
    log: Log,
    ext: bool,
    multi_dispatch: bool,
    units: int,
    space_bytes: int | None,
    more_bytes: int,
) -> None:
    """Also with a disk that is full again and again: what it did not take comes again, in another batch."""
    root = tmp_path_factory.mktemp("files")
    config = MessageStoreConfig(
        mapped_file_size_consume_queue_bytes=20 * units,
        mapped_file_size_consume_queue_ext_bytes=600,
        enable_consume_queue_ext=ext,
        enable_multi_dispatch=multi_dispatch,
        enable_lmq=multi_dispatch,
        max_hash_slot_num=5,
        max_index_num=40,
    )
    # An extension unit whose entry finds no room is put again, after itself.
    disk = FaultyDisk(root / "columns", space_bytes=None if ext else space_bytes)

    def give_space() -> None:
        nonlocal more_bytes
        assert disk.space_bytes is not None
        disk.space_bytes += more_bytes
        more_bytes += more_bytes // 4  # what failed writes some of it again

    single = dispatch_all(OsDisk(root / "single"), log, config, 1 << 30, fail_not)
    columns = dispatch_all(disk, log, config, 1, give_space)
    assert files(root / "columns") == files(root / "single")
    first, second = single[0], columns[0]
    assert isinstance(first, ConsumeQueues)
    assert isinstance(second, ConsumeQueues)
    assert first.topic_queue_table() == second.topic_queue_table()
    assert [queue.max_physic_offset for queue in first] == [queue.max_physic_offset for queue in second]
    if space_bytes is None:
        assert (first.refused, [queue.refused for queue in first]) == (
            second.refused,
            [queue.refused for queue in second],
        )
    for dispatcher in (*single, *columns):
        dispatcher.close()


@pytest.mark.parametrize(
    ("size", "trusted_to", "check_crc"),
    [(1, 0, True), (1, 0, False), (512, 0, True), (512, 0, False), (512, 900, True), (1, 1800, True)],
)
def test_recovery_finds_the_same_end_in_columns(tmp_path: Path, size: int, trusted_to: int, check_crc: bool) -> None:
    """Wherever the disk has lost a part of it; records before `trusted_to` must be whole."""
    message = Message("Topic", b"body" * 10, 0, {"UNIQ_KEY": "u" * 20, "KEYS": "a b", "TAGS": "TagA"})
    log = make_log([(message, 0)] * 12)
    for begin in range(400, len(log.data), 9):
        data = bytearray(log.data)
        data[begin : begin + size] = bytes(len(data[begin : begin + size]))
        queue = write_log(tmp_path / f"{begin}", bytes(data))
        assert walk_all(queue, trusted_to, 0, check_crc=check_crc) == walk_all(
            queue, trusted_to, 1 << 30, check_crc=check_crc
        )
        queue.close()


@given(log=logs())
def test_recovery_dispatches_any_log_in_columns(tmp_path_factory: pytest.TempPathFactory, log: Log) -> None:
    queue = write_log(tmp_path_factory.mktemp("log"), log.data)
    assert walk_all(queue, 0, 0, check_crc=True) == walk_all(queue, 0, 1 << 30, check_crc=True)
    queue.close()
