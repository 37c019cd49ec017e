"""Rows are appended by one write, or not at all."""

from __future__ import annotations

from pathlib import Path

import pytest

from rmq_actors.protocols.put_completion import PutStatus
from rmq_actors.wire.message_rows import MessageRow
from rmq_actors.wire.record import Message, encode_host
from tests.worlds.faulty_disk import FaultyFile
from tests.worlds.log_puts import LogPuts

HOST = "127.0.0.1:10911"


def row(body: bytes, queue_id: int = 0, topic: str = "T") -> MessageRow:
    return MessageRow(topic, queue_id, 0, 0, 1, 0, memoryview(body), b"TAGS\x01a", {"TAGS": "a"}, encode_host(HOST))


def put(appended: LogPuts, *rows: MessageRow) -> list[int] | None:
    """The queue offsets that the rows took."""
    put_rows = appended.puts.put_rows(rows, HOST)
    return None if put_rows is None else list(put_rows.encoded.queue_offsets)


def make_first_file(appended: LogPuts) -> None:
    assert put(appended, row(b"")) is None, "the general door makes a file"
    appended.log._add_file(0)


@pytest.mark.trio
async def test_rows_take_the_next_places_of_their_queues(tmp_path: Path) -> None:
    appended = LogPuts.open(tmp_path)
    make_first_file(appended)
    assert put(appended, row(b"a"), row(b"b", 1), row(b"c")) == [0, 0, 1]
    assert put(appended, row(b"d", 1), row(b"e")) == [1, 2]
    assert [(each.body, each.queue_id, each.queue_offset) for each in appended.messages()] == [
        (b"a", 0, 0),
        (b"b", 1, 0),
        (b"c", 0, 1),
        (b"d", 1, 1),
        (b"e", 0, 2),
    ]


@pytest.mark.trio
async def test_a_failed_write_leaves_nothing_of_any_row(tmp_path: Path) -> None:
    appended = LogPuts.open(tmp_path)
    make_first_file(appended)
    assert put(appended, row(b"a")) == [0]
    end, write_at = appended.log.max_offset, FaultyFile.write_at

    def torn(file: FaultyFile, offset: int, data: bytes) -> None:
        write_at(file, offset, data[:150])
        if any(data):
            raise OSError(28, "No space left on device")
        write_at(file, offset, data)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(FaultyFile, "write_at", torn)
        assert put(appended, row(b"b"), row(b"c")) is None
    assert appended.log.max_offset == end
    view, _ = appended.log.file_at(0)
    assert not any(view[end:])
    assert put(appended, row(b"d"), row(b"e")) == [1, 2]
    assert [each.body for each in appended.messages()] == [b"a", b"d", b"e"]


@pytest.mark.trio
async def test_what_a_failed_write_leaves_goes_before_anything_is_written(tmp_path: Path) -> None:
    """Else the second row would stand, whole, after a record of the first one's size: a recovery would find it."""
    appended = LogPuts.open(tmp_path)
    make_first_file(appended)
    assert put(appended, row(b"a")) == [0]
    end, write_at = appended.log.max_offset, FaultyFile.write_at

    def broken(file: FaultyFile, offset: int, data: bytes) -> None:
        if any(data):
            write_at(file, offset, data)
        raise OSError(5, "Input/output error")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(FaultyFile, "write_at", broken)
        assert put(appended, row(b"b"), row(b"c")) is None
    view, _ = appended.log.file_at(0)
    assert any(view[end:])

    def no_zeros(file: FaultyFile, offset: int, data: bytes) -> None:
        if not any(data):
            raise OSError(5, "Input/output error")
        write_at(file, offset, data)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(FaultyFile, "write_at", no_zeros)
        assert put(appended, row(b"d")) is None
        refused = appended.puts.async_put_message(Message("T", b"d"))
        assert refused.result is not None
        assert refused.result.status is PutStatus.CREATE_MAPPED_FILE_FAILED
    assert appended.log.max_offset == end
    assert put(appended, row(b"d")) == [1]
    assert not any(view[appended.log.max_offset :])
    assert [each.body for each in appended.messages()] == [b"a", b"d"]


@pytest.mark.trio
async def test_rows_end_before_one_that_is_special(tmp_path: Path) -> None:
    appended = LogPuts.open(tmp_path, max_message_size_bytes=100)
    make_first_file(appended)
    assert put(appended, row(b"a"), row(b"x" * 101), row(b"c")) == [0]
    assert put(appended, row(b"x" * 101)) is None
    assert put(appended, row(b"a"), row(b"b", topic="a/b")) is None
    # What does not fit into the file is left, and needs the next one.
    assert put(appended, *(row(b"x" * 90) for _ in range(9))) == [1, 2, 3, 4]
