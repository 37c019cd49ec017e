"""A client on a node of its own, for a task that runs on none: its connections are the node's."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator

import trio

from rmq_actors.client.client_instance import MQClientInstance, open_client_instance
from rmq_actors.client.config import ClientConfig
from rmq_actors.ports.environment import Environment
from rmq_actors.tracing.recorder import Recorder
from sim_net import Node


@contextlib.asynccontextmanager
async def open_sim_client(node: Node, recorder: Recorder, config: ClientConfig) -> AsyncIterator[MQClientInstance]:
    """Boot `node`, which is down, and run a client there for the length of a block."""
    ready, over, instances = trio.Event(), trio.Event(), list[MQClientInstance]()

    async def main(node: Node) -> None:
        tracer = recorder.tracer(node.name)
        node.on_fence(tracer.fence)
        environment = Environment(node.disk, node.wall_clock, node.entropy)
        async with open_client_instance(config, environment, tracer) as instance:
            instances.append(instance)
            ready.set()
            await over.wait()

    node.boot(main)
    try:
        await ready.wait()
        yield instances[0]
    except BaseException:
        node.stop()
        raise
    finally:
        over.set()
        with trio.CancelScope(shield=True):
            await node.wait_down()
