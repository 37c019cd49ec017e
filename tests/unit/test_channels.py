"""Channels: a bounded one makes its sender wait, a latest one forgets, a broadcast is a latest one a receiver."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator

import pytest
import trio
import trio.testing

from rmq_actors.actors.services.channels import CHANNELS, BoundedChannel, BroadcastChannel, LatestChannel


@pytest.fixture(autouse=True)
def _forget_declarations() -> Iterator[None]:
    before = dict(CHANNELS)
    yield
    CHANNELS.clear()
    CHANNELS.update(before)


def latest() -> LatestChannel[int]:
    return LatestChannel[int].declare("test.latest", carries="numbers", sender="a", receiver="b")


def broadcast() -> BroadcastChannel[int]:
    return BroadcastChannel[int].declare("test.broadcast", carries="numbers", sender="a", receiver="b, c")


@pytest.mark.trio
async def test_a_bounded_sender_waits_for_room() -> None:
    channel = BoundedChannel[int].declare("test.bounded", 2, carries="numbers", sender="a", receiver="b")
    send, receive = channel.open()
    send.send_nowait(1)
    send.send_nowait(2)
    with pytest.raises(trio.WouldBlock):
        send.send_nowait(3)
    assert [receive.receive_nowait(), receive.receive_nowait()] == [1, 2]


@pytest.mark.trio
async def test_the_latest_value_wins() -> None:
    send, receive = latest().open()
    for value in (1, 2, 3):
        send.put(value)
    assert await receive.receive() == 3
    with pytest.raises(trio.WouldBlock):
        receive.receive_nowait()
    send.put(4)
    assert await receive.receive() == 4


@pytest.mark.trio
async def test_a_waiting_receiver_gets_the_value_and_then_the_latest() -> None:
    send, receive = latest().open()
    seen: list[int] = []

    async def follow() -> None:
        async for value in receive:
            seen.append(value)  # noqa: PERF401  # what was seen so far is looked at

    async with trio.open_nursery() as nursery:
        nursery.start_soon(follow)
        await trio.testing.wait_all_tasks_blocked()
        for value in range(1, 6):
            send.put(value)
        await trio.testing.wait_all_tasks_blocked()
        assert seen[-1] == 5
        assert len(seen) <= 2
        nursery.cancel_scope.cancel()


@pytest.mark.trio
async def test_a_receiver_that_is_cancelled_loses_no_value() -> None:
    send, receive = latest().open()
    with trio.move_on_after(0):
        await receive.receive()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(receive.receive)
        await trio.testing.wait_all_tasks_blocked()
        nursery.cancel_scope.cancel()
    send.put(1)
    send.put(2)
    with trio.CancelScope() as scope:
        scope.cancel()
        await receive.receive()
    assert scope.cancelled_caught
    assert await receive.receive() == 2


@pytest.mark.trio
async def test_what_is_put_while_the_receiver_has_not_run_again_is_kept() -> None:
    send, receive = latest().open()
    seen: list[int] = []

    async def take_two() -> None:
        seen.extend([await receive.receive(), await receive.receive()])

    async with trio.open_nursery() as nursery:
        nursery.start_soon(take_two)
        await trio.testing.wait_all_tasks_blocked()
        for value in (1, 2, 3):
            send.put(value)
    assert seen == [1, 3]


@pytest.mark.trio
async def test_one_task_receives_at_a_time() -> None:
    _, receive = latest().open()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(receive.receive)
        await trio.testing.wait_all_tasks_blocked()
        with pytest.raises(trio.BusyResourceError):
            await receive.receive()
        nursery.cancel_scope.cancel()


@pytest.mark.trio
async def test_a_value_that_waits_is_taken_by_a_checkpoint() -> None:
    send, receive = latest().open()
    send.put(1)
    with trio.testing.assert_checkpoints():
        assert await receive.receive() == 1


@pytest.mark.trio
async def test_each_open_is_a_channel_of_its_own() -> None:
    channel = latest()
    (send, _), (_, other) = channel.open(), channel.open()
    send.put(1)
    with pytest.raises(trio.WouldBlock):
        other.receive_nowait()


@pytest.mark.trio
async def test_a_broadcast_reaches_every_subscriber_and_each_at_its_pace() -> None:
    sender = broadcast().open()
    sender.put(0)
    with sender.subscribe() as first, sender.subscribe() as second:
        assert sender.receivers == 2
        sender.put(1)
        assert first.receive_nowait() == 1
        sender.put(2)
        assert (first.receive_nowait(), second.receive_nowait()) == (2, 2)
        for receive in (first, second):
            with pytest.raises(trio.WouldBlock):
                receive.receive_nowait()
    assert sender.receivers == 0
    sender.put(3)


@pytest.mark.trio
async def test_one_subscriber_may_leave_before_another() -> None:
    sender = broadcast().open()
    with sender.subscribe() as stays:
        with pytest.raises(RuntimeError, match="leaves"), sender.subscribe():
            raise RuntimeError("leaves")
        with sender.subscribe() as newer:
            sender.put(1)
            assert (stays.receive_nowait(), newer.receive_nowait()) == (1, 1)
        assert sender.receivers == 1


def test_a_name_is_declared_once() -> None:
    latest()
    with pytest.raises(ValueError, match=r"channel test\.latest is declared twice"):
        latest()


def test_declarations_are_listed() -> None:
    latest()
    spec = CHANNELS["test.latest"]
    assert (spec.policy, spec.capacity, spec.carries, spec.sender, spec.receiver) == ("latest", 1, "numbers", "a", "b")


@pytest.mark.trio
async def test_a_subscriber_is_not_woken_for_what_it_takes_at_once() -> None:
    sender = broadcast().open()
    taken: list[int] = []

    def take(value: int) -> bool:
        taken.append(value)
        return value % 2 == 0

    with sender.subscribe(take) as picky, sender.subscribe() as other:
        for value in (1, 2):
            sender.put(value)
        assert (picky.receive_nowait(), other.receive_nowait()) == (1, 2)
        sender.put(4)
        with pytest.raises(trio.WouldBlock):
            picky.receive_nowait()
    sender.put(6)
    assert taken == [1, 2, 4]


@pytest.mark.trio
async def test_a_subscriber_that_lets_others_go_first_is_the_last_one() -> None:
    sender = broadcast().open()
    told: list[str] = []

    def take(name: str) -> Callable[[int], bool]:
        def told_first(_: int) -> bool:
            told.append(name)
            return True

        return told_first

    with contextlib.ExitStack() as stack:
        for name, others_first in (("a", False), ("last", True), ("b", False), ("c", False), ("very last", True)):
            stack.enter_context(sender.subscribe(take(name), others_first=others_first))
        sender.put(1)
        assert told == ["a", "b", "c", "last", "very last"]
        assert sender.receivers == 5
    assert sender.receivers == 0
