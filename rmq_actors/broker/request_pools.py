"""Where requests wait that are not answered in the step that reads them, by what they wait for."""

from __future__ import annotations

import attrs

from rmq_actors.actors.system import ActorSystem
from rmq_actors.remoting.processor import RequestPool
from rmq_actors.tracing.recorder import Tracer

_TABLE_QUEUE_CAPACITY = 10_000
_QUERY_WORKERS = 4
#: queryThreadPoolQueueCapacity.
_QUERY_QUEUE_CAPACITY = 20_000
#: adminBrokerThreadPoolNums.
_ASKING_WORKERS = 16
_ASKING_QUEUE_CAPACITY = 1_000
#: processReplyMessageThreadPoolNums and replyThreadPoolQueueCapacity. Workers wait for clients, not for a processor.
_REPLY_WORKERS = 48
_REPLY_QUEUE_CAPACITY = 10_000
#: endTransactionPoolQueueCapacity, and how long an end waits for its turn (waitTimeMillsInTransactionQueue).
_TRANSACTION_WORKERS = 16
_TRANSACTION_QUEUE_CAPACITY = 100_000
_TRANSACTION_WAIT_MS = 3_000


@attrs.frozen(eq=False)
class RequestPools:
    """The pools of one broker. Create with `make`."""

    #: For a topic or a group to become durable: one change after the other.
    table: RequestPool
    #: For an answer that takes long to find.
    query: RequestPool
    #: For the answer of a client, which is asked for what an operator wants to know.
    asking: RequestPool
    #: For the client that has asked another one with a message, until it has taken the reply.
    reply: RequestPool
    #: For a message that was just prepared to be seen.
    transactions: RequestPool

    @classmethod
    def make(cls, tracer: Tracer) -> RequestPools:
        """New pools; nothing runs yet."""
        return cls(
            RequestPool("BrokerTablePool", 1, _TABLE_QUEUE_CAPACITY, None, tracer),
            RequestPool("QueryMessagePool", _QUERY_WORKERS, _QUERY_QUEUE_CAPACITY, None, tracer),
            RequestPool("AskClientPool", _ASKING_WORKERS, _ASKING_QUEUE_CAPACITY, None, tracer),
            RequestPool("ReplyMessagePool", _REPLY_WORKERS, _REPLY_QUEUE_CAPACITY, None, tracer),
            RequestPool(
                "EndTransactionPool", _TRANSACTION_WORKERS, _TRANSACTION_QUEUE_CAPACITY, _TRANSACTION_WAIT_MS, tracer
            ),
        )

    def runtime_info(self) -> dict[str, str]:
        """The queues by RocketMQ's names (prepareRuntimeInfo).

        Sends and pulls are begun when they are read, and the log has one writer: none of them waits for a thread, or a
        lock. What sends wait for afterwards, a disk or a slave, is in the put latencies.
        """
        return {
            "sendThreadPoolQueueSize": "0",
            "sendThreadPoolQueueHeadWaitTimeMills": "0",
            "pullThreadPoolQueueSize": "0",
            "pullThreadPoolQueueHeadWaitTimeMills": "0",
            "queryThreadPoolQueueSize": str(self.query.queued),
            "queryThreadPoolQueueHeadWaitTimeMills": str(self.query.head_wait_ms()),
            "queryThreadPoolQueueCapacity": str(self.query.queue_capacity),
            "EndTransactionQueueSize": str(self.transactions.queued),
            "EndTransactionThreadPoolQueueCapacity": str(self.transactions.queue_capacity),
            "pageCacheLockTimeMills": "0",
        }

    async def start(self, system: ActorSystem) -> None:
        """Start all of them."""
        for pool in (self.table, self.query, self.asking, self.reply, self.transactions):
            await system.start(pool)
