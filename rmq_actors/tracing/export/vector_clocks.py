"""Vector clocks: for each event, after how many events of each line it came for certain.

Pure. A line is a node, or whatever else is in an order by itself. An event comes after those of its own line before it,
and after all that its cause came after. So event a came before event b if b's clock at a's line is at least a's.
"""

from __future__ import annotations

from collections.abc import Mapping

import attrs

Clock = Mapping[str, int]


@attrs.define(eq=False, repr=False)
class VectorClocks:
    """Give it events in an order in which each comes after its causes."""

    _now: dict[str, Clock] = attrs.field(factory=dict[str, Clock], init=False)

    def next(self, line: str, cause: Clock | None = None) -> Clock:
        """The clock of a line's next event; `cause`: that of the event of which it comes."""
        clock = dict(self._now.get(line, ()))
        if cause is not None:
            for other, count in cause.items():
                clock[other] = max(count, clock.get(other, 0))
        clock[line] = clock.get(line, 0) + 1
        self._now[line] = clock
        return clock


def came_before(first: Clock, line: str, second: Clock) -> bool:
    """Whether the event of `line` with the first clock came before the event with the second, or is the same."""
    return first[line] <= second.get(line, 0)
