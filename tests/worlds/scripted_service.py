"""A service that does what its test says, and notes when."""

from __future__ import annotations

import attrs
import trio


@attrs.define(eq=False)
class ScriptedService:
    """Starts, works `works_s` or until it is asked to stop, then returns or raises."""

    name: str
    journal: list[tuple[float, str]]
    works_s: float = float("inf")
    fails_with: Exception | None = None
    fails_before_start: Exception | None = None
    start_takes_s: float = 0.0
    stop_takes_s: float = 0.0
    _stopping: trio.Event = attrs.field(factory=trio.Event, init=False)

    def note(self, what: str) -> None:
        self.journal.append((trio.current_time(), f"{self.name} {what}"))

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        try:
            await trio.sleep(self.start_takes_s)
            if self.fails_before_start is not None:
                raise self.fails_before_start
            self.note("started")
            task_status.started()
            with trio.move_on_after(self.works_s):
                await self._stopping.wait()
            await trio.sleep(self.stop_takes_s)
            if self.fails_with is not None and not self._stopping.is_set():
                raise self.fails_with
        except trio.Cancelled:
            self.note("cancelled")
            raise
        self.note("ended")

    def request_stop(self) -> None:
        self.note("asked to stop")
        self._stopping.set()
