"""What is derived from the log record by record: consume queues, the index, the table of open transactions.

Each of them is a `CommitLogDispatcher`: passive, written by one owner (ReputMessageService, or recovery before that
runs), and able to be built again from the log at any time. How far all of them are durable is the store's checkpoint.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

from rmq_actors.wire.dispatch_request import DispatchRequest

if TYPE_CHECKING:
    from rmq_actors.wire.dispatch_batch import DispatchBatch

_log = logging.getLogger(__name__)


class CommitLogDispatcher(Protocol):
    """One derived structure. Nothing here yields but `flush`."""

    @property
    def name(self) -> str:
        """RocketMQ's name of it, for logs and traces."""
        ...

    def recover(self, durable_to: int) -> int:
        """Open what is on the disk and drop every entry of a record at `durable_to` or after it; zeros are left there.

        Entries of records before `durable_to` are durable and right, whatever happened; after them anything may stand:
        lost, torn or reordered pages. Returns from which log offset on records must be dispatched again: `durable_to`,
        or less where files are missing (0: from the log's beginning). Raises `StoreLayoutError`, `OSError`.
        """
        ...

    def dispatch(self, requests: Sequence[DispatchRequest]) -> None:
        """Take records, in the log's order. What was taken before is ignored: a batch may come again after an error.

        Raises `OSError`, with any part of the batch taken.
        """
        ...

    def dispatch_batch(self, batch: DispatchBatch) -> None:
        """`dispatch` of records as columns, under the same contract."""
        ...

    def dispatch_rows(self, requests: Sequence[DispatchRequest]) -> None:
        """`dispatch` of plain messages that the log's writer has handed over: what may lag waits for `drain`.

        They come once: after an error by `dispatch`.
        """
        ...

    def drain(self) -> None:
        """Take what lags. Raises `OSError`, with any part of it taken; then call it again before anything else."""
        ...

    async def flush(self) -> None:
        """Return when everything dispatched before the call is durable.

        Raises `OSError`: what became durable then is unknown, also after a later call that succeeds.
        """
        ...

    def delete_expired(self, log_min_offset: int) -> int:
        """Drop files (whole) that speak of nothing at or after `log_min_offset`; how many were removed."""
        ...

    def close(self) -> None:
        """Close the files; later writes are `OSError`."""
        ...
