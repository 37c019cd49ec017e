"""A delayed message that comes late while nothing is wrong."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from rmq_actors.testing.invariants.delayed import LATE_MAX_MS, Delayed
from rmq_actors.tracing.events.run import FaultBegin, FaultEnd
from rmq_actors.wire.dispatch_request import SCHEDULE_TOPIC
from rmq_actors.wire.record import Message, encode_message
from tests.worlds.cluster_story import MASTER, SLAVE, Story

_PROPERTIES = {"KEYS": "a", "DELAY": "1", "REAL_TOPIC": "Chaos", "REAL_QID": "0"}


def _record(topic: str, queue_offset: int = 0) -> bytes:
    encoded = encode_message(Message(topic, b"body", properties=_PROPERTIES))
    encoded.place(queue_offset=queue_offset, physical_offset=0, store_timestamp_ms=0)
    return bytes(encoded.data)


def _story() -> Story:
    """A message was delayed by 1 s at 10 s."""
    story = Story()
    story.watch(Delayed)
    story.emit(MASTER, "store.term", term=1, status="promoted", leads=True)
    story.now_s = 10.0
    story.append(MASTER, _record(SCHEDULE_TOPIC))
    return story


def _fault(story: Story, kind: type[FaultBegin | FaultEnd], fault_id: int = 1) -> None:
    story.recorder.record(kind(fault_id=fault_id, fault_kind="Hold", nodes=MASTER))


@pytest.mark.parametrize("late_ms", [0, LATE_MAX_MS - 1, LATE_MAX_MS + 1])
def test_a_message_that_comes_late_is_told(late_ms: int) -> None:
    story = _story()
    story.now_s = 11.0 + late_ms / 1000
    story.append(MASTER, _record("Chaos"))
    assert bool(story.broken) is (late_ms > LATE_MAX_MS)


def _within_a_fault(story: Story) -> None:
    _fault(story, FaultBegin)


def _within_one_of_two_faults(story: Story) -> None:
    _fault(story, FaultBegin)
    _fault(story, FaultBegin, 2)
    _fault(story, FaultEnd)


def _after_a_fault(story: Story) -> None:
    _fault(story, FaultBegin)
    story.now_s += LATE_MAX_MS / 1000
    _fault(story, FaultEnd)


def _after_a_start(story: Story) -> None:
    story.emit(MASTER, "store.open", status="clean", offset=len(story.logs[MASTER]))


def _after_a_change_of_role(story: Story) -> None:
    story.emit(SLAVE, "broker.role", status="changed", offset=0, role="SLAVE", detail="", attributes={"broker.id": 1})


def _sent_again(story: Story) -> None:
    """Its producer had no answer. The second one is due later, and is told from the first by nothing."""
    story.append(MASTER, _record(SCHEDULE_TOPIC, 1))


@pytest.mark.parametrize(
    "disturb",
    [
        _within_a_fault,
        _within_one_of_two_faults,
        _after_a_fault,
        _after_a_start,
        _after_a_change_of_role,
        _sent_again,
    ],
)
def test_where_something_was_wrong_it_may_come_late(disturb: Callable[[Story], None]) -> None:
    story = _story()
    story.now_s = 14.0
    disturb(story)
    story.now_s += 1.0
    story.append(MASTER, _record("Chaos"))
    assert story.broken == []


def test_a_fault_that_is_over_for_long_excuses_nothing() -> None:
    story = _story()
    _fault(story, FaultBegin)
    _fault(story, FaultEnd)
    story.now_s = 11.1 + LATE_MAX_MS / 1000
    story.append(MASTER, _record("Chaos"))
    assert [each.invariant for each in story.broken] == ["delayed"]
