"""What `rmq-actors chaos` does: the commands themselves, and their help, are in `chaos`, which imports little."""

from __future__ import annotations

import importlib
import json
import logging
import sys
from collections import Counter
from collections.abc import Collection
from pathlib import Path

import typer
from rich.console import Console
from rich.table import Table

from rmq_actors.cli import interrupts
from rmq_actors.cli.entry import EXIT_CODE
from rmq_actors.cli.exit_codes import ExitCode
from rmq_actors.cli.failures import Failures, replay_command
from rmq_actors.cli.out_directory import make_directory, make_room
from rmq_actors.cli.progress import ProgressLines, progress_bar
from rmq_actors.settings.field_types import on_one_line
from rmq_actors.testing.campaign import Campaign, CampaignFailed, RunSummary, run_campaign
from rmq_actors.testing.case_file import CaseFile, IllegalCaseFile
from rmq_actors.testing.mistakes import MISTAKES, own_place, what
from rmq_actors.testing.planted_bugs import PLANTED_BUGS
from rmq_actors.testing.scenario import Scenario
from rmq_actors.testing.scenario_checks import BadScenario
from rmq_actors.testing.scenarios import SCENARIOS, Outcome, RunResult, run_case
from rmq_actors.tracing.event import COLUMNS, RUN_COLUMNS, Event

EXIT_OF_OUTCOME: dict[Outcome, ExitCode] = {
    "passed": ExitCode.OK,
    "invariant": ExitCode.CHECK_FAILED,
    "crash": ExitCode.CRASH,
    "liveness": ExitCode.LIVENESS,
}

#: As many bits as a run_id has.
_SEED_MAX = 2**63 - 1


def parse_seeds(text: str) -> range:
    """Turn "A:B" into the seeds A to B - 1, "A" into that one. Raises `typer.BadParameter`."""
    first, colon, end = text.partition(":")
    try:
        seeds = range(int(first), int(end) if colon else int(first) + 1)
    except ValueError as error:
        raise typer.BadParameter(f"{text!r} is neither a number nor A:B") from error
    if not seeds or seeds[0] < 0:
        raise typer.BadParameter(f"{text!r} names no seed: A:B is A, A+1, ..., B-1, from 0 on")
    if seeds[-1] > _SEED_MAX:
        raise typer.BadParameter(f"{text!r} goes past the last seed, {_SEED_MAX}")
    return seeds


def campaign_of(
    seeds: str, scenario: str, *, jobs: int, out: Path | None, planted_bug: str | None, force: bool
) -> Campaign:
    """The campaign that the command line asks for; everything that it names exists. Raises `typer.BadParameter`."""
    campaign = Campaign(parse_seeds(seeds), _scenario(scenario), jobs=jobs, out=out, planted_bug=planted_bug)
    return _campaign(campaign, force=force)


def run(campaign: Campaign, scenario: str, *, digest: bool, as_json: bool) -> None:
    """Run it and report; `scenario` is its name on the command line. Raises `typer.Exit` if a run failed."""
    chosen = campaign.seeds
    # The trace has what brokers log about their peers' deaths.
    logging.getLogger("rmq_actors").setLevel(logging.CRITICAL)
    stderr = Console(stderr=True)
    failures = Failures(campaign, scenario)
    with interrupts.held_back() as stopped, progress_bar(stderr) as progress:
        task = progress.add_task(f"chaos: {scenario}", total=len(chosen))
        lines = ProgressLines(stderr, f"chaos: {scenario}", len(chosen))

        def show(summary: RunSummary) -> None:
            progress.advance(task)
            lines.advance()
            if digest:
                typer.echo(f"{summary.seed} {summary.digest} {summary.events}")
            elif as_json:
                typer.echo(json.dumps(_summary_to_json(summary)))
            for line in failures.lines(summary):
                stderr.print(line, markup=False, highlight=False, soft_wrap=True)

        try:
            summaries = run_campaign(campaign, show, stopped)
        except (BadScenario, CampaignFailed) as error:
            stderr.print(f"rmq-actors chaos run: {error}", markup=False, highlight=False, soft_wrap=True)
            bad = isinstance(error, BadScenario)
            raise typer.Exit(ExitCode.BAD_INPUT if bad else ExitCode.CRASH) from error
    if not digest and not as_json:
        _print_summary(summaries, campaign.scenario)
    for line in failures.summary_lines:
        stderr.print(line, markup=False, highlight=False, soft_wrap=True)
    if stopped():
        stderr.print(f"rmq-actors chaos run: interrupted after {len(summaries)} of {len(chosen)} runs", markup=False)
        raise typer.Exit(EXIT_CODE)
    if failures.first is not None:
        raise typer.Exit(EXIT_OF_OUTCOME[failures.first.outcome])


