"""The wheel, as a user gets it: built once, and installed with each extra alone, outside of the checkout.

Each installation is a virtual environment of its own, and what runs in it has an empty home. pip needs its registry,
and is configured by the environment and the user's own files, as for `make`. The tests of an installation share it.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import attrs
import pytest

from tests.worlds.example_outputs import EXAMPLES, EXPECTED, SPARK_EXPECTED
from tests.worlds.extras import PROJECT, project, promised

#: A registry may be slow: pip's own time-outs, and their repetitions, come first.
PIP_TIMEOUT_S = 900
COMMAND_TIMEOUT_S = 180

pytestmark = [pytest.mark.processes, pytest.mark.timeout(2 * PIP_TIMEOUT_S)]

EXTRAS = frozenset(project()["optional-dependencies"])
INSTALLED = [(), ("cli",), ("testing",)]
#: pyarrow and pyspark take long to install. Their commands need `cli` too, as the pages say. What [server] brings,
#: tests/architecture/test_extras.py sees as well.
LARGE = [("server",), ("trace",), ("spark",), ("cli", "trace"), ("cli", "spark"), tuple(sorted(EXTRAS))]

IMPORT_ALL = """
import importlib, sys, traceback
failed = []
for module in sys.argv[1:]:
    try:
        importlib.import_module(module)
    except BaseException:
        failed.append(module)
        traceback.print_exc()
sys.exit(f"not imported: {failed}" if failed else 0)
"""
ALL_HELP = """
import sys
import typer.main
from typer.testing import CliRunner
from rmq_actors.cli.main import app

def commands(command, words):
    yield words
    for name, child in getattr(command, "commands", {}).items():
        yield from commands(child, [*words, name])

for words in commands(typer.main.get_command(app), []):
    ended = CliRunner().invoke(app, [*words, "--help"])
    if ended.exit_code or "Usage: " not in ended.stdout:
        sys.exit(f"{words}: {ended.exit_code}\\n{ended.output}")
    print(" ".join(words))
"""


@attrs.frozen
class Installation:
    """A virtual environment with the wheel, and an empty directory that is both the home and where commands run."""

    directory: Path
    home: Path

    def run(self, command: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run a program of the installation: `python`, or what the wheel brings."""
        binaries = self.directory / "bin"
        environment = {"HOME": str(self.home), "LANG": "C.UTF-8", "PATH": f"{binaries}:{os.environ['PATH']}"}
        return subprocess.run(
            [binaries / command, *arguments],
            cwd=self.home,
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=COMMAND_TIMEOUT_S,
            check=False,
        )


Install = Callable[..., Installation]


def pip(*arguments: str | Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "pip", *arguments], capture_output=True, text=True, timeout=PIP_TIMEOUT_S, check=False
    )
    assert done.returncode == 0, f"pip {' '.join(map(str, arguments))}\n{done.stdout}{done.stderr}"


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("wheel")
    pip("wheel", "--quiet", "--no-deps", "--wheel-dir", directory, PROJECT)
    (built,) = directory.iterdir()
    return built


@pytest.fixture(scope="module")
def install(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Install]:
    made: dict[tuple[str, ...], Installation] = {}

    def install(*extras: str) -> Installation:
        if extras not in made:
            root = tmp_path_factory.mktemp("-".join(("installed", *extras)))
            installation = Installation(root / "venv", root / "home")
            installation.home.mkdir()
            subprocess.run([sys.executable, "-m", "venv", "--without-pip", installation.directory], check=True)
            python = installation.directory / "bin" / "python"
            wanted = f"{wheel}[{','.join(extras)}]" if extras else str(wheel)
            pip("--python", python, "install", "--quiet", "--no-compile", wanted)
            made[extras] = installation
        return made[extras]

    yield install
    for extras in made.keys() & {*LARGE}:  # gigabytes, which pytest would keep for three runs
        shutil.rmtree(made[extras].directory)


def name_of(extras: tuple[str, ...]) -> str:
    return ",".join(extras) or "bare"


def parameters(large: list[tuple[str, ...]]) -> list[object]:
    return [*INSTALLED, *(pytest.param(extras, marks=pytest.mark.long) for extras in large)]


@pytest.mark.parametrize("extras", parameters(LARGE), ids=name_of)
def test_what_an_extra_promises_is_imported(extras: tuple[str, ...], install: Install) -> None:
    done = install(*extras).run("python", "-W", "error", "-c", IMPORT_ALL, *promised(extras))
    assert done.returncode == 0, done.stderr


def test_every_extra_is_installed_alone() -> None:
    assert {extras[0] for extras in (*INSTALLED, *LARGE) if len(extras) == 1} == EXTRAS


