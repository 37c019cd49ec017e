"""Exits of a supervisor's children that it has not decided about yet, in the order in which they came."""

from __future__ import annotations

import collections
import logging
from collections.abc import Collection

import attrs

from rmq_actors.actors.restart import Exit, first_leaf
from rmq_actors.actors.services.child import Child
from rmq_actors.actors.services.service import WakeUp

_log = logging.getLogger(__name__)


@attrs.define(eq=False, repr=False)
class Exits:
    """A queue. Each entry waits for one decision: what to do about this exit."""

    #: Woken at each end of a life, also at one that needs no decision, and whenever the supervisor is to look again.
    changed: WakeUp = attrs.field(factory=WakeUp, init=False)
    _waiting: collections.deque[tuple[Child, Exit]] = attrs.field(factory=collections.deque, init=False)

    def __bool__(self) -> bool:
        return bool(self._waiting)

    def report(self, child: Child, ended: Exit) -> None:
        """A life has ended. One that its supervisor has ended needs no decision, unless it failed."""
        if not child.is_awaited or ended.error is not None:
            self._waiting.append((child, ended))
        self.changed.wakeup()

    def add(self, child: Child, ended: Exit) -> None:
        """A child that has no life now, and is to get none, or could not get one."""
        self._waiting.append((child, ended))

    def next(self) -> tuple[Child, Exit]:
        """The oldest one; from now on it counts as decided."""
        return self._waiting.popleft()

    def take_those_of(self, children: Collection[Child]) -> list[tuple[Child, Exit]]:
        """Those of some children; from now on they count as decided."""
        taken = [entry for entry in self._waiting if entry[0] in children]
        for entry in taken:
            self._waiting.remove(entry)
        return taken

    def clear(self) -> None:
        """Forget all."""
        self._waiting.clear()

    def failures_of_the_end(self, *, is_stop: bool) -> list[Exception]:
        """What is left when a supervisor ends: the failures that go up. The others are logged."""
        failures = []
        for child, ended in self._waiting:
            if ended.error is None:
                continue
            if is_stop and not child.stop_requested and child.goes_up(ended):
                failures.append(ended.error)
            else:
                _log.error("%s crashed while stopping: %r", child.path, cause(ended))
        return failures


def cause(ended: Exit) -> BaseException | None:
    """What to name as the cause of an exit; None if nothing was raised."""
    return None if ended.error is None else first_leaf(ended.error)
