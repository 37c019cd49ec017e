"""A run as a whole: results, failures, limits, timers, journal."""

from __future__ import annotations

import contextlib
import math
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import attrs
import pytest
import trio

from sim_net import (
    Deadlock,
    DiskConfig,
    Kill,
    LinkConfig,
    Livelock,
    Node,
    On,
    Schedule,
    StepsExceeded,
    VirtualTimeExceeded,
    World,
    WorldConfig,
    run,
    sim_run,
)
from sim_net.kernel.journal import JournalEntry


async def sleep_for_ever(node: Node) -> None:
    await trio.sleep_forever()


def test_the_harness_result_comes_back_and_time_can_be_read_afterwards() -> None:
    async def main(world: World) -> str:
        await trio.sleep(3600)
        return "done"

    world = World(1)
    assert world.run(main) == "done"
    assert (world.now_s, world.now_ns) == (3600.0, 3_600_000_000_000)
    with pytest.raises(RuntimeError, match="runs once"):
        world.run(main)


def test_nodes_are_stopped_when_the_harness_returns() -> None:
    stopped = []

    async def tidy(node: Node) -> None:
        try:
            await trio.sleep_forever()
        finally:
            with trio.CancelScope(shield=True):
                await trio.sleep(2)
            stopped.append(node.name)

    async def main(world: World) -> None:
        for name in ("a", "b"):
            world.node(name).boot(tidy)
        await trio.sleep(1)

    world = World(1)
    world.run(main)
    assert sorted(stopped) == ["a", "b"]
    assert world.now_s == 3.0


def test_an_error_of_the_harness_comes_out_as_it_is() -> None:
    async def main(world: World) -> None:
        world.node("a").boot(sleep_for_ever)
        raise LookupError("harness")

    with pytest.raises(LookupError, match="harness"):
        World(1).run(main)


def test_a_deadlock_names_the_tasks_and_where_they_wait() -> None:
    async def wait_for_a_connection(node: Node) -> None:
        listener = trio.socket.socket()
        await listener.bind((node.address, 1))
        listener.listen()
        await listener.accept()

    async def main(world: World) -> None:
        world.node("lonely").boot(wait_for_a_connection)
        await world.nodes["lonely"].wait_down()

    with pytest.raises(Deadlock, match=r"deadlock at 0\.0 s") as info:
        World(1).run(main)
    assert "on node lonely (incarnation 1), in test_a_deadlock_names_the_tasks_and_where" in str(info.value)
    assert "wait_for_a_connection (test_sim_world.py" in str(info.value)
    assert "in Node.wait_down (node.py" in str(info.value)


def test_a_deadlock_behind_a_shield_is_reported_too() -> None:
    unwound = []

    async def main(world: World) -> None:
        try:
            with trio.CancelScope(shield=True):
                await trio.sleep_forever()
        finally:
            unwound.append("main")

    with pytest.raises(Deadlock):
        World(1).run(main)
    assert unwound == ["main"]


_SWALLOWS_CANCELLATION = """
import contextlib, trio
from sim_net import Livelock, World, WorldConfig

async def main(world):
    while True:
        with contextlib.suppress(trio.Cancelled):
            await trio.lowlevel.checkpoint()

try:
    World(1, WorldConfig(steps_at_one_instant_max=2000)).run(main)
except Livelock as error:
    print(error.__notes__)
"""


