"""Actors in virtual time: what falls together, such as a stop and a restart, or a reply and an ask."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable

import attrs
import pytest
import trio
import trio.lowlevel

from rmq_actors.actors.messages.actor import Actor, Context
from rmq_actors.actors.messages.cell import ActorDied, ActorStopped, AskFailed
from rmq_actors.actors.messages.mailbox import MailboxLimits
from rmq_actors.actors.messages.ref import ActorRef, ReplyTo
from rmq_actors.actors.restart import Restart, Strategy, Terminated, first_leaf
from rmq_actors.actors.services.supervisor import NotSupervising
from rmq_actors.actors.system import ActorSystem, open_actor_system
from sim_net import CancelInjection, cancel_at_every_checkpoint
from tests.worlds.actors_in_world import (
    ONCE,
    QUICK,
    Crash,
    Echo,
    Journal,
    Note,
    Obedient,
    Order,
    PlannedCrash,
    in_system,
    reasons,
    run_in_world,
    spawn_obedient,
    texts,
)


@attrs.define(eq=False)
class Beside(Obedient):
    """Runs `beside` in a task of its own."""

    beside: Callable[[Context[Order]], Awaitable[None]] = attrs.field(kw_only=True)

    async def on_start(self, context: Context[Order]) -> None:
        await super().on_start(context)
        context.start_soon(lambda: self.beside(context))


def beside(what: Callable[[Context[Order]], Awaitable[None]], restart: Restart, *, until_s: float = 10.0) -> Journal:
    journal: Journal = []

    async def body(system: ActorSystem) -> None:
        await system.spawn("a", lambda: Beside("a", journal, beside=what), restart=restart)
        await trio.sleep_until(until_s)

    in_system(body)
    return journal


def test_a_timer_set_beside_the_handler_fires_at_its_time() -> None:
    async def set_timers(context: Context[Order]) -> None:
        await trio.sleep(1)
        context.timers.after(2.0, Note("later"))
        context.timers.after(1.0, Note("sooner"))

    assert beside(set_timers, QUICK) == [(0.0, "a+"), (2.0, "a sooner"), (3.0, "a later"), (10.0, "a-")]


def test_a_stop_beside_the_handler_ends_an_actor_that_waits() -> None:
    async def stop(context: Context[Order]) -> None:
        await trio.sleep(1)
        context.stop()

    assert beside(stop, Restart(type="transient")) == [(0.0, "a+"), (1.0, "a-")]


def test_children_spawned_at_once_by_several_tasks_of_an_actor() -> None:
    journal: Journal = []

    async def spawn_three(context: Context[Order]) -> None:
        async with trio.open_nursery() as nursery:
            for name in "xyz":
                nursery.start_soon(context.spawn, name, lambda: Obedient("child", journal))

    async def body(system: ActorSystem) -> None:
        await system.spawn("a", lambda: Beside("a", [], beside=spawn_three), restart=ONCE)
        await trio.sleep(1)
        assert sorted(system.census().paths) == ["a", "a/x", "a/y", "a/z"]

    in_system(body)
    assert [what for _, what in journal] == ["child+"] * 3 + ["child-"] * 3


def test_a_cancelled_first_spawn_does_not_keep_an_actor_from_children() -> None:
    journal: Journal = []

    async def spawn_twice(context: Context[Order]) -> None:
        with trio.move_on_after(0):
            await context.spawn("x", lambda: Obedient("x", journal))
        await context.spawn("y", lambda: Obedient("y", journal))

    beside(spawn_twice, ONCE)
    assert journal[-2:] == [(0.0, "y+"), (10.0, "y-")]


def test_a_failure_beside_the_handler_is_a_crash_to_the_asker_under_way() -> None:
    error = PlannedCrash("beside")

    async def fail(_: Context[Order]) -> None:
        await trio.sleep(1)
        raise error

    async def body(system: ActorSystem) -> None:
        ref = await system.spawn("a", lambda: Beside("a", [], beside=fail), restart=QUICK)
        ask = Echo("?", takes_s=100.0)
        with pytest.raises(ActorDied, match="a crashed") as caught:
            await ref.ask(ask, 1000)
        assert caught.value.__cause__ is error
        assert trio.current_time() == 1.0
        assert reasons(system) == [(ask, "crashed")]

    in_system(body)


@pytest.mark.parametrize("ends", ["crash", "cancel", "stop"])
def test_a_kept_reply_says_how_its_actor_ended(ends: str) -> None:
    class Keeper(Obedient):
        async def handle(self, message: Order, context: Context[Order]) -> None:
            if isinstance(message, Echo):
                context.reply_to(message)
            else:
                await super().handle(message, context)

    error = PlannedCrash("why")
    failures: list[AskFailed] = []

    async def ask(ref: ActorRef[Order]) -> None:
        try:
            await ref.ask(Echo("?"), 1000)
        except AskFailed as failure:
            failures.append(failure)

    async def body(system: ActorSystem) -> None:
        ref = await system.spawn("a", lambda: Keeper("a", []), restart=QUICK)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(ask, ref)
            await trio.sleep(1)
            if ends == "crash":
                await ref.tell(Crash(error))
            else:
                if ends == "cancel":
                    await ref.tell(Note("takes too long", takes_s=100.0))
                    await trio.sleep(1)
                ref.stop()

    in_system(body)
    (failure,) = failures
    assert type(failure) is (ActorDied if ends == "crash" else ActorStopped)
    assert failure.__cause__ is (error if ends == "crash" else None)


def test_an_ask_of_one_that_has_its_answer_already_is_no_cycle() -> None:
    answers: list[str] = []

    @attrs.define(eq=False)
    class AnswersThenAsks(Actor[Echo]):
        other: ActorRef[Order]

        async def handle(self, message: Echo, context: Context[Echo]) -> None:
            context.reply(message, message.text)
            if message.text == "first":
                answers.append(await self.other.ask(Echo("second"), 10))

    @attrs.define(eq=False)
    class Both(Actor[Order]):
        others: list[ActorRef[Echo]]

        async def handle(self, message: Order, context: Context[Order]) -> None:
            if isinstance(message, Echo):
                context.reply(message, message.text)
            else:
                answers.append(await self.others[0].ask(Echo("first"), 10))

    async def body(system: ActorSystem) -> None:
        others: list[ActorRef[Echo]] = []
        both = await system.spawn("both", lambda: Both(others))
        others.append(await system.spawn("answers", lambda: AnswersThenAsks(both)))
        await both.tell(Note(""))
        await trio.sleep(5)
        assert reasons(system) == []

    in_system(body)
    assert answers == ["first", "second"]


def test_one_stopped_while_its_supervisor_waits_to_be_restarted_is_not_started_again() -> None:
    journal: Journal = []

    async def body(system: ActorSystem) -> None:
        pair = await system.supervisor("pair", restart=Restart(restarts_max=0), own_restart=QUICK)
        a = await pair.spawn("a", lambda: Obedient("a", journal))
        b = await pair.spawn("b", lambda: Obedient("b", journal))
        await b.tell(Crash())
        await trio.sleep(0.5)
        a.stop()
        assert await a.wait_terminated() == Terminated("pair/a", "stopped")
        assert trio.current_time() == 0.5
        await trio.sleep(5)
        assert system.census().paths == ["pair", "pair/b"]

    in_system(body)
    assert [what for _, what in journal].count("a+") == 1


def test_one_stopped_while_its_supervisor_stops_to_be_restarted_is_not_started_again() -> None:
    journal: Journal = []

    async def body(system: ActorSystem) -> None:
        sibling = await spawn_obedient(system, [], "sibling")
        pair = await system.supervisor("pair")
        a = await pair.spawn("a", lambda: Obedient("a", journal))
        await a.tell(Note("under way", takes_s=1.0))
        await sibling.tell(Crash())
        await trio.sleep(0.5)
        a.stop()
        assert await a.wait_terminated() == Terminated("pair/a", "stopped")
        await trio.sleep(5)
        assert system.census().paths == ["sibling", "pair"]

    in_system(body, strategy="one_for_all")
    assert texts(journal) == ["a+", "a under way", "a-"]


def test_a_spawn_that_is_stopped_says_so() -> None:
    """By a hook that stops its own actor, and by somebody who knows its name."""

    class StopsItself(Obedient):
        async def on_start(self, context: Context[Order]) -> None:
            context.ref.stop()
            await trio.sleep(100)

    async def body(system: ActorSystem) -> None:
        with pytest.raises(NotSupervising, match="a did not start: it was asked to stop"):
            await system.spawn("a", lambda: StopsItself("a", []))
        assert system.census().entries == ()

    in_system(body)


def test_a_spawn_that_is_cancelled_has_stopped_and_not_crashed() -> None:
    refs: list[ActorRef[Order]] = []

    class Slow(Obedient):
        async def on_start(self, context: Context[Order]) -> None:
            refs.append(context.ref)
            await trio.sleep(100)

    async def body(system: ActorSystem) -> None:
        with trio.move_on_after(1):
            await system.spawn("a", lambda: Slow("a", []))
        assert refs[0].terminated == Terminated("a", "stopped")

    in_system(body)


@pytest.mark.parametrize("strategy", ["one_for_one", "rest_for_one"])
def test_what_a_cancelled_spawn_raises_in_its_clean_up_is_the_spawners(strategy: Strategy) -> None:
    """The actor is ready when nobody waits for it any more."""

    class FailsToStop(Obedient):
        async def on_start(self, context: Context[Order]) -> None:
            scope.cancel()

        async def on_stop(self, context: Context[Order]) -> None:
            raise PlannedCrash("clean-up")

    scope = trio.CancelScope()

    async def body(system: ActorSystem) -> None:
        with scope, pytest.RaisesGroup(PlannedCrash, allow_unwrapped=True, flatten_subgroups=True):
            await system.spawn("a", lambda: FailsToStop("a", []))
        assert system.census().entries == ()
        await spawn_obedient(system, [], "b")
        await trio.sleep(5)
        assert system.census().paths == ["b"]

    in_system(body, strategy=strategy)


def test_what_fails_in_a_cancelled_actor_is_not_lost_beside_a_task_that_it_runs() -> None:
    error = PlannedCrash("clean-up")

    class FailsToStop(Beside):
        async def on_stop(self, context: Context[Order]) -> None:
            raise error

    async def body(system: ActorSystem) -> None:
        ref = await system.spawn(
            "a", lambda: FailsToStop("a", [], beside=lambda _: trio.sleep_forever()), restart=QUICK
        )
        await ref.tell(Note("takes too long", takes_s=100.0))
        await trio.sleep(1)
        ref.stop()
        terminated = await ref.wait_terminated()
        assert terminated.error is not None
        assert first_leaf(terminated.error) is error

    in_system(body)


def test_an_error_of_one_that_was_named_as_stuck_is_raised_in_the_end() -> None:
    class Deaf(Obedient):
        async def handle(self, message: Order, context: Context[Order]) -> None:
            with trio.CancelScope(shield=True):
                await trio.sleep(100)
            raise PlannedCrash("at last")

    async def main() -> None:
        with pytest.RaisesGroup(pytest.RaisesExc(PlannedCrash, match="at last"), flatten_subgroups=True):
            async with open_actor_system("s", restart=Restart(on=())) as system:
                ref = await system.spawn("deaf", lambda: Deaf("deaf", []))
                await ref.tell(Note(""))
                await trio.sleep(1)

    run_in_world(main)


@pytest.mark.parametrize("block_fails", [False, True])
def test_a_crash_in_the_end_that_goes_nowhere_is_logged(caplog: pytest.LogCaptureFixture, block_fails: bool) -> None:
    """A restart would have mended it; or the block's own error cancels it."""

    class FailsToStop(Obedient):
        async def on_stop(self, context: Context[Order]) -> None:
            raise PlannedCrash("on_stop")

    async def body(system: ActorSystem) -> None:
        await system.spawn("a", lambda: FailsToStop("a", []), restart=QUICK)
        if block_fails:
            raise ValueError("the block")

    with caplog.at_level(logging.ERROR):
        if block_fails:
            with pytest.RaisesGroup(pytest.RaisesExc(ValueError, match="the block")):
                in_system(body)
        else:
            in_system(body)
    assert [record.getMessage() for record in caplog.records] == ["a crashed while stopping: PlannedCrash('on_stop')"]


