"""What a power loss leaves: each rule of durability is a test, and what may go wrong does, in some run."""

from __future__ import annotations

import errno
from collections.abc import Awaitable, Callable
from typing import Literal

import pytest
import trio

from sim_net import DiskConfig, Node, On, PowerLoss, SimDisk, World, WorldConfig
from sim_net.disk.page_cache import PAGE_BYTES

Program = Callable[[Node], Awaitable[None]]
Unsynced = Literal["any", "prefix"]

SEEDS = range(24)
BOTH = pytest.mark.parametrize("unsynced", ["any", "prefix"])


def lose_power(program: Program, seed: int = 1, unsynced: Unsynced = "any", at_s: float = 100.0) -> World:
    """Run a program on node `a`, and cut its power `at_s` after the start."""

    async def main(world: World) -> None:
        node = world.node("a")
        node.boot(program)
        await trio.sleep_until(at_s)
        node.power_loss()

    world = World(seed, WorldConfig(disk=DiskConfig(sync_min_s=0.25, sync_max_s=0.25, unsynced=unsynced)))
    world.run(main)
    return world


def left_by(program: Program, seed: int = 1, unsynced: Unsynced = "any", at_s: float = 100.0) -> SimDisk:
    return lose_power(program, seed, unsynced, at_s).nodes["a"].disk


def content(disk: SimDisk, path: str) -> bytes | None:
    return bytes(disk.open(path).map()) if disk.exists(path) else None


async def durable(node: Node, path: str, data: bytes) -> None:
    """Write a file that no power loss takes away."""
    file = node.disk.open(path, allocate_bytes=len(data))
    file.write_at(0, data)
    await file.sync()
    directory = path.rpartition("/")[0]
    while directory:
        await node.disk.sync_directory(directory)
        directory = directory.rpartition("/")[0]
    await node.disk.sync_directory("")


@BOTH
def test_what_was_synced_survives(unsynced: Unsynced) -> None:
    async def program(node: Node) -> None:
        await durable(node, "store/log/0", b"kept" * 3000)

    for seed in SEEDS:
        assert content(left_by(program, seed, unsynced), "store/log/0") == b"kept" * 3000


@BOTH
def test_what_was_not_may_be_lost_or_kept_or_torn_at_a_sector_edge(unsynced: Unsynced) -> None:
    async def program(node: Node) -> None:
        await durable(node, "f", bytes(4096))
        node.disk.open("f").write_at(100, b"x" * 1900)

    new = bytes(100) + b"x" * 1900 + bytes(2096)
    seen = set()
    for seed in SEEDS:
        world = lose_power(program, seed, unsynced)
        left = content(world.nodes["a"].disk, "f")
        assert left is not None
        sectors = [left[start : start + 512] for start in range(0, 4096, 512)]
        assert all(
            sector in (bytes(512), new[start : start + 512])
            for start, sector in zip(range(0, 4096, 512), sectors, strict=True)
        )
        kind = "kept" if left == new else "lost" if left == bytes(4096) else "torn"
        seen.add(kind)
        kinds = [entry.kind for entry in world.journal.entries if entry.kind.startswith("storage.")]
        assert kinds == {"kept": [], "lost": ["storage.lost"], "torn": ["storage.lost", "storage.torn"]}[kind]
    assert seen == {"kept", "lost", "torn"}


def test_pages_land_out_of_order() -> None:
    async def program(node: Node) -> None:
        await durable(node, "f", bytes(8192))
        file = node.disk.open("f")
        file.write_at(0, b"first")
        file.write_at(4096, b"second")

    def order(unsynced: Unsynced) -> set[tuple[bool, bool]]:
        contents = [content(left_by(program, seed, unsynced), "f") or b"" for seed in SEEDS]
        return {(left[:5] == b"first", left[4096:4102] == b"second") for left in contents}

    assert order("any") == {(False, False), (True, False), (False, True), (True, True)}
    assert order("prefix") == {(False, False), (True, False), (True, True)}


