"""Clients of this project on a machine of their own, beside a simulated cluster with a name server."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from typing import Any, TypeVar

import attrs

from rmq_actors.client.client_instance import MQClientInstance, open_client_instance
from rmq_actors.client.config import ClientConfig
from rmq_actors.ports.environment import Environment
from rmq_actors.remoting.hooks import RpcHook
from rmq_actors.testing import SimCluster
from rmq_actors.testing.sim_cluster import PAIR
from rmq_actors.testing.sim_name_server import NAME_SERVER_PORT
from rmq_actors.testing.topology import NAME_SERVER
from rmq_actors.wire.address import address_text
from sim_net import Node

T = TypeVar("T")

CLIENTS = "clients"


@attrs.define(eq=False)
class ClientWorld:
    """A cluster, and the machine of its clients."""

    cluster: SimCluster
    node: Node

    @classmethod
    def run(
        cls,
        use: Callable[[ClientWorld], Awaitable[T]],
        follows: Mapping[str, str | None] = PAIR,
        seed: int = 0,
        **settings: Any,
    ) -> T:
        """Call `use` on the clients' machine once the cluster is at work; what it returns or raises."""

        async def body(cluster: SimCluster) -> T:
            results: list[T] = []

            async def main(node: Node) -> None:
                results.append(await use(cls(cluster, node)))

            clients = cluster.world.node(CLIENTS)
            clients.boot(main)
            await clients.wait_down()
            return results[0]

        return SimCluster(follows, seed=seed, name_server=True, **settings).run(body)

    @property
    def name_server(self) -> str:
        return address_text((self.cluster.world.nodes[NAME_SERVER].address, NAME_SERVER_PORT))

    @contextlib.asynccontextmanager
    async def instance(self, *, hooks: Sequence[RpcHook] = (), **settings: Any) -> AsyncIterator[MQClientInstance]:
        """A client on the clients' machine."""
        node = self.node
        config = ClientConfig(**{"namesrv_addr": self.name_server, "client_ip": node.address, **settings})
        environment = Environment(node.disk, node.wall_clock, node.entropy)
        tracer = self.cluster.recorder.tracer(node.name)
        async with open_client_instance(config, environment, tracer, hooks=hooks) as instance:
            yield instance
