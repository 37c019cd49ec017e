"""Asks a master whether a slave's log is a part of its own. Drives `protocols.divergence`."""

from __future__ import annotations

from typing import TypeVar

import attrs

from rmq_actors.ha.master_record_lookup import MasterRecordLookup
from rmq_actors.protocols.divergence import Ahead, Divergence, Questions, check_tail, compare, find_file, find_record
from rmq_actors.store.message_store import MessageStore
from rmq_actors.store.read.log_records import LogRecords

T = TypeVar("T")


@attrs.define(eq=False, repr=False)
class LogComparison:
    """One connection's. `questions`: how many were asked."""

    _lookup: MasterRecordLookup
    _records: LogRecords
    questions: int = attrs.field(default=0, init=False)

    async def divergence(self, near: int | None) -> Divergence | Ahead | None:
        """What in this log's end the master has not, or not yet; `near`: see `LogRecords.tail`.

        Raises `LookupFailed`, `LogCleaned`.
        """
        tail = await self._records.tail(near)
        return None if tail is None else await self._ask(check_tail(tail))

    async def common_end(self) -> int | None:
        """Where the part of the log ends that the master has too; None if it has nothing of it, or has deleted that.

        Raises `LookupFailed`, `LogCleaned`.
        """
        begins = self._records.file_begins()
        number = await self._ask(find_file(begins))
        if number is None:
            return None
        if number < 0:
            return begins[0]
        offsets, _ = await self._records.from_offset(begins[number])
        if not offsets:
            return begins[number]
        last = await self._ask(find_record(offsets))
        return None if last is None else offsets[last] + len(self._records.at(offsets[last]))

    async def _ask(self, questions: Questions[T]) -> T:
        try:
            offset = next(questions)
            while True:
                self.questions += 1
                theirs = await self._lookup.record_at(offset)
                offset = questions.send(compare(self._records.at(offset), theirs))
        except StopIteration as end:
            result: T = end.value
            return result


def near_end(store: MessageStore) -> int | None:
    """Where one of the last records of its log begins, if that is known."""
    last = store.files.reput.last
    return store.files.checkpointing.record_offset if last is None else last.commit_log_offset
