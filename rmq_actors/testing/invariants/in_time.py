"""Calls of clients end."""

from __future__ import annotations

from rmq_actors.testing.invariants.invariant import Invariant
from rmq_actors.testing.view import ClusterView
from rmq_actors.tracing.events.run import ClientCall

#: Time-outs are whole ms.
_SLACK_MS = 1.0


class InTime(Invariant[ClientCall]):
    """A client's call ends within its time-out, whatever happens to brokers and links; so does a consumer's end."""

    name = "in_time"
    kinds = (ClientCall,)

    def check(self, event: ClientCall, view: ClusterView) -> str | None:
        """One call that has ended."""
        if event.elapsed_ms <= event.timeout_ms + _SLACK_MS:
            return None
        return f"{event.name} of {event.node} took {event.elapsed_ms} ms, it had {event.timeout_ms}: {event.status}"
