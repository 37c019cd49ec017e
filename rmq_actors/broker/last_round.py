"""Before a slave becomes the master it asks for its master's tables once more: the last round may be 10 s old."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, TypeVar

import attrs
import trio

from rmq_actors.broker.broker_outer_api import MQBrokerError
from rmq_actors.broker.master_records import MasterRecords
from rmq_actors.broker.peer_states import PeerStates
from rmq_actors.broker.slave_synchronize import LogBehind, MasterTable, TablesNotTaken, ask_table, take_over
from rmq_actors.ha.log_comparison import LogComparison, near_end
from rmq_actors.ha.master_record_lookup import LookupFailed
from rmq_actors.protocols.evidence import Doubt, Own, Peer, doubt_in_tables
from rmq_actors.protocols.metadata_rounds import Metadata
from rmq_actors.remoting.connection import RemotingError
from rmq_actors.store.read.log_records import LogCleaned, LogRecords
from rmq_actors.tracing.events.broker import BrokerSlaveSynchronize
from rmq_actors.tracing.recorder import Tracer

if TYPE_CHECKING:
    from rmq_actors.broker.broker_remoting import BrokerRemoting
    from rmq_actors.broker.store_host import StoreHost

T = TypeVar("T")

_log = logging.getLogger(__name__)

#: How long a promotion waits for the first answer, so that a master that is down does not delay it. A peer that answers
#: has given its role up already, unless the operator wants two masters: then there is time for the rest, also on a slow
#: link.
FIRST_ANSWER_S = 0.5
ALL_ANSWERS_S = 10.0
_STEP_S = 0.1
#: Never reached: the time above ends a question.
_TIMEOUT_MS = 60_000


class TooSlow(ConnectionError):
    """The master has not answered in time."""


@attrs.frozen(eq=False)
class LastRound:
    """A promotion goes on whether this succeeds or not; the log says which."""

    _host: StoreHost
    _remoting: BrokerRemoting | None
    _tracer: Tracer

    async def take(self) -> None:
        """Take over the tables of the master, if it is there and its word counts."""
        remoting = self._remoting
        master = None if remoting is None else remoting.master_addr
        if remoting is None or master is None:
            self._note("", "all", "no_master", "it is not told where its master answers")
            return
        try:
            answers = await _within(ALL_ANSWERS_S, lambda: self._ask(remoting, master))
            for part, answer in answers.items():
                try:
                    has_changed = await take_over(remoting.metadata, remoting.open_store, part, answer)
                except LogBehind as error:
                    _log.warning("the %s of %s are not taken over: %s", part.value, master, error)
                    self._note(master, part.value, type(error).__name__, str(error))
                else:
                    self._note(master, part.value, "changed" if has_changed else "unchanged", "")
        except (RemotingError, MQBrokerError, LogCleaned, ValueError, OSError) as error:
            _log.warning(
                "topics, groups and offsets may be 10 s old: %s was asked for newer ones before the promotion: %s",
                master,
                error,
            )
            self._note(master, "all", type(error).__name__, str(error))

    async def _ask(self, remoting: BrokerRemoting, master: str) -> dict[Metadata, MasterTable]:
        """The tables of a peer that may give them and has this log: with another log its tables may be lost, too."""
        peers, own = PeerStates(remoting.client), Own(self._host.terms.term, self._host.config.broker_name)
        before = await _within(FIRST_ANSWER_S, lambda: peers.ask(master, _TIMEOUT_MS))
        _check(doubt_in_tables(own, before, before))
        await self._check_log(remoting, master)
        client, store = remoting.client, remoting.open_store
        answers = {part: await ask_table(client, store, master, part, _TIMEOUT_MS) for part in Metadata}
        after: Peer | None = await peers.ask(master, _TIMEOUT_MS)
        _check(doubt_in_tables(own, before, after))
        return answers

    async def _check_log(self, remoting: BrokerRemoting, master: str) -> None:
        log = self._host.store.commit_log
        if log.max_offset:
            comparison = LogComparison(MasterRecords(remoting.client, lambda: master), LogRecords(log))
            found = await comparison.divergence(near_end(self._host.store))
            if found is not None:
                raise LookupFailed(f"it has another log: {found}")

    def _note(self, master: str, part: str, status: str, detail: str) -> None:
        self._tracer.emit(
            BrokerSlaveSynchronize(status=status, part=part, peer_address=master, detail=detail[:200]), "LastRound"
        )


def _check(doubt: Doubt | None) -> None:
    if doubt is not None:
        raise TablesNotTaken(doubt)


async def _within(seconds: float, call: Callable[[], Awaitable[T]]) -> T:
    """The result, if it comes within these seconds; time in which this process stood still does not count.

    Raises `TooSlow`.
    """
    results: list[T] = []
    errors: list[Exception] = []

    async def run() -> None:
        try:
            results.append(await call())
        except Exception as error:  # noqa: BLE001 - raised below: through the nursery it would come out as a group
            errors.append(error)
        nursery.cancel_scope.cancel()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(run)
        for _ in range(round(seconds / _STEP_S)):
            await trio.sleep(_STEP_S)
        nursery.cancel_scope.cancel()
    for error in errors:
        raise error
    if not results:
        raise TooSlow(f"no answer within {seconds:g} s")
    return results[0]
