"""The life of a Trio guest: one a loop; it ends with its block, however that ends, and leaves nothing behind."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import gc
import os
import signal
import subprocess
import sys
import threading
import traceback
from collections.abc import Awaitable, Callable
from typing import NoReturn

import pytest
import trio

from rmq_actors.actors.asyncio_host import TrioEnded, TrioGuest, open_trio_guest, run_in_asyncio
from tests.conformance.guest_runs import Journal, service, sleeping, until, with_guest


def test_a_second_guest_is_refused() -> None:
    async def main(guest: TrioGuest) -> None:
        with pytest.raises(RuntimeError, match="one Trio guest at a time"):
            async with open_trio_guest():
                pytest.fail("opened")
        await guest.run(trio.sleep, 0)

    with_guest(main)


def test_guests_after_one_another() -> None:
    async def run() -> None:
        for _ in range(3):
            async with open_trio_guest() as guest:
                await guest.run(trio.sleep, 0.001)
            with pytest.raises(TrioEnded, match="has ended: sleep cannot run"):
                await guest.run(trio.sleep, 0)

    asyncio.run(run())
    asyncio.run(run())


def test_nobody_looks_at_what_a_function_is_called_with() -> None:
    """It may be a message of many MiB, whose text would be made for each call, and be a part of the error."""

    class Long:
        def __repr__(self) -> str:
            pytest.fail("looked at")

    class Callee:
        async def __call__(self, argument: Long) -> Long:
            return argument

    async def echo(seconds: float, argument: Long) -> Long:
        await trio.sleep(seconds)
        return argument

    async def run() -> None:
        argument = Long()
        calls = (
            functools.partial(functools.partial(echo, argument=argument), 0),
            functools.partial(Callee(), argument),
        )
        async with open_trio_guest() as guest:
            for call in calls:
                assert await guest.run(call) is argument
        for call, name in zip(calls, ("echo", "Callee"), strict=True):
            with pytest.raises(TrioEnded, match=f"has ended: .*{name} cannot run"):
                await guest.run(call)

    asyncio.run(run())


def test_a_call_from_the_wrong_place_is_refused() -> None:
    async def in_trio(guest: TrioGuest) -> None:
        with pytest.raises(RuntimeError, match="in Trio, await the function itself"):
            await guest.run(trio.sleep, 0)

    async def main(guest: TrioGuest) -> None:
        await guest.run(in_trio, guest)
        with pytest.raises(RuntimeError, match="in asyncio, await the function itself"):
            await run_in_asyncio(asyncio.sleep, 0)

        def elsewhere() -> None:
            with pytest.raises(RuntimeError, match="belongs to another asyncio loop"):
                asyncio.run(guest.run(trio.sleep, 0))
            with pytest.raises(RuntimeError, match="in the thread of its asyncio loop only"):
                trio.run(guest.run, trio.sleep, 0)

        await asyncio.to_thread(elsewhere)

    with_guest(main)


def test_a_run_that_is_no_guest_has_no_asyncio() -> None:
    with pytest.raises(RuntimeError, match="needs a Trio run that is a guest of asyncio"):
        trio.run(run_in_asyncio, asyncio.sleep, 0)


def test_what_others_still_run_is_cancelled_at_the_end() -> None:
    journal: Journal = []

    async def run() -> None:
        async with open_trio_guest() as guest:
            task = asyncio.create_task(guest.run(sleeping, journal))
            await until(lambda: journal)
        assert journal == ["began", "cleaned up"]
        with pytest.raises(TrioEnded, match="the Trio guest ended while sleeping ran in it"):
            await task

    asyncio.run(run())


def test_an_error_of_the_block_ends_the_guest() -> None:
    journal: Journal = []

    async def run() -> None:
        async with open_trio_guest() as guest, guest.enter(service(journal)):
            await until(lambda: journal)
            raise ValueError("in the body")

    with pytest.RaisesGroup(pytest.RaisesExc(ValueError, match="in the body")):
        asyncio.run(run())
    assert journal[-1] == "cleaned up"
    assert not trio.lowlevel.in_trio_run()


@pytest.mark.parametrize("loops", range(4))
def test_a_cancellation_while_the_guest_opens_or_closes(loops: int) -> None:
    journal: Journal = []

    async def block() -> None:
        async with open_trio_guest() as guest:
            with contextlib.suppress(asyncio.CancelledError):
                await guest.run(sleeping, journal)
            journal.append("closes")

    async def run() -> None:
        opening = asyncio.create_task(block())
        for _ in range(loops):
            await asyncio.sleep(0)
        opening.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await opening
        assert not trio.lowlevel.in_trio_run()
        assert journal in ([], ["began", "cleaned up", "closes"])

        journal.clear()
        closing = asyncio.create_task(block())
        await until(lambda: journal)
        closing.cancel()
        await until(lambda: "closes" in journal)
        closing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await closing
        assert not trio.lowlevel.in_trio_run()

    asyncio.run(run())


def test_a_crash_of_trio_cancels_the_block_and_is_raised() -> None:
    journal: Journal = []

    async def bug() -> NoReturn:
        raise ValueError("a bug in a system task")

    async def run() -> None:
        async with open_trio_guest() as guest:
            call = asyncio.create_task(guest.run(sleeping, journal))
            await until(lambda: journal)
            trio.lowlevel.spawn_system_task(bug)
            try:
                await asyncio.sleep(3600)
            finally:
                with pytest.raises(TrioEnded):
                    await call
                journal.append("the block was cancelled")

    with pytest.raises(trio.TrioInternalError) as caught:
        asyncio.run(run())
    assert "a bug in a system task" in "".join(traceback.format_exception(caught.value))
    assert journal == ["began", "cleaned up", "the block was cancelled"]


def test_signal_handlers_of_asyncio_stay_in_force() -> None:
    async def run() -> None:
        received = asyncio.Event()
        asyncio.get_running_loop().add_signal_handler(signal.SIGUSR1, received.set)
        async with open_trio_guest() as guest:
            await guest.run(trio.sleep, 0)
            os.kill(os.getpid(), signal.SIGUSR1)
            await received.wait()

    asyncio.run(run())


def test_no_thread_is_left_at_work() -> None:
    """Trio's cache keeps the thread that waited for I/O for some seconds; runs after one another share it."""

    async def run() -> None:
        async with open_trio_guest() as guest:
            await guest.run(trio.sleep, 0.001)

    asyncio.run(run())
    before = threading.active_count()
    for _ in range(5):
        asyncio.run(run())
    assert threading.active_count() <= before


