"""The slave's machine: what it takes from a master, what it reports when."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmq_actors.protocols.ha_slave import (
    RECEIVE_BYTES,
    Append,
    HaSlave,
    IllegalFrame,
    MasterRefused,
    MasterSilent,
    OffsetMismatch,
    ReportStuck,
    joined,
)
from rmq_actors.wire.ha_frames import encode_report, encode_transfer_header


def slave(max_offset: int = 0, buffer_bytes: int = 64) -> HaSlave:
    return HaSlave(max_offset, 0.0, 5.0, 20.0, buffer_bytes)


def give(machine: HaSlave, data: bytes, now: float = 0.0) -> list[tuple[int, bytes]]:
    machine.free()[: len(data)] = data
    return [(append.offset, bytes(append.data)) for append in machine.received(len(data), now)]


def test_frames_become_appends_and_heartbeats_nothing() -> None:
    machine = slave()
    assert give(machine, encode_transfer_header(0, 0)) == []
    assert give(machine, encode_transfer_header(0, 3) + b"abc" + encode_transfer_header(3, 2) + b"de") == [
        (0, b"abc"),
        (3, b"de"),
    ]
    assert machine.max_offset == 5


@given(bodies=st.lists(st.binary(max_size=20), min_size=1, max_size=8), cuts=st.lists(st.integers(1, 60), max_size=20))
def test_however_the_bytes_come_the_frames_are_the_same(bodies: list[bytes], cuts: list[int]) -> None:
    """Also where a receive is one whole frame, which is taken in a way of its own."""
    machine, stream, offset = slave(buffer_bytes=64), b"", 0
    for body in bodies:
        stream += encode_transfer_header(offset, len(body)) + body
        offset += len(body)
    whole = [len(body) + 12 for body in bodies]
    for sizes in (cuts, whole):
        machine, rest, got, chunks = slave(buffer_bytes=64), stream, b"", list(sizes)
        while rest:
            size = min(chunks.pop(0) if chunks else len(rest), len(machine.free()), len(rest))
            for at, data in give(machine, rest[:size]):
                assert at == len(got), "a gap or an overlap"
                got += data
            rest = rest[size:]
        assert got == b"".join(bodies)
        assert machine.frames == len(bodies)
        assert machine.max_offset == offset


def test_an_empty_log_takes_any_beginning_once() -> None:
    machine = slave()
    assert give(machine, encode_transfer_header(4096, 3) + b"abc") == [(4096, b"abc")]
    with pytest.raises(OffsetMismatch, match="sends offset 5000, this slave's log ends at 4099"):
        give(machine, encode_transfer_header(5000, 3) + b"abc")


@pytest.mark.parametrize(
    ("log_end", "offset", "size", "error", "reason"),
    [
        (10, 9, 1, OffsetMismatch, "offset_mismatch"),
        (10, 11, 1, OffsetMismatch, "offset_mismatch"),
        (10, 0, 0, OffsetMismatch, "offset_mismatch"),
        (0, -1, 1, OffsetMismatch, "offset_mismatch"),
        (10, 10, -1, IllegalFrame, "illegal_frame"),
        (10, 10, 64 - 12 + 1, IllegalFrame, "illegal_frame"),
    ],
)
def test_what_is_refused_and_how_it_is_named(
    log_end: int, offset: int, size: int, error: type[MasterRefused], reason: str
) -> None:
    machine = slave(log_end)
    with pytest.raises(error, match=str(offset)) as caught:
        give(machine, encode_transfer_header(offset, size))
    assert caught.value.reason == reason
    assert machine.max_offset == log_end


def test_what_came_before_a_bad_frame_stands() -> None:
    machine = slave()
    machine.free()[:27] = encode_transfer_header(0, 3) + b"abc" + encode_transfer_header(9, 1)
    effects = iter(machine.received(27, 0.0))
    assert bytes(next(effects).data) == b"abc"
    with pytest.raises(OffsetMismatch):
        next(effects)
    assert machine.max_offset == 3


def test_a_bad_header_is_refused_before_its_body_came() -> None:
    machine = slave(10)
    assert give(machine, encode_transfer_header(9, 40)[:11]) == []
    with pytest.raises(OffsetMismatch):
        give(machine, encode_transfer_header(9, 40)[11:])


def test_the_buffer_always_has_room() -> None:
    machine = slave(buffer_bytes=20)
    offset = 0
    for size in (8, 1, 7, 8, 5, 8, 8):
        frame = encode_transfer_header(offset, size) + bytes(size)
        while frame:
            room = len(machine.free())
            assert room > 0
            give(machine, frame[:room])
            frame = frame[room:]
        offset += size
        assert machine.max_offset == offset


def test_reports_at_once_then_on_growth_then_as_a_heartbeat() -> None:
    machine = slave(10)
    assert machine.wake_at == float("-inf")
    assert machine.report(10, 100.0) == encode_report(10)
    assert machine.report(10, 101.0) is None
    assert machine.report(11, 101.0) == encode_report(11)
    assert machine.wake_at == 106.0
    assert machine.report(11, 105.999) is None
    assert machine.report(11, 106.0) == encode_report(11)


def test_an_empty_slave_reports_zero_at_once() -> None:
    assert slave().report(0, 100.0) == bytes(8)


def test_a_report_that_is_not_taken_is_named() -> None:
    """While it is sent nothing is read: that nothing was heard says nothing about the master."""
    machine = slave(10)
    machine.report(10, 10.0)
    with pytest.raises(ReportStuck, match="the master takes no report, and nothing was read for 20 s") as caught:
        machine.check_silence(20.0)
    assert caught.value.reason == "report_stuck"
    machine.sent()
    machine.report(11, 10.1)
    for _ in range(2):  # it was silent before
        with pytest.raises(MasterSilent, match="nothing was heard") as silent:
            machine.check_silence(20.0)
        assert silent.value.reason == "housekeeping"
        machine.sent()


def test_silence_counts_from_the_last_byte() -> None:
    machine = slave()
    machine.check_silence(19.999)
    with pytest.raises(MasterSilent, match="20 s") as caught:
        machine.check_silence(20.0)
    assert caught.value.reason == "housekeeping"
    # Part of a heartbeat is a sign of life.
    give(machine, b"\0", now=19.0)
    assert machine.silent_at == 39.0
    machine.check_silence(38.0)


def test_no_receive_is_large_and_a_large_frame_still_arrives() -> None:
    machine = HaSlave(0, 0.0, 5.0, 20.0)
    body = bytes(range(256)) * (3 * RECEIVE_BYTES // 256)
    sent, taken = encode_transfer_header(0, len(body)) + body + encode_transfer_header(len(body), 1) + b"x", []
    while sent:
        room = len(machine.free())
        assert 0 < room <= RECEIVE_BYTES
        taken += give(machine, sent[:room])
        sent = sent[room:]
    assert taken == [(0, body), (len(body), b"x")]


FILE_BYTES = 16


@st.composite
def rows_of_appends(draw: st.DrawFn) -> list[Append]:
    """Neighbours mostly, as a good master sends them; now and then a gap, or what no file could hold."""
    appends, offset = [], draw(st.integers(0, 3)) * FILE_BYTES
    for drawn in draw(st.lists(st.integers(1, FILE_BYTES + 4), max_size=20)):
        offset += draw(st.sampled_from([0, 0, 0, 5]))
        size = drawn if draw(st.integers(0, 9)) == 0 else min(drawn, FILE_BYTES - offset % FILE_BYTES)
        appends.append(Append(offset, memoryview(bytes((offset + at) % 251 for at in range(size)))))
        offset += size
    return appends


def fits(append: Append) -> bool:
    return append.offset % FILE_BYTES + len(append.data) <= FILE_BYTES


@given(rows_of_appends(), st.booleans())
def test_joined_appends_are_the_same_bytes_and_as_few_as_files_allow(appends: list[Append], ends_badly: bool) -> None:
    def effects() -> Iterator[Append]:
        yield from appends
        if ends_badly:
            raise OffsetMismatch("the next frame")

    found: list[Append] = []
    with pytest.raises(OffsetMismatch) if ends_badly else contextlib.nullcontext():
        found.extend(joined(effects(), FILE_BYTES))  # extend keeps what came before an error
    assert [(one.offset + at, byte) for one in found for at, byte in enumerate(one.data)] == [
        (one.offset + at, byte) for one in appends for at, byte in enumerate(one.data)
    ]
    odd = {(one.offset, bytes(one.data)) for one in appends if not fits(one)}
    assert {(one.offset, bytes(one.data)) for one in found if not fits(one)} == odd
    for one, following in itertools.pairwise(found):
        end = one.offset + len(one.data)
        assert end != following.offset or not end % FILE_BYTES or not (fits(one) and fits(following))
