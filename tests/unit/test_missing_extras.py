"""What is said where an extra is missing: a usage error (exit code 2) in a line that names it, before any work.

The packages of extras are made impossible to import, in processes of their own; `tests/packaging` does the same
with the wheel and real installations.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from rmq_actors.tracing.manifest import PartName
from rmq_actors.tracing.spool import TraceWriter
from tests.worlds.extras import project, third_party
from tests.worlds.trace_story import Story, run_of

pytestmark = pytest.mark.processes

#: What a process cannot import that lacks these extras.
OF_EXTRA = {extra: sorted(third_party((extra,)) - third_party(())) for extra in project()["optional-dependencies"]}


def without(missing: list[str], *arguments: str | Path) -> subprocess.CompletedProcess[str]:
    """Run `rmq-actors` where some packages cannot be imported."""
    program = f"import sys; sys.modules.update(dict.fromkeys({missing})); from rmq_actors.cli.entry import main; main()"
    return subprocess.run(
        [sys.executable, "-c", program, *map(str, arguments)], capture_output=True, text=True, timeout=60, check=False
    )


def test_what_the_extras_bring() -> None:
    assert OF_EXTRA["spark"] == ["py4j", "pyarrow", "pyspark"]
    assert OF_EXTRA["cli"] == ["rich", "typer"]


def test_no_command_without_cli() -> None:
    ended = without(OF_EXTRA["cli"], "--help")
    assert (ended.returncode, ended.stdout) == (2, "")
    assert ended.stderr == "rmq-actors: the commands need the extra [cli]: pip install 'rmq-actors[cli]'\n"


@pytest.mark.parametrize("arguments", [["--help"], ["broker", "-p"], ["namesrv", "-p"]])
def test_cli_alone_is_enough(arguments: list[str]) -> None:
    ended = without([*OF_EXTRA["spark"], *OF_EXTRA["server"], *OF_EXTRA["testing"]], *arguments)
    assert (ended.returncode, ended.stderr) == (0, "")
    assert ended.stdout


def test_chaos_needs_pyarrow_for_its_traces_alone(tmp_path: Path) -> None:
    missing = [*OF_EXTRA["spark"], *OF_EXTRA["server"], *OF_EXTRA["testing"]]
    ended = without(missing, "chaos", "run", "--seeds", "0", "--out", tmp_path / "out")
    assert (ended.returncode, ended.stdout) == (2, "")
    assert "pip install 'rmq-actors[trace]'" in " ".join(ended.stderr.replace("│", "").split())
    assert not (tmp_path / "out").exists()
    assert without(missing, "chaos", "run", "--seeds", "0").returncode == 0


def test_recover_needs_pyarrow_alone(tmp_path: Path) -> None:
    writer = TraceWriter(tmp_path, "tests", "handmade")
    writer.write_run(run_of(0), Story().at(0, "", "run.start").events, outcome="passed")
    writer.close()
    assert PartName("tests", "handmade", 0, 0).events(tmp_path).exists()
    ended = without(["pyspark", "py4j"], "trace", "recover", tmp_path)
    assert (ended.returncode, ended.stderr) == (0, "")
    assert ended.stdout == f"{tmp_path}: nothing was left over\n"

    ended = without(OF_EXTRA["spark"], "trace", "recover", tmp_path)
    assert ended.returncode == 2
    assert "pip install 'rmq-actors[trace]'" in ended.stderr


@pytest.mark.parametrize("command", ["report", "analyze"])
def test_the_analysis_needs_spark(command: str, tmp_path: Path) -> None:
    ended = without(["pyspark", "py4j"], "trace", command, "--traces", tmp_path, "--out", tmp_path)
    assert ended.returncode == 2
    assert "pip install 'rmq-actors[spark]'" in ended.stderr


def test_the_demo_needs_spark(tmp_path: Path) -> None:
    ended = without(["pyspark", "py4j"], "demo", "--out", tmp_path / "out")
    assert ended.returncode == 2
    assert "pip install 'rmq-actors[spark]'" in ended.stderr
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("setting", "key"),
    [
        ("aclEnable=true", "aclEnable"),
        ("fetchNamesrvAddrByAddressServer=true", "fetchNamesrv"),
        ("enablePropertyFilter=true", "enablePropertyFilter"),
        ("metricsPromExporterPort=0", "metricsPromExporterPort"),
    ],
)
def test_a_broker_needs_server_for_what_its_settings_ask(setting: str, key: str, tmp_path: Path) -> None:
    conf = tmp_path / "broker.conf"
    conf.write_text(f"storePathRootDir={tmp_path / 'store'}\nlistenPort=0\nhaListenPort=0\n{setting}\n")
    ended = without(OF_EXTRA["server"], "broker", "-c", conf)
    assert ended.returncode == 2, ended.stdout + ended.stderr
    assert key in ended.stdout
    assert "pip install 'rmq-actors[server]'" in ended.stdout