class Deaf(Obedient):
    """Ignores its cancellation for 100 s."""

    async def handle(self, message: Order, context: Context[Order]) -> None:
        with trio.CancelScope(shield=True):
            await trio.sleep(100)


@pytest.mark.parametrize("block_fails", [False, True])
def test_one_that_ignores_the_cancellation_of_a_failure_is_named(
    caplog: pytest.LogCaptureFixture, block_fails: bool
) -> None:
    states: list[str] = []

    async def body(system: ActorSystem) -> None:
        pair = await system.supervisor("pair", restart=Restart(on=()), own_restart=QUICK)
        deaf = await pair.spawn("deaf", lambda: Deaf("deaf", []))
        crashes = await pair.spawn("crashes", lambda: Obedient("crashes", []))
        await deaf.tell(Note(""))
        await trio.sleep(1)
        if block_fails:
            raise ValueError("the block")
        await crashes.tell(Crash())
        await trio.sleep(7)
        states.append(system.census()["pair/deaf"].state)
        await trio.sleep(200)
        states.append(system.census()["pair/deaf"].state)

    with caplog.at_level(logging.ERROR):
        if block_fails:
            with pytest.RaisesGroup(pytest.RaisesExc(ValueError, match="the block")):
                in_system(body)
        else:
            in_system(body)
            assert states == ["stuck", "running"]
    named = [record.getMessage().partition(", at ")[0] for record in caplog.records]
    assert "s: pair/deaf ignores its cancellation after 5 s" in named


