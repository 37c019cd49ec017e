"""Actors in virtual time: messages, what becomes of them when an actor fails, and what can be seen of it."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
from pathlib import Path

import pytest
import trio

from rmq_actors.actors.messages.actor import Actor, Context
from rmq_actors.actors.messages.cell import (
    ActorDied,
    AskFailed,
    HandlerFailed,
)
from rmq_actors.actors.messages.dead_letters import DeadLetter
from rmq_actors.actors.messages.incarnation import MESSAGES_PER_TURN
from rmq_actors.actors.messages.mailbox import MailboxFull, MailboxLimits, Overflow
from rmq_actors.actors.restart import Restart, Terminated
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
    Obedient,
    Order,
    PlannedCrash,
    in_system,
    reasons,
    spawn_obedient,
    texts,
)
from tests.worlds.recording import new_recorder


def test_messages_of_one_sender_are_handled_in_order_and_control_messages_first() -> None:
    journal: Journal = []

    async def body(system: ActorSystem) -> None:
        ref = await spawn_obedient(system, journal)
        await ref.tell(Note("slow", takes_s=1.0))
        for number in range(3):
            assert ref.try_tell(Note(number))
        assert ref.tell_control(Note("urgent"))
        await trio.sleep(2)

    in_system(body)
    assert [what for _, what in journal] == ["a+", "a slow", "a urgent", "a 0", "a 1", "a 2", "a-"]


def test_tell_waits_for_room_and_try_tell_says_that_there_is_none() -> None:
    journal: Journal = []

    async def body(system: ActorSystem) -> None:
        ref = await spawn_obedient(system, journal, messages_max=1)
        await ref.tell(Note("under way", takes_s=1.0))
        await ref.tell(Note("queued"))
        assert not ref.try_tell(Note("refused"))
        assert trio.current_time() == 0.0
        await ref.tell(Note("waits"))
        assert trio.current_time() == 1.0

    in_system(body)
    assert texts(journal) == ["a+", "a under way", "a queued", "a waits", "a-"]


def test_a_tell_that_is_cancelled_is_not_queued() -> None:
    journal: Journal = []

    async def body(system: ActorSystem) -> None:
        ref = await spawn_obedient(system, journal, messages_max=1)
        await ref.tell(Note("under way", takes_s=10.0))
        await ref.tell(Note("queued"))
        with trio.move_on_after(5):
            await ref.tell(Note("cancelled"))
        assert system.census()["a"].waiting_senders == 0
        await trio.sleep(10)

    in_system(body)
    assert texts(journal) == ["a+", "a under way", "a queued", "a-"]


def test_an_actor_that_never_waits_lets_others_run() -> None:
    turns: list[str] = []

    class Busy(Actor[int]):
        async def handle(self, message: int, context: Context[int]) -> None:
            turns.append("actor")
            context.ref.try_tell(message)

    async def body(system: ActorSystem) -> None:
        ref = await system.spawn("busy", Busy)
        await ref.tell(1)
        for _ in range(3):
            await trio.lowlevel.checkpoint()
            turns.append("other")
        ref.stop()

    in_system(body)
    assert turns.count("other") == 3
    assert MESSAGES_PER_TURN == 16
    assert turns.count("actor") <= 4 * MESSAGES_PER_TURN


@pytest.mark.parametrize(("overflow", "reason"), [("drop_newest", "dropped_newest"), ("drop_oldest", "dropped_oldest")])
def test_what_a_policy_drops_is_a_dead_letter(overflow: Overflow, reason: str) -> None:
    async def body(system: ActorSystem) -> None:
        ref = await system.spawn("a", lambda: Obedient("a", []), mailbox=MailboxLimits(2, overflow))
        notes = [Note("under way", takes_s=1.0), *(Note(number) for number in range(3))]
        for note in notes:
            await ref.tell(note)
            await trio.lowlevel.checkpoint()
        assert reasons(system) == [(notes[3 if overflow == "drop_newest" else 1], reason)]

    in_system(body)


def test_under_fail_the_sender_gets_an_error() -> None:
    async def body(system: ActorSystem) -> None:
        ref = await system.spawn("a", lambda: Obedient("a", []), mailbox=MailboxLimits(1, "fail"))
        await ref.tell(Note("under way", takes_s=1.0))
        await trio.lowlevel.checkpoint()
        await ref.tell(Note("queued"))
        with pytest.raises(MailboxFull, match="the mailbox of a holds 1 messages already"):
            await ref.tell(Note("one too many"))
        with pytest.raises(MailboxFull):
            await ref.ask(Echo("one too many"), 1)
        assert reasons(system) == []

    in_system(body)


def test_a_dropped_ask_fails() -> None:
    async def body(system: ActorSystem) -> None:
        ref = await system.spawn("a", lambda: Obedient("a", []), mailbox=MailboxLimits(overflow="latest"))
        await ref.tell(Note("under way", takes_s=1.0))
        await trio.lowlevel.checkpoint()
        async with trio.open_nursery() as nursery:

            @nursery.start_soon
            async def _() -> None:
                with pytest.raises(AskFailed, match="the mailbox of a is full: the message was superseded"):
                    await ref.ask(Echo("first"), 10)

            await trio.sleep(0.5)
            assert await ref.ask(Echo("second"), 10) == "second"

    in_system(body)


def test_a_crash_loses_the_message_under_way_and_keeps_the_queue() -> None:
    journal: Journal = []
    crash = Crash()

    async def body(system: ActorSystem) -> None:
        ref = await spawn_obedient(system, journal)
        await ref.tell(crash)
        await ref.tell(Note("queued"))
        assert await ref.ask(Echo("asked"), 10) == "asked"
        assert reasons(system) == [(crash, "crashed")]
        assert system.census()["a"].restarts == 1

    in_system(body)
    assert journal == [(0.0, "a+"), (0.0, "a-"), (1.0, "a+"), (1.0, "a queued"), (1.0, "a-")]


def test_each_incarnation_is_a_fresh_object() -> None:
    made: list[Obedient] = []

    def make() -> Obedient:
        made.append(Obedient("a", []))
        return made[-1]

    async def body(system: ActorSystem) -> None:
        ref = await system.spawn("a", make, restart=QUICK)
        await ref.tell(Crash())
        await trio.sleep(5)

    in_system(body)
    assert len({id(actor) for actor in made}) == len(made) == 2


def test_an_actor_that_dies_fails_what_is_queued() -> None:
    queued = Note("queued")

    async def body(system: ActorSystem) -> None:
        ref = await spawn_obedient(system, [], restart=ONCE, messages_max=3)
        failed: list[tuple[str, BaseException | None]] = []

        async def ask(text: str) -> None:
            with pytest.raises(ActorDied, match="a crashed") as caught:
                await ref.ask(Echo(text), 100)
            failed.append((text, caught.value.__cause__))

        cause = PlannedCrash("why")
        await ref.tell(Note("slow", takes_s=1.0))
        async with trio.open_nursery() as nursery:
            await trio.sleep(0.5)
            crash = Crash(cause)
            await ref.tell(crash)
            await ref.tell(queued)
            for text in ("queued", "waits for room"):
                nursery.start_soon(ask, text)
        assert trio.current_time() == 1.0
        assert sorted(failed) == [("queued", cause), ("waits for room", cause)]
        assert [reason for _, reason in reasons(system)] == ["crashed", "died", "died", "died"]
        assert reasons(system)[:2] == [(crash, "crashed"), (queued, "died")]
        with pytest.raises(ActorDied):
            await ref.ask(Echo("too late"), 10)

    in_system(body)


def test_the_asker_of_a_crash_learns_of_it() -> None:
    class Fragile(Actor[Echo]):
        async def handle(self, message: Echo, context: Context[Echo]) -> None:
            raise PlannedCrash(message.text)

    async def body(system: ActorSystem) -> None:
        ref = await system.spawn("fragile", Fragile, restart=QUICK)
        with pytest.raises(ActorDied, match="fragile crashed") as caught:
            await ref.ask(Echo("?"), 10)
        assert isinstance(caught.value.__cause__, PlannedCrash)
        assert trio.current_time() == 0.0

    in_system(body)


def test_a_message_that_was_answered_before_the_crash_is_not_lost() -> None:
    class Fragile(Actor[Echo]):
        async def handle(self, message: Echo, context: Context[Echo]) -> None:
            context.reply(message, message.text)
            raise PlannedCrash

    async def body(system: ActorSystem) -> None:
        ref = await system.spawn("fragile", Fragile, restart=QUICK)
        assert await ref.ask(Echo("answered"), 10) == "answered"
        await trio.sleep(5)
        assert system.census()["fragile"].restarts == 1
        assert reasons(system) == []

    in_system(body)


def test_log_and_go_on_must_be_asked_for(caplog: pytest.LogCaptureFixture) -> None:
    recorder = new_recorder()
    journal: Journal = []

    class Fragile(Obedient):
        async def handle(self, message: Order, context: Context[Order]) -> None:
            if isinstance(message, Echo):
                raise PlannedCrash(message.text)
            await super().handle(message, context)

    async def body(system: ActorSystem) -> None:
        ref = await system.spawn("a", lambda: Fragile("a", journal), restart=QUICK, log_and_go_on_after=(PlannedCrash,))
        with pytest.raises(HandlerFailed, match="a failed to handle Echo"):
            await ref.ask(Echo("asked"), 10)
        await ref.tell(Crash(PlannedCrash("told")))
        await ref.tell(Note("goes on"))
        await trio.lowlevel.checkpoint()
        await ref.tell(Crash(ValueError("another type")))
        await trio.sleep(5)

    with caplog.at_level(logging.ERROR):
        in_system(body, tracer=recorder.tracer("node"))
    assert journal == [(0.0, "a+"), (0.0, "a goes on"), (0.0, "a-"), (1.0, "a+"), (5.0, "a-")]
    assert [record.getMessage() for record in caplog.records] == [
        "a goes on after PlannedCrash('asked')",
        "a goes on after PlannedCrash('told')",
    ]
    assert [(event.kind, event.status) for event in recorder.events][1:4] == [
        ("actor.handler_failed", "PlannedCrash"),
        ("actor.handler_failed", "PlannedCrash"),
        ("actor.crash", "ValueError"),
    ]


def test_a_failing_start_is_the_spawners() -> None:
    async def body(system: ActorSystem) -> None:
        with pytest.raises(PlannedCrash):
            await system.spawn("a", lambda: Obedient("a", [], fails_to_start=PlannedCrash()))
        assert system.census().entries == ()
        await system.spawn("a", lambda: Obedient("a", []))

    in_system(body)


def test_refs_and_queues_outlive_a_restart_of_their_supervisor() -> None:
    journal: Journal = []

    async def body(system: ActorSystem) -> None:
        pair = await system.supervisor("pair", restart=Restart(restarts_max=0), own_restart=QUICK)
        ref = await pair.spawn("a", lambda: Obedient("a", journal))
        other = await pair.spawn("b", lambda: Obedient("b", journal))
        await other.tell(Note("under way", takes_s=100.0))
        await trio.lowlevel.checkpoint()
        await other.tell(Note("queued"))
        await ref.tell(Crash())
        assert await ref.ask(Echo("again"), 10) == "again"
        assert trio.current_time() == 1.0
        await trio.sleep(1)

    in_system(body)
    assert [what for _, what in journal] == ["a+", "b+", "a-", "b-", "a+", "b+", "b queued", "b-", "a-"]


def test_refs_and_queues_outlive_a_restart_for_a_siblings_sake() -> None:
    """Through two levels of supervisors, which are stopped in order to be started again."""
    journal: Journal = []

    async def body(system: ActorSystem) -> None:
        sibling = await spawn_obedient(system, [], "sibling")
        outer = await system.supervisor("outer")
        inner = await outer.supervisor("inner")
        ref = await inner.spawn("a", lambda: Obedient("a", journal))
        await ref.tell(Note("under way", takes_s=1.0))
        await ref.tell(Note("queued"))
        await trio.sleep(0.5)
        await sibling.tell(Crash())
        assert await ref.ask(Echo("again"), 10) == "again"

    in_system(body, strategy="one_for_all")
    assert journal == [
        (0.0, "a+"),
        (1.0, "a under way"),
        (1.0, "a-"),
        (2.0, "a+"),
        (2.0, "a queued"),
        (2.0, "a-"),
    ]


def test_one_that_was_asked_to_stop_is_not_restarted_with_its_siblings() -> None:
    journal: Journal = []

    async def body(system: ActorSystem) -> None:
        a = await spawn_obedient(system, journal, "a")
        b = await spawn_obedient(system, journal, "b")
        await a.tell(Note("under way", takes_s=1.0))
        await trio.sleep(0.5)
        await b.tell(Crash())
        await trio.sleep(0.25)
        a.stop()
        assert await a.wait_terminated() == Terminated("a", "stopped")
        await trio.sleep(5)
        assert system.census().paths == ["b"]

    in_system(body, strategy="one_for_all")
    assert journal[2:] == [(0.5, "b-"), (1.0, "a under way"), (1.0, "a-"), (2.0, "b+"), (6.0, "b-")]


def test_a_stop_that_a_crash_overtakes_does_not_stop_the_next_incarnation() -> None:
    journal: Journal = []

    class Late(Obedient):
        async def handle(self, message: Order, context: Context[Order]) -> None:
            await trio.sleep(1)
            await super().handle(message, context)

    async def body(system: ActorSystem) -> None:
        a = await system.spawn("a", lambda: Late("a", journal))
        b = await system.spawn("b", lambda: Obedient("b", journal))
        await a.tell(Crash())
        await trio.sleep(0.5)
        await b.tell(Crash())
        # At 0.5 a is asked to stop, for b's sake; at 1 it crashes before it can.
        await trio.sleep(10)
        assert a.terminated is None
        assert system.census().paths == ["a", "b"]

    in_system(body, strategy="one_for_all", restart=Restart(type="transient", initial_pause_s=1.0))
    assert journal == [
        (0.0, "a+"),
        (0.0, "b+"),
        (0.5, "b-"),
        (1.0, "a-"),
        (2.0, "a+"),
        (2.0, "b+"),
        (10.5, "b-"),
        (10.5, "a-"),
    ]


def test_dead_letters_are_counted_bounded_and_subscribable() -> None:
    async def body(system: ActorSystem) -> None:
        ref = await spawn_obedient(system, [])
        ref.stop()
        await ref.wait_terminated()
        seen: list[DeadLetter] = []
        with system.dead_letters.subscribe(seen.append):
            for number in range(5):
                await ref.tell(Note(number))
        await ref.tell(Note(5))
        letters = system.dead_letters
        assert [(letter.to, letter.reason) for letter in seen] == [("a", "not_running")] * 5
        assert [letter.message for letter in letters.recent] == [Note(number) for number in (3, 4, 5)]
        assert (letters.count, letters.counts) == (6, {"not_running": 6})
        assert system.census().dead_letters == 6

    in_system(body, dead_letters_max=3)


def test_a_census() -> None:
    async def body(system: ActorSystem) -> None:
        workers = await system.supervisor("workers", strategy="rest_for_one")
        ref = await workers.spawn("w1", lambda: Obedient("w1", []), mailbox=MailboxLimits(2))
        await ref.tell(Note("under way", takes_s=1.0))
        await trio.lowlevel.checkpoint()
        await ref.tell(Note("queued"))
        ref.tell_control(Note("control"))
        census = system.census()
        assert census.paths == ["workers", "workers/w1"]
        entry = census["workers/w1"]
        assert (entry.parent, entry.kind, entry.state, entry.handles) == ("workers", "actor", "running", "Note")
        assert (entry.mailbox_messages, entry.mailbox_messages_max, entry.control_messages) == (1, 2, 1)
        with pytest.raises(KeyError):
            census["w1"]
        assert str(census) == (
            "s: 2 actors, 0 dead letters\n"
            "actor    kind        state    restarts  mailbox  handles  waits for\n"
            "workers  supervisor  running  0\n"
            "  w1     actor       running  0         1/2      Note"
        )
        assert repr(ref) == "<ActorRef workers/w1>"

    in_system(body)


def test_messages_are_traced_when_asked_for() -> None:
    recorder = new_recorder()

    async def body(system: ActorSystem) -> None:
        echo = await spawn_obedient(system, [], "echo")
        a = await system.spawn("a", lambda: Forwarder([echo], []))
        await a.ask(Forward(10), 10)
        echo.stop()
        await echo.wait_terminated()
        await echo.tell(Note("lost"))

    in_system(body, tracer=recorder.tracer("node"), trace_messages=True)
    events = [event for event in recorder.events if event.kind in ("actor.send", "actor.message", "actor.dead_letter")]
    assert [(event.kind, event.actor, event.link_id, event.status) for event in events] == [
        ("actor.send", "", 0, None),
        ("actor.message", "a", 0, None),
        ("actor.send", "a", 1, None),
        ("actor.message", "echo", 1, None),
        ("actor.send", "", 2, None),
        ("actor.dead_letter", "echo", None, "not_running"),
    ]
    # Each has its cause: a message its send, a send the message that was handled.
    assert [event.parent_seq for event in events] == [None, events[0].seq, events[1].seq, events[2].seq, None, None]
    assert events[2].attrs == {"to": "echo", "message": "Echo"}


def test_messages_are_not_traced_unless_asked_for() -> None:
    recorder = new_recorder()

    async def body(system: ActorSystem) -> None:
        ref = await spawn_obedient(system, [])
        await ref.ask(Echo(""), 1)

    in_system(body, tracer=recorder.tracer("node"))
    assert [event.kind for event in recorder.events] == ["actor.start", "actor.stop"]


SAME_SEED = """
import trio
from rmq_actors.actors.messages.mailbox import MailboxLimits
from rmq_actors.actors.restart import Restart
from rmq_actors.actors.system import open_actor_system
from sim_net import World
from tests.worlds.actors_in_world import Crash, Echo, Note, Obedient

