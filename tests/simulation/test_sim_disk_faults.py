"""Each fault of the disk, by hand and as a value: what the program meets, and what the journal says."""

from __future__ import annotations

import contextlib
import errno
import os
import random
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
import trio

from sim_net import (
    BitRot,
    DiskConfig,
    DiskError,
    DiskFull,
    DiskSlow,
    DiskStuck,
    Fault,
    Kill,
    MisdirectedWrite,
    Node,
    PowerLoss,
    Schedule,
    SimDisk,
    SimFile,
    World,
    WorldConfig,
    fault_from_dict,
)
from sim_net.kernel.entropy import derive

Program = Callable[[Node], Awaitable[None]]

PAGE = 4096
PACE = DiskConfig(sync_min_s=0.25, sync_max_s=0.25)
EIO = {"kind": "DiskError", "at_s": 0.0, "duration_s": 1.0, "node": "a"}


def run(program: Program, *faults: Fault, seed: int = 1, disk: DiskConfig = PACE) -> World:
    """Run a program on node `a` to its end."""

    async def main(world: World) -> None:
        node = world.node("a")
        world.start_schedule(Schedule(faults))
        node.boot(program)
        await trio.lowlevel.checkpoint()
        await node.wait_down()

    world = World(seed, WorldConfig(disk=disk))
    world.run(main)
    return world


def journaled(world: World, prefix: str = "storage.") -> list[tuple[str, dict[str, Any]]]:
    return [(entry.kind, dict(entry.attributes)) for entry in world.journal.entries if entry.kind.startswith(prefix)]


def number_of(call: Callable[[], object]) -> int | None:
    """The errno that a call fails with; None if it succeeds."""
    try:
        call()
    except OSError as error:
        return error.errno
    return None


async def sync_number(file: SimFile) -> int | None:
    try:
        await file.sync()
    except OSError as error:
        return error.errno
    return None


# --- errors -----------------------------------------------------------------------------------------------------------


def test_each_operation_fails_when_told_and_has_no_effect() -> None:
    async def program(node: Node) -> None:
        disk = node.disk
        file = disk.open("d/f", allocate_bytes=4)
        file.write_at(0, b"kept")
        calls: dict[str, Callable[[], object]] = {
            "open": lambda: disk.open("d/new", allocate_bytes=1),
            "write": lambda: file.write_at(0, b"lost"),
            "truncate": lambda: file.truncate(1),
            "rename": lambda: disk.rename("d/f", "d/g"),
            "remove": lambda: disk.remove("d/f"),
        }
        for operation, call in calls.items():
            disk.fail(errno.EROFS, operation=operation)  # type: ignore[arg-type]
            assert number_of(call) == errno.EROFS
            assert disk.list("d") == ["f"]
            assert bytes(disk.open("d/f").map()) == b"kept"
        disk.fail(errno.EIO, operation="sync")
        assert await sync_number(file) == errno.EIO
        assert trio.current_time() == 0.25
        disk.fail(errno.EIO, operation="sync_directory")
        with pytest.raises(OSError, match="Input/output"):
            await disk.sync_directory("d")
        assert await sync_number(file) is None

    world = run(program)
    assert [(what["operation"], what["status"]) for kind, what in journaled(world) if kind == "storage.error"] == [
        ("open", "EROFS"), ("write", "EROFS"), ("truncate", "EROFS"), ("rename", "EROFS"), ("remove", "EROFS"),
        ("sync", "EIO"), ("sync_directory", "EIO"),
    ]  # fmt: skip


