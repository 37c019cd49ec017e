"""What an event of a trace costs: made, and told to whoever listens. `python -m tests.bench.trace_events --help`.

CPU microseconds each. A broker that nobody traces has a recorder that keeps nothing and has no listener.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from rmq_actors.tracing.event import RunInfo
from rmq_actors.tracing.events.ha import HaConnectionOpen
from rmq_actors.tracing.events.store import LogAppend
from rmq_actors.tracing.recorder import Recorder, Tracer
from rmq_actors.tracing.spool import record_batch
from tests.bench.measuring import arguments, measure, report

EVENTS = 100_000
_RUN = RunInfo("bench", "trace_events", 0)


def new_tracer(*, keep: bool = False, listeners: int = 0) -> Tracer:
    """A node's end of a new recorder."""
    recorder = Recorder(_RUN, lambda: (1, 2), keep=keep)
    for _ in range(listeners):
        recorder.subscribe(lambda _: None)
    return recorder.tracer("node")


def appends(tracer: Tracer) -> None:
    """Events with two columns."""
    for number in range(EVENTS):
        tracer.emit(LogAppend(offset=number, size=5))


def connections(tracer: Tracer) -> None:
    """Events with a column and an attribute."""
    for number in range(EVENTS):
        tracer.emit(HaConnectionOpen(conn_id=number, peer_address="10.0.0.1:10912"))


def cost_us(emit: Callable[[Tracer], None], make: Callable[[], Tracer]) -> Callable[[], float]:
    """Measures `emit` with a new tracer: microseconds of CPU for each event."""

    def once() -> float:
        tracer = make()
        began = time.process_time()
        emit(tracer)
        return (time.process_time() - began) / EVENTS * 1e6

    return once


def columns_us() -> float:
    """The same, from a list of events to Arrow's columns."""
    tracer = new_tracer(keep=True)
    appends(tracer)
    began = time.process_time()
    record_batch(_RUN, tracer.recorder.events)
    return (time.process_time() - began) / EVENTS * 1e6


def main() -> None:
    """Measure and print."""
    options = arguments(__doc__, rounds=9)
    measured = {
        "nobody listens": cost_us(appends, new_tracer),
        "one listener": cost_us(appends, lambda: new_tracer(listeners=1)),
        "one listener, an attribute": cost_us(connections, lambda: new_tracer(listeners=1)),
        "kept": cost_us(appends, lambda: new_tracer(keep=True)),
        "to Arrow": columns_us,
    }
    figures = [measure(name, "us", once, rounds=options.rounds) for name, once in measured.items()]
    report(figures, notes=[f"{EVENTS} events a round"], as_json=options.json)


if __name__ == "__main__":
    main()
