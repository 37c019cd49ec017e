"""What changes when a group's members or a topic's queues change (RebalanceImpl): queues to give up and to take.

A consumer asks for the members every 20 s and when a broker says that they changed. It drops what is another's now
before it takes what is its own; with order it must have the broker's lock on a queue before it reads it.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence

import attrs

from rmq_actors.protocols.allocation import AllocateMessageQueueStrategy, sorted_ids, sorted_queues
from rmq_actors.wire.bodies.message_queues import MessageQueue

#: The rebalance's interval (rocketmq.client.rebalance.waitInterval), that of renewed locks, how long a lock counts at
#: the client without a renewal, and how old a pull may be before its queue is taken for stuck.
REBALANCE_INTERVAL_S = 20.0
REBALANCE_LOCK_INTERVAL_S = 20.0
REBALANCE_LOCK_MAX_LIVE_TIME_S = 30.0
PULL_MAX_IDLE_TIME_S = 120.0
#: How soon a consumer looks again for a topic that it lacks.
FIRST_LOOK_AGAIN_S = 1.0


@attrs.frozen
class RebalancePlan:
    """Do `remove` first: commit, then unlock. Then `add`: lock, then ask where to begin."""

    remove: Sequence[MessageQueue]
    add: Sequence[MessageQueue]

    @property
    def is_empty(self) -> bool:
        """Whether nothing changes."""
        return not self.remove and not self.add


@attrs.define(eq=False, repr=False)
class PausesForTopics:
    """When a consumer looks again for topics whose queues it could not find out: after 1 s, then after 2, 4 ... 20 s.

    Whatever else makes it look meanwhile neither shortens nor lengthens a pause. It begins with 1 s again when it lacks
    a topic that it did not lack before.
    """

    _lacked: frozenset[str] = attrs.field(default=frozenset(), init=False)
    _pause_s: float = attrs.field(default=FIRST_LOOK_AGAIN_S, init=False)
    _next_look_s: float = attrs.field(default=math.inf, init=False)

    def next_look_s(self, lacked: Collection[str], now_s: float) -> float:
        """When to look the next time, after a look at `now_s` that left these topics; inf if it left none."""
        if not self._lacked.issuperset(lacked):
            self._pause_s = FIRST_LOOK_AGAIN_S
            self._next_look_s = now_s + self._pause_s
        elif now_s >= self._next_look_s:
            self._pause_s = min(2 * self._pause_s, REBALANCE_INTERVAL_S)
            self._next_look_s = now_s + self._pause_s
        self._lacked = frozenset(lacked)
        return self._next_look_s if self._lacked else math.inf


def assigned_queues(
    strategy: AllocateMessageQueueStrategy,
    consumer_group: str,
    client_id: str,
    queues: Iterable[MessageQueue],
    client_ids: Iterable[str],
) -> list[MessageQueue]:
    """A consumer's share, each queue once. Raises what a strategy raises for nothing to share."""
    mq_all, cid_all = sorted_queues(queues), sorted_ids(client_ids)
    return list(dict.fromkeys(strategy.allocate(consumer_group, client_id, mq_all, cid_all)))


def plan_rebalance(
    topic: str,
    assigned: Collection[MessageQueue],
    held: Mapping[MessageQueue, float],
    now_s: float,
) -> RebalancePlan:
    """What to give up and to take of one topic. `held`: each queue of the consumer, and when it was pulled last.

    A queue without a pull for 120 s is given up and taken again: something has stopped its pulls. -inf is the time of
    one that could not be given up when that was tried last.
    """
    wanted = set(assigned)
    mine = {queue: pulled_s for queue, pulled_s in held.items() if queue.topic == topic}
    remove = [
        queue for queue, pulled_s in mine.items() if queue not in wanted or now_s - pulled_s > PULL_MAX_IDLE_TIME_S
    ]
    kept = mine.keys() - set(remove)
    return RebalancePlan(remove, [queue for queue in dict.fromkeys(assigned) if queue not in kept])


def queues_of_other_topics(topics: Collection[str], held: Iterable[MessageQueue]) -> list[MessageQueue]:
    """What is held of topics that are not subscribed any more (truncateMessageQueueNotMyTopic)."""
    return [queue for queue in held if queue.topic not in topics]


def by_broker_name(queues: Iterable[MessageQueue]) -> dict[str, list[MessageQueue]]:
    """Queues by broker: locks are asked for one broker at a time."""
    found: dict[str, list[MessageQueue]] = {}
    for queue in queues:
        found.setdefault(queue.broker_name, []).append(queue)
    return found
