"""WakeUp: RocketMQ's waitForRunning without its lost wake-ups."""

from __future__ import annotations

import pytest
import trio
import trio.testing

from rmq_actors.actors.services.service import WakeUp
from tests.worlds.recording import new_recorder


@pytest.mark.trio
async def test_a_wake_up_before_the_wait_is_not_lost(autojump_clock: trio.testing.MockClock) -> None:
    wake = WakeUp()
    wake.wakeup()
    assert await wake.wait_for_running(10.0)
    assert trio.current_time() == 0


@pytest.mark.trio
async def test_many_are_one(autojump_clock: trio.testing.MockClock) -> None:
    wake = WakeUp()
    for _ in range(5):
        wake.wakeup()
    assert await wake.wait_for_running(10.0)
    assert not await wake.wait_for_running(10.0)
    assert trio.current_time() == 10


@pytest.mark.trio
async def test_a_wake_up_ends_the_wait(autojump_clock: trio.testing.MockClock) -> None:
    wake = WakeUp()
    woken: list[tuple[float, bool]] = []

    async def wait() -> None:
        for deadline in (10.0, 10.0):
            by_wake_up = await wake.wait_for_running(deadline)
            woken.append((trio.current_time(), by_wake_up))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(wait)
        await trio.sleep(3)
        wake.wakeup()
        wake.wakeup()
    assert woken == [(3.0, True), (10.0, False)]


@pytest.mark.trio
async def test_a_wake_up_counts_when_the_deadline_has_passed(autojump_clock: trio.testing.MockClock) -> None:
    wake = WakeUp()
    await trio.sleep(5)
    wake.wakeup()
    assert await wake.wait_for_running(1.0)
    assert not await wake.wait_for_running(1.0)


@pytest.mark.trio
async def test_a_cancelled_wait_keeps_the_wake_up(autojump_clock: trio.testing.MockClock) -> None:
    wake = WakeUp()
    with trio.move_on_after(1):
        await wake.wait_for_running(float("inf"))
    wake.wakeup()
    with trio.CancelScope() as scope:
        scope.cancel()
        await wake.wait_for_running(float("inf"))
    assert scope.cancelled_caught
    assert await wake.wait_for_running(2.0)


@pytest.mark.trio
async def test_it_is_a_checkpoint() -> None:
    wake = WakeUp()
    wake.wakeup()
    with trio.testing.assert_checkpoints():
        await wake.wait_for_running(float("inf"))
    with trio.testing.assert_checkpoints():
        await wake.wait_for_running(float("-inf"))


@pytest.mark.trio
async def test_each_end_of_a_wait_is_traced_with_its_cause(autojump_clock: trio.testing.MockClock) -> None:
    recorder = new_recorder()
    wake_up = WakeUp("FlushService", recorder.tracer("node"))
    await wake_up.wait_for_running(5.0)
    wake_up.wakeup("commit log")
    wake_up.wakeup("another, too late to be the cause")
    await wake_up.wait_for_running(10.0)
    await wake_up.wait_for_running(15.0)
    wake_up.wakeup()
    await wake_up.wait_for_running(20.0)
    assert [(event.kind, event.actor, event.status) for event in recorder.events] == [
        ("actor.wakeup", "FlushService", cause) for cause in ("interval", "commit log", "interval", "wakeup")
    ]
