"""Ctrl-C: exit code 130, what was run, closed spools, no process left, no traceback."""

from __future__ import annotations

import re
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from rmq_actors.cli.interrupts import exits_with_130
from rmq_actors.cli.main import app
from rmq_actors.tracing.manifest import read_manifests
from tests.worlds.interrupted_command import DEADLINE_S, started

pytestmark = [pytest.mark.processes, pytest.mark.timeout(2 * DEADLINE_S)]


def spools(out: Path) -> list[Path]:
    return [*out.rglob("*.inprogress")]


@pytest.mark.parametrize("jobs", [1, 2])
def test_chaos_run(tmp_path: Path, jobs: int) -> None:
    """What it has run by then is told, traced whole, and the same as without an interrupt."""
    with started("chaos", "run", "--seeds", "0:99999", "--digest", "--jobs", jobs, "--out", tmp_path) as command:
        command.wait_for(lambda: command.stdout.count("\n"))
        ended = command.interrupt()
        assert command.left_over() == []
    lines = ended.stdout.splitlines(keepends=True)
    assert ended.code == 130
    assert ended.stderr == f"rmq-actors chaos run: interrupted after {len(lines)} of 99999 runs\n"
    assert spools(tmp_path) == []
    assert sum(part.runs for part in read_manifests(tmp_path / "traces")) == len(lines)
    seeds = [int(line.split()[0]) for line in lines]
    assert seeds == sorted(seeds)
    for seed in {seeds[0], seeds[-1]}:
        alone = CliRunner().invoke(app, ["chaos", "run", "--seeds", str(seed), "--digest"])
        assert alone.stdout in lines


def test_workers_end_after_their_command_was_killed() -> None:
    with started("chaos", "run", "--seeds", "0:99999", "--digest", "--jobs", 2) as command:
        command.wait_for(lambda: command.stdout.count("\n"))
        command.process.kill()
        command.process.wait(DEADLINE_S)
        assert command.left_over() == []


def test_a_summary_of_the_runs_that_were_made(tmp_path: Path) -> None:
    with started("chaos", "run", "--seeds", "0:99999", "--out", tmp_path) as command:
        # Its spool has a head, and then runs.
        command.wait_for(lambda: any(spool.stat().st_size > 10_000 for spool in spools(tmp_path)))
        ended = command.interrupt()
    made = re.search(r"interrupted after (\d+) of 99999 runs\n$", ended.stderr)
    assert ended.code == 130
    assert made is not None
    assert re.search(rf"^ *ended passed +{made[1]} *$", ended.stdout, re.MULTILINE)
    assert "Traceback" not in ended.stderr


def test_where_interrupts_are_ignored_they_stay_so() -> None:
    """A shell has it so for what it starts in the background."""
    with started("chaos", "run", "--seeds", "0:3", "--digest", handler="SIG_IGN") as command:
        command.wait_for(lambda: command.stdout.count("\n"))
        ended = command.interrupt()
    assert (ended.code, ended.stderr) == (0, "")
    assert len(ended.stdout.splitlines()) == 3


def test_an_interrupt_in_a_trio_program_is_no_crash() -> None:
    """broker-admin waits in a nursery: the interrupt comes out of it in a group."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        with started("broker-admin", "status", address) as command:
            silent.settimeout(DEADLINE_S)
            connection, _ = silent.accept()
            with connection:
                ended = command.interrupt()
    assert (ended.code, ended.stderr) == (130, "rmq-actors: interrupted\n")


@pytest.mark.parametrize("command_line", [("top",), ("broker-admin", "status", "--watch", "--json")])
def test_what_is_asked_again_and_again(command_line: tuple[str, ...]) -> None:
    """Between two questions, here to a broker that is not there."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"127.0.0.1:{server.getsockname()[1]}"
    with started(*command_line, address) as command:
        command.wait_for(lambda: address in command.stdout)
        ended = command.interrupt()
    assert (ended.code, ended.stderr) == (130, "rmq-actors: interrupted\n")


@pytest.mark.parametrize(
    ("found", "step"),
    [("store/master/commitlog", "1: replicate"), ("traces/v1/*/scenario=replication/.p*", "2: break")],
)
def test_demo(tmp_path: Path, found: str, step: str) -> None:
    with started("demo", "--out", tmp_path / "demo") as command:
        command.wait_for(lambda: [*(tmp_path / "demo").glob(found)])
        ended = command.interrupt()
        assert command.left_over() == []
    if "Java 17 or later is needed" in ended.stdout:
        pytest.skip(ended.stdout)
    assert ended.code == 130
    assert f"rmq-actors demo: interrupted in step {step}" in ended.stderr
    assert "Traceback" not in ended.stderr + ended.stdout
    assert spools(tmp_path) == []


#: Strikes when the n-th module is imported, whoever imports it: the command's own, Python's, a library's.
AT_THE_NTH_IMPORT = """
import signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)
left = int(sys.argv.pop(1))

def count(event, arguments):
    global left
    if event == "import":
        left -= 1
        if left == 0:
            signal.raise_signal(signal.SIGINT)

import rmq_actors.cli.entry
sys.addaudithook(count)
rmq_actors.cli.entry.main()
"""


