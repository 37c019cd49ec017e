"""Pausing processes: none of their tasks takes a step, while their kernels and the rest of the world go on.

A task that becomes runnable meanwhile is kept back until its process goes on. Deadlines pass for it as for any other:
what it waited for under a time-out that expired first ends as the time-out says, even if data came before the resume.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sim_net.kernel import determinism
from sim_net.kernel.identity import current_incarnation

if TYPE_CHECKING:
    from trio.lowlevel import Task

    from sim_net.node import Incarnation


class Pauses:
    """The paused processes of a world, and their tasks that would run."""

    def __init__(self) -> None:
        self._kept_back: dict[Incarnation, list[Task]] = {}

    def __contains__(self, incarnation: Incarnation) -> bool:
        """Whether the process is paused."""
        return incarnation in self._kept_back

    def begin(self, incarnation: Incarnation) -> None:
        """Let no task of the process run. Those that Trio is about to run at this very instant take one step more."""
        self._kept_back[incarnation] = []
        determinism.filter_run_queue(self._keep_back)

    def end(self, incarnation: Incarnation) -> None:
        """Let the process go on. Nothing, if it is not paused."""
        if incarnation not in self._kept_back:
            return
        determinism.extend_run_queue(self._kept_back.pop(incarnation))
        if not self._kept_back:
            determinism.filter_run_queue(None)

    def end_all(self) -> None:
        """Let every process go on."""
        for incarnation in list(self._kept_back):
            self.end(incarnation)

    def _keep_back(self, task: Task) -> bool:
        incarnation = task.context.get(current_incarnation)
        if incarnation is None or incarnation not in self._kept_back:
            return False
        self._kept_back[incarnation].append(task)
        return True
