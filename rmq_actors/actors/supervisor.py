"""What happens when an actor fails: it is made anew after a pause, or its failure goes up; never only logged."""

from __future__ import annotations

import logging
from collections.abc import Callable

import attrs
import trio

from rmq_actors.actors.service import Service
from rmq_actors.ports.entropy import Entropy
from rmq_actors.tracing.recorder import Tracer

_log = logging.getLogger(__name__)


@attrs.frozen
class Restart:
    """When to start a crashed child again. Times are in seconds.

    At most `restarts_max` restarts in any `within_s`; the pause doubles from `initial_pause_s` to `pause_max_s`, with
    up to as much again of jitter. A failure of another type than `on` goes up at once.
    """

    on: tuple[type[Exception], ...]
    restarts_max: int = 5
    within_s: float = 60.0
    initial_pause_s: float = 0.1
    pause_max_s: float = 5.0


@attrs.define(eq=False)
class Supervised:
    """A child and its supervisor: a service like any other, which is made anew after each crash that `restart` allows.

    A fresh object each time: no state of the crashed one survives. `run` raises what the child raised when it may not
    be restarted.
    """

    name: str
    _make: Callable[[], Service]
    _restart: Restart
    _tracer: Tracer
    _entropy: Entropy
    _child: Service | None = attrs.field(default=None, init=False)
    _crashes: list[float] = attrs.field(factory=list, init=False)
    _scope: trio.CancelScope = attrs.field(factory=trio.CancelScope, init=False)

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Run until the child ends, or fails for good. Ready when the first child is."""
        started = False

        async def run_child() -> None:
            nonlocal started
            self._child = child = self._make()
            try:
                async with trio.open_nursery() as nursery:
                    await nursery.start(child.run)
                    if started:
                        self._tracer.emit("actor.restart", self.name)
                    else:
                        started = True
                        task_status.started()
            finally:
                self._child = None

        with self._scope:
            while True:
                try:
                    await run_child()
                    return
                except* self._restart.on as group:
                    if not started:
                        raise
                    pause_s = self._pause_after(group)
                await trio.sleep(pause_s)

    def request_stop(self) -> None:
        """Ask the child to stop; between two children, end at once."""
        if self._child is not None:
            self._child.request_stop()
        else:
            self._scope.cancel()

    def _pause_after(self, group: BaseExceptionGroup[BaseException]) -> float:
        """Count a crash: how long to wait, in seconds. Raises the crash itself past `restarts_max`."""
        now, cause = trio.current_time(), first_leaf(group)
        self._crashes = [crash for crash in self._crashes if now - crash < self._restart.within_s] + [now]
        self._tracer.emit("actor.crash", self.name, status=type(cause).__name__, attributes={"detail": str(cause)})
        if len(self._crashes) > self._restart.restarts_max:
            raise group
        pause_s = min(self._restart.initial_pause_s * 2.0 ** (len(self._crashes) - 1), self._restart.pause_max_s)
        pause_s *= 1 + self._entropy.random()
        _log.warning("%s crashed, restart %d in %.2f s: %r", self.name, len(self._crashes), pause_s, cause)
        return pause_s


def first_leaf(error: BaseException) -> BaseException:
    """The first exception of a group that is not itself a group: the one to name."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error
