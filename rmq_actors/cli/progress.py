"""How commands show long work."""

from __future__ import annotations

import time

import attrs
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn


def progress_bar(console: Console) -> Progress:
    """A bar on a terminal; elsewhere nothing, as it would clutter a log: see `ProgressLines`."""
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        console=console,
        disable=not console.is_terminal,
    )


@attrs.define(eq=False, repr=False)
class ProgressLines:
    """Where there is no terminal: a line a minute, so that a log tells how far hours of work have come."""

    _console: Console
    _what: str
    _total: int
    _every_s: float = 60.0
    _done: int = attrs.field(default=0, init=False)
    _next_s: float = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self._next_s = time.monotonic() + self._every_s

    def advance(self) -> None:
        """One more is done."""
        self._done += 1
        if self._console.is_terminal or time.monotonic() < self._next_s:
            return
        self._next_s = time.monotonic() + self._every_s
        self._console.print(f"{self._what}: {self._done} of {self._total}", markup=False, highlight=False)
