"""Events of runs, simulated or real: kinds, columns, recorders, and the files that they go to.

Here is what a kind of one's own needs; `events` has the project's kinds.
"""

from rmq_actors.tracing.event import Event, attribute, of_kind
from rmq_actors.tracing.recorder import Recorder, Tracer

__all__ = ["Event", "Recorder", "Tracer", "attribute", "of_kind"]
