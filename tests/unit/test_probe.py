"""Probe: a handler as a plain function, with its effects captured."""

from __future__ import annotations

import attrs
import pytest
import trio

from rmq_actors.actors.messages.actor import Actor, Context
from rmq_actors.actors.messages.cell import AskTimeout
from rmq_actors.actors.messages.ref import ActorRef, ReplyTo, Request
from rmq_actors.actors.restart import Terminated
from rmq_actors.testing.probe import Effects, HandlerWaits, Probe, Sent, TimerSet, run_handler


@attrs.frozen
class Withdraw(Request[bool]):
    amount: int


@attrs.frozen
class Close:
    how: str


@attrs.frozen
class Check(Request[str]):
    what: str


Message = Withdraw | Close | Terminated


async def run_for_ever() -> None:
    await trio.sleep_forever()


@attrs.define(eq=False)
class Account(Actor[Message]):
    audit: ActorRef[Check | str]
    balance: int = 10
    kept: list[ReplyTo[bool]] = attrs.field(factory=list)

    async def on_start(self, context: Context[Message]) -> None:
        context.timers.every(60.0, Close("idle"))
        context.watch(self.audit, lambda notice: notice)
        context.start_soon(run_for_ever)
        await context.spawn("child", lambda: Account(self.audit))

    async def on_stop(self, context: Context[Message]) -> None:
        self.audit.stop()

    async def handle(self, message: Message, context: Context[Message]) -> None:
        match message:
            case Withdraw(amount) if amount > self.balance:
                verdict = await self.audit.ask(Check("credit"), 1)
                context.reply(message, verdict == "good")
            case Withdraw(0):
                self.kept.append(context.reply_to(message))
            case Withdraw(amount):
                self.balance -= amount
                context.reply(message, value=True)
                await self.audit.tell(f"withdrawn {amount}")
            case Close("now"):
                assert self.audit.try_tell("closed")
                assert self.audit.tell_control("urgent")
                context.stop()
            case Close("later"):
                context.timers.after(5.0, Close("now"))
            case Close("after the audit"):
                await self.audit.wait_terminated()
            case Close("slowly"):
                await trio.lowlevel.wait_task_rescheduled(lambda _: trio.lowlevel.Abort.SUCCEEDED)
            case _:
                raise ValueError(message)


def test_effects_are_captured() -> None:
    probe = Probe()
    account = Account(probe.ref("audit"))
    assert probe.handle(account, Withdraw(4)) == Effects(replies=[True], sent=[Sent("audit", "withdrawn 4")])
    assert account.balance == 6
    assert probe.handle(account, Close("now")) == Effects(
        sent=[Sent("audit", "closed"), Sent("audit", "urgent", in_control_lane=True)], finished=True
    )
    assert probe.handle(account, Close("later")) == Effects(timers=[TimerSet(5.0, Close("now"))])
    assert probe.handle(account, Withdraw(0)) == Effects(kept_reply=True)


def test_hooks_run_too() -> None:
    probe = Probe("account")
    account = Account(probe.ref("audit"))
    assert probe.start(account) == Effects(
        timers=[TimerSet(60.0, Close("idle"), is_periodic=True)],
        watched=["audit"],
        started=["run_for_ever"],
        spawned=["child"],
    )
    assert probe.stop(account) == Effects(stopped=["audit"])


def test_asks_are_answered_as_the_test_says() -> None:
    probe = Probe()
    for answer, reply in (("good", True), ("bad", False)):
        account = Account(probe.ref("audit", {Check("credit"): answer}.get))
        assert probe.handle(account, Withdraw(100)) == Effects(asked=[Sent("audit", Check("credit"))], replies=[reply])
    account = Account(probe.ref("audit", answer=lambda _: AskTimeout("slow")))
    with pytest.raises(AskTimeout, match="slow"):
        probe.handle(account, Withdraw(100))
    assert probe.effects == Effects(asked=[Sent("audit", Check("credit"))])


@pytest.mark.parametrize(
    ("message", "why"),
    [
        (Withdraw(100), "audit was asked and has no answer"),
        (Close("slowly"), "waits for something that is not its context's"),
        (Close("after the audit"), "waits for the end of audit"),
    ],
)
def test_a_handler_that_waits_is_refused(message: Message, why: str) -> None:
    probe = Probe()
    with pytest.raises(HandlerWaits, match=why):
        probe.handle(Account(probe.ref("audit")), message)


def test_what_the_handler_raises_comes_out() -> None:
    probe = Probe()
    with pytest.raises(ValueError, match="what"):
        probe.handle(Account(probe.ref("audit")), Close("what"))


def test_an_actor_without_refs() -> None:
    class Doubler(Actor[Withdraw]):
        async def handle(self, message: Withdraw, context: Context[Withdraw]) -> None:
            context.reply(message, message.amount > 1)

    assert run_handler(Doubler(), Withdraw(2)).replies == [True]
