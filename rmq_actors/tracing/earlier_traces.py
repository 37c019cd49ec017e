"""What an earlier campaign has left in a traces directory: the same seeds, traced beside it, would count twice."""

from __future__ import annotations

import fcntl
import re
from pathlib import Path

from rmq_actors.tracing.manifest import PartName

#: What writers make, and nothing that somebody else may have put beside it.
_OWN_FILE = re.compile(
    r"part-\d+-\d+\.parquet|\.part-\d+-\d+\.(parquet|arrows)\.inprogress|\.?_part-\d+-\d+\.manifest\.json(\.inprogress)?"
)


class TracesInUse(RuntimeError):
    """A running process writes them; names the spool."""


def earlier_traces(traces: Path, campaign: str, scenario: str) -> list[Path]:
    """The files of all parts of a campaign's scenario, whole ones and spools. Raises `OSError`, `ManifestError`."""
    part = PartName(campaign, scenario, 0, 0)
    directories = [path.parent for path in (part.events(traces), part.runs(traces))]
    return [
        path
        for directory in directories
        if directory.is_dir()
        for path in sorted(directory.iterdir())
        if _OWN_FILE.fullmatch(path.name)
    ]


def remove_earlier_traces(traces: Path, campaign: str, scenario: str) -> None:
    """Remove those files and no others. Raises `TracesInUse` before anything is removed, `OSError`."""
    files = earlier_traces(traces, campaign, scenario)
    for path in files:
        if path.name.endswith(".arrows.inprogress"):
            with path.open("rb") as file:
                try:
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError:
                    raise TracesInUse(f"a running process writes {path}") from None
    for path in files:
        path.unlink()
