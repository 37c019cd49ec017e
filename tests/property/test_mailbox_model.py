"""Mailboxes under overload: each policy does what its name says, against a list; and no message is lost silently."""

from __future__ import annotations

from typing import Literal, get_args

import attrs
import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st

from rmq_actors.actors.messages.actor import Actor, Context
from rmq_actors.actors.messages.mailbox import EMPTY, Mailbox, MailboxFull, MailboxLimits, Overflow
from rmq_actors.actors.restart import Restart, RestartType
from rmq_actors.actors.system import open_actor_system
from tests.worlds.actors_in_world import PlannedCrash, run_in_world

OVERFLOWS: tuple[Overflow, ...] = get_args(Overflow)

Operation = Literal["put", "put_nowait", "put_control", "take", "cancel"]


@attrs.define(eq=False)
class Model:
    """A mailbox as lists. `waiting` holds what tasks wait to put, `over` whether each put was taken."""

    messages_max: int
    overflow: Overflow
    control_max: int
    queue: list[int] = attrs.field(factory=list)
    control: list[int] = attrs.field(factory=list)
    waiting: list[int] = attrs.field(factory=list)
    over: dict[int, bool] = attrs.field(factory=dict)
    dropped: list[tuple[int, str]] = attrs.field(factory=list)

    def put(self, item: int, *, waits: bool) -> None:
        if len(self.queue) == self.messages_max:
            if self.overflow == "wait" and waits:
                self.waiting.append(item)
                return
            if self.overflow in ("wait", "drop_newest", "fail"):
                self.over[item] = False
                return
            reason = "superseded" if self.overflow == "latest" else "dropped_oldest"
            self.dropped.append((self.queue.pop(0), reason))
        self.queue.append(item)
        self.over[item] = True

    def put_control(self, item: int) -> None:
        self.over[item] = len(self.control) < self.control_max
        if self.over[item]:
            self.control.append(item)

    def take(self) -> int | None:
        if self.control:
            return self.control.pop(0)
        if not self.queue:
            return None
        item = self.queue.pop(0)
        if self.waiting:
            self.over[self.waiting[0]] = True
            self.queue.append(self.waiting.pop(0))
        return item


@given(
    st.sampled_from(OVERFLOWS),
    st.integers(1, 4),
    st.integers(1, 3),
    st.lists(st.sampled_from([*get_args(Operation), "put", "put", "take"]), max_size=40),
)
def test_a_mailbox_does_what_a_list_does(
    overflow: Overflow, messages_max: int, control_max: int, operations: list[Operation]
) -> None:
    model = Model(1 if overflow == "latest" else messages_max, overflow, control_max)

    async def main() -> None:
        dropped: list[tuple[object, str]] = []
        mailbox = Mailbox(
            MailboxLimits(messages_max, overflow, control_max), lambda item, reason: dropped.append((item, reason))
        )
        over: dict[int, bool] = {}
        scopes: dict[int, trio.CancelScope] = {}

        async def put(item: int) -> None:
            with trio.CancelScope() as scopes[item]:
                over[item] = await mailbox.put(item)

        async with trio.open_nursery() as nursery:
            for number, operation in enumerate(operations):
                match operation:
                    case "put":
                        nursery.start_soon(put, number)
                        model.put(number, waits=True)
                    case "put_nowait":
                        over[number] = mailbox.put_nowait(number)
                        model.put(number, waits=False)
                    case "put_control":
                        over[number] = mailbox.put_control(number)
                        model.put_control(number)
                    case "take":
                        item = mailbox.take_control()
                        if item is EMPTY:
                            item = mailbox.take()
                        assert (None if item is EMPTY else item) == model.take()
                    case "cancel":
                        if model.waiting:
                            scopes[model.waiting.pop(0)].cancel()
                await trio.sleep(0.001)
                assert len(mailbox) == len(model.queue) <= model.messages_max
                assert mailbox.control_messages == len(model.control) <= control_max
                assert mailbox.waiting_senders == len(model.waiting)
                assert over == model.over
                assert dropped == model.dropped
            assert mailbox.close() == model.control + model.queue
        assert over == model.over | dict.fromkeys(model.waiting, False)
        assert not mailbox.put_nowait(-1)
        assert not mailbox.put_control(-1)

    run_in_world(main)


def test_those_that_wait_for_room_are_served_in_order() -> None:
    taken: list[object] = []

    async def main() -> None:
        mailbox = Mailbox(MailboxLimits(1), lambda *_: None)
        async with trio.open_nursery() as nursery:
            for number in range(5):
                nursery.start_soon(mailbox.put, number)
                await trio.sleep(1)
            while mailbox:
                taken.append(mailbox.take())
                await trio.sleep(1)

    run_in_world(main)
    assert taken == [0, 1, 2, 3, 4]


