"""`rmq-actors chaos`: what it prints, and how it ends."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import attrs
import pytest
from typer.testing import CliRunner

from rmq_actors.broker.store_host import Machines
from rmq_actors.cli import chaos_mutants
from rmq_actors.cli.failures import Failures, replay_command
from rmq_actors.cli.main import app
from rmq_actors.testing.bug_hunt import signature
from rmq_actors.testing.campaign import Campaign, RunSummary
from rmq_actors.testing.case_file import CaseFile
from rmq_actors.testing.planted_bugs import PLANTED_BUGS, PlantedBug
from rmq_actors.testing.scenario import Scenario
from rmq_actors.testing.scenarios import Outcome, RunResult, random_case, run_case
from rmq_actors.tracing.earlier_traces import earlier_traces
from rmq_actors.tracing.event import RunInfo
from rmq_actors.tracing.manifest import read_manifests
from rmq_actors.tracing.spool import TraceWriter
from sim_net.search.search import Case


def chaos(*arguments: str) -> tuple[int, list[str], str]:
    result = CliRunner().invoke(app, ["chaos", *arguments])
    return result.exit_code, result.stdout.splitlines(), result.output


def test_json_is_an_object_a_run_and_agrees_with_digest() -> None:
    code, lines, _ = chaos("run", "--seeds", "0:3", "--json")
    runs = [json.loads(line) for line in lines]
    assert code == 0
    assert [(run["seed"], run["outcome"], run["case"]) for run in runs] == [(n, "passed", None) for n in range(3)]
    _, digests, _ = chaos("run", "--seeds", "0:3", "--digest")
    assert digests == [f"{run['seed']} {run['digest']} {run['events']}" for run in runs]


def test_a_failing_run_leaves_a_case_that_fails_alike(tmp_path: Path) -> None:
    code, lines, output = chaos("run", "--seeds", "0", "--planted-bug", "any_ack", "--out", str(tmp_path), "--json")
    (run,) = map(json.loads, lines)
    assert (code, run["outcome"]) == (1, "invariant")
    assert f"rmq-actors chaos replay {run['case']}" in output.replace("\n", "")
    code, _, output = chaos("replay", run["case"])
    assert code == 1
    assert run["failure"] in output
    assert run["digest"] in output


def test_a_failing_case_is_made_smaller(tmp_path: Path) -> None:
    """With the same seed, and the same invariant broken; the file is beside the case, and replays."""
    chaos("run", "--seeds", "0", "--planted-bug", "any_ack", "--out", str(tmp_path))
    (path,) = tmp_path.glob("failures/*.json")
    code, lines, output = chaos("shrink", str(path), "--runs", "40")
    assert code == 0, output
    before, small = CaseFile.load(path), CaseFile.load(path.with_suffix(".small.json"))
    faults, fewer = len(before.case.schedule.faults), len(small.case.schedule.faults)
    assert lines[0] == f"{faults} faults before, {fewer} now"
    assert fewer < faults
    assert small.case.seed == before.case.seed
    assert small.failure.partition(":")[0] == before.failure.partition(":")[0]
    assert "chaos replay" in output
    assert chaos("replay", str(path.with_suffix(".small.json")))[0] == 1


def test_the_smaller_case_goes_where_it_is_asked_for(tmp_path: Path) -> None:
    chaos("run", "--seeds", "0", "--planted-bug", "any_ack", "--out", str(tmp_path))
    (path,) = tmp_path.glob("failures/*.json")
    assert chaos("shrink", str(path), "--runs", "1", "--out", str(tmp_path / "small.json"))[0] == 0
    assert CaseFile.load(tmp_path / "small.json").scenario == "replication"
    code, _, output = chaos("shrink", str(path), "--runs", "1", "--out", str(path / "small.json"))
    assert (code, "cannot be written" in output) == (2, True)


def test_an_out_that_cannot_be_written_is_told_before_the_search(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    chaos("run", "--seeds", "0", "--planted-bug", "any_ack", "--out", str(tmp_path))
    (path,) = tmp_path.glob("failures/*.json")
    monkeypatch.setattr("rmq_actors.cli.chaos_shrink.shrink_failure", lambda *_, **__: pytest.fail("it has searched"))
    code, _, output = chaos("shrink", str(path), "--out", str(tmp_path))
    assert (code, "cannot be written" in output) == (2, True)


def test_a_crash_is_like_one_by_the_same_error() -> None:
    failure = "node north (incarnation 1) failed at 0.158 s: KeyError: 15"
    assert signature("crash", failure) == signature("crash", "store of south: KeyError: 'x'")
    assert signature("crash", failure) != signature("crash", failure.replace("KeyError", "DamagedLog"))


def test_a_case_that_passes_cannot_be_made_smaller(tmp_path: Path) -> None:
    path = tmp_path / "case.json"
    CaseFile("replication", random_case(0), "passed", "").save(path)
    code, _, output = chaos("shrink", str(path))
    assert (code, "the run passes" in output) == (2, True)


OWN_SCENARIO = """
from rmq_actors.testing import Invariant, Scenario, Topology, choices
from rmq_actors.tracing.events.store import PutEnd

