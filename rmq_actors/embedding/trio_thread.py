"""Trio in a thread of its own, for callers that run in no Trio, in another one, or in asyncio.

with open_in_thread(lambda: open_cluster(directory)) as (cluster, thread):
    thread.run(cluster.put, message)             # from plain functions: it blocks
    await thread.arun(cluster.put, message)      # from Trio and asyncio
"""

from __future__ import annotations

import asyncio
import contextlib
import queue
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import AbstractAsyncContextManager
from typing import TypeVar, TypeVarTuple

import attrs
import outcome
import trio

T = TypeVar("T")
Args = TypeVarTuple("Args")


@attrs.frozen(eq=False)
class TrioThread:
    """Runs functions in the thread's Trio. What a function raises, its caller raises."""

    _token: trio.lowlevel.TrioToken

    def run(self, async_fn: Callable[[*Args], Awaitable[T]], *args: *Args) -> T:
        """Run `async_fn(*args)` and block until it ends, and with it the caller's event loop, if there is one."""
        return self._blocking(lambda: trio.from_thread.run(async_fn, *args, trio_token=self._token))

    def run_sync(self, fn: Callable[[*Args], T], *args: *Args) -> T:
        """The same for a function that is not asynchronous: objects of that Trio are for its thread alone."""
        return self._blocking(lambda: trio.from_thread.run_sync(fn, *args, trio_token=self._token))

    def _blocking(self, call: Callable[[], T]) -> T:
        """Trio lets no task of a Trio block for another one. Raises `RuntimeError` if both are the same."""
        if not trio.lowlevel.in_trio_run():
            return call()
        if trio.lowlevel.current_trio_token() is self._token:
            raise RuntimeError("this is the Trio of the thread itself: await the function")
        result: queue.Queue[outcome.Outcome[T]] = queue.Queue()
        threading.Thread(target=lambda: result.put(outcome.capture(call)), daemon=True).start()
        return result.get().unwrap()

    async def arun(self, async_fn: Callable[[*Args], Awaitable[T]], *args: *Args) -> T:
        """Run `async_fn(*args)` there, from a task of Trio or asyncio, which other tasks do not wait for.

        It is not ended by a cancellation of the caller, which waits for it.
        """
        if trio.lowlevel.in_trio_run():
            return await trio.to_thread.run_sync(lambda: self.run(async_fn, *args))
        return await asyncio.to_thread(lambda: self.run(async_fn, *args))


@contextlib.contextmanager
def open_in_thread(
    open_it: Callable[[], AbstractAsyncContextManager[T]],
) -> Iterator[tuple[T, TrioThread]]:
    """Enter an asynchronous context manager in a new thread's Trio, and leave it at the end of the block.

    Raises what the manager raises, before the block and after it. What fails within it meanwhile is raised at the end.
    """
    opened: queue.Queue[outcome.Outcome[tuple[T, TrioThread, trio.Event]]] = queue.Queue()
    ended: queue.Queue[outcome.Outcome[None]] = queue.Queue()

    async def main() -> None:
        done = trio.Event()
        async with open_it() as value:
            opened.put(outcome.Value((value, TrioThread(trio.lowlevel.current_trio_token()), done)))
            await done.wait()

    def live() -> None:
        result = outcome.capture(trio.run, main)
        ended.put(result)
        if isinstance(result, outcome.Error):
            opened.put(result)  # nobody waits for it once the manager was entered

    thread = threading.Thread(target=live, name="rmq_actors: Trio of a fixture", daemon=True)
    thread.start()
    value, trio_thread, done = opened.get().unwrap()
    try:
        yield value, trio_thread
    finally:
        with contextlib.suppress(trio.RunFinishedError):  # it has failed, which is raised below
            trio_thread.run_sync(done.set)
        thread.join()
        ended.get().unwrap()
