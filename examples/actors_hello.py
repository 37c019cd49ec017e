"""Actors under supervision: tell and ask, a crash, a restart with fresh state, and the census of who lives.

Run it: pip install rmq-actors, then python examples/actors_hello.py
"""

from __future__ import annotations

import attrs
import trio

from rmq_actors.actors import Actor, Context, Request, Restart, open_actor_system


@attrs.frozen
class Deposit:
    """A message that needs no answer. Money in cents."""

    cents: int


@attrs.frozen
class Balance(Request[int]):
    """A message that is answered with an int: mypy knows what `ask` returns."""


class Account(Actor[Deposit | Balance]):
    """One task handles one message at a time, so the state needs no lock."""

    def __init__(self) -> None:
        self._cents = 0

    async def on_start(self, context: Context[Deposit | Balance]) -> None:
        """Runs before the first message of every incarnation."""
        print(f"{context.ref.path} opens")

    async def handle(self, message: Deposit | Balance, context: Context[Deposit | Balance]) -> None:
        """Raising is a crash: the supervisor makes a fresh account."""
        match message:
            case Deposit(cents):
                if cents <= 0:
                    raise ValueError(f"a deposit of {cents} cents")
                self._cents += cents
            case Balance():
                context.reply(message, self._cents)


async def main() -> None:
    """Two accounts; one fails."""
    async with open_actor_system("bank") as bank:
        accounts = await bank.supervisor("accounts", restart=Restart(initial_pause_s=0.01))
        alice = await accounts.spawn("alice", Account)
        bob = await accounts.spawn("bob", Account)

        for cents in (100, 20, 3):
            await alice.tell(Deposit(cents))
        await bob.tell(Deposit(7))
        print(f"alice has {await alice.ask(Balance(), timeout_s=1)} cents")

        await alice.tell(Deposit(-1))
        # The mailbox outlives the crash: this waits in it until the new account is open.
        print(f"alice has {await alice.ask(Balance(), timeout_s=1)} cents, after a crash")
        print(f"bob has {await bob.ask(Balance(), timeout_s=1)} cents, and did not notice")
        print(bank.census())
    print("the bank is closed")


if __name__ == "__main__":
    trio.run(main)
