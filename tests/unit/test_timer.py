"""The timer of a broker: jobs at their times, in one task; what fails is the failure of the job's own service."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Callable

import attrs
import pytest
import trio
import trio.testing

from rmq_actors.actors.services.service import ServiceThread
from rmq_actors.actors.services.timer import Timer
from rmq_actors.actors.system import open_actor_system
from rmq_actors.tracing.event import of_kind
from rmq_actors.tracing.events.actor import ActorCrash
from tests.worlds.actors_in_world import PlannedCrash
from tests.worlds.recording import new_recorder


@attrs.define(eq=False)
class Periodic(ServiceThread):
    """A service with one job."""

    name: str
    _timer: Timer
    _interval_s: float
    _job: Callable[[], None]
    _first_after_s: float | None = None

    async def work(self, task_status: trio.TaskStatus[None]) -> None:
        with self._timer.every(self._interval_s, self._job, self, first_after_s=self._first_after_s):
            task_status.started()
            await trio.sleep_forever()


@contextlib.asynccontextmanager
async def running(*services: ServiceThread) -> AsyncIterator[None]:
    async with trio.open_nursery() as nursery:
        for service in services:
            await nursery.start(lambda task_status, each=service: each.run(task_status=task_status))
        yield
        for service in reversed(services):
            service.request_stop()


class Times(list[float]):
    """When a job ran, since now."""

    def __init__(self) -> None:
        self._began = trio.current_time()

    def note(self) -> None:
        self.append(round(trio.current_time() - self._began, 3))


@pytest.mark.trio
async def test_each_job_runs_at_its_times(autojump_clock: trio.testing.MockClock) -> None:
    timer, often, seldom = Timer(), Times(), Times()
    async with running(
        timer, Periodic("often", timer, 2.0, often.note), Periodic("seldom", timer, 3.0, seldom.note, 0.5)
    ):
        await trio.sleep(7)
    assert often == [2, 4, 6]
    assert seldom == [0.5, 3.5, 6.5]


@pytest.mark.trio
async def test_jobs_that_are_due_together_take_one_step(autojump_clock: trio.testing.MockClock) -> None:
    timer, steps, ran = Timer(), 0, Times()

    class Counting(trio.abc.Instrument):
        def before_task_step(self, task: trio.lowlevel.Task) -> None:
            nonlocal steps
            steps += any(frame.f_locals.get("self") is timer for frame, _ in task.iter_await_frames())

    jobs = [Periodic(f"{number}", timer, 10.0, ran.note, 10.0 + number / 1000) for number in range(5)]
    async with running(timer, *jobs):
        await trio.sleep(5)
        trio.lowlevel.add_instrument(counting := Counting())
        await trio.sleep(30)
        trio.lowlevel.remove_instrument(counting)
    assert (len(ran), steps) == (15, 3)


@pytest.mark.trio
async def test_what_a_pause_has_missed_is_not_made_up_for() -> None:
    clock = trio.testing.MockClock()
    timer, ran = Timer(), []

    async def main() -> None:
        async with running(timer, Periodic("a", timer, 2.0, lambda: ran.append(trio.current_time()))):
            for seconds in (2.5, 5.0, 0.4, 0.2, 2.0):
                clock.jump(seconds)
                await trio.testing.wait_all_tasks_blocked()

    await trio.to_thread.run_sync(lambda: trio.run(main, clock=clock))
    assert ran == [2.5, 7.5, 8.1, 10.1]


@pytest.mark.trio
async def test_a_job_ends_with_its_service_and_others_go_on(autojump_clock: trio.testing.MockClock) -> None:
    timer, one, other = Timer(), Times(), Times()
    async with running(timer, Periodic("other", timer, 1.0, other.note)):
        async with running(Periodic("one", timer, 1.0, one.note)):
            await trio.sleep(2.5)
        await trio.sleep(2)
    assert one == [1, 2]
    assert other == [1, 2, 3, 4]


@pytest.mark.trio
async def test_a_job_that_fails_crashes_its_service(autojump_clock: trio.testing.MockClock) -> None:
    timer, ran, recorder = Timer(), Times(), new_recorder()
    made: list[None] = []

    def fail_once() -> None:
        if len(made) == 1:
            raise PlannedCrash("a job")
        ran.note()

    def make() -> Periodic:
        made.append(None)
        return Periodic("fails", timer, 10.0, fail_once)

    async with open_actor_system("test", recorder.tracer("a")) as system:
        await system.start(timer)
        await system.start_supervised("fails", make)
        await trio.sleep(35)
    crashes = [(event.actor, event.status) for event in of_kind(recorder.events, ActorCrash)]
    assert crashes == [("fails", "PlannedCrash")]
    assert len(made) == 2
    assert len(ran) == 2
