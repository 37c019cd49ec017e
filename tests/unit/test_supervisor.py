"""Supervised: a fresh object after each crash it may restart, everything else goes up."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pytest
import trio
import trio.testing

from rmq_actors.actors.supervisor import Restart, Supervised, first_leaf
from tests.property.recording import new_recorder
from tests.property.running_store import NoEntropy
from tests.property.scripted_service import ScriptedService

Journal = list[tuple[float, str]]
CRASH = OSError("the disk is gone")


class MostEntropy(NoEntropy):
    """The other end of chance."""

    def random(self) -> float:
        return 1.0


def services(
    journal: Journal, *, crashes: Iterable[Exception | None], works_s: float = 1.0
) -> Iterator[ScriptedService]:
    for number, error in enumerate(crashes):
        yield ScriptedService(f"s{number}", journal, works_s=works_s, fails_with=error)


@pytest.mark.trio
async def test_a_crash_of_a_listed_type_is_made_anew_after_a_growing_pause(
    autojump_clock: trio.testing.MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    journal: Journal = []
    made = services(journal, crashes=[CRASH, CRASH, CRASH, CRASH, None])
    recorder = new_recorder()
    restart = Restart(on=(OSError,), initial_pause_s=1.0, pause_max_s=3.0)
    await Supervised("child", lambda: next(made), restart, recorder.tracer("node"), NoEntropy()).run()
    # 1 s of work each, pauses of 1, 2, 3, 3.
    assert journal == [
        (0.0, "s0 started"),
        (2.0, "s1 started"),
        (5.0, "s2 started"),
        (9.0, "s3 started"),
        (13.0, "s4 started"),
        (14.0, "s4 ended"),
    ]
    kinds = [event.kind for event in recorder.events]
    assert kinds == ["actor.crash", "actor.restart"] * 4
    crash = recorder.events[0]
    assert (crash.status, crash.attrs) == ("OSError", {"detail": "the disk is gone"})
    assert caplog.text.count("the disk is gone") == 4


@pytest.mark.trio
async def test_chance_adds_up_to_as_much_again(autojump_clock: trio.testing.MockClock) -> None:
    journal: Journal = []
    made = services(journal, crashes=[CRASH, None])
    restart = Restart(on=(OSError,), initial_pause_s=1.0)
    await Supervised("child", lambda: next(made), restart, new_recorder().tracer("node"), MostEntropy()).run()
    assert journal[1] == (3.0, "s1 started")


@pytest.mark.trio
async def test_another_type_goes_up_at_once(autojump_clock: trio.testing.MockClock) -> None:
    journal: Journal = []
    made = services(journal, crashes=[ValueError("a bug"), None])
    with pytest.RaisesGroup(pytest.RaisesExc(ValueError, match="a bug"), flatten_subgroups=True):
        await Supervised(
            "child", lambda: next(made), Restart(on=(OSError,)), new_recorder().tracer("node"), NoEntropy()
        ).run()
    assert journal == [(0.0, "s0 started")]


@pytest.mark.trio
async def test_a_listed_type_together_with_another_goes_up(autojump_clock: trio.testing.MockClock) -> None:
    made = services([], crashes=[ExceptionGroup("both", [CRASH, ValueError("a bug")]), None])
    with pytest.RaisesGroup(ValueError, flatten_subgroups=True):
        await Supervised(
            "child", lambda: next(made), Restart(on=(OSError,)), new_recorder().tracer("node"), NoEntropy()
        ).run()


@pytest.mark.trio
@pytest.mark.parametrize("restarts_max", [0, 1, 3])
async def test_too_many_in_a_time_goes_up(autojump_clock: trio.testing.MockClock, restarts_max: int) -> None:
    journal: Journal = []
    made = services(journal, crashes=[CRASH] * 10)
    restart = Restart(on=(OSError,), restarts_max=restarts_max, within_s=1000.0)
    with pytest.RaisesGroup(OSError, flatten_subgroups=True):
        await Supervised("child", lambda: next(made), restart, new_recorder().tracer("node"), NoEntropy()).run()
    assert len(journal) == restarts_max + 1


@pytest.mark.trio
async def test_crashes_long_ago_are_forgotten(autojump_clock: trio.testing.MockClock) -> None:
    journal: Journal = []
    made = services(journal, crashes=[*[CRASH] * 10, None], works_s=100.0)
    restart = Restart(on=(OSError,), restarts_max=1, within_s=60.0, initial_pause_s=1.0)
    await Supervised("child", lambda: next(made), restart, new_recorder().tracer("node"), NoEntropy()).run()
    assert [at for at, _ in journal] == [101.0 * number for number in range(11)] + [1110.0]


@pytest.mark.trio
async def test_a_failure_before_the_first_start_goes_up(autojump_clock: trio.testing.MockClock) -> None:
    service = ScriptedService("s", [], fails_before_start=CRASH)
    with pytest.RaisesGroup(OSError, flatten_subgroups=True):
        await Supervised(
            "child", lambda: service, Restart(on=(OSError,)), new_recorder().tracer("node"), NoEntropy()
        ).run()


@pytest.mark.trio
async def test_a_failure_while_starting_again_counts_as_a_crash(autojump_clock: trio.testing.MockClock) -> None:
    journal: Journal = []
    made = iter(
        [
            ScriptedService("first", journal, works_s=1.0, fails_with=CRASH),
            ScriptedService("second", journal, fails_before_start=CRASH),
            ScriptedService("third", journal, works_s=1.0),
        ]
    )
    restart = Restart(on=(OSError,), initial_pause_s=1.0)
    await Supervised("child", lambda: next(made), restart, new_recorder().tracer("node"), NoEntropy()).run()
    assert journal == [(0.0, "first started"), (4.0, "third started"), (5.0, "third ended")]


@pytest.mark.trio
async def test_it_is_ready_when_its_child_is_and_can_be_cancelled(autojump_clock: trio.testing.MockClock) -> None:
    journal: Journal = []
    service = ScriptedService("s", journal, start_takes_s=2.0)
    supervised = Supervised("s", lambda: service, Restart(on=(OSError,)), new_recorder().tracer("node"), NoEntropy())
    async with trio.open_nursery() as nursery:
        await nursery.start(supervised.run)
        assert trio.current_time() == 2.0
        nursery.cancel_scope.cancel()
    assert journal[-1] == (2.0, "s cancelled")


@pytest.mark.trio
async def test_a_stop_between_two_children_ends_it_at_once(autojump_clock: trio.testing.MockClock) -> None:
    made = services([], crashes=[CRASH, None])
    restart = Restart(on=(OSError,), initial_pause_s=100.0, pause_max_s=100.0)
    supervised = Supervised("child", lambda: next(made), restart, new_recorder().tracer("node"), NoEntropy())
    async with trio.open_nursery() as nursery:
        await nursery.start(supervised.run)
        await trio.sleep(50)
        supervised.request_stop()
    assert trio.current_time() == 50


def test_the_first_leaf_of_a_group() -> None:
    leaf = ValueError("leaf")
    assert first_leaf(ExceptionGroup("a", [ExceptionGroup("b", [leaf]), CRASH])) is leaf
    assert first_leaf(leaf) is leaf
