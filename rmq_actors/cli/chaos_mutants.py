"""What `rmq-actors chaos mutants` does: for each planted bug, the first run that sees it."""

from __future__ import annotations

import json
import logging
from functools import cache

import attrs
import typer
from rich.console import Console
from rich.table import Table

from rmq_actors.cli import interrupts
from rmq_actors.cli.chaos_runs import parse_seeds
from rmq_actors.cli.entry import EXIT_CODE
from rmq_actors.cli.exit_codes import ExitCode
from rmq_actors.cli.progress import ProgressLines, progress_bar
from rmq_actors.testing.planted_bugs import PLANTED_BUGS
from rmq_actors.testing.scenarios import REPLICATION, random_case, run_case


@attrs.frozen
class Seen:
    """What a planted bug does to the first run that fails by it; without `outcome` none has."""

    mutant: str
    meaning: str
    runs: int
    seed: int | None = None
    outcome: str = ""
    failure: str = ""


def mutants(seeds: str, *, as_json: bool) -> None:
    """Print which run sees which planted bug. Raises `typer.Exit`: 1 if none sees one."""
    chosen = parse_seeds(seeds)
    logging.getLogger("rmq_actors").setLevel(logging.CRITICAL)
    stderr, found = Console(stderr=True), list[Seen]()

    @cache  # the same for each bug, and said once
    def passes_without(seed: int) -> bool:
        passes = run_case(random_case(seed), REPLICATION).outcome == "passed"
        if not passes:
            stderr.print(f"rmq-actors chaos mutants: seed {seed} fails without a planted bug too", markup=False)
        return passes

    with interrupts.held_back() as stopped, progress_bar(stderr) as progress:
        for bug in PLANTED_BUGS.values():
            what = f"chaos mutants: {bug.name}"
            task, lines = progress.add_task(what, total=len(chosen)), ProgressLines(stderr, what, len(chosen))
            seen = Seen(bug.name, bug.description, 0)
            for seed in chosen:
                if stopped():
                    stderr.print("rmq-actors chaos mutants: interrupted", markup=False)
                    raise typer.Exit(EXIT_CODE)
                result = run_case(random_case(seed, planted_bug=bug.name), REPLICATION)
                progress.advance(task)
                lines.advance()
                seen = attrs.evolve(seen, runs=seen.runs + 1)
                if result.outcome != "passed" and passes_without(seed):
                    seen = attrs.evolve(seen, seed=seed, outcome=result.outcome, failure=result.failure)
                    break
            found.append(seen)
            if as_json:
                typer.echo(json.dumps(attrs.asdict(seen)))
    if not as_json:
        _print(found)
    missed = [seen.mutant for seen in found if seen.seed is None]
    if missed:
        stderr.print(f"rmq-actors chaos mutants: no run has seen {', '.join(missed)}", markup=False, soft_wrap=True)
        raise typer.Exit(ExitCode.CHECK_FAILED)


def _print(found: list[Seen]) -> None:
    table = Table("planted bug", "what is wrong", "seen by seed", "runs", "how it ends", box=None, header_style="bold")
    for seen in found:
        seed = "none" if seen.seed is None else str(seen.seed)
        table.add_row(seen.mutant, seen.meaning, seed, str(seen.runs), seen.failure.partition(":")[0] or seen.outcome)
    Console().print(table)
