"""Offsets of a group that are kept at brokers: what is told, and when it is looked up."""

from __future__ import annotations

from typing import cast

import attrs
import trio
import trio.testing

from rmq_actors.client.client_error import ClientTimeout
from rmq_actors.client.consumer_requests import ConsumerRequests
from rmq_actors.client.offset_store import RemoteBrokerOffsetStore
from rmq_actors.wire.bodies.message_queues import MessageQueue

FIRST, SECOND = (MessageQueue(topic="Orders", broker_name="a", queue_id=number) for number in range(2))


@attrs.define(eq=False)
class _Brokers:
    """Note what is committed; each request takes a second."""

    group: str = "G"
    silent: str = ""
    committed: dict[MessageQueue, int] = attrs.field(factory=dict)

    async def update_consumer_offset(self, queue: MessageQueue, offset: int, deadline_s: float) -> None:
        if queue.broker_name == self.silent:
            await trio.sleep_until(deadline_s)
            raise ClientTimeout("no answer")
        self.committed[queue] = offset
        await trio.sleep(1)


def test_an_offset_that_is_reset_while_others_are_committed_is_not_overwritten() -> None:
    brokers = _Brokers()
    store = RemoteBrokerOffsetStore(cast("ConsumerRequests", brokers))

    async def main() -> None:
        for queue in (FIRST, SECOND):
            store.table.update_offset(queue, 8, increase_only=False)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(store.persist, [FIRST, SECOND])
            await trio.sleep(0.5)
            store.table.update_offset(SECOND, 0, increase_only=False)
            await store.persist([SECOND])

    trio.run(main, clock=trio.testing.MockClock(autojump_threshold=0))
    assert brokers.committed == {FIRST: 8, SECOND: 0}


def test_a_silent_broker_holds_up_no_other_and_is_waited_for_once() -> None:
    brokers = _Brokers(silent="b")
    store = RemoteBrokerOffsetStore(cast("ConsumerRequests", brokers))
    queues = [MessageQueue(topic="Orders", broker_name=name, queue_id=number) for number in range(4) for name in "ba"]

    async def main() -> None:
        for queue in queues:
            store.table.update_offset(queue, 8, increase_only=False)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(store.persist, queues)
            await trio.sleep(4.5)
            assert len(brokers.committed) == 4
        assert trio.current_time() - began_s < 6

    began_s = 0.0
    trio.run(main, clock=trio.testing.MockClock(autojump_threshold=0))