class NoPuts(Invariant[PutEnd]):
    name, kinds = "no_puts", (PutEnd,)

    def check(self, event, view):
        return f"{event.node} has answered a put"

PAIR = Scenario("pair", "two", Topology("left", ["right"]), choices(puts=(5,)), invariants=(NoPuts,))
NOT_ONE = 3

def factory():
    return PAIR
"""


@pytest.fixture
def own_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A module in the current directory."""
    (tmp_path / "own_scenario_of_a_test.py").write_text(OWN_SCENARIO)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    yield "own_scenario_of_a_test"
    sys.modules.pop("own_scenario_of_a_test", None)


@pytest.mark.parametrize("jobs", ["1", "2"])
def test_a_scenario_of_ones_own(own_module: str, jobs: str) -> None:
    scenario = ["--scenario", f"{own_module}:PAIR"]
    code, lines, output = chaos("run", *scenario, "--seeds", "0:2", "--jobs", jobs, "--out", "out", "--json")
    runs = [json.loads(line) for line in lines if line.startswith("{")]
    assert (code, [run["failure"].split(" (")[0] for run in runs]) == (1, ["no_puts: left has answered a put"] * 2)
    assert f"chaos replay out/failures/pair-0.json --scenario {own_module}:PAIR" in output.replace("\n", "")
    code, _, output = chaos("replay", "out/failures/pair-0.json", *scenario)
    assert (code, runs[0]["digest"] in output) == (1, True)
    code, _, output = chaos("replay", "out/failures/pair-0.json")
    assert (code, "no scenario is called 'pair'; there are replication" in output) == (2, True)


@pytest.mark.parametrize(
    ("scenario", "named"),
    [
        ("{}:NOT_ONE", "is an int, not a Scenario"),
        ("{}:factory", "is a function, not a Scenario"),
        ("{}:NoPuts", "is a class, not a Scenario"),
        ("{}:choices", "is a function, not a Scenario"),
        ("{}:NOTHING", "cannot be imported"),
        ("no_such_module:PAIR", "cannot be imported"),
        (":PAIR", "cannot be imported"),
    ],
)
def test_what_is_no_scenario_is_exit_code_2_and_named(own_module: str, scenario: str, named: str) -> None:
    code, _, output = chaos("run", "--scenario", scenario.format(own_module), "--seeds", "0")
    assert (code, named in " ".join(output.replace("│", " ").split())) == (2, True)


@pytest.mark.parametrize("source", ["1 / 0", "def ("])
def test_a_module_that_cannot_be_imported_is_exit_code_2(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, source: str
) -> None:
    name = f"broken_{len(source)}"
    (tmp_path / f"{name}.py").write_text(source)
    monkeypatch.syspath_prepend(str(tmp_path))
    code, _, output = chaos("run", "--scenario", f"{name}:PAIR", "--seeds", "0")
    assert (code, "cannot be imported" in output) == (2, True)


