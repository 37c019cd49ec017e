"""Asks in virtual time: deadlines that travel, cycles, replies kept for later."""

from __future__ import annotations

import attrs
import pytest
import trio

from rmq_actors.actors.messages.actor import Actor, Context
from rmq_actors.actors.messages.cell import (
    ActorDied,
    AskCycle,
    AskFailed,
    AskTimeout,
    NotAnswered,
)
from rmq_actors.actors.messages.ref import ActorRef, ReplyTo
from rmq_actors.actors.system import ActorSystem
from tests.worlds.actors_in_world import (
    ONCE,
    QUICK,
    Crash,
    Echo,
    Forward,
    Forwarder,
    Journal,
    Note,
    Order,
    in_system,
    reasons,
    spawn_obedient,
)


def test_an_ask_is_answered() -> None:
    async def body(system: ActorSystem) -> None:
        ref = await spawn_obedient(system, [])
        assert await ref.ask(Echo("hello", takes_s=1.0), timeout_s=2) == "hello"
        assert trio.current_time() == 1.0

    in_system(body)


def test_an_ask_that_is_late_is_not_handled() -> None:
    journal: Journal = []

    async def body(system: ActorSystem) -> None:
        ref = await spawn_obedient(system, journal)
        await ref.tell(Note("slow", takes_s=5.0))
        ask = Echo("late")
        with pytest.raises(AskTimeout, match="a did not answer Echo in time"):
            await ref.ask(ask, timeout_s=2)
        assert trio.current_time() == 2.0
        cancelled = Echo("cancelled")
        with trio.move_on_after(1):
            await ref.ask(cancelled, timeout_s=20)
        await trio.sleep(5)
        assert reasons(system) == [(ask, "expired"), (cancelled, "abandoned")]

    in_system(body)


def test_a_late_reply_is_a_dead_letter() -> None:
    async def body(system: ActorSystem) -> None:
        ref = await spawn_obedient(system, [])
        with pytest.raises(AskTimeout):
            await ref.ask(Echo("late", takes_s=5.0), timeout_s=2)
        await trio.sleep(5)
        assert reasons(system) == [("late", "late_reply")]
        await ref.tell(Echo("told"))
        await trio.sleep(1)
        assert reasons(system)[1:] == [("told", "nobody_asked")]

    in_system(body)


def test_waiting_for_room_counts_towards_the_deadline() -> None:
    async def body(system: ActorSystem) -> None:
        ref = await spawn_obedient(system, [], messages_max=1)
        await ref.tell(Note("slow", takes_s=5.0))
        await trio.lowlevel.checkpoint()
        await ref.tell(Note("queued"))
        with pytest.raises(AskTimeout):
            await ref.ask(Echo("no room"), timeout_s=2)
        assert trio.current_time() == 2.0
        assert await ref.ask(Echo("room"), timeout_s=10) == "room"

    in_system(body)


@pytest.mark.parametrize("in_nursery", [False, True])
def test_a_nested_ask_inherits_the_sooner_deadline(in_nursery: bool) -> None:
    failures: list[tuple[float, AskFailed]] = []

    async def body(system: ActorSystem) -> None:
        echo = await spawn_obedient(system, [], "echo")
        middle = await system.spawn("middle", lambda: Forwarder([echo], failures, in_nursery))
        first = await system.spawn("first", lambda: Forwarder([middle], failures))
        assert await first.ask(Forward(timeout_s=50), 10) == "end"
        # The outer deadline of 2 s is sooner than the inner 50 s, and travels two asks deep.
        with pytest.raises(AskTimeout):
            await first.ask(Forward(timeout_s=50, takes_s=20), 2)
        assert trio.current_time() == 2.0
        await trio.sleep(100)
        assert [time for time, _ in failures] == [2.0, 2.0]
        # The inner one is sooner.
        failures.clear()
        assert await middle.ask(Forward(timeout_s=3, takes_s=20), 50) == "failed"
        assert trio.current_time() == 105.0

    in_system(body)
    assert [type(error) for _, error in failures] == [AskTimeout]


