"""When the queues of delayed messages are looked at, and what comes of each delivery (ScheduleMessageService).

Each level has a queue, and delivers it in order: `offset` is the next message of it. A level sleeps until its first
message is due, or until one comes. What cannot be delivered now is tried again, with the same offset (#9248). What can
never be delivered is passed over, but not silently: its record stays in the log, and the caller says where.

Pure: `now_s` are seconds of one monotonic clock.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Sequence

import attrs

from rmq_actors.protocols.put_completion import PutStatus

#: The pause before the same message is tried again (DELAY_FOR_A_WHILE); it doubles up to the longest one.
RETRY_S = 0.1
RETRY_MAX_S = 1.6
#: How often a message is tried whose record the log does not give, or for which there are too many light queues, before
#: it is passed over.
TRIES_MAX = 6
#: With these statuses the log never takes the message. UNKNOWN_ERROR: its offsets in further queues do not fit its
#: properties; they grow with each try.
_NEVER = frozenset({PutStatus.MESSAGE_ILLEGAL, PutStatus.PROPERTIES_SIZE_EXCEEDED, PutStatus.UNKNOWN_ERROR})


class Verdict(enum.Enum):
    """What becomes of a message that was due."""

    DELIVERED = "delivered"
    RETRIED = "retried"
    PASSED_OVER = "passed_over"


@attrs.define(eq=False, repr=False)
class _Level:
    looks_at_s: float
    failures: int = 0
    #: How often in a row its record could not be read, or there were too many light queues.
    in_vain: int = 0

    def retry(self, now_s: float) -> Verdict:
        self.looks_at_s = now_s + min(RETRY_S * 2.0 ** min(self.failures, 16), RETRY_MAX_S)
        self.failures += 1
        return Verdict.RETRIED


@attrs.define(eq=False, repr=False)
class DelayedDeliveries:
    """The levels of one broker while it delivers; all are looked at first. Levels count from 1."""

    delays_ms: Sequence[int]
    _levels: dict[int, _Level] = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self._levels = {level: _Level(-math.inf) for level in range(1, len(self.delays_ms) + 1)}

    @property
    def looks_at_s(self) -> float:
        """When the next level is looked at; infinity if all wait for messages."""
        return min(level.looks_at_s for level in self._levels.values())

    def due(self, now_s: float) -> list[int]:
        """The levels to look at now. Call one of the methods below for each until it is not due any more."""
        return [number for number, level in self._levels.items() if level.looks_at_s <= now_s]

    def is_due(self, level: int, now_s: float) -> bool:
        """Whether a level is to be looked at now."""
        return self._levels[level].looks_at_s <= now_s

    def came(self, level: int) -> None:
        """A message has come: look at the level, if it waits for one."""
        if self._levels[level].looks_at_s == math.inf:
            self._levels[level].looks_at_s = -math.inf

    def empty(self, level: int) -> None:
        """The level has no message at its offset: wait for one."""
        self._levels[level] = _Level(math.inf)

    def not_due(self, level: int, due_at_s: float) -> None:
        """The level's next message is due at that time; others come after it."""
        self._levels[level] = _Level(due_at_s)

    def put(self, level: int, status: PutStatus, now_s: float) -> Verdict:
        """The log has taken the level's next message, or not. Unless it is to be retried, go on with the one after."""
        state = self._levels[level]
        if status is PutStatus.LMQ_CONSUME_QUEUE_NUM_EXCEEDED:
            return self._try_again(level, now_s)
        state.in_vain = 0
        if status is PutStatus.PUT_OK:
            state.failures = 0
            return Verdict.DELIVERED
        return self.undeliverable(level) if status in _NEVER else state.retry(now_s)

    def unreadable(self, level: int, now_s: float) -> Verdict:
        """The log does not give the record of the level's next message: perhaps it does soon."""
        return self._try_again(level, now_s)

    def undeliverable(self, level: int) -> Verdict:
        """The level's next message can go nowhere, as its record says."""
        self._levels[level].failures = self._levels[level].in_vain = 0
        return Verdict.PASSED_OVER

    def _try_again(self, level: int, now_s: float) -> Verdict:
        state = self._levels[level]
        state.in_vain += 1
        return self.undeliverable(level) if state.in_vain >= TRIES_MAX else state.retry(now_s)
