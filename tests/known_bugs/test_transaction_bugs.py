"""RocketMQ's reported bugs of transactions, each with the number of its report."""

from __future__ import annotations

import pytest
import trio

from rmq_actors.broker.transactional_message_service import Asked, TransactionalMessageService
from rmq_actors.protocols.transaction_check import CheckRules, Fate, HalfMessage
from rmq_actors.store.message_store import MessageStore
from rmq_actors.store.puts.message_puts import PendingPut
from rmq_actors.wire.record import StoredMessage
from rmq_actors.wire.response_code import ResponseCode
from tests.worlds.transaction_world import COMMIT, TransactionWorld


def test_544_a_half_message_is_asked_about_when_its_time_is_up_to_the_millisecond() -> None:
    """There it is neither too early nor late enough: the round looks for op messages again, until the next one."""
    rules = CheckRules(time_out_ms=6_000, check_max=15, reserved_ms=72 * 3_600_000)
    found = [HalfMessage(0, 0).fate(now, rules, somebody_can_be_asked=True) for now in (5_999, 6_000, 6_001)]
    assert found == [Fate.WAIT, Fate.ASK, Fate.ASK]
    immune = HalfMessage(0, 0, immunity_ms=20_000)
    found = [immune.fate(now, rules, somebody_can_be_asked=True) for now in (19_999, 20_000)]
    assert found == [Fate.WAIT, Fate.ASK]


def test_9500_an_error_at_one_half_message_keeps_no_other_from_being_asked_about(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """There the round ends with it, no offset is committed, and every later round begins with it again."""
    store_again = TransactionalMessageService.store_again

    def fails_at_one(
        service: TransactionalMessageService, store: MessageStore, half: StoredMessage
    ) -> Asked | PendingPut:
        if half.body == b"bad":
            raise RuntimeError("planted")
        return store_again(service, store, half)

    monkeypatch.setattr(TransactionalMessageService, "store_again", fails_at_one)

    async def use(world: TransactionWorld) -> None:
        world.answers = {b"first": COMMIT, b"bad": COMMIT, b"last": COMMIT}
        async with world.producer() as client:
            for body in world.answers:
                await world.prepare(client, body)
            await trio.sleep(6)
            assert world.bodies() == [b"first", b"last"]
            assert len(world.asked) == 2
            assert world.done_to() == (1, 0)  # up to the bad one, which is open

    TransactionWorld.of().run(use)


def test_2098_a_half_message_in_the_pool_can_be_ended_at_once() -> None:
    """There the end fails while the half message is in the pool: `Find prepared transaction message failed`."""

    async def use(world: TransactionWorld) -> None:
        async with world.producer() as client:
            half = await world.prepare(client, b"x")
            began = trio.current_time()
            assert world.controller().store.dispatched_to <= half.offset
            assert (await client.end(half, COMMIT)).code == ResponseCode.SUCCESS
            assert trio.current_time() - began < 0.4
            await trio.sleep(0.5)
            assert world.bodies() == [b"x"]

    TransactionWorld.of(transient_store_pool_enable=True).run(use)
