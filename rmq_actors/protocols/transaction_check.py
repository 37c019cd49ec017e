"""When a broker asks producers how their transactions ended, and what becomes of those that nobody ends.

TransactionalMessageServiceImpl.check as decisions without a store: of each open half message the fate, and how far
the half and op queues of a broker are done with. Which half messages are open the caller knows (the store's
transaction state table does). Times are ms; now and the store time are the broker's clock, the born time a client's.

Three things are otherwise than in RocketMQ 4.9. A check of which no producer could be told is not counted. A message
is not given up for its age before a producer was asked about it, if there is one. And an immune message stays where it
is, while others are checked: RocketMQ stores it again in each round, counts that as a check, and gives it up unasked.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Iterable

import attrs

from rmq_actors.protocols.transactional_messages import (
    PROPERTY_CHECK_IMMUNITY_TIME_IN_SECONDS,
    PROPERTY_TRANSACTION_CHECK_TIMES,
)
from rmq_actors.wire.record import StoredMessage

_INT32 = re.compile(r"[+-]?[0-9]{1,10}")
_INT64 = re.compile(r"[+-]?[0-9]{1,19}")


class Fate(enum.Enum):
    """What is to be done with an open half message."""

    #: Nothing yet.
    WAIT = "wait"
    #: It is stored again, and a producer of its group is asked.
    ASK = "ask"
    #: It was asked about transactionCheckMax times.
    CHECKED_TOO_OFTEN = "checked_too_often"
    #: It is older than fileReservedTime.
    TOO_OLD = "too_old"

    @property
    def is_given_up(self) -> bool:
        """Whether it goes to TRANS_CHECK_MAX_TIME_TOPIC."""
        return self in {Fate.CHECKED_TOO_OFTEN, Fate.TOO_OLD}


@attrs.frozen
class CheckRules:
    """The rules of one broker."""

    #: transactionTimeOut: how long a producer has before it is asked.
    time_out_ms: int
    #: transactionCheckMax.
    check_max: int
    #: fileReservedTime.
    reserved_ms: int


@attrs.frozen
class HalfMessage:
    """What its fate depends on."""

    born_ms: int
    stored_ms: int
    #: None: it was never asked about.
    check_times: int | None = None
    #: How long it is not to be asked about; None: as long as the broker's rules say.
    immunity_ms: int | None = None

    @classmethod
    def of(cls, record: StoredMessage) -> HalfMessage:
        """Read it from a record. What is not a number counts as RocketMQ reads it."""
        times = record.properties.get(PROPERTY_TRANSACTION_CHECK_TIMES)
        return cls(
            record.born_timestamp_ms,
            record.store_timestamp_ms,
            None if times is None else _number(_INT32, times),
            _immunity_ms(record.properties.get(PROPERTY_CHECK_IMMUNITY_TIME_IN_SECONDS)),
        )

    @property
    def times_asked_next(self) -> int:
        """Its count of checks after the next one."""
        return 1 if self.check_times is None else max(0, self.check_times) + 1

    @property
    def _began_ms(self) -> int:
        """A client whose clock is ahead does not put its checks off, nor is it asked before it has had its time."""
        return min(self.born_ms, self.stored_ms)

    def due_ms(self, rules: CheckRules) -> int:
        """From when on it may be asked about. No immunity outlasts fileReservedTime."""
        pause_ms = rules.time_out_ms if self.immunity_ms is None else self.immunity_ms
        return self._began_ms + min(pause_ms, rules.reserved_ms)

    def fate(self, now_ms: int, rules: CheckRules, *, somebody_can_be_asked: bool) -> Fate:
        """What is to be done with it now. A clock that went back, to before it was stored, puts nothing off."""
        if self.check_times is not None and self.check_times >= rules.check_max:
            return Fate.CHECKED_TOO_OFTEN
        was_asked = self.check_times is not None and self.check_times > 0
        if now_ms - self.born_ms > rules.reserved_ms and (was_asked or not somebody_can_be_asked):
            return Fate.TOO_OLD
        is_due = now_ms >= self.due_ms(rules) or now_ms < self.stored_ms
        return Fate.ASK if is_due and somebody_can_be_asked else Fate.WAIT


def half_offset(committed: int, queue_min: int, queue_max: int, open_offsets: Iterable[int]) -> int:
    """Before which offset of a half queue all is done: the group's offset there.

    `committed` is -1 if there is none, and may be past the end of a queue whose log lost its end. `open_offsets` that
    are before it are done with: they were stored again, or given up, by a broker that told no more of them.
    """
    begin = first_undone(committed, queue_min, queue_max)
    return min((offset for offset in open_offsets if offset >= begin), default=queue_max)


def first_undone(committed: int, queue_min: int, queue_max: int) -> int:
    """Where a group goes on in a queue, within what the queue has."""
    return min(max(committed, queue_min), queue_max)


def is_op_done(named: Iterable[int], half_done_to: int) -> bool:
    """Whether nobody needs an op message any more that names these half messages of its queue."""
    return all(offset < half_done_to for offset in named)


@attrs.define(eq=False, repr=False)
class EndedTransactions:
    """Which transactions have ended by records that the store's table has not taken up yet.

    A second end of the same one, in between, would be a second message. Offsets are of the log.
    """

    #: By the offset of the prepared message: where the record that ends it begins, how it ends, and the half message
    #: that stands for it from then on, if it was stored again.
    _ended: dict[int, tuple[int, int, int | None]] = attrs.field(factory=dict, init=False)

    def note(self, prepared_offset: int, ended_by: int, state: int, successor: int | None = None) -> None:
        """A record at `ended_by` ends the transaction, as `state` says (8 committed, 12 rolled back)."""
        self._ended[prepared_offset] = (ended_by, state, successor)

    def forget_to(self, dispatched_to: int) -> None:
        """The table has taken up every record before this offset."""
        done = [offset for offset, (ended_by, _, _) in self._ended.items() if ended_by < dispatched_to]
        for offset in done:
            del self._ended[offset]

    def state(self, prepared_offset: int) -> int | None:
        """How it ended; None if it did not end by any of these records."""
        found = self._ended.get(prepared_offset)
        return None if found is None else found[1]

    def successor(self, prepared_offset: int) -> int:
        """The half message that stands for this one now: itself, if it was not stored again."""
        while (found := self._ended.get(prepared_offset)) is not None and found[2] is not None:
            prepared_offset = found[2]
        return prepared_offset

    def __contains__(self, prepared_offset: int) -> bool:
        return prepared_offset in self._ended

    def __len__(self) -> int:
        return len(self._ended)


def _number(form: re.Pattern[str], text: str) -> int:
    return int(text) if form.fullmatch(text) else -1


def _immunity_ms(text: str | None) -> int | None:
    if text is None:
        return None
    seconds = _number(_INT64, text)
    return None if seconds == -1 else seconds * 1000
