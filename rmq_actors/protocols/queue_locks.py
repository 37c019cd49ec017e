"""Which consumer of a group has locked a queue, to consume its messages in order (RebalanceLockManager)."""

from __future__ import annotations

from collections.abc import Iterable

import attrs

from rmq_actors.wire.bodies.message_queues import MessageQueue

#: How long a lock lives that its owner does not renew (rocketmq.broker.rebalance.lockMaxLiveTime).
LOCK_LIVES_S = 60.0
#: How many there are at most. One more is not given: its consumer asks again every 20 s, and others' expire.
LOCKS_MAX = 200_000
#: How much memory they may take in all: a peer's names are as long as it likes.
LOCKS_MAX_BYTES = 128 * 1024 * 1024
#: What a lock is counted with beside its names.
_LOCK_AROUND_BYTES = 256


@attrs.define(eq=False, repr=False)
class _Lock:
    client_id: str
    renewed_s: float
    size_bytes: int


@attrs.define(eq=False, repr=False)
class QueueLocks:
    """Locks by group and queue. Time is an argument, in seconds."""

    _locks: dict[str, dict[MessageQueue, _Lock]] = attrs.field(factory=dict, init=False)
    #: How many there are, and about how much memory they take.
    count: int = attrs.field(default=0, init=False)
    size_bytes: int = attrs.field(default=0, init=False)

    def try_lock(self, group: str, queues: Iterable[MessageQueue], client_id: str, now_s: float) -> list[MessageQueue]:
        """Lock or renew; those of `queues` that `client_id` has now."""
        locks = self._locks.setdefault(group, {})
        locked = []
        for queue in queues:
            lock = locks.get(queue)
            if lock is not None and lock.client_id != client_id and now_s - lock.renewed_s <= LOCK_LIVES_S:
                continue
            size_bytes = _size_bytes(group, queue, client_id)
            added, added_bytes = int(lock is None), size_bytes - (0 if lock is None else lock.size_bytes)
            if added and self.count >= LOCKS_MAX:
                continue
            if added_bytes > 0 and self.size_bytes + added_bytes > LOCKS_MAX_BYTES:
                continue
            self.count += added
            self.size_bytes += added_bytes
            locks[queue] = _Lock(client_id, now_s, size_bytes)
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
                self._forget(locks, queue)
        if not locks:
            self._locks.pop(group, None)

    def forget_expired(self, now_s: float) -> None:
        """Let go of locks that nobody renews: RocketMQ keeps them for ever."""
        for group, locks in list(self._locks.items()):
            for queue, lock in list(locks.items()):
                if now_s - lock.renewed_s > LOCK_LIVES_S:
                    self._forget(locks, queue)
            if not locks:
                del self._locks[group]

    def _forget(self, locks: dict[MessageQueue, _Lock], queue: MessageQueue) -> None:
        self.size_bytes -= locks.pop(queue).size_bytes
        self.count -= 1


def _size_bytes(group: str, queue: MessageQueue, client_id: str) -> int:
    return _LOCK_AROUND_BYTES + sum(map(_text_bytes, (group, queue.topic, queue.broker_name, client_id)))


def _text_bytes(text: str) -> int:
    return len(text) if text.isascii() else 4 * len(text)
