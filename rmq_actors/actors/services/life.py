"""One life of a child: from the call that starts it until its `run` has returned or raised."""

from __future__ import annotations

import attrs
import trio

from rmq_actors.actors.services.service import Service


@attrs.define(eq=False, repr=False)
class Life:
    """What is known of one life. It is never begun again: the next one is another object.

    It begins when its task runs first, may become ready, and ends; whoever starts it waits until it is ready or ended.
    """

    scope: trio.CancelScope = attrs.field(factory=trio.CancelScope, init=False)
    ended: trio.Event = attrs.field(factory=trio.Event, init=False)
    #: Both only while it is up.
    service: Service | None = attrs.field(default=None, init=False)
    task: trio.lowlevel.Task | None = attrs.field(default=None, init=False)
    is_ready: bool = attrs.field(default=False, init=False)
    #: Whether it was asked to end.
    is_asked: bool = attrs.field(default=False, init=False)
    #: Why it ended before it was ready.
    failure: Exception | None = attrs.field(default=None, init=False)
    #: The task that waits until it is ready; and whether that was cancelled.
    _starter: trio.lowlevel.Task | None = attrs.field(default=None, init=False)
    is_abandoned: bool = attrs.field(default=False, init=False)

    @property
    def is_up(self) -> bool:
        """Whether it has begun and not ended."""
        return self.task is not None

    async def until_ready(self) -> None:
        """Return when it is ready. If the wait is cancelled, so is the life, and its end is waited for.

        Raises what it fails with before, RuntimeError if it ends without being ready. So does `nursery.start`, which
        opens a nursery for each start, and that costs more than all else here.
        """
        self._starter = trio.lowlevel.current_task()
        try:
            await trio.lowlevel.wait_task_rescheduled(self._abandon)
        except BaseException:
            with trio.CancelScope(shield=True):
                self.cancel()
                await self.ended.wait()
            self._raise_failure()
            raise
        self._raise_failure()
        if not self.is_ready:
            raise RuntimeError("child exited without calling task_status.started()")

    def _raise_failure(self) -> None:
        if self.failure is not None:
            raise self.failure from None

    def _abandon(self, _: trio.lowlevel.RaiseCancelT) -> trio.lowlevel.Abort:
        self._starter, self.is_abandoned = None, True
        return trio.lowlevel.Abort.SUCCEEDED

    def begin(self) -> None:
        """The present task lives it. Call this in the task's first step."""
        assert not self.ended.is_set()
        self.task = trio.lowlevel.current_task()
        if self.is_abandoned:
            self.scope.cancel()

    def run_as(self, service: Service) -> Service:
        """It lives as this service."""
        self.service = service
        return service

    def ready(self) -> None:
        """It is ready: its starter goes on."""
        assert not self.is_ready
        self.is_ready = True
        self._wake_starter()

    def fail(self, error: Exception) -> None:
        """It has raised: if it was not ready yet, `until_ready` raises that."""
        if not self.is_ready:
            self.failure = error

    def end(self) -> None:
        """Its `run` is over."""
        assert self.is_up
        assert not self.ended.is_set()
        self.service = self.task = None
        self.ended.set()
        self._wake_starter()

    def _wake_starter(self) -> None:
        starter, self._starter = self._starter, None
        if starter is not None:
            trio.lowlevel.reschedule(starter)

    def cancel(self) -> None:
        """Cancel it, if it is up."""
        if self.is_up:
            self.scope.cancel()
