"""FaultObserver: what the brokers met of a fault is told once, and nothing that they have not met."""

from __future__ import annotations

import pytest

from rmq_actors.testing.observation import FaultObserver
from rmq_actors.tracing.events.ha import HaReport, HaTransfer
from rmq_actors.tracing.events.node import NodeKill
from rmq_actors.tracing.events.run import FaultBegin
from rmq_actors.tracing.events.store import StoreOpen
from sim_net import Delay, Schedule
from tests.worlds.cluster_story import MASTER, SLAVE, Story


@pytest.fixture
def observed() -> tuple[Story, FaultObserver]:
    """A link is slow, and the master sends at 0 s on its first connection."""
    story = Story()
    observer = FaultObserver(story.recorder, Schedule((Delay(0, 99, MASTER, SLAVE, 0.1),)), story.view)
    story.recorder.subscribe(observer.observe, observer.kinds)
    story.recorder.record(FaultBegin(fault_id=0, fault_kind="Delay", nodes=f"{MASTER}, {SLAVE}"))
    story.recorder.record(HaTransfer(conn_id=1, offset=0, size=10), MASTER)
    return story, observer


def test_a_report_that_comes_late_shows_the_delay(observed: tuple[Story, FaultObserver]) -> None:
    story, observer = observed
    story.now_s += 0.2
    story.recorder.record(HaReport(conn_id=1, offset=0), MASTER)
    assert observer.observed == {"delay"}


@pytest.mark.parametrize("other", ["a master that has begun again", "another master"])
def test_a_connection_of_the_same_number_is_another(observed: tuple[Story, FaultObserver], other: str) -> None:
    story, observer = observed
    node = SLAVE if other == "another master" else MASTER
    if node == MASTER:
        story.recorder.record(NodeKill(), MASTER)
        story.recorder.record(StoreOpen(offset=0, status="clean"), MASTER)
    story.now_s += 10
    story.recorder.record(HaTransfer(conn_id=1, offset=0, size=10), node)
    story.now_s += 0.01
    story.recorder.record(HaReport(conn_id=1, offset=0), node)
    assert "delay" not in observer.observed
