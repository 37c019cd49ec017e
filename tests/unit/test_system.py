"""open_actor_system: starts in order, stops in reverse, gives each a budget, fails as one."""

from __future__ import annotations

import pytest
import trio
import trio.testing

from rmq_actors.actors.services.child import ActorEnded
from rmq_actors.actors.system import open_actor_system
from tests.worlds.recording import new_recorder, new_tracer
from tests.worlds.scripted_service import ScriptedService

Journal = list[tuple[float, str]]


@pytest.mark.trio
async def test_starts_in_order_and_stops_in_reverse(autojump_clock: trio.testing.MockClock) -> None:
    journal: Journal = []
    recorder = new_recorder()
    async with open_actor_system("broker-a", recorder.tracer("node")) as system:
        for name in ("a", "b", "c"):
            await system.start(ScriptedService(name, journal, start_takes_s=1.0, stop_takes_s=2.0))
        assert system.census().paths == ["a", "b", "c"]
    assert journal == [
        (1.0, "a started"),
        (2.0, "b started"),
        (3.0, "c started"),
        (3.0, "c asked to stop"),
        (5.0, "c ended"),
        (5.0, "b asked to stop"),
        (7.0, "b ended"),
        (7.0, "a asked to stop"),
        (9.0, "a ended"),
    ]
    assert [(event.kind, event.actor) for event in recorder.events] == [
        *[("actor.start", name) for name in "abc"],
        *[("actor.stop", name) for name in "cba"],
    ]


@pytest.mark.trio
async def test_one_that_ignores_the_stop_is_named_and_cancelled(
    autojump_clock: trio.testing.MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    journal: Journal = []
    async with open_actor_system("broker-a", new_tracer(), stop_budget_s=5.0) as system:
        await system.start(ScriptedService("a", journal))
        await system.start(ScriptedService("deaf", journal, stop_takes_s=1000.0))
    assert journal[2:] == [
        (0.0, "deaf asked to stop"),
        (5.0, "deaf cancelled"),
        (5.0, "a asked to stop"),
        (5.0, "a ended"),
    ]
    assert [record.getMessage() for record in caplog.records] == ["broker-a: deaf did not stop within 5 s"]


@pytest.mark.trio
async def test_a_failure_of_one_ends_all(autojump_clock: trio.testing.MockClock) -> None:
    journal: Journal = []
    with pytest.RaisesGroup(pytest.RaisesExc(ValueError, match="a bug"), flatten_subgroups=True):
        async with open_actor_system("broker-a", new_tracer()) as system:
            await system.start(ScriptedService("a", journal))
            await system.start(ScriptedService("b", journal, works_s=3.0, fails_with=ValueError("a bug")))
            await trio.sleep_forever()
    assert (3.0, "a cancelled") in journal
    assert not any("asked to stop" in what for _, what in journal)


@pytest.mark.trio
async def test_a_failure_while_starting_is_the_callers(autojump_clock: trio.testing.MockClock) -> None:
    journal: Journal = []
    async with open_actor_system("broker-a", new_tracer()) as system:
        await system.start(ScriptedService("a", journal))
        with pytest.RaisesGroup(OSError, allow_unwrapped=True, flatten_subgroups=True):
            await system.start(ScriptedService("b", journal, fails_before_start=OSError("in use")))
        assert system.census().paths == ["a"]
        await trio.sleep(1)
    assert journal == [(0.0, "a started"), (1.0, "a asked to stop"), (1.0, "a ended")]


@pytest.mark.trio
async def test_an_error_in_the_block_cancels(autojump_clock: trio.testing.MockClock) -> None:
    journal: Journal = []
    with pytest.RaisesGroup(RuntimeError, flatten_subgroups=True):
        async with open_actor_system("broker-a", new_tracer()) as system:
            await system.start(ScriptedService("a", journal, stop_takes_s=1000.0))
            raise RuntimeError("the block")
    assert journal == [(0.0, "a started"), (0.0, "a cancelled")]


@pytest.mark.trio
async def test_one_that_ends_unasked_ends_the_system(autojump_clock: trio.testing.MockClock) -> None:
    journal: Journal = []
    with pytest.RaisesGroup(pytest.RaisesExc(ActorEnded, match="^short ended, and nobody had asked it to$")):
        async with open_actor_system("broker-a", new_tracer()) as system:
            await system.start(ScriptedService("short", journal, works_s=1.0))
            await system.start(ScriptedService("long", journal))
            await trio.sleep_forever()
    assert trio.current_time() == 1
    assert journal[-1] == (1.0, "long cancelled")
