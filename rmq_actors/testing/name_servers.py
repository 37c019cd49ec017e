"""The name servers of a run in which these alone tell slaves who is their master, and a look at what they tell."""

from __future__ import annotations

from collections.abc import Sequence

import attrs
import trio

from rmq_actors.namesrv.namesrv_controller import NamesrvController
from rmq_actors.testing.sim_name_server import NAME_SERVER_PORT, serve_routes
from rmq_actors.tracing.events.run import NameServerEmpty
from rmq_actors.tracing.recorder import Recorder
from rmq_actors.wire.address import address_text
from sim_net import Node


@attrs.define(eq=False, repr=False)
class NameServers:
    """Each on a node of its own; one that was killed is back with nothing."""

    _recorder: Recorder
    _nodes: Sequence[Node]
    #: Those that serve, by their nodes.
    controllers: dict[str, NamesrvController] = attrs.field(factory=dict, init=False)
    _over: trio.Event = attrs.field(factory=trio.Event, init=False)

    @property
    def addresses(self) -> str:
        """As brokers have them in namesrvAddr."""
        return ";".join(address_text((node.address, NAME_SERVER_PORT)) for node in self._nodes)

    @property
    def names(self) -> Sequence[str]:
        """Their nodes."""
        return [node.name for node in self._nodes]

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
        node.on_fence(lambda: self.controllers.pop(node.name, None))
        self._recorder.record(NameServerEmpty(), node.name)
        await serve_routes(node, self._recorder, self._over, self._note)

    def _note(self, node: Node, controller: NamesrvController) -> None:
        self.controllers[node.name] = controller