def test_after_an_ask_the_deadline_is_forgotten() -> None:
    """A told message has none, even after an asked one."""
    answers: list[str] = []

    @attrs.define(eq=False)
    class Teller(Actor[Forward | Note]):
        echo: ActorRef[Order]

        async def handle(self, message: Forward | Note, context: Context[Forward | Note]) -> None:
            if isinstance(message, Forward):
                context.reply(message, "")
            else:
                answers.append(await self.echo.ask(Echo("slow", takes_s=50), 100))

    async def body(system: ActorSystem) -> None:
        echo = await spawn_obedient(system, [], "echo")
        teller = await system.spawn("teller", lambda: Teller(echo))
        await teller.ask(Forward(1), 1)
        await teller.tell(Note(""))
        await trio.sleep(60)

    in_system(body)
    assert answers == ["slow"]


@pytest.mark.parametrize("as_child", [False, True])
def test_a_background_task_or_a_child_inherits_no_deadline(as_child: bool) -> None:
    answers: list[str] = []

    @attrs.define(eq=False)
    class Asker:
        starter: Starter
        name: str = "asker"

        async def run(self, *, task_status: trio.TaskStatus[None]) -> None:
            task_status.started()
            await self.starter.ask_slowly()
            await trio.sleep_forever()

        def request_stop(self) -> None:
            pass

    @attrs.define(eq=False)
    class Starter(Actor[Forward]):
        echo: ActorRef[Order]

        async def handle(self, message: Forward, context: Context[Forward]) -> None:
            if as_child:
                children = await context.children()
                await children.start(Asker(self))
            else:
                context.start_soon(self.ask_slowly)
            context.reply(message, "")

        async def ask_slowly(self) -> None:
            answers.append(await self.echo.ask(Echo("slow", takes_s=50.0), 100))

    async def body(system: ActorSystem) -> None:
        echo = await spawn_obedient(system, [], "echo")
        starter = await system.spawn("starter", lambda: Starter(echo))
        await starter.ask(Forward(1), 1)
        await trio.sleep(60)

    in_system(body)
    assert answers == ["slow"]


@pytest.mark.parametrize("in_nursery", [False, True])
def test_a_cycle_of_asks_is_found_at_once_and_named(in_nursery: bool) -> None:
    failures: list[tuple[float, AskFailed]] = []

    async def body(system: ActorSystem) -> None:
        ring: list[list[ActorRef[Forward] | ActorRef[Order]]] = [[], [], []]
        refs = [
            await system.spawn(
                name,
                lambda slot=slot: Forwarder(slot, failures, in_nursery),  # type: ignore[misc]
            )
            for name, slot in zip("abc", ring, strict=True)
        ]
        for slot, ref in zip(ring, [refs[1], refs[2], refs[0]], strict=True):
            slot.append(ref)
        assert await refs[0].ask(Forward(timeout_s=10), 10) == "failed"
        assert trio.current_time() == 0.0
        ring[0][0] = refs[0]
        assert await refs[0].ask(Forward(timeout_s=10), 10) == "failed"

    in_system(body)
    assert [str(error) for _, error in failures] == [
        "a cycle of asks: c -> a -> b -> c",
        "a cycle of asks: a -> a",
    ]
    assert all(isinstance(error, AskCycle) for _, error in failures)


def test_a_cycle_that_begins_with_a_tell_or_in_a_hook_is_found() -> None:
    cycles: list[str] = []

    class AsksItself(Actor[Echo | Note]):
        async def on_start(self, context: Context[Echo | Note]) -> None:
            await self.ask_itself(context)

        async def ask_itself(self, context: Context[Echo | Note]) -> None:
            with pytest.raises(AskCycle) as caught:
                await context.ref.ask(Echo("?"), 10)
            cycles.append(str(caught.value))

        async def handle(self, message: Echo | Note, context: Context[Echo | Note]) -> None:
            await self.ask_itself(context)

    async def body(system: ActorSystem) -> None:
        ref = await system.spawn("a", AsksItself)
        await ref.tell(Note(""))
        await trio.sleep(1)
        assert ref.terminated is None

    in_system(body)
    assert cycles == ["a cycle of asks: a -> a"] * 2


def test_a_cycle_of_two_chains_is_found_too() -> None:
    """a asks b while b asks a, each for a message of its own: no chain of asks holds both."""
    failures: list[tuple[float, AskFailed]] = []

    @attrs.define(eq=False)
    class Later(Forwarder):
        async def ask_next(self, message: Forward) -> str:
            await trio.sleep(message.takes_s)
            return await super().ask_next(message)

    async def body(system: ActorSystem) -> None:
        slots: list[list[ActorRef[Forward] | ActorRef[Order]]] = [[], []]
        a = await system.spawn("a", lambda: Later(slots[0], failures))
        b = await system.spawn("b", lambda: Later(slots[1], failures))
        slots[0].append(b)
        slots[1].append(a)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(a.ask, Forward(100, takes_s=1), 100)
            nursery.start_soon(b.ask, Forward(100, takes_s=2), 100)

    in_system(body)
    # The second: b handles what a asked it, with a still waiting for that.
    assert [(time, str(error)) for time, error in failures] == [
        (2.0, "a cycle of asks: b -> a -> b"),
        (3.0, "a cycle of asks: b -> a -> b"),
    ]


