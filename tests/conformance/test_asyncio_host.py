"""Calls between asyncio and its Trio guest: results, errors and cancellations cross in both directions."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import random
import traceback
from typing import NoReturn

import pytest
import trio

from rmq_actors.actors.asyncio_host import AsyncioCancelled, TrioGuest, run_in_asyncio
from tests.conformance.guest_runs import Journal, expire, sleeping, until, with_guest

# --- asyncio calls Trio ----------------------------------------------------------------------------------------------


def test_a_result_comes_back() -> None:
    async def add(left: int, right: int) -> int:
        await trio.sleep(0.001)
        return left + right

    async def main(guest: TrioGuest) -> None:
        assert await guest.run(add, 1, 2) == 3

    with_guest(main)


def test_an_exception_comes_back_with_its_traceback() -> None:
    async def fail_deep_in_trio() -> NoReturn:
        await trio.lowlevel.checkpoint()
        raise KeyError("missing")

    async def main(guest: TrioGuest) -> None:
        with pytest.raises(KeyError) as caught:
            await guest.run(fail_deep_in_trio)
        names = [frame.name for frame in traceback.extract_tb(caught.value.__traceback__)]
        assert names[-1] == "fail_deep_in_trio"
        assert names[0] == "main"

    with_guest(main)


def test_context_variables_of_the_caller_are_seen() -> None:
    request: contextvars.ContextVar[str] = contextvars.ContextVar("request")

    async def in_asyncio() -> str:
        return request.get()

    async def in_trio() -> tuple[str, str]:
        return request.get(), await run_in_asyncio(in_asyncio)

    async def main(guest: TrioGuest) -> None:
        request.set("number 7")
        assert await guest.run(in_trio) == ("number 7", "number 7")

    with_guest(main)


def test_a_time_out_in_asyncio_cancels_and_waits_for_the_clean_up() -> None:
    journal: Journal = []

    async def main(guest: TrioGuest) -> None:
        async def limited() -> None:
            async with timeout:
                await guest.run(sleeping, journal)

        timeout = asyncio.timeout(None)
        task = asyncio.create_task(limited())
        await until(lambda: journal)
        expire(timeout)
        with pytest.raises(TimeoutError):
            await task
        assert journal == ["began", "cleaned up"]

    with_guest(main)


def test_a_second_cancellation_does_not_cut_the_clean_up_short() -> None:
    journal: Journal = []

    async def main(guest: TrioGuest) -> None:
        task = asyncio.create_task(guest.run(sleeping, journal))
        await until(lambda: journal)
        for _ in range(3):
            task.cancel()
            await asyncio.sleep(0)
        with pytest.raises(asyncio.CancelledError):
            await task
        assert journal == ["began", "cleaned up"]

    with_guest(main)


def test_an_error_of_the_clean_up_stands_in_for_the_cancellation() -> None:
    journal: Journal = []

    async def main(guest: TrioGuest) -> None:
        task = asyncio.create_task(guest.run(sleeping, journal, OSError("cannot clean up")))
        await until(lambda: journal)
        task.cancel()
        with pytest.raises(OSError, match="cannot clean up") as caught:
            await task
        assert isinstance(caught.value.__context__, asyncio.CancelledError | trio.Cancelled)

    with_guest(main)


def test_a_result_after_the_cancellation_is_dropped() -> None:
    journal: Journal = []

    async def stubborn() -> str:
        journal.append("began")
        with trio.CancelScope(shield=True):
            await trio.sleep(0.01)
        return "too late"

    async def main(guest: TrioGuest) -> None:
        task = asyncio.create_task(guest.run(stubborn))
        await until(lambda: journal)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    with_guest(main)


def test_a_scope_of_the_function_itself_is_no_business_of_asyncio() -> None:
    async def give_up() -> str:
        with trio.move_on_after(0.001):
            await trio.sleep_forever()
        return "gave up"

    async def main(guest: TrioGuest) -> None:
        assert await guest.run(give_up) == "gave up"

    with_guest(main)


def test_many_calls_at_once() -> None:
    async def answer(send: trio.MemorySendChannel[int], number: int) -> int:
        await send.send(number)
        await trio.sleep(number % 7 / 1000)
        return number * number

    async def main(guest: TrioGuest) -> None:
        send, receive = trio.open_memory_channel[int](3)

        async def count() -> int:
            return sum([await receive.receive() for _ in range(200)])

        async with asyncio.TaskGroup() as group:
            total = group.create_task(guest.run(count))
            answers = [group.create_task(guest.run(answer, send, number)) for number in range(200)]
        assert [task.result() for task in answers] == [number * number for number in range(200)]
        assert total.result() == sum(range(200))

    with_guest(main)


def test_synchronous_functions_of_trio_may_be_called_from_asyncio() -> None:
    journal: Journal = []

    async def wait(event: trio.Event) -> None:
        journal.append("waits")
        await event.wait()
        journal.append("woken")

    async def main(guest: TrioGuest) -> None:
        event = trio.Event()
        async with asyncio.TaskGroup() as group:
            group.create_task(guest.run(wait, event))
            await until(lambda: journal)
            await asyncio.sleep(0.01)  # Trio now waits for I/O, in its thread
            event.set()
        assert journal == ["waits", "woken"]

    with_guest(main)


# --- Trio calls asyncio ----------------------------------------------------------------------------------------------


async def sleeping_in_asyncio(
    journal: Journal, scope: trio.CancelScope, cleanup_error: Exception | None = None
) -> None:
    """Let `scope`'s deadline, which is its caller's, strike during a sleep."""
    journal.append("began")
    scope.deadline = trio.current_time()
    try:
        await asyncio.sleep(3600)
    finally:
        await asyncio.sleep(0.001)
        journal.append("cleaned up")
        if cleanup_error is not None:
            raise cleanup_error


def test_trio_calls_asyncio() -> None:
    async def add(left: int, right: int) -> int:
        await asyncio.sleep(0.001)
        return left + right

    async def fail_deep_in_asyncio() -> NoReturn:
        await asyncio.sleep(0)
        raise KeyError("missing")

    async def in_trio() -> None:
        assert await run_in_asyncio(add, 1, 2) == 3
        with pytest.raises(KeyError) as caught:
            await run_in_asyncio(fail_deep_in_asyncio)
        assert traceback.extract_tb(caught.value.__traceback__)[-1].name == "fail_deep_in_asyncio"

    async def main(guest: TrioGuest) -> None:
        await guest.run(in_trio)

    with_guest(main)


def test_a_deadline_in_trio_cancels_asyncio_and_waits_for_the_clean_up() -> None:
    journal: Journal = []

    async def in_trio() -> None:
        with trio.CancelScope() as scope:
            await run_in_asyncio(sleeping_in_asyncio, journal, scope)
        assert scope.cancelled_caught
        assert journal == ["began", "cleaned up"]
        with trio.CancelScope() as scope:
            scope.cancel()
            await run_in_asyncio(sleeping_in_asyncio, journal, scope)
        assert journal == ["began", "cleaned up"]
        with pytest.raises(OSError, match="cannot clean up"), trio.CancelScope() as scope:
            await run_in_asyncio(sleeping_in_asyncio, journal, scope, OSError("cannot clean up"))

    async def main(guest: TrioGuest) -> None:
        await guest.run(in_trio)

    with_guest(main)


def test_a_result_after_a_deadline_in_trio_is_kept() -> None:
    async def stubborn(scope: trio.CancelScope) -> str:
        scope.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.sleep(3600)
        return "all the same"

    async def in_trio() -> None:
        with trio.CancelScope() as scope:
            assert await run_in_asyncio(stubborn, scope) == "all the same"
        assert not scope.cancelled_caught

    async def main(guest: TrioGuest) -> None:
        await guest.run(in_trio)

    with_guest(main)


def test_a_cancellation_by_asyncio_is_an_error_in_trio() -> None:
    tasks: list[asyncio.Task[object]] = []

    async def waits() -> None:
        task = asyncio.current_task()
        assert task is not None
        tasks.append(task)
        await asyncio.sleep(3600)

    async def in_trio() -> None:
        with pytest.raises(AsyncioCancelled, match="waits"):
            await run_in_asyncio(waits)

    async def main(guest: TrioGuest) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(guest.run(in_trio))
            await until(lambda: tasks)
            tasks[0].cancel()

    with_guest(main)


def test_a_cancellation_goes_through_every_floor() -> None:
    journal: Journal = []

    async def main(guest: TrioGuest) -> None:
        async def floor(depth: int) -> None:
            """asyncio calls Trio, which calls asyncio, and so on."""
            try:
                if depth:
                    await guest.run(run_in_asyncio, floor, depth - 1)
                else:
                    await guest.run(sleeping, journal)
            finally:
                journal.append(f"left {depth}")

        task = asyncio.create_task(floor(3))
        await until(lambda: journal)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert journal == ["began", "cleaned up", "left 0", "left 1", "left 2", "left 3"]

    with_guest(main)


def test_calls_that_are_cancelled_at_any_moment_end_where_they_began() -> None:
    """Calls of random depth, each cancelled after some steps: whoever began has left, the inner before the outer."""
    rng = random.Random(1)
    here: dict[int, list[int]] = {}

    async def floor_in_trio(guest: TrioGuest, call: int, depth: int, checkpoints: int) -> int:
        here[call].append(depth)
        try:
            for _ in range(checkpoints):
                await trio.lowlevel.checkpoint()
            return 1 + (await run_in_asyncio(floor, guest, call, depth - 1, checkpoints) if depth else 0)
        finally:
            with trio.CancelScope(shield=True):
                await trio.lowlevel.checkpoint()
            assert here[call].pop() == depth

    async def floor(guest: TrioGuest, call: int, depth: int, checkpoints: int) -> int:
        outside = len(here[call])
        try:
            return await guest.run(floor_in_trio, guest, call, depth, checkpoints)
        finally:
            assert len(here[call]) == outside

    async def cancel_after(task: asyncio.Task[int], steps: int) -> None:
        for _ in range(steps):
            await asyncio.sleep(0)
        for _ in range(2):
            task.cancel()
            await asyncio.sleep(0)

    async def main(guest: TrioGuest) -> None:
        ended = {"cancelled": 0, "returned": 0}
        for batch in range(12):
            async with asyncio.TaskGroup() as group:
                calls = {}
                for call in range(batch * 10, batch * 10 + 10):
                    here[call] = []
                    depth = rng.randint(0, 3)
                    task = group.create_task(floor(guest, call, depth, rng.randint(0, 3)))
                    calls[task] = depth
                    group.create_task(cancel_after(task, rng.randint(0, 60)))
            for task, depth in calls.items():
                ended["cancelled" if task.cancelled() else "returned"] += 1
                assert task.cancelled() or task.result() == depth + 1
        assert not any(here.values())
        assert all(ended.values()), ended

    with_guest(main)
