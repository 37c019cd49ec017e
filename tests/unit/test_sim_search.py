"""Search and shrinking, on a toy whose bug is known, and on a world with a planted one."""

from __future__ import annotations

import itertools
import random
from contextlib import suppress

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st

from sim_net import (
    ClockJump,
    Delay,
    Fault,
    JournalEntry,
    Kill,
    Node,
    NodeFailed,
    On,
    Partition,
    Reset,
    Schedule,
    Stall,
    World,
)
from sim_net.search.search import Case, find, shrink


def random_case(start: int) -> Case:
    rng = random.Random(start)
    faults: list[Fault] = []
    for _ in range(10):
        at_s, lasts_s = rng.uniform(0, 20), rng.uniform(0.01, 3)
        faults.append(
            rng.choice(
                (
                    Kill(at_s, rng.choice("ab"), lasts_s),
                    Partition(at_s, lasts_s, "a", "b"),
                    Stall(at_s, lasts_s, "a", "b"),
                    Reset(at_s, "a", "b"),
                    Delay(at_s, lasts_s, "a", "b", 0.1),
                )
            )
        )
    return Case(start, Schedule(tuple(faults)), {"puts": rng.randint(1, 100), "sync": True, "name": "toy"})


def toy(case: Case) -> str | None:
    """Fails when "a" is killed while a partition lasts that began at least 1 s before, with 5 puts or more."""
    for kill, cut in itertools.permutations(case.schedule.faults, 2):
        if not (isinstance(kill, Kill) and isinstance(cut, Partition) and kill.node == "a"):
            continue
        puts = case.parameters["puts"]
        if cut.at_s + 1 <= kill.at_s < cut.at_s + cut.duration_s and isinstance(puts, int) and puts >= 5:
            return "lost"
    return None


def test_a_planted_bug_is_found_and_made_small() -> None:
    progress: list[int] = []
    found = find(toy, random_case, itertools.count(), runs_max=5000, on_progress=progress.append)
    assert found is not None
    assert found.failure == "lost"
    assert progress == list(range(1, found.runs + 1))
    assert found.case == random_case(found.runs - 1)
    tried: list[tuple[int, int]] = []
    small = shrink(
        found.case, toy, runs_max=1000, on_progress=lambda runs, best: tried.append((runs, len(best.schedule)))
    )
    assert toy(small) == "lost"
    assert sorted(type(fault).__name__ for fault in small.schedule.faults) == ["Kill", "Partition"]
    assert small.parameters == {"puts": 5, "sync": True, "name": "toy"}
    cut, kill = sorted(small.schedule.faults, key=lambda fault: fault.at_s)
    assert isinstance(cut, Partition)
    assert isinstance(kill, Kill)
    assert (cut.at_s, kill.down_s) == (0.0, 1.0)
    assert kill.at_s == int(kill.at_s)
    assert [runs for runs, _ in tried] == list(range(1, len(tried) + 1))
    sizes = [size for _, size in tried]
    assert sizes == sorted(sizes, reverse=True)


def test_a_search_ends_when_it_is_told_to() -> None:
    runs = 0

    def run(case: Case) -> None:
        nonlocal runs
        runs += 1

    assert find(run, random_case, itertools.count(), runs_max=7) is None
    assert runs == 7
    assert find(run, random_case, range(3), runs_max=100) is None
    assert runs == 10
    assert find(run, random_case, itertools.count(), runs_max=100, stop=lambda: runs >= 14) is None
    assert runs == 14


def test_shrinking_stops_at_its_bound_with_the_best_so_far() -> None:
    case = next(each for each in map(random_case, itertools.count()) if toy(each))
    calls = 0

    def failing(each: Case) -> str | None:
        nonlocal calls
        calls += 1
        return toy(each)

    small = shrink(case, failing, runs_max=6)
    assert calls == 6
    assert toy(small)
    assert shrink(case, failing, runs_max=0) == case


def test_shrinking_that_is_stopped_gives_the_best_so_far() -> None:
    case = next(each for each in map(random_case, itertools.count()) if toy(each))
    calls = 0

    def failing(each: Case) -> str | None:
        nonlocal calls
        calls += 1
        return toy(each)

    small = shrink(case, failing, runs_max=1_000, stop=lambda: calls >= 6)
    assert calls == 6
    assert toy(small)


@given(st.integers(0, 10_000))
def test_what_shrinking_gives_still_fails(start: int) -> None:
    case = random_case(start)

    def failing(each: Case) -> bool:
        return sum(isinstance(fault, Reset) for fault in each.schedule.faults) >= 2

    if failing(case):
        small = shrink(case, failing, runs_max=500)
        assert [type(fault) for fault in small.schedule.faults] == [Reset, Reset]
        assert {fault.at_s for fault in small.schedule.faults} == {0.0}
        assert small.parameters["puts"] == 0


def waiting_case() -> Case:
    faults = (
        Reset(4.0, "a", "b"),
        Kill(0.013, "a", 2.9, on=On("disk.*", "a", 200)),
        Partition(7.5, 1.7, "a", "b", on=On("put", "b", 31)),
    )
    return Case(1, Schedule(faults))