def test_the_nth_matching_operation_fails_then_every_so_many_so_often() -> None:
    failed: dict[str, list[int]] = {}

    async def program(node: Node) -> None:
        def fails(**rule: Any) -> list[int]:
            made = node.disk.fail(errno.EIO, **rule)
            numbers = []
            for number in range(1, 13):
                for path in ("log/0", "log/1", "index"):
                    if number_of(lambda path=path: node.disk.open(path, allocate_bytes=1)):  # type: ignore[misc]
                        numbers.append(number)  # noqa: PERF401 - the number, not the error
            made.end()
            assert made.hits == len(numbers)
            return numbers

        failed["once"] = fails(path="index")
        failed["third"] = fails(path="index", nth=3)
        failed["every"] = fails(path="index", nth=3, every=4, count=None)
        failed["twice"] = fails(path="index", nth=3, every=4, count=2)
        failed["part"] = fails(path="log/", nth=3, count=3)
        failed["other"] = fails(operation="remove")
        failed["any"] = fails(nth=7)

    run(program)
    assert failed == {
        "once": [1], "third": [3], "every": [3, 7, 11], "twice": [3, 7], "part": [2, 2, 3], "other": [], "any": [3],
    }  # fmt: skip


def test_of_two_rules_the_older_hits_first() -> None:
    async def program(node: Node) -> None:
        file = node.disk.open("f", allocate_bytes=1)
        node.disk.fail(errno.EIO, operation="write")
        node.disk.fail(errno.ENOSPC, operation="write")
        assert [number_of(lambda: file.write_at(0, b"x")) for _ in range(3)] == [errno.EIO, errno.ENOSPC, None]

    run(program)


def test_a_rule_that_cannot_be_is_refused() -> None:
    disk = World(1).node("a").disk
    with pytest.raises(ValueError, match="'fsync'"):
        disk.fail(errno.EIO, operation="fsync")  # type: ignore[arg-type]
    for name in ("nth", "every", "count"):
        with pytest.raises(ValueError, match=name):
            disk.fail(errno.EIO, **{name: 0})  # type: ignore[arg-type]


def test_an_error_is_an_errno() -> None:
    with pytest.raises(ValueError, match="error must be an errno, not 0"):
        World(1).node("a").disk.fail(0)


def test_a_harness_meets_no_errors_and_is_not_counted() -> None:
    async def program(node: Node) -> None:
        node.disk.open("f", allocate_bytes=4).write_at(0, b"data")
        await node.disk.sync_directory("")
        await trio.sleep(9)

    async def main(world: World) -> None:
        disk = world.node("a").disk
        world.nodes["a"].boot(program)
        await trio.sleep(1)
        disk.fail(errno.EIO, count=None)
        assert bytes(disk.open("f").map()) == b"data"
        assert disk.operations == 3

    World(1).run(main)


def test_disk_error_as_a_value() -> None:
    met = []

    async def program(node: Node) -> None:
        file = node.disk.open("f", allocate_bytes=1)
        for second in range(6):
            await trio.sleep_until(second)
            met.append((second, number_of(lambda: file.write_at(0, b"x"))))

    fault = DiskError(0.5, 3.0, "a", error="ENOSPC", operation="write", path="f", nth=2, count=9)
    world = run(program, fault)
    assert [second for second, number in met if number == errno.ENOSPC] == [2, 3]
    assert [(kind, what) for kind, what in journaled(world)] == [
        ("storage.error", {"path": "f", "operation": "write", "status": "ENOSPC"})
    ] * 2
    assert [kind for kind, _ in journaled(world, "fault.")] == ["fault.begin", "fault.end"]


# --- capacity ---------------------------------------------------------------------------------------------------------


