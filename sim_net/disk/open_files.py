"""Which files of a disk are open, and by whom."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final, Protocol

from sim_net.disk.page_cache import CachedFile

if TYPE_CHECKING:
    from sim_net.node import Incarnation

#: Handles of dead processes are dropped once there are so many, and twice as many as were open then.
_HANDLES_MIN: Final = 64


class Handle(Protocol):
    """An open file, as far as the list of them is concerned."""

    #: What was opened.
    cached: CachedFile
    path: str

    @property
    def is_open(self) -> bool:
        """Whether a process that lives can still use it."""

    def opened_by(self, incarnation: Incarnation) -> bool:
        """Whether that process opened it."""


class OpenFiles:
    """The open files of one disk, in the order in which they were opened."""

    def __init__(self) -> None:
        # Some are of processes that are dead, until there are many.
        self._handles: dict[Handle, None] = {}
        self._handles_max = _HANDLES_MIN
        #: How often a file was opened or closed.
        self.changes = 0

    def add(self, file: Handle) -> None:
        """A file was opened."""
        if len(self._handles) >= self._handles_max:
            self._handles = dict.fromkeys(each for each in self._handles if each.is_open)
            self._handles_max = max(_HANDLES_MIN, 2 * len(self._handles))
        self._handles[file] = None
        self.changes += 1

    def remove(self, file: Handle) -> None:
        """A file was closed."""
        self.changes += 1
        self._handles.pop(file, None)

    def cached(self) -> Iterator[CachedFile]:
        """What is open; a file that several have open comes several times."""
        return (each.cached for each in self._handles if each.is_open)

    def held_by(self, incarnation: Incarnation) -> list[str]:
        """The paths that a process has open."""
        return [file.path for file in self._handles if file.is_open and file.opened_by(incarnation)]
