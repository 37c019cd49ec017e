"""Records as columns, as `read_dispatch_batch` makes them from a log."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from rmq_actors.wire.dispatch_batch import DispatchBatch
from rmq_actors.wire.dispatch_request import DispatchRequest
from rmq_actors.wire.index_key import index_key_hash, index_keys


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
