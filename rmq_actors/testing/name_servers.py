"""The name servers of a run in which these alone tell slaves who is their master, and what they tell."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

import attrs
import trio

from rmq_actors.namesrv.namesrv_controller import NamesrvController
from rmq_actors.testing.rocketmq_routes import RocketMQRoutes, serve_as_rocketmq
from rmq_actors.testing.sim_name_server import NAME_SERVER_PORT, serve_routes
from rmq_actors.testing.topology import ROCKETMQ_NAME_SERVER
from rmq_actors.tracing.events.run import NameServerEmpty
from rmq_actors.tracing.recorder import Recorder
from rmq_actors.wire.address import address_text
from sim_net import Node


class Routes(Protocol):
    """What a name server tells."""

    def all_addresses(self) -> Sequence[Mapping[int, str]]:
        """The addresses of each brokerName by brokerId."""
        ...

    def permission(self, topic: str) -> int:
        """What clients may do with a topic; 0: nobody has it."""
        ...


@attrs.frozen
class _OwnRoutes:
    controller: NamesrvController

    def all_addresses(self) -> Sequence[Mapping[int, str]]:
        table = self.controller.route_info_manager.all_cluster_info().broker_addr_table
        return [each.broker_addrs for each in table.values()]

    def permission(self, topic: str) -> int:
        found = self.controller.route_info_manager.pick_topic_route_data(topic)
        return found.queue_datas[0].perm if found is not None and found.queue_datas else 0


@attrs.define(eq=False, repr=False)
class NameServers:
    """Each on a node of its own; one that was killed is back with nothing. One goes by RocketMQ's rules."""

    _recorder: Recorder
    _nodes: Sequence[Node]
    #: What those tell that serve, by their nodes.
    routes: dict[str, Routes] = attrs.field(factory=dict, init=False)
    _over: trio.Event = attrs.field(factory=trio.Event, init=False)

    @property
    def addresses(self) -> str:
        """As brokers have them in namesrvAddr."""
        return ";".join(address_text((node.address, NAME_SERVER_PORT)) for node in self._nodes)

    def boot(self) -> None:
        """Start them all, and wait for none."""
        for node in self._nodes:
            node.boot(self._serve)

    async def stop(self) -> None:
        """Return when all have stopped in order."""
        self._over.set()
        for node in self._nodes:
            await node.wait_down()

    async def _serve(self, node: Node) -> None:
        node.on_fence(lambda: self.routes.pop(node.name, None))
        self._recorder.record(NameServerEmpty(), node.name)
        if node.name == ROCKETMQ_NAME_SERVER:
            self.routes[node.name] = routes = RocketMQRoutes()
            await serve_as_rocketmq(node, self._recorder, self._over, routes)
        else:
            await serve_routes(node, self._recorder, self._over, self._note)

    def _note(self, node: Node, controller: NamesrvController) -> None:
        self.routes[node.name] = _OwnRoutes(controller)
