"""What a pull consumer commits never passes a message that no call has given, whatever calls and queues do."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import attrs
import trio
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test

from rmq_actors.client.found_messages import FoundMessages
from rmq_actors.client.held_queue import HeldQueue
from rmq_actors.client.message_ext import MessageExt
from rmq_actors.protocols.process_queue import ProcessQueue
from rmq_actors.wire.bodies.message_queues import MessageQueue

QUEUES = [MessageQueue(topic="T", broker_name="broker-a", queue_id=number) for number in range(2)]
WHICH = st.integers(0, len(QUEUES) - 1)


@attrs.frozen
class M:
    queue_id: int
    queue_offset: int
    body: bytes = b""


class FoundMessagesModel(RuleBasedStateMachine):
    """Each rule is a step of Trio's, between which anything else may happen."""

    def __init__(self) -> None:
        super().__init__()
        self.found = FoundMessages()
        self.committed = dict.fromkeys(QUEUES, 0)
        self.given: dict[MessageQueue, set[int]] = {queue: set() for queue in QUEUES}
        self.taken: list[M] | None = None
        self.held = {queue: self.hold(queue) for queue in QUEUES}

    def hold(self, queue: MessageQueue) -> HeldQueue:
        return HeldQueue(queue, ProcessQueue(last_pull_s=0.0), self.committed[queue])

    def note_consumed(self) -> None:
        for held, offset in consumed(self.found).items():
            assert held is self.held[held.queue]
            self.committed[held.queue] = offset

    @rule(which=WHICH, count=st.integers(1, 5))
    def messages_come(self, which: int, count: int) -> None:
        held = self.held[QUEUES[which]]
        messages = [M(which, held.next_offset + number) for number in range(count)]
        held.next_offset += count
        held.process_queue.put_messages(cast("Sequence[MessageExt]", messages))
        self.found.add(held, cast("Sequence[MessageExt]", messages))

    @precondition(lambda self: self.taken is None)
    @rule(count=st.integers(1, 4))
    def a_call_takes(self, count: int) -> None:
        self.note_consumed()
        self.taken = cast("list[M]", self.found.take(count))

    @precondition(lambda self: self.taken is not None)
    @rule()
    def it_returns(self) -> None:
        assert self.taken is not None
        for message in self.taken:
            self.given[QUEUES[message.queue_id]].add(message.queue_offset)
        self.taken = None
        self.found.end_call()
        self.found.give_back()

    @precondition(lambda self: self.taken is not None)
    @rule()
    def it_is_cancelled(self) -> None:
        self.taken = None
        self.found.give_back()

    @rule()
    def somebody_commits(self) -> None:
        self.note_consumed()

    @rule(which=WHICH)
    def a_queue_goes_and_comes_back(self, which: int) -> None:
        queue = QUEUES[which]
        self.held[queue].process_queue.dropped = True
        self.held[queue] = self.hold(queue)

    @invariant()
    def what_is_committed_was_given(self) -> None:
        for queue, offset in self.committed.items():
            assert set(range(offset)) <= self.given[queue]

    def teardown(self) -> None:
        """In the end everything that came is given, each queue in its order."""
        if self.taken is not None:
            self.it_is_cancelled()
        self.note_consumed()
        last = dict(self.committed)
        for message in cast("list[M]", self.found.take(10_000)):
            queue = QUEUES[message.queue_id]
            assert message.queue_offset == last[queue]
            last[queue] += 1
        assert last == {queue: held.next_offset for queue, held in self.held.items()}


def consumed(found: FoundMessages) -> dict[HeldQueue, int]:
    """In Trio, whose time it needs."""

    async def there() -> dict[HeldQueue, int]:
        return found.consumed()

    return trio.run(there)


def test_what_is_committed_was_given_and_everything_is_given_in_the_end() -> None:
    run_state_machine_as_test(FoundMessagesModel)
