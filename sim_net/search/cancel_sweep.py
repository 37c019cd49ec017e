"""Cancel an operation at every point at which it can be cancelled, one point a run.

A run depends on its seed alone, so the runs are the same up to the point at which each one is cancelled. Points are the
moments between the steps of the operation's tasks: when a task begins to wait (its wait is aborted then) and when it is
about to go on (what it waited for has happened, and its next checkpoint raises).
"""

from __future__ import annotations

from collections.abc import Callable
from types import TracebackType
from typing import TYPE_CHECKING, Self

import trio

from sim_net.kernel import determinism
from sim_net.kernel.task_tree import describe_task

if TYPE_CHECKING:
    from trio.lowlevel import Task


class CancelInjection(trio.abc.Instrument):
    """A cancel scope for `with`, around the operation, that is cancelled when its tasks have passed `point` points."""

    def __init__(self, point: int) -> None:
        #: How many points are passed before the cancellation; 0 cancels on entry.
        self.point = point
        #: Whether the operation has come that far.
        self.fired = False
        #: Which task was cancelled where; empty until then.
        self.place = ""
        self._passed = 0
        self._scope: trio.CancelScope | None = None

    @property
    def was_entered(self) -> bool:
        """Whether the operation has begun."""
        return self._scope is not None

    @property
    def cancelled_caught(self) -> bool:
        """Whether the operation ended by the cancellation; `trio.CancelScope.cancelled_caught`."""
        return self._scope is not None and self._scope.cancelled_caught

    def __enter__(self) -> Self:
        """Begin the operation. RuntimeError the second time."""
        if self._scope is not None:
            raise RuntimeError("an injection is for one operation of one run")
        self._scope = trio.CancelScope()
        self._scope.__enter__()
        trio.lowlevel.add_instrument(self)
        self._pass(trio.lowlevel.current_task(), "on entry")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> bool:
        """The operation is over."""
        assert self._scope is not None
        trio.lowlevel.remove_instrument(self)
        return self._scope.__exit__(kind, error, traceback)

    def before_task_step(self, task: Task) -> None:
        """A point, if the task is of the operation."""
        if not self.fired and self._concerns(task):
            self._pass(task, "about to go on")

    def after_task_step(self, task: Task) -> None:
        """A point, if the task is of the operation."""
        if not self.fired and self._concerns(task):
            self._pass(task, "beginning to wait")

    def _concerns(self, task: Task) -> bool:
        return any(scope is self._scope for scope in determinism.cancel_scopes_around(task))

    def _pass(self, task: Task, when: str) -> None:
        if self._passed == self.point:
            assert self._scope is not None
            self.fired = True
            self.place = f"{describe_task(task)}, {when}"
            self._scope.cancel()
        self._passed += 1


def cancel_at_every_checkpoint(run: Callable[[CancelInjection], object], *, points_max: int = 10_000) -> int:
    """Call `run(injection)` again and again, cancelling at one point more each time, until the operation goes through.

    `run` makes a world and runs a program that does `with injection:` around the operation, once, and then checks what
    must be true whether the operation was cancelled or not. Returns the number of points. Raises what `run` raises,
    with a note of the point and the place; `ValueError` if `run` does not enter the injection, or the operation has
    more than `points_max` points.
    """
    point = 0
    while True:
        injection = CancelInjection(point)
        try:
            run(injection)
        except BaseException as error:
            if injection.fired:
                error.add_note(f"cancellation was injected at point {point}: {injection.place}")
            raise
        if not injection.was_entered:
            raise ValueError("cancel_at_every_checkpoint: the run did not enter its injection")
        if not injection.fired:
            return point
        point += 1
        if point > points_max:
            raise ValueError(f"the operation has more than {points_max} points (points_max), as at {injection.place}")
