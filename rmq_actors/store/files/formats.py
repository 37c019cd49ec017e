"""The byte layouts of what is derived from the log, each of them once; all numbers are big-endian.

A record's own layout is in `wire/record.py`, that of the checkpoint in `store_checkpoint.py`. `store/check` does not
use these layouts but has its own, so that it notices a wrong one here.
"""

from __future__ import annotations

import struct

from rmq_actors.ports.disk import SECTOR_BYTES

#: An entry of a consume queue, and of tranRedoLog: the record's offset in the log, its size, its tags code.
QUEUE_ENTRY = struct.Struct(">qiq")
CQ_STORE_UNIT_SIZE = QUEUE_ENTRY.size
#: The offset and the size of an entry, without its tags code.
QUEUE_ENTRY_HEAD = struct.Struct(">qi")
#: `QUEUE_ENTRY` for numpy.
QUEUE_ENTRY_FIELDS = [("physical_offset", ">i8"), ("size", ">i4"), ("tags_code", ">i8")]
#: The size that a blank entry claims; its offset and its tags code are 0.
BLANK_SIZE = 0x7FFFFFFF
BLANK_ENTRY = QUEUE_ENTRY.pack(0, BLANK_SIZE, 0)

#: What a unit of a consume queue's extension begins with: size, tags code, store time, length of the bit map after it.
CQ_EXT_UNIT_HEAD = struct.Struct(">hqqh")

#: An index file's header: the first and the last time and offset, how many slots are in use, the next entry's number.
INDEX_HEADER = struct.Struct(">qqqqii")
#: A slot of an index file: the number of the newest entry of its chain.
INDEX_SLOT = struct.Struct(">i")
INDEX_SLOT_TYPE = ">i4"
#: An entry of an index file: hash of the key, offset in the log, seconds since the file's first time, the entry before.
INDEX_ENTRY = struct.Struct(">iqii")
#: `INDEX_ENTRY` for numpy.
INDEX_ENTRY_FIELDS = [("key_hash", ">i4"), ("physical_offset", ">i8"), ("seconds", ">i4"), ("before", ">i4")]

#: An entry of tranStateTable: offset in the log, size, store time in seconds, hash of the producer group, state.
TRAN_STATE_ENTRY = struct.Struct(">qiiii")
TS_STORE_UNIT_SIZE = TRAN_STATE_ENTRY.size
#: The state alone, which changes in place, and where it stands in an entry.
TRAN_STATE = struct.Struct(">i")
TRAN_STATE_POSITION = TS_STORE_UNIT_SIZE - TRAN_STATE.size


def crosses_sectors(position: int, size: int) -> bool:
    """Whether `size` bytes at `position` of a file are in two sectors: a power cut may keep one of them alone."""
    return position % SECTOR_BYTES > SECTOR_BYTES - size
