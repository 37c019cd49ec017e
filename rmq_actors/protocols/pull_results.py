"""What an answer to a pull means (PullStatus), by its code."""

from __future__ import annotations

import enum

import attrs

from rmq_actors.wire.response_code import ResponseCode


class PullStatus(enum.Enum):
    """What a pull has found."""

    FOUND = "FOUND"
    NO_NEW_MSG = "NO_NEW_MSG"
    #: Nothing for this subscription up to the next offset: pull again at once.
    NO_MATCHED_MSG = "NO_MATCHED_MSG"
    #: The offset is outside the queue: go on at the next offset that the answer names.
    OFFSET_ILLEGAL = "OFFSET_ILLEGAL"


_STATUSES = {
    ResponseCode.SUCCESS: PullStatus.FOUND,
    ResponseCode.PULL_NOT_FOUND: PullStatus.NO_NEW_MSG,
    ResponseCode.PULL_RETRY_IMMEDIATELY: PullStatus.NO_MATCHED_MSG,
    ResponseCode.PULL_OFFSET_MOVED: PullStatus.OFFSET_ILLEGAL,
}


def pull_status(code: int) -> PullStatus | None:
    """None: the broker refuses the pull."""
    try:
        return _STATUSES.get(ResponseCode(code))
    except ValueError:
        return None


def corrected_offset(next_begin_offset: int, first_in_memory: int | None) -> int:
    """Where to go on in a queue that ends sooner than it was pulled: nothing that was not consumed is passed over.

    `next_begin_offset`: where the broker says. `first_in_memory`: the first message that was pulled and not consumed.
    """
    return next_begin_offset if first_in_memory is None else min(next_begin_offset, first_in_memory)


#: The pauses between answers that come at once, say nothing, and do not move the offset.
_PAUSE_MIN_S, _PAUSE_MAX_S = 0.02, 1.0
#: An answer that comes later than this after the last one was held by the broker.
_AT_ONCE_S = 1.0


@attrs.define(eq=False, repr=False)
class ImmediateRetries:
    """When to pull again after an answer without messages: at once, as RocketMQ's client does.

    A slave whose master is down may answer PULL_RETRY_IMMEDIATELY time and again, and there is nobody else to ask:
    from the second such answer on there are pauses, which double. Time is an argument, in seconds.
    """

    _pause_s: float = attrs.field(default=0.0, init=False)
    _last_s: float = attrs.field(default=float("-inf"), init=False)

    def pause_s(self, has_moved: bool, now_s: float) -> float:
        """The pause before the next pull. `has_moved`: the answer has moved the offset."""
        is_idle = has_moved or now_s - self._last_s > _AT_ONCE_S + self._pause_s
        was_first, self._last_s = self._pause_s == 0.0, now_s
        if is_idle:
            self._pause_s = 0.0
            return 0.0
        self._pause_s = _PAUSE_MIN_S if was_first else min(self._pause_s * 2, _PAUSE_MAX_S)
        return self._pause_s