def _summary_to_json(summary: RunSummary) -> dict[str, object]:
    return {
        "seed": summary.seed,
        "outcome": summary.outcome,
        "failure": summary.failure,
        "digest": summary.digest,
        "events": summary.events,
        "virtual_s": summary.virtual_s,
        "acked": summary.acked,
        "checks": summary.checks,
        "fired": sorted(summary.fired),
        "under_load": sorted(summary.under_load),
        "observed": sorted(summary.observed),
        "case": None if summary.case_path is None else str(summary.case_path),
    }


def _print_summary(runs: list[RunSummary], scenario: Scenario) -> None:
    console = Console()
    table = Table("what", "runs", box=None, header_style="bold")
    for outcome, count in sorted(Counter(run.outcome for run in runs).items()):
        table.add_row(f"ended {outcome}", str(count))
    for combination, count in sorted(Counter(run.combination for run in runs).items()):
        table.add_row(", ".join(combination), str(count))
    console.print(table)
    fired = Counter(kind for run in runs for kind in run.fired)
    under_load = Counter(kind for run in runs for kind in run.under_load)
    table = Table("fault", "made in runs", "of these under load", box=None, header_style="bold")
    for kind, count in sorted(fired.items()):
        table.add_row(kind, str(count), str(under_load[kind]))
    console.print(table)
    observed = Counter(kind for run in runs for kind in run.observed)
    table = Table("what the brokers met", "runs", box=None, header_style="bold")
    for kind in scenario.observable:
        table.add_row(kind, str(observed[kind]))
    console.print(table)
    acked, checks = sum(run.acked for run in runs), sum(run.checks for run in runs)
    console.print(
        f"{acked} puts acknowledged, {checks} checks of invariants, {sum(run.virtual_s for run in runs):.0f} virtual s"
    )


def _campaign(campaign: Campaign, *, force: bool) -> Campaign:
    """A checked `campaign`, with a directory that is ready for its runs. Raises `typer.BadParameter`."""
    if campaign.planted_bug is not None:
        _known(campaign.planted_bug, PLANTED_BUGS, "planted bug")
    if campaign.out is not None:
        _check_traces_can_be_written()
        make_directory(campaign.out)
        make_room(campaign.out, campaign.name, campaign.scenario.name, force=force)
    return campaign


def _scenario(text: str) -> Scenario:
    """The scenario of the command line: one of this project's, or one that a module has. Raises `typer.Exit`."""
    module, colon, name = text.partition(":")
    if not colon:
        _known(text, SCENARIOS, "scenario")
        return SCENARIOS[text]
    if str(Path.cwd()) not in sys.path:
        sys.path.insert(0, str(Path.cwd()))
    try:
        value = getattr(importlib.import_module(module), name)
    except MISTAKES as error:
        place = own_place(error)
        why = what(error) + (f" ({place})" if place else "")
        raise _refused(f"--scenario {text!r} cannot be imported: {why}") from error
    if not isinstance(value, Scenario):
        raise _refused(f"--scenario {text!r} is {_kind_of(value)}, not a Scenario")
    return value


def _kind_of(value: object) -> str:
    """Which kind of thing a value is, with its article."""
    kind = "class" if isinstance(value, type) else type(value).__name__
    return f"{'an' if kind[0] in 'aeiouAEIOU' else 'a'} {kind}"


def _refused(why: str) -> typer.Exit:
    typer.echo(f"rmq-actors chaos: {why}", err=True)
    return typer.Exit(ExitCode.BAD_INPUT)


