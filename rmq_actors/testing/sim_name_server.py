"""A name server on a node of its own."""

from __future__ import annotations

from collections.abc import Callable

import trio

from rmq_actors.namesrv.config import NamesrvConfig
from rmq_actors.namesrv.namesrv_controller import NamesrvController, open_name_server
from rmq_actors.ports.environment import Environment
from rmq_actors.remoting.config import RemotingServerConfig
from rmq_actors.tracing.recorder import Recorder
from sim_net import Node

NAME_SERVER_PORT = 9876


async def serve_routes(
    node: Node,
    recorder: Recorder,
    stopping: trio.Event,
    serves: Callable[[Node, NamesrvController], object] = lambda _, __: None,
) -> None:
    """The program of the node, until it is to stop; `serves` is told of the name server once it serves."""
    tracer = recorder.tracer(node.name)
    node.on_fence(tracer.fence)
    config = NamesrvConfig(remoting=RemotingServerConfig(node.address, NAME_SERVER_PORT))
    environment = Environment(node.disk, node.wall_clock, node.entropy)
    async with open_name_server(config, environment, tracer) as controller:
        serves(node, controller)
        await stopping.wait()
