"""RocketMQ's bugs of flush, the transient store pool and puts: as in `test_recovery_bugs`."""

from __future__ import annotations

import errno
import itertools

import attrs
import pytest
import trio

from rmq_actors.protocols.put_completion import PutStatus
from rmq_actors.store.config import BrokerRole, FlushDiskType
from rmq_actors.store.message_store import MessageStore
from rmq_actors.wire.record import Message
from tests.known_bugs.test_recovery_bugs import whole
from tests.worlds.store_workload import ASYNC_FLUSH, CONFIG, LOG_FILE_BYTES, Life, a_few_puts, live, nothing

POOL = attrs.evolve(ASYNC_FLUSH, transient_store_pool_enable=True)


def test_3408_a_message_at_a_roll_is_flushed_in_time() -> None:
    """The second of two flushes succeeded, and its result was not read: FLUSH_DISK_TIMEOUT."""
    statuses: list[PutStatus] = []

    async def work(life: Life, store: MessageStore) -> None:
        for round_ in range(6):
            pending = [
                store.puts.async_put_message(Message("Plain", life.body(10 * round_ + number, LOG_FILE_BYTES // 3)))
                for number in range(4)
            ]
            for put in pending:
                result = await put.wait()
                life.ledger.note_put(result)
                statuses.append(result.status)

    for seed in range(4):
        statuses.clear()
        ledger = whole(live(seed, Life(work, ends_by="power loss"), Life(nothing)))
        assert statuses == [PutStatus.PUT_OK] * 24
        assert len(ledger.log) > 8 * LOG_FILE_BYTES


@pytest.mark.parametrize(
    ("flush", "pool", "role"),
    list(itertools.product(FlushDiskType, (False, True), (BrokerRole.ASYNC_MASTER, BrokerRole.SYNC_MASTER))),
    ids=lambda value: getattr(value, "value", str(value)),
)
def test_7523_every_kind_of_flush_answers_with_and_without_the_pool(
    flush: FlushDiskType, pool: bool, role: BrokerRole
) -> None:
    """With SYNC_FLUSH, the pool's bytes were never committed: each put timed out. As in 4.9, there is no pool then."""
    config = attrs.evolve(CONFIG, flush_disk_type=flush, transient_store_pool_enable=pool, broker_role=role)
    expected = PutStatus.SLAVE_NOT_AVAILABLE if role is BrokerRole.SYNC_MASTER else PutStatus.PUT_OK
    statuses: list[PutStatus] = []

    async def work(life: Life, store: MessageStore) -> None:
        for number in range(12):
            with trio.fail_after(0.1):  # a commit every 200 ms would be too late
                result = await life.put(store, Message("Plain", life.body(number, 400)))
            statuses.append(result.status)
        await trio.sleep(11)

    ledger = whole(live(1, Life(work, config=config, ends_by="power loss"), Life(nothing, config=config)))
    assert statuses == [expected] * 12
    assert len(ledger.log) > 12 * 400  # all was flushed by then


@pytest.mark.parametrize("size", [1, 3, 100])
def test_3099_the_tail_does_not_stay_in_the_pool(size: int) -> None:
    """The pages that are the least to commit were compared with bytes."""

    async def work(life: Life, store: MessageStore) -> None:
        for number in range(3):
            await life.put(store, Message("Plain", life.body(number, size)))
            await trio.sleep(0.41)
            assert len(store.reads.get_message("Plain", 0, 0, 32).messages) == number + 1

    whole(live(1, Life(work, config=POOL), Life(nothing, config=POOL)))


def test_2098_a_message_in_the_pool_can_be_read_soon() -> None:
    """A transaction that ended at once did not find its half message: "select pos invalid". It may ask again."""

    async def work(life: Life, store: MessageStore) -> None:
        result = await life.put(store, Message("Half", life.body(0, 200)))
        assert result.append is not None
        with trio.fail_after(0.4):
            while (found := store.records.look_message_by_offset(result.append.offset)) is None:
                await trio.sleep(0.01)
        assert found.body == life.body(0, 200)

    whole(live(1, Life(work, config=POOL)))


def test_2457_a_slave_with_the_pool_takes_bytes_and_puts_once_it_is_a_master() -> None:
    """Also #5714, #5960, #7610. Cannot exist: the pool has no size. The invariant: bytes and puts are taken."""
    log = live(1, Life(a_few_puts)).log
    slave = attrs.evolve(POOL, broker_role=BrokerRole.SLAVE)

    async def follow(life: Life, store: MessageStore) -> None:
        store.append_to_commit_log(0, log)
        await trio.sleep(1)

    ledger = whole(live(1, Life(follow, config=slave), Life(a_few_puts, config=POOL), Life(nothing, config=slave)))
    assert ledger.refused == []
    assert len(ledger.log) > len(log)


def test_98_a_put_that_raises_does_not_stop_the_next() -> None:
    """Cannot exist: there is no lock that an error could leave taken. The invariant: the next put is taken."""

    async def work(life: Life, store: MessageStore) -> None:
        for number in range(3):
            life.node.disk.fail(errno.EIO, operation="write", path="commitlog")
            refused = await life.put(store, Message("Plain", life.body(number, 100)))
            assert refused.append is None
            taken = await life.put(store, Message("Plain", life.body(10 + number, 100)))
            assert taken.status is PutStatus.PUT_OK

    whole(live(1, Life(work), Life(nothing)))


def test_9713_a_failed_sync_does_not_count_as_one() -> None:
    """flushedWhere moved although force() had raised. Later syncs succeed: what failed is clean, and not durable."""

    async def work(life: Life, store: MessageStore) -> None:
        await life.put(store, Message("Plain", life.body(0, 300)))
        end = store.commit_log.max_offset
        life.node.disk.fail(errno.EIO, operation="sync", path="commitlog")
        for number in range(1, 6):
            result = await life.put(store, Message("Plain", life.body(number, 300)))
            assert result.status is not PutStatus.PUT_OK
        assert store.commit_log.flushed_where == end

    for config in (CONFIG,):
        for seed in range(6):
            whole(live(seed, Life(work, config=config, ends_by="power loss"), Life(nothing, config=config)))