def test_a_full_disk_writes_what_fits_and_recovers_when_space_is_back() -> None:
    async def program(node: Node) -> None:
        disk = node.disk
        file = disk.open("f", allocate_bytes=10 * PAGE)
        assert disk.used_bytes == 0  # holes
        file.write_at(0, b"a" * 2 * PAGE)
        assert number_of(lambda: file.write_at(2 * PAGE - 1, b"b" * 2 * PAGE)) == errno.ENOSPC
        assert bytes(file.map()).strip(b"\0") == b"a" * (2 * PAGE - 1) + b"b" * (PAGE + 1)
        file.write_at(0, b"c" * 3 * PAGE)  # they have their place
        assert number_of(lambda: file.write_at(5 * PAGE, b"x")) == errno.ENOSPC
        file.truncate(2 * PAGE + 1)
        assert number_of(lambda: file.write_at(5 * PAGE, b"x")) == errno.ENOSPC
        file.truncate(2 * PAGE)
        file.write_at(5 * PAGE, b"x")
        disk.capacity_bytes = 5 * PAGE
        file.write_at(7 * PAGE, b"x" * 2 * PAGE)
        assert disk.used_bytes == 5 * PAGE
        disk.remove("f")
        other = disk.open("other", allocate_bytes=PAGE)
        assert number_of(lambda: other.write_at(0, b"x")) == errno.ENOSPC  # `file` is open yet
        file.close()
        other.write_at(0, b"x")
        assert disk.used_bytes == PAGE

    world = run(program, disk=DiskConfig(capacity_bytes=3 * PAGE))
    errors = [what for kind, what in journaled(world) if kind == "storage.error"]
    assert errors == [
        {"path": path, "operation": "write", "status": "ENOSPC"} for path in ("f", "f", "f", "other")
    ]  # fmt: skip


def change(draw: random.Random, disk: SimDisk, files: list[SimFile]) -> None:
    """Do something of that which may change how much is used."""
    file, name, page = draw.choice(files), draw.choice("abc"), draw.randrange(8)
    data = draw.choice((b"x" * 2 * PAGE, bytes(PAGE)))

    def close() -> None:
        if len(files) > 1:
            files.remove(file)
            file.close()

    changes: list[Callable[[], object]] = [
        lambda: None,
        lambda: file.write_at(page * PAGE, data),
        lambda: file.truncate(page * PAGE),
        lambda: disk.remove(name),
        lambda: disk.rename(name, draw.choice("abc")),
        lambda: files.append(disk.open(name, allocate_bytes=PAGE)),
        close,
        lambda: setattr(disk, "capacity_bytes", draw.choice((None, 6 * PAGE))),
        disk.rot,
    ]
    with contextlib.suppress(OSError):
        draw.choice(changes)()


@pytest.mark.parametrize("seed", range(10))
def test_usage_is_what_a_count_finds_whatever_was_done_before(seed: int) -> None:
    draw = derive(seed, "usage")
    seen: set[int] = set()

    async def program(node: Node) -> None:
        disk = node.disk
        files = [disk.open(name, allocate_bytes=8 * PAGE) for name in "abc"]
        while True:
            change(draw, disk, files)
            usage = disk.usage()
            assert usage == disk.usage()
            assert usage.used_bytes == disk.used_bytes
            seen.add(usage.used_bytes)
            await (draw.choice(files).sync() if draw.random() < 0.1 else trio.sleep(0.1))

    async def main(world: World) -> None:
        node = world.node("a")
        node.boot(program)
        for at_s in range(2, 20, 4):
            world.apply(Kill(at_s, "a", 0.5), 0)
            world.apply(PowerLoss(at_s + 2, "a", 0.5), 0)
        for at_s in range(4, 22, 4):
            await trio.sleep_until(at_s - 0.001)
            node.disk.usage()
            await trio.sleep_until(at_s + 0.001)
            assert node.disk.usage().used_bytes == node.disk.used_bytes

    World(seed).run(main)
    assert len(seen) > 3


def test_the_files_of_a_killed_process_give_their_space_back() -> None:
    async def program(node: Node) -> None:
        if node.incarnation == 1:
            node.disk.open("f", allocate_bytes=PAGE).write_at(0, b"x")
            node.disk.remove("f")
            assert node.disk.used_bytes == PAGE
            await trio.sleep_forever()
        node.disk.open("g", allocate_bytes=PAGE).write_at(0, b"x")

    async def main(world: World) -> None:
        world.node("a").boot(program)
        world.apply(Kill(1.0, "a", 1.0), 0)
        await trio.sleep(3)
        assert world.nodes["a"].disk.exists("g")
        assert world.nodes["a"].disk.used_bytes == PAGE

    World(1, WorldConfig(disk=DiskConfig(capacity_bytes=PAGE))).run(main)