def test_an_event_moves_to_an_earlier_one() -> None:
    def failing(case: Case) -> bool:
        return any(
            isinstance(fault, Kill) and fault.on is not None and fault.on.kind == "disk.*" and fault.on.nth >= 13
            for fault in case.schedule.faults
        )

    small = shrink(waiting_case(), failing, runs_max=500)
    assert small.schedule == Schedule((Kill(0.0, "a", 1.0, on=On("disk.*", "a", 13)),))


def test_an_event_that_does_not_matter_is_dropped() -> None:
    def failing(case: Case) -> bool:
        return any(isinstance(fault, Partition) for fault in case.schedule.faults)

    small = shrink(waiting_case(), failing, runs_max=500)
    assert small.schedule == Schedule((Partition(0.0, 1.0, "a", "b"),))


def test_beginning_earlier_leaves_what_waits_for_an_event_where_it_is() -> None:
    def failing(case: Case) -> bool:
        times_s = [(fault.on is None, fault.at_s) for fault in case.schedule.faults]
        return len(times_s) == 3 and times_s[1] == (False, 0.013)

    small = shrink(waiting_case(), failing, runs_max=500)
    assert [fault.at_s for fault in small.schedule.faults] == [0.0, 0.013, 0.0]


def test_numbers_below_0_are_made_simple_too() -> None:
    def failing(case: Case) -> bool:
        return any(isinstance(fault, ClockJump) and fault.by_ms <= -30 for fault in case.schedule.faults)

    small = shrink(Case(1, Schedule((ClockJump(3.25, "a", -5321),))), failing, runs_max=500)
    assert small.schedule == Schedule((ClockJump(0.0, "a", -30),))


def test_a_case_comes_back_from_json() -> None:
    case = random_case(3)
    assert Case.from_json(case.to_json()) == case
    assert Case.from_json(Case(7).to_json()) == Case(7)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "a case must be JSON"),
        ("[]", "a case must be an object, not list"),
        ('{"seed": 1}', "a case: missing key 'faults', missing key 'parameters'"),
        ('{"seed": 1, "parameters": {}, "faults": [], "x": 1}', "unknown key 'x'"),
        ('{"seed": "1", "parameters": {}, "faults": []}', "seed must be a whole number, not '1'"),
        ('{"seed": true, "parameters": {}, "faults": []}', "seed must be a whole number, not True"),
        ('{"seed": 1, "parameters": [], "faults": []}', r"parameters must be an object, not \[\]"),
        ('{"seed": 1, "parameters": {"a": []}, "faults": []}', r"parameters\['a'\] must be a scalar, not \[\]"),
        ('{"seed": 1, "parameters": {}, "faults": [{}]}', r"faults\[0\]: no fault is of kind None"),
    ],
)
def test_bad_cases_are_named(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Case.from_json(text)


# --- a world with a planted bug ---------------------------------------------------------------------------------------

PORT = 7000


def counter_world(case: Case) -> str | None:  # noqa: C901 - a whole toy system
    """A server acknowledges a count before it is on disk: a kill in between loses what was acknowledged."""
    acknowledged = 0

    async def server(node: Node) -> None:
        file = node.disk.open("count", allocate_bytes=8)
        count = int.from_bytes(file.map(), "big")

        async def serve(stream: trio.SocketStream) -> None:
            nonlocal count
            async for data in stream:
                count += len(data)
                await stream.send_all(count.to_bytes(8, "big"))
                await trio.sleep(0.5)  # the bug: this is the time to write, not after the answer
                file.write_at(0, count.to_bytes(8, "big"))

        await trio.serve_tcp(serve, PORT, host=node.address)

    async def client(node: Node) -> None:
        nonlocal acknowledged
        stream = await trio.open_tcp_stream("a", PORT)
        while True:
            await trio.sleep(1)
            await stream.send_all(b"x")
            acknowledged = int.from_bytes(await stream.receive_some(8), "big")

    async def careful(node: Node) -> None:
        while True:
            try:
                await client(node)
            except (OSError, trio.BrokenResourceError):
                await trio.sleep(0.1)

    lost: list[str] = []

    def check(entry: JournalEntry) -> None:
        if entry.kind == "node.kill" and entry.node == "a":
            stored = int.from_bytes(world.nodes["a"].disk.open("count", allocate_bytes=8).map(), "big")
            if acknowledged > stored:
                lost.append(f"{acknowledged} acknowledged, {stored} stored")

    async def main(world: World) -> None:
        a, b = world.node("a"), world.node("b")
        world.start_schedule(case.schedule)
        a.boot(server)
        await trio.sleep(0.5)
        b.boot(careful)
        await trio.sleep_until(25)

    world = World(case.seed)
    world.journal.subscribe(check)
    with suppress(NodeFailed):  # the toy server gives up when a connection breaks; only the lost count is looked for
        world.run(main)
    return lost[0] if lost else None


def test_a_planted_bug_in_a_world_is_found_shrunk_and_replayed() -> None:
    found = find(counter_world, random_case, range(100, 200), runs_max=60)
    assert found is not None
    assert "acknowledged" in found.failure
    small = shrink(found.case, counter_world, runs_max=120)
    assert [type(fault) for fault in small.schedule.faults] == [Kill]
    replayed = Case.from_json(small.to_json())
    assert counter_world(replayed) == counter_world(replayed) is not None
