"""The directory that a command writes into (`--out`), checked before anything is run."""

from __future__ import annotations

import re
import tempfile
from pathlib import Path

import typer

from rmq_actors.cli.argument_values import utf8_path


def make_directory(out: Path) -> None:
    """Make it, if need be, and see that files can be written there. Raises `typer.BadParameter` naming it."""
    try:
        utf8_path(out)
    except typer.BadParameter as error:
        raise typer.BadParameter(error.message, param_hint="--out") from error
    try:
        out.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=out):
            pass
    except OSError as error:
        raise typer.BadParameter(f"{out}: no directory to write into: {error.strerror}", param_hint="--out") from error


def make_room(out: Path, campaign: str, scenario: str, *, force: bool) -> None:
    """See that no runs of the scenario are traced there; `force` removes them, and their cases in failures/.

    Raises `typer.BadParameter` saying what else can be done.
    """
    from rmq_actors.tracing.earlier_traces import TracesInUse, earlier_traces, remove_earlier_traces

    traces, failures = out / "traces", out / "failures"
    if not earlier_traces(traces, campaign, scenario):
        return
    if not force:
        raise typer.BadParameter(
            f"{out} holds runs of the scenario {scenario} already, and no report counts a run twice: choose another "
            "directory, or replace them with --force",
            param_hint="--out",
        )
    try:
        remove_earlier_traces(traces, campaign, scenario)
    except TracesInUse as error:
        raise typer.BadParameter(f"{out}: {error}", param_hint="--out") from error
    case = re.compile(rf"{re.escape(scenario)}-\d+\.json")
    for path in failures.glob("*.json"):
        if case.fullmatch(path.name):
            path.unlink()
