"""Supervisor: a fresh child after each crash that it may restart, everything else goes up; and supervisors of them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pytest
import trio
import trio.testing

from rmq_actors.actors.restart import Exit, Restart, RestartType, affected, covers, first_leaf
from rmq_actors.actors.services.supervisor import NotSupervising
from rmq_actors.actors.system import open_actor_system
from rmq_actors.tracing.recorder import Recorder
from tests.worlds.recording import new_recorder
from tests.worlds.running_store import NoEntropy
from tests.worlds.scripted_service import ScriptedService

Journal = list[tuple[float, str]]
CRASH = OSError("the disk is gone")
ON_OS_ERROR = Restart(on=(OSError,), initial_pause_s=1.0, pause_max_s=3.0, type="transient")


class MostEntropy(NoEntropy):
    """The other end of chance."""

    def random(self) -> float:
        return 1.0


def services(
    journal: Journal, *, crashes: Iterable[Exception | None], works_s: float = 1.0
) -> Iterator[ScriptedService]:
    for number, error in enumerate(crashes):
        yield ScriptedService(f"s{number}", journal, works_s=works_s, fails_with=error)


async def run_until_all_is_over(
    made: Iterator[ScriptedService], restart: Restart, *, recorder: Recorder | None = None, chance: float = 0.0
) -> None:
    entropy = MostEntropy() if chance else NoEntropy()
    async with open_actor_system("s", (recorder or new_recorder()).tracer("node"), entropy=entropy) as system:
        await system.start_supervised("child", lambda: next(made), restart=restart)
        while system.children:
            await trio.sleep(1000)


@pytest.mark.trio
async def test_a_crash_of_a_listed_type_is_made_again_after_a_growing_pause(
    autojump_clock: trio.testing.MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    journal: Journal = []
    recorder = new_recorder()
    made = services(journal, crashes=[CRASH, CRASH, CRASH, CRASH, None])
    await run_until_all_is_over(made, ON_OS_ERROR, recorder=recorder)
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
    assert kinds == ["actor.start", *["actor.crash", "actor.restart"] * 4, "actor.stop"]
    crash, restart = recorder.events[1:3]
    assert (crash.actor, crash.status, crash.attrs) == ("child", "OSError", {"detail": "the disk is gone"})
    assert restart.parent_seq == crash.seq
    assert recorder.events[-1].status == "finished"
    assert caplog.text.count("the disk is gone") == 4


@pytest.mark.trio
async def test_chance_adds_up_to_as_much_again(autojump_clock: trio.testing.MockClock) -> None:
    journal: Journal = []
    await run_until_all_is_over(services(journal, crashes=[CRASH, None]), ON_OS_ERROR, chance=1.0)
    assert journal[1] == (3.0, "s1 started")


@pytest.mark.trio
async def test_another_type_goes_up_at_once(autojump_clock: trio.testing.MockClock) -> None:
    journal: Journal = []
    with pytest.RaisesGroup(pytest.RaisesExc(ValueError, match="a bug")):
        await run_until_all_is_over(services(journal, crashes=[ValueError("a bug"), None]), ON_OS_ERROR)
    assert journal == [(0.0, "s0 started")]


@pytest.mark.trio
async def test_a_listed_type_together_with_another_goes_up(autojump_clock: trio.testing.MockClock) -> None:
    made = services([], crashes=[ExceptionGroup("both", [CRASH, ValueError("a bug")]), None])
    with pytest.RaisesGroup(OSError, ValueError, flatten_subgroups=True):
        await run_until_all_is_over(made, ON_OS_ERROR)


@pytest.mark.trio
async def test_a_failure_before_the_first_start_is_the_callers(autojump_clock: trio.testing.MockClock) -> None:
    service = ScriptedService("s", [], fails_before_start=CRASH)
    async with open_actor_system("s") as system:
        with pytest.RaisesGroup(OSError, allow_unwrapped=True, flatten_subgroups=True):
            await system.start_supervised("child", lambda: service, restart=ON_OS_ERROR)
        assert system.children == ()
        # And the name is free again.
        await system.start_supervised("child", lambda: ScriptedService("s", []))


@pytest.mark.trio
async def test_a_failure_while_starting_again_counts_as_a_crash(autojump_clock: trio.testing.MockClock) -> None:
    journal: Journal = []
    recorder = new_recorder()
    made = iter(
        [
            ScriptedService("first", journal, works_s=1.0, fails_with=CRASH),
            ScriptedService("second", journal, fails_before_start=CRASH),
            ScriptedService("third", journal, works_s=1.0),
        ]
    )
    await run_until_all_is_over(made, ON_OS_ERROR, recorder=recorder)
    assert journal == [(0.0, "first started"), (4.0, "third started"), (5.0, "third ended")]
    assert [event.kind for event in recorder.events] == [
        "actor.start",
        *["actor.crash"] * 2,
        "actor.restart",
        "actor.stop",
    ]


@pytest.mark.trio
async def test_a_group_whose_second_fails_to_start_is_stopped_and_started_again(
    autojump_clock: trio.testing.MockClock,
) -> None:
    journal: Journal = []
    first = iter([ScriptedService("a0", journal), ScriptedService("a1", journal), ScriptedService("a2", journal)])
    second = iter(
        [
            ScriptedService("b0", journal, works_s=1.0, fails_with=CRASH),
            ScriptedService("b1", journal, fails_before_start=CRASH),
            ScriptedService("b2", journal),
        ]
    )
    third = iter([ScriptedService("c0", journal), ScriptedService("c1", journal)])
    async with open_actor_system("s", strategy="one_for_all", restart=ON_OS_ERROR) as system:
        for name, made in (("a", first), ("b", second), ("c", third)):
            await system.start_supervised(name, lambda made=made: next(made))  # type: ignore[misc]
        await trio.sleep_until(10)
        journal.append((10.0, "stop"))
    assert journal[: journal.index((10.0, "stop"))] == [
        (0.0, "a0 started"),
        (0.0, "b0 started"),
        (0.0, "c0 started"),
        (1.0, "c0 asked to stop"),
        (1.0, "c0 ended"),
        (1.0, "a0 asked to stop"),
        (1.0, "a0 ended"),
        (2.0, "a1 started"),
        (2.0, "a1 asked to stop"),
        (2.0, "a1 ended"),
        (4.0, "a2 started"),
        (4.0, "b2 started"),
        (4.0, "c1 started"),
    ]


@pytest.mark.trio
async def test_one_that_was_taken_along_is_made_again_for_its_own_sake_later(
    autojump_clock: trio.testing.MockClock,
) -> None:
    journal: Journal = []
    first = services(journal, crashes=[CRASH, None], works_s=1.0)
    second = iter([ScriptedService("b0", journal), *(ScriptedService(f"b{n}", journal, works_s=2.0) for n in (1, 2))])
    restart = Restart(initial_pause_s=1.0, pause_max_s=1.0)
    async with open_actor_system("s", strategy="rest_for_one", restart=restart) as system:
        await system.start_supervised("a", lambda: next(first), restart=ON_OS_ERROR)
        await system.start_supervised("b", lambda: next(second))
        await trio.sleep(5.5)
    # a crashes at 1 and takes b along; b ends by itself at 4.
    assert [entry for entry in journal if "b" in entry[1] and "started" in entry[1]] == [
        (0.0, "b0 started"),
        (2.0, "b1 started"),
        (5.0, "b2 started"),
    ]


@pytest.mark.trio
async def test_siblings_that_crash_at_one_instant_are_restarted_once(autojump_clock: trio.testing.MockClock) -> None:
    journal: Journal = []
    made = {name: services(journal, crashes=[CRASH, None], works_s=1.0) for name in "ab"}
    async with open_actor_system("s", strategy="one_for_all", restart=ON_OS_ERROR) as system:
        for name, lives in made.items():
            await system.start_supervised(name, lambda lives=lives: next(lives))  # type: ignore[misc]
        await trio.sleep(2.5)
        assert [entry.restarts for entry in system.census().entries] == [1, 1]
    assert journal[:4] == [(0.0, "s0 started"), (0.0, "s0 started"), (2.0, "s1 started"), (2.0, "s1 started")]


@pytest.mark.trio
async def test_a_crash_of_an_earlier_sibling_in_the_pause_takes_the_waiting_along(
    autojump_clock: trio.testing.MockClock,
) -> None:
    journal: Journal = []
    first = services(journal, crashes=[CRASH, None], works_s=1.5)
    second = iter(
        [ScriptedService("b0", journal, works_s=1.0, fails_with=CRASH), ScriptedService("b1", journal, works_s=100)]
    )
    async with open_actor_system("s", strategy="rest_for_one", restart=ON_OS_ERROR) as system:
        await system.start_supervised("a", lambda: next(first))
        await system.start_supervised("b", lambda: next(second))
        await trio.sleep_until(2.75)
    # b crashes at 1 and would start at 2; a crashes at 1.5, so both start at 2.5.
    assert journal[:4] == [(0.0, "s0 started"), (0.0, "b0 started"), (2.5, "s1 started"), (2.5, "b1 started")]


@pytest.mark.trio
async def test_a_stop_while_a_child_waits_for_its_restart_ends_it_at_once(
    autojump_clock: trio.testing.MockClock,
) -> None:
    made = services([], crashes=[CRASH, None])
    restart = Restart(initial_pause_s=100.0, pause_max_s=100.0)
    async with open_actor_system("s") as system:
        await system.start_supervised("child", lambda: next(made), restart=restart)
        await trio.sleep(50)
        assert system.census()["child"].state == "restarting"
    assert trio.current_time() == 50


@pytest.mark.trio
async def test_a_stop_while_a_child_starts_again_cancels_it(autojump_clock: trio.testing.MockClock) -> None:
    journal: Journal = []
    made = iter([*services(journal, crashes=[CRASH]), ScriptedService("slow", journal, start_takes_s=1000.0)])
    async with open_actor_system("s") as system:
        await system.start_supervised("child", lambda: next(made), restart=ON_OS_ERROR)
        await trio.sleep(5)
        assert system.census()["child"].state == "starting"
    assert journal == [(0.0, "s0 started"), (5.0, "slow cancelled")]


@pytest.mark.trio
async def test_one_child_stopped_for_good_while_it_waits_for_its_restart(
    autojump_clock: trio.testing.MockClock,
) -> None:
    made = services([], crashes=[CRASH, None])
    async with open_actor_system("s") as system:
        await system.start_supervised("child", lambda: next(made), restart=ON_OS_ERROR)
        await trio.sleep(1.5)
        system.stop_child("child")
        await trio.sleep(0.1)
        assert system.children == ()


@pytest.mark.trio
async def test_a_supervisor_that_fails_is_started_again_with_its_children(
    autojump_clock: trio.testing.MockClock,
) -> None:
    journal: Journal = []
    first = services(journal, crashes=[None, None], works_s=1000.0)
    second = iter(
        [
            ScriptedService("b0", journal, works_s=1.0, fails_with=CRASH),
            ScriptedService("b1", journal, works_s=1.0, fails_with=CRASH),
            ScriptedService("b2", journal, works_s=1.0, fails_with=CRASH),
            ScriptedService("b3", journal),
        ]
    )
    async with open_actor_system("s", strategy="one_for_all", restart=ON_OS_ERROR) as system:
        pair = await system.supervisor("pair", restart=Restart(restarts_max=1, initial_pause_s=1.0))
        await pair.start_supervised("a", lambda: next(first))
        await pair.start_supervised("b", lambda: next(second))
        await trio.sleep(10)
        census = system.census()
        assert census.paths == ["pair", "pair/a", "pair/b"]
        assert [census[path].restarts for path in census.paths] == [1, 1, 3]
    # b crashes at 1 and 3: one too many for `pair`, which starts again 1 s later; the crash at 5 is the first again.
    assert journal[:7] == [
        (0.0, "s0 started"),
        (0.0, "b0 started"),
        (2.0, "b1 started"),
        (3.0, "s0 cancelled"),
        (4.0, "s1 started"),
        (4.0, "b2 started"),
        (6.0, "b3 started"),
    ]


@pytest.mark.trio
async def test_failures_while_stopping_do_not_keep_others_from_it(autojump_clock: trio.testing.MockClock) -> None:
    class Fails(ScriptedService):
        async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
            await super().run(task_status=task_status)
            raise CRASH

    journal: Journal = []
    with pytest.RaisesGroup(OSError, flatten_subgroups=True):
        async with open_actor_system("s") as system:
            await system.start(ScriptedService("a", journal))
            await system.start(Fails("b", journal))
    assert journal[-2:] == [(0.0, "a asked to stop"), (0.0, "a ended")]


@pytest.mark.trio
async def test_one_that_is_being_spawned_is_left_alone_by_a_group_restart(
    autojump_clock: trio.testing.MockClock,
) -> None:
    journal: Journal = []
    made = services(journal, crashes=[CRASH, None], works_s=1.0)
    async with open_actor_system("s", strategy="one_for_all", restart=ON_OS_ERROR) as system:
        await system.start_supervised("a", lambda: next(made))
        await system.start_supervised("b", lambda: ScriptedService("b", journal, start_takes_s=2.5))
        journal.append((trio.current_time(), "spawned"))
    assert journal[:4] == [(0.0, "s0 started"), (2.0, "s1 started"), (2.5, "b started"), (2.5, "spawned")]


@pytest.mark.trio
async def test_a_child_is_asked_to_stop_once(autojump_clock: trio.testing.MockClock) -> None:
    journal: Journal = []
    async with open_actor_system("s") as system:
        await system.start(ScriptedService("slow", journal, stop_takes_s=2.0))
        system.stop_child("slow")
        await trio.sleep(1)
    assert journal == [(0.0, "slow started"), (0.0, "slow asked to stop"), (2.0, "slow ended")]


@pytest.mark.trio
async def test_a_system_that_stops_takes_no_children(autojump_clock: trio.testing.MockClock) -> None:
    async with trio.open_nursery() as nursery, open_actor_system("s") as system:
        await system.start(ScriptedService("slow", [], stop_takes_s=2.0))

        @nursery.start_soon
        async def _() -> None:
            await trio.sleep(1)
            with pytest.raises(NotSupervising, match="a cannot start: s is not running"):
                await system.start(ScriptedService("a", []))


@pytest.mark.trio
async def test_names(autojump_clock: trio.testing.MockClock) -> None:
    async with open_actor_system("s") as system:
        await system.start(ScriptedService("a", []))
        with pytest.raises(ValueError, match="s has a child a already"):
            await system.start(ScriptedService("a", []))
        for name in ("", "a/b"):
            with pytest.raises(ValueError, match="not empty and has no slash"):
                await system.start(ScriptedService(name, []))
        with pytest.raises(KeyError):
            system.stop_child("b")
    with pytest.raises(NotSupervising, match="a cannot start: s is not running"):
        await system.start(ScriptedService("a", []))


@pytest.mark.parametrize(
    "settings",
    [
        {"type": "always"},
        {"restarts_max": -1},
        {"within_s": 0.0},
        {"initial_pause_s": -1.0},
        {"pause_max_s": float("nan")},
    ],
)
def test_a_wrong_policy_is_refused(settings: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=next(iter(settings))):
        Restart(**settings)  # type: ignore[arg-type]


def test_a_wrong_strategy_is_refused() -> None:
    with pytest.raises(ValueError, match="a strategy is one of one_for_one, one_for_all, rest_for_one, not 'all'"):
        trio.run(open_actor_system("s", strategy="all").__aenter__)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("restart_type", "finished", "crashed"),
    [("permanent", "restart", "restart"), ("transient", "remove", "restart"), ("temporary", "remove", "remove")],
)
def test_verdicts(restart_type: RestartType, finished: str, crashed: str) -> None:
    restart = Restart(on=(OSError,), type=restart_type)
    assert restart.verdict(Exit("finished")) == finished
    assert restart.verdict(Exit("crashed", CRASH)) == crashed
    assert restart.verdict(Exit("crashed", ValueError())) == ("remove" if restart_type == "temporary" else "escalate")
    assert restart.verdict(Exit("stopped")) == "remove"


def test_who_is_taken_along() -> None:
    assert [affected("one_for_one", list("abc"), "b"), affected("one_for_all", list("abc"), "b")] == [["b"], [*"abc"]]
    assert [affected("rest_for_one", list("abc"), child) for child in "abc"] == [[*"abc"], [*"bc"], ["c"]]


def test_which_errors_are_covered() -> None:
    assert covers((OSError,), CRASH)
    assert covers((OSError,), ExceptionGroup("g", [CRASH, ExceptionGroup("h", [ConnectionError()])]))
    assert not covers((OSError,), ExceptionGroup("g", [CRASH, ValueError()]))
    assert not covers((), CRASH)


def test_the_first_leaf_of_a_group() -> None:
    leaf = ValueError("leaf")
    assert first_leaf(ExceptionGroup("a", [ExceptionGroup("b", [leaf]), CRASH])) is leaf
    assert first_leaf(leaf) is leaf
