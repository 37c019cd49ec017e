"""A scenario in which tables change all the time while roles do: a fence must hold for all that clients may change."""

from __future__ import annotations

import random

import attrs

from rmq_actors.testing.exchanges import EXCHANGES
from rmq_actors.testing.workload import Workload


def draw_fences(rng: random.Random, seed: int) -> Workload:
    """As in `exchanges`, with so many changes of tables that some are left for each exchange."""
    return attrs.evolve(
        EXCHANGES.workload(rng, seed),
        table_changes=rng.choice((60, 120)),
        changes_in_exchanges=True,
    )


FENCES = attrs.evolve(
    EXCHANGES,
    name="fences",
    description="as exchanges, and topics and groups are made one right after the other meanwhile",
    workload=draw_fences,
    # Where no exchange is left, a hundred changes come one every 0.3 s.
    converges_in_s=90.0,
)
