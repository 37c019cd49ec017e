"""Runs of asyncio with a Trio guest, and what the tests of them run in Trio."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable

import trio

from rmq_actors.actors.asyncio_host import TrioGuest, open_trio_guest

Journal = list[str]


def with_guest(main: Callable[[TrioGuest], Awaitable[None]]) -> None:
    """Run `main` in asyncio with a guest, and check that nothing is left of either."""

    async def run() -> None:
        async with open_trio_guest() as guest:
            await main(guest)
        assert asyncio.all_tasks() == {asyncio.current_task()}
        assert not trio.lowlevel.in_trio_run()

    asyncio.run(run(), debug=True)


async def sleeping(journal: Journal, cleanup_error: Exception | None = None) -> None:
    """Sleep for ever; clean-up takes a while, is journaled, and may fail."""
    journal.append("began")
    try:
        await trio.sleep_forever()
    finally:
        with trio.CancelScope(shield=True):
            for _ in range(5):
                await trio.lowlevel.checkpoint()
        journal.append("cleaned up")
        if cleanup_error is not None:
            raise cleanup_error


def expire(timeout: asyncio.Timeout) -> None:
    """Let a time-out of asyncio strike now."""
    timeout.reschedule(asyncio.get_running_loop().time())


async def until(condition: Callable[[], object]) -> None:
    while not condition():
        await asyncio.sleep(0)


@contextlib.asynccontextmanager
async def service(journal: Journal) -> AsyncIterator[str]:
    """A Trio context with a task of its own."""
    async with trio.open_nursery() as nursery:
        nursery.start_soon(sleeping, journal)
        await trio.lowlevel.checkpoint()
        try:
            yield "ready"
        except trio.Cancelled:
            journal.append("cancelled")
            raise
        except BaseException as error:
            journal.append(repr(error))
            raise
        journal.append("left")
        nursery.cancel_scope.cancel()