@attrs.frozen
class Work:
    """A message with a number of its own."""

    number: int
    crashes: bool


@attrs.define(eq=False)
class Slow(Actor[Work]):
    """Handles one message a second."""

    handled: list[int]

    async def handle(self, message: Work, context: Context[Work]) -> None:
        await trio.sleep(1)
        if message.crashes:
            raise PlannedCrash
        self.handled.append(message.number)


@given(
    st.sampled_from(OVERFLOWS),
    st.integers(1, 3),
    st.sampled_from(get_args(RestartType)),
    st.lists(st.lists(st.tuples(st.integers(0, 8), st.booleans()), max_size=6), min_size=1, max_size=4),
    st.integers(0, 40),
    st.booleans(),
)
def test_each_message_is_handled_or_refused_or_a_dead_letter_once(
    overflow: Overflow,
    messages_max: int,
    restart_type: RestartType,
    senders: list[list[tuple[int, bool]]],
    stop_after_quarters: int,
    in_order: bool,
) -> None:
    """Whatever the policy, through crashes, restarts and the stop; and the mailbox stays within its bound."""
    fates: dict[int, list[str]] = {}
    handled: list[int] = []
    depths: list[int] = []

    async def main() -> None:
        async with open_actor_system("s", dead_letters_max=1000, stop_budget_s=10.0 if in_order else 0.1) as system:
            ref = await system.spawn(
                "slow",
                lambda: Slow(handled),
                restart=Restart(type=restart_type, restarts_max=1000),
                mailbox=MailboxLimits(messages_max, overflow),
            )

            async def send(base: int, plan: list[tuple[int, bool]]) -> None:
                for place, (quarters, crashes) in enumerate(plan):
                    await trio.sleep(quarters / 4)
                    work = Work(base + place, crashes)
                    fates[work.number] = []
                    try:
                        await ref.tell(work)
                    except MailboxFull:
                        fates[work.number].append("full")
                    depths.extend(entry.mailbox_messages for entry in system.census().entries)

            async with trio.open_nursery() as nursery:
                for number, plan in enumerate(senders):
                    nursery.start_soon(send, number * 100, plan)
                await trio.sleep(stop_after_quarters / 4)
                ref.stop()
        for letter in system.dead_letters.recent:
            assert isinstance(letter.message, Work)
            fates[letter.message.number].append(letter.reason)

    run_in_world(main)
    for number in handled:
        fates[number].append("handled")
    assert {number: fate for number, fate in fates.items() if len(fate) != 1} == {}
    assert max(depths, default=0) <= (1 if overflow == "latest" else messages_max)


@pytest.mark.parametrize("overflow", OVERFLOWS)
def test_a_slow_receiver_never_lets_memory_grow(overflow: Overflow) -> None:
    """20 senders, 100 messages each, one handled a second: never more held than the mailbox and one a sender."""
    handled: list[int] = []
    held: list[int] = []

    async def main() -> None:
        async with open_actor_system("s", dead_letters_max=8) as system:
            ref = await system.spawn("slow", lambda: Slow(handled), mailbox=MailboxLimits(4, overflow))

            async def send(base: int) -> None:
                for number in range(base, base + 100):
                    with trio.move_on_after(3600):
                        try:
                            await ref.tell(Work(number, crashes=False))
                        except MailboxFull:
                            await trio.sleep(0.5)
                    entry = system.census()["slow"]
                    held.append(entry.mailbox_messages + entry.waiting_senders)
                    assert entry.mailbox_messages <= entry.mailbox_messages_max <= 4
                    assert len(system.dead_letters.recent) <= 8

            async with trio.open_nursery() as nursery:
                for sender in range(20):
                    nursery.start_soon(send, sender * 100)

    run_in_world(main)
    assert max(held) <= 4 + 20
    if overflow == "wait":
        assert max(held) > 4
        assert len(handled) >= 2000 - 5
    else:
        assert max(held) <= 4
    assert handled


@pytest.mark.parametrize("settings", [{"messages_max": 0}, {"control_messages_max": 0}, {"overflow": "block"}])
def test_wrong_limits_are_refused(settings: dict[str, object]) -> None:
    (name,) = settings
    with pytest.raises(ValueError, match=rf"{name}( of a mailbox)? must be"):
        MailboxLimits(**settings)  # type: ignore[arg-type]


def test_one_task_receives() -> None:
    async def main() -> None:
        mailbox = Mailbox(MailboxLimits(), lambda *_: None)
        with pytest.RaisesGroup(pytest.RaisesExc(trio.BusyResourceError, match="another task receives")):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(mailbox.wait, 10.0)
                nursery.start_soon(mailbox.wait, 10.0)

    run_in_world(main)
