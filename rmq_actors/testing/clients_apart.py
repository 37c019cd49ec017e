"""What clients of a run have alike that are on machines of their own: `ClientsApart`, whose producers send requests."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from typing import Protocol, TypeVar

import attrs
import trio

from rmq_actors.broker.broker_controller import BrokerController
from rmq_actors.testing.clients import Writers
from rmq_actors.testing.sim_brokers import Beside
from rmq_actors.testing.topology import PRODUCERS
from rmq_actors.testing.workload import RECORD_BESIDE_BODY_BYTES
from rmq_actors.wire.dispatch_request import DELAY_LEVELS_MS, SCHEDULE_TOPIC
from sim_net import Node

#: How often messages go as a batch, of 2 to this many.
_BATCHES, _BATCHED_MAX = 0.15, 4


def has_delivered_all(broker: BrokerController) -> bool:
    """Whether a master has delivered every delayed message, whatever its level."""
    assert broker.remoting is not None
    delivered, offsets = broker.remoting.metadata.delay_offsets.offset_table, broker.store.offsets
    return all(
        delivered.get(level, 0) >= offsets.get_max_offset_in_queue(SCHEDULE_TOPIC, level - 1)
        for level in range(1, len(DELAY_LEVELS_MS) + 1)
    )


class _HasBody(Protocol):
    @property
    def body(self) -> bytes: ...


M = TypeVar("M", bound=_HasBody)


@attrs.define(eq=False, repr=False)
class ClientsApart(Writers):
    """Producers on a machine of their own in the world; a message whose send failed is sent again."""

    _producers: Node = attrs.field(init=False)
    _stopping: trio.Event = attrs.field(factory=trio.Event, init=False)
    #: How many calls wait for their answers.
    _waiting: int = attrs.field(default=0, init=False)

    def __attrs_post_init__(self) -> None:
        super().__attrs_post_init__()
        self._producers = self.brokers.world.node(PRODUCERS)

    def beside(self, name: str) -> Iterable[Beside]:
        """Nothing: they have machines of their own."""
        return ()

    def has_let_go(self, name: str) -> bool:
        """Whether no producer waits for an answer, or has a connection to the broker on which a request may come."""
        if self._waiting:
            return False
        broker = self.brokers.broker(name)
        assert broker.remoting is not None
        connections = broker.remoting.remoting_server.connections.values()
        return all(each.remote_address.rpartition(":")[0] != self._producers.address for each in connections)

    def _take_from(
        self, again: list[M], new: Callable[[], M], goes_alone: Callable[[M], bool] = lambda _: False
    ) -> list[M]:
        """The next message, or several that go as a batch; the log takes a batch into one file."""
        entropy, messages = self._producers.entropy, list[M]()
        wanted = 2 + int(entropy.random() * (_BATCHED_MAX - 1)) if entropy.random() < _BATCHES else 1
        room_bytes = self.brokers.workload.log_file_bytes
        while not messages or (len(messages) < wanted and self.puts_left > 0):
            message = again.pop() if again else new()
            room_bytes -= len(message.body) + RECORD_BESIDE_BODY_BYTES
            if messages and (room_bytes < 0 or goes_alone(message)):
                again.append(message)
                break
            messages.append(message)
            self.puts_left -= 1
            if goes_alone(message):
                break
        return messages

    @staticmethod
    async def _within(node: Node, work: Callable[[], Awaitable[None]]) -> None:
        """Do something in a node's process, and return when it is done."""
        over = trio.Event()

        async def run() -> None:
            await work()
            over.set()

        node.start_soon(run)
        await over.wait()