@pytest.mark.parametrize(
    ("arguments", "number"),
    [
        *((["--help"], number) for number in (1, 3, 20, 150, 280)),
        *((["broker", "-p"], number) for number in (40, 300, 500)),
        *((["chaos", "list"], number) for number in (400, 700)),
    ],
)
def test_while_a_command_is_imported(arguments: list[str], number: int) -> None:
    ended = subprocess.run(
        [sys.executable, "-c", AT_THE_NTH_IMPORT, str(number), *arguments],
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=False,
    )
    assert (ended.returncode, ended.stderr, ended.stdout) == (130, "rmq-actors: interrupted\n", "")


def test_the_module_of_a_command_is_imported_before_an_interrupt_is_an_exception() -> None:
    """An exception might come out of a line of a library that takes it for its own."""
    program = (
        "import signal, sys; from rmq_actors.cli import entry; entry.end_at_interrupts()\n"
        "at_once, seen = signal.getsignal(signal.SIGINT), []\n"
        "note = lambda event, given: event == 'import' and given[0] == 'trio' and seen.append(signal.getsignal(2))\n"
        "sys.addaudithook(note); sys.argv[1:] = ['broker', '-p']\n"
        "try: entry.main()\n"
        "except SystemExit: print(seen == [at_once])"
    )
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert ended.stdout.splitlines()[-1] == "True"


def test_a_command_that_is_run_as_a_module_is_interrupted_as_any_other() -> None:
    """`python -m` ended it at once, with nothing tidied up: the handler was that of another module, which stayed."""
    program = (
        "import runpy, signal, sys; signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "sys.argv[1:] = ['chaos', 'list']\n"
        "try: runpy.run_module('rmq_actors.cli.entry', run_name='__main__', alter_sys=True)\n"
        "except SystemExit: print(signal.getsignal(signal.SIGINT) is signal.default_int_handler)"
    )
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert ended.stdout.splitlines()[-1] == "True"


#: Strikes in a callback of Python's own at the end of an import, once the command's function runs.
AT_THE_END_OF_AN_IMPORT = """
import signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)
command = sys.argv[1]
runs = False

def strike(frame, event, argument):
    global runs
    runs = runs or frame.f_code.co_name == command and frame.f_code.co_filename.endswith(f"cli/{command}.py")
    if runs and event == "call" and frame.f_code.co_name == "cb" and "importlib" in frame.f_code.co_filename:
        sys.setprofile(None)
        signal.raise_signal(signal.SIGINT)

from rmq_actors.cli.entry import main
sys.setprofile(strike)
main()
"""


@pytest.mark.parametrize("command", ["broker", "namesrv"])
def test_an_interrupt_of_a_server_that_starts_is_not_lost(command: str) -> None:
    """Python prints an exception in such a callback, and goes on without it."""
    ended = subprocess.run(
        [sys.executable, "-c", AT_THE_END_OF_AN_IMPORT, command, "-p"],
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=False,
    )
    assert (ended.returncode, ended.stderr, ended.stdout) == (130, "rmq-actors: interrupted\n", "")


def test_what_a_command_does_not_need_is_not_imported() -> None:
    """A broker's start would take twice as long with the simulated world and its scenarios."""
    program = (
        "import sys; from rmq_actors.cli.entry import main; sys.argv[1:] = ['broker', '-p']\n"
        "try: main()\n"
        "except SystemExit: print(*sys.modules)"
    )
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    packages = {".".join(name.split(".")[:2]) for name in ended.stdout.splitlines()[-1].split()}
    assert "rmq_actors.broker" in packages
    unneeded = {"rmq_actors.testing", "rmq_actors.analysis", "rmq_actors.client", "rmq_actors.namesrv", "sim_net"}
    unneeded |= {"pyarrow", "pyspark", "hypothesis", "rich.console"}
    assert packages.isdisjoint(unneeded)


def test_what_comes_before_the_first_line_of_a_command_is_short() -> None:
    """Until `entry.main` begins, an interrupt still ends in Python's traceback."""
    program = "import sys; before = {*sys.modules}; import rmq_actors.cli.entry; print(*{*sys.modules} - before)"
    ended = subprocess.run([sys.executable, "-S", "-c", program], capture_output=True, text=True, check=True)
    names = {*ended.stdout.split()}
    assert {"signal", "rmq_actors.cli.entry"} <= names
    assert names.isdisjoint({"typing", "re", "contextlib", "importlib", "typer", "attrs", "trio"})
    assert {name for name in names if name.startswith("rmq_actors.cli.")} == {"rmq_actors.cli.entry"}


def test_an_interrupt_in_a_group_is_one(capsys: pytest.CaptureFixture[str]) -> None:
    inner = BaseExceptionGroup("", [ValueError("x"), KeyboardInterrupt()])
    with pytest.raises(SystemExit) as ended, exits_with_130(lambda: "told"):
        raise BaseExceptionGroup("", [inner])
    assert (ended.value.code, capsys.readouterr().err) == (130, "told\n")
    with pytest.raises(ExceptionGroup), exits_with_130(lambda: "told"):
        raise ExceptionGroup("", [ValueError("x")])
