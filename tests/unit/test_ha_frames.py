"""The HA frames against a captured stream."""

from __future__ import annotations

import struct

import pytest

from rmq_actors.wire.ha_frames import (
    MAX_BODY_BYTES,
    REPORT_BYTES,
    TRANSFER_HEADER_BYTES,
    encode_report,
    encode_transfer_header,
)
from tests.worlds.golden_capture import capture, frames, golden_log


def test_sizes() -> None:
    assert (REPORT_BYTES, TRANSFER_HEADER_BYTES, MAX_BODY_BYTES) == (8, 12, 4 * 1024 * 1024 - 12)


def test_layout_is_big_endian_without_padding() -> None:
    assert encode_report(0x0102030405060708) == bytes(range(1, 9))
    assert encode_transfer_header(0x0102030405060708, 0x090A0B0C) == bytes(range(1, 13))


@pytest.mark.parametrize("size", [1 << 31, -(1 << 31) - 1])
def test_a_size_that_is_no_int32_is_an_error(size: int) -> None:
    with pytest.raises(struct.error):
        encode_transfer_header(0, size)


def test_the_captured_stream_is_made_of_such_frames() -> None:
    seen = list(frames(capture("conn0.master_to_slave")))
    assert (len(seen), sum(1 for frame in seen if frame.body)) == (181, 175)
    for frame in seen:
        assert golden_log()[frame.offset : frame.offset + len(frame.body)] == frame.body
    again = b"".join(encode_transfer_header(frame.offset, len(frame.body)) + frame.body for frame in seen)
    assert again == capture("conn0.master_to_slave")


def test_the_captured_reports_are_such_reports() -> None:
    data = capture("conn0.slave_to_master")
    offsets = [int.from_bytes(data[at : at + 8], "big") for at in range(0, len(data), 8)]
    assert b"".join(map(encode_report, offsets)) == data
