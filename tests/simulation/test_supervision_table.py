"""Supervision as a table: every strategy, restart type, intensity and way to end, in virtual time.

Children a, b and c start at 0 s; b ends at 1 s. The tables are written by hand: "b-" is the end of an incarnation, "b+"
the start of the next. The system stops at 10 s.
"""

from __future__ import annotations

import itertools
from collections.abc import Awaitable, Callable
from typing import Literal

import attrs
import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st

from rmq_actors.actors.messages.actor import ActorSupervisor
from rmq_actors.actors.messages.ref import ActorRef
from rmq_actors.actors.restart import Restart, RestartType, Strategy, first_leaf
from rmq_actors.actors.services.child import ActorEnded
from rmq_actors.actors.system import open_actor_system
from tests.worlds.actors_in_world import Crash, Finish, Journal, Obedient, Order, PlannedCrash, run_in_world

End = Literal["finished", "crashed", "stopped"]

STRATEGIES: tuple[Strategy, ...] = ("one_for_one", "one_for_all", "rest_for_one")
PAUSE_S = 0.5

#: Whether b is made again.
RESTARTS: dict[tuple[RestartType, End], bool] = {
    ("permanent", "finished"): True,
    ("permanent", "crashed"): True,
    ("permanent", "stopped"): False,
    ("transient", "finished"): False,
    ("transient", "crashed"): True,
    ("transient", "stopped"): False,
    ("temporary", "finished"): False,
    ("temporary", "crashed"): False,
    ("temporary", "stopped"): False,
}

#: What happens after 0 s, by time, with and without a restart of b.
WITH_RESTART: dict[Strategy, dict[float, str]] = {
    "one_for_one": {1.0: "b-", 1.5: "b+", 10.0: "c- b- a-"},
    "one_for_all": {1.0: "b- c- a-", 1.5: "a+ b+ c+", 10.0: "c- b- a-"},
    "rest_for_one": {1.0: "b- c-", 1.5: "b+ c+", 10.0: "c- b- a-"},
}
WITHOUT_RESTART = {1.0: "b-", 10.0: "c- a-"}


StartChildren = Callable[[ActorSupervisor, Journal, End], Awaitable[None]]


def by_time(journal: Journal) -> dict[float, str]:
    return {
        time: " ".join(what for _, what in entries) for time, entries in itertools.groupby(journal, key=lambda e: e[0])
    }


@attrs.define(eq=False)
class ObedientService:
    """A service that ends at `ends_at` in the way it is told to, the first time only."""

    name: str
    journal: Journal
    end: End | None
    _stopping: trio.Event = attrs.field(factory=trio.Event, init=False)

    def note(self, what: str) -> None:
        self.journal.append((trio.current_time(), f"{self.name}{what}"))

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        self.note("+")
        task_status.started()
        try:
            with trio.move_on_at(1.0 if trio.current_time() < 1.0 and self.end else float("inf")):
                await self._stopping.wait()
            if not self._stopping.is_set() and self.end == "crashed":
                raise PlannedCrash
        finally:
            self.note("-")

    def request_stop(self) -> None:
        self._stopping.set()


async def three_actors(supervisor: ActorSupervisor, journal: Journal, end: End) -> None:
    refs: dict[str, ActorRef[Order]] = {}
    for name in "abc":
        refs[name] = await supervisor.spawn(name, lambda name=name: Obedient(name, journal))  # type: ignore[misc]
    await trio.sleep_until(1.0)
    if end == "stopped":
        refs["b"].stop()
    else:
        await refs["b"].tell(Crash() if end == "crashed" else Finish())


async def three_services(supervisor: ActorSupervisor, journal: Journal, end: End) -> None:
    for name in "abc":
        ends = end if name == "b" and end != "stopped" else None
        await supervisor.start_supervised(name, lambda name=name, ends=ends: ObedientService(name, journal, ends))  # type: ignore[misc]
    await trio.sleep_until(1.0)
    if end == "stopped":
        supervisor.stop_child("b")


@pytest.mark.parametrize("children", [three_actors, three_services])
@pytest.mark.parametrize(("restart_type", "end"), RESTARTS)
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_strategy_by_restart_type_by_end(
    strategy: Strategy, restart_type: RestartType, end: End, children: StartChildren
) -> None:
    journal: Journal = []
    restart = Restart(type=restart_type, initial_pause_s=PAUSE_S)

    async def main() -> None:
        async with open_actor_system("s", strategy=strategy, restart=restart) as system:
            await children(system, journal, end)
            await trio.sleep_until(10.0)

    run_in_world(main)
    happened = by_time(journal)
    assert happened.pop(0.0) == "a+ b+ c+"
    assert happened == (WITH_RESTART[strategy] if RESTARTS[restart_type, end] else WITHOUT_RESTART)


#: A temporary sibling that a restart takes along is not made again.
WITH_TEMPORARY_SIBLINGS: dict[Strategy, dict[float, str]] = {
    "one_for_one": {1.0: "b-", 1.5: "b+", 10.0: "c- b- a-"},
    "one_for_all": {1.0: "b- c- a-", 1.5: "b+", 10.0: "b-"},
    "rest_for_one": {1.0: "b- c-", 1.5: "b+", 10.0: "b- a-"},
}


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_temporary_siblings_of_a_restart(strategy: Strategy) -> None:
    journal: Journal = []

    async def main() -> None:
        async with open_actor_system("s", strategy=strategy, restart=Restart(initial_pause_s=PAUSE_S)) as system:
            refs = {}
            for name in "abc":
                restart = None if name == "b" else Restart(type="temporary")
                refs[name] = await system.spawn(name, lambda name=name: Obedient(name, journal), restart=restart)  # type: ignore[misc]
            await trio.sleep_until(1.0)
            await refs["b"].tell(Crash())
            await trio.sleep_until(10.0)

    run_in_world(main)
    happened = by_time(journal)
    assert happened.pop(0.0) == "a+ b+ c+"
    assert happened == WITH_TEMPORARY_SIBLINGS[strategy]


