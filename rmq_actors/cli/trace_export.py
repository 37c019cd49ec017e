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
from rmq_actors.tracing.export.causes import Causes
from rmq_actors.tracing.export.perfetto import perfetto_lines
from rmq_actors.tracing.export.shiviz import shiviz_lines


class ExportFormat(enum.StrEnum):
    """The programs that a run can be written for."""

    SHIVIZ = "shiviz"
    PERFETTO = "perfetto"


_PROGRESS_EVENTS = 1_000


class EventsMissing(OSError):
    """A run has fewer events in its part than the runs table says: clocks and spans made of the rest would be wrong."""


def write_export(
    run: Mapping[str, Any],
    events: Iterable[Mapping[str, Any]],
    addresses: dict[str, str],
    out_format: ExportFormat,
    out: Path | None,
) -> None:
    """Write a run, whose row of the runs table is `run`, to a file, or to standard output.

    The file is there when it is whole; one of that name is replaced. Raises `EventsMissing`, and `OSError`.
    """
    with _output(out) as write, _counted(run, events, shows=out is not None) as counted:
        about = {name: run[name] for name in ("run_id", "seed", "source", "outcome")}
        causes = Causes(addresses)
        is_log = out_format is ExportFormat.SHIVIZ
        for line in shiviz_lines(counted, causes) if is_log else perfetto_lines(counted, causes, about):
            write(f"{line}\n")


@contextlib.contextmanager
def _output(out: Path | None) -> Iterator[Callable[[str], object]]:
    if out is None:
        yield sys.stdout.write
        sys.stdout.flush()
        return
    if out.is_dir():
        raise typer.BadParameter(f"{out} is a directory", param_hint="--out")
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
def _counted(
    run: Mapping[str, Any], events: Iterable[Mapping[str, Any]], *, shows: bool
) -> Iterator[Iterator[Mapping[str, Any]]]:
    """The events, with a bar on standard error. An interrupt tells how far it was."""
    total, done = run["event_count"], 0

    def interrupted() -> str:
        return f"rmq-actors trace export: interrupted after {done} of {total} events"

    with interrupts.exits_with_130(interrupted), progress_bar(Console(stderr=True)) as bar:
        task = bar.add_task("events", total=total, visible=shows)

        def counted() -> Iterator[Mapping[str, Any]]:
            nonlocal done
            for event in events:
                yield event
                done += 1
                if not done % _PROGRESS_EVENTS:
                    bar.update(task, completed=done)
            bar.update(task, completed=done)
            if done != total:
                raise EventsMissing(f"run {run['run_id']} has {done} events, the runs table says {total}")

        yield counted()
