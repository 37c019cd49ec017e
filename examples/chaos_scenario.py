"""A chaos scenario of one's own: brokers of any names, an invariant and an operator that the project does not have.

Run it: pip install rmq-actors, then python examples/chaos_scenario.py

It runs ten seeds; `rmq-actors chaos run --scenario examples.chaos_scenario:CITIES` runs as many as you like, and says
how to replay what fails.
"""

from __future__ import annotations

import logging

import attrs
import trio

from rmq_actors.testing import (
    REPLICATION_INVARIANTS,
    ClusterView,
    FaultFamilies,
    Invariant,
    Operator,
    Scenario,
    Topology,
    choices,
    random_case,
    run_case,
)
from rmq_actors.tracing.events.store import LogFlush, StoreOpen


@attrs.define(eq=False)
class SyncedOnlyGrows(Invariant[LogFlush | StoreOpen]):
    """What a broker says is durable does not become less while it runs."""

    name = "synced_only_grows"
    kinds = (LogFlush, StoreOpen)

    _durable: dict[str, int] = attrs.field(factory=dict[str, int], init=False)

    def check(self, event: LogFlush | StoreOpen, view: ClusterView) -> str | None:
        """A start begins again: a disk that has lost its power may have less."""
        before = self._durable.get(event.node, 0)
        self._durable[event.node] = event.offset if isinstance(event, LogFlush) else 0
        if isinstance(event, StoreOpen) or event.offset >= before:
            return None
        end = view.nodes[event.node].end
        return f"{event.node} was durable to {before}, and is to {event.offset}; its log ends at {end}"


class RollingRestart(Operator):
    """Restarts one broker after the other under load, the master last."""

    async def act(self) -> None:
        """Kill each, and start it again if no fault did."""
        for name in reversed(self.brokers.names):
            await trio.sleep(0.5)
            await self.brokers.kill(name)
            await trio.sleep(0.2)
            if not self.brokers.nodes[name].is_up:
                self.brokers.restart_node(name)


CITIES = Scenario(
    "cities",
    "a master and three slaves are restarted one after the other, while links break",
    Topology("tokyo", ("osaka", "kyoto", "nagoya")),
    choices(puts=(20, 40), in_sync_replicas=(2, 3, 4), master_flush=("SYNC_FLUSH", "ASYNC_FLUSH")),
    FaultFamilies(links=("Partition", "Delay", "Reset"), nodes=("Pause", "DiskSlow"), fewest=0, most=3),
    RollingRestart,
    (*REPLICATION_INVARIANTS, SyncedOnlyGrows),
    converges_in_s=60.0,
)


def main() -> None:
    """Run ten seeds."""
    logging.getLogger("rmq_actors").setLevel(logging.CRITICAL)  # what brokers log of faults is in the traces
    for seed in range(10):
        result = run_case(random_case(seed, scenario=CITIES), CITIES)
        print(f"seed {seed}: {result.outcome}, {result.acked} puts acknowledged, {result.virtual_s:.0f} virtual s")
        assert result.outcome == "passed", result.failure


if __name__ == "__main__":
    main()
