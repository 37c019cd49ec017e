"""`rmq-actors chaos`: runs in a simulated world, each made from one integer. What they do is in `chaos_runs`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

chaos_app = typer.Typer(
    add_completion=False,
    help="Run replication under faults, on a simulated network, disk and clock.",
    no_args_is_help=True,
)


@chaos_app.command("run")
def run(
    seeds: Annotated[str, typer.Option(help="The seeds: A:B for A to B-1, or one number.")] = "0:100",
    scenario: Annotated[
        str, typer.Option(help="Which scenario; see `chaos list`. MODULE:NAME: one of your own.")
    ] = "replication",
    jobs: Annotated[int, typer.Option(min=1, max=64, help="How many processes.")] = 1,
    out: Annotated[
        Path | None, typer.Option(help="Where traces/ and failures/ go; without it nothing is written.")
    ] = None,
    digest: Annotated[bool, typer.Option("--digest", help="Print one line per run: seed, digest, events.")] = False,
    planted_bug: Annotated[str | None, typer.Option(help="Run with this bug planted; see `chaos list`.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object per run instead of a table.")] = False,
    force: Annotated[
        bool, typer.Option("--force", help="Replace the scenario's runs that OUT holds from an earlier call.")
    ] = False,
) -> None:
    """Run a scenario once for each seed and check its invariants after every event.

    The same seed gives the same run, digest and trace, on any machine. Each failing run is written to OUT/failures.
    Failures that are alike are reported once, with the command that runs the first of them again.

    Exit code 1: an invariant broke; 2: bad usage; 3: a broker crashed; 4: no progress after the last fault; 130:
    interrupted.
    """
    from rmq_actors.cli import chaos_runs

    campaign = chaos_runs.campaign_of(seeds, scenario, jobs=jobs, out=out, planted_bug=planted_bug, force=force)
    chaos_runs.run(campaign, scenario, digest=digest, as_json=as_json)


@chaos_app.command("replay")
def replay(
    case: Annotated[Path, typer.Argument(help="A case file, as `chaos run --out` writes it to failures/.")],
    as_json: Annotated[bool, typer.Option("--json", help="Print the events as JSON, one per line.")] = False,
    last: Annotated[int, typer.Option(min=1, help="How many events to print, counted from the end.")] = 40,
    scenario: Annotated[
        str | None, typer.Option(help="MODULE:NAME of the case's scenario, if it is one of your own.")
    ] = None,
) -> None:
    """Run one case again and print its last events. The exit code is that of the run: 0, 1, 3 or 4."""
    from rmq_actors.cli import chaos_runs

    chaos_runs.replay(case, scenario, as_json=as_json, last=last)


@chaos_app.command("shrink")
def shrink(
    case: Annotated[Path, typer.Argument(help="A failing case, as `chaos run --out` writes it to failures/.")],
    out: Annotated[
        Path | None, typer.Option(help="The file of the smaller case; CASE.small.json beside it, if none is named.")
    ] = None,
    runs: Annotated[int, typer.Option(min=1, help="How many smaller cases it may try.")] = 300,
    scenario: Annotated[
        str | None, typer.Option(help="MODULE:NAME of the case's scenario, if it is one of your own.")
    ] = None,
) -> None:
    """Find a smaller case that fails alike: fewer and simpler faults, earlier, and simpler parameters; the same seed.

    The file has the smallest case so far all the while; Ctrl-C ends the search. Exit code 2: the case passes, or cannot
    be read.
    """
    from rmq_actors.cli import chaos_shrink

    chaos_shrink.shrink(case, scenario, out=out, runs_max=runs)


@chaos_app.command("mutants")
def mutants(
    seeds: Annotated[str, typer.Option(help="The seeds: A:B for A to B-1, or one number.")] = "0:100",
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object per planted bug.")] = False,
) -> None:
    """Plant each bug of `chaos list`, and run `replication` with it until a run fails that passes without it.

    Exit code 1: no run has seen a bug; 130: interrupted.
    """
    from rmq_actors.cli import chaos_mutants

    chaos_mutants.mutants(seeds, as_json=as_json)


@chaos_app.command("list")
def list_(
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object per line.")] = False,
) -> None:
    """Print the scenarios, and the bugs that can be planted."""
    from rmq_actors.cli import chaos_runs

    chaos_runs.list_(as_json=as_json)