def test_tasks_that_swallow_cancellation_are_abandoned() -> None:
    # In a process of its own: what is abandoned is found by the collector some time later, and complains.
    done = subprocess.run(
        [sys.executable, "-c", _SWALLOWS_CANCELLATION], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout.startswith("['some tasks did not end when the failed run was cancelled, and were abandoned', ")


def test_a_livelock_names_the_task_that_spins() -> None:
    async def spinner(node: Node) -> None:
        await trio.sleep(1.5)
        while True:
            await trio.lowlevel.checkpoint()

    async def main(world: World) -> None:
        world.node("quiet").boot(sleep_for_ever)
        world.node("busy").boot(spinner)
        await trio.sleep(100)

    with pytest.raises(
        Livelock, match=r"livelock at 1\.5 s.*of the last 256 by task \d+ node busy #1 on node busy .*spinner"
    ):
        World(1, WorldConfig(steps_at_one_instant_max=2000)).run(main)


def test_reports_end_with_the_last_events_of_each_node() -> None:
    """Even if no entries are kept."""

    async def busy(node: Node) -> None:
        for number in range(9):
            await trio.sleep(1)
            world.journal.record(node.name, "note", number=number)
        await trio.sleep_forever()

    async def main(world: World) -> None:
        world.node("quiet").boot(sleep_for_ever)
        world.node("busy").boot(busy)
        world.journal.record("", "note", of="the world")
        await world.nodes["busy"].wait_down()

    def spin() -> None:
        world.kernel.call_at(0.0, spin)

    endings: list[tuple[WorldConfig, type[Exception], Callable[[], object]]] = [
        (WorldConfig(), Deadlock, lambda: None),
        (WorldConfig(virtual_time_max_s=100.0), VirtualTimeExceeded, lambda: world.at(1000.0, lambda: None)),
        (WorldConfig(steps_at_one_instant_max=2000), Livelock, lambda: world.at(20.0, spin)),
    ]
    for config, error, prepare in endings:
        world = World(1, attrs.evolve(config, journal_keep=False))
        prepare()
        with pytest.raises(error) as info:
            world.run(main)
        report = str(info.value)
        assert "on node busy (incarnation 1), in test_reports" in report
        assert report.partition("\nlast events:\n")[2].splitlines() == [
            "node quiet:",
            "  0.000000 s node.boot",
            "node busy:",
            *(f"  {number + 1}.000000 s note number={number}" for number in range(4, 9)),
            "the world:",
            "  0.000000 s note of=the world",
        ]


def test_run_makes_nodes_and_applies_faults() -> None:
    times: list[float] = []

    async def note_boot(node: Node) -> None:
        times.append(trio.current_time())
        await trio.sleep_forever()

    async def main(world: World) -> list[str]:
        world.nodes["a"].boot(note_boot)
        await trio.sleep(10)
        return list(world.nodes)

    assert run(main, seed=1, nodes=("a", "b"), schedule=Schedule((Kill(at_s=2.0, node="a", down_s=1.0),))) == ["a", "b"]
    assert times == [0.0, 3.0]
    with pytest.raises(ValueError, match="no node is called 'a'"):
        run(main, seed=1, schedule=Schedule((Kill(at_s=2.0, node="a", down_s=1.0),)))


def test_a_failed_run_says_with_which_seed_and_when() -> None:
    async def main(world: World) -> None:
        await trio.sleep(3)
        raise LookupError("lost")

    with pytest.raises(LookupError) as lost:
        run(main, seed=7)
    assert lost.value.__notes__ == ["in a simulated world with seed 7, at 3.0 s"]
    with pytest.raises(Deadlock) as stuck:
        sim_run(seed=8)(trio.sleep_forever)
    assert stuck.value.__notes__ == ["in a simulated world with seed 8, at 0.0 s"]


def test_timers_that_make_no_progress_are_a_livelock_too() -> None:
    async def main(world: World) -> None:
        def again() -> None:
            world.kernel.call_at(0.0, again)

        again()
        await trio.sleep(100)

    with pytest.raises(Livelock, match="2000 kernel events"):
        World(1, WorldConfig(steps_at_one_instant_max=2000)).run(main)


def test_limits_on_steps_and_on_time() -> None:
    async def ticks(world: World) -> None:
        while True:
            await trio.sleep(1)

    with pytest.raises(StepsExceeded, match="1000 task steps"):
        World(1, WorldConfig(steps_max=1000)).run(ticks)
    world = World(1, WorldConfig(virtual_time_max_s=10.0))
    with pytest.raises(VirtualTimeExceeded, match=r"limit of 10\.0 s"):
        world.run(ticks)
    assert world.now_s == 10.0


def test_timers_run_in_order_and_may_wake_tasks() -> None:
    order: list[tuple[str, float]] = []

    async def main(world: World) -> None:
        event = trio.Event()
        world.at(2.0, lambda: order.append(("second", world.now_s)))
        world.at(1.0, lambda: order.append(("first", world.now_s)))
        world.at(2.0, event.set)
        await event.wait()
        order.append(("task", trio.current_time()))
        world.at(0.5, lambda: order.append(("past", world.now_s)))
        await trio.sleep(1)

    World(1).run(main)
    assert order == [("first", 1.0), ("second", 2.0), ("task", 2.0), ("past", 2.0)]


def test_a_timer_may_cancel_move_a_deadline_and_boot() -> None:
    async def main(world: World) -> None:
        with trio.CancelScope() as cancelled:
            world.at(1.0, cancelled.cancel)
            await trio.sleep_forever()
        assert trio.current_time() == 1.0
        with trio.CancelScope() as moved:

            def move() -> None:
                moved.deadline = 2.5

            world.at(2.0, move)
            await trio.sleep_forever()
        assert trio.current_time() == 2.5
        node = world.node("a")
        world.at(3.0, lambda: node.boot(sleep_for_ever))
        await trio.sleep(1)
        assert node.is_up

    World(1).run(main)


def test_what_a_timer_or_a_subscriber_raises_fails_the_run() -> None:
    def broken(_: object = None) -> None:
        raise LookupError("callback")

    async def with_timer(world: World) -> None:
        world.at(1.0, broken)
        await trio.sleep_forever()

    async def with_subscriber(world: World) -> None:
        world.journal.subscribe(broken)
        world.node("a").boot(sleep_for_ever)
        await trio.sleep_forever()

    for main in (with_timer, with_subscriber):
        with pytest.raises(LookupError, match="callback"):
            World(1).run(main)


def test_fail_ends_the_run_with_the_first_error() -> None:
    async def main(world: World) -> None:
        try:
            world.at(1.0, lambda: world.fail(LookupError("first")))
            await trio.sleep_forever()
        finally:
            world.fail(LookupError("second"))

    with pytest.raises(LookupError, match="first"):
        World(1).run(main)


def test_the_journal_orders_counts_and_forgets() -> None:
    seen: list[JournalEntry] = []

    async def main(world: World) -> None:
        world.journal.subscribe(seen.append)
        for number in range(5):
            await trio.sleep(1)
            world.journal.record("a", "node.late_error", status=str(number))

    for config, kept in ((WorldConfig(journal_entries_max=2), 2), (WorldConfig(journal_keep=False), 0)):
        world = World(1, config)
        world.run(main)
        assert len(world.journal) == 5
        assert [entry.seq for entry in world.journal.entries] == [0, 1, 2, 3, 4][5 - kept :]
        assert seen[-1] == JournalEntry(4, 5_000_000_000, "a", "node.late_error", {"status": "4"})


def test_a_tasks_number_is_its_order_of_spawning() -> None:
    async def main(world: World) -> int:
        assert world.task_number() == 1
        numbers = []

        async def child() -> None:
            numbers.append(world.task_number())

        async with trio.open_nursery() as nursery:
            nursery.start_soon(child)
        return numbers[0]

    assert World(1).run(main) == 3  # 0 is Trio's first task, 2 its run_sync_soon task


def test_the_example_of_the_documentation_runs(capsys: pytest.CaptureFixture[str]) -> None:
    page = (Path(__file__).parents[2] / "docs" / "sim-net.md").read_text()
    example = page.partition("```python\n")[2].partition("```")[0]
    exec(compile(example, "docs/sim-net.md", "exec"), {"__name__": "example"})
    time_s, digest = capsys.readouterr().out.split()
    assert time_s == "10.0"
    assert len(digest) == 32


def test_the_disk_example_of_the_documentation_runs() -> None:
    page = (Path(__file__).parents[2] / "docs" / "sim-net.md").read_text()
    example = page.partition("\n## Disk\n")[2].partition("```python\n")[2].partition("```")[0]
    names: dict[str, Any] = {}
    exec(compile(f"async def program(node):\n{textwrap.indent(example, '    ')}", "docs/sim-net.md", "exec"), names)

    async def main(world: World) -> list[str]:
        node = world.node("a")
        node.boot(names["program"])
        await node.wait_down()
        node.power_loss()
        return node.disk.list("store")

    assert World(1).run(main) == ["log"]


def test_configurations_are_checked() -> None:
    with pytest.raises(ValueError, match="latency_max_s"):
        LinkConfig(latency_min_s=2.0, latency_max_s=1.0)
    with pytest.raises(ValueError, match="sync_max_s"):
        DiskConfig(sync_min_s=2.0, sync_max_s=1.0)
    with pytest.raises(ValueError, match="send_buffer_bytes"):
        WorldConfig(send_buffer_bytes=0)
    with pytest.raises(TypeError, match="guard_packages must be a sequence of names, not 'mine'"):
        World(1, guard_packages="mine")


@pytest.mark.parametrize("time_s", [math.inf, math.nan])
def test_a_callback_has_a_finite_time(time_s: float) -> None:
    with pytest.raises(ValueError, match=f"time_s must be a finite number, not {time_s}"):
        World(1).at(time_s, lambda: None)


def test_usage_counts_the_steps_and_the_operations_of_each_node() -> None:
    async def writes(node: Node) -> None:
        with contextlib.closing(node.disk.open("file", allocate_bytes=100)) as file:
            while True:
                file.write_at(0, b"x")
                await file.sync()
                await trio.sleep(1.0)

    async def main(world: World) -> tuple[set[str], int, int, int]:
        for name in ("a", "b"):
            world.node(name).boot(writes if name == "a" else sleep_for_ever)
        await trio.sleep(10.5)
        with world.usage() as usage:
            await trio.sleep(10.0)
        await trio.sleep(10.0)
        steps, operations = usage.steps, usage.disk_operations
        return {node for node, _ in steps}, steps.total(), operations["a", "sync"], operations.total()

    nodes, steps, syncs, operations = run(main, seed=1)
    assert nodes == {"a"}
    assert (syncs, operations) == (10, 20)
    assert 20 <= steps <= 60


def test_usage_changes_nothing_of_a_run_and_lets_faults_hear_of_operations() -> None:
    def digest(*, counts: bool) -> tuple[str, bool]:
        async def writes(node: Node) -> None:
            with contextlib.closing(node.disk.open("file", allocate_bytes=100)) as file:
                while True:
                    file.write_at(0, b"x")
                    await trio.sleep(1.0)

        async def main(world: World) -> bool:
            node = world.node("a")
            world.start_schedule(Schedule((Kill(0.0, "a", 1.0, on=On("disk.write", "a", 7)),)))
            node.boot(writes)
            with world.usage() if counts else contextlib.nullcontext():
                await trio.sleep(20.0)
            return node.incarnation == 2

        world = World(seed=1)
        was_killed = world.run(main)
        return world.digest, was_killed

    assert digest(counts=True) == digest(counts=False)
    assert digest(counts=True)[1]


def test_a_fault_that_is_applied_while_operations_are_counted_begins_and_all_are_counted() -> None:
    """Also within two blocks, whichever ends first, and after them."""

    async def writes(node: Node) -> None:
        with contextlib.closing(node.disk.open("file", allocate_bytes=100)) as file:
            while True:
                await trio.sleep(1.0)
                file.write_at(0, b"x")

    async def main(world: World) -> tuple[list[int], list[int]]:
        node, lives = world.node("a"), list[int]()
        node.boot(writes)
        await trio.sleep(0.5)
        with contextlib.ExitStack() as second:
            with world.usage() as long_usage:
                usages = [long_usage, second.enter_context(world.usage())]
                world.apply(Kill(0.0, "a", 0.25, on=On("disk.write", "a", 3)), 0)
                await trio.sleep(5.0)
                lives.append(node.incarnation)
                world.apply(Kill(0.0, "a", 0.25, on=On("disk.write", "a", 6)), 1)
            await trio.sleep(2.0)
        await trio.sleep(5.0)
        lives.append(node.incarnation)
        return lives, [usage.disk_operations["a", "write"] for usage in usages]

    assert run(main, seed=1) == ([2, 3], [5, 7])
