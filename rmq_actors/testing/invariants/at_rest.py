"""What a broker does of which nobody wants anything."""

from __future__ import annotations

from typing import Final

from rmq_actors.testing.invariants.invariant import Invariant
from rmq_actors.testing.view import ClusterView
from rmq_actors.tracing.events.run import BrokerRest

#: Steps of a broker's tasks a second: its timer, and what it tells name servers. For each slave that follows it:
#: heartbeats, reports, and what slaves ask for each ten seconds; and a slave's own part of that.
STEPS_A_S: Final = 1.5
STEPS_A_SLAVE_A_S: Final = 2.0
STEPS_OF_A_SLAVE_A_S: Final = 8.0


class AtRest(Invariant[BrokerRest]):
    """A broker of which nobody wants anything writes nothing, holds nothing, and takes few steps."""

    name = "at_rest"
    kinds = (BrokerRest,)

    def check(self, event: BrokerRest, view: ClusterView) -> str | None:
        """By limits that no work of clients adds to."""
        duration_s = event.duration_ns / 1e9
        steps = STEPS_A_S + event.slaves * STEPS_A_SLAVE_A_S + (event.role == "SLAVE") * STEPS_OF_A_SLAVE_A_S
        found = f"in {duration_s:g} s, of which nobody wanted anything, {event.node} ({event.role})"
        if event.steps > steps * duration_s:
            return f"{found} took {event.steps} steps, at most {steps * duration_s:g} are right: {event.detail}"
        if event.disk_operations:
            return f"{found} made {event.disk_operations} operations of its disk: {event.detail}"
        return f"{found} held {event.held_pulls} pulls" if event.held_pulls else None
