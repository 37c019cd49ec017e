"""What the fixtures of the pytest plugin give to tests: a cluster and a store, which run in threads of their own.

A test may be a plain function, or run in Trio, in asyncio or in anyio: it talks to a broker by its address, as a
service does, and to these objects by calls that block for some milliseconds, or by `aput` and `thread.arun`.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

import attrs

from rmq_actors.embedding.cluster import CLUSTER_STORE, RealCluster, open_cluster
from rmq_actors.embedding.local_store import open_message_store
from rmq_actors.embedding.trio_thread import TrioThread, open_in_thread
from rmq_actors.settings.argument_checks import checked
from rmq_actors.store.config import BrokerRole
from rmq_actors.store.message_store import MessageStore
from rmq_actors.store.puts.message_puts import PutResult
from rmq_actors.wire.record import Message, StoredMessage


@attrs.frozen(eq=False)
class ClusterFixture:
    """A cluster with a name server. Call `cluster`'s own methods by `thread` alone: they belong to its Trio."""

    cluster: RealCluster
    thread: TrioThread

    @property
    def name_server_address(self) -> str:
        """The namesrvAddr that a RocketMQ client needs: "host:port"."""
        address = self.cluster.name_server_address
        assert address is not None
        return address

    def put(self, message: Message) -> PutResult:
        """Put a message to the master, and block until it is answered: the slave has it."""
        return self.thread.run(self.cluster.put, message)

    async def aput(self, message: Message) -> PutResult:
        """The same from a task of Trio or asyncio."""
        return await self.thread.arun(self.cluster.put, message)

    def messages(self, name: str = "master") -> list[StoredMessage]:
        """Every message in the log of a broker, in its order: "master" or "slave-1"."""
        return self.thread.run_sync(self.cluster.messages, name)

    def kill(self, name: str) -> None:
        """End a broker as kill -9 does."""
        self.thread.run(self.cluster.kill, name)

    def start(self, name: str) -> None:
        """Start a broker again."""
        self.thread.run(self.cluster.start, name)

    def promote(self, name: str) -> None:
        """Make the slave the master."""
        self.thread.run(self.cluster.promote, name)


@attrs.frozen(eq=False)
class StoreFixture:
    """A message store. Call `store`'s own methods by `thread` alone: they belong to its Trio."""

    store: MessageStore
    thread: TrioThread

    @checked
    def put(self, message: Message) -> PutResult:
        """Put a message, and block until it is answered."""
        return self.thread.run(self.store.puts.put_message, message)

    @checked
    async def aput(self, message: Message) -> PutResult:
        """The same from a task of Trio or asyncio."""
        return await self.thread.arun(self.store.puts.put_message, message)


@contextlib.contextmanager
def open_cluster_fixture(directory: Path) -> Iterator[ClusterFixture]:
    """A name server, a master and a slave that follows it when the block begins."""
    with open_in_thread(lambda: open_cluster(directory, slaves=1, name_server=True)) as (cluster, thread):
        yield ClusterFixture(cluster, thread)


@contextlib.contextmanager
def open_store_fixture(directory: Path) -> Iterator[StoreFixture]:
    """A new store, with small files, whose puts wait for no slave."""
    config = attrs.evolve(CLUSTER_STORE, broker_role=BrokerRole.ASYNC_MASTER)
    with open_in_thread(lambda: open_message_store(directory, config)) as (store, thread):
        yield StoreFixture(store, thread)
