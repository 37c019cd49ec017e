"""What a test or a program does with a cluster of brokers, in a simulated world as on real sockets and files.

A function of a `Cluster` runs in both: `open_cluster` gives it one of this process, `testing.SimCluster` one of a
world. Brokers go by their names. If one kind of cluster cannot do something, it refuses (`Unsupported`) before anything
happens.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Protocol

import attrs

from rmq_actors.client.admin import Admin
from rmq_actors.client.config import ClientConfig, ProducerConfig
from rmq_actors.client.consumer_config import PullConsumerConfig, PushConsumerConfig
from rmq_actors.client.message_listener import MessageListener
from rmq_actors.client.producer import Producer
from rmq_actors.client.pull_consumer import PullConsumer
from rmq_actors.client.push_consumer import PushConsumer
from rmq_actors.client.transactions import TransactionListener
from rmq_actors.store.config import BrokerRole
from rmq_actors.store.puts.message_puts import PutResult
from rmq_actors.wire.record import Message, StoredMessage


class Unsupported(Exception):
    """This kind of cluster cannot do that; the message says which kind can."""


class BrokerDown(Exception):
    """The broker is not running, or died before it answered."""


class ExchangeFailed(Exception):
    """Two brokers did not exchange their roles; the message says why, and so which is the master now."""


@attrs.frozen
class BrokerStatus:
    """What a running broker says about itself. Offsets are bytes in its commit log."""

    role: BrokerRole
    #: The greatest term of replication that it has seen.
    term: int
    min_offset: int
    max_offset: int
    flushed_offset: int
    #: How many slaves are connected to it.
    slaves: int
    #: Whether a slave follows its master now, and why it has halted, if it has.
    is_following: bool
    halted: str | None


class Cluster(Protocol):
    """Masters and their slaves by name. A call to a broker that is down, or dies meanwhile, raises `BrokerDown`."""

    @property
    def follows(self) -> Mapping[str, str | None]:
        """Every broker by name, and which one it is configured to follow, None for a master."""

    @property
    def running(self) -> Sequence[str]:
        """The names of the brokers that run now, in the order of `follows`."""

    async def start(self, name: str) -> None:
        """Start a broker that is down; return when it runs. Raises `ValueError` if it does."""

    async def stop(self, name: str) -> None:
        """Stop a broker in order."""

    async def kill(self, name: str) -> None:
        """End a broker as kill -9 does: what it has written stays, synced or not."""

    async def restart(self, name: str) -> None:
        """Kill a broker if it runs, and start it."""

    async def power_loss(self, name: str) -> None:
        """Take a broker's power: what its disk has not synced is lost, in part or whole. Simulated clusters only."""

    def pause(self, name: str) -> None:
        """Let a broker take no more steps, as in a long garbage collection. Simulated clusters only."""

    def resume(self, name: str) -> None:
        """Let it go on."""

    def partition(self, a: str, b: str) -> None:
        """Let nothing pass between two brokers. Simulated clusters only."""

    def heal(self) -> None:
        """End every partition."""

    async def promote(self, name: str) -> None:
        """Make a slave the master: it leads, and the others of its group that run follow it, the old master too.

        This is for an operator who has lost a master. What the slave lacks is lost. Use `exchange` for healthy brokers.
        Brokers that are down follow it once they are started.
        """

    async def exchange(self, name: str, *, limit_s: float = 30.0) -> None:
        """Exchange the roles of a slave and its master, with nothing lost. Raises `ExchangeFailed`."""

    async def put(self, message: Message, *, to: str | None = None) -> PutResult:
        """Put a message to a master, by default to the only one, and wait for its answer."""

    def messages(self, name: str) -> list[StoredMessage]:
        """Every message of a running broker's commit log, in its order."""

    def status(self, name: str) -> BrokerStatus:
        """What a running broker says about itself."""

    def producer(
        self,
        producer_group: str | ProducerConfig = "cluster-producers",
        *,
        transaction_listener: TransactionListener | None = None,
        config: ClientConfig | None = None,
    ) -> AbstractAsyncContextManager[Producer]:
        """A producer on a machine of its own, for the length of a block. The cluster must have a name server.

        Of `config`, the client's settings, all count but for addresses.
        """

    def consumer(
        self,
        consumer_group: str | PullConsumerConfig,
        subscriptions: Mapping[str, str] | None = None,
        *,
        config: ClientConfig | None = None,
    ) -> AbstractAsyncContextManager[PullConsumer]:
        """A pull consumer, likewise: see `open_pull_consumer`."""

    def push_consumer(
        self,
        consumer_group: str | PushConsumerConfig,
        subscriptions: Mapping[str, str],
        listener: MessageListener,
        *,
        config: ClientConfig | None = None,
    ) -> AbstractAsyncContextManager[PushConsumer]:
        """A push consumer, likewise: see `open_push_consumer`."""

    def admin(self, *, config: ClientConfig | None = None) -> AbstractAsyncContextManager[Admin]:
        """An administrator's client, likewise."""

    async def wait_until_connected(self, timeout_s: float = 30.0) -> None:
        """Return when every slave follows, and every master serves its own.

        Raises `trio.TooSlowError`, which says who does not.
        """

    async def wait_until_replicated(self, timeout_s: float = 30.0) -> None:
        """Return when every running slave has all that its master had at the call.

        Raises `trio.TooSlowError`, which says what is lacking.
        """
