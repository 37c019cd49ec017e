"""Whether the word of the broker that a slave follows counts: asks it what it is, and keeps its term.

Drives `protocols.evidence`.
"""

from __future__ import annotations

import attrs

from rmq_actors.ha.master_record_lookup import MasterLookup, PeerLookup
from rmq_actors.protocols.evidence import Doubt, Own, Peer, doubt_in_difference, doubt_in_following
from rmq_actors.protocols.ha_slave import MasterRefused
from rmq_actors.store.files.term_file import TermFile
from rmq_actors.store.log.received_records import AppendRefused


class NotFollowed(MasterRefused):
    """It is asked again later: as it is now, it is not to be followed, and says nothing of this log."""

    def __init__(self, doubt: Doubt, what: str = "") -> None:
        super().__init__(f"{what}: {doubt.detail}" if what else doubt.detail)
        self.reason = doubt.reason


class TermNotKept(AppendRefused):
    """The disk did not take the term of the master: without it nobody is followed."""

    reason = "term_not_kept"


@attrs.frozen(eq=False)
class MasterQuestions:
    """What a slave needs to ask whom it follows: how, and with which term and brokerName of its own."""

    lookup: MasterLookup
    _terms: TermFile
    _broker_name: str

    async def evidence(self) -> MasterEvidence:
        """Begin a comparison. Raises `LookupFailed`, and `NotFollowed` if it is of an older term, or another name."""
        peer = await self.lookup.peer()
        if doubt := doubt_in_following(Own(self._terms.term, self._broker_name), peer):
            raise NotFollowed(doubt)
        return MasterEvidence(self.lookup, self._terms, self._broker_name, peer)


@attrs.frozen(eq=False)
class MasterEvidence:
    """The evidence of one comparison: `peer` is what the broker said before it."""

    _lookup: PeerLookup
    _terms: TermFile
    _broker_name: str
    peer: Peer | None

    def check_master(self, difference: object) -> None:
        """Raise `NotFollowed` if what it said before already makes a difference of the logs worthless."""
        self._check(self.peer, difference)

    async def confirm(self, difference: object) -> None:
        """Return if it is the master, and has been so all the time since. Raises `LookupFailed`, `NotFollowed`."""
        self._check(await self._lookup.peer(), difference)

    def _check(self, after: Peer | None, difference: object) -> None:
        if doubt := doubt_in_difference(Own(self._terms.term, self._broker_name), self.peer, after):
            raise NotFollowed(doubt, f"{difference}, which says nothing")

    async def keep_term(self) -> None:
        """Before it is followed, or believed: its term is this broker's from now on, durably. Raises `TermNotKept`."""
        if self.peer is not None and self.peer.term is not None:
            try:
                await self._terms.see(self.peer.term)
            except OSError as error:
                raise TermNotKept(f"the term {self.peer.term} of the master cannot be kept: {error}") from error
