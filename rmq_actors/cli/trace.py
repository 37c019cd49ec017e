"""`rmq-actors trace`: from the traces of runs to tables and a page."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer
from rich.console import Console

from rmq_actors.cli import interrupts
from rmq_actors.cli.argument_values import RUN_ID_MAX, RUN_ID_MIN, sendable, utf8_path
from rmq_actors.cli.exit_codes import ExitCode
from rmq_actors.cli.progress import progress_bar
from rmq_actors.cli.trace_export import ExportFormat, write_export
from rmq_actors.tracing.event import RUN_COLUMNS

if TYPE_CHECKING:
    from rmq_actors.analysis.analyze import Analysis
    from rmq_actors.analysis.analyze import Progress as OnProgress

trace_app = typer.Typer(add_completion=False, no_args_is_help=True)

_TRACES = typer.Option(
    "--traces",
    metavar="URI",
    callback=sendable,
    help="The traces directory: the one that holds v1/. A path or file://.",
)
_OUT = typer.Option(
    "--out", metavar="URI", callback=sendable, help="Where tables/ goes; tables of the same name are replaced."
)
_MASTER = typer.Option("--master", metavar="M", help="The Spark master, for example local[4].")
_JSON = typer.Option("--json", help="Print JSON instead of a table.")
_DEFAULT_MASTER = "local[2]"
_SEQ_MAX = 2**63 - 1


@trace_app.callback()
def _trace() -> None:
    """Turn the traces of runs, simulated or real, into Parquet tables and a page.

    Runs leave traces below a directory: `chaos run --out OUT` in OUT/traces, `demo` in out/demo/traces. The analysis
    needs Java 17 or later and the extra `spark`; `recover` and `show` need the extra `trace` alone.
    """


@trace_app.command("analyze")
def analyze_command(
    traces: Annotated[str, _TRACES],
    out: Annotated[str, _OUT],
    master: Annotated[str, _MASTER] = _DEFAULT_MASTER,
    only: Annotated[
        list[str] | None, typer.Option("--only", metavar="T", help="Make this table only; may be given several times.")
    ] = None,
    as_json: Annotated[bool, _JSON] = False,
) -> None:
    """Run the Spark jobs: OUT/tables/<name>/ as Parquet, one directory per table.

    Tables: run_summary, replication_lag, fault_intervals, put_latency, put_latency_by_scenario, put_latency_histogram.
    Each row names the events that it rests on, as (run_id, seq).

    If files are missing, cut or not in a manifest, they are named and nothing is computed. Exit code 1: the
    traces are not what their manifests promise; 2: there are none, no Java, an unknown table.
    """
    with _named_failures("analyze"), _progress("analyze", out) as on_progress:
        from rmq_actors.analysis.analyze import analyze

        analysis = analyze(traces, out, master=master, only=only or (), progress=on_progress)
    _print_analysis(analysis, None, as_json=as_json)


@trace_app.command("report")
def report_command(
    traces: Annotated[str, _TRACES],
    out: Annotated[str, _OUT],
    demo_json: Annotated[
        Path | None,
        typer.Option(
            "--demo-json", metavar="FILE", help="What the demo knows beyond its traces. [default: OUT/demo.json]"
        ),
    ] = None,
    master: Annotated[str, _MASTER] = _DEFAULT_MASTER,
    as_json: Annotated[bool, _JSON] = False,
) -> None:
    """Run all jobs and make OUT/report.html, a page that needs no network.

    The page shows runs and their faults, replication lag over time, the latency of puts, and a table of all runs.
    A failed run is not a failure of this command. Exit codes as for `analyze`.
    """
    with _named_failures("report"), _progress("report", out) as on_progress:
        from rmq_actors.analysis.report import report

        analysis, page = report(traces, out, demo_json=demo_json, master=master, progress=on_progress)
    _print_analysis(analysis, page, as_json=as_json)


@trace_app.command("recover")
def recover_command(
    directory: Annotated[
        Path, typer.Argument(metavar="DIR", callback=utf8_path, help="The traces directory: the one that holds v1/.")
    ],
    as_json: Annotated[bool, _JSON] = False,
) -> None:
    """Turn what a crash left unfinished into Parquet.

    A process that was killed leaves spools. All their whole batches become a part like any other; the run that was cut
    is marked incomplete. A spool that is still being written is left alone. Does nothing if nothing is left over. Exit
    code 1: a spool cannot be read at all; it stays where it is.
    """
    with _named_failures("recover", extra="trace"):
        from rmq_actors.tracing.spool import recover

        recovered = recover(directory)
    rows = [
        {
            "spool": str(each.spool),
            "events": each.published.manifest.events if each.published else 0,
            "runs": each.published.manifest.runs if each.published else 0,
            "incomplete_seeds": [run.seed for run in each.published.incomplete] if each.published else [],
            "unread_bytes": each.published.unread_bytes if each.published else 0,
            "note": each.reason or "recovered",
        }
        for each in recovered
    ]
    if as_json:
        typer.echo(json.dumps(rows, indent=2))
    elif not rows:
        typer.echo(f"{directory}: nothing was left over")
    else:
        _print_table(rows)
    if any(each.is_failure for each in recovered):
        raise typer.Exit(ExitCode.CHECK_FAILED)


@trace_app.command("show")
def show_command(
    traces: Annotated[
        Path,
        typer.Option(
            "--traces", metavar="DIR", callback=utf8_path, help="The traces directory: the one that holds v1/."
        ),
    ],
    run: Annotated[
        int | None,
        typer.Option(metavar="ID", min=RUN_ID_MIN, max=RUN_ID_MAX, help="The run whose events are wanted: a run_id."),
    ] = None,
    kind: Annotated[
        list[str] | None, typer.Option("--kind", metavar="K", help="Events of this kind; may be given several times.")
    ] = None,
    node: Annotated[
        list[str] | None, typer.Option("--node", metavar="N", help="Events of this node; may be given several times.")
    ] = None,
    first: Annotated[int, typer.Option(metavar="SEQ", min=0, max=_SEQ_MAX, help="Events from this seq on.")] = 0,
    last: Annotated[int | None, typer.Option(metavar="SEQ", min=0, max=_SEQ_MAX, help="Events up to this seq.")] = None,
    as_json: Annotated[bool, _JSON] = False,
) -> None:
    """Print which runs there are, or with --run the events of one of them.

    An event's line has its seq, the run's time, the node, the kind, and all else that it tells. Tables and pages name
    the events that they rest on as (run_id, seq). With --json there is one object a line.

    Exit code 2: there are no traces, no such run, or a file is missing or cut.
    """
    if run is None and (kind or node or first or last is not None):
        raise typer.BadParameter("--kind, --node, --first and --last choose among the events of a run: give --run")
    with _named_failures("show", "trace"):
        from rmq_actors.tracing.read_traces import stored_events, stored_runs

        if run is not None:
            wanted = stored_events(traces, run, first_seq=first, last_seq=last, kinds=kind or (), nodes=node or ())
            for event in wanted:
                typer.echo(json.dumps(event) if as_json else _event_row(event))
            return
        runs = [
            {"run_id": each.row["run_id"], "campaign": each.part.campaign, "scenario": each.part.scenario}
            | {name: each.row[name] for name in ("seed", "outcome", "event_count", "fault_kinds")}
            for each in stored_runs(traces)
        ]
    if as_json:
        for each in runs:
            typer.echo(json.dumps(each))
    else:
        _print_table(runs)


def _event_row(event: Mapping[str, object]) -> str:
    shown = {name: value for name, value in event.items() if name not in {*RUN_COLUMNS, "wall_time_ns"}}
    seq, kind, node, time_ns = (shown.pop(name, "") for name in ("seq", "kind", "node", "sim_time_ns"))
    time_s = f"{time_ns / 1e9:.6f} s" if isinstance(time_ns, int) else ""
    attributes = shown.pop("attrs", None)
    facts = shown | (attributes if isinstance(attributes, dict) else {})
    words = " ".join(f"{name}={value}" for name, value in facts.items())
    return f"{seq:>7} {time_s:>14}  {node:<8} {kind:<22} {words}".rstrip()


@trace_app.command("export")
def export_command(
    traces: Annotated[
        Path,
        typer.Option(
            "--traces", metavar="DIR", callback=utf8_path, help="The traces directory: the one that holds v1/."
        ),
    ],
    run: Annotated[
        int,
        typer.Option(
            metavar="ID", min=RUN_ID_MIN, max=RUN_ID_MAX, help="The run: a run_id, as `trace show` lists them."
        ),
    ],
    out_format: Annotated[ExportFormat, typer.Option("--format", help="For which program.")],
    out: Annotated[
        Path | None,
        typer.Option(
            "--out", metavar="FILE", callback=utf8_path, help="The file to write; without it, standard output."
        ),
    ] = None,
) -> None:
    """Write a run for another program: who talked to whom, or when what happened.

    shiviz: a log with vector clocks for https://bestchai.bitbucket.io/shiviz/: upload the file there. Its first line
    is the regular expression that parses it. Arrows are there where the trace says for certain what came of what.

    perfetto: JSON in the Trace Event Format for https://ui.perfetto.dev: open the file there. Nodes are processes,
    actors threads; there are spans for puts, lives, pauses, faults and connections, and a counter of each slave's lag.

    Exit code 2: there are no traces, no such run, events of it are missing, or FILE cannot be written.
    """
    with _named_failures("export", "trace"):
        write_export(traces, run, out_format, out)


@trace_app.command("schema")
def schema_command() -> None:
    """Print the columns of a trace and the kinds of events, as Markdown: the tables of docs/trace-schema.md."""
    with _named_failures("schema"):
        from rmq_actors.analysis.schema import trace_schema_tables
    typer.echo(trace_schema_tables(), nl=False)


@contextlib.contextmanager
def _named_failures(command: str, extra: Literal["spark", "trace"] = "spark") -> Iterator[None]:
    """Say what is wrong in one line, with the exit code for it. `extra`: what the command needs."""
    try:
        with _exit_codes(extra):
            yield
    except _Failure as failure:
        typer.echo(f"rmq-actors trace {command}: {failure}", err=True)
        raise typer.Exit(failure.exit_code) from failure


class _Failure(Exception):  # it carries an exit code to the single place that exits
    def __init__(self, cause: BaseException, exit_code: ExitCode) -> None:
        notes = "".join(f"\n{note}" for note in getattr(cause, "__notes__", ()))
        super().__init__(f"{cause}{notes}")
        self.exit_code = exit_code


@contextlib.contextmanager
def _exit_codes(extra: Literal["spark", "trace"]) -> Iterator[None]:
    try:
        checks, bad_input = _failures_of_spark() if extra == "spark" else ((), _failures_of_files())
    except ModuleNotFoundError as error:
        missing = ModuleNotFoundError(f"needs the extra [{extra}]: pip install 'rmq-actors[{extra}]' ({error})")
        raise _Failure(missing, ExitCode.BAD_INPUT) from error
    try:
        yield
    except checks as error:
        raise _Failure(error, ExitCode.CHECK_FAILED) from error
    except BrokenPipeError:
        # The reader of the output has seen enough: click ends the command silently.
        raise
    except bad_input as error:
        raise _Failure(error, ExitCode.BAD_INPUT) from error


_Failures = tuple[type[Exception], ...]


def _failures_of_files() -> _Failures:
    """The errors that traces, or the input, may cause. Raises `ModuleNotFoundError` without pyarrow."""
    import rmq_actors.tracing.spool  # noqa: F401 - who writes and mends traces
    from rmq_actors.tracing.manifest import ManifestError
    from rmq_actors.tracing.read_traces import NoSuchRun

    return (ManifestError, NoSuchRun, OSError)


def _failures_of_spark() -> tuple[_Failures, _Failures]:
    """The errors of failed checks of traces, and all others. Raises `ModuleNotFoundError` without pyspark."""
    from rmq_actors.analysis.analyze import UnknownTable
    from rmq_actors.analysis.demo_facts import DemoFactsError
    from rmq_actors.analysis.session import JavaMissing, SparkNotStarted
    from rmq_actors.analysis.sources import TraceCheckFailed, TraceSourceError

    others = (UnknownTable, DemoFactsError, JavaMissing, SparkNotStarted, TraceSourceError)
    return (TraceCheckFailed,), (*others, *_failures_of_files())


@contextlib.contextmanager
def _progress(command: str, out: str) -> Iterator[OnProgress]:
    """A bar on standard error. An interrupt tells which step it was."""
    step = "looking at the traces"

    def show(what: str, done: int, total: int) -> None:
        nonlocal step
        step = f"{what} ({done} of {total})"
        bar.update(task, description=what, completed=done, total=total)

    def interrupted() -> str:
        return f"rmq-actors trace {command}: interrupted at: {step}; tables that were made before are in {out}/tables"

    with interrupts.exits_with_130(interrupted), progress_bar(Console(stderr=True)) as bar:
        task = bar.add_task(step, total=None)
        yield show


def _print_analysis(analysis: Analysis, page: Path | None, *, as_json: bool) -> None:
    rows = [{"table": name, "rows": analysis.rows[name], "path": str(path)} for name, path in analysis.tables.items()]
    if as_json:
        document: dict[str, object] = {
            "runs": analysis.runs,
            "events": analysis.events,
            "elapsed_s": round(analysis.elapsed_s, 3),
            "tables": rows,
        }
        if page is not None:
            document["page"] = str(page)
        typer.echo(json.dumps(document, indent=2))
        return
    _print_table(rows)
    typer.echo(f"{analysis.events} events of {analysis.runs} runs, {analysis.elapsed_s:.1f} s")
    if page is not None:
        typer.echo(f"page: {page}")


def _print_table(rows: Sequence[Mapping[str, object]]) -> None:
    """Columns side by side, even beyond the terminal's width, so that paths can be copied."""
    lines = [list(rows[0])]
    for row in rows:
        values = (", ".join(map(str, value)) if isinstance(value, list) else str(value) for value in row.values())
        lines.append(list(values))
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    for line in lines:
        typer.echo("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip())
