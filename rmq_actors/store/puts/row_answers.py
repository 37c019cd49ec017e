"""The answers to rows that were put together, as their disk and their slaves confirm them: from the first one on."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import attrs
import trio

from rmq_actors.protocols.put_completion import PutStatus
from rmq_actors.store.store_stats import StoreStatsService
from rmq_actors.tracing.events.store import PutEnd
from rmq_actors.tracing.recorder import Tracer

#: Told which rows are answered, from one number to before another, and how. What it returns is called after all answers
#: of the same step: see `WaitingPuts`.
TellRows = Callable[[int, int, PutStatus], Callable[[], None] | None]


@attrs.define(eq=False, repr=False)
class RowAnswers:
    """The answers of one `put_rows`. `may_wait`: not all rows have been answered PUT_OK at once.

    Nothing of the rows is kept here: thousands may wait.
    """

    may_wait: bool
    #: Those that nobody was told.
    _untold: list[tuple[int, int, PutStatus]] = attrs.field(factory=list, init=False)
    _tell: TellRows | None = attrs.field(default=None, init=False)

    def answered(self, begin: int, end: int, status: PutStatus) -> Callable[[], None] | None:
        """Some rows are answered; what is to be called after all answers of this step."""
        if self._tell is not None:
            return self._tell(begin, end, status)
        self._untold.append((begin, end, status))
        return None

    def tell(self, tell: TellRows) -> None:
        """Call `tell` with the answers, each in the step that gives it. It must not raise."""
        self._tell = tell
        untold, self._untold = self._untold, []
        for finish in dict.fromkeys([tell(*each) for each in untold]):
            if finish is not None:
                finish()


@attrs.frozen(eq=False)
class WaitingRows:
    """Rows that wait for the same things, from row number `begin` on; a `WaitingPuts`."""

    _answers: RowAnswers
    _begin: int
    end_offsets: Sequence[int]
    _msg_id: int
    _tracer: Tracer
    _stats: StoreStatsService
    _arrived: float

    def answered(self, status: PutStatus, begin: int = 0, end: int = 1) -> Callable[[], None] | None:
        """See `WaitingPuts`."""
        first_id, last_id = self._msg_id + begin, self._msg_id + end - 1
        self._tracer.emit(
            PutEnd(
                msg_id=first_id,
                msg_id_last=last_id if last_id > first_id else None,
                offset=self.end_offsets[end - 1],
                status=status.value,
            )
        )
        self._stats.puts_took(1000 * (trio.current_time() - self._arrived), end - begin)
        return self._answers.answered(self._begin + begin, self._begin + end, status)
