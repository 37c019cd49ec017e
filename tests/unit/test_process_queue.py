"""The messages of one queue that wait to be consumed: what may be committed, with and without order."""

from __future__ import annotations

import attrs
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from rmq_actors.protocols.process_queue import ProcessQueue


@attrs.frozen
class M:
    queue_offset: int
    body: bytes = b"xy"


def messages(*offsets: int) -> list[M]:
    return [M(offset) for offset in offsets]


def process_queue(*offsets: int) -> ProcessQueue[M]:
    queue = ProcessQueue[M](last_pull_s=0.0)
    queue.put_messages(messages(*offsets))
    return queue


def test_the_lowest_message_that_is_not_consumed_holds_the_offset_back() -> None:
    queue = process_queue(5, 6, 7)
    assert queue.remove_messages(messages(6), 1.0) == 5
    assert queue.remove_messages(messages(5), 1.0) == 7
    assert queue.remove_messages(messages(7), 1.0) == 8


def test_after_the_last_one_the_offset_is_that_after_the_highest_that_was_pulled() -> None:
    queue = process_queue(5, 9)
    assert queue.remove_messages(messages(9), 1.0) == 5
    assert queue.remove_messages(messages(5), 1.0) == 10


def test_where_nothing_is_there_is_nothing_to_commit() -> None:
    assert process_queue().remove_messages(messages(1), 1.0) == -1
    assert process_queue().commit() == -1


def test_a_message_that_is_pulled_again_counts_once() -> None:
    queue = process_queue(1, 2)
    assert queue.put_messages(messages(2, 3)) == 1
    assert (queue.message_count, queue.size_bytes, queue.max_span) == (3, 6, 2)


def test_with_order_what_is_taken_counts_until_it_is_committed() -> None:
    queue = process_queue(4, 5, 6)
    assert queue.take_messages(2, 1.0) == messages(4, 5)
    assert (queue.message_count, queue.bounds, queue.consuming_bounds) == (3, (6, 6), (2, 4, 5))
    assert queue.commit() == 6
    assert (queue.message_count, queue.size_bytes) == (1, 2)


def test_with_order_what_is_to_be_consumed_again_comes_first() -> None:
    queue = process_queue(4, 5, 6)
    taken = queue.take_messages(2, 1.0)
    queue.make_to_consume_again(taken)
    assert queue.take_messages(3, 1.0) == messages(4, 5, 6)
    queue.rollback()
    assert queue.consuming_bounds == (0, 0, 0)
    assert queue.take_messages(1, 1.0) == messages(4)


def test_a_lock_counts_for_30_s_after_it_was_granted() -> None:
    queue = process_queue()
    queue.last_lock_s = 10.0
    assert not queue.is_lock_expired(40.0)
    assert queue.is_lock_expired(40.1)


def test_an_offset_that_is_reset_forgets_all() -> None:
    queue = process_queue(4, 5)
    queue.take_messages(1, 1.0)
    queue.clear()
    assert (queue.message_count, queue.size_bytes, queue.max_span, queue.has_waiting) == (0, 0, 0, False)


class AgainstADictionary(RuleBasedStateMachine):
    """The same calls on a process queue and on dictionaries."""

    def __init__(self) -> None:
        super().__init__()
        self.queue = ProcessQueue[M](last_pull_s=0.0)
        self.waiting: dict[int, M] = {}
        self.taken: dict[int, M] = {}
        self.highest = 0

    @rule(offsets=st.lists(st.integers(0, 30), max_size=5), size=st.integers(0, 3))
    def put(self, offsets: list[int], size: int) -> None:
        new = [M(offset, bytes(size)) for offset in dict.fromkeys(offsets) if offset not in self.taken]
        new = [self.waiting.get(each.queue_offset, each) for each in new]
        for each in new:
            if each.queue_offset not in self.waiting:
                self.highest = each.queue_offset
            self.waiting[each.queue_offset] = each
        self.queue.put_messages(new)

    @rule(offsets=st.lists(st.integers(0, 30), max_size=5))
    def remove(self, offsets: list[int]) -> None:
        was_empty = not self.waiting
        for offset in offsets:
            self.waiting.pop(offset, None)
        expected = -1 if was_empty else min(self.waiting, default=self.highest + 1)
        assert self.queue.remove_messages(messages(*offsets), 0.0) == expected

    @rule(count=st.integers(0, 4))
    def take(self, count: int) -> None:
        first = sorted(self.waiting)[:count]
        assert self.queue.take_messages(count, 0.0) == [self.waiting[offset] for offset in first]
        self.taken.update((offset, self.waiting.pop(offset)) for offset in first)

    @precondition(lambda self: self.taken)
    @rule(back=st.booleans())
    def end(self, back: bool) -> None:
        if back:
            self.queue.rollback()
            self.waiting.update(self.taken)
        else:
            assert self.queue.commit() == max(self.taken) + 1
        self.taken = {}

    @invariant()
    def they_agree(self) -> None:
        both = [*self.waiting.values(), *self.taken.values()]
        assert self.queue.message_count == len(both)
        assert self.queue.size_bytes == sum(len(each.body) for each in both)
        span = max(self.waiting) - min(self.waiting) if self.waiting else 0
        assert self.queue.max_span == span


TestAgainstADictionary = AgainstADictionary.TestCase


@given(st.permutations(range(12)))
def test_no_offset_is_committed_beyond_a_message_that_is_not_consumed(order: list[int]) -> None:
    queue, left = process_queue(*range(12)), set(range(12))
    for offset in order:
        left.discard(offset)
        assert queue.remove_messages(messages(offset), 0.0) == min(left, default=12)
