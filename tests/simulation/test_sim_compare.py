"""Running twice names the first difference: which world, when, whose step, and what came just before."""

from __future__ import annotations

import itertools
from collections.abc import Awaitable, Callable

import pytest
import trio

from rmq_actors.testing.scenarios import random_case, run_case
from sim_net import Difference, Node, NotDeterministic, World, check_deterministic
from sim_net.search.compare import Difference as SameDifference
from tests.simulation.test_sim_determinism import run_chaos

assert Difference is SameDifference


def differing(main: Callable[[World, int], Awaitable[object]], *, entries_max: int = 10_000) -> Difference:
    """The difference between runs 0 and 1 of `main`, which is told its number."""
    numbers = itertools.count()

    def program() -> None:
        number = next(numbers)
        World(1).run(lambda world: main(world, number))

    with pytest.raises(NotDeterministic) as info:
        check_deterministic(program, entries_max=entries_max)
    assert str(info.value) == str(info.value.difference)
    return info.value.difference


def test_equal_runs_give_the_result_or_the_error_of_the_program() -> None:
    async def main(world: World) -> str:
        await trio.sleep(1)
        return "done"

    async def fail(world: World) -> None:
        await trio.sleep(1)
        raise LookupError(object())

    assert check_deterministic(lambda: World(1).run(main)) == "done"
    with pytest.raises(LookupError):
        check_deterministic(lambda: World(1).run(fail))
    with pytest.raises(ValueError, match="no world"):
        check_deterministic(lambda: None)


def test_whole_systems_are_deterministic() -> None:
    for seed in range(3):
        assert check_deterministic(lambda seed=seed: run_chaos(seed)).digest == run_chaos(seed).digest  # type: ignore[misc]
    assert check_deterministic(lambda: run_case(random_case(7))).outcome == "passed"


def test_a_step_of_another_task_is_named_with_its_node_and_place() -> None:
    async def main(world: World, number: int) -> None:
        async def late(node: Node) -> None:
            await trio.sleep(1.5)
            async with trio.open_nursery() as nursery:
                nursery.start_soon(trio.sleep, 1, name=f"worker {number}")

        node = world.node("n1")
        node.boot(late)
        await node.wait_down()

    difference = differing(main)
    assert difference.time_s == 1.5
    assert difference.first == "a step of task 4 worker 0 on node n1 (incarnation 1)"
    assert difference.second.startswith("a step of task 4 worker 1 on node n1 (incarnation 1), in sleep")
    assert difference.before[-2] == "1.500000 s: time moves to 1.5 s"
    assert difference.before[-1].startswith("1.500000 s: a step of task 3 node n1 #1")
    report = str(difference)
    assert report.startswith("two runs differ at 1.5 s (entry ")
    assert all(line in report for line in (difference.first, difference.second, *difference.before))


def test_a_difference_of_time_is_named() -> None:
    async def main(world: World, number: int) -> None:
        await trio.sleep(2)
        await trio.sleep(1 + number)

    difference = differing(main)
    assert (difference.time_s, difference.first) == (2.0, "time moves to 3.0 s")
    assert difference.second == "time moves to 4.0 s"


def test_a_difference_in_the_journal_is_named_with_who_made_it() -> None:
    async def main(world: World, number: int) -> None:
        world.journal.record("n", "note", number=number)

    difference = differing(main)
    assert difference.first == "journal: n note {'number': 0} by task 1 sim_net.world.World._root"
    assert difference.second == "journal: n note {'number': 1} by task 1 sim_net.world.World._root"


def test_of_a_long_trace_the_differing_part_is_shown() -> None:
    async def main(world: World, number: int) -> None:
        world.journal.mix(b"x" * 5000 + b"%d" % number + b"y" * 5000)

    difference = differing(main)
    assert "xxx0yyy" in difference.first
    assert "xxx1yyy" in difference.second
    assert len(difference.first) < 400


def test_bytes_on_the_network_are_compared() -> None:
    async def main(world: World, number: int) -> None:
        async def serve(node: Node) -> None:
            await trio.serve_tcp(lambda stream: stream.receive_some(), 80, host=node.address)

        async def send(node: Node) -> None:
            stream = await trio.open_tcp_stream("server", 80)
            await stream.send_all(bytes([number]) * 10)
            await trio.sleep(1)

        world.node("server").boot(serve)
        await trio.sleep(1)
        client = world.node("client")
        client.boot(send)
        await client.wait_down()

    difference = differing(main)
    for told in (difference.first, difference.second):
        assert told.startswith("an arrival on the network: DATA of 10 bytes (CRC-32 ")


@pytest.mark.parametrize(("first", "second"), [(1, 2), (2, 1)])
def test_a_run_that_ends_earlier_differs(first: int, second: int) -> None:
    async def main(world: World, number: int) -> None:
        for _ in range((first, second)[number]):
            await trio.sleep(1)

    difference = differing(main)
    assert difference.time_s == 1.0
    assert (difference.first == "was over") is (first < second) or "step" in difference.first


def test_other_numbers_of_worlds_and_other_errors_differ() -> None:
    async def nothing(world: World) -> None: ...

    numbers = itertools.count(1)

    def program() -> None:
        for _ in range(next(numbers)):
            World(1).run(nothing)

    with pytest.raises(NotDeterministic) as info:
        check_deterministic(program)
    assert info.value.difference.world == 1
    assert info.value.difference.first == "was over"

    fewer = itertools.count(2, -1)

    def fewer_worlds() -> None:
        for _ in range(next(fewer)):
            World(1).run(nothing)

    with pytest.raises(NotDeterministic, match="made 2 worlds"):
        check_deterministic(fewer_worlds)

    errors = iter([LookupError, ValueError])

    def fails() -> None:
        World(1).run(nothing)
        raise next(errors)

    with pytest.raises(NotDeterministic, match="ended with LookupError") as other:
        check_deterministic(fails)
    assert other.value.difference.second == "ended with ValueError"


def test_what_is_kept_is_bounded() -> None:
    async def main(world: World, number: int) -> None:
        for _ in range(50):
            await trio.sleep(1)
        world.journal.mix(b"%d" % number)

    assert "the only ones kept" in differing(main, entries_max=20).first
    assert "trace: 0" in differing(main).first


def test_the_second_run_is_stopped_where_it_differs() -> None:
    ends_s: list[float] = []

    async def main(world: World, number: int) -> None:
        try:
            await trio.sleep(1 + number)
            await trio.sleep(1000)
        finally:
            ends_s.append(trio.current_time())

    differing(main)
    assert ends_s == [1001.0, 2.0]


def test_recording_leaves_no_trace() -> None:
    """The digests are those of runs that nobody compares."""
    digests: list[str] = []

    def program() -> None:
        digests.append(run_chaos(1).digest)

    check_deterministic(program)
    program()
    assert digests == [digests[0]] * 3
