"""What a slave without a log takes for the beginning of its master's."""

from __future__ import annotations

import re

import attrs
import pytest
import trio

from rmq_actors.ha.first_record import first_record
from rmq_actors.ha.master_record_lookup import LookupFailed
from rmq_actors.wire.record import Message, encode_blank, encode_message

BEGIN, END = 4096, 10**6


def record(offset: int) -> bytes:
    encoded = encode_message(Message("TopicTest", b"body"))
    encoded.place(queue_offset=0, physical_offset=offset, store_timestamp_ms=0)
    return bytes(encoded.data)


@attrs.frozen
class Told:
    """A master that tells this range, and has these bytes where it begins."""

    log_range_told: tuple[int, int] | None = (BEGIN, END)
    bytes_there: bytes | None = None
    asked: list[int] = attrs.field(factory=list)

    async def log_range(self) -> tuple[int, int] | None:
        return self.log_range_told

    async def min_offset(self) -> int | None:
        return BEGIN

    async def record_at(self, offset: int) -> bytes | None:
        self.asked.append(offset)
        return self.bytes_there


@pytest.mark.parametrize("told", [None, (-1, 0), (0, 0), (4096, 4096), (4096, 0)])
def test_without_a_record_none_is_asked_for(told: tuple[int, int] | None) -> None:
    master = Told(told)
    assert trio.run(first_record, master) is None
    assert master.asked == []


def test_the_record_is_taken_as_it_is() -> None:
    whole = record(BEGIN)
    assert trio.run(first_record, Told(bytes_there=whole)) == (BEGIN, whole)
    # Its body may be damaged: so it is at the master.
    damaged = whole.replace(b"body", b"bodY")
    assert trio.run(first_record, Told(bytes_there=damaged)) == (BEGIN, damaged)


@pytest.mark.parametrize(
    ("there", "why"),
    [
        (None, "has no record there"),
        (b"", "0 bytes at 4096, no record: 0 bytes are left"),
        (record(BEGIN)[:-1], "no record: totalSize"),
        (record(BEGIN) * 2, "no record: more than one"),
        (record(0), "no record: physicalOffset 0"),
        (encode_blank(8), "no record: a blank"),
    ],
)
def test_anything_else_is_no_answer(there: bytes | None, why: str) -> None:
    with pytest.raises(LookupFailed, match=re.escape(why)):
        trio.run(first_record, Told(bytes_there=there))
