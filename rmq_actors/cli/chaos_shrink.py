"""What `rmq-actors chaos shrink` does: a failing case in, a smaller one that fails alike out."""

from __future__ import annotations

import logging
from pathlib import Path

import typer
from rich.console import Console

from rmq_actors.cli import interrupts
from rmq_actors.cli.chaos_runs import load_case, print_failure
from rmq_actors.cli.entry import EXIT_CODE
from rmq_actors.cli.exit_codes import ExitCode
from rmq_actors.cli.progress import ProgressLines, progress_bar
from rmq_actors.testing.bug_hunt import shrink_failure
from rmq_actors.testing.case_file import CaseFile
from rmq_actors.testing.scenarios import RunResult, run_case
from sim_net.search.search import Case


def shrink(case: Path, scenario: str | None, *, out: Path | None, runs_max: int) -> None:
    """Write the smaller case, and print its schedule. Raises `typer.Exit`: 2 if the case passes or cannot be read.

    The file holds the smallest case so far from the beginning: whatever ends the command, that is kept.
    """
    case_file, chosen = load_case(case, scenario)
    logging.getLogger("rmq_actors").setLevel(logging.CRITICAL)
    stderr = Console(stderr=True)
    path = case.with_suffix(".small.json") if out is None else out

    def refuse(why: str) -> typer.Exit:
        stderr.print(f"rmq-actors chaos shrink: {why}", markup=False, soft_wrap=True)
        return typer.Exit(ExitCode.BAD_INPUT)

    def save(result: RunResult) -> None:
        try:
            CaseFile(chosen.name, result.case, result.outcome, result.failure).save(path)
        except OSError as error:
            raise refuse(f"{path} cannot be written: {error}") from error

    first = run_case(case_file.case, chosen)
    if first.outcome == "passed":
        raise refuse(f"{case}: the run passes: there is nothing to shrink")
    save(first)
    with interrupts.held_back() as stopped, progress_bar(stderr) as progress:
        what = f"shrinking: {first.outcome}"
        task, lines = progress.add_task(what, total=runs_max), ProgressLines(stderr, what, runs_max)

        def show(_tried: int, _best: Case) -> None:
            progress.advance(task)
            lines.advance()

        small = shrink_failure(first, chosen, runs_max=runs_max, stop=stopped, on_progress=show, on_smaller=save)
    before, now = len(first.case.schedule.faults), len(small.case.schedule.faults)
    typer.echo(f"{before} {'fault' if before == 1 else 'faults'} before, {now} now")
    print_failure(Console(), small, path, scenario)
    if stopped():
        stderr.print("rmq-actors chaos shrink: interrupted; this is the smallest case so far", markup=False)
        raise typer.Exit(EXIT_CODE)