def test_mutants_names_the_run_that_sees_each_bug() -> None:
    code, lines, _ = chaos("mutants", "--seeds", "0:20", "--json")
    assert code == 0
    found = [json.loads(line) for line in lines]
    assert [each["mutant"] for each in found] == list(PLANTED_BUGS)
    for each in found:
        again, (line, *_), _ = chaos("run", "--seeds", str(each["seed"]), "--planted-bug", each["mutant"], "--json")
        told = json.loads(line)
        assert again == 1
        assert (told["outcome"], told["failure"]) == (each["outcome"], each["failure"])
    assert all(bug in chaos("mutants", "--seeds", "0")[2] for bug in PLANTED_BUGS)


def test_a_bug_that_no_run_sees_is_exit_code_1(monkeypatch: pytest.MonkeyPatch) -> None:
    harmless = PlantedBug("harmless", "nothing is wrong", Machines)
    monkeypatch.setitem(PLANTED_BUGS, harmless.name, harmless)
    code, lines, output = chaos("mutants", "--seeds", "0", "--json")
    assert code == 1
    assert json.loads(lines[-1])["seed"] is None
    assert "no run has seen harmless" in output


def test_a_run_that_fails_without_the_bug_too_has_not_seen_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def run(case: Case, scenario: Scenario) -> RunResult:
        result = run_case(case, scenario)
        return attrs.evolve(result, outcome="crash", failure="always") if case.seed == 0 else result

    monkeypatch.setattr(chaos_mutants, "run_case", run)
    monkeypatch.setattr(chaos_mutants, "PLANTED_BUGS", {"any_ack": PLANTED_BUGS["any_ack"]})
    code, lines, output = chaos("mutants", "--seeds", "0", "--json")
    assert (code, json.loads(lines[-1])["seed"]) == (1, None)
    assert "seed 0 fails without a planted bug too" in output
    code, lines, _ = chaos("mutants", "--seeds", "0:20", "--json")
    seen = json.loads(lines[-1])
    assert (code, seen["outcome"]) == (0, "invariant")
    assert seen["seed"] > 0


def test_list_names_every_bug() -> None:
    code, lines, _ = chaos("list", "--json")
    assert code == 0
    assert {json.loads(line)["name"] for line in lines} >= {"replication", *PLANTED_BUGS}


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["run", "--seeds", "5:5"], "5:5"),
        (["run", "--seeds", "x"], "'x'"),
        (["run", "--scenario", "nothing"], "nothing"),
        (["run", "--planted-bug", "nothing"], "nothing"),
        (["replay", "no/such/file.json"], "no/such/file.json"),
        (["shrink", "no/such/file.json"], "no/such/file.json"),
    ],
)
def test_bad_input_is_exit_code_2_and_named(arguments: list[str], named: str) -> None:
    code, _, output = chaos(*arguments)
    assert code == 2
    assert named in output


def test_a_second_campaign_is_not_written_beside_the_first(tmp_path: Path) -> None:
    """`trace report` refused both: the run of seed 0 was there twice."""
    out = ["--seeds", "0:2", "--planted-bug", "any_ack", "--out", str(tmp_path)]
    assert chaos("run", *out)[0] == 1
    foreign = [tmp_path / "failures/mine.json", tmp_path / "traces/v1/campaign=chaos/scenario=replication/mine.parquet"]
    for path in foreign:
        path.write_text("mine")
    before = read_manifests(tmp_path / "traces")
    (first, *_) = (tmp_path / "failures").glob("replication-*.json")
    code, _, output = chaos("run", *out)
    assert code == 2
    assert "holds runs of the scenario replication already" in " ".join(output.replace("│", " ").split())
    assert "--force" in output
    assert read_manifests(tmp_path / "traces") == before
    assert chaos("run", "--seeds", "5:6", "--force", "--out", str(tmp_path))[0] == 0
    assert [part.runs for part in read_manifests(tmp_path / "traces")] == [1]
    assert not first.exists()
    assert [path.read_text() for path in foreign] == ["mine", "mine"]


