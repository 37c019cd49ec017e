"""The pytest plugin: its fixtures in plain tests and in Trio; seeds, and how a failure is repeated.

Beside pytest-asyncio and anyio it is tried in `tests/packaging/test_wheel.py`.
"""

from __future__ import annotations

import statistics
import time
from pathlib import Path

import pytest
import trio

from rmq_actors import Message, PutStatus
from rmq_actors.embedding.trio_thread import open_in_thread
from rmq_actors.testing.fixtures import ClusterFixture, StoreFixture, open_cluster_fixture
from sim_net import World

pytest_plugins = ["pytester"]

SIMULATED = """
import pytest, trio

def test_one(sim_world):
    async def main(world):
        await trio.sleep(1)
        assert world.seed != 2, "the second is unlucky"
    sim_world.run(main)

@pytest.mark.parametrize("letter", ["a"])
def test_both(letter, sim_seed):
    assert sim_seed != 2

@pytest.mark.parametrize("sim_seed", [77])
def test_own(sim_seed):
    assert sim_seed == 77
"""


def test_a_plain_test_uses_a_pair(rmq_cluster: ClusterFixture) -> None:
    assert rmq_cluster.put(Message("Orders", b"one")).status is PutStatus.PUT_OK
    assert [message.body for message in rmq_cluster.messages()] == [b"one"]
    assert [message.body for message in rmq_cluster.messages("slave-1")] == [b"one"]
    rmq_cluster.kill("master")
    rmq_cluster.promote("slave-1")
    rmq_cluster.start("master")
    assert rmq_cluster.name_server_address.startswith("127.0.0.1:")


@pytest.mark.trio
async def test_a_trio_test_uses_a_pair(rmq_cluster: ClusterFixture) -> None:
    result = await rmq_cluster.aput(Message("Orders", b"one"))
    assert result.status is PutStatus.PUT_OK
    assert [message.body for message in rmq_cluster.messages("slave-1")] == [b"one"]

    async def within() -> None:
        await trio.lowlevel.checkpoint()
        with pytest.raises(RuntimeError, match="the Trio of the thread itself"):
            rmq_cluster.messages()

    await rmq_cluster.thread.arun(within)


def test_a_store(rmq_store: StoreFixture) -> None:
    assert rmq_store.put(Message("Orders", b"one")).status is PutStatus.PUT_OK


def test_a_pair_is_up_soon(tmp_path: Path) -> None:
    """The goal is 50 ms in the median, on a machine of its own; ten times that means that something waits."""
    took = []
    for number in range(5):
        begun = time.perf_counter()
        with open_cluster_fixture(tmp_path / str(number)):
            took.append(time.perf_counter() - begun)
    assert statistics.median(took) < 0.5, took


def test_what_cannot_be_opened_is_raised(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(OSError, match="file"), open_cluster_fixture(tmp_path / "file"):
        pass


def test_what_fails_meanwhile_is_raised_at_the_end() -> None:
    class Opened:
        async def __aenter__(self) -> trio.Nursery:
            self.manager = trio.open_nursery()
            return await self.manager.__aenter__()

        async def __aexit__(self, *error: object) -> bool | None:
            return await self.manager.__aexit__(*error)  # type: ignore[arg-type]

    async def fail() -> None:
        await trio.lowlevel.checkpoint()
        raise KeyError("meanwhile")

    with (
        pytest.RaisesGroup(pytest.RaisesExc(KeyError, match="meanwhile")),
        open_in_thread(Opened) as (nursery, thread),
    ):
        thread.run_sync(nursery.start_soon, fail)


def test_each_seed_is_a_run_and_a_failure_says_how_to_repeat_it(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(test_it=SIMULATED)
    options = ("-p", "no:cacheprovider")
    ended = pytester.runpytest_subprocess(*options, "--sim-seeds", "1:3")
    ended.assert_outcomes(passed=3, failed=2)
    ended.stdout.fnmatch_lines(
        [
            "*simulated world*",
            "to run it again:",
            "python -m pytest 'test_it.py::test_one[[]seed2[]]' --sim-seeds 2:3",
            "python -m pytest 'test_it.py::test_both[[]*[]]' --sim-seeds 2:3",
        ]
    )
    command = next(line for line in ended.outlines if line.startswith("python -m pytest 'test_it.py::test_one"))
    again = pytester.runpytest_subprocess(*options, "test_it.py::test_one[seed2]", *command.split()[-2:])
    again.assert_outcomes(failed=1)
    pytester.runpytest_subprocess(*options, "--sim-seeds", "2").assert_outcomes(passed=5)


@pytest.mark.parametrize("text", ["x", "4:2"])
def test_seeds_that_are_none_are_a_usage_error(pytester: pytest.Pytester, text: str) -> None:
    pytester.makepyfile(test_it=SIMULATED)
    ended = pytester.runpytest_subprocess(f"--sim-seeds={text}")
    assert ended.ret != 0
    assert "give N for the seeds from 0 to N - 1" in "\n".join([*ended.outlines, *ended.errlines])


def test_a_world_is_of_its_seed(sim_world: World, sim_seed: int) -> None:
    assert sim_world.seed == sim_seed
