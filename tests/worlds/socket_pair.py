"""Two nodes of a simulated world, `server` and `client`, with a program on each."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import trio

from sim_net import Fault, LinkConfig, Node, Schedule, World, WorldConfig

PORT = 7000
STEADY_LINK = LinkConfig(latency_min_s=0.001, latency_max_s=0.001, retransmit_max_s=0.0)
STEADY = WorldConfig(link=STEADY_LINK)

Program = Callable[[Node], Awaitable[None]]


def run_pair(server: Program, client: Program, *faults: Fault, config: WorldConfig = STEADY, seed: int = 1) -> World:
    """Run `server` from 0 s and `client` from 1 s on, until the client ends."""
    world = World(seed, config)

    async def main(world: World) -> None:
        nodes = [world.node("server"), world.node("client")]
        world.start_schedule(Schedule(faults))
        nodes[0].boot(server)
        await trio.sleep(1)
        nodes[1].boot(client)
        await nodes[1].wait_down()

    world.run(main)
    return world
