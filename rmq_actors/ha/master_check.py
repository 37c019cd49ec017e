"""What a slave asks its master before it follows: whether that has the same log, or where an empty one begins."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable

import attrs
import trio

from rmq_actors.ha.config import HaConfig
from rmq_actors.ha.first_record import first_record
from rmq_actors.ha.log_comparison import LogComparison, near_end
from rmq_actors.ha.master_evidence import MasterEvidence, MasterQuestions, NotFollowed
from rmq_actors.ha.master_record_lookup import LookupFailed, NoAnswer
from rmq_actors.ha.reporter import until_flushed
from rmq_actors.protocols.divergence import Ahead, Divergence
from rmq_actors.protocols.following import DIVERGED, LOOKUP_PATIENCE_S, OFFSET_GONE, Patience
from rmq_actors.protocols.ha_slave import MasterRefused
from rmq_actors.store.message_store import MessageStore
from rmq_actors.store.read.log_records import LogRecords
from rmq_actors.tracing.events.ha import HaClientCompare
from rmq_actors.tracing.recorder import Tracer

_log = logging.getLogger(__name__)

#: The pause before a failed search for where two logs diverge is made again.
_SEARCH_AGAIN_S = 1.0


class Diverged(MasterRefused):
    """The master has something else than this log, which it agrees with up to `common_end`, if anywhere."""

    reason = DIVERGED

    def __init__(self, found: Divergence, end_offset: int, common_end: int | None) -> None:
        common = "nothing of it" if common_end is None else f"the log up to {common_end}"
        super().__init__(f"{found}; this slave's log ends at {end_offset}, the master is known to have {common}")
        self.common_end = common_end


class LogBeginsLater(MasterRefused):
    """The master has deleted what comes next in this log, and all that the two could be compared by."""

    reason = OFFSET_GONE


class AheadOfMaster(MasterRefused):
    """This log ends later than the master's; whether it is the same up to there, the master's next message tells."""

    reason = "slave_ahead"


@attrs.frozen(eq=False)
class MasterCheck:
    """Asks a master before each connection to it is used."""

    _questions: MasterQuestions
    _config: HaConfig
    _store: MessageStore
    _tracer: Tracer
    _patience: Patience

    async def check(self, address: str) -> None:
        """Return if the master may be followed: this log goes on with what it sends.

        Raises `Diverged`, `LogBeginsLater`, `AheadOfMaster`, `NotFollowed`, `LookupFailed`, `AppendRefused`,
        `TermNotKept`.
        """
        if self._store.commit_log.max_offset:
            await self._compare(address)
        else:
            await self._begin_log(address)

    async def _compare(self, address: str) -> None:
        """Return if the master has what this log ends with, or cannot be asked.

        Raises `Diverged`, `LogBeginsLater`, `AheadOfMaster`, `NotFollowed`, `LookupFailed`, `TermNotKept`.
        """
        comparison = LogComparison(self._questions.lookup, LogRecords(self._store.commit_log))
        try:
            evidence = await self._evidence()
            found = await comparison.divergence(near_end(self._store))
        except LookupFailed as error:
            self._note_comparison(comparison, error.reason)
            if self._is_to_be_asked_again(error):
                raise
            _log.warning("master %s is followed, and not asked whether it has the same log: %s", address, error)
            return
        self._patience.answered()
        if isinstance(found, Ahead):
            self._note_comparison(comparison, AheadOfMaster.reason)
            raise AheadOfMaster(f"{found}; this slave's log ends at {self._store.commit_log.max_offset}")
        if found is None:
            self._note_comparison(comparison, "same")
            await evidence.keep_term()
            return
        try:
            evidence.check_master(found)
            common_end = await self._in_time("where this log diverges from the master's", comparison.common_end)
            if common_end is None:
                await self._check_begin(found, evidence)
            await evidence.confirm(found)
            # Else this broker, promoted by hand instead, would lead the term that this master leads.
            await evidence.keep_term()
        except (NotFollowed, LookupFailed) as error:
            self._note_comparison(comparison, error.reason)
            raise
        except LogBeginsLater:
            self._note_comparison(comparison, Diverged.reason)
            raise
        self._note_comparison(comparison, Diverged.reason)
        raise Diverged(found, self._store.commit_log.max_offset, common_end)

    async def _evidence(self) -> MasterEvidence:
        try:
            return await self._questions.evidence()
        except NotFollowed:
            self._patience.answered()
            raise

    @staticmethod
    async def _in_time(what: str, ask: Callable[[], Awaitable[int | None]]) -> int | None:
        """The answer, if it can be had. A question that fails is asked again for a while: nobody else will."""
        give_up_at = trio.current_time() + LOOKUP_PATIENCE_S
        while True:
            try:
                return await ask()
            except LookupFailed as error:
                _log.warning("%s is not known: %s", what, error)
                if trio.current_time() >= give_up_at:
                    return None
                await trio.sleep(_SEARCH_AGAIN_S)

    async def _check_begin(self, found: Divergence, evidence: MasterEvidence) -> None:
        """Raise `LogBeginsLater` if that is why nothing is known of where the logs diverge."""
        begin = await self._in_time("where the master's log begins", self._questions.lookup.min_offset)
        if begin is not None and begin > found.offset:
            await evidence.confirm(found)
            await evidence.keep_term()
            end = self._store.commit_log.max_offset
            raise LogBeginsLater(
                f"the master's log begins at {begin}, this slave's last record at {found.offset}, "
                f"and it ends at {end}: too long away"
            )

    async def _begin_log(self, address: str) -> None:
        """Take the master's first record, if it tells where that is: a Java master sends an empty log its last file.

        A slave that reports another offset than 0 gets all that follows it. Raises `NotFollowed`, `LookupFailed`,
        `AppendRefused`, `TermNotKept`.
        """
        try:
            evidence = await self._evidence()
            record = None if self._config.sync_from_last_file else await first_record(self._questions.lookup)
        except LookupFailed as error:
            if self._is_to_be_asked_again(error):
                raise
            _log.warning("master %s is followed, and may send its last file alone: %s", address, error)
            return
        self._patience.answered()
        await evidence.keep_term()
        if record is not None:
            self._store.append_to_commit_log(*record)
            await until_flushed(self._store)

    def _is_to_be_asked_again(self, failure: LookupFailed) -> bool:
        return self._patience.failed(trio.current_time(), is_silent=isinstance(failure, NoAnswer))

    def _note_comparison(self, comparison: LogComparison, status: str) -> None:
        end = self._store.commit_log.max_offset
        self._tracer.emit(HaClientCompare(status=status, offset=end, questions=comparison.questions))
