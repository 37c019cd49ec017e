"""Locks on the files of a node's disk: one holder each, until it lets go or its process dies."""

from __future__ import annotations

import errno
from collections.abc import Callable
from typing import TYPE_CHECKING

from sim_net.disk.page_cache import CachedFile
from sim_net.kernel.identity import current_incarnation

if TYPE_CHECKING:
    from sim_net.node import Incarnation


class SimLock:
    """A lock that is held."""

    def __init__(self, path: str, release: Callable[[], object]) -> None:
        self.path = path
        self._release = release
        #: For the locks of its disk: the process that took it.
        self.holder = current_incarnation.get()
        self._closed = False

    def close(self) -> None:
        """Release it; a second call does nothing."""
        if self.is_held:
            self._release()
        self._closed = True

    @property
    def is_held(self) -> bool:
        """Whether it was not released, and the process that took it lives."""
        holder = self.holder
        return not self._closed and (holder is None or not (holder.fenced or holder.over.is_set()))


class DiskLocks:
    """The locks of one disk. As on Linux they are of files, not of names."""

    def __init__(self) -> None:
        self._locks: dict[CachedFile, SimLock] = {}

    def take(self, file: CachedFile, path: str) -> SimLock:
        """Lock a file for the current task's process. OSError EAGAIN while it is locked."""
        held = self._locks.get(file)
        if held is not None and held.is_held:
            raise OSError(errno.EAGAIN, f"in use by {_name(held.holder)}", path)
        lock = self._locks[file] = SimLock(path, lambda: self._locks.pop(file))
        return lock

    def held_by(self, incarnation: Incarnation) -> list[str]:
        """The paths of what a process has locked."""
        return [lock.path for lock in self._locks.values() if lock.is_held and lock.holder is incarnation]


def _name(holder: Incarnation | None) -> str:
    return "the harness" if holder is None else f"process {holder.number} of {holder.node.name}"