def test_a_supervisor_that_fails_does_not_wait_for_a_spawn() -> None:
    times: list[float] = []

    async def body(system: ActorSystem) -> None:
        pair = await system.supervisor("pair", restart=Restart(on=()), own_restart=QUICK)
        crashes = await pair.spawn("crashes", lambda: Obedient("crashes", []))

        async def spawn() -> None:
            with pytest.raises(NotSupervising, match="pair/slow did not start: pair stops"):
                await pair.spawn("slow", lambda: Obedient("slow", [], start_takes_s=100.0))
            times.append(trio.current_time())

        async with trio.open_nursery() as nursery:
            nursery.start_soon(spawn)
            await trio.sleep(1)
            await crashes.tell(Crash())
        assert await crashes.ask(Echo("again"), 5) == "again"

    in_system(body)
    assert times == [1.0]


def test_an_operation_that_is_cancelled_at_any_point_leaves_nothing_behind() -> None:
    """A spawn, tells that wait for room, an ask, and the block of a system of its own."""

    def run(injection: CancelInjection) -> None:
        journal: Journal = []
        told: list[Note] = []
        fates: list[tuple[object, str]] = []

        async def operate(system: ActorSystem) -> None:
            ref = await spawn_obedient(system, journal, "a", messages_max=1)
            for number in range(4):
                note = Note(number, takes_s=0.5)
                try:
                    await ref.tell(note)
                finally:
                    told.append(note)
            assert await ref.ask(Echo("?"), 10) == "?"
            async with open_actor_system("inner") as inner:
                await spawn_obedient(inner, [], "b")
            ref.stop()
            await ref.wait_terminated()

        async def body(system: ActorSystem) -> None:
            with injection:
                await operate(system)
            await trio.sleep(20)
            for entry in system.census().entries:
                assert (entry.state, entry.mailbox_messages, entry.waiting_senders) == ("running", 0, 0)
            fates.extend(reasons(system))

        in_system(body)
        done = [what for _, what in journal]
        assert done.count("a+") == done.count("a-")
        seen = [note for note in told if f"a {note.text}" in done]
        lost = [note for note, _ in fates if isinstance(note, Note)]
        # A tell that was cancelled may be the last one only; each before it was handled or is a dead letter.
        assert len({*seen, *lost}) == len(seen) + len(lost) >= len(told) - 1

    assert cancel_at_every_checkpoint(run) > 20


