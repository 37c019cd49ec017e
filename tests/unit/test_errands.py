"""The judge of errands: what disturbs one, and what does not."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from rmq_actors.testing.invariants import Errands
from rmq_actors.tracing.events.run import ClientErrand, FaultBegin, FaultEnd
from sim_net import ClockJump, Kill, Pause
from tests.worlds.cluster_story import MASTER, SLAVE, Story

Step = Callable[[Story], None]


def tell(status: str, operation: str = "held_pull", *, detail: str = "", key: str = "Errand-1") -> Step:
    def play(story: Story) -> None:
        told = ClientErrand(status=status, operation=operation, key=key, detail=detail)
        story.recorder.record(told, MASTER)

    return play


def fault(kind: type[object], *, begins: bool = True, number: int = 0) -> Step:
    def play(story: Story) -> None:
        event = FaultBegin if begins else FaultEnd
        story.recorder.record(event(fault_id=number, fault_kind=kind.__name__, nodes=SLAVE), "")

    return play


def opens(story: Story) -> None:
    story.emit(SLAVE, "store.open", offset=0, size=0)


BEGUN, WRONG = tell("begun"), tell("done", detail="too late")


@pytest.mark.parametrize(
    ("steps", "breaks"),
    [
        ([BEGUN, tell("done")], False),
        ([BEGUN, tell("given_up")], False),
        ([BEGUN, WRONG], True),
        ([BEGUN, tell("unanswered", detail="no answer in time")], True),
        ([fault(Kill), fault(Kill, begins=False), BEGUN, WRONG], True),
        ([fault(Kill), BEGUN, WRONG], False),
        ([fault(Kill), BEGUN, fault(Kill, begins=False), WRONG], False),
        ([BEGUN, fault(Kill), fault(Kill, begins=False), WRONG], False),
        ([BEGUN, opens, WRONG], False),
        ([opens, BEGUN, WRONG], True),
        ([BEGUN, fault(ClockJump), fault(ClockJump, begins=False), WRONG], True),
        ([BEGUN, fault(ClockJump), fault(Kill, number=1), WRONG], False),
        ([fault(ClockJump), tell("begun", "statistics"), tell("done", "statistics", detail="0")], False),
        ([fault(Pause), tell("begun", "routes_stay"), tell("done", "routes_stay", detail="gone")], True),
        ([fault(Pause), BEGUN, WRONG], False),
        ([BEGUN, fault(Kill), tell("begun", key="Errand-2"), fault(Kill, begins=False), WRONG], False),
    ],
)
def test_an_errand_is_judged_where_nothing_disturbs_it(steps: list[Step], breaks: bool) -> None:
    story = Story()
    story.watch(Errands)
    for step in steps:
        step(story)
    assert [each.invariant for each in story.broken] == ["errands"] * breaks
