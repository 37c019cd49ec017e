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


async def supervise(
    make: Callable[[], Service],
    restart: Restart,
    tracer: Tracer,
    entropy: Entropy,
    *,
    task_status: trio.TaskStatus[Service] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Run what `make` makes, and a fresh one after each crash that `restart` allows.

    A fresh object each time: no state of the crashed one survives. Raises what the child raised when it may not be
    restarted. Reports the first incarnation, once started.
    """
    crashes: list[float] = []
    started = False

    async def run_once() -> None:
        nonlocal started
        service = make()
        async with trio.open_nursery() as nursery:
            await nursery.start(_run_service, service)
            tracer.emit("actor.restart" if started else "actor.start", service.name)
            if not started:
                started = True
                task_status.started(service)

    while True:
        try:
            await run_once()
            return
        except* restart.on as group:
            now = trio.current_time()
            crashes = [crash for crash in crashes if now - crash < restart.within_s] + [now]
            if len(crashes) > restart.restarts_max or not started:
                raise
            pause_s = min(restart.initial_pause_s * 2 ** (len(crashes) - 1), restart.pause_max_s)
            pause_s *= 1 + entropy.random()
            cause = first_leaf(group)
            tracer.emit("actor.crash", "supervisor", status=type(cause).__name__, attributes={"detail": str(cause)})
            _log.warning("an actor crashed, restart %d in %.2f s: %r", len(crashes), pause_s, cause)
        await trio.sleep(pause_s)


async def _run_service(service: Service, *, task_status: trio.TaskStatus[None]) -> None:
    await service.run(task_status=task_status)


def first_leaf(error: BaseException) -> BaseException:
    """The first exception of a group that is not itself a group: the one to name."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error
