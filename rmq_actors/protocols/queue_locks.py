"""Which consumer of a group has locked a queue, to consume its messages in order (RebalanceLockManager)."""

from __future__ import annotations

from collections.abc import Iterable

import attrs

from rmq_actors.wire.bodies.message_queues import MessageQueue

#: How long a lock lives that its owner does not renew (rocketmq.broker.rebalance.lockMaxLiveTime).
LOCK_LIVES_S = 60.0
#: How many there are at most. One more is not given: its consumer asks again every 20 s, and others' expire.
LOCKS_MAX = 200_000


@attrs.define(eq=False)
class _Lock:
    client_id: str
    renewed_s: float


@attrs.define(eq=False)
class QueueLocks:
    """Locks by group and queue. Time is an argument, in seconds."""

    _locks: dict[str, dict[MessageQueue, _Lock]] = attrs.field(factory=dict, init=False)
    #: How many there are.
    count: int = attrs.field(default=0, init=False)

    def try_lock(self, group: str, queues: Iterable[MessageQueue], client_id: str, now_s: float) -> list[MessageQueue]:
        """Lock or renew; those of `queues` that `client_id` has now."""
        locks = self._locks.setdefault(group, {})
        locked = []
        for queue in queues:
            lock = locks.get(queue)
            if lock is None:
                if self.count >= LOCKS_MAX:
                    continue
                self.count += 1
            if lock is None or lock.client_id == client_id or now_s - lock.renewed_s > LOCK_LIVES_S:
                locks[queue] = _Lock(client_id, now_s)
                locked.append(queue)
        if not locks:
            del self._locks[group]
        return locked

    def unlock(self, group: str, queues: Iterable[MessageQueue], client_id: str) -> None:
        """Unlock; another client's lock stays."""
        locks = self._locks.get(group, {})
        for queue in queues:
            lock = locks.get(queue)
            if lock is not None and lock.client_id == client_id:
                del locks[queue]
                self.count -= 1
        if not locks:
            self._locks.pop(group, None)

    def forget_expired(self, now_s: float) -> None:
        """Let go of locks that nobody renews: RocketMQ keeps them for ever."""
        for group, locks in list(self._locks.items()):
            for queue, lock in list(locks.items()):
                if now_s - lock.renewed_s > LOCK_LIVES_S:
                    del locks[queue]
                    self.count -= 1
            if not locks:
                del self._locks[group]