async def main(world):
    node = world.node("n")
    async with open_actor_system("s", entropy=node.entropy, strategy="rest_for_one") as system:
        refs = [
            await system.spawn(
                name, lambda: Obedient(name, []), restart=Restart(restarts_max=100), mailbox=MailboxLimits(2)
            )
            for name in "abcd"
        ]

        async def work(number):
            for step in range(20):
                await trio.sleep(node.entropy.random())
                ref = refs[int(node.entropy.random() * 4)]
                with trio.move_on_after(3):
                    await ref.tell(Crash() if node.entropy.random() < 0.2 else Note(step, takes_s=0.5))
                try:
                    await ref.ask(Echo("?", takes_s=0.2), 0.7)
                except Exception as error:
                    world.journal.mix(repr(error).encode())
            world.journal.mix(str(system.census()).encode())

        async with trio.open_nursery() as nursery:
            for number in range(5):
                nursery.start_soon(work, number)

for seed in (1, 1, 2):
    world = World(seed)
    world.run(main)
    print(world.digest)
"""


def test_the_same_seed_gives_the_same_run() -> None:
    digests = [
        subprocess.run(
            [sys.executable, "-c", SAME_SEED],
            capture_output=True,
            check=True,
            text=True,
            cwd=Path(__file__).parents[2],
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
        ).stdout.split()
        for hash_seed in ("1", "4242")
    ]
    assert digests[0] == digests[1]
    first, again, other = digests[0]
    assert first == again != other
