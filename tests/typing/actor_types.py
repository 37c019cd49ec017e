"""What mypy and pyright must accept and refuse. Nothing here runs.

Each wrong line carries the ignores of both checkers. Both are set to complain of an ignore that hides nothing, so a
mistake that one of them no longer sees fails `make check`.
"""

from __future__ import annotations

from typing import assert_type

import attrs

from rmq_actors.actors.messages.actor import Actor, Context
from rmq_actors.actors.messages.ref import ActorRef, ReplyTo, Request
from rmq_actors.actors.restart import Terminated
from rmq_actors.actors.system import ActorSystem
from rmq_actors.testing.probe import Probe


@attrs.frozen
class Deposit:
    """A message that is told."""

    amount: int


@attrs.frozen
class Balance(Request[int]):
    """A message that is asked."""


@attrs.frozen
class Owner(Request[str]):
    """A message that another actor is asked."""


Message = Deposit | Balance | Terminated


@attrs.define(eq=False)
class Account(Actor[Message]):
    """The actor of these tests."""

    owner: str = ""
    balance: int = 0
    kept: list[ReplyTo[int]] = attrs.field(factory=list)

    async def handle(self, message: Message, context: Context[Message]) -> None:
        """Right and wrong uses of a context."""
        assert_type(context.ref, ActorRef[Message])
        match message:
            case Balance():
                context.reply(message, self.balance)
                self.kept.append(context.reply_to(message))
                context.reply(message, "ten")  # type: ignore[misc]  # pyright: ignore[reportArgumentType]
                context.reply_to(message).send("ten")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
            case Deposit():
                context.reply(message, 1)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
            case Terminated():
                pass
        context.timers.after(1.0, Deposit(1))
        context.timers.every(1.0, Balance())
        context.timers.after(1.0, "tick")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
        context.timers.every(1.0, Owner())  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
        child = await context.spawn("child", Account)
        assert_type(child, ActorRef[Message])
        context.watch(child, lambda notice: notice)
        context.watch(child, lambda notice: Deposit(len(notice.path)))
        context.watch(child, lambda notice: notice.path)  # type: ignore[arg-type, return-value]  # pyright: ignore[reportArgumentType]


class Narrow(Actor[Message]):
    """An actor whose handler takes less than it says."""

    async def handle(self, message: Deposit, context: Context[Message]) -> None:  # type: ignore[override]  # pyright: ignore[reportIncompatibleMethodOverride]
        """Wrong: others may send it a `Balance`."""


async def tell_and_ask(system: ActorSystem) -> None:
    """Refs."""
    ref = await system.spawn("account", Account)
    assert_type(ref, ActorRef[Message])
    await ref.tell(Deposit(1))
    await ref.tell(Balance())
    assert_type(ref.try_tell(Deposit(1)), bool)
    assert_type(await ref.ask(Balance(), 1), int)

    await ref.tell("deposit")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    ref.try_tell(1)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    ref.tell_control(Owner())  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    await ref.ask(Owner(), 1)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    await ref.ask(Deposit(1), 1)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    await system.spawn("no actor", Deposit)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]

    # A ref may be handed on as one that takes less, never as one that takes more.
    less: ActorRef[Deposit] = ref
    await less.tell(Deposit(1))
    more: ActorRef[Message | str] = ref  # type: ignore[assignment]  # pyright: ignore[reportAssignmentType]
    await more.tell("deposit")


def run_handlers() -> None:
    """Probes."""
    probe = Probe()
    probe.handle(Account(), Deposit(1))
    probe.handle(Account(), "deposit")  # type: ignore[misc]  # pyright: ignore[reportArgumentType]