@attrs.frozen
class Row:
    """b crashes when it has lived for each of `lives_s`; pauses are 1 s. When it starts, and whether it goes up."""

    restarts_max: int
    within_s: float
    lives_s: tuple[float, ...]
    starts_s: tuple[float, ...]
    goes_up: bool


INTENSITY = (
    Row(0, 60.0, (1.0,), (0.0,), goes_up=True),
    Row(1, 60.0, (1.0,), (0.0, 2.0), goes_up=False),
    Row(1, 60.0, (1.0, 1.0), (0.0, 2.0), goes_up=True),
    Row(2, 60.0, (1.0, 1.0, 1.0), (0.0, 2.0, 4.0), goes_up=True),
    # The crashes are at 1, 12 and 23: never two in 10 s.
    Row(1, 10.0, (1.0, 10.0, 10.0), (0.0, 2.0, 13.0, 24.0), goes_up=False),
    # At 1, 11: the first is 10 s old, which no longer counts.
    Row(1, 10.0, (1.0, 9.0), (0.0, 2.0, 12.0), goes_up=False),
    Row(1, 10.0, (1.0, 8.5), (0.0, 2.0), goes_up=True),
)


@attrs.define(eq=False)
class Mortal:
    """A service that lives for the next of `lives_s`, then crashes or, if it `finishes`, returns; at last for ever."""

    name: str
    lives_s: list[float]
    starts_s: list[float]
    finishes: bool = False
    _stopping: trio.Event = attrs.field(factory=trio.Event, init=False)

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        self.starts_s.append(trio.current_time())
        task_status.started()
        with trio.move_on_after(self.lives_s.pop(0) if self.lives_s else float("inf")):
            await self._stopping.wait()
        if not self.finishes and not self._stopping.is_set():
            raise PlannedCrash(self.name)

    def request_stop(self) -> None:
        self._stopping.set()


def live(restart: Restart, lives_s: tuple[float, ...], strategy: Strategy, *, finishes: bool = False) -> Row:
    """What became of b, between a and c."""
    starts: list[float] = []
    lives = list(lives_s)

    async def main() -> None:
        async with open_actor_system("s", strategy=strategy) as system:
            await system.start_supervised("a", lambda: Mortal("a", [], []))
            await system.start_supervised("b", lambda: Mortal("b", lives, starts, finishes), restart=restart)
            await system.start_supervised("c", lambda: Mortal("c", [], []))
            await trio.sleep_until(1000.0)

    goes_up = False
    try:
        run_in_world(main)
    except ExceptionGroup as group:
        cause = first_leaf(group)
        assert isinstance(cause, ActorEnded if finishes else PlannedCrash)
        goes_up = True
    return Row(restart.restarts_max, restart.within_s, lives_s, tuple(starts), goes_up)


@pytest.mark.parametrize("finishes", [False, True])
@pytest.mark.parametrize("row", INTENSITY)
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_strategy_by_intensity(strategy: Strategy, row: Row, finishes: bool) -> None:
    restart = Restart(restarts_max=row.restarts_max, within_s=row.within_s, initial_pause_s=1.0, pause_max_s=1.0)
    assert live(restart, row.lives_s, strategy, finishes=finishes) == row


@pytest.mark.parametrize("row", INTENSITY)
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_transient_by_intensity(strategy: Strategy, row: Row) -> None:
    restart = Restart(
        type="transient",
        restarts_max=row.restarts_max,
        within_s=row.within_s,
        initial_pause_s=1.0,
        pause_max_s=1.0,
    )
    assert live(restart, row.lives_s, strategy) == row


@pytest.mark.parametrize("row", INTENSITY)
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_temporary_one_never_goes_up(strategy: Strategy, row: Row) -> None:
    restart = Restart(type="temporary", restarts_max=row.restarts_max, within_s=row.within_s)
    outcome = live(restart, row.lives_s, strategy)
    assert (outcome.starts_s, outcome.goes_up) == ((0.0,), False)


#: Eighths, because sums of them are exact.
eighths = st.integers(0, 320).map(lambda eighths: eighths / 8)


@given(
    st.integers(0, 4),
    eighths.filter(bool),
    eighths,
    eighths,
    st.lists(eighths, max_size=8).map(tuple),
    st.sampled_from(STRATEGIES),
)
def test_intensity_and_back_off_against_a_model(
    restarts_max: int, within_s: float, initial_s: float, max_s: float, lives_s: tuple[float, ...], strategy: Strategy
) -> None:
    now, starts, crashes, goes_up = 0.0, [0.0], [], False
    for life_s in lives_s:
        now += life_s
        crashes.append(now)
        recent = [crash for crash in crashes if crash > now - within_s]
        if len(recent) > restarts_max:
            goes_up = True
            break
        pause_s = initial_s
        for _ in recent[1:]:
            pause_s = pause_s * 2
        now += min(pause_s, max_s)
        starts.append(now)
    restart = Restart(restarts_max=restarts_max, within_s=within_s, initial_pause_s=initial_s, pause_max_s=max_s)
    outcome = live(restart, lives_s, strategy)
    assert (outcome.starts_s, outcome.goes_up) == (tuple(starts), goes_up)
