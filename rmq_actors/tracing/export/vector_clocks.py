"""Vector clocks: for each event, after how many events of each line it came for certain.

Pure. A line is a node, or whatever else is in an order by itself. An event comes after those of its own line before it,
and after all that its cause came after. So event a came before event b if b's clock at a's line is at least a's.
"""

from __future__ import annotations

from collections.abc import Mapping

import attrs

from rmq_actors.tracing.export.causes import EventId

Clock = Mapping[str, int]


@attrs.define(eq=False, repr=False)
class VectorClocks:
    """Give it events in an order in which each comes after its causes."""

    _now: dict[str, dict[str, int]] = attrs.field(factory=dict[str, dict[str, int]], init=False)
    #: The clocks of events that others may come of.
    _sent: dict[EventId, dict[str, int]] = attrs.field(factory=dict[EventId, dict[str, int]], init=False)

    def next(self, event: EventId, cause: EventId | None = None, *, is_sent: bool = False) -> Clock:
        """The clock of an event, which comes of `cause`. Only what `is_sent` may be a cause later."""
        line = event[0]
        clock = dict(self._now.get(line, ()))
        if cause is not None:
            for other, count in self._sent[cause].items():
                clock[other] = max(count, clock.get(other, 0))
        clock[line] = clock.get(line, 0) + 1
        self._now[line] = clock
        if is_sent:
            self._sent[event] = clock
        return clock


def came_before(first: Clock, line: str, second: Clock) -> bool:
    """Whether the event of `line` with the first clock came before the event with the second, or is the same."""
    return first[line] <= second.get(line, 0)
