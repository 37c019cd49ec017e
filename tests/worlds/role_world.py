"""Brokers that change their roles by command, a name server, and what their clients do, in a simulated world."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Self, TypeVar

import attrs
import trio

from rmq_actors.broker.broker_controller import BrokerController
from rmq_actors.store.config import BrokerRole
from rmq_actors.store.puts.message_puts import PutResult
from rmq_actors.wire.record import Message, decode_message
from rmq_actors.wire.remoting_command import RemotingCommand
from tests.worlds.name_server_world import CLIENT, SMALL_STORE, Member, NameServerWorld, pair

T = TypeVar("T")

TOPIC = "Topic"
#: A slave that starts together with its master may be told of it so much later.
FOLLOWS_S = 3.0


def queue_bodies(broker: BrokerController, topic: str = TOPIC, queue_id: int = 0) -> list[bytes]:
    """What a consumer gets who reads a queue from its first message to its last."""
    bodies: list[bytes] = []
    while True:
        found = broker.store.reads.get_message(topic, queue_id, len(bodies), 32)
        if not found.messages:
            return bodies
        bodies += [decode_message(message).body for message in found.messages]


async def outcome_of(call: Awaitable[T]) -> T | Exception:
    """What it returns or raises: in a node, what is raised ends the process."""
    try:
        return await call
    except Exception as error:  # noqa: BLE001 - the caller looks at it
        return error


@attrs.define(eq=False, repr=False)
class RoleWorld(NameServerWorld):
    """Whole brokers of the name broker-a, the first one a SYNC_MASTER."""

    @classmethod
    def of(cls, slaves: int = 1, *, members: list[Member] | None = None, seed: int = 1, **settings: Any) -> Self:
        """`settings` are those of the store."""
        store = attrs.evolve(SMALL_STORE, **{"broker_role": BrokerRole.SYNC_MASTER, **settings})
        return cls(members or pair("a", slaves), seed=seed, whole_brokers=True, store=store)

    def controller(self, node: str) -> BrokerController:
        controller = self.brokers[node].controller
        assert controller is not None
        return controller

    async def change_role(self, node: str, role: BrokerRole, **to: Any) -> Exception | None:
        """Have a broker change its role; what that raised."""
        outcome = await self.on_node(node, lambda: outcome_of(self.controller(node).change_role(role, **to)))
        if outcome is None:
            self.note_role(node)
        return outcome

    def note_role(self, node: str) -> None:
        """The operator writes into the configuration what the broker is now."""
        broker_id = self.controller(node).config.broker_id
        self.configure(node, broker_id=broker_id)
        self.brokers[node].member = attrs.evolve(self.brokers[node].member, broker_id=broker_id)

    async def put(self, node: str, body: bytes, **fields: Any) -> PutResult:
        message = Message(TOPIC, body, **fields)
        return await self.on_node(node, lambda: self.controller(node).put_message(message))

    async def ask_broker(self, node: str, request: RemotingCommand) -> RemotingCommand:
        """The client's request, and a broker's answer."""
        client, address = self._client, self.brokers[node].address
        assert client is not None
        return await self.on_node(CLIENT, lambda: client.invoke(address, request, 3_000))

    async def wait_replicated(self, *slaves: str, master: str = "a-0") -> None:
        """Return when these slaves have all that the master has."""
        with trio.fail_after(60):
            while any(self.brokers[slave].log.max_offset < self.brokers[master].log.max_offset for slave in slaves):
                await trio.sleep(0.05)

    def run_well(self, use: Callable[[], Awaitable[None]]) -> None:
        """Call `use` when every broker is registered and every slave follows."""

        async def scenario() -> None:
            await self.converge(FOLLOWS_S)
            await trio.sleep(FOLLOWS_S)
            await use()

        self.run(scenario)
