"""A broker of another brokerName in the world of a run: `Neighbour`. Nobody judges it, and nobody may follow it."""

from __future__ import annotations

from typing import Final

import attrs
import trio

from rmq_actors.broker.broker_controller import open_broker
from rmq_actors.broker.config import BrokerConfig
from rmq_actors.embedding.brokers import Addresses
from rmq_actors.ha.config import HaConfig
from rmq_actors.ports.environment import Environment
from rmq_actors.remoting.config import RemotingServerConfig
from rmq_actors.store.config import MessageStoreConfig
from rmq_actors.testing.sim_brokers import HA_PORT, PORT
from rmq_actors.tracing.recorder import Recorder
from rmq_actors.wire.address import address_text
from rmq_actors.wire.record import Message
from sim_net import Node

NAME: Final = "broker-elsewhere"
#: It has had more terms than brokers of a run ever have, and its log is longer than theirs at first.
_TERM: Final = 40
_STORE: Final = MessageStoreConfig(
    mapped_file_size_commit_log_bytes=4096, max_hash_slot_num=16, max_index_num=64, store_stats_sampling=False
)
_MESSAGES, _BODY_BYTES = 30, 300


@attrs.define(eq=False, repr=False)
class Neighbour:
    """A master on a node of its own, which registers with the run's name server, if there is one."""

    _recorder: Recorder
    node: Node
    _namesrv_addr: str | None
    _over: trio.Event = attrs.field(factory=trio.Event, init=False)

    @property
    def addresses(self) -> Addresses:
        """Where it is reached."""
        host = self.node.address
        return Addresses(address_text((host, PORT)), address_text((host, HA_PORT)))

    def boot(self) -> None:
        """Start it, and do not wait."""
        self.node.boot(self._serve)

    async def stop(self) -> None:
        """Return when it has stopped in order."""
        self._over.set()
        await self.node.wait_down()

    async def _serve(self, node: Node) -> None:
        tracer = self._recorder.tracer(node.name)
        node.on_fence(tracer.fence)
        config = BrokerConfig(
            NAME,
            _STORE,
            HaConfig(ha_listen_host=node.address, ha_listen_port=HA_PORT),
            remoting=RemotingServerConfig(node.address, PORT),
            namesrv_addr=self._namesrv_addr,
        )
        environment = Environment(node.disk, node.wall_clock, node.entropy)
        async with open_broker(config, environment, tracer) as broker:
            await broker.change_role(config.store.broker_role, term=_TERM)
            for number in range(_MESSAGES):
                await broker.put_message(Message("Elsewhere", bytes(_BODY_BYTES), 0, {"KEYS": f"{number}"}))
            await self._over.wait()
