"""An operation can be cancelled at every point at which it can be cancelled, and what that breaks is found."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable

import pytest
import trio

from sim_net import CancelInjection, Deadlock, Node, World, cancel_at_every_checkpoint

Operation = Callable[["Account"], Awaitable[None]]


class Account:
    """Money in two places, which an operation moves from one to the other."""

    def __init__(self) -> None:
        self.here = 10
        self.there = 0
        self.lock = trio.Lock()


async def move_carelessly(account: Account) -> None:
    await trio.sleep(1)
    async with account.lock:
        account.here -= 1
        await trio.sleep(1)
        account.there += 1
    await trio.sleep(1)


async def move_carefully(account: Account) -> None:
    await trio.sleep(1)
    async with account.lock:
        account.here -= 1
        try:
            await trio.sleep(1)
        except trio.Cancelled:
            account.here += 1
            raise
        account.there += 1
    await trio.sleep(1)


async def move_with_helpers(account: Account) -> None:
    async with trio.open_nursery() as nursery:
        for _ in range(3):
            nursery.start_soon(move_carefully, account)


def sweep(operation: Operation, places: list[str] | None = None) -> int:
    def run(injection: CancelInjection) -> None:
        async def main(world: World) -> None:
            account = Account()
            with injection:
                await operation(account)
            assert account.here + account.there == 10
            assert not account.lock.locked()
            assert injection.cancelled_caught <= injection.fired

        World(1).run(main)
        if places is not None and injection.fired:
            places.append(injection.place)

    return cancel_at_every_checkpoint(run)


@pytest.mark.parametrize("operation", [move_carefully, move_with_helpers])
def test_a_careful_operation_passes_at_every_point(operation: Operation) -> None:
    places: list[str] = []
    assert sweep(operation, places) == len(places) > 8
    assert places[0].endswith(", on entry")
    for moment in ("beginning to wait", "about to go on"):
        assert [place for place in places if place.endswith(moment)]


def test_a_careless_one_fails_where_it_waits_with_money_in_its_hands() -> None:
    with pytest.raises(AssertionError) as info:
        sweep(move_carelessly)
    _, note = info.value.__notes__
    where = re.fullmatch(
        r"cancellation was injected at point (\d+): .* move_carelessly \(.*:(\d+)\), beginning to wait", note
    )
    assert where is not None
    assert int(where[1]) > 2
    # In the checkpoint of the lock, which lets it have the lock: the sleep with money in its hands is what raises.
    assert int(where[2]) == move_carelessly.__code__.co_firstlineno + 2


def test_only_the_operation_is_cancelled() -> None:
    ticks: list[int] = []

    def run(injection: CancelInjection) -> None:
        async def other(node: Node) -> None:
            for _ in range(10):
                await trio.sleep(0.3)
            ticks.append(injection.point)

        async def main(world: World) -> None:
            node = world.node("other")
            node.boot(other)
            with injection:
                await trio.sleep(1)
                await trio.sleep(1)
            await node.wait_down()

        World(1).run(main)

    points = cancel_at_every_checkpoint(run)
    assert ticks == list(range(points + 1))
    assert points == 5  # on entry, and as each sleep begins and ends


def test_it_is_the_very_wait_that_is_cancelled() -> None:
    """What is cancelled as it begins to wait does not get what it waits for; what is about to go on does."""
    seen: dict[str, list[str]] = {}

    def run(injection: CancelInjection) -> None:
        done: list[str] = []

        async def main(world: World) -> None:
            send, receive = trio.open_memory_channel[int](0)
            world.at(1.0, lambda: send.send_nowait(1))
            with injection:
                await receive.receive()
                done.append("received")
                await trio.lowlevel.checkpoint()
                done.append("went on")
            seen[f"{injection.point} {injection.place.rpartition(', ')[2]}"] = done

        World(1).run(main)

    cancel_at_every_checkpoint(run)
    assert seen == {
        "0 on entry": [],
        "1 beginning to wait": [],
        "2 about to go on": ["received"],
        "3 beginning to wait": ["received"],
        "4 about to go on": ["received"],
        "5 ": ["received", "went on"],
    }


def test_an_operation_that_hangs_when_cancelled_is_reported_with_the_place() -> None:
    def run(injection: CancelInjection) -> None:
        async def main(world: World) -> None:
            with injection:
                try:
                    await trio.sleep(1)
                finally:
                    with trio.CancelScope(shield=True):
                        if injection.fired:
                            await trio.sleep_forever()

        World(1).run(main)

    with pytest.raises(Deadlock) as info:
        cancel_at_every_checkpoint(run)
    assert "injected at point 0" in info.value.__notes__[-1]


def test_misuse_is_refused() -> None:
    with pytest.raises(ValueError, match="did not enter its injection"):
        cancel_at_every_checkpoint(lambda injection: None)

    def endless(injection: CancelInjection) -> None:
        async def main(world: World) -> None:
            with injection:
                while not injection.fired:
                    await trio.sleep(1)

        World(1).run(main)

    with pytest.raises(ValueError, match=r"more than 20 points \(points_max\)"):
        cancel_at_every_checkpoint(endless, points_max=20)

    def twice(injection: CancelInjection) -> None:
        async def main(world: World) -> None:
            with injection:
                await trio.sleep(1)
            with pytest.raises(RuntimeError, match="one operation"), injection:
                await trio.sleep(1)

        World(1).run(main)

    cancel_at_every_checkpoint(twice)
