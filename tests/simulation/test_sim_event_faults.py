"""Faults that wait for an event: of the journal, of the program's own trace, of a disk."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from random import Random

import attrs
import pytest
import trio

from sim_net import Delay, Fault, Kill, Node, On, Partition, Reset, Schedule, ShortIO, World
from sim_net.faults.fault import Undo
from sim_net.faults.nemesis import Announce
from sim_net.faults.sampling import sample_fault
from sim_net.search.search import Case, find, shrink

PORT = 7000


def faults_of(world: World) -> list[tuple[float, str, object]]:
    return [
        (entry.time_ns / 1e9, entry.kind, entry.attributes["fault_id"])
        for entry in world.journal.entries
        if entry.kind.startswith("fault.")
    ]


class Trace:
    """A program's trace that knows nothing of faults; it counts those who listen."""

    def __init__(self, world: World) -> None:
        self.listeners: list[Announce] = []
        world.trace_source(self.listeners.append)

    def emit(self, node: str, kind: str) -> None:
        for listener in self.listeners:
            listener(node, kind)


def run_traced(program: Callable[[Node, Trace], Awaitable[None]], *faults: Fault, until_s: float = 20.0) -> World:
    async def main(world: World) -> None:
        nodes = [world.node("a"), world.node("b")]
        world.start_schedule(Schedule(faults))
        for node in nodes:
            node.boot(lambda node: program(node, trace))
        await trio.sleep_until(until_s)

    world = World(1)
    trace = Trace(world)
    world.run(main)
    return world


async def put_each_second(node: Node, trace: Trace) -> None:
    while True:
        await trio.sleep(1)
        trace.emit(node.name, "put")


def test_a_fault_begins_some_time_after_the_nth_event_of_its_node() -> None:
    world = run_traced(put_each_second, ShortIO(0.25, 2.0, "b", 1, on=On("put", "a", 3)))
    assert faults_of(world) == [(3.25, "fault.begin", 0), (5.25, "fault.end", 0)]


def test_without_a_node_events_of_all_count() -> None:
    world = run_traced(put_each_second, ShortIO(0.0, 2.0, "b", 1, on=On("put", nth=3)))
    assert faults_of(world)[0] == (2.0, "fault.begin", 0)


def test_a_star_stands_for_all_kinds_that_begin_so() -> None:
    async def program(node: Node, trace: Trace) -> None:
        for kind in ("store.open", "store.put", "storage", "store.put"):
            await trio.sleep(1)
            if node.name == "a":
                trace.emit(node.name, kind)
        await trio.sleep_forever()

    world = run_traced(program, ShortIO(0.0, 1.0, "b", 1, on=On("store.*", nth=3)))
    assert faults_of(world)[0] == (4.0, "fault.begin", 0)


def test_a_process_dies_within_the_event_itself() -> None:
    after: list[str] = []

    async def program(node: Node, trace: Trace) -> None:
        if node.name == "a" and node.incarnation == 1:
            listener = trio.socket.socket()
            await listener.bind((node.address, PORT))
            trace.emit("a", "bound")
            with pytest.raises(OSError, match="Bad file descriptor"):
                listener.listen()
            after.append("fenced at once")
        await trio.sleep_forever()

    world = run_traced(program, Kill(0.0, "a", 1.0, on=On("bound")))
    assert after == ["fenced at once"]
    assert [entry.kind for entry in world.journal.entries][2:7] == [
        "fault.begin", "node.kill", "node.boot", "fault.end", "node.stop",
    ]  # fmt: skip


def test_events_of_the_journal_count() -> None:
    faults = (
        Kill(1.0, "a", 1.0),
        Kill(0.5, "b", 1.0, on=On("node.boot", "a", 2)),
        Reset(0.0, "a", "b", on=On("node.kill", "b")),
    )
    world = run_traced(put_each_second, *faults)
    assert faults_of(world) == [
        (1.0, "fault.begin", 0), (2.0, "fault.end", 0), (2.5, "fault.begin", 1),
        (2.5, "fault.begin", 2), (2.5, "fault.end", 2), (3.5, "fault.end", 1),
    ]  # fmt: skip


def test_a_fault_may_wait_for_another_fault() -> None:
    world = run_traced(
        put_each_second,
        Partition(3.0, 2.0, "a", "b"),
        Delay(0.0, 1.0, "a", "b", 0.1, on=On("fault.end")),
    )
    assert faults_of(world)[2:] == [(5.0, "fault.begin", 1), (6.0, "fault.end", 1)]


def test_a_fault_whose_event_never_comes_is_named() -> None:
    never = Kill(0.0, "a", 1.0, on=On("put", "a", 1000))
    late = Reset(1000.0, "a", "b")
    world = run_traced(put_each_second, Reset(0.5, "a", "b"), never, late)
    assert [(each.fault_id, each.fault) for each in world.faults if not each.begun] == [(1, never), (2, late)]
    assert [each.ends_s for each in world.faults] == [0.5, None, 1000.0]
    assert faults_of(world) == [(0.5, "fault.begin", 0), (0.5, "fault.end", 0)]