def test_a_prefix_is_one_over_all_files_and_names() -> None:
    async def program(node: Node) -> None:
        for path in ("d/a", "e/b"):
            await durable(node, path, bytes(2048))
        for number in range(6):
            for path in ("d/a", "e/b"):
                node.disk.open(path).write_at(number * 100, bytes([number + 1]) * 100)
            node.disk.open(f"d/{number}", allocate_bytes=0)

    seen = set()
    for seed in range(40):
        disk = left_by(program, seed, "prefix")
        a, b = ((content(disk, path) or b"")[:600:100] for path in ("d/a", "e/b"))
        names = [disk.exists(f"d/{number}") for number in range(6)]
        changes = [each for one in zip(map(bool, a), map(bool, b), names, strict=True) for each in one]
        assert changes == sorted(changes, reverse=True)
        seen.add(sum(changes))
    assert len(seen) > 8


def test_a_page_may_hold_an_older_version_than_the_last() -> None:
    async def program(node: Node) -> None:
        await durable(node, "f", b"0")
        for version in b"123":
            node.disk.open("f").write_at(0, bytes([version]))

    for unsynced in ("any", "prefix"):
        assert {content(left_by(program, seed, unsynced), "f") for seed in SEEDS} == {b"0", b"1", b"2", b"3"}


@BOTH
def test_a_new_file_needs_a_sync_of_its_directory_and_of_those_above(unsynced: Unsynced) -> None:
    def creating(*directories: str) -> Program:
        async def program(node: Node) -> None:
            file = node.disk.open("d/e/f", allocate_bytes=4)
            file.write_at(0, b"data")
            await file.sync()
            for directory in directories:
                await node.disk.sync_directory(directory)

        return program

    def seen(*directories: str) -> set[bytes | None]:
        return {content(left_by(creating(*directories), seed, unsynced), "d/e/f") for seed in SEEDS}

    assert seen() == {None, b"data"}
    assert seen("d/e") == {None, b"data"}
    assert seen("d", "") == {None, b"data"}
    assert seen("d/e", "d", "") == {b"data"}


def test_a_name_may_be_durable_before_its_bytes_and_its_length() -> None:
    async def program(node: Node) -> None:
        node.disk.open("f", allocate_bytes=4).write_at(0, b"data")
        await node.disk.sync_directory("")

    assert {content(left_by(program, seed), "f") for seed in SEEDS} == {b"", bytes(4), b"data"}


def test_in_the_order_of_changes_a_new_file_has_its_length_before_its_name() -> None:
    async def program(node: Node) -> None:
        node.disk.open("d/f", allocate_bytes=4)

    assert {content(left_by(program, seed, "prefix"), "d/f") for seed in SEEDS} == {None, bytes(4)}


@BOTH
def test_a_rename_happens_whole_or_not_at_all(unsynced: Unsynced) -> None:
    def renaming(*, sync: bool) -> Program:
        async def program(node: Node) -> None:
            await durable(node, "d/config", b"old")
            await durable(node, "d/config.tmp", b"new")
            node.disk.rename("d/config.tmp", "d/config")
            if sync:
                await node.disk.sync_directory("d")

        return program

    def seen(*, sync: bool) -> set[tuple[bytes | None, bytes | None]]:
        disks = [left_by(renaming(sync=sync), seed, unsynced) for seed in SEEDS]
        return {(content(disk, "d/config"), content(disk, "d/config.tmp")) for disk in disks}

    assert seen(sync=False) == {(b"old", b"new"), (b"new", None)}
    assert seen(sync=True) == {(b"new", None)}


def test_a_rename_without_a_sync_of_the_file_may_leave_an_empty_one() -> None:
    async def program(node: Node) -> None:
        await durable(node, "config", b"old")
        node.disk.open("config.tmp", allocate_bytes=0).write_at(0, b"new")
        node.disk.rename("config.tmp", "config")
        await node.disk.sync_directory("")

    assert {content(left_by(program, seed), "config") for seed in SEEDS} == {b"", bytes(3), b"new"}


def test_a_rename_across_directories_needs_the_sync_of_both() -> None:
    def renaming(*directories: str) -> Program:
        async def program(node: Node) -> None:
            await durable(node, "d/f", b"data")
            await durable(node, "e/other", b"")
            node.disk.rename("d/f", "e/f")
            for directory in directories:
                await node.disk.sync_directory(directory)

        return program

    def seen(*directories: str) -> set[tuple[bool, bool]]:
        disks = [left_by(renaming(*directories), seed) for seed in SEEDS]
        return {(disk.exists("d/f"), disk.exists("e/f")) for disk in disks}

    assert seen() == {(True, False), (False, True)}
    assert seen("e") == {(True, True), (False, True)}
    assert seen("d") == {(False, False), (False, True)}
    assert seen("d", "e") == {(False, True)}


