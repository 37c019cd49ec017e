"""What an event tells beyond when, where and of what kind."""

from __future__ import annotations

from rmq_actors.tracing.event import RUN_COLUMNS
from rmq_actors.tracing.export.causes import Row

_ELSEWHERE = RUN_COLUMNS | {"seq", "sim_time_ns", "wall_time_ns", "node", "actor", "kind", "attrs", "life"}


def facts_of(event: Row) -> dict[str, object]:
    """Columns that the kind fills, then its attributes."""
    own = {name: value for name, value in event.items() if name not in _ELSEWHERE and value is not None}
    return own | dict(event.get("attrs") or {})