def test_what_the_pages_install_is_tested() -> None:
    pages = [PROJECT / "README.md", *(PROJECT / "docs").glob("*.md"), *EXAMPLES.glob("*.py")]
    lines = {line for page in pages for line in re.findall(r"pip install '?(rmq-actors[^'\s,]*)", page.read_text())}
    installed = {tuple(sorted(re.findall(r"[a-z]+", line.partition("[")[2]))) for line in lines}
    assert installed <= {*INSTALLED, *LARGE}, lines
    assert {(), ("cli",)} <= installed


def test_without_the_extra_of_commands(install: Install) -> None:
    ended = install().run("rmq-actors", "--help")
    assert (ended.returncode, ended.stdout) == (2, "")
    assert ended.stderr == "rmq-actors: the commands need the extra [cli]: pip install 'rmq-actors[cli]'\n"


def test_every_command_has_its_help(install: Install) -> None:
    ended = install("cli").run("rmq-actors", "--help")
    assert (ended.returncode, ended.stderr) == (0, "")
    helped = install("cli").run("python", "-W", "error", "-c", ALL_HELP)
    assert helped.returncode == 0, helped.stderr
    assert {"namesrv", "broker-admin status", "chaos run", "trace recover"} <= {*helped.stdout.splitlines()}


def test_commands_without_more_extras(install: Install) -> None:
    cli = install("cli")
    assert "listenPort=9876" in cli.run("rmq-actors", "namesrv", "-p").stdout
    assert "brokerRole=ASYNC_MASTER" in cli.run("rmq-actors", "broker", "-p").stdout
    assert cli.run("rmq-actors", "chaos", "run", "--seeds", "0:2").returncode == 0
    for arguments in (["chaos", "run", "--seeds", "0", "--out", "out"], ["trace", "recover", "out"]):
        ended = cli.run("rmq-actors", *arguments)
        assert (ended.returncode, ended.stdout) == (2, "")
        assert "pip install 'rmq-actors[trace]'" in " ".join(ended.stderr.replace("│", "").split())
    assert [*cli.home.iterdir()] == []


@pytest.mark.long
def test_traces_without_spark(install: Install) -> None:
    traced = install("cli", "trace")
    ended = traced.run("rmq-actors", "chaos", "run", "--seeds", "0:2", "--out", "out")
    assert ended.returncode == 0, ended.stderr
    ended = traced.run("rmq-actors", "trace", "recover", "out/traces")
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "out/traces: nothing was left over\n", "")


WITH_PLUGINS = """
import pytest
from rmq_actors import Message, PutStatus

async def use(cluster):
    result = await cluster.aput(Message("Orders", b"one"))
    assert result.status is PutStatus.PUT_OK
    assert [message.body for message in cluster.messages("slave-1")] == [b"one"]

def test_plain(rmq_cluster, rmq_store):
    assert rmq_cluster.put(Message("Orders", b"one")).status is PutStatus.PUT_OK
    assert rmq_store.put(Message("Orders", b"one")).status is PutStatus.PUT_OK

@pytest.mark.trio
async def test_pytest_trio(rmq_cluster):
    await use(rmq_cluster)

@pytest.mark.asyncio
async def test_pytest_asyncio(rmq_cluster):
    await use(rmq_cluster)

@pytest.mark.anyio
@pytest.mark.parametrize("anyio_backend", ["asyncio", "trio"])
async def test_anyio(anyio_backend, rmq_cluster):
    await use(rmq_cluster)

def test_world(sim_world):
    async def main(world):
        assert world.seed < 4
    sim_world.run(main)
"""


def test_fixtures_of_the_pytest_plugin_beside_those_for_async_tests(install: Install) -> None:
    testing = install("testing")
    pip("--python", testing.directory / "bin" / "python", "install", "--quiet", "anyio", "pytest-asyncio")
    (testing.home / "test_service.py").write_text(WITH_PLUGINS)
    # What pytest-asyncio 1.x wants to be told, with warnings that are errors.
    scope = ("-o", "asyncio_default_fixture_loop_scope=function")
    ended = testing.run("python", "-m", "pytest", "-W", "error", *scope, "--sim-seeds", "4", "test_service.py")
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert "9 passed" in ended.stdout
    # Every pytest of the environment loads the plugin, and nothing else of the project.
    loaded = "print('loaded', *sorted(name for name in sys.modules if name.startswith(('rmq_actors', 'sim_net'))))"
    ended = testing.run("python", "-c", f"import pytest, sys; pytest.main(['--markers']); {loaded}")
    names = "rmq_actors rmq_actors.lazy_names rmq_actors.testing rmq_actors.testing.pytest_plugin"
    assert ended.stdout.splitlines()[-1] == f"loaded {names}"