@BOTH
def test_a_removed_file_may_come_back_until_its_directory_was_synced(unsynced: Unsynced) -> None:
    def removing(*, sync: bool) -> Program:
        async def program(node: Node) -> None:
            await durable(node, "f", b"data")
            node.disk.remove("f")
            if sync:
                await node.disk.sync_directory("")

        return program

    assert {content(left_by(removing(sync=False), seed, unsynced), "f") for seed in SEEDS} == {None, b"data"}
    assert {content(left_by(removing(sync=True), seed, unsynced), "f") for seed in SEEDS} == {None}


@BOTH
def test_a_length_may_be_undone_until_the_file_was_synced(unsynced: Unsynced) -> None:
    def resizing(size: int, *, sync: bool) -> Program:
        async def program(node: Node) -> None:
            await durable(node, "f", b"abcd")
            file = node.disk.open("f")
            file.truncate(size)
            if sync:
                await file.sync()

        return program

    def seen(size: int, *, sync: bool) -> set[bytes | None]:
        return {content(left_by(resizing(size, sync=sync), seed, unsynced), "f") for seed in SEEDS}

    assert {b"abcd", b"ab"} <= seen(2, sync=False) <= {b"abcd", b"ab", b"ab\0\0"}
    assert seen(2, sync=True) == {b"ab"}
    assert seen(6, sync=False) == {b"abcd", b"abcd\0\0"}
    assert seen(6, sync=True) == {b"abcd\0\0"}


def test_a_sync_covers_what_was_written_before_it_began() -> None:
    async def program(node: Node) -> None:
        await durable(node, "f", b"--")
        file = node.disk.open("f")
        file.write_at(0, b"1")
        async with trio.open_nursery() as nursery:
            nursery.start_soon(file.sync)
            await trio.sleep(0.1)
            file.write_at(1, b"2")

    assert {content(left_by(program, seed), "f") for seed in SEEDS} == {b"1-", b"12"}


def test_power_may_go_during_a_sync() -> None:
    numbers = set()

    async def program(node: Node) -> None:
        await durable(node, "f", b"old")
        file = node.disk.open("f")
        file.write_at(0, b"new")
        await trio.sleep_until(10)
        try:
            with trio.CancelScope(shield=True):
                await file.sync()
        except OSError as error:
            numbers.add(error.errno)

    assert {content(left_by(program, seed, at_s=10.2), "f") for seed in SEEDS} == {b"old", b"new"}
    assert numbers == {errno.EBADF}
    assert {content(left_by(program, seed, at_s=10.3), "f") for seed in SEEDS} == {b"new"}


def test_a_kill_loses_nothing_and_stops_no_sync() -> None:
    async def program(node: Node) -> None:
        if node.incarnation == 1:
            await durable(node, "f", b"old")
            file = node.disk.open("f")
            file.write_at(0, b"new")
            await trio.sleep_until(10)
            await file.sync()

    async def main(world: World) -> None:
        node = world.node("a")
        node.boot(program)
        await trio.sleep_until(10.2)
        node.kill()
        assert content(node.disk, "f") == b"new"
        await trio.sleep_until(11)
        node.power_loss()
        assert content(node.disk, "f") == b"new"

    for seed in SEEDS:
        World(seed, WorldConfig(disk=DiskConfig(sync_min_s=0.25, sync_max_s=0.25))).run(main)