def test_disk_full_as_a_value() -> None:
    met = []

    async def program(node: Node) -> None:
        file = node.disk.open("f", allocate_bytes=PAGE)
        file.write_at(0, b"x")
        for second in range(1, 8):
            await trio.sleep_until(second)
            met.append(number_of(lambda second=second: file.write_at(second * PAGE, b"x")))  # type: ignore[misc]

    world = run(program, DiskFull(0.5, 3.0, "a", free_bytes=PAGE), DiskFull(2.5, 4.0, "a"))
    full = errno.ENOSPC
    assert met == [None, full, full, full, full, full, None]
    assert {kind for kind, _ in journaled(world)} == {"storage.error"}


# --- slow and stuck ---------------------------------------------------------------------------------------------------


def test_disk_slow() -> None:
    took = []

    async def program(node: Node) -> None:
        file = node.disk.open("f", allocate_bytes=1)
        for second in (1, 2, 4, 8, 11):
            await trio.sleep_until(second)
            await file.sync()
            took.append(trio.current_time() - second)

    world = run(program, DiskSlow(1.5, 5.0, "a", 0.5), DiskSlow(3.5, 6.0, "a", 1.0))
    assert took == [0.25, 0.75, 1.75, 1.25, 0.25]
    assert journaled(world) == [
        ("storage.slow", {"path": "f", "operation": "sync", "extra_s": extra_s}) for extra_s in (0.5, 1.5, 1.0)
    ]


def test_disk_stuck_holds_what_is_under_way_and_lets_go_in_order() -> None:
    ended = []

    async def program(node: Node) -> None:
        async def sync(name: str) -> None:
            await node.disk.open(name, allocate_bytes=1).sync()
            ended.append((name, trio.current_time()))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(sync, "before")
            await trio.sleep(1.9)
            nursery.start_soon(sync, "under way")
            await trio.sleep(1)
            nursery.start_soon(sync, "during")

    world = run(program, DiskStuck(2.0, 3.0, "a"), DiskStuck(4.0, 5.0, "a"))
    assert ended == [("before", 0.25), ("under way", 9.0), ("during", 9.0)]
    assert journaled(world) == [
        ("storage.stuck", {"path": name, "operation": "sync"}) for name in ("under way", "during")
    ]


@pytest.mark.parametrize("shielded", [False, True])
def test_a_kill_frees_who_is_stuck(shielded: bool) -> None:
    ended = []

    async def program(node: Node) -> None:
        file = node.disk.open("f", allocate_bytes=1)
        try:
            with trio.CancelScope(shield=shielded):
                await file.sync()
        except BaseException as error:
            ended.append((trio.current_time(), type(error)))
            raise

    async def main(world: World) -> None:
        node = world.node("a")
        node.disk.stick()
        node.boot(program)
        await trio.sleep(5)
        node.kill()
        await trio.sleep(5)

    World(1, WorldConfig(disk=PACE)).run(main)
    assert ended == [(5.0, OSError)] if shielded else [(5.0, trio.Cancelled)]


def test_a_stuck_sync_cannot_be_cancelled_and_ends_with_the_world() -> None:
    times = []

    async def program(node: Node) -> None:
        file = node.disk.open("f", allocate_bytes=1)
        with trio.move_on_after(1):
            await file.sync()
            times.append(trio.current_time())

    async def main(world: World) -> None:
        node = world.node("a")
        node.disk.stick()
        node.boot(program)
        await trio.sleep(3)
        node.stop()
        await trio.sleep(4)
        assert node.is_up

    World(1).run(main)
    assert times == [7.0]