#: A test of a service in ten lines, as docs/testing.md shows it.
TEN_LINES = """
import pytest
from rmq_actors import Message, open_producer

async def publish_order(name_servers, order):  # the service
    async with open_producer(name_servers, "order-service") as producer:
        await producer.send(Message("Orders", order))

@pytest.mark.trio
async def test_an_order_is_published(rmq_cluster):
    await publish_order(rmq_cluster.name_server_address, b"one")
    assert [message.body for message in rmq_cluster.messages("slave-1")] == [b"one"]
"""


def _without_blank_lines(text: str) -> str:
    return "\n".join(filter(None, text.splitlines()))


def test_ten_lines_test_a_service_with_the_wheel_and_pytest_alone(
    wheel: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    root = tmp_path_factory.mktemp("fixture")
    bare = Installation(root / "venv", root / "home")
    bare.home.mkdir()
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", bare.directory], check=True)
    python = bare.directory / "bin" / "python"
    pip("--python", python, "install", "--quiet", "--no-compile", str(wheel), "pytest", "pytest-trio")
    assert _without_blank_lines(TEN_LINES) in _without_blank_lines((PROJECT / "docs" / "testing.md").read_text())
    (bare.home / "test_service.py").write_text(TEN_LINES)
    ended = bare.run("python", "-m", "pytest", "-W", "error", "--durations=1", "--durations-min=0", "test_service.py")
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert "1 passed" in ended.stdout
    missing = bare.run("python", "-c", "import hypothesis")
    assert "No module named 'hypothesis'" in missing.stderr


@pytest.mark.parametrize(
    "name", [*EXPECTED, "simulated_chat", *(pytest.param(name, marks=pytest.mark.long) for name in SPARK_EXPECTED)]
)
def test_an_example_runs_with_what_its_head_installs(name: str, install: Install) -> None:
    head = (EXAMPLES / f"{name}.py").read_text()
    command = rf"^Run it: pip install '?rmq-actors(?:\[([a-z,]+)\])?'?, then python examples/{name}\.py"
    told = re.search(command, head, re.MULTILINE)
    assert told is not None, head
    installation = install(*(told[1].split(",") if told[1] else ()))
    examples = installation.directory / "examples"
    if not examples.exists():
        shutil.copytree(EXAMPLES, examples)
    ended = installation.run("python", "-W", "error", str(examples / f"{name}.py"))
    # The chat server has a bug, which is found.
    printed = EXPECTED | SPARK_EXPECTED
    assert ended.returncode == (0 if name in printed else 1), ended.stderr
    assert re.search(printed.get(name, r"^run \d+ fails, with \d faults"), ended.stdout), ended.stdout


def test_tests_of_users_run_with_the_extra_of_tests(install: Install) -> None:
    """The page's own tests of a cluster, and a strategy for faults."""
    text = (PROJECT / "docs/embedding.md").read_text()
    blocks = re.findall(r"^```python\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
    tests = [block for block in blocks if re.search(r"^(async )?def test_", block, re.MULTILINE)]
    assert tests
    more = (
        "\nfrom hypothesis import given\nfrom sim_net.faults.strategies import schedules\n"
        "@given(schedules(['a', 'b']))\ndef test_a_schedule(schedule):\n    assert len(schedule.faults) < 100\n"
    )
    testing = install("testing")
    scripts = []
    for number, test in enumerate([*tests, more]):
        scripts.append(testing.directory / f"test_users_{number}.py")
        scripts[-1].write_text(test)
    # A directory of its own: at its end pytest removes those of earlier runs, which may be large.
    own = f"--basetemp={testing.directory / 'temporary'}"
    ended = testing.run("python", "-m", "pytest", "-q", "-p", "no:cacheprovider", own, *map(str, scripts))
    assert ended.returncode == 0, ended.stdout
    assert f"{len(scripts)} passed" in ended.stdout


@pytest.mark.long
def test_the_analysis_runs_from_the_wheel(install: Install) -> None:
    spark = install("cli", "spark")
    assert spark.run("rmq-actors", "chaos", "run", "--seeds", "0:3", "--out", "out").returncode == 0
    ended = spark.run("rmq-actors", "trace", "report", "--traces", "out/traces", "--out", "out", "--master", "local[1]")
    assert ended.returncode == 0, ended.stderr
    assert (spark.home / "out" / "report.html").stat().st_size > 10_000
