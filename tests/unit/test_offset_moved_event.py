"""How many messages about moved offsets a broker writes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmq_actors.protocols import offset_moved_event
from rmq_actors.protocols.offset_moved_event import EVENT_INTERVAL_S, OffsetMovedEvents


@given(st.lists(st.tuples(st.sampled_from("GH"), st.integers(0, 1), st.floats(0, EVENT_INTERVAL_S))))
def test_each_group_and_queue_has_one_in_an_interval_and_all_have_as_many_as_there_may_be(
    pulls: list[tuple[str, int, float]],
) -> None:
    events, now_s, told = OffsetMovedEvents(), 0.0, list[tuple[float, str, int]]()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(offset_moved_event, "EVENTS_MAX", 3)
        for group, queue_id, passes_s in pulls:
            now_s += passes_s
            late = [(of, queue) for at_s, of, queue in told if now_s - at_s < EVENT_INTERVAL_S]
            is_told = events.is_to_be_told(group, "T", queue_id, now_s)
            assert is_told == ((group, queue_id) not in late and len(late) < 3)
            if is_told:
                told.append((now_s, group, queue_id))