def test_runs_that_are_being_written_are_not_replaced(tmp_path: Path) -> None:
    writer = TraceWriter(tmp_path / "traces", "chaos", "replication")
    writer.open_run(RunInfo("chaos", "replication", 0))
    code, _, output = chaos("run", "--seeds", "0:1", "--force", "--out", str(tmp_path))
    assert code == 2
    assert "a running process writes" in " ".join(output.replace("│", " ").split())
    assert len(earlier_traces(tmp_path / "traces", "chaos", "replication")) == 1
    writer.close()


@pytest.mark.parametrize("command", [["chaos", "run", "--seeds", "0"], ["demo"]])
@pytest.mark.parametrize("out", ["/proc/x", "file", "file/below"])
def test_a_directory_that_cannot_be_written_is_named(command: list[str], out: str, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    path = tmp_path / out
    result = CliRunner().invoke(app, [*command, "--out", str(path)])
    if "Java 17 or later is needed" in result.output:
        pytest.skip(result.output)
    assert result.exit_code == 2
    assert f"{path}:" in "".join(result.output.replace("│", "").replace(" ", "").split())
    assert "Traceback" not in result.output
    assert (tmp_path / "file").read_text() == "mine"


def test_a_store_that_no_demo_made_is_not_removed(tmp_path: Path) -> None:
    (tmp_path / "store").mkdir()
    result = CliRunner().invoke(app, ["demo", "--out", str(tmp_path)])
    if "Java 17 or later is needed" in result.output:
        pytest.skip(result.output)
    assert result.exit_code == 2
    assert (tmp_path / "store").is_dir()


@pytest.mark.parametrize(
    ("word", "written"),
    [("out/a-0.json", "out/a-0.json"), ("out b/it's", "'out b/it'\"'\"'s'"), ("o\udcff/a'\n", r"$'o\xff/a\x27\x0a'")],
    ids=ascii,
)
def test_a_command_can_be_pasted_whatever_its_files_are_called(word: str, written: str) -> None:
    assert replay_command(Path(word)) == f"rmq-actors chaos replay {written}"
    read = subprocess.run(["bash", "-c", f"printf %s {written}"], capture_output=True, check=True)
    assert os.fsdecode(read.stdout) == word


def failing(seed: int, outcome: Outcome, failure: str, case_path: Path | None = None) -> RunSummary:
    none: frozenset[str] = frozenset()
    return RunSummary(seed, outcome, failure, "", 1, 1.0, 1, 1, none, none, none, ("", "", ""), case_path)


def test_failures_that_are_alike_are_told_once() -> None:
    failures = Failures(Campaign(range(9), planted_bug="any_ack"))
    told = [
        *failures.lines(failing(0, "passed", "")),
        *failures.lines(failing(1, "invariant", "synced: slave-2 reports 169, it has synced 0")),
        *failures.lines(failing(2, "crash", "boom", Path("out/failures/replication-2.json"))),
        *failures.lines(failing(3, "invariant", "synced: slave-1 reports 7, it has synced 5")),
        *failures.lines(failing(4, "invariant", "prefix: x")),
    ]
    assert told == [
        "seed 1: invariant: synced: slave-2 reports 169, it has synced 0",
        "  replay: rmq-actors chaos run --scenario replication --seeds 1 --planted-bug any_ack",
        "seed 2: crash: boom",
        "  replay: rmq-actors chaos replay out/failures/replication-2.json",
        "seed 4: invariant: prefix: x",
        "  replay: rmq-actors chaos run --scenario replication --seeds 4 --planted-bug any_ack",
    ]
    assert failures.summary_lines == [
        "failed: 2 x synced, first seed 1",
        "failed: 1 x crash, first seed 2",
        "failed: 1 x prefix, first seed 4",
    ]
    assert failures.first == failing(1, "invariant", "synced: slave-2 reports 169, it has synced 0")