def _check_traces_can_be_written() -> None:
    try:
        import rmq_actors.tracing.spool  # noqa: F401
    except ModuleNotFoundError as error:
        missing = f"traces need the extra [trace]: pip install 'rmq-actors[trace]' ({error})"
        raise typer.BadParameter(missing, param_hint="--out") from error


def _known(name: str, names: Collection[str], what: str) -> None:
    if name not in names:
        raise typer.BadParameter(f"no {what} is called {name!r}; there are: {', '.join(names)}")


def replay(case: Path, scenario: str | None, *, as_json: bool, last: int) -> None:
    """Run one case again and print its last events. Raises `typer.Exit` with the exit code of the run."""
    case_file, chosen = load_case(case, scenario)
    logging.getLogger("rmq_actors").setLevel(logging.CRITICAL)
    result = run_case(case_file.case, chosen)
    for event in result.events[-last:]:
        typer.echo(json.dumps(_event_to_json(event)) if as_json else _event_row(event))
    typer.echo(f"{result.outcome}: {result.failure or 'every invariant held'}", err=as_json)
    typer.echo(f"digest {result.digest}, {len(result.events)} events, {result.virtual_s:.3f} virtual s", err=as_json)
    if case_file.outcome and case_file.outcome != result.outcome:
        typer.echo(
            f"when the case was written, it ended differently: {case_file.outcome}: {case_file.failure}", err=True
        )
    raise typer.Exit(EXIT_OF_OUTCOME[result.outcome])


def load_case(path: Path, scenario: str | None) -> tuple[CaseFile, Scenario]:
    """A case, and its scenario: MODULE:NAME, or by the name that the file has. Raises `typer.Exit`, `BadParameter`."""
    own = None if scenario is None else _scenario(scenario)
    scenarios = SCENARIOS if own is None else {own.name: own}
    try:
        case_file = CaseFile.load(path, scenarios)
    except (IllegalCaseFile, OSError) as error:
        typer.echo(f"rmq-actors chaos: {error}", err=True)
        raise typer.Exit(ExitCode.BAD_INPUT) from error
    return case_file, scenarios[case_file.scenario]


def _event_to_json(event: Event) -> dict[str, object]:
    columns = {column.name: getattr(event, column.name) for column in COLUMNS if column.name not in RUN_COLUMNS}
    return {name: value for name, value in columns.items() if value is not None}


def _event_row(event: Event) -> str:
    facts = [
        f"{name}={value}"
        for name in ("status", "conn_id", "offset", "size", "msg_id", "fault_id")
        if (value := getattr(event, name)) is not None
    ]
    facts += [f"{name}={value}" for name, value in (event.attrs or {}).items()]
    # A topic may be any text that a peer has sent.
    return on_one_line(f"{(event.sim_time_ns or 0) / 1e9:>10.6f} s  {event.node:<8} {event.kind:<20} {' '.join(facts)}")


def list_(*, as_json: bool) -> None:
    """Print the scenarios, and the bugs that can be planted."""
    rows = [("scenario", scenario.name, scenario.description) for scenario in SCENARIOS.values()]
    rows += [("planted bug", bug.name, bug.description) for bug in PLANTED_BUGS.values()]
    if as_json:
        for what, name, meaning in rows:
            typer.echo(json.dumps({"what": what, "name": name, "meaning": meaning}))
        return
    table = Table("what", "name", "meaning", box=None, header_style="bold")
    for row in rows:
        table.add_row(*row)
    Console().print(table)


def print_failure(console: Console, result: RunResult, path: Path, scenario: str | None = None) -> None:
    """What is printed about a failing run: why, its schedule, and the command; `scenario`: see `replay_command`."""
    console.print(f"{result.outcome}: {result.failure}", markup=False, soft_wrap=True)
    for number, fault in enumerate(result.case.schedule.faults):
        console.print(f"  fault {number}: {fault}", markup=False, soft_wrap=True)
    console.print(f"replay: {replay_command(path, scenario)}", markup=False, soft_wrap=True)
