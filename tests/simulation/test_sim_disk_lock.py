"""Locks of files on a simulated disk, and directories that are removed."""

from __future__ import annotations

import errno

import pytest
import trio

from sim_net import Node, World


async def hold(node: Node) -> None:
    node.disk.lock("lock")
    await trio.sleep_forever()


@pytest.mark.parametrize("death", ["kill", "power_loss", "stop"])
def test_a_lock_ends_with_its_process(death: str) -> None:
    async def main(world: World) -> None:
        node = world.node("a")
        node.boot(hold)
        await trio.sleep(1)
        with pytest.raises(BlockingIOError, match="in use by process 1 of a: 'lock'") as info:
            node.disk.lock("lock")
        assert info.value.errno == errno.EAGAIN
        getattr(node, death)()
        await trio.sleep(1)
        node.restart()  # fails the world if the lock is held still
        await trio.sleep(1)
        with pytest.raises(BlockingIOError):
            node.disk.lock("lock")

    World(1).run(main)


def test_the_dead_holder_cannot_release_the_lock_of_the_next() -> None:
    async def holder(node: Node) -> None:
        lock = node.disk.lock("lock")
        try:
            await trio.sleep_forever()
        finally:
            with trio.CancelScope(shield=True):
                await trio.sleep(5 if node.incarnation == 1 else 0)
            lock.close()

    async def main(world: World) -> None:
        node = world.node("a")
        node.boot(holder)
        await trio.sleep(1)
        node.kill()
        node.restart()
        await trio.sleep(10)
        with pytest.raises(BlockingIOError):
            node.disk.lock("lock")

    World(1).run(main)


def test_nodes_have_locks_of_their_own() -> None:
    world = World(1)
    for name in ("a", "b"):
        world.node(name).disk.lock("lock")


def test_a_lock_whose_bytes_cannot_be_written_is_not_held() -> None:
    async def program(node: Node) -> None:
        node.disk.fail(errno.EIO, operation="write")
        with pytest.raises(OSError, match="Input/output"):
            node.disk.lock("lock")
        node.disk.lock("lock").close()
        assert bytes(node.disk.open("lock").map()) == b"lock"
        assert node.disk.operations == 5

    async def main(world: World) -> None:
        node = world.node("a")
        node.boot(program)
        await node.wait_down()

    World(1).run(main)


def test_a_directory_that_was_removed_may_be_back_after_a_power_loss_until_a_sync() -> None:
    def left(seed: int, *, synced: bool) -> bool:
        async def program(node: Node) -> None:
            node.disk.open("d/f", allocate_bytes=1)
            for directory in ("", "d"):
                await node.disk.sync_directory(directory)
            node.disk.remove("d/f")
            node.disk.remove_directory("d")
            if synced:
                await node.disk.sync_directory("")

        async def main(world: World) -> bool:
            node = world.node("a")
            node.boot(program)
            await node.wait_down()
            assert not node.disk.exists("d")
            node.power_loss()
            return node.disk.exists("d")

        return World(seed).run(main)

    assert {left(seed, synced=False) for seed in range(20)} == {False, True}
    assert {left(seed, synced=True) for seed in range(20)} == {False}


def test_without_a_bound_there_is_room_without_end() -> None:
    disk = World(1).node("a").disk
    disk.open("f", allocate_bytes=0).write_at(0, b"data")
    assert disk.usage() == (4096, 1 << 62)
    disk.capacity_bytes = 3 * 4096
    assert disk.usage() == (4096, 2 * 4096)
    disk.capacity_bytes = 0
    assert disk.usage() == (4096, 0)
