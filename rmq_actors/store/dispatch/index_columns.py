"""Many entries of an index file at once, made with numpy from columns.

Importing this imports numpy, which takes a while: `IndexFile` does so once many keys are there.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from rmq_actors.store.files.formats import INDEX_ENTRY_FIELDS, INDEX_SLOT_TYPE
from rmq_actors.wire.dispatch_batch import Int32Array, Int64Array, hash_keys
from rmq_actors.wire.dispatch_request import DispatchRequest
from rmq_actors.wire.index_key import index_keys

_INT_MAX = 0x7FFF_FFFF
_SLOT = np.dtype(INDEX_SLOT_TYPE)
_ENTRY = np.dtype(INDEX_ENTRY_FIELDS)


class Chains(NamedTuple):
    """What further entries make of the chains of a file."""

    #: The slots that they are in, ascending, and the number of the newest entry of each.
    slots: Int64Array
    newest: Int32Array
    #: Of each entry: the number of the one before it in its chain.
    before: Int64Array
    #: How many slots were empty.
    new_slots: int


def keys_of_rows(rows: Sequence[DispatchRequest]) -> tuple[Int32Array, Int64Array, Int64Array]:
    """The keys of plain messages, record by record: their hashes, and offset and store time of each one's record."""
    keys = list(map(index_keys, rows))
    counts = np.fromiter(map(len, keys), np.int64, len(rows))
    hashes = hash_keys([row.topic for row in rows], keys, counts)
    offsets = np.fromiter((row.commit_log_offset for row in rows), np.int64, len(rows))
    timestamps_ms = np.fromiter((row.store_timestamp_ms for row in rows), np.int64, len(rows))
    return hashes, offsets.repeat(counts), timestamps_ms.repeat(counts)


def read_slots(view: memoryview, position: int, hash_slot_num: int, slots: Int64Array) -> Int64Array:
    """What stands in some slots of a file whose first slot is at `position`."""
    heads: npt.NDArray[np.signedinteger] = np.frombuffer(view, _SLOT, hash_slot_num, position)
    return heads[slots].astype(np.int64)


def chain_entries(
    key_hashes: Int32Array, hash_slot_num: int, index_count: int, read_heads: Callable[[Int64Array], Int64Array]
) -> Chains:
    """Hang entries, the first with number `index_count`, into their chains. `read_heads`: the newest ones of slots."""
    count = len(key_hashes)
    # By slot, and in a slot in their order. No two of these numbers are equal: the fastest sort will do.
    ordered = (key_hashes.astype(np.int64) % hash_slot_num << 32) | np.arange(count)
    ordered.sort()
    slots, numbers = ordered >> 32, index_count + (ordered & 0xFFFF_FFFF)
    begins = np.ones(count + 1, bool)
    np.not_equal(slots[1:], slots[:-1], out=begins[1:-1])
    is_first, is_last = begins[:-1], begins[1:]
    used = slots[is_last]
    heads = read_heads(used)
    chained = np.empty(count, np.int64)
    chained[1:] = numbers[:-1]
    chained[is_first] = heads
    before = np.empty(count, np.int64)
    before[numbers - index_count] = chained
    return Chains(used, numbers[is_last].astype(np.int32), before, int(np.count_nonzero(heads == 0)))


def seconds_since(begin_timestamp_ms: int, timestamps_ms: Int64Array) -> Int64Array:
    """What entries have for their time where the first one counts from `begin_timestamp_ms`; 0 for no such time."""
    if begin_timestamp_ms <= 0:
        return np.zeros(len(timestamps_ms), np.int64)
    return ((timestamps_ms.clip(begin_timestamp_ms) - begin_timestamp_ms) // 1000).clip(max=_INT_MAX)


def encode_entries(
    key_hashes: Int32Array, physical_offsets: Int64Array, seconds: Int64Array, before: Int64Array
) -> bytes:
    """The entries as they stand in the file."""
    entries = np.empty(len(key_hashes), _ENTRY)
    entries["key_hash"], entries["physical_offset"] = key_hashes, physical_offsets
    entries["seconds"], entries["before"] = seconds, before
    return entries.tobytes()
