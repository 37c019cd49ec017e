"""The record that a master's log begins with: where a slave without a log begins."""

from __future__ import annotations

from rmq_actors.ha.master_record_lookup import LookupFailed, MasterLogLookup
from rmq_actors.wire.record import check_record


async def first_record(lookup: MasterLogLookup) -> tuple[int, bytes] | None:
    """Where the master's log begins, and its first record's bytes; None if it has none, or does not tell.

    Raises `LookupFailed`, also where the master has deleted that record meanwhile.
    """
    told = await lookup.log_range()
    if told is None:
        return None
    begin, end = told
    # Before its first file a Java log begins at -1.
    if not 0 <= begin < end:
        return None
    record = await lookup.record_at(begin)
    if record is None:
        raise LookupFailed(f"the master's log begins at {begin} and ends at {end}, but it has no record there")
    # Its body's checksum is no concern: what the master has is what a slave takes.
    check = check_record(memoryview(record), 0, begin, check_crc=False)
    if check.what != "message" or check.size != len(record):
        why = {"invalid": check.reason, "blank": "a blank", "message": "more than one"}[check.what]
        raise LookupFailed(f"{len(record)} bytes at {begin}, no record: {why}")
    return begin, record
