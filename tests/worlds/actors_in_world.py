"""Actors that do what they are told, in virtual time, and note what they did when."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

import attrs
import trio

from rmq_actors.actors.messages.actor import Actor, Context
from rmq_actors.actors.messages.cell import AskFailed
from rmq_actors.actors.messages.mailbox import MailboxLimits
from rmq_actors.actors.messages.ref import ActorRef, Request
from rmq_actors.actors.restart import Restart, first_leaf
from rmq_actors.actors.system import ActorSystem, open_actor_system
from sim_net import World

T = TypeVar("T")

Journal = list[tuple[float, str]]


class PlannedCrash(Exception):
    """A crash that its test asked for."""


@attrs.frozen
class Crash:
    """Raise `error`, or a `PlannedCrash`."""

    error: Exception = attrs.field(factory=PlannedCrash)


@attrs.frozen
class Finish:
    """End by yourself."""


@attrs.frozen
class Note:
    """Note `text`, after `takes_s`."""

    text: object
    takes_s: float = 0.0


@attrs.frozen(eq=False)
class Echo(Request[str]):
    """Answer with `text`, after `takes_s`."""

    text: str
    takes_s: float = 0.0


Order = Crash | Finish | Note | Echo


@attrs.define(eq=False)
class Obedient(Actor[Order]):
    """Notes "name+" at its start, "name-" at its end, and what it is told to."""

    name: str
    journal: Journal
    start_takes_s: float = 0.0
    fails_to_start: Exception | None = None

    def note(self, what: object) -> None:
        self.journal.append((trio.current_time(), f"{self.name}{what}"))

    async def on_start(self, context: Context[Order]) -> None:
        if self.start_takes_s:
            await trio.sleep(self.start_takes_s)
        if self.fails_to_start is not None:
            raise self.fails_to_start
        self.note("+")

    async def handle(self, message: Order, context: Context[Order]) -> None:
        match message:
            case Crash(error):
                raise error
            case Finish():
                context.stop()
            case Note(text, takes_s):
                if takes_s:
                    await trio.sleep(takes_s)
                self.note(f" {text}")
            case Echo(text, takes_s):
                if takes_s:
                    await trio.sleep(takes_s)
                context.reply(message, text)

    async def on_stop(self, context: Context[Order]) -> None:
        self.note("-")


def run_in_world(main: Callable[[], Awaitable[T]], seed: int = 1) -> T:
    """Run `main` in a world of its own."""
    return World(seed, guard_packages=("rmq_actors",)).run(lambda _: main())


ONCE = Restart(type="temporary")
QUICK = Restart(initial_pause_s=1.0)


def in_system(body: Callable[[ActorSystem], Awaitable[None]], **settings: object) -> None:
    """Run `body` in an actor system in a world."""

    async def main() -> None:
        async with open_actor_system("s", **settings) as system:  # type: ignore[arg-type]
            await body(system)

    run_in_world(main)


async def spawn_obedient(
    system: ActorSystem, journal: Journal, name: str = "a", restart: Restart = QUICK, messages_max: int = 64
) -> ActorRef[Order]:
    return await system.spawn(
        name, lambda: Obedient(name, journal), restart=restart, mailbox=MailboxLimits(messages_max)
    )


def reasons(system: ActorSystem) -> list[tuple[object, str]]:
    return [(letter.message, letter.reason) for letter in system.dead_letters.recent]


def texts(journal: Journal) -> list[str]:
    return [what for _, what in journal]


@attrs.frozen(eq=False)
class Forward(Request[str]):
    """Ask the next one, which takes `takes_s`, with a time-out of its own."""

    timeout_s: float
    takes_s: float = 0.0


@attrs.define(eq=False)
class Forwarder(Actor[Forward]):
    """Asks `next_one` in its turn, in its handler's task or beside it."""

    next_one: list[ActorRef[Forward] | ActorRef[Order]]
    failures: list[tuple[float, AskFailed]]
    in_nursery: bool = False

    async def handle(self, message: Forward, context: Context[Forward]) -> None:
        try:
            context.reply(message, await self.ask_next(message))
        except AskFailed as error:
            self.failures.append((trio.current_time(), error))
            context.reply(message, "failed")

    async def ask_next(self, message: Forward) -> str:
        (ref,) = self.next_one
        answers = []

        async def ask() -> None:
            if ref.path == "echo":
                answers.append(await ref.ask(Echo("end", message.takes_s), message.timeout_s))  # type: ignore[arg-type]
            else:
                answers.append(await ref.ask(message, message.timeout_s))  # type: ignore[arg-type]

        if self.in_nursery:
            try:
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(ask)
            except ExceptionGroup as group:
                raise first_leaf(group) from None
        else:
            await ask()
        return answers[0]
