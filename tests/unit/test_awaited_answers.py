"""Requests that wait for answers: each until its own time-out is over, whoever else waits."""

from __future__ import annotations

import contextvars
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
import trio
import trio.testing
from trio.testing import MockClock

from rmq_actors.remoting.awaited_answers import AwaitedAnswers
from rmq_actors.wire.remoting_command import RemotingCommand


@asynccontextmanager
async def opened(in_flight_max: int = 100) -> AsyncIterator[AwaitedAnswers]:
    answers = AwaitedAnswers.at_most(in_flight_max)
    async with trio.open_nursery() as nursery:
        answers.open(nursery)
        yield answers
        nursery.cancel_scope.cancel()


async def wait(answers: AwaitedAnswers, timeout_s: float) -> tuple[RemotingCommand | None, float]:
    """What came, and when."""
    request = answers.begin(trio.current_time() + timeout_s)
    assert request is not None
    try:
        return await request.answer(), trio.current_time()
    finally:
        answers.forget(request)


@pytest.mark.trio
async def test_each_request_ends_at_its_own_deadline(autojump_clock: MockClock) -> None:
    ended: dict[float, float] = {}

    async def wait_for(timeout_s: float, after_s: float) -> None:
        await trio.sleep(after_s)
        response, ended_s = await wait(answers, timeout_s)
        assert response is None
        ended[timeout_s] = ended_s - began_s

    began_s = trio.current_time()
    async with opened() as answers, trio.open_nursery() as nursery:
        for timeout_s, after_s in ((3.0, 0.0), (10.0, 0.0), (0.5, 0.1), (1.0, 0.0), (0.0, 2.0), (2.5, 7.0)):
            nursery.start_soon(wait_for, timeout_s, after_s)
    assert {timeout_s: round(at_s, 6) for timeout_s, at_s in ended.items()} == {
        3.0: 3.0,
        10.0: 10.0,
        0.5: 0.6,
        1.0: 1.0,
        0.0: 2.0,
        2.5: 9.5,
    }
    assert len(answers) == 0


@pytest.mark.trio
async def test_an_answer_ends_the_wait_of_its_request_alone(autojump_clock: MockClock) -> None:
    async with opened() as answers, trio.open_nursery() as nursery:
        found: dict[str, tuple[RemotingCommand | None, float]] = {}

        async def wait_as(name: str, timeout_s: float) -> None:
            found[name] = await wait(answers, timeout_s)

        began_s = trio.current_time()
        for name in ("first", "second"):
            await trio.testing.wait_all_tasks_blocked()
            nursery.start_soon(wait_as, name, 5.0)
        await trio.sleep(1.0)
        assert answers.take(RemotingCommand(0, opaque=1))
        assert not answers.take(RemotingCommand(0, opaque=1)), "it was answered already"
        assert not answers.take(RemotingCommand(0, opaque=7))
    assert (found["second"][0], found["first"][0]) == (RemotingCommand(0, opaque=1), None)
    assert [round(found[name][1] - began_s, 6) for name in ("second", "first")] == [1.0, 5.0]


@pytest.mark.trio
async def test_an_answer_that_comes_in_the_instant_of_a_cancellation_is_to_nobody(autojump_clock: MockClock) -> None:
    async with opened() as answers, trio.open_nursery() as nursery:
        nursery.start_soon(wait, answers, 5.0)
        await trio.testing.wait_all_tasks_blocked()
        nursery.cancel_scope.cancel()
        assert not answers.take(RemotingCommand(0, opaque=0))
        assert len(answers) == 0


@pytest.mark.trio
async def test_the_end_of_the_connection_ends_all(autojump_clock: MockClock) -> None:
    async with opened() as answers:
        requests = [answers.begin(trio.current_time() + 5.0) for _ in range(2)]
        async with trio.open_nursery() as nursery:
            for request in requests:
                assert request is not None
                nursery.start_soon(request.answer)
            await trio.testing.wait_all_tasks_blocked()
            answers.close()
            answers.end_all()
        assert [request is not None and request.is_lost for request in requests] == [True, True]
        # A request that is too late: nothing watches it, and nothing is started for it.
        assert answers.begin(trio.current_time() + 5.0) is not None


@pytest.mark.trio
async def test_too_many_requests_are_not_taken(autojump_clock: MockClock) -> None:
    async with opened(1) as answers:
        first = answers.begin(trio.current_time() + 5.0)
        assert first is not None
        assert answers.begin(trio.current_time() + 5.0) is None
        answers.forget(first)
        assert answers.begin(trio.current_time() + 5.0) is not None


@pytest.mark.trio
async def test_who_waits_for_nothing_wakes_nobody() -> None:
    """Without a request no deadline is left that would wake the process: an idle client sleeps."""
    async with opened() as answers:
        for _ in range(3):
            request = answers.begin(trio.current_time() + 3.0)
            assert request is not None
            await trio.testing.wait_all_tasks_blocked()
            assert trio.lowlevel.current_statistics().seconds_to_next_deadline <= 3.0
            answers.forget(request)
            assert trio.lowlevel.current_statistics().seconds_to_next_deadline > 1000


@pytest.mark.trio
async def test_the_task_that_watches_is_not_in_the_context_of_a_request(autojump_clock: MockClock) -> None:
    variable = contextvars.ContextVar("variable", default="connection")
    watching: list[str | None] = []

    class Instrument(trio.abc.Instrument):
        def task_spawned(self, task: trio.lowlevel.Task) -> None:
            watching.append(task.context.get(variable))

    async with opened() as answers:
        variable.set("request")
        trio.lowlevel.add_instrument(Instrument())
        answers.begin(trio.current_time() + 5.0)
    assert watching == [None]


@pytest.mark.parametrize("timeout_s", [0.0, -1.0])
@pytest.mark.trio
async def test_a_time_out_that_is_over_already_ends_at_once(autojump_clock: MockClock, timeout_s: float) -> None:
    async with opened() as answers:
        began_s = trio.current_time()
        assert (await wait(answers, timeout_s))[0] is None
        assert trio.current_time() == began_s
