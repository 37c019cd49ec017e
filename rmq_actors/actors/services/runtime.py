"""What all services of a system share."""

from __future__ import annotations

from typing import Protocol

import attrs

from rmq_actors.actors.tracer import ActorTracer


class Chance(Protocol):
    """A source of randomness."""

    def random(self) -> float:
        """A float in [0, 1)."""
        ...


@attrs.frozen(eq=False)
class Runtime:
    """The name of a system, where its trace goes, and the budgets of an end. Budgets are in seconds."""

    system_name: str
    tracer: ActorTracer | None
    entropy: Chance | None
    stop_budget_s: float
    cancel_budget_s: float

    def chance(self) -> float:
        """The jitter of one pause, in [0, 1); none without a source of randomness."""
        return 0.0 if self.entropy is None else self.entropy.random()