@BOTH
def test_after_a_failed_sync_the_next_one_pretends(unsynced: Unsynced) -> None:
    """What PostgreSQL learnt in 2018 ("fsyncgate")."""

    def failing(*, write_again: bool) -> Program:
        async def program(node: Node) -> None:
            await durable(node, "f", b"old" + bytes(5000))
            node.disk.fail(errno.EIO, operation="sync")
            file = node.disk.open("f")
            file.write_at(0, b"new")
            file.write_at(4096, b"new")
            with pytest.raises(OSError, match="Input/output"):
                await file.sync()
            assert bytes(file.map()[:3]) == bytes(file.map()[4096:4099]) == b"new"
            if write_again:
                file.write_at(1000, b"more")
            await file.sync()

        return program

    for seed in SEEDS:
        left = content(left_by(failing(write_again=False), seed, unsynced), "f")
        assert left == b"old" + bytes(5000)
        # A page that is written again goes to the disk whole.
        left = content(left_by(failing(write_again=True), seed, unsynced), "f")
        assert left == b"new" + bytes(997) + b"more" + bytes(3999)


def test_a_truncation_makes_pages_of_a_failed_sync_dirty_again() -> None:
    def truncating(*, sync: bool) -> Program:
        async def program(node: Node) -> None:
            await durable(node, "f", b"old-old")
            node.disk.fail(errno.EIO, operation="sync")
            file = node.disk.open("f")
            file.write_at(0, b"new")
            with pytest.raises(OSError, match="Input/output"):
                await file.sync()
            file.truncate(5)
            if sync:
                await file.sync()

        return program

    assert {content(left_by(truncating(sync=True), seed), "f") for seed in SEEDS} == {b"new-o"}
    unsynced = {content(left_by(truncating(sync=False), seed), "f") for seed in SEEDS}
    assert {b"old-old", b"new-o"} <= unsynced <= {b"old-old", b"new-o", b"old-o", b"new-o\0\0"}


def test_nothing_of_a_lost_page_shows_after_a_lost_end() -> None:
    async def program(node: Node) -> None:
        await durable(node, "f", b"old")
        file = node.disk.open("f")
        file.truncate(0)
        node.disk.fail(errno.EIO, operation="sync")
        with pytest.raises(OSError, match="Input/output"):
            await file.sync()
        node.disk.power_off()
        left.add(bytes(file.map()))
        file.truncate(5)
        left.add(bytes(file.map()))

    left: set[bytes] = set()
    for seed in SEEDS:
        left_by(program, seed)
    assert left == {b"old", b"", b"old\0\0", bytes(5)}


def test_what_is_written_while_a_sync_fails_is_dirty_still() -> None:
    async def program(node: Node) -> None:
        await durable(node, "f", b"----")
        file = node.disk.open("f")
        file.write_at(0, b"1")
        node.disk.fail(errno.EIO, operation="sync")

        async def fail() -> None:
            with pytest.raises(OSError, match="Input/output"):
                await file.sync()

        async with trio.open_nursery() as nursery:
            nursery.start_soon(fail)
            await trio.sleep(0.1)
            file.write_at(1, b"2")
        await file.sync()

    assert {content(left_by(program, seed), "f") for seed in SEEDS} == {b"12--"}


def test_an_older_sync_makes_nothing_durable_of_what_a_later_one_lost() -> None:
    async def program(node: Node) -> None:
        await durable(node, "f", b"a" * 4 * PAGE_BYTES)
        file = node.disk.open("f")

        async def fail() -> None:
            with pytest.raises(OSError, match="Input/output"):
                await file.sync()

        async with trio.open_nursery() as nursery:
            node.disk.slow_down(10.0)
            nursery.start_soon(file.sync)
            await trio.sleep(0.1)
            node.disk.speed_up(10.0)
            file.write_at(0, b"b" * 4 * PAGE_BYTES)
            node.disk.fail(errno.EIO, operation="sync")
            nursery.start_soon(fail)
            await trio.sleep(0.1)
            file.write_at(0, b"c" * 4 * PAGE_BYTES)

    left = [content(left_by(program, seed), "f") or b"" for seed in SEEDS]
    assert all({each[page * PAGE_BYTES] for each in left} == set(b"abc") for page in range(4))


def test_a_failed_sync_of_a_directory_may_be_repeated() -> None:
    def failing(*, repeat: bool) -> Program:
        async def program(node: Node) -> None:
            node.disk.open("f", allocate_bytes=0)
            node.disk.fail(errno.EIO, operation="sync_directory")
            with pytest.raises(OSError, match="Input/output"):
                await node.disk.sync_directory("")
            if repeat:
                await node.disk.sync_directory("")

        return program

    assert {content(left_by(failing(repeat=False), seed), "f") for seed in SEEDS} == {None, b""}
    assert {content(left_by(failing(repeat=True), seed), "f") for seed in SEEDS} == {b""}


