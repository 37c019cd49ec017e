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
from rmq_actors.testing.bug_hunt import signature
from rmq_actors.testing.case_file import CaseFile
from rmq_actors.testing.scenarios import run_case
from sim_net.search.search import Case
from sim_net.search.search import shrink as shrink_case


def shrink(case: Path, scenario: str | None, *, out: Path | None, runs_max: int) -> None:
    """Write the smaller case, and print its schedule. Raises `typer.Exit`: 2 if the case passes or cannot be read."""
    case_file, chosen = load_case(case, scenario)
    logging.getLogger("rmq_actors").setLevel(logging.CRITICAL)
    stderr = Console(stderr=True)

    def failure_of(tried: Case) -> str | None:
        result = run_case(tried, chosen)
        return signature(result.outcome, result.failure) if result.outcome != "passed" else None

    wanted = failure_of(case_file.case)
    if wanted is None:
        stderr.print(f"rmq-actors chaos shrink: {case}: the run passes: there is nothing to shrink", markup=False)
        raise typer.Exit(ExitCode.BAD_INPUT)
    with interrupts.held_back() as stopped, progress_bar(stderr) as progress:
        task = progress.add_task(f"shrinking: {wanted}", total=runs_max)
        lines = ProgressLines(stderr, f"shrinking: {wanted}", runs_max)

        def show(_runs: int, _best: Case) -> None:
            progress.advance(task)
            lines.advance()

        small = shrink_case(
            case_file.case,
            lambda tried: chosen.can_run(tried) and failure_of(tried) == wanted,
            runs_max=runs_max,
            stop=stopped,
            on_progress=show,
        )
    result = run_case(small, chosen)
    path = case.with_suffix(".small.json") if out is None else out
    try:
        CaseFile(chosen.name, small, result.outcome, result.failure).save(path)
    except OSError as error:
        stderr.print(f"rmq-actors chaos shrink: {path} cannot be written: {error}", markup=False, soft_wrap=True)
        raise typer.Exit(ExitCode.BAD_INPUT) from error
    before, after = len(case_file.case.schedule.faults), len(small.schedule.faults)
    typer.echo(f"{before} faults before, {after} now")
    print_failure(Console(), result, path)
    if stopped():
        stderr.print("rmq-actors chaos shrink: interrupted; this is the smallest case so far", markup=False)
        raise typer.Exit(EXIT_CODE)
