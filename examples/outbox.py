"""A transactional outbox: an order is in the database and published, or neither, whatever dies in between.

The half message is stored first, and consumers do not see it. Then the order is written to SQLite, with the id of the
transaction in the same commit. If the program dies before it has told the broker how that ended, the broker asks any
process of the group, which looks whether the id is there.

Run it: pip install rmq-actors, then python examples/outbox.py
"""

from __future__ import annotations

import sqlite3

import attrs

from rmq_actors import (
    Cluster,
    ConsumeFromWhere,
    LocalTransactionState,
    Message,
    PullConsumerConfig,
    StoredMessage,
)
from rmq_actors.testing import SimCluster

COMMIT, ROLLBACK = LocalTransactionState.COMMIT_MESSAGE, LocalTransactionState.ROLLBACK_MESSAGE


@attrs.frozen
class Orders:
    """The service's database, and how it answers for its transactions (a `TransactionListener`)."""

    database: sqlite3.Connection

    def make_tables(self) -> None:
        """Each order, and the transactions that have committed."""
        self.database.execute("CREATE TABLE orders (what TEXT)")
        self.database.execute("CREATE TABLE outbox (transaction_id TEXT PRIMARY KEY)")

    async def execute_local_transaction(
        self, message: Message, transaction_id: str, argument: object
    ) -> LocalTransactionState:
        """Write the order: one commit for it and for the transaction's id."""
        what = message.body.decode()
        if what == "too much":
            return ROLLBACK
        with self.database:
            self.database.execute("INSERT INTO orders VALUES (?)", (what,))
            self.database.execute("INSERT INTO outbox VALUES (?)", (transaction_id,))
        if what == "tea":
            raise RuntimeError("the service dies before the broker is told")
        return COMMIT

    async def check_local_transaction(self, message: StoredMessage, transaction_id: str) -> LocalTransactionState:
        """The broker has not heard how a transaction ended, and asks."""
        found = self.database.execute("SELECT 1 FROM outbox WHERE transaction_id = ?", (transaction_id,)).fetchone()
        print(f"the broker asks about {message.body.decode()}: {'written' if found else 'not written'}")
        return COMMIT if found else ROLLBACK


async def order(cluster: Cluster) -> None:
    """Three orders: one goes well, one is refused by the service, one is written before the service dies."""
    orders = Orders(sqlite3.connect(":memory:"))
    orders.make_tables()
    async with cluster.producer("order-service", transaction_listener=orders) as producer:
        for what in ("coffee", "too much", "tea"):
            try:
                result = await producer.send_in_transaction(Message("Orders", what.encode()))
                print(f"{what}: {result.local_transaction_state.name}")
            except RuntimeError as error:
                print(f"{what}: {error}")
        config = PullConsumerConfig("kitchen", consume_from_where=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET)
        async with cluster.consumer(config, {"Orders": "*"}) as consumer:
            published = {(await anext(consumer)).body.decode() for _ in range(2)}
            await consumer.commit()
    written = {what for (what,) in orders.database.execute("SELECT what FROM orders")}
    print(f"written: {', '.join(sorted(written))}; published: {', '.join(sorted(published))}")


if __name__ == "__main__":
    # A broker asks after a minute, which takes no time in a simulated world. The service is the same on real sockets:
    # `open_producer(name_servers, "order-service", transaction_listener=orders)`.
    SimCluster({"master": None, "slave": "master"}, name_server=True).run(order)