def test_asks_that_meet_without_a_cycle_pass() -> None:
    failures: list[tuple[float, AskFailed]] = []

    async def body(system: ActorSystem) -> None:
        echo = await spawn_obedient(system, [], "echo")
        b = await system.spawn("b", lambda: Forwarder([echo], failures))
        a = await system.spawn("a", lambda: Forwarder([b], failures))
        async with trio.open_nursery() as nursery:
            for ref in (a, b, a):
                nursery.start_soon(ref.ask, Forward(10, takes_s=1.0), 10)
            await trio.sleep(0.5)
            assert system.census()["a"].waits_for == ("b",)
            assert system.census()["echo"].handles == "Echo"
        assert trio.current_time() == 3.0
        assert system.census()["a"].waits_for == ()

    in_system(body)
    assert failures == []


def test_an_ask_that_is_not_answered_fails_at_once() -> None:
    class Silent(Actor[Echo]):
        async def handle(self, message: Echo, context: Context[Echo]) -> None:
            pass

    async def body(system: ActorSystem) -> None:
        ref = await system.spawn("silent", Silent)
        with pytest.raises(NotAnswered, match="silent did not answer Echo"):
            await ref.ask(Echo("?"), 10)
        assert trio.current_time() == 0.0

    in_system(body)


@attrs.define(eq=False)
class Postman(Actor[Echo | Order]):
    """Keeps replies for later."""

    kept: list[ReplyTo[str]]

    async def handle(self, message: Echo | Order, context: Context[Echo | Order]) -> None:
        match message:
            case Echo():
                self.kept.append(context.reply_to(message))
            case Crash(error):
                raise error
            case Note():
                context.reply(Echo("another"), "no")


def test_a_reply_may_be_kept_for_later() -> None:
    kept: list[ReplyTo[str]] = []

    async def body(system: ActorSystem) -> None:
        ref = await system.spawn("postman", lambda: Postman(kept))
        answers: list[str] = []
        async with trio.open_nursery() as nursery:

            @nursery.start_soon
            async def _() -> None:
                answers.append(await ref.ask(Echo("?"), 10))

            await trio.sleep(1)
            assert answers == []
            kept[0].send("later")
        assert answers == ["later"]
        kept[0].send("again")
        assert reasons(system) == [("again", "late_reply")]

    in_system(body)


def test_kept_replies_fail_with_their_actor() -> None:
    async def body(system: ActorSystem) -> None:
        ref = await system.spawn("postman", lambda: Postman([]), restart=QUICK)
        async with trio.open_nursery() as nursery:

            @nursery.start_soon
            async def _() -> None:
                with pytest.raises(ActorDied, match="postman crashed"):
                    await ref.ask(Echo("?"), 10)

            await trio.sleep(1)
            await ref.tell(Crash())
        assert trio.current_time() == 1.0

    in_system(body)


def test_a_kept_reply_is_forgotten_when_nobody_waits_for_it() -> None:
    contexts: list[Context[Echo]] = []

    class Keeper(Actor[Echo]):
        async def handle(self, message: Echo, context: Context[Echo]) -> None:
            contexts.append(context)
            context.reply_to(message)

    async def body(system: ActorSystem) -> None:
        ref = await system.spawn("keeper", Keeper)
        for _ in range(3):
            with pytest.raises(AskTimeout):
                await ref.ask(Echo("?"), 1)
        assert contexts[0].kept_replies == {}

    in_system(body)


def test_only_the_message_under_way_can_be_answered() -> None:
    async def body(system: ActorSystem) -> None:
        ref = await system.spawn("postman", lambda: Postman([]), restart=ONCE)
        await ref.tell(Note(""))
        terminated = await ref.wait_terminated()
        assert isinstance(terminated.error, ValueError)
        assert str(terminated.error) == "postman: Echo is not the message under way"

    in_system(body)