def test_power_loss_frees_who_is_stuck_and_nothing_became_durable() -> None:
    async def program(node: Node) -> None:
        file = node.disk.open("f", allocate_bytes=1)
        if node.incarnation == 1:
            await node.disk.sync_directory("")
            node.disk.stick()
            file.write_at(0, b"x")
            await file.sync()
            raise AssertionError

    async def main(world: World) -> None:
        node = world.node("a")
        node.boot(program)
        await trio.sleep(5)
        node.power_loss()
        contents.add(bytes(node.disk.open("f").map()))
        node.disk.unstick()
        contents.add(bytes(node.disk.open("f").map()))

    contents: set[bytes] = set()
    for seed in range(20):
        World(seed).run(main)
    assert contents == {b"", b"\0", b"x"}


@pytest.mark.parametrize("stuck", [False, True])
def test_a_sync_that_outlives_the_power_fails(stuck: bool) -> None:
    async def main(world: World) -> None:
        disk = world.node("a").disk
        file = disk.open("f", allocate_bytes=1)
        if stuck:
            disk.stick()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(expect_eio, file)
            await trio.sleep(0.5 if stuck else 0.1)
            disk.power_off()

    async def expect_eio(file: SimFile) -> None:
        assert await sync_number(file) == errno.EIO
        assert trio.current_time() == (0.5 if stuck else 0.25)

    World(1, WorldConfig(disk=PACE)).run(main)


# --- what the disk does behind the program's back ---------------------------------------------------------------------


def test_bit_rot_shows_in_clean_pages_and_is_mended_in_dirty_ones() -> None:
    async def program(node: Node) -> None:
        file = node.disk.open("f", allocate_bytes=8)
        file.write_at(0, bytes(8))
        await file.sync()
        node.disk.rot("f")
        assert sum(each.bit_count() for each in file.map()) == 1
        file.write_at(0, bytes(8))
        await file.sync()
        file.write_at(3, b"\0")
        node.disk.rot("f")
        assert bytes(file.map()) == bytes(8)
        await file.sync()
        await node.disk.sync_directory("")
        node.disk.power_off()
        assert bytes(file.map()) == bytes(8)

    for seed in range(20):
        world = run(program, seed=seed)
        assert [kind for kind, _ in journaled(world)] == ["storage.rot", "storage.rot"]


def test_bit_rot_under_a_dirty_page_shows_if_the_page_is_lost() -> None:
    left = set()

    async def program(node: Node) -> None:
        file = node.disk.open("f", allocate_bytes=2)
        file.write_at(0, b"ab")
        await file.sync()
        await node.disk.sync_directory("")
        file.write_at(0, b"AB")
        node.disk.rot("f")
        node.disk.power_off()
        left.add(bytes(file.map()))

    for seed in range(60):
        run(program, seed=seed)
    assert b"AB" in left  # written back whole
    others = left - {b"AB"}
    assert len(others) > 5
    assert all((old ^ 0x61).bit_count() + (new ^ 0x62).bit_count() == 1 for old, new in others)


def test_bit_rot_as_a_value_needs_something_to_rot() -> None:
    flipped: list[int] = []

    async def program(node: Node) -> None:
        file = node.disk.open("f", allocate_bytes=100 * PAGE)
        await trio.sleep(1)
        file.write_at(PAGE, b"\0")
        await file.sync()
        node.disk.open("other", allocate_bytes=PAGE).write_at(0, bytes(PAGE))
        await trio.sleep(5)
        flipped.extend(sum(each.bit_count() for each in node.disk.open(name).map()) for name in ("f", "other"))

    world = run(program, BitRot(0.5, "a"), BitRot(2.0, "a", "f", bits=5), BitRot(2.0, "a", "nowhere"))
    assert flipped[0] in {1, 3, 5}
    assert flipped[1] == 0
    assert [kind for kind, _ in journaled(world)] == ["storage.rot"] * 5


