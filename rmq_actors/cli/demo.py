"""`rmq-actors demo`: replicate real data, break replication in a simulated world, analyse both in Spark."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from rmq_actors.cli import interrupts
from rmq_actors.cli.exit_codes import ExitCode
from rmq_actors.cli.out_directory import make_directory


def demo(
    out: Annotated[
        Path, typer.Option(help="Where the page, the traces and the stores go; what it holds is replaced.")
    ] = Path("out/demo"),
    runs: Annotated[int, typer.Option(min=100, help="How many chaos runs.")] = 100,
    jobs: Annotated[int, typer.Option(min=1, max=64, help="How many processes for them.")] = 2,
) -> None:
    """Replicate real data, break replication, analyse both: the whole project in a minute.

    1. Serves a commit log that RocketMQ 4.9.7 wrote to an empty slave, then puts 2,400 messages as SYNC_MASTER, and
    compares the logs. 2. Runs a master and two slaves through 100 schedules of faults in a simulated world; then finds
    a planted bug from a random start, shrinks its schedule, and prints the command that replays it. 3. Analyses the
    traces of both in Spark and writes OUT/report.html.

    Exit code 1 if a step does not show what it should, 2 if Java is missing or DIR cannot be written, 130 if it is
    interrupted.
    """
    console = Console(soft_wrap=True, highlight=False)
    try:
        from rmq_actors.analysis.session import JavaMissing, check_java
        from rmq_actors.cli import demo_steps as steps
        from rmq_actors.cli.chaos_runs import print_failure
    except ModuleNotFoundError as error:
        missing = f"needs the extra [spark]: pip install 'rmq-actors[spark]' ({error})"
        typer.echo(f"rmq-actors demo: {missing}", err=True)
        raise typer.Exit(ExitCode.BAD_INPUT) from error
    try:
        check_java()
    except JavaMissing as error:
        console.print(f"rmq-actors demo: {error}", markup=False)
        raise typer.Exit(ExitCode.BAD_INPUT) from error
    # The traces have what brokers log about their peers' deaths.
    logging.getLogger("rmq_actors").setLevel(logging.CRITICAL)
    make_directory(out)
    steps.clear(out)
    step = "1: replicate"
    with interrupts.exits_with_130(lambda: f"rmq-actors demo: interrupted in step {step}; {out} holds what was done"):
        try:
            done = steps.replicate(out, console)
            step = "2: break replication"
            summaries = steps.break_it(out, runs, jobs, console)
            caught, path = steps.find_bug(out, console)
        except steps.DemoFailed as error:
            console.print(f"rmq-actors demo: {error}", markup=False)
            raise typer.Exit(ExitCode.CHECK_FAILED) from error
        step = "3: analyse"
        (out / "demo.json").write_text(json.dumps(steps.demo_facts(done, caught, path), indent=2) + "\n")
        page = steps.analyse(out, console)
    console.print()
    steps.print_summary(console, done, summaries, caught)
    console.print()
    print_failure(console, caught.result, path)
    console.print(f"\npage: {page}", markup=False)
