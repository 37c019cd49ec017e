"""The simulated disk, and that it, the wall clock and the entropy fit the ports."""

from __future__ import annotations

import errno

import pytest
import trio

from rmq_actors.ports.disk import Disk, DiskFile
from rmq_actors.ports.entropy import Entropy
from rmq_actors.ports.environment import Environment
from rmq_actors.ports.wall_clock import WallClock
from sim_net import DiskConfig, Node, SimDisk, World, WorldConfig

SLOW = WorldConfig(disk=DiskConfig(sync_min_s=0.25, sync_max_s=0.25))


def disk() -> SimDisk:
    return World(1).node("a").disk


def test_a_node_offers_what_the_ports_ask_for() -> None:
    node = World(1).node("a")
    as_disk: Disk = node.disk
    as_file: DiskFile = node.disk.open("x", allocate_bytes=1)
    as_clock: WallClock = node.wall_clock
    as_entropy: Entropy = node.entropy
    assert Environment(as_disk, as_clock, as_entropy).disk is node.disk
    assert as_file.path == "x"


def test_a_file_is_allocated_as_zeros_and_opened_as_it_is() -> None:
    drive = disk()
    file = drive.open("store/commitlog/0", allocate_bytes=16)
    file.write_at(4, b"data")
    assert drive.open("store/commitlog/0", allocate_bytes=999).size_bytes == 16
    assert bytes(drive.open("store/commitlog/0").map()) == b"\0\0\0\0data" + bytes(8)


def test_a_mapping_sees_later_writes_and_is_read_only() -> None:
    for size in (64, 2 << 20):
        file = disk().open("f", allocate_bytes=size)
        view = file.map()
        assert len(view) == size
        assert view.readonly
        file.write_at(10, memoryview(b"seen"))
        assert bytes(view[10:14]) == b"seen"


def test_growing_and_truncating_leave_old_mappings_readable() -> None:
    file = disk().open("f", allocate_bytes=4)
    file.write_at(0, b"abcd")
    old = file.map()
    file.write_at(4, b"XY")
    assert (file.size_bytes, bytes(file.map()), bytes(old)) == (6, b"abcdXY", b"abcd")
    file.write_at(2, b"XYZW")
    assert bytes(file.map()) == b"abXYZW"
    file.truncate(3)
    assert bytes(file.map()) == b"abX"
    file.truncate(5)
    assert bytes(file.map()) == b"abX\0\0"


def test_names() -> None:
    drive = disk()
    for path in ("a/2", "a/10", "a/sub/x", "b"):
        drive.open(path, allocate_bytes=1)
    assert drive.list("a") == ["10", "2", "sub"]
    assert drive.list("") == ["a", "b"]
    assert drive.list("missing") == []
    assert drive.exists("a/sub")
    assert drive.exists("a/2")
    assert not drive.exists("a/3")
    drive.rename("b", "a/2")
    assert not drive.exists("b")
    assert drive.list("a") == ["10", "2", "sub"]


def test_a_removed_file_stays_with_those_who_have_it_open() -> None:
    drive = disk()
    file = drive.open("f", allocate_bytes=4)
    drive.remove("f")
    file.write_at(0, b"mine")
    assert bytes(file.map()) == b"mine"
    assert not drive.exists("f")
    assert bytes(drive.open("f", allocate_bytes=4).map()) == bytes(4)


