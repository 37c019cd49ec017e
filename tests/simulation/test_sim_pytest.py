"""`sim_run` makes pytest-trio run async tests in a world: fixtures, failures, time-outs, skips."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_trio
import pytest_trio.plugin
import trio
from hypothesis import given, settings
from hypothesis import strategies as st

from sim_net import Kill, Node, NodeExited, Schedule, SimulationError, World, current_world, run, sim_run
from sim_net.search.search import Case, find

pytest_plugins = ["pytester"]

PROJECT = Path(__file__).parents[2]
in_a_world = pytest.mark.trio(run=sim_run(seed=1, nodes=("server",)))


@pytest.fixture
async def echo_port() -> AsyncIterator[int]:
    """An echo server on a node of its own, for as long as the test runs."""

    async def serve(node: Node) -> None:
        async def echo(stream: trio.SocketStream) -> None:
            async for data in stream:
                await stream.send_all(data)

        await trio.serve_tcp(echo, 7000, host=node.address)

    server = current_world().nodes["server"]
    server.boot(serve)
    await trio.sleep(1)
    yield 7000
    server.stop()
    await server.wait_down()


@in_a_world
async def test_fixtures_and_sockets_work(echo_port: int) -> None:
    assert trio.current_time() == 1.0
    stream = await trio.open_tcp_stream("server", echo_port)
    await stream.send_all(b"hello")
    assert await stream.receive_some() == b"hello"


@in_a_world
async def test_background_tasks_of_fixtures_run_on_the_node(nursery: trio.Nursery) -> None:
    listeners = await nursery.start(trio.serve_tcp, lambda stream: stream.send_all(b"hi"), 80)
    assert listeners[0].socket.getsockname()[1] == 80
    assert await (await trio.open_tcp_stream("127.0.0.1", 80)).receive_some() == b"hi"


@in_a_world
async def test_a_day_takes_no_time() -> None:
    with pytest.raises(trio.TooSlowError), trio.fail_after(86_400):
        await trio.sleep_forever()
    assert current_world().nodes["test"].wall_clock.now_ms() - current_world().config.epoch_ms == 86_400_000


@pytest.mark.trio(run=sim_run(seed=1, nodes=("server",), schedule=Schedule((Kill(2.0, "server", down_s=1.0),))))
async def test_faults_happen(echo_port: int) -> None:
    stream = await trio.open_tcp_stream("server", echo_port)
    with pytest.raises(trio.BrokenResourceError):
        await stream.receive_some()
    assert trio.current_time() == pytest.approx(2.0, abs=0.1)
    await trio.sleep(2)
    assert current_world().nodes["server"].incarnation == 2


@given(pause_s=st.floats(0, 1e4))
@settings(max_examples=10)
def test_under_hypothesis_it_is_called(pause_s: float) -> None:
    """pytest-trio runs tests with `@given` by `trio.run`, whatever their mark says."""

    async def body(pause_s: float) -> float:
        await trio.sleep(pause_s)
        return trio.current_time()

    assert sim_run(seed=1)(body, pause_s) == pytest.approx(pause_s)


def test_test_tools_are_not_imported() -> None:
    code = "import sim_net, sys; sys.exit(bool({'pytest', 'pytest_trio', 'hypothesis'} & {*sys.modules}))"
    assert subprocess.run([sys.executable, "-c", code], cwd=PROJECT, check=False).returncode == 0


def test_there_is_no_current_world_outside() -> None:
    async def main() -> None:
        with pytest.raises(RuntimeError, match="not in a simulated world"):
            current_world()

    trio.run(main)


_ENDINGS = """
import pytest, trio
from sim_net import current_world, sim_run

pytestmark = pytest.mark.trio(run=sim_run(seed=5, guard_packages=(__name__,)))

@pytest.fixture
async def broken():
    await trio.sleep(1)
    raise LookupError("setup")

@pytest.fixture
async def breaks_later():
    yield
    raise LookupError("teardown")

@pytest.fixture
async def crashes(nursery):
    async def crash():
        await trio.sleep(1)
        raise LookupError("background")
    nursery.start_soon(crash)

async def test_assertion():
    await trio.sleep(2)
    two = 2
    assert two == 3

async def test_time_out():
    with trio.fail_after(5):
        await trio.sleep_forever()

async def test_deadlock():
    await trio.sleep_forever()

async def test_real_time():
    import time
    time.time()

async def test_other_node_fails():
    async def fail(node):
        raise LookupError("other")
    current_world().node("other").boot(fail)
    await trio.sleep(1)

async def test_killed():
    current_world().nodes["test"].kill()
    await trio.sleep(1)

