"""Locks of queues: what is counted, and that there are no more than may be."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmq_actors.protocols import queue_locks
from rmq_actors.protocols.queue_locks import LOCK_LIVES_S, QueueLocks
from rmq_actors.wire.bodies.message_queues import MessageQueue


def queues(*numbers: int) -> list[MessageQueue]:
    return [MessageQueue(broker_name="b", queue_id=number, topic="T") for number in numbers]


def test_where_there_are_too_many_no_new_one_is_given(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(queue_locks, "LOCKS_MAX", 2)
    locks = QueueLocks()
    assert locks.try_lock("G", queues(0, 1, 2), "c", 0) == queues(0, 1)
    assert locks.try_lock("H", queues(0), "d", 0) == []
    assert locks.try_lock("G", queues(0, 1), "c", 1) == queues(0, 1)  # they are renewed
    locks.unlock("G", queues(1), "c")
    assert locks.try_lock("H", queues(0), "d", 2) == queues(0)
    locks.forget_expired(2 + LOCK_LIVES_S)
    assert locks.count == 1
    assert locks.try_lock("H", queues(0, 1), "e", 2 + LOCK_LIVES_S) == queues(1)


def test_where_locks_take_too_much_memory_no_new_one_is_given(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(queue_locks, "LOCKS_MAX_BYTES", 2000)
    locks = QueueLocks()
    (long,) = [MessageQueue(broker_name="b" * 1000, queue_id=0, topic="T")]
    assert locks.try_lock("G", [long, *queues(0)], "c", 0) == [long, *queues(0)]
    assert locks.try_lock("H", [long], "d", 0) == []
    assert locks.try_lock("G", [long], "c", 1) == [long]  # it is renewed
    assert locks.try_lock("G", [long], "c" * 1000, 2 + LOCK_LIVES_S) == []  # a longer owner's
    locks.unlock("G", [long], "c")
    assert locks.try_lock("H", [long], "d", 2) == [long]
    locks.forget_expired(3 + LOCK_LIVES_S)
    assert locks.size_bytes == locks.count == 0


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["lock", "unlock", "expire"]),
            st.sampled_from("GH"),
            st.lists(st.integers(0, 3), max_size=3),
            st.sampled_from(["c", "longer"]),
            st.floats(0, 2 * LOCK_LIVES_S),
        )
    )
)
def test_what_is_counted_is_what_there_is(steps: list[tuple[str, str, list[int], str, float]]) -> None:
    locks, now_s = QueueLocks(), 0.0
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(queue_locks, "LOCKS_MAX", 4)
        for step, group, numbers, client, passes_s in steps:
            now_s += passes_s
            if step == "lock":
                locks.try_lock(group, queues(*numbers), client, now_s)
            elif step == "unlock":
                locks.unlock(group, queues(*numbers), client)
            else:
                locks.forget_expired(now_s)
            assert locks.count == sum(map(len, locks._locks.values())) <= 4
            kept = [lock for of_group in locks._locks.values() for lock in of_group.values()]
            assert locks.size_bytes == sum(lock.size_bytes for lock in kept)
            assert all(locks._locks.values())
