"""The pytest plugin of this project: a RocketMQ pair for tests, a store, and simulated worlds by seed.

    def test_my_service(rmq_cluster):                 # any test: plain, pytest-trio, pytest-asyncio, anyio
        my_service.publish(rmq_cluster.name_server_address, b"hello")
        assert [message.body for message in rmq_cluster.messages()] == [b"hello"]

    def test_my_protocol(sim_world):                  # one run for each of `--sim-seeds`
        sim_world.run(main)

pytest loads it in every environment that has the wheel, so it imports nothing of the project before a test asks for a
fixture. See docs/testing.md.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from rmq_actors.testing.fixtures import ClusterFixture, StoreFixture
    from rmq_actors.testing.sim_cluster import SimCluster
    from sim_net import World

_OPTION = "--sim-seeds"
_SEED = "sim_seed"


def _seeds(text: str) -> range:
    """`N` is 0 to N - 1, `A:B` is A to B - 1, as for `rmq-actors chaos run`. Raises `pytest.UsageError`."""
    found = re.fullmatch(r"(?:(\d+):)?(\d+)", text)
    seeds = range(0) if found is None else range(int(found[1] or 0), int(found[2]))
    if not seeds:
        raise pytest.UsageError(
            f"{_OPTION} {text}: give N for the seeds from 0 to N - 1, or A:B for those from A to B - 1"
        )
    return seeds


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add `--sim-seeds`."""
    parser.getgroup("rmq-actors", "rmq-actors: simulated worlds").addoption(
        _OPTION,
        default="3",
        metavar="N|A:B",
        help="Run each test that has a simulated world with the seeds from 0 to N - 1, or from A to B - 1. Default: 3.",
    )


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Make one test for each seed of those that ask for one."""
    is_given = any(_SEED in mark.args[0] for mark in metafunc.definition.iter_markers("parametrize") if mark.args)
    if _SEED in metafunc.fixturenames and not is_given:
        seeds = _seeds(metafunc.config.getoption(_OPTION))
        metafunc.parametrize(_SEED, seeds, ids=[f"seed{seed}" for seed in seeds])


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Below a failure, say which command runs its seed again."""
    report = yield
    parameters = getattr(getattr(item, "callspec", None), "params", {})
    if report.failed and _SEED in parameters:
        seed = parameters[_SEED]
        command = f"python -m pytest {shlex.quote(item.nodeid)} {_OPTION} {seed}:{seed + 1}"
        report.sections.append(("simulated world", f"to run it again:\n{command}"))
    return report


@pytest.fixture
def sim_seed() -> int:
    """The seed of this run: tests that ask for it, or for a world, run once for each of `--sim-seeds`."""
    raise AssertionError("pytest_generate_tests gives it")


@pytest.fixture
def sim_world(sim_seed: int) -> World:
    """A simulated world from `sim_seed`; the test makes its nodes, and runs it."""
    from sim_net import World  # noqa: PLC0415

    return World(sim_seed)


@pytest.fixture
def sim_cluster(sim_seed: int) -> Callable[..., SimCluster]:
    """Makes a cluster in a simulated world from `sim_seed`: `sim_cluster({"a": None, "b": "a"}).run(body)`."""
    from rmq_actors.testing.sim_cluster import SimCluster  # noqa: PLC0415

    def make(*arguments: Any, **settings: Any) -> SimCluster:  # noqa: ANN401  # SimCluster's own
        return SimCluster(*arguments, **{"seed": sim_seed, **settings})

    return make


@pytest.fixture
def rmq_cluster(tmp_path: Path) -> Iterator[ClusterFixture]:
    """A name server, a master and a slave, on free ports of the loopback, in a thread of their own."""
    from rmq_actors.testing.fixtures import open_cluster_fixture  # noqa: PLC0415

    with open_cluster_fixture(tmp_path / "rmq_cluster") as cluster:
        yield cluster


@pytest.fixture
def rmq_store(tmp_path: Path) -> Iterator[StoreFixture]:
    """A message store without a broker, in a thread of its own."""
    from rmq_actors.testing.fixtures import open_store_fixture  # noqa: PLC0415

    with open_store_fixture(tmp_path / "rmq_store") as store:
        yield store
