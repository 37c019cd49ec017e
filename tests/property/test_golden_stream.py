"""The bytes that a 4.9.7 pair exchanged, cut at any place: the machines come to the same end."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmq_actors.protocols.ha_master import SlaveReports
from rmq_actors.protocols.ha_slave import HaSlave
from rmq_actors.real_io.os_disk import OsDisk
from rmq_actors.store.log.commit_log import CommitLog
from rmq_actors.wire.ha_frames import MAX_BODY_BYTES, SLAVE_BUFFER_BYTES, encode_report, encode_transfer_header
from tests.worlds.golden_capture import (
    END_OFFSET,
    FILE_SIZE_BYTES,
    STORE_SLAVE_CLEAN,
    capture,
    frames,
    golden_log,
)
from tests.worlds.recording import new_tracer

CONN0, CONN1 = "conn0.master_to_slave", "conn1.master_to_slave"
#: The largest frame of the capture and its header: the smallest buffer that can hold each of them.
SMALL_BUFFER_BYTES = 32 * 1024 + 12


def pieces(data: bytes, cuts: Iterable[int]) -> Iterator[bytes]:
    """`data` cut at the given positions; those outside of it do nothing."""
    begin = 0
    for cut in [*sorted(cut for cut in cuts if 0 < cut < len(data)), len(data)]:
        if cut > begin:
            yield data[begin:cut]
            begin = cut


def feed(slave: HaSlave, data: bytes) -> Iterator[tuple[int, bytes]]:
    """Hand `data` to the machine as a socket would: never more than it has room for."""
    while data:
        free = slave.free()
        assert len(free) > 0
        size = min(len(free), len(data))
        free[:size] = data[:size]
        data = data[size:]
        for append in slave.received(size, 0.0):
            yield append.offset, bytes(append.data)


def replicate(streams: Sequence[Iterable[bytes]], buffer_bytes: int = SLAVE_BUFFER_BYTES) -> bytes:
    """A log fed by one new machine a stream; each append must continue it."""
    log = bytearray()
    for stream in streams:
        slave = HaSlave(len(log), 0.0, 5.0, 20.0, buffer_bytes)
        for piece in stream:
            for offset, data in feed(slave, piece):
                assert offset == len(log)
                log += data
        assert slave.max_offset == len(log)
    return bytes(log)


def cuts_of(data: bytes) -> st.SearchStrategy[list[int]]:
    return st.lists(st.integers(1, len(data) - 1), max_size=40)


@given(cuts_of(capture(CONN0)), cuts_of(capture(CONN1)), st.sampled_from((SLAVE_BUFFER_BYTES, SMALL_BUFFER_BYTES)))
def test_any_split_rebuilds_the_golden_log(cuts0: list[int], cuts1: list[int], buffer_bytes: int) -> None:
    streams = [pieces(capture(CONN0), cuts0), pieces(capture(CONN1), cuts1)]
    assert replicate(streams, buffer_bytes) == golden_log()


@given(st.integers(1, 70_000), st.integers(1, 2_000))
def test_equal_pieces_rebuild_the_golden_log(size0: int, size1: int) -> None:
    data0, data1 = capture(CONN0), capture(CONN1)
    # Small pieces of the long stream are many; some thousand are enough.
    size0 = max(size0, 64)
    streams = [pieces(data0, range(size0, len(data0), size0)), pieces(data1, range(size1, len(data1), size1))]
    assert replicate(streams, SMALL_BUFFER_BYTES) == golden_log()


def test_the_short_connection_cut_at_every_single_byte() -> None:
    data0, data1 = capture(CONN0), capture(CONN1)
    head = replicate([[data0]])
    assert golden_log().startswith(head)
    for cut in range(len(data1) + 1):
        slave = HaSlave(len(head), 0.0, 5.0, 20.0)
        tail = b"".join(data for piece in pieces(data1, [cut]) for _, data in feed(slave, piece))
        assert head + tail == golden_log(), cut


def test_both_connections_a_byte_at_a_time() -> None:
    data1 = capture(CONN1)
    short0 = b"".join(data for _, data in feed(HaSlave(0, 0.0, 5.0, 20.0), capture(CONN0)))
    slave = HaSlave(len(short0), 0.0, 5.0, 20.0)
    tail = b"".join(data for byte in data1 for _, data in feed(slave, bytes((byte,))))
    assert short0 + tail == golden_log()


def short_stream() -> tuple[bytes, bytes]:
    """A heartbeat, a frame, a heartbeat, a frame, a frame: every boundary there is, in 80 bytes."""
    log = bytes(range(1, 21))
    parts = [
        encode_transfer_header(0, 0),
        encode_transfer_header(0, 7) + log[:7],
        encode_transfer_header(7, 0),
        encode_transfer_header(7, 12) + log[7:19],
        encode_transfer_header(19, 1) + log[19:],
    ]
    return b"".join(parts), log


def test_partial_headers_and_bodies_at_every_pair_of_cuts() -> None:
    stream, log = short_stream()
    assert len(stream) == 80
    for cuts in itertools.combinations(range(1, len(stream)), 2):
        assert replicate([pieces(stream, cuts)], buffer_bytes=24) == log, cuts


def test_a_connection_that_breaks_at_any_byte_leaves_nothing_to_the_next() -> None:
    data1 = capture(CONN1)
    head = replicate([[capture(CONN0)]])
    whole = {frame.position: frame for frame in frames(data1)}
    for cut in range(len(data1)):
        first = HaSlave(len(head), 0.0, 5.0, 20.0)
        log = head + b"".join(data for _, data in feed(first, data1[:cut]))
        assert len(log) == first.max_offset
        # The master serves the next connection from what the new machine reports: the frame that was cut comes whole.
        resume = next(at for at, frame in whole.items() if frame.offset == len(log))
        second = HaSlave(len(log), 0.0, 5.0, 20.0)
        assert log + b"".join(data for _, data in feed(second, data1[resume:])) == golden_log(), cut


def test_the_commit_log_takes_the_captured_frames(tmp_path: Path) -> None:
    log = CommitLog.open(OsDisk(tmp_path), FILE_SIZE_BYTES, new_tracer())
    for name in (CONN0, CONN1):
        for offset, data in feed(HaSlave(log.max_offset, 0.0, 5.0, 20.0), capture(name)):
            log.append_data(offset, data)
    assert log.max_offset == END_OFFSET
    log.close()
    for file in sorted((STORE_SLAVE_CLEAN / "commitlog").iterdir()):
        assert (tmp_path / "commitlog" / file.name).read_bytes() == file.read_bytes()


def reports_of(stream: Iterable[bytes]) -> list[int]:
    reports = SlaveReports(0.0, 20.0)
    seen = [reports.receive(piece, 0.0, min_offset=0, max_offset=END_OFFSET) for piece in stream]
    return [offset for offset in seen if offset is not None]


@pytest.mark.parametrize("name", ["conn0.slave_to_master", "conn1.slave_to_master"])
def test_reports_a_byte_at_a_time_are_all_reports(name: str) -> None:
    data = capture(name)
    singles = reports_of(bytes((byte,)) for byte in data)
    assert singles == [int.from_bytes(data[at : at + 8], "big") for at in range(0, len(data), 8)]
    assert singles == sorted(singles)


@pytest.mark.parametrize(("name", "last"), [("conn0.slave_to_master", 379106), ("conn1.slave_to_master", END_OFFSET)])
@given(data=st.data())
def test_any_split_of_the_reports_ends_at_the_same_one(name: str, last: int, data: st.DataObject) -> None:
    stream = capture(name)
    seen = reports_of(pieces(stream, data.draw(cuts_of(stream))))
    assert seen[-1] == last
    assert seen == sorted(seen)


def test_a_partial_report_at_every_pair_of_cuts() -> None:
    stream = encode_report(0x0102_0304_0506_0708) + encode_report(0x1112_1314_1516_1718) + encode_report(1 << 62)
    for cuts in itertools.combinations(range(1, len(stream)), 2):
        reports = SlaveReports(0.0, 20.0)
        whole = 0
        for piece in pieces(stream, cuts):
            before, whole = whole // 8, whole + len(piece)
            offset = reports.receive(piece, 0.0, min_offset=0, max_offset=1 << 62)
            expected = (
                int.from_bytes(stream[whole // 8 * 8 - 8 : whole // 8 * 8], "big") if whole // 8 > before else None
            )
            assert offset == expected, cuts


def test_the_largest_frame_of_4_9_fits_the_buffer() -> None:
    body = bytes(MAX_BODY_BYTES)
    slave = HaSlave(0, 0.0, 5.0, 20.0)
    assert [(offset, len(data)) for offset, data in feed(slave, encode_transfer_header(0, len(body)) + body)] == [
        (0, MAX_BODY_BYTES)
    ]
