"""`rmq-actors chaos`: what it prints, and how it ends."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from rmq_actors.cli.main import app
from rmq_actors.testing.planted_bugs import PLANTED_BUGS


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
    ],
)
def test_bad_input_is_exit_code_2_and_named(arguments: list[str], named: str) -> None:
    code, _, output = chaos(*arguments)
    assert code == 2
    assert named in output