@pytest.mark.parametrize(
    ("call", "number"),
    [
        (lambda drive: drive.open("missing"), errno.ENOENT),
        (lambda drive: drive.open("d"), errno.EISDIR),
        (lambda drive: drive.open("d/f/x", allocate_bytes=1), errno.ENOTDIR),
        (lambda drive: drive.open("d/f/x"), errno.ENOTDIR),
        (lambda drive: drive.open("d/f", allocate_bytes=1, exclusive=True), errno.EEXIST),
        (lambda drive: drive.open("n" * 256, allocate_bytes=1), errno.ENAMETOOLONG),
        (lambda drive: drive.open("new", allocate_bytes=-1), errno.EINVAL),
        (lambda drive: drive.remove("missing"), errno.ENOENT),
        (lambda drive: drive.remove("d"), errno.EISDIR),
        (lambda drive: drive.rename("missing", "x"), errno.ENOENT),
        (lambda drive: drive.rename("d/f", "nowhere/x"), errno.ENOENT),
        (lambda drive: drive.rename("d/f", "d/f/x"), errno.ENOTDIR),
        (lambda drive: drive.rename("d", "x"), errno.EISDIR),
        (lambda drive: drive.rename("d/f", "d"), errno.EISDIR),
        (lambda drive: drive.rename("d/f", ""), errno.EISDIR),
        (lambda drive: drive.remove("d/f/x"), errno.ENOTDIR),
        (lambda drive: drive.open("d/f", read_only=True).write_at(0, b"x"), errno.EBADF),
        (lambda drive: drive.open("d/f", read_only=True).truncate(1), errno.EINVAL),
        (lambda drive: drive.open("d/f").write_at(-1, b"x"), errno.EINVAL),
        (lambda drive: drive.open("d/f").truncate(-1), errno.EINVAL),
    ],
)
def test_errors_are_those_of_linux(call: object, number: int) -> None:
    drive = disk()
    drive.open("d/f", allocate_bytes=4)
    assert callable(call)
    with pytest.raises(OSError, match=r".") as info:
        call(drive)
    assert info.value.errno == number


def test_paths_stay_on_the_disk() -> None:
    for path in ("/absolute", "a/../b"):
        with pytest.raises(ValueError, match="a path on a simulated disk"):
            disk().open(path, allocate_bytes=1)


def test_a_closed_file_refuses_but_its_mapping_stays() -> None:
    file = disk().open("f", allocate_bytes=2)
    view = file.map()
    file.close()
    file.close()
    with pytest.raises(OSError, match="Bad file descriptor"):
        file.write_at(0, b"x")
    assert bytes(view) == b"\0\0"


def test_syncs_take_virtual_time_and_overlap() -> None:
    async def program(node: Node) -> None:
        file = node.disk.open("d/f", allocate_bytes=4)
        await file.sync()
        assert trio.current_time() == 0.25
        await node.disk.sync_directory("d")
        assert trio.current_time() == 0.5
        async with trio.open_nursery() as nursery:
            nursery.start_soon(file.sync)
            nursery.start_soon(file.sync)
        assert trio.current_time() == 0.75

    async def main(world: World) -> None:
        world.node("a").boot(program)
        await world.nodes["a"].wait_down()

    World(1, SLOW).run(main)


def test_a_sync_cannot_be_cancelled_as_a_worker_thread_cannot() -> None:
    async def program(node: Node) -> None:
        file = node.disk.open("d/f", allocate_bytes=4)
        with trio.move_on_after(0.1) as scope:
            await file.sync()
            assert trio.current_time() == 0.25
            await trio.lowlevel.checkpoint()
        assert scope.cancelled_caught
        with trio.CancelScope() as scope:
            scope.cancel()
            await file.sync()
        assert scope.cancelled_caught
        assert trio.current_time() == 0.25

    async def main(world: World) -> None:
        world.node("a").boot(program)
        await world.nodes["a"].wait_down()

    World(1, SLOW).run(main)


def test_a_sync_under_way_fails_when_its_process_is_killed() -> None:
    seen: list[int | None] = []

    async def program(node: Node) -> None:
        file = node.disk.open("f", allocate_bytes=4)
        with trio.CancelScope(shield=True):
            try:
                await file.sync()
            except OSError as error:
                seen.append(error.errno)

    async def main(world: World) -> None:
        node = world.node("a")
        node.boot(program)
        await trio.sleep(0.1)
        node.kill()
        await trio.sleep(1)

    World(1, SLOW).run(main)
    assert seen == [errno.EBADF]
