"""The clients of a run: they put messages to the broker that is the master, and put refused ones again."""

from __future__ import annotations

import functools
from collections.abc import Iterable

import attrs
import trio

from rmq_actors.broker.broker_controller import BrokerController
from rmq_actors.protocols.put_completion import PutStatus
from rmq_actors.store.puts.message_puts import PendingPut
from rmq_actors.testing.brokers import BrokersUnderTest
from rmq_actors.testing.sim_brokers import Beside
from rmq_actors.wire.record import Message
from sim_net import Node

CHAOS_TOPIC = "Chaos"
#: A topic that each broker has from its first start.
TOPIC_OF_ALL = "BenchmarkTest"
#: How many writers there are, each of which has a queue of its own.
WRITERS = 2
LOOK_EVERY_S = 0.1
#: The pause before a refused message is put again.
PUT_AGAIN_S = 0.5
LAST_BODY = b"the last one"


@attrs.define(eq=False, repr=False)
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
            for number in range(WRITERS):
                yield functools.partial(self._write, number)

    def put_once_more(self) -> None:
        """Let at least one more message be put."""
        self.puts_left = max(1, self.puts_left)

    def is_put_to(self, broker: BrokerController, name: str) -> bool:
        """Whether messages are put to that broker."""
        return not broker.config.is_slave and (self.brokers.keeps_files or self.brokers.is_configured_master(name))

    def boot(self) -> None:
        """Start what has a machine of its own."""

    def start(self, nursery: trio.Nursery) -> None:
        """Start what goes on for the whole run, and is of no machine."""

    async def stop(self) -> None:
        """Stop what has a machine of its own."""

    @property
    def are_done(self) -> bool:
        """Whether nothing of theirs is left to be ended, once all was put."""
        return True

    def has_let_go(self, name: str) -> bool:
        """Whether nothing is under way to that broker, which runs, that would still be stored there."""
        return True

    def has_all_delayed(self, broker: BrokerController) -> bool:
        """Whether a master has delivered every delayed message."""
        return True

    async def put_last(self, name: str) -> tuple[PutStatus, int]:
        """Put one message to that broker: how that ended, and an offset that its log must reach."""
        result = await self.brokers.broker(name).put_message(Message(CHAOS_TOPIC, LAST_BODY))
        return result.status, 0 if result.append is None else result.append.end_offset

    async def read_all(self, name: str) -> None:
        """Read every message of that broker, if clients read."""

    async def _write(self, number: int, broker: BrokerController, node: Node) -> None:
        workload = self.brokers.workload
        while self.puts_left > 0 or self.brokers.changes_roles:
            if not self.is_put_to(broker, node.name) or not self.may_write or self.puts_left <= 0:
                await trio.sleep(LOOK_EVERY_S)  # clients learn of another master by asking
                continue
            pending = [self._put(broker, node, number) for _ in range(min(workload.in_flight, self.puts_left))]
            results = [put.result or await put.wait() for put in pending]
            refused = sum(result.append is None for result in results)
            self.puts_left += refused  # clients put again what a full disk, say, has refused
            await trio.sleep(PUT_AGAIN_S if refused else node.entropy.random() * workload.pause_s)

    def _put(self, broker: BrokerController, node: Node, queue_id: int) -> PendingPut:
        self.puts_left -= 1
        body = self._body(node)
        return broker.async_put_message(Message(CHAOS_TOPIC, body, queue_id, {"KEYS": f"{self.puts_left}"}))

    def _body(self, node: Node) -> bytes:
        workload, entropy = self.brokers.workload, node.entropy
        return entropy.token_bytes(1 + int(entropy.random() ** workload.body_skew * workload.body_bytes_max))
