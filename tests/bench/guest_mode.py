"""Trio as a guest of asyncio: what a call from asyncio costs, and one to asyncio, beside calls that cross no border.

CPU microseconds. `python -m tests.bench.guest_mode --help`.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable

import trio

from rmq_actors.actors.asyncio_host import TrioGuest, open_trio_guest, run_in_asyncio
from tests.bench.measuring import arguments, measure, report

CALLS = 2000


async def nothing() -> None:
    """What is called, in Trio."""
    await trio.lowlevel.checkpoint()


async def nothing_in_asyncio() -> None:
    """What is called, in asyncio."""
    await asyncio.sleep(0)


async def checkpoints() -> None:
    """Bare checkpoints within one call."""
    for _ in range(CALLS):
        await trio.lowlevel.checkpoint()


async def calls_to_asyncio() -> None:
    """From Trio to asyncio and back."""
    for _ in range(CALLS):
        await run_in_asyncio(nothing_in_asyncio)


async def calls_after_one_another(guest: TrioGuest) -> None:
    """From asyncio to Trio and back."""
    for _ in range(CALLS):
        await guest.run(nothing)


async def calls_at_once(guest: TrioGuest) -> None:
    """As many calls, a hundred at a time."""
    for _ in range(CALLS // 100):
        async with asyncio.TaskGroup() as group:
            for _ in range(100):
                group.create_task(guest.run(nothing))


def in_guest(work: Callable[[TrioGuest], Awaitable[None]]) -> Callable[[], float]:
    """Do `work` in asyncio with a guest; CPU microseconds a call, its thread for I/O included."""

    def once() -> float:
        async def main() -> float:
            async with open_trio_guest() as guest:
                await guest.run(nothing)
                began = time.process_time()
                await work(guest)
                return (time.process_time() - began) / CALLS * 1e6

        return asyncio.run(main())

    return once


def bare_calls() -> float:
    """The same function in a task of a bare Trio run."""

    async def main() -> float:
        began = time.process_time()
        for _ in range(CALLS):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(nothing)
        return (time.process_time() - began) / CALLS * 1e6

    return trio.run(main)


def bare_asyncio_calls() -> float:
    """The same function in a task of bare asyncio."""

    async def main() -> float:
        began = time.process_time()
        for _ in range(CALLS):
            await asyncio.create_task(nothing_in_asyncio())
        return (time.process_time() - began) / CALLS * 1e6

    return asyncio.run(main())


def main() -> None:
    """Measure and print."""
    options = arguments(__doc__, rounds=7)
    cases = {
        "a task in bare Trio": bare_calls,
        "a task in bare asyncio": bare_asyncio_calls,
        "a checkpoint in a guest": in_guest(lambda guest: guest.run(checkpoints)),
        "asyncio calls Trio": in_guest(calls_after_one_another),
        "asyncio calls Trio, 100 at once": in_guest(calls_at_once),
        "Trio calls asyncio": in_guest(lambda guest: guest.run(calls_to_asyncio)),
    }
    figures = [measure(name, "us", once, rounds=options.rounds) for name, once in cases.items()]
    report(figures, notes=[f"{CALLS:,} calls a round; a call has one checkpoint"], as_json=options.json)


if __name__ == "__main__":
    main()