def test_the_end_of_the_faults_moves_when_an_event_comes() -> None:
    ends: list[float] = []

    async def main(world: World) -> None:
        world.node("a").boot(lambda node: put_each_second(node, trace))
        schedule = Schedule((ShortIO(1.0, 1.0, "a", 1), ShortIO(0.5, 6.0, "a", 1, on=On("put", nth=3))))
        assert schedule.ends_s == 2.0
        assert world.faults_end_s == 0.0
        world.start_schedule(schedule)
        for second in (0.5, 2.9, 3.1, 3.6):
            await trio.sleep_until(second)
            ends.append(world.faults_end_s)

    world = World(1)
    trace = Trace(world)
    world.run(main)
    assert ends == [2.0, 2.0, 9.5, 9.5]


def test_a_fault_that_was_called_off_does_not_begin() -> None:
    async def main(world: World) -> None:
        world.node("a").boot(lambda node: put_each_second(node, trace))
        world.apply(Kill(0.0, "a", 1.0, on=On("put", nth=3)), 7)
        await trio.sleep_until(2.5)
        world.stop_waiting()
        await trio.sleep_until(6)

    world = World(1)
    trace = Trace(world)
    world.run(main)
    assert faults_of(world) == []
    assert [(each.fault_id, each.begun, each.ends_s) for each in world.faults] == [(7, False, None)]


def test_a_trace_is_not_listened_to_while_no_fault_waits() -> None:
    async def main(world: World) -> None:
        world.node("a")
        world.apply(Kill(0.0, "a", 1.0), 0)
        assert (trace.listeners, world.nodes["a"].disk.announce) == ([], None)
        world.apply(Kill(0.0, "a", 1.0, on=On("put")), 1)
        assert len(trace.listeners) == 1
        assert callable(world.nodes["a"].disk.announce)
        late = Trace(world)
        assert len(late.listeners) == 1

    world = World(1)
    trace = Trace(world)
    world.run(main)


def test_a_process_dies_at_each_operation_of_its_disk() -> None:
    """For every n: the n-th operation has no effect, and those before it have."""
    written: list[int] = []

    async def program(node: Node) -> None:
        if node.incarnation == 1:
            for number in range(4):
                node.disk.open(f"{number}", allocate_bytes=1).write_at(0, b"x")
        await trio.sleep_forever()

    for nth in range(1, 9):

        async def main(world: World, nth: int = nth) -> None:
            node = world.node("a")
            world.apply(Kill(0.0, "a", 1.0, on=On("disk.*", "a", nth)), 0)
            node.boot(program)
            await trio.sleep_until(5)
            names = node.disk.list("")
            written.append(2 * len(names) - sum(bytes(node.disk.open(name).map()) == b"\0" for name in names))

        World(1).run(main)
    assert written == [0, 1, 2, 3, 4, 5, 6, 7]


async def transfer(node: Node) -> None:
    """Move 1 from one account to the other each second. The bug: a process may die between the two writes."""
    accounts = node.disk.open("accounts", allocate_bytes=2)
    if not any(accounts.map()):
        accounts.write_at(0, bytes([100, 100]))
    while True:
        await trio.sleep(1)
        first, second = accounts.map()
        accounts.write_at(0, bytes([first - 1]))
        accounts.write_at(1, bytes([second + 1]))


def money_after(case: Case) -> str | None:
    async def main(world: World) -> int:
        node = world.node("bank")
        world.start_schedule(case.schedule)
        node.boot(transfer)
        await trio.sleep_until(20)
        return sum(node.disk.open("accounts").map())

    money = World(case.seed).run(main)
    return None if money == 200 else f"{money} are left of 200"


def test_an_event_reaches_a_place_that_no_time_reaches() -> None:
    """Both writes are made at one instant, so a kill by the clock comes before both or after both."""

    def timed(seed: int) -> Case:
        return Case(seed, Schedule([sample_fault(Random(seed).choice, ["bank"], kinds=["Kill"])]))

    def at_an_event(seed: int) -> Case:
        choose = Random(seed).choice
        return Case(seed, Schedule([sample_fault(choose, ["bank"], kinds=["Kill"], events=["disk.write"])]))

    assert find(money_after, timed, range(100), runs_max=100) is None
    found = find(money_after, at_an_event, range(100), runs_max=100)
    assert found is not None
    small = shrink(found.case, money_after, runs_max=100)
    assert small.schedule == Schedule([Kill(0.0, "bank", 1.0, on=On("disk.write", "bank", 3))])
    assert money_after(Case.from_json(small.to_json())) == "199 are left of 200"


@attrs.frozen
class Broken(Fault):
    def begin(self, world: World) -> Undo:
        raise KeyError("a mistake in the fault")


@pytest.mark.parametrize("on", [None, On("put"), On("node.boot")])
def test_a_fault_that_raises_fails_the_run_and_not_the_program(on: On | None) -> None:
    survived: list[str] = []

    async def program(node: Node, trace: Trace) -> None:
        trace.emit(node.name, "put")
        survived.append(node.name)

    with pytest.raises(KeyError, match="a mistake in the fault"):
        run_traced(program, Broken(0.0, on=on))
    assert survived


def test_a_trigger_that_names_nobody_is_refused() -> None:
    async def main(world: World) -> None:
        world.node("a")
        with pytest.raises(ValueError, match=r"fault 0, Kill\(.*no node is called 'ghost'; there are a"):
            world.start_schedule(Schedule((Kill(0.0, "a", 1.0, on=On("put", "ghost")),)))

    World(1).run(main)