def test_an_ended_call_leaves_nothing_behind() -> None:
    """No reference cycle keeps a result or an exception alive: the collector has nothing to do."""

    class Big:
        pass

    async def fails() -> NoReturn:
        held = Big()
        raise ValueError(str(held))

    async def gives() -> Big:
        return Big()

    async def calls(async_fn: Callable[[], Awaitable[object]]) -> None:
        await run_in_asyncio(async_fn)

    def alive() -> int:
        return sum(isinstance(each, Big) for each in gc.get_objects())

    async def main(guest: TrioGuest) -> None:
        gc.disable()
        try:
            for async_fn in (gives, fails):
                for call in (async_fn, functools.partial(calls, async_fn)):
                    with contextlib.suppress(ValueError):
                        await guest.run(call)
            await guest.run(trio.sleep, 0)
            assert alive() == 0
        finally:
            gc.enable()

    with_guest(main)


CTRL_C = """
import asyncio, os, signal
import trio
from rmq_actors.actors.asyncio_host import open_trio_guest

# Whoever started the tests in the background has had it ignored.
signal.signal(signal.SIGINT, signal.default_int_handler)

async def in_trio():
    try:
        print("began", flush=True)
        os.kill(os.getpid(), signal.SIGINT)
        await trio.sleep_forever()
    finally:
        with trio.CancelScope(shield=True):
            await trio.sleep(0.01)
        print("cleaned up", flush=True)

async def main():
    try:
        async with open_trio_guest() as guest:
            call = asyncio.create_task(guest.run(in_trio))
            await asyncio.sleep(3600)
    finally:
        print("left, in Trio:", trio.lowlevel.in_trio_run(), flush=True)
        try:
            await call
        except RuntimeError as error:
            print(error, flush=True)

try:
    {start}
except KeyboardInterrupt:
    print("interrupted")
"""


@pytest.mark.parametrize(
    "start", ["asyncio.run(main())", "asyncio.new_event_loop().run_until_complete(main())"], ids=["asyncio's", "Trio's"]
)
def test_ctrl_c_ends_both(start: str) -> None:
    """Whichever of the two handles the signal: Trio cleans up, the block is left, KeyboardInterrupt comes out."""
    done = subprocess.run(
        [sys.executable, "-c", CTRL_C.format(start=start)], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.stdout.splitlines() == [
        "began",
        "cleaned up",
        "left, in Trio: False",
        "the Trio guest ended while in_trio ran in it",
        "interrupted",
    ], done.stderr


CRASH = """
import asyncio, contextlib, os
import trio
from rmq_actors.actors.asyncio_host import TrioEnded, open_trio_guest

@contextlib.asynccontextmanager
async def context():
    yield

def abort(_):
    raise ValueError("a bug in an abort function")

async def crash():
    with trio.move_on_after(0.01):
        await trio.lowlevel.wait_task_rescheduled(abort)

async def tell(guest, async_fn):
    try:
        await guest.run(async_fn)
    except TrioEnded as error:
        print(error)

async def main():
    async with open_trio_guest() as guest:
        calls = [asyncio.create_task(tell(guest, async_fn)) for async_fn in (trio.sleep_forever, crash)]
        try:
            with contextlib.suppress(TrioEnded):
                async with guest.enter(context()):
                    await asyncio.sleep(3600)
            await asyncio.sleep(3600)
        finally:
            await asyncio.gather(*calls)

try:
    asyncio.run(main())
except trio.TrioInternalError as error:
    print(repr(error.__cause__), flush=True)
os._exit(0)  # no word of the tasks that hang
"""


def test_a_crash_that_leaves_tasks_hanging_fails_their_callers() -> None:
    """An exception in Trio's own loop: no task of the guest runs to its end any more."""
    done = subprocess.run([sys.executable, "-c", CRASH], capture_output=True, text=True, timeout=60, check=False)
    assert done.stdout.splitlines() == [
        "the Trio guest ended while sleep_forever ran in it",
        "the Trio guest ended while crash ran in it",
        "ValueError('a bug in an abort function')",
    ], done.stderr