def test_a_misdirected_write_lands_sectors_away() -> None:
    landed = set()

    async def program(node: Node) -> None:
        file = node.disk.open("f", allocate_bytes=2048)
        node.disk.misdirect(path="f", nth=2)
        file.write_at(2, b"1")
        file.write_at(520, b"2" * 500)
        file.write_at(4, b"3")
        data = bytes(file.map())
        start = data.index(b"2")
        landed.add(start)
        assert data.strip(b"\0").count(b"2") == 500
        assert (data[2:3], data[4:5]) == (b"1", b"3")

    for seed in range(20):
        world = run(program, seed=seed)
        [(kind, what)] = journaled(world)
        assert (kind, what["path"], what["offset"], what["size"]) == ("storage.misdirected", "f", 520, 500)
        assert what["landed"] in landed
    assert landed == {8, 1032, 1544}


def test_a_write_that_fits_nowhere_else_lands_where_it_should() -> None:
    async def program(node: Node) -> None:
        file = node.disk.open("f", allocate_bytes=600)
        await trio.sleep(1)
        file.write_at(0, b"x" * 512)
        assert bytes(file.map()).rstrip(b"\0") == b"x" * 512
        file.write_at(600, b"y" * 512)
        assert bytes(file.map()).index(b"y") == 88

    world = run(program, MisdirectedWrite(0.5, 3.0, "a", count=9))
    assert [what["landed"] for _, what in journaled(world)] == [88]


def test_end_faults_ends_them_all() -> None:
    async def program(node: Node) -> None:
        disk: SimDisk = node.disk
        file = disk.open("f", allocate_bytes=PAGE)
        disk.fail(errno.EIO, count=None)
        disk.slow_down(5.0)
        disk.stick()
        undo = disk.fill_up()
        disk.end_faults()
        file.write_at(0, b"x")
        await file.sync()
        assert trio.current_time() == 0.25
        undo()
        disk.unstick()
        disk.speed_up(5.0)
        await file.sync()
        assert trio.current_time() == 0.5

    assert journaled(run(program)) == []


@pytest.mark.parametrize(
    ("make", "what"),
    [
        (lambda: DiskError(0.0, 1.0, "a", error="EOOPS"), "DiskError.error must be the name of an errno"),
        (lambda: fault_from_dict({**EIO, "error": ["EIO"]}), "DiskError.error must be the name of an errno"),
        (lambda: DiskError(0.0, 1.0, "a", operation="fsync"), "DiskError.operation must be empty or one of open"),
        (lambda: fault_from_dict({**EIO, "operation": None}), "DiskError.operation must be empty or one of open"),
        (lambda: DiskError(0.0, 1.0, "a", nth=0), "DiskError.nth"),
        (lambda: DiskFull(0.0, 1.0, "a", free_bytes=-1), "DiskFull.free_bytes"),
        (lambda: BitRot(0.0, "a", bits=0), "BitRot.bits"),
        (lambda: DiskSlow(0.0, 1.0, "a", -1.0), "DiskSlow.extra_s"),
    ],
)
def test_bad_values_are_named(make: Callable[[], Fault], what: str) -> None:
    with pytest.raises(ValueError, match=what):
        make()


def test_memory_goes_with_what_is_dirty_not_with_the_file() -> None:
    async def program(node: Node) -> None:
        file = node.disk.open("huge", allocate_bytes=1 << 30)
        before = resident_bytes()
        for offset in range(0, 1 << 30, 1 << 26):
            file.write_at(offset, b"x" * 5000)
        await file.sync()
        file.write_at(0, b"y")
        node.disk.power_off()
        view = file.map()
        assert not any(view[offset] for offset in range(PAGE * 3, 1 << 26, PAGE))  # nor does reading holes cost any
        assert resident_bytes() - before < 4 << 20

    run(program)


def resident_bytes() -> int:
    with open("/proc/self/statm") as file:  # noqa: PTH123 - no program under test
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
