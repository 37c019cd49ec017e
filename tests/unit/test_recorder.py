"""Recorder and Tracer: numbers, limits, and what may be recorded."""

from __future__ import annotations

import pytest

from rmq_actors.tracing.event import Event, RunInfo
from rmq_actors.tracing.recorder import Recorder, TraceLimitExceeded, UnknownKind

RUN = RunInfo("test", "recorder", 7)


def recorder(*, keep: bool = True, events_max: int = 3) -> Recorder:
    return Recorder(RUN, lambda: (5, 6), keep=keep, events_max=events_max)


def test_events_are_numbered_timed_kept_and_told() -> None:
    told: list[Event] = []
    recording = recorder()
    assert recording.record("", "scenario", "run.start") == 0
    recording.subscribe(told.append)
    recording.tracer("node").emit("log.roll", "CommitLog", offset=4096)
    assert [(event.seq, event.sim_time_ns, event.wall_time_ns, event.node) for event in recording.events] == [
        (0, 5, 6, ""),
        (1, 5, 6, "node"),
    ]
    assert told == recording.events[1:]


def test_a_kind_that_is_not_registered_is_refused() -> None:
    recording = recorder()
    with pytest.raises(UnknownKind, match=r"log\.rolled"):
        recording.record("", "CommitLog", "log.rolled")
    assert recording.events == []


def test_what_is_kept_is_bounded() -> None:
    recording = recorder()
    for _ in range(3):
        recording.record("", "scenario", "run.start")
    with pytest.raises(TraceLimitExceeded, match="run recorder seed 7: more than 3 events"):
        recording.record("", "scenario", "run.start")
    assert len(recording.events) == 3


def test_a_recorder_that_keeps_nothing_has_no_bound() -> None:
    """A broker that is embedded for weeks must not die of its trace."""
    seqs: list[int] = []
    recording = recorder(keep=False)
    recording.subscribe(lambda event: seqs.append(event.seq))
    for _ in range(10):
        recording.record("", "scenario", "run.start")
    assert seqs == list(range(10))
    assert recording.events == []


def test_a_fenced_tracer_is_silent_and_others_are_not() -> None:
    recording = recorder()
    dead, alive = recording.tracer("node"), recording.tracer("node")
    dead.fence()
    dead.emit("actor.stop", "HAClient")
    alive.emit("actor.start", "HAClient")
    assert [(event.seq, event.kind) for event in recording.events] == [(0, "actor.start")]