def test_a_sync_of_a_directory_covers_what_was_done_before_it_began() -> None:
    async def program(node: Node) -> None:
        node.disk.open("before", allocate_bytes=0)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(node.disk.sync_directory, "")
            await trio.sleep(0.1)
            node.disk.open("during", allocate_bytes=0)

    disks = [left_by(program, seed) for seed in SEEDS]
    assert {(disk.exists("before"), disk.exists("during")) for disk in disks} == {(True, False), (True, True)}


@BOTH
def test_a_name_may_be_any_of_the_files_that_it_was(unsynced: Unsynced) -> None:
    async def program(node: Node) -> None:
        for name in ("config", "1", "2", "3"):
            await durable(node, name, name.encode())
        for name in ("1", "2", "3"):
            node.disk.rename(name, "config")

    assert {content(left_by(program, seed, unsynced), "config") for seed in SEEDS} == {b"config", b"1", b"2", b"3"}


def test_a_file_that_comes_back_may_lack_what_was_written_before_it_was_removed() -> None:
    async def program(node: Node) -> None:
        await durable(node, "f", b"old")
        node.disk.open("f").write_at(0, b"new")
        node.disk.remove("f")

    for unsynced in ("any", "prefix"):
        assert {content(left_by(program, seed, unsynced), "f") for seed in SEEDS} == {b"old", b"new", None}


def test_the_system_writes_back_what_is_too_much() -> None:
    async def program(node: Node) -> None:
        await durable(node, "f", bytes(100))
        file = node.disk.open("f")
        for offset in range(0, 80, 10):
            file.write_at(offset, b"0123456789")

    async def main(world: World) -> None:
        world.node("a").boot(program)
        await trio.sleep(100)
        world.nodes["a"].power_loss()

    contents = set()
    for seed in SEEDS:
        world = World(seed, WorldConfig(disk=DiskConfig(unsynced_bytes_max=500)))
        world.run(main)
        contents.add(content(world.nodes["a"].disk, "f"))
    assert all(left is not None and left.startswith(b"0123456789" * 5) for left in contents)
    assert len(contents) > 3


@pytest.mark.parametrize("changes", range(1022, 1026))
def test_a_rename_is_written_back_whole(changes: int) -> None:
    """The system writes a directory back after 1024 changes, be it in the middle of a rename."""

    async def program(node: Node) -> None:
        await durable(node, "f", b"data")
        for number in range(changes):
            node.disk.open(str(number), allocate_bytes=0)
        node.disk.rename("f", "g")

    disks = [left_by(program, seed) for seed in range(8)]
    assert all(disk.exists("f") != disk.exists("g") for disk in disks)


def test_everything_can_be_cut_at_every_operation() -> None:
    """Power is lost at the n-th operation for every n: a file that is replaced by the book is never half a file."""

    async def replace(node: Node) -> None:
        if not node.disk.exists("config"):
            await durable(node, "config", b"old" * 1000)
        file = node.disk.open("config.tmp", allocate_bytes=0)
        file.write_at(0, b"new" * 1000)
        await file.sync()
        file.close()
        node.disk.rename("config.tmp", "config")
        await node.disk.sync_directory("")

    def cut(nth: int, seed: int) -> tuple[bytes | None, int]:
        async def main(world: World) -> None:
            node = world.node("a")
            if nth:
                world.apply(PowerLoss(0.0, "a", 1.0, on=On("disk.*", "a", nth)), 0)
            node.boot(replace)
            await trio.sleep(0.9)

        world = World(seed)
        world.run(main)
        return content(world.nodes["a"].disk, "config"), world.nodes["a"].disk.operations

    _, operations = cut(0, 1)
    assert operations == 9
    seen = {}
    for nth in range(1, operations + 1):
        seen[nth] = {cut(nth, seed)[0] for seed in range(12)}
        assert {cut(nth, seed)[1] for seed in range(3)} == {nth}
    assert all(left <= {b"old" * 1000, b"new" * 1000} for nth, left in seen.items() if nth > 4)
    assert seen[9] == {b"old" * 1000, b"new" * 1000}
    assert len(seen[3]) > 2