def test_a_reply_at_the_moment_of_a_cancellation_is_late() -> None:
    """The asker's task is cancelled, and has not run since."""
    kept: list[ReplyTo[str]] = []

    class Keeper(Obedient):
        async def handle(self, message: Order, context: Context[Order]) -> None:
            assert isinstance(message, Echo)
            kept.append(context.reply_to(message))

    async def body(system: ActorSystem) -> None:
        ref = await system.spawn("a", lambda: Keeper("a", []))
        async with trio.open_nursery() as nursery:
            nursery.start_soon(ref.ask, Echo("?"), 10)
            await trio.sleep(1)
            nursery.cancel_scope.cancel()
            kept[0].send("late")
        assert reasons(system) == [("late", "late_reply")]

    in_system(body)


def test_a_full_control_lane_has_room_for_notices() -> None:
    notices: list[str] = []

    @attrs.define(eq=False)
    class Watcher(Actor[Terminated | Note]):
        watched: list[ActorRef[Order]]

        async def handle(self, message: Terminated | Note, context: Context[Terminated | Note]) -> None:
            if isinstance(message, Terminated):
                notices.append(message.path)
                return
            for ref in self.watched:
                context.watch(ref, lambda notice: notice)
            await trio.sleep(message.takes_s)

    async def body(system: ActorSystem) -> None:
        watched = [await spawn_obedient(system, [], name) for name in "xyz"]
        limits = MailboxLimits(control_messages_max=1)
        watcher = await system.spawn("watcher", lambda: Watcher(watched), mailbox=limits)
        await watcher.tell(Note("busy", takes_s=2.0))
        await trio.sleep(1)
        for ref in watched:
            ref.stop()
        await trio.sleep(0.5)
        assert not watcher.tell_control(Note("no room"))
        assert system.census()["watcher"].control_messages == 3
        await trio.sleep(2)

    in_system(body)
    assert sorted(notices) == ["x", "y", "z"]


def test_a_failure_is_not_lost_to_a_cancellation_that_comes_while_others_end() -> None:
    async def body(system: ActorSystem) -> None:
        deaf = await system.spawn("deaf", lambda: Deaf("deaf", []))
        crashes = await system.spawn("crashes", lambda: Obedient("crashes", []))
        await deaf.tell(Note(""))
        await trio.lowlevel.checkpoint()
        await crashes.tell(Crash())
        await trio.sleep_forever()

    async def main() -> None:
        with pytest.RaisesGroup(PlannedCrash, flatten_subgroups=True), trio.move_on_after(50):
            async with open_actor_system("s", restart=Restart(on=())) as system:
                await body(system)

    run_in_world(main)
