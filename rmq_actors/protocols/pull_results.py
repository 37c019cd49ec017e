"""What an answer to a pull means (PullStatus), by its code."""

from __future__ import annotations

import enum

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
