"""Trio's own checks of a stream, on the streams of a world: between two nodes, and on the loopback of one."""

from __future__ import annotations

import contextvars
from collections.abc import Awaitable, Callable

import pytest
import trio
from trio.testing import check_half_closeable_stream, check_two_way_stream, wait_all_tasks_blocked

from sim_net import Deadlock, Node, World

Streams = tuple[trio.SocketStream, trio.SocketStream]
Check = Callable[[Callable[[], Awaitable[Streams]], Callable[[], Awaitable[Streams]]], Awaitable[None]]


class Ends:
    """What makes connected streams: from the node that runs to the one that was there before it."""

    def __init__(self, address: str) -> None:
        self._address = address
        self._context = contextvars.copy_context()

    async def pair(self) -> Streams:
        listener = self._context.run(trio.socket.socket)
        await listener.bind((self._address, 0))
        listener.listen(1)
        client = trio.socket.socket()
        await client.connect(listener.getsockname())
        server, _ = await listener.accept()
        listener.close()
        return trio.SocketStream(client), trio.SocketStream(server)

    async def clogged_pair(self) -> Streams:
        both = await self.pair()
        for stream in both:
            while True:
                with trio.move_on_after(1) as waits:
                    await stream.socket.send(bytes(65_536))
                if waits.cancelled_caught:
                    break
        return both


@pytest.mark.parametrize("check", [check_two_way_stream, check_half_closeable_stream])
@pytest.mark.parametrize("nodes", ["one", "two"])
def test_trios_own_stream_checks_pass(check: Check, nodes: str) -> None:
    ends: list[Ends] = []
    passed = []

    async def serve(node: Node) -> None:
        ends.append(Ends(node.address))
        await trio.sleep_forever()

    async def run_check(node: Node) -> None:
        if nodes == "one":
            ends[:] = [Ends(node.address)]
        await check(ends[0].pair, ends[0].clogged_pair)
        passed.append(node.name)

    async def main(world: World) -> None:
        world.node("server").boot(serve)
        await trio.sleep(1)
        client = world.node("client")
        client.boot(run_check)
        await client.wait_down()

    World(seed=1).run(main)
    assert passed == ["client"]


def test_all_tasks_are_blocked_before_time_moves_on() -> None:
    async def main(world: World) -> None:
        seen = []

        async def work() -> None:
            for _ in range(3):
                await trio.lowlevel.checkpoint()
            seen.append("done")

        async with trio.open_nursery() as nursery:
            nursery.start_soon(trio.sleep, 5)
            nursery.start_soon(work)
            await wait_all_tasks_blocked()
            assert seen == ["done"]
            assert world.now_s == 0

    World(seed=1).run(main)


def test_all_tasks_are_blocked_for_as_long_as_was_asked() -> None:
    async def main(world: World) -> None:
        async def tick() -> None:
            for _ in range(4):
                await trio.sleep(0.4)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(tick)
            await wait_all_tasks_blocked(0.5)
            assert world.now_s == pytest.approx(4 * 0.4 + 0.5)
            world.at(world.now_s + 0.1, lambda: None)  # an event that wakes nobody disturbs nobody
            await wait_all_tasks_blocked(0.25)
            assert world.now_s == pytest.approx(4 * 0.4 + 0.75)

    World(seed=1).run(main)


def test_whoever_waits_for_all_to_block_may_time_out() -> None:
    async def main(world: World) -> None:
        async def spin() -> None:
            while True:
                await trio.sleep(0.1)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(spin)
            with trio.move_on_after(2) as waits:
                await wait_all_tasks_blocked(0.5)
            assert waits.cancelled_caught
            assert world.now_s == 2
            nursery.cancel_scope.cancel()

    World(seed=1).run(main)


def test_a_wait_of_a_day_has_no_end_as_in_trio() -> None:
    async def main(world: World) -> None:
        await wait_all_tasks_blocked(86_400)

    with pytest.raises(Deadlock):
        World(seed=1).run(main)
