"""The master's machines: what to send next, and what a slave's bytes mean."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmq_actors.protocols.ha_master import (
    IllegalReport,
    OffsetGone,
    SlaveAhead,
    SlavePace,
    SlaveRefused,
    SlaveReports,
    SlaveSilent,
    SlaveStuck,
    Transfer,
    TransferCursor,
    first_offset,
)
from rmq_actors.wire.ha_frames import REPORT, encode_report


def cursor(offset: int = 0, **settings: int) -> TransferCursor:
    given_settings = {"file_size_bytes": 1000, "batch_size_bytes": 300} | settings
    return TransferCursor(offset, 0.0, heartbeat_interval_s=5.0, **given_settings)


@given(
    start=st.integers(0, 5000),
    limits=st.lists(st.integers(0, 8000), max_size=10),
    file_size=st.integers(1, 2000),
    batch=st.integers(1, 700),
    group=st.integers(1, 3000),
    frames_max=st.integers(1, 9),
)
def test_frames_cover_the_log_exactly(
    start: int, limits: list[int], file_size: int, batch: int, group: int, frames_max: int
) -> None:
    machine = cursor(
        start, file_size_bytes=file_size, batch_size_bytes=batch, group_size_bytes=group, group_frames_max=frames_max
    )
    reached, limit = start, start
    for rise in limits:
        limit = max(limit, rise)
        while frames := machine.plan(limit, 1.0):
            assert len(frames) <= frames_max
            assert sum(frame.size for frame in frames) < group + batch
            for frame in frames:
                assert frame.offset == reached, "a gap or an overlap"
                assert 0 < frame.size <= batch
                assert frame.offset // file_size == (frame.offset + frame.size - 1) // file_size, "crosses a file's end"
                reached += frame.size
            machine.sent(1.0)
        assert reached == limit == machine.next_offset


@given(
    start=st.integers(1, 3000),
    grown=st.integers(0, 700),
    reported=st.integers(0, 3000),
    caught_up=st.booleans(),
    min_offset=st.integers(0, 3000),
)
def test_at_once_goes_what_one_group_of_frames_can_hold_to_a_slave_that_has_all_else(
    start: int, grown: int, reported: int, caught_up: bool, min_offset: int
) -> None:
    machine, limit = cursor(start, batch_size_bytes=100, group_size_bytes=300), start + grown
    pace = SlavePace()
    pace.reported(start if caught_up else reported)
    frames = machine.plan_at_once(limit, pace, 9.0, min_offset=min_offset)
    if 0 < grown <= 300 and (caught_up or reported == start) and start >= min_offset:
        assert frames == cursor(start, batch_size_bytes=100, group_size_bytes=300).plan(limit, 9.0)
        assert len(frames) >= grown / 100
        assert machine.next_offset == limit
    else:
        assert frames == []
        assert machine.next_offset == start
        machine.check_taken(9.0 + 20.0)


def test_several_puts_between_two_reports_are_not_sent_at_once() -> None:
    machine, pace = cursor(500), SlavePace()
    for growths, is_planned in ((1, True), (2, False), (0, True)):
        for _ in range(growths):
            pace.grew()
        pace.reported(500)
        frames = machine.plan_at_once(600, pace, 9.0)
        assert bool(frames) is is_planned
        if frames:
            machine.take_back(frames)


def test_a_frame_ends_where_the_file_does() -> None:
    assert cursor(850).plan(1400, 0.0) == [Transfer(850, 150), Transfer(1000, 300), Transfer(1300, 100)]


def test_a_limit_below_the_cursor_sends_nothing() -> None:
    # A SYNC_FLUSH master: the slave has what this master has not synced again yet.
    machine = cursor(500)
    assert machine.plan(400, 0.0) == []
    assert machine.plan(400, 5.0) == [Transfer(500, 0)]
    assert machine.next_offset == 500


def test_heartbeats_only_when_idle() -> None:
    machine = cursor(0)
    assert machine.plan(0, 4.999) == []
    assert machine.wake_at == 5.0
    assert machine.plan(0, 5.0) == [Transfer(0, 0)]
    machine.sent(5.0)
    assert machine.wake_at == 10.0
    assert machine.plan(0, 9.0) == []
    # Data when a heartbeat is due too: the data alone, and the next heartbeat counts from it.
    assert machine.plan(100, 10.0) == [Transfer(0, 100)]
    machine.sent(10.0)
    assert machine.plan(100, 14.999) == []
    assert machine.plan(100, 15.0) == [Transfer(100, 0)]


@pytest.mark.parametrize(
    ("requested", "minimum", "last_file", "start"),
    [
        (0, 0, None, 0),
        (0, 3000, None, 3000),
        (4000, 3000, None, 4000),
        (0, 3000, 7000, 7000),
        (4000, 3000, 7000, 4000),
        # An empty log whose first file begins higher up.
        (0, 3000, 0, 3000),
    ],
)
def test_first_offset(requested: int, minimum: int, last_file: int | None, start: int) -> None:
    assert first_offset(requested, minimum, last_file) == start


def test_a_slave_that_takes_nothing_is_told_from_one_that_is_slow_or_idle() -> None:
    machine = cursor(0)
    machine.check_taken(1000.0)
    machine.plan(100, 10.0)
    machine.check_taken(29.9)
    machine.taken(29.9)
    machine.check_taken(49.8)
    with pytest.raises(SlaveStuck, match="taken nothing for 20 s") as caught:
        machine.check_taken(49.9)
    assert caught.value.reason == "transfer_stuck"
    machine.sent(49.9)
    machine.check_taken(1000.0)
    # A heartbeat can be stuck, too.
    assert machine.plan(100, 60.0) == [Transfer(100, 0)]
    with pytest.raises(SlaveStuck):
        machine.check_taken(80.0)


def receive(offset: int, *, min_offset: int = 0, max_offset: int = 1000) -> int | None:
    return SlaveReports(0.0, 20.0).receive(encode_report(offset), 0.0, min_offset=min_offset, max_offset=max_offset)


@pytest.mark.parametrize("offset", [0, 300, 1000])
def test_a_report_inside_of_the_log(offset: int) -> None:
    assert receive(offset, min_offset=300) == offset


@pytest.mark.parametrize(
    ("offset", "error", "reason", "text"),
    [
        (1001, SlaveAhead, "slave_ahead", "reports offset 1001, this master's log ends at 1000"),
        (1 << 40, SlaveAhead, "slave_ahead", "1099511627776"),
        (-1, IllegalReport, "illegal_report", "-1"),
        (-(1 << 63), IllegalReport, "illegal_report", "-9223372036854775808"),
        (299, OffsetGone, "offset_gone", "asks for offset 299, this master's log begins at 300"),
        (1, OffsetGone, "offset_gone", "begins at 300"),
    ],
)
def test_what_is_refused_and_how_it_is_named(offset: int, error: type[SlaveRefused], reason: str, text: str) -> None:
    with pytest.raises(error, match=text) as caught:
        receive(offset, min_offset=300)
    assert caught.value.reason == reason


def test_later_reports_are_checked_like_the_first() -> None:
    reports = SlaveReports(0.0, 20.0)
    assert reports.receive(encode_report(10), 0.0, min_offset=0, max_offset=1000) == 10
    with pytest.raises(SlaveAhead):
        reports.receive(encode_report(1001), 0.0, min_offset=0, max_offset=1000)


def test_a_slow_slave_may_be_below_the_minimum_once_it_was_served() -> None:
    # The master deletes old files while a slave that already has its bytes still reports low offsets.
    reports = SlaveReports(0.0, 20.0)
    reports.receive(encode_report(0), 0.0, min_offset=0, max_offset=1000)
    assert reports.receive(encode_report(200), 0.0, min_offset=300, max_offset=1000) == 200


def test_a_request_for_the_web_page_is_ahead() -> None:
    reports = SlaveReports(0.0, 20.0)
    with pytest.raises(SlaveAhead):
        reports.receive(b"GET / HTTP/1.1\r\n\r\n", 0.0, min_offset=0, max_offset=1 << 40)


def test_of_many_reports_in_one_buffer_the_newest_counts_and_the_rest_waits() -> None:
    reports = SlaveReports(0.0, 20.0)
    data = REPORT.pack(1) + REPORT.pack(2) + REPORT.pack(3)
    assert reports.receive(data[:19], 0.0, min_offset=0, max_offset=9) == 2
    assert reports.receive(memoryview(data)[19:], 0.0, min_offset=0, max_offset=9) == 3


def test_each_report_of_a_buffer_is_checked() -> None:
    """Garbage that happens to end in a possible offset is garbage."""
    reports = SlaveReports(0.0, 20.0)
    with pytest.raises(SlaveAhead, match="12"):
        reports.receive(REPORT.pack(12) + REPORT.pack(3), 0.0, min_offset=0, max_offset=9)


def test_silence_counts_from_the_last_byte_after_the_first_report() -> None:
    reports = SlaveReports(100.0, 20.0)
    reports.check_silence(119.999)
    with pytest.raises(SlaveSilent, match="20 s") as caught:
        reports.check_silence(120.0)
    assert caught.value.reason == "housekeeping"
    reports.receive(encode_report(0), 110.0, min_offset=0, max_offset=0)
    # Half a report is a sign of life.
    reports.receive(b"\0\0\0", 119.0, min_offset=0, max_offset=0)
    assert reports.silent_at == 139.0
    reports.check_silence(138.0)


def test_before_the_first_report_is_whole_its_bytes_are_as_good_as_silence() -> None:
    reports, report = SlaveReports(100.0, 20.0), encode_report(7)
    for number in range(7):
        assert reports.receive(report[number : number + 1], 101.0 + number, min_offset=0, max_offset=7) is None
        assert reports.silent_at == 120.0
    assert reports.receive(report[7:], 119.0, min_offset=0, max_offset=7) == 7
    assert reports.silent_at == 139.0


def test_a_tls_handshake_is_named() -> None:
    reports = SlaveReports(0.0, 20.0)
    with pytest.raises(SlaveAhead, match="it speaks TLS, and this master has not haTlsEnable=true"):
        reports.receive(bytes.fromhex("1603010200010001fc"), 1.0, min_offset=0, max_offset=7)
    with pytest.raises(SlaveAhead) as caught:
        SlaveReports(0.0, 20.0).receive(encode_report(8), 1.0, min_offset=0, max_offset=7)
    assert "TLS" not in str(caught.value)


def test_a_slave_that_cleaning_has_overtaken_is_refused_and_named() -> None:
    machine = cursor(400)
    assert machine.plan(500, 1.0, min_offset=400)
    with pytest.raises(OffsetGone, match="needs offset 500, this master's log begins at 1000 now"):
        machine.plan(1500, 2.0, min_offset=1000)
