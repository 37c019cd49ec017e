"""How a slave asks its master for single records, beside the HA connection, on which nothing can be asked."""

from __future__ import annotations

from typing import Protocol


class LookupFailed(ConnectionError):
    """The master cannot be asked now."""

    reason = "lookup_failed"


class MasterRecordLookup(Protocol):
    """The records of the master that is followed."""

    async def record_at(self, offset: int) -> bytes | None:
        """What the master has at `offset`: a record's bytes, or what it takes for one; None if nothing.

        Raises `LookupFailed`.
        """
        ...