async def test_setup(broken):
    raise AssertionError("not reached")

async def test_teardown(breaks_later):
    pass

async def test_background(crashes):
    await trio.sleep(10)

async def test_clock(autojump_clock):
    pass

async def test_skip():
    pytest.skip("for a reason")

async def test_xfail():
    pytest.xfail("for a reason")

async def test_pass():
    assert current_world().seed == 5
"""


def test_endings_are_reported_as_what_they_are(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(_ENDINGS)
    result = pytester.runpytest_inprocess("-p", "no:cacheprovider", "-p", "no:xdist", "-p", "no:randomly", "-rA")
    result.assert_outcomes(failed=10, passed=1, skipped=1, xfailed=1)
    result.stdout.re_match_lines_random(
        [
            r".*AssertionError: assert 2 == 3",
            r".*in a simulated world with seed 5, at 2\.0 s",
            r".*trio\.TooSlowError",
            r"E +sim_net\.kernel\.kernel\.Deadlock: deadlock at 0\.0 s.*",
            r"E +sim_net\.kernel\.guard\.ForbiddenCall: .*time\.time\(\).*",
            r"E +sim_net\.node\.NodeFailed: node other \(incarnation 1\) failed at 0\.0 s: LookupError: other",
            r"E +sim_net\.node\.NodeFailed: node test went down with the test on it",
            r".*LookupError: setup",
            r".*LookupError: teardown",
            r".*LookupError: background",
            r"E +ValueError: a world has a clock of its own: the test may not use MockClock",
            r"SKIPPED \[1\] .*",
            r"XFAIL .*::test_xfail.*",
        ]
    )


# --- pytest-trio's order of fixtures ----------------------------------------------------------------------------------

_MANY_FIXTURES = """
import pytest, trio
from sim_net import current_world, sim_run

async def ticking():
    for _ in range(3):
        await trio.sleep(0)
    yield
    await trio.sleep(0)

a, b, c, d, e, f = (pytest.fixture(ticking, name=name) for name in "abcdef")

@pytest.fixture
async def both(a, b, c):
    await trio.sleep(0)
    yield

worlds = []

@pytest.mark.trio(run=sim_run(seed=1))
@pytest.mark.parametrize("again", range(5))
async def test_steps(a, b, c, d, e, f, both, again):
    worlds.append(current_world())
    await trio.sleep(1)

def test_digests():
    print("digests", len(worlds), *sorted({world.digest for world in worlds}))
"""


def test_the_digest_does_not_depend_on_the_order_of_sets_in_pytest_trio(tmp_path: Path) -> None:
    (tmp_path / "test_many.py").write_text(_MANY_FIXTURES)
    lines = set()
    for hash_seed in ("1", "4242"):
        done = subprocess.run(
            [sys.executable, "-m", "pytest", "-s", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", "test_many.py"],
            cwd=tmp_path,
            env={**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": str(PROJECT)},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        lines |= {line.lstrip(".") for line in done.stdout.splitlines() if "digests" in line}
    (line,) = lines
    assert len(line.split()) == 3  # five runs, one digest
    assert line.startswith("digests 5 ")


def test_what_is_known_of_pytest_trio_is_so() -> None:
    """Else the order of fixtures would be that of addresses again, and nobody would notice."""
    fixture = pytest_trio.plugin.TrioFixture("<fixture 'a'>", None, {})
    assert isinstance(fixture.user_done_events, set)
    assert fixture._pytest_kwargs == {}
    assert fixture.name == "<fixture 'a'>"
    assert type(fixture.register_and_collect_dependencies()) is set


def test_a_test_that_exits_fails_by_the_nodes_name() -> None:
    async def leaves() -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(trio.sleep_forever)
            raise SystemExit(0)

    async def interrupted() -> None:
        raise KeyboardInterrupt

    with pytest.raises(NodeExited, match=r"node test \(incarnation 1\) exited at 0.0 s: exit code 0"):
        sim_run(seed=1)(leaves)
    with pytest.raises(KeyboardInterrupt):
        sim_run(seed=1)(interrupted)


def test_a_search_finds_a_program_that_exits() -> None:
    async def leaves(node: Node) -> None:
        raise SystemExit(0)

    def run_case(case: Case) -> str | None:
        async def main(world: World) -> None:
            world.nodes["a"].boot(leaves)
            await trio.sleep(1)

        try:
            run(main, seed=case.seed, nodes=["a"])
        except SimulationError as error:
            return str(error)
        return None

    found = find(run_case, Case, range(3), runs_max=3)
    assert found is not None
    assert found.failure == "node a (incarnation 1) exited at 0.0 s: exit code 0"
