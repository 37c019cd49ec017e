"""How a slave asks its master about its log, beside the HA connection, on which nothing can be asked."""

from __future__ import annotations

from typing import Protocol

from rmq_actors.protocols.evidence import Peer


class LookupFailed(ConnectionError):
    """The master cannot be asked now: it refuses, or where it answers is not known."""

    reason = "lookup_failed"


class NoAnswer(LookupFailed):
    """Nothing was heard from it in time: it may be there, and have another log."""

    reason = "no_answer"


class MasterRecordLookup(Protocol):
    """The records of the master that is followed."""

    async def record_at(self, offset: int) -> bytes | None:
        """What the master has at `offset`: a record's bytes, a file's blank end, or what it takes for one.

        None if nothing; no bytes: something that can be no record. Raises `LookupFailed`.
        """
        ...


class MasterLogLookup(MasterRecordLookup, Protocol):
    """The log of the master that is followed."""

    async def log_range(self) -> tuple[int, int] | None:
        """Where the master's log begins and ends; None if it does not tell, or sends all of it by itself.

        Raises `LookupFailed`.
        """
        ...

    async def min_offset(self) -> int | None:
        """Where the master's log begins; None if it does not tell. Raises `LookupFailed`."""
        ...


class PeerLookup(Protocol):
    """The broker that is followed."""

    async def peer(self) -> Peer | None:
        """What it is at this moment; None if it says nothing of that. Raises `LookupFailed`."""
        ...


class MasterLookup(MasterLogLookup, PeerLookup, Protocol):
    """All that a slave asks of whom it follows."""
