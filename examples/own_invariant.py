"""An invariant of one's own, looked for by Hypothesis in simulated worlds; the same orders on real sockets.

Run it: pip install 'rmq-actors[testing]', then python examples/own_invariant.py

The first search finds a planted bug: a master that takes a connected slave for one that has everything. The second
finds nothing.
"""

from __future__ import annotations

import contextlib
import tempfile

import trio
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from rmq_actors import BrokerDown, Cluster, Message, PutStatus, open_cluster
from rmq_actors.testing import PLANTED_BUGS, ClusterBroken, ClusterView, Invariant, SimCluster, cluster_schedules
from rmq_actors.tracing.events.store import PutEnd
from sim_net import Schedule


class OnTheSlave(Invariant[PutEnd]):
    """A put answered PUT_OK is in the slave's log, or was."""

    name = "on the slave"
    kinds = (PutEnd,)

    def check(self, event: PutEnd, view: ClusterView) -> str | None:
        """Compare where the message ends with how much the slave ever had."""
        end, had = event.offset, view.nodes["b"].highest
        return f"{end} bytes confirmed, the slave has {had}" if event.status == "PUT_OK" and end > had else None


async def put_orders(cluster: Cluster) -> None:
    """What runs in both worlds: ten orders, of which some may be refused."""
    for number in range(10):
        with contextlib.suppress(BrokerDown):
            result = await cluster.put(Message("Orders", f"order {number}".encode()))
            if result.status is not PutStatus.PUT_OK:
                await trio.sleep(0.1)


def search(planted_bug: str | None) -> None:
    """Draw worlds and faults until the invariant breaks, and make what is left small."""

    @settings(
        max_examples=20,
        deadline=None,
        derandomize=True,
        phases=[Phase.generate, Phase.shrink],
        suppress_health_check=list(HealthCheck),
    )
    @given(seed=st.integers(0, 2**32), schedule=cluster_schedules(("a", "b"), faults_max=3))
    def orders_are_on_the_slave(seed: int, schedule: Schedule) -> None:
        machines = PLANTED_BUGS[planted_bug].make_machines if planted_bug else None
        cluster = SimCluster(seed=seed, schedule=schedule, invariants=[OnTheSlave], make_machines=machines)
        cluster.run(put_orders)

    try:
        orders_are_on_the_slave()
    except ClusterBroken as error:
        print(f"{planted_bug}: {error}")
    else:
        print("without a planted bug 20 worlds have passed")


async def on_real_sockets() -> None:
    """The same orders, on loopback and real files."""
    with tempfile.TemporaryDirectory() as directory:
        async with open_cluster(directory, follows={"a": None, "b": "a"}) as cluster:
            await put_orders(cluster)
            await cluster.wait_until_replicated()
            print(f"on real sockets the slave has {len(cluster.messages('b'))} orders")


if __name__ == "__main__":
    search("any_ack")
    search(None)
    trio.run(on_real_sockets)
