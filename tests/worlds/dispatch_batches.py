"""Records as columns, as `read_dispatch_batch` makes them from a log."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from rmq_actors.wire.dispatch_batch import DispatchBatch, read_dispatch_batch
from rmq_actors.wire.dispatch_request import (
    DELAY_LEVELS_MS,
    PROPERTY_INNER_MULTI_DISPATCH,
    TRANSACTION_TOPICS,
    DispatchRequest,
    read_dispatch_request,
)
from rmq_actors.wire.index_key import index_key_hash, index_keys
from rmq_actors.wire.record import TRANSACTION_ROLLBACK_TYPE, text_span

#: Where the bytes of a log's part begin in the log.
BEGIN = 7000


def batch_of(requests: Sequence[DispatchRequest]) -> DispatchBatch:
    """Plain records, at least one."""
    topics = list(dict.fromkeys(each.topic for each in requests))
    keys = [(index_key_hash(each.topic, key), n) for n, each in enumerate(requests) for key in index_keys(each)]
    return DispatchBatch(
        topics,
        np.array([topics.index(each.topic) for each in requests], np.int32),
        np.array([each.queue_id for each in requests], np.int32),
        np.array([each.commit_log_offset for each in requests], np.int64),
        np.array([each.msg_size for each in requests], np.int32),
        np.array([each.tags_code for each in requests], np.int64),
        np.array([each.store_timestamp_ms for each in requests], np.int64),
        np.array([each.consume_queue_offset for each in requests], np.int64),
        np.array([key_hash for key_hash, _ in keys], np.int32),
        np.array([record for _, record in keys], np.int32),
        requests[-1],
    )


def single_records(view: memoryview, limit: int, *, check_crc: bool) -> Iterator[DispatchRequest]:
    """What a batch must hold, from the beginning on."""
    position = 0
    while position < min(limit, len(view)):
        found = read_dispatch_request(
            view, position, BEGIN + position, check_crc=check_crc, delay_levels_ms=DELAY_LEVELS_MS
        )
        if (
            not isinstance(found, DispatchRequest)
            or position + found.msg_size > limit
            or found.sys_flag & TRANSACTION_ROLLBACK_TYPE
            or found.topic in TRANSACTION_TOPICS
            or PROPERTY_INNER_MULTI_DISPATCH in found.properties
            or found.is_passed_over
            or (check_crc and any(0 in bytes(view[begin:end]) for begin, end in text_span(view, position)))
        ):
            return
        yield found
        position += found.msg_size


def rows(batch: DispatchBatch) -> list[tuple[object, ...]]:
    """The columns, record by record."""
    columns = (
        batch.queue_ids,
        batch.commit_log_offsets,
        batch.msg_sizes,
        batch.tags_codes,
        batch.store_timestamps_ms,
        batch.consume_queue_offsets,
    )
    topics = [batch.topics[each] for each in batch.topic_ids.tolist()]
    return list(zip(topics, *(column.tolist() for column in columns), strict=True))


def keys(batch: DispatchBatch) -> list[tuple[int, int]]:
    return list(zip(batch.key_records.tolist(), batch.key_hashes.tolist(), strict=True))


def check(data: bytes, limit: int, max_records: int, min_records: int, *, check_crc: bool) -> None:
    """Compare a batch with single records."""
    view = memoryview(data)
    expected = list(single_records(view, limit, check_crc=check_crc))[:max_records]
    batch = read_dispatch_batch(
        view,
        0,
        BEGIN,
        limit,
        max_records,
        delay_levels_ms=DELAY_LEVELS_MS,
        check_crc=check_crc,
        min_records=min_records,
    )
    if len(expected) < min_records:
        assert batch is None
        return
    assert batch is not None
    assert rows(batch) == [each[:7] for each in expected]
    assert keys(batch) == [
        (number, index_key_hash(each.topic, key)) for number, each in enumerate(expected) for key in index_keys(each)
    ]
    assert batch.last == expected[-1]
    assert len(batch) == len(expected)
