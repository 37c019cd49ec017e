"""When a slave goes on following its master, asks it again, or stops: the decisions of HAClient, which drives them.

Times are seconds of one monotonic clock.
"""

from __future__ import annotations

import math

import attrs

#: How long a master that serves its log, but refuses every question, is tried again before it is followed unasked.
LOOKUP_PATIENCE_S = 10.0
#: The same for one that says nothing at all: longer than any stall, as a stall may hide that its log is another.
SILENCE_PATIENCE_S = 60.0
#: The pause before a slave looks again into a halt that no truncation can end, or up to a third less: the master may
#: have had nothing to compare with.
ASK_AGAIN_S = 45.0

#: Reasons of halts: the master has something else than this log; it has deleted what comes next in this log.
DIVERGED = "diverged"
OFFSET_GONE = "offset_gone"


@attrs.frozen
class Halt:
    """Why a slave has stopped following `master`: another attempt would end in the same way.

    `reason` is short and stable. This log ends at `end_offset`; up to `common_end` the master has the same, if that is
    known.
    """

    reason: str
    detail: str
    master: str
    end_offset: int
    common_end: int | None = None

    @property
    def may_end(self) -> bool:
        """Whether the same question to the same master may be answered in another way later."""
        return self.common_end is None and self.reason in {DIVERGED, OFFSET_GONE}

    def ask_again_after_s(self, chance: float) -> float:
        """How long to wait before the master is asked again, with `chance` in [0, 1) as the jitter; infinity: never."""
        return ASK_AGAIN_S * (1 - chance / 3) if self.may_end else math.inf


@attrs.define(eq=False, repr=False)
class Patience:
    """How long a slave waits for the answers of one master, which it would rather ask than follow unasked.

    The time begins with the first question that fails. It begins again when a question fails in another way, when the
    master answers, and when it is away: it may have another log when it is back, and serves that before it answers.
    """

    _since_s: float = attrs.field(default=0.0, init=False)
    #: How questions fail: with silence, or with a refusal. None while none has failed.
    _is_silent: bool | None = attrs.field(default=None, init=False)

    def failed(self, now: float, *, is_silent: bool) -> bool:
        """A question has failed; returns whether the master is to be asked again before it is followed."""
        if self._is_silent is not is_silent:
            self._is_silent, self._since_s = is_silent, now
        return now - self._since_s < (SILENCE_PATIENCE_S if is_silent else LOOKUP_PATIENCE_S)

    def answered(self) -> None:
        """The master has answered, whatever it said."""
        self._is_silent = None

    def absent(self) -> None:
        """The master could not be reached."""
        self._is_silent = None
