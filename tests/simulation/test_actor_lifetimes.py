"""The end of actors in virtual time, watches, children, and timers."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable

import attrs
import pytest
import trio
import trio.lowlevel

from rmq_actors.actors.messages.actor import Actor, Context
from rmq_actors.actors.messages.cell import (
    ActorStopped,
    AskFailed,
)
from rmq_actors.actors.messages.ref import ActorRef
from rmq_actors.actors.messages.timers import Timer
from rmq_actors.actors.restart import Restart, Terminated
from rmq_actors.actors.services.supervisor import NotSupervising
from rmq_actors.actors.system import ActorSystem, open_actor_system
from tests.worlds.actors_in_world import (
    ONCE,
    QUICK,
    Crash,
    Echo,
    Finish,
    Forward,
    Forwarder,
    Journal,
    Note,
    Obedient,
    Order,
    PlannedCrash,
    in_system,
    reasons,
    run_in_world,
    spawn_obedient,
)
from tests.worlds.recording import new_recorder
from tests.worlds.scripted_service import ScriptedService


def test_a_stop_comes_after_the_message_under_way_and_before_what_is_queued() -> None:
    journal: Journal = []
    queued = Note("queued")

    async def body(system: ActorSystem) -> None:
        ref = await spawn_obedient(system, journal)
        await ref.tell(Note("under way", takes_s=1.0))
        await ref.tell(queued)
        await trio.sleep(0.5)
        ref.stop()
        ref.stop()
        with pytest.raises(ActorStopped, match="a has stopped"):
            await ref.ask(Echo("queued"), 10)
        assert trio.current_time() == 1.0
        assert await ref.wait_terminated() == Terminated("a", "stopped")
        with pytest.raises(ActorStopped):
            await ref.ask(Echo("too late"), 10)
        late = Note("too late")
        await ref.tell(late)
        assert not ref.try_tell(late)
        assert not ref.tell_control(late)
        letters = reasons(system)
        assert [letters[0], letters[-1]] == [(queued, "stopped"), (late, "not_running")]
        assert system.census().entries == ()

    in_system(body)
    assert journal == [(0.0, "a+"), (1.0, "a under way"), (1.0, "a-")]


def test_a_stopped_actor_fails_its_asks_before_the_others_are_stopped() -> None:
    """The one started first still waits for an answer of the one that was stopped first: it must not wait for ever."""
    failures: list[tuple[float, AskFailed]] = []

    async def body(system: ActorSystem) -> None:
        slot: list[ActorRef[Forward] | ActorRef[Order]] = []
        first = await system.spawn("first", lambda: Forwarder(slot, failures))
        echo = await spawn_obedient(system, [], "echo")
        slot.append(echo)
        await echo.tell(Note("slow", takes_s=1.0))
        await trio.lowlevel.checkpoint()
        await first.tell(Forward(timeout_s=math.inf))
        await trio.lowlevel.checkpoint()

    in_system(body, stop_budget_s=100.0)
    assert [(time, type(error)) for time, error in failures] == [(1.0, ActorStopped)]


def test_a_watch_tells_of_an_end_for_good_and_not_of_a_restart() -> None:
    notices: list[tuple[float, Terminated]] = []

    @attrs.define(eq=False)
    class Watcher(Actor[Terminated | Note]):
        watched: list[ActorRef[Order]]

        async def on_start(self, context: Context[Terminated | Note]) -> None:
            for ref in self.watched:
                context.watch(ref, lambda notice: notice)

        async def handle(self, message: Terminated | Note, context: Context[Terminated | Note]) -> None:
            match message:
                case Terminated():
                    notices.append((trio.current_time(), message))
                case Note(_, takes_s):
                    await trio.sleep(takes_s)

    async def body(system: ActorSystem) -> None:
        restarted = await spawn_obedient(system, [], "restarted", QUICK)
        dies = await spawn_obedient(system, [], "dies", ONCE)
        finishes = await spawn_obedient(system, [], "finishes", ONCE)
        stopped = await spawn_obedient(system, [], "stopped", QUICK)
        gone = await spawn_obedient(system, [], "gone", ONCE)
        gone.stop()
        await gone.wait_terminated()
        watcher = await system.spawn("watcher", lambda: Watcher([restarted, dies, finishes, stopped, gone]))
        error = PlannedCrash()
        # Notices pass user messages.
        await watcher.tell(Note("", takes_s=1))
        await watcher.tell(Note("", takes_s=100))
        await trio.sleep(0.5)
        await restarted.tell(Crash())
        await dies.tell(Crash(error))
        await finishes.tell(Finish())
        stopped.stop()
        await trio.sleep(2)
        assert notices[0] == (0.0, Terminated("gone", "stopped"))
        assert sorted(notices[1:], key=lambda notice: notice[1].path) == [
            (1.0, Terminated("dies", "crashed", error)),
            (1.0, Terminated("finishes", "finished")),
            (1.0, Terminated("stopped", "stopped")),
        ]
        watcher.stop()

    in_system(body, cancel_budget_s=200.0)


def test_a_watch_ends_with_the_watchers_incarnation() -> None:
    notices: list[Terminated] = []

    @attrs.define(eq=False)
    class Watcher(Actor[Terminated | Crash | Order]):
        watched: ActorRef[Order]
        watches: list[bool]

        async def on_start(self, context: Context[Terminated | Crash | Order]) -> None:
            if self.watches.pop():
                context.watch(self.watched, lambda notice: notice)

        async def handle(self, message: object, context: Context[Terminated | Crash | Order]) -> None:
            if isinstance(message, Crash):
                raise message.error
            assert isinstance(message, Terminated)
            notices.append(message)

    async def body(system: ActorSystem) -> None:
        watched = await spawn_obedient(system, [], "watched")
        watches = [False, True]
        watcher = await system.spawn("watcher", lambda: Watcher(watched, watches), restart=QUICK)
        await watcher.tell(Crash())
        await trio.sleep(5)
        watched.stop()
        await trio.sleep(5)

    in_system(body)
    assert notices == []


def test_code_outside_of_actors_can_watch_and_forget() -> None:
    async def body(system: ActorSystem) -> None:
        seen: list[str] = []
        ref = await spawn_obedient(system, [])
        ref.watch(lambda notice: seen.append(notice.path))
        ref.watch(lambda notice: seen.append("forgotten"))()
        assert ref.terminated is None
        ref.stop()
        await ref.wait_terminated()
        assert seen == ["a"]
        ref.watch(lambda notice: seen.append("again"))
        assert seen == ["a", "again"]

    in_system(body)


def test_a_watch_that_cannot_make_its_message_crashes_the_watcher_alone() -> None:
    class Watcher(Obedient):
        async def on_start(self, context: Context[Order]) -> None:
            await super().on_start(context)
            context.watch(watched[0], self.as_message)

        def as_message(self, notice: Terminated) -> Order:
            raise PlannedCrash(notice.path)

    watched: list[ActorRef[Order]] = []

    async def body(system: ActorSystem) -> None:
        watched.append(await spawn_obedient(system, [], "watched"))
        watcher = await system.spawn("watcher", lambda: Watcher("watcher", []), restart=ONCE)
        watched[0].stop()
        terminated = await watcher.wait_terminated()
        assert repr(terminated.error) == "PlannedCrash('watched')"
        assert reasons(system) == [(Terminated("watched", "stopped"), "crashed")]

    in_system(body)


def test_children_of_an_actor_stop_before_it_and_start_again_with_it() -> None:
    journal: Journal = []

    @attrs.define(eq=False)
    class Parent(Obedient):
        async def on_start(self, context: Context[Order]) -> None:
            await super().on_start(context)
            for name in ("x", "y"):
                await context.spawn(name, lambda name=name: Obedient(name, self.journal))  # type: ignore[misc]

    async def body(system: ActorSystem) -> None:
        ref = await system.spawn("parent", lambda: Parent("parent", journal), restart=QUICK)
        assert system.census().paths == ["parent", "parent/x", "parent/y"]
        await ref.tell(Crash())
        await trio.sleep(5)
        assert system.census().paths == ["parent", "parent/x", "parent/y"]

    in_system(body)
    assert journal[:3] == [(0.0, "parent+"), (0.0, "x+"), (0.0, "y+")]
    assert sorted(journal[3:6]) == [(0.0, "parent-"), (0.0, "x-"), (0.0, "y-")]
    assert journal[6:] == [
        (1.0, "parent+"),
        (1.0, "x+"),
        (1.0, "y+"),
        (5.0, "y-"),
        (5.0, "x-"),
        (5.0, "parent-"),
    ]


def test_children_are_terminated_by_a_crash_of_their_parent() -> None:
    children: list[ActorRef[Order]] = []

    class Parent(Obedient):
        async def on_start(self, context: Context[Order]) -> None:
            children.append(await context.spawn("child", lambda: Obedient("child", [])))

    async def body(system: ActorSystem) -> None:
        ref = await system.spawn("parent", lambda: Parent("parent", []), restart=QUICK)
        async with trio.open_nursery() as nursery:

            @nursery.start_soon
            async def _() -> None:
                await children[0].tell(Note("slow", takes_s=100.0))
                with pytest.raises(ActorStopped, match="parent/child has stopped"):
                    await children[0].ask(Echo("queued"), 1000)

            await trio.sleep(1)
            await ref.tell(Crash())
        assert trio.current_time() == 1.0

    in_system(body)


def test_a_child_that_fails_too_often_is_a_crash_of_its_parent() -> None:
    journal: Journal = []

    @attrs.define(eq=False)
    class Parent(Obedient):
        async def on_start(self, context: Context[Order]) -> None:
            await super().on_start(context)
            child = await context.spawn("child", lambda: Obedient("child", []), restart=Restart(restarts_max=0))
            if len(self.journal) == 1:
                await child.tell(Crash())

    async def body(system: ActorSystem) -> None:
        await system.spawn("parent", lambda: Parent("parent", journal), restart=QUICK)
        await trio.sleep(5)

    in_system(body)
    assert journal == [(0.0, "parent+"), (0.0, "parent-"), (1.0, "parent+"), (5.0, "parent-")]


def test_a_background_task_ends_with_its_incarnation_and_its_failure_is_a_crash() -> None:
    journal: Journal = []

    @attrs.define(eq=False)
    class Parent(Obedient):
        async def on_start(self, context: Context[Order]) -> None:
            await super().on_start(context)
            context.start_soon(self.fail_later if len(self.journal) == 1 else self.run_for_ever)

        async def fail_later(self) -> None:
            await trio.sleep(1)
            raise PlannedCrash

        async def run_for_ever(self) -> None:
            try:
                await trio.sleep_forever()
            finally:
                self.note(" background ends")

    async def body(system: ActorSystem) -> None:
        await system.spawn("a", lambda: Parent("a", journal), restart=QUICK)
        await trio.sleep(5)

    recorder = new_recorder()
    in_system(body, tracer=recorder.tracer("node"))
    assert journal == [(0.0, "a+"), (1.0, "a-"), (2.0, "a+"), (5.0, "a-"), (5.0, "a background ends")]
    assert [(event.kind, event.status) for event in recorder.events][1] == ("actor.crash", "PlannedCrash")


@pytest.mark.parametrize(("stop_at", "restarted"), [(1000.0, True), (50.0, False)])
def test_a_group_restart_waits_for_one_that_is_stuck_and_a_stop_does_not(stop_at: float, restarted: bool) -> None:
    journal: Journal = []

    class Deaf(Obedient):
        async def handle(self, message: Order, context: Context[Order]) -> None:
            with trio.CancelScope(shield=True):
                await trio.sleep(100)

    async def body(system: ActorSystem) -> None:
        await spawn_obedient(system, journal, "first")
        crashes = await spawn_obedient(system, journal, "a")
        deaf = await system.spawn("deaf", lambda: Deaf("deaf", journal), restart=QUICK)
        await deaf.tell(Note(""))
        await trio.lowlevel.checkpoint()
        await crashes.tell(Crash())
        await trio.sleep(20)
        assert system.census()["deaf"].state == "stuck"
        await trio.sleep_until(stop_at)
        journal.append((trio.current_time(), "stop"))

    in_system(body, strategy="rest_for_one", stop_budget_s=5.0, cancel_budget_s=5.0)
    assert journal[:4] == [(0.0, "first+"), (0.0, "a+"), (0.0, "deaf+"), (0.0, "a-")]
    if restarted:
        assert journal[4:7] == [(100.0, "deaf-"), (101.0, "a+"), (101.0, "deaf+")]
        assert journal[7:] == [(stop_at, what) for what in ("stop", "deaf-", "a-", "first-")]
    else:
        # The deaf one has its two budgets again.
        assert journal[4:] == [(stop_at, "stop"), (stop_at + 10.0, "first-"), (100.0, "deaf-")]


def test_a_spawn_while_the_system_stops_is_refused() -> None:
    async def main() -> None:
        async with trio.open_nursery() as nursery:
            async with open_actor_system("s") as system:

                @nursery.start_soon
                async def _() -> None:
                    with pytest.raises(NotSupervising, match="slow did not start: s stops"):
                        await system.spawn("slow", lambda: Obedient("slow", [], start_takes_s=100.0))

                await trio.sleep(1)
            assert trio.current_time() == 1.0

    run_in_world(main)


def test_one_that_ignores_its_cancellation_is_named_with_its_place(caplog: pytest.LogCaptureFixture) -> None:
    recorder = new_recorder()
    journal: Journal = []

    class Deaf(Obedient):
        async def handle(self, message: Order, context: Context[Order]) -> None:
            with trio.CancelScope(shield=True):
                await wait_deafly()

    async def wait_deafly() -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(sleep_deafly)

    async def sleep_deafly() -> None:
        with trio.CancelScope(shield=True):
            await trio.sleep(1000)

    async def body(system: ActorSystem) -> None:
        await spawn_obedient(system, journal, "before")
        ref = await system.spawn("deaf", lambda: Deaf("deaf", journal))
        await spawn_obedient(system, journal, "after")
        await ref.tell(Note(""))
        await trio.sleep(1)
        await system.stop()
        journal.append((trio.current_time(), "stopped, but for the deaf one"))

    with caplog.at_level(logging.WARNING):
        in_system(body, tracer=recorder.tracer("node"), stop_budget_s=5.0, cancel_budget_s=3.0)
    warning, error = (record.getMessage() for record in caplog.records)
    assert warning == "s: deaf did not stop within 5 s"
    assert error.startswith("s: deaf ignores its cancellation after 3 s, at ")
    assert "test_actor_lifetimes:" in error
    assert "sleep_deafly" in error
    (stuck,) = [event for event in recorder.events if event.kind == "actor.stuck"]
    assert stuck.actor == "deaf"
    assert stuck.attrs is not None
    assert "sleep_deafly" in stuck.attrs["detail"]
    # The others are stopped all the same, and the system ends when the deaf one has.
    assert journal[3:] == [
        (1.0, "after-"),
        (9.0, "before-"),
        (9.0, "stopped, but for the deaf one"),
        (1000.0, "deaf-"),
    ]


def test_a_stopped_supervisor_terminates_its_actors() -> None:
    async def body(system: ActorSystem) -> None:
        pair = await system.supervisor("pair")
        nested = await pair.supervisor("nested")
        refs = [await pair.spawn("a", lambda: Obedient("a", [])), await nested.spawn("b", lambda: Obedient("b", []))]
        system.stop_child("pair")
        assert [await ref.wait_terminated() for ref in refs] == [
            Terminated("pair/a", "stopped"),
            Terminated("pair/nested/b", "stopped"),
        ]
        await trio.sleep(1)
        assert system.census().entries == ()

    in_system(body)


def test_actors_of_a_supervisor_that_has_failed_for_good_are_terminated() -> None:
    async def body(system: ActorSystem) -> None:
        pair = await system.supervisor("pair", restart=Restart(restarts_max=0), own_restart=ONCE)
        crashes = await pair.spawn("crashes", lambda: Obedient("crashes", []))
        other = await pair.spawn("other", lambda: Obedient("other", []))
        await crashes.tell(Crash())
        with pytest.raises(ActorStopped):
            await other.ask(Echo("?", takes_s=1000.0), 10_000)
        assert await other.wait_terminated() == Terminated("pair/other", "stopped")
        assert trio.current_time() == 0.0

    in_system(body)


def test_a_crash_of_one_that_was_asked_to_stop_is_final() -> None:
    journal: Journal = []
    error = PlannedCrash()

    class Late(Obedient):
        async def handle(self, message: Order, context: Context[Order]) -> None:
            await trio.sleep(1)
            await super().handle(message, context)

    async def body(system: ActorSystem) -> None:
        ref = await system.spawn("a", lambda: Late("a", journal), restart=QUICK)
        await ref.tell(Crash(error))
        await trio.sleep(0.5)
        ref.stop()
        assert await ref.wait_terminated() == Terminated("a", "crashed", error)
        await trio.sleep(5)

    in_system(body)
    assert journal == [(0.0, "a+"), (1.0, "a-")]


def test_when_the_system_fails_asks_from_outside_fail() -> None:
    refs: list[ActorRef[Order]] = []
    outcomes: list[str] = []

    async def ask() -> None:
        while not refs:
            await trio.sleep(1)
        with pytest.raises(ActorStopped, match="a has stopped"):
            await refs[0].ask(Echo("?", takes_s=1000.0), 10_000)
        outcomes.append(f"{trio.current_time()}")

    async def main() -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(ask)
            with pytest.RaisesGroup(pytest.RaisesExc(ValueError, match="the block")):
                async with open_actor_system("s") as system:
                    refs.append(await spawn_obedient(system, []))
                    await trio.sleep(5)
                    raise ValueError("the block")

    run_in_world(main)
    assert outcomes == ["5.0"]


def test_the_children_of_an_actor_may_be_services_and_supervisors() -> None:
    class Parent(Obedient):
        async def on_start(self, context: Context[Order]) -> None:
            children = await context.children()
            await children.start(ScriptedService("service", []))
            await children.supervisor("supervisor")

    async def body(system: ActorSystem) -> None:
        await system.spawn("parent", lambda: Parent("parent", []))
        census = system.census()
        assert [(entry.path, entry.parent, entry.kind) for entry in census.entries] == [
            ("parent", "", "actor"),
            ("parent/service", "parent", "service"),
            ("parent/supervisor", "parent", "supervisor"),
        ]

    in_system(body)


@attrs.define(eq=False)
class Timed(Obedient):
    plan: Callable[[Context[Order]], None] = lambda _: None

    async def on_start(self, context: Context[Order]) -> None:
        await super().on_start(context)
        self.plan(context)


def timed(plan: Callable[[Context[Order]], None], *sends: Order, until_s: float = 10.0) -> Journal:
    journal: Journal = []

    async def body(system: ActorSystem) -> None:
        ref = await system.spawn("a", lambda: Timed("a", journal, plan=plan), restart=QUICK)
        for send in sends:
            await ref.tell(send)
        await trio.sleep_until(until_s)

    in_system(body)
    return [entry for entry in journal if entry[1] not in ("a+", "a-")]


def test_a_timer_fires_once_or_again_and_again() -> None:
    timers: list[Timer] = []

    def plan(context: Context[Order]) -> None:
        timers.append(context.timers.after(2.5, Note("once")))
        context.timers.every(2.0, Note("again"))
        context.timers.after(2.5, Note("second at once"))

    assert timed(plan, until_s=5.0) == [(2.0, "a again"), (2.5, "a once"), (2.5, "a second at once"), (4.0, "a again")]
    assert not timers[0].is_active


def test_a_timer_can_be_cancelled() -> None:
    def plan(context: Context[Order]) -> None:
        tick = context.timers.every(1.0, Note("tick"))
        context.timers.after(1.5, Note("once")).cancel()
        assert context.timers.active == 1
        tick.cancel()
        assert context.timers.next_due == math.inf

    assert timed(plan) == []


def test_a_late_timer_passes_user_messages_and_makes_up_for_nothing() -> None:
    def plan(context: Context[Order]) -> None:
        context.timers.every(1.0, Note("tick"))

    # Busy from 0 to 3.5: the ticks of 1, 2 and 3 are one, at 3.5, and the next is at 4.
    assert timed(plan, Note("slow", takes_s=3.5), Note("queued"), until_s=5.5) == [
        (3.5, "a slow"),
        (3.5, "a tick"),
        (3.5, "a queued"),
        (4.0, "a tick"),
        (5.0, "a tick"),
    ]


def test_a_timer_that_is_always_late_starves_nobody() -> None:
    def plan(context: Context[Order]) -> None:
        context.timers.every(1.0, Note("tick", takes_s=1.5))

    assert timed(plan, Note("slow", takes_s=1.0), Note("first"), Note("second"), until_s=5.0) == [
        (1.0, "a slow"),
        (2.5, "a tick"),
        (2.5, "a first"),
        (4.0, "a tick"),
        (4.0, "a second"),
        (5.5, "a tick"),
    ]


def test_timers_are_gone_with_their_incarnation() -> None:
    lives: list[int] = []

    def plan(context: Context[Order]) -> None:
        lives.append(1)
        if len(lives) == 1:
            context.timers.after(2.0, Note("from the first life"))

    assert timed(plan, Crash()) == []


def test_wrong_timers_are_refused() -> None:
    def plan(context: Context[Order]) -> None:
        with pytest.raises(ValueError, match="the interval of a timer must be more than 0 s, not 0"):
            context.timers.every(0, Note(""))
        with pytest.raises(ValueError, match="the delay of a timer must be 0 s or more, not nan"):
            context.timers.after(math.nan, Note(""))
        for _ in range(context.timers.timers_max):
            context.timers.after(100, Note("")).cancel()
        for _ in range(context.timers.timers_max):
            context.timers.after(100, Note(""))
        with pytest.raises(RuntimeError, match="1024 timers are set already"):
            context.timers.after(100, Note(""))

    assert timed(plan) == []
