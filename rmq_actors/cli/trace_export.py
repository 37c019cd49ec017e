"""What `rmq-actors trace export` writes, and where."""

from __future__ import annotations

import contextlib
import enum
import os
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import typer
from rich.console import Console

from rmq_actors.cli import interrupts
from rmq_actors.cli.progress import progress_bar
from rmq_actors.tracing.export.causes import CONNECTION_KINDS, Causes, Row, addresses_of
from rmq_actors.tracing.export.perfetto import perfetto_lines
from rmq_actors.tracing.export.shiviz import shiviz_lines


class ExportFormat(enum.StrEnum):
    """The programs that a run can be written for."""

    SHIVIZ = "shiviz"
    PERFETTO = "perfetto"


_PROGRESS_EVENTS = 1_000


class EventsMissing(OSError):
    """A run has fewer events in its part than the runs table says: clocks and spans made of the rest would be wrong."""


def write_export(traces: Path, run_id: int, out_format: ExportFormat, out: Path | None) -> None:
    """Write a run to a file, or to standard output. Nothing is written of a run that is not all there.

    The file is there when it is whole; one of that name is replaced. Raises `NoSuchRun`, `EventsMissing`, `OSError`.
    """
    from rmq_actors.tracing.read_traces import NoSuchRun, count_events, stored_events, stored_runs

    run = next((each.row for each in stored_runs(traces) if each.row["run_id"] == run_id), None)
    if run is None:
        listed = f"`rmq-actors trace show --traces {traces}` lists those there are"
        raise NoSuchRun(f"{traces} holds no run {run_id}: {listed}")
    total = run["event_count"]
    with _counting(total, shows=out is not None) as counted, _output(out) as write:
        if (count := count_events(traces, run_id)) != total:
            raise EventsMissing(f"run {run_id} has {count} events, the runs table says {total}")
        # Nodes of a real run may share an address.
        is_simulated = run["source"] == "sim"
        addresses = addresses_of(stored_events(traces, run_id, kinds=CONNECTION_KINDS)) if is_simulated else {}
        for line in _lines(run, counted(stored_events(traces, run_id)), addresses, out_format):
            write(f"{line}\n")


def _lines(
    run: Mapping[str, Any], events: Iterable[Row], addresses: dict[str, str], out_format: ExportFormat
) -> Iterator[str]:
    if out_format is ExportFormat.SHIVIZ:
        return shiviz_lines(events, Causes(addresses))
    about = {name: run[name] for name in ("run_id", "seed", "source", "outcome")}
    return perfetto_lines(events, Causes(addresses), about)


def _behind_links(out: Path) -> Path:
    """The path that a link points to, which may not be there."""
    try:
        resolved = out.resolve()
    except (OSError, RuntimeError) as error:  # Python before 3.13 raises the latter of a link to itself
        raise typer.BadParameter(f"{out} cannot be followed: {error}", param_hint="--out") from error
    if resolved.is_symlink():
        raise typer.BadParameter(f"{out} links to itself", param_hint="--out")
    return resolved


@contextlib.contextmanager
def _output(out: Path | None) -> Iterator[Callable[[str], object]]:
    if out is None:
        yield sys.stdout.write
        sys.stdout.flush()
        return
    if out.is_dir():
        raise typer.BadParameter(f"{out} is a directory", param_hint="--out")
    out = _behind_links(out)  # a link stays one
    if out.exists() and not out.is_file():
        raise typer.BadParameter(f"{out} is no file, and would be replaced by one", param_hint="--out")
    try:
        file = tempfile.NamedTemporaryFile(  # noqa: SIM115 - it is closed, then renamed
            "w", dir=out.parent, prefix=f".{out.name}.", encoding="utf-8", delete=False
        )
    except OSError as error:
        raise typer.BadParameter(f"{out} cannot be written: {error.strerror}", param_hint="--out") from error
    try:
        with file:
            yield file.write
        # As a program that opens the file itself would leave it; temporary files are for their owner alone.
        mask = os.umask(0)
        os.umask(mask)
        Path(file.name).chmod(0o666 & ~mask)
        Path(file.name).replace(out)
    except BaseException:
        Path(file.name).unlink()
        raise


@contextlib.contextmanager
def _counting(total: int, *, shows: bool) -> Iterator[Callable[[Iterable[Row]], Iterator[Row]]]:
    """What counts events, with a bar on standard error. An interrupt tells how far it was."""
    done = 0

    def interrupted() -> str:
        return f"rmq-actors trace export: interrupted after {done} of {total} events"

    with interrupts.exits_with_130(interrupted), progress_bar(Console(stderr=True)) as bar:
        task = bar.add_task("events", total=total, visible=shows)

        def counted(events: Iterable[Row]) -> Iterator[Row]:
            nonlocal done
            for event in events:
                yield event
                done += 1
                if not done % _PROGRESS_EVENTS:
                    bar.update(task, completed=done)
            bar.update(task, completed=done)

        yield counted
