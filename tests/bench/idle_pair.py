"""An idle master and slave: heartbeats and reports every 5 s, housekeeping every 20 s, tracing on.

Simulated seconds a CPU second. `python -m tests.bench.idle_pair --help`.
"""

from __future__ import annotations

import time

import trio

from rmq_actors.broker.broker_controller import open_broker
from rmq_actors.broker.config import BrokerConfig
from rmq_actors.ha.config import HaConfig
from rmq_actors.ports.environment import Environment
from rmq_actors.store.config import BrokerRole, MessageStoreConfig
from rmq_actors.testing.sim_trace import open_sim_recorder
from rmq_actors.tracing.event import RunInfo
from sim_net import Node, World, WorldConfig
from tests.bench.measuring import arguments, measure, report

SIMULATED_S = 20_000.0
GOAL = "50,000"
_PORT = 10912


def idle(simulated_s: float) -> World:
    """A master and a slave that do nothing for so long; RuntimeError if they did not even that."""
    world = World(1, WorldConfig(journal_keep=False), guard_packages=("rmq_actors",))
    recorder = open_sim_recorder(world, RunInfo("bench", "idle_pair", 1))

    async def serve(node: Node) -> None:
        is_master = node.name == "master"
        config = BrokerConfig(
            node.name,
            MessageStoreConfig(
                broker_role=BrokerRole.SYNC_MASTER if is_master else BrokerRole.SLAVE,
                mapped_file_size_commit_log_bytes=4096,
                store_stats_sampling=False,
            ),
            HaConfig(
                ha_listen_host=node.address,
                ha_listen_port=_PORT,
                ha_master_address=None if is_master else f"{world.nodes['master'].address}:{_PORT}",
            ),
        )
        environment = Environment(node.disk, node.wall_clock, node.entropy)
        async with open_broker(config, environment, recorder.tracer(node.name)):
            await trio.sleep_forever()

    async def main(world: World) -> None:
        for name in ("master", "slave"):
            world.node(name).boot(serve)
        await trio.sleep(simulated_s)

    world.run(main)
    kinds = {event.kind for event in recorder.events}
    if not {"ha.heartbeat", "ha.report"} <= kinds:
        raise RuntimeError(f"the pair was not idle but dead: {sorted(kinds)}")
    return world


def run() -> float:
    """One run in a fresh world; simulated seconds a CPU second."""
    began = time.process_time()
    idle(SIMULATED_S)
    return SIMULATED_S / (time.process_time() - began)


def main() -> None:
    """Measure and print."""
    options = arguments(__doc__, rounds=7)
    figure = measure("idle pair", "simulated s / CPU s", run, rounds=options.rounds, per_second=True, goal=GOAL)
    report(
        [figure],
        notes=[f"{SIMULATED_S:g} simulated s a round; a multiple is that of one simulated second"],
        as_json=options.json,
    )


if __name__ == "__main__":
    main()
