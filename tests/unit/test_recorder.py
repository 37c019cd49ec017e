"""Recorder and Tracer: numbers, limits, and what may be recorded."""

from __future__ import annotations

import pytest

from rmq_actors.tracing.event import Event, RunInfo, UnknownKind
from rmq_actors.tracing.events.actor import ActorStart, ActorStop
from rmq_actors.tracing.events.node import NodeBoot
from rmq_actors.tracing.events.run import RunStart
from rmq_actors.tracing.events.store import LogRoll
from rmq_actors.tracing.recorder import Recorder, TraceLimitExceeded

RUN = RunInfo("test", "recorder", 7)


def recorder(*, keep: bool = True, events_max: int = 3) -> Recorder:
    return Recorder(RUN, lambda: (5, 6), keep=keep, events_max=events_max)


def test_events_are_numbered_timed_kept_and_told() -> None:
    told: list[Event] = []
    recording = recorder()
    assert recording.record(RunStart()) == 0
    recording.subscribe(told.append)
    recording.tracer("node").emit(LogRoll(offset=4096))
    assert [(event.seq, event.sim_time_ns, event.wall_time_ns, event.node) for event in recording.events] == [
        (0, 5, 6, ""),
        (1, 5, 6, "node"),
    ]
    assert told == recording.events[1:]


class Fields(Event):
    """Without a kind: it lends its fields."""

    conn_id: int


def test_what_has_no_kind_is_refused() -> None:
    recording = recorder()
    with pytest.raises(UnknownKind, match="Fields has no kind"):
        recording.record(Fields(conn_id=1))
    with pytest.raises(UnknownKind, match=r"log\.rolled"):
        recording.subscribe(recording.events.append, ["log.rolled"])
    assert recording.events == []


def test_an_event_is_recorded_once() -> None:
    """Its place in the trace would be another one."""
    recording = recorder()
    event = LogRoll(offset=0)
    recording.record(event)
    with pytest.raises(ValueError, match=r"log\.roll is recorded a second time, it has the seq 0"):
        recording.record(event)
    assert [event.seq for event in recording.events] == [0]


def test_a_listener_is_told_of_the_kinds_it_asked_for() -> None:
    recording = recorder(events_max=10)
    offsets: list[int] = []
    names: list[str] = []
    everything: list[str] = []
    recording.subscribe(lambda event: offsets.append(event.offset), [LogRoll])
    recording.subscribe(lambda event: names.append(event.kind), ["log.roll", "run.start"])
    recording.record(LogRoll(offset=1))
    recording.subscribe(lambda event: everything.append(event.kind))
    for event in (RunStart(), LogRoll(offset=2), ActorStart()):
        recording.record(event)
    assert (offsets, names) == ([1, 2], ["log.roll", "run.start", "log.roll"])
    assert everything == ["run.start", "log.roll", "actor.start"]


def test_the_actor_is_the_one_of_the_kind_unless_another_is_told() -> None:
    recording = recorder()
    recording.record(LogRoll(offset=1))
    recording.record(LogRoll(offset=2), actor="story")
    assert [event.actor for event in recording.events] == ["CommitLog", "story"]


def test_lives_of_a_node_are_counted_from_its_boots() -> None:
    recording = recorder(events_max=10)
    a, b = recording.tracer("a"), recording.tracer("b")
    for tracer, event in ((a, ActorStart()), (a, NodeBoot()), (a, ActorStart()), (b, NodeBoot()), (a, NodeBoot())):
        tracer.emit(event)
    a.emit(ActorStop())
    assert [(event.node, event.life) for event in recording.events] == [
        ("a", None),
        ("a", 1),
        ("a", 1),
        ("b", 1),
        ("a", 2),
        ("a", 2),
    ]


def test_what_is_kept_is_bounded() -> None:
    recording = recorder()
    for _ in range(3):
        recording.record(RunStart())
    with pytest.raises(TraceLimitExceeded, match="run recorder seed 7: more than 3 events"):
        recording.record(RunStart())
    assert len(recording.events) == 3


def test_a_recorder_that_keeps_nothing_has_no_bound() -> None:
    """A broker that is embedded for weeks must not die of its trace."""
    seqs: list[int] = []
    recording = recorder(keep=False)
    recording.subscribe(lambda event: seqs.append(event.seq))
    for _ in range(10):
        recording.record(RunStart())
    assert seqs == list(range(10))
    assert recording.events == []


def test_a_fenced_tracer_is_silent_and_others_are_not() -> None:
    recording = recorder()
    dead, alive = recording.tracer("node"), recording.tracer("node")
    dead.fence()
    dead.emit(ActorStop(), "HAClient")
    alive.emit(ActorStart(), "HAClient")
    assert [(event.seq, event.kind) for event in recording.events] == [(0, "actor.start")]
