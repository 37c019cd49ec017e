"""The clients of a run: they put messages to the broker that is the master, and put refused ones again."""

from __future__ import annotations

import functools
from collections.abc import Iterable

import attrs
import trio

from rmq_actors.broker.broker_controller import BrokerController
from rmq_actors.store.puts.message_puts import PendingPut
from rmq_actors.testing.brokers import BrokersUnderTest
from rmq_actors.testing.sim_brokers import Beside
from rmq_actors.wire.record import Message
from sim_net import Node

_WRITERS = 2
_LOOK_EVERY_S = 0.1
#: The pause before a refused message is put again.
_PUT_AGAIN_S = 0.5


@attrs.define(eq=False)
class Writers:
    """Two writers at each node; those at the master put what is left of `puts_left` messages."""

    brokers: BrokersUnderTest
    puts_left: int = attrs.field(init=False)
    #: Whether an operator lets them put.
    may_write: bool = attrs.field(default=True, init=False)

    def __attrs_post_init__(self) -> None:
        self.puts_left = self.brokers.workload.puts

    def beside(self, name: str) -> Iterable[Beside]:
        """The writers at a node. If roles do not change, only the master has any."""
        if self.brokers.changes_roles or name == self.brokers.master:
            for number in range(_WRITERS):
                yield functools.partial(self._write, number)

    def put_once_more(self) -> None:
        """Let at least one more message be put."""
        self.puts_left = max(1, self.puts_left)

    async def _write(self, number: int, broker: BrokerController, node: Node) -> None:
        workload, brokers = self.brokers.workload, self.brokers
        while self.puts_left > 0 or self.brokers.changes_roles:
            is_master = not broker.config.is_slave and (brokers.keeps_files or brokers.is_configured_master(node.name))
            if not is_master or not self.may_write or self.puts_left <= 0:
                await trio.sleep(_LOOK_EVERY_S)  # clients learn of another master by asking
                continue
            pending = [self._put(broker, node, number) for _ in range(min(workload.in_flight, self.puts_left))]
            results = [put.result or await put.wait() for put in pending]
            refused = sum(result.append is None for result in results)
            self.puts_left += refused  # clients put again what a full disk, say, has refused
            await trio.sleep(_PUT_AGAIN_S if refused else node.entropy.random() * workload.pause_s)

    def _put(self, broker: BrokerController, node: Node, queue_id: int) -> PendingPut:
        self.puts_left -= 1
        workload = self.brokers.workload
        body = node.entropy.token_bytes(1 + int(node.entropy.random() ** workload.body_skew * workload.body_bytes_max))
        return broker.async_put_message(Message("Chaos", body, queue_id, {"KEYS": f"{self.puts_left}"}))
