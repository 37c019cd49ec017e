"""RocketMQ's bugs of dispatch, recovery, queues and index: each test bears the number that the bug has there.

A test fails when the bug's cause is planted in this store: docs/known-bugs.md names the diff that does. Where the cause
cannot exist here, the test says why, and holds the invariant that the bug broke.
"""

from __future__ import annotations

import errno

import attrs
import pytest
import trio

from rmq_actors.store.config import BrokerRole
from rmq_actors.store.files.layout import ABORT_FILE, COMMIT_LOG_DIRECTORY, CONSUME_QUEUE_DIRECTORY, file_name
from rmq_actors.store.files.mapped_file_queue import MappedFileQueue
from rmq_actors.store.log.received_records import AppendRefused
from rmq_actors.store.message_store import MessageStore
from rmq_actors.wire.record import Message
from sim_net import SimDisk, World
from tests.worlds.store_workload import (
    ASYNC_FLUSH,
    CONFIG,
    LOG_FILE_BYTES,
    Ledger,
    Life,
    a_few_puts,
    busy,
    live,
    nothing,
    queues_on,
)

SLAVE = attrs.evolve(CONFIG, broker_role=BrokerRole.SLAVE)
SEEDS = range(6)


def whole(ledger: Ledger) -> Ledger:
    """Nothing was lost, and queues and index agree with the log, at each opening."""
    assert not ledger.broken, ledger.broken[0]
    return ledger


async def put_some(life: Life, store: MessageStore, count: int, *, size: int = 300, first: int = 0) -> None:
    for number in range(first, first + count):
        await life.put(store, Message("Plain", life.body(number, size), number % 2, life.keys(number)))


# --- dispatch and queues ----------------------------------------------------------------------------------------------


def test_467_no_message_is_missing_from_its_queue_when_dispatch_was_behind_a_kill() -> None:
    """Recovery began to dispatch at the log's end."""

    async def work(life: Life, store: MessageStore) -> None:
        await put_some(life, store, 3)
        life.node.disk.fail(errno.EIO, operation="write", path=CONSUME_QUEUE_DIRECTORY, count=None)
        pending = [
            store.puts.async_put_message(Message("Plain", life.body(number, 300), number % 2, life.keys(number)))
            for number in range(3, 10)
        ]
        for put in pending:
            life.ledger.note_put(await put.wait())

    ledger = whole(live(1, Life(work, ends_by="kill"), Life(nothing), Life(a_few_puts)))
    assert len(ledger.acknowledged) == 10 + 6


def test_1434_the_tail_of_the_second_last_file_is_in_the_queues_after_a_power_loss_after_a_roll() -> None:
    """Recovery dispatched the last file alone."""

    async def work(life: Life, store: MessageStore) -> None:
        await put_some(life, store, LOG_FILE_BYTES // 400 + 1)
        assert len(life.node.disk.list(COMMIT_LOG_DIRECTORY)) >= 2

    for seed in SEEDS:
        whole(live(seed, Life(work, ends_by="power loss"), Life(nothing)))


def test_10073_the_checkpoint_is_never_ahead_of_queues_and_index_that_are_not_synced() -> None:
    """Also #678. The time stamps of queues that were not synced were written with the next checkpoint."""

    async def work(life: Life, store: MessageStore) -> None:
        await put_some(life, store, 24)
        await trio.sleep(5)  # a checkpoint or more

    for seed in SEEDS:
        whole(live(seed, Life(work, ends_by="power loss"), Life(nothing)))


def test_265_a_record_that_is_dispatched_again_has_one_entry() -> None:
    """There was no lower bound. Here the whole log is dispatched again, after a kill."""

    async def again(life: Life, store: MessageStore) -> None:
        before = queues_on(life.node.disk)
        store.files.reput.reput_from_offset = 0
        while store.files.reput.dispatch_some(store.commit_log.max_offset):
            pass
        assert queues_on(life.node.disk) == before

    whole(live(1, Life(busy, ends_by="kill"), Life(again), Life(nothing)))


def test_7511_messages_of_one_light_queue_are_in_it_once_and_in_order() -> None:
    """Cannot exist: no await stands between giving offsets and writing the record. The invariant: no gap, no twin."""
    config = attrs.evolve(CONFIG, enable_lmq=True, enable_multi_dispatch=True)

    async def produce(life: Life, store: MessageStore, producer: int) -> None:
        for number in range(8):
            properties = {"INNER_MULTI_DISPATCH": f"%LMQ%shared,%LMQ%own{producer}"}
            await life.put(store, Message("Plain", life.body(100 * producer + number, 60), producer, properties))

    async def work(life: Life, store: MessageStore) -> None:
        async with trio.open_nursery() as nursery:
            for producer in range(3):
                nursery.start_soon(produce, life, store, producer)
        await trio.sleep(1)
        shared = queues_on(life.node.disk)["%LMQ%shared/0"]
        assert sorted(shared) == list(range(24))
        assert len({offset for offset, _, _ in shared.values()}) == 24

    whole(live(1, Life(work, config=config), Life(nothing, config=config)))


def test_332_the_file_of_an_offset_is_found_while_files_are_removed() -> None:
    """Cannot exist: `find` is one step, no file goes in between. The invariant: the right file, or none."""
    disk = World(1).node("a").disk
    queue = MappedFileQueue(disk, "log", 100)
    for number in range(4):
        queue.add_file(100 * number).wrote_position = 100
    for removed in range(4):
        for offset in range(0, 400, 50):
            found = queue.find(offset)
            expected = 100 * (offset // 100) if offset >= 100 * removed else None
            assert (found.from_offset if found else None) == expected
        queue.dirty_directories.clear()
        queue.remove_first_file()


# --- recovery ---------------------------------------------------------------------------------------------------------


def test_320_a_stop_that_cannot_dispatch_everything_is_no_orderly_one() -> None:
    """The file `abort` was removed while dispatch was behind."""

    async def work(life: Life, store: MessageStore) -> None:
        life.node.disk.fail(errno.EIO, operation="write", path=CONSUME_QUEUE_DIRECTORY, count=None)
        pending = [store.puts.async_put_message(Message("Plain", life.body(number, 300))) for number in range(6)]
        for put in pending:
            life.ledger.note_put(await put.wait())

    ledger = whole(live(1, Life(work), Life(nothing), Life(nothing)))
    assert ABORT_FILE in ledger.files[0]
    assert ABORT_FILE not in ledger.files[1]


def log_of_a_master() -> bytes:
    """Some files of a master's log."""
    return live(1, Life(busy), Life(busy)).log


def test_1456_a_slave_moves_its_checkpoint_too() -> None:
    """It never did, and after a crash a slave read its whole log."""
    log = log_of_a_master()

    async def follow(life: Life, store: MessageStore) -> None:
        for offset in range(0, len(log), 512):
            store.append_to_commit_log(offset, log[offset : offset + 512])
            await trio.sleep(0.05)
        await trio.sleep(3)

    ledger = live(1, Life(follow, config=SLAVE, ends_by="power loss"), Life(nothing, config=SLAVE))
    whole(ledger)
    assert ledger.log == log
    assert ledger.recovery_points[0] == len(log)


def test_6904_a_last_file_of_length_zero_is_dropped() -> None:
    """A crash between creating and allocating left it, and the store did not start."""
    ledger = live(1, Life(busy))
    name = file_name(-(-len(ledger.log) // LOG_FILE_BYTES) * LOG_FILE_BYTES)

    def leave_it(disk: SimDisk) -> None:
        disk.open(f"{COMMIT_LOG_DIRECTORY}/{name}", allocate_bytes=0).close()

    ledger = whole(live(1, Life(busy), Life(nothing, arrange=leave_it), Life(a_few_puts)))
    assert f"{COMMIT_LOG_DIRECTORY}/{name}" not in ledger.files[1]


@pytest.mark.parametrize("left", [0, 1, 20, 199])
def test_10108_a_queue_whose_first_file_lost_its_end_does_not_stop_the_start(left: int) -> None:
    """Cannot exist: nothing keeps a position in a buffer. The invariant: the store opens, and takes puts."""

    def cut(disk: SimDisk) -> None:
        file = disk.open(f"{CONSUME_QUEUE_DIRECTORY}/Plain/0/{file_name(0)}")
        file.write_at(left, bytes(file.size_bytes - left))
        file.close()

    async def work(life: Life, store: MessageStore) -> None:
        await put_some(life, store, 20)

    damaged = Life(a_few_puts, arrange=cut, is_undamaged=False)
    ledger = whole(live(1, Life(work), damaged, Life(a_few_puts, is_undamaged=False)))
    assert len(ledger.acknowledged) == 20 + 6 + 6


def test_3868_every_key_is_found_after_a_crash() -> None:
    """Also #8007, #4463. The newest index file was dropped, and built again for the recovered files alone."""

    async def ask(life: Life, store: MessageStore) -> None:
        for number in range(36):
            found = await store.query_message("Plain", f"U1.{number}", 8, 0, 1 << 62)
            assert len(found.messages) == 1, number

    async def work(life: Life, store: MessageStore) -> None:
        await put_some(life, store, 36)
        await ask(life, store)
        assert len(life.node.disk.list(COMMIT_LOG_DIRECTORY)) >= 4
        assert len(life.node.disk.list("index")) >= 2

    for ending in ("kill", "power loss", "stop"):
        whole(live(1, Life(work, ends_by=ending), Life(ask), Life(ask)))


def test_8239_nobody_reads_what_a_power_cut_can_take_back() -> None:
    """Dispatch went up to the last byte written, not to the last one synced."""

    async def work(life: Life, store: MessageStore) -> None:
        await put_some(life, store, 4)
        life.node.disk.stick()
        pending = [store.puts.async_put_message(Message("Plain", life.body(number, 300))) for number in range(4, 8)]
        await trio.sleep(1)
        found = store.reads.get_message("Plain", 0, 0, 32)
        assert len(found.messages) == 2
        assert store.offsets.get_max_offset_in_queue("Plain", 0) == 2
        life.node.disk.unstick()
        for put in pending:
            life.ledger.note_put(await put.wait())
        await trio.sleep(0.1)
        assert len(store.reads.get_message("Plain", 0, 0, 32).messages) == 6

    whole(live(1, Life(work, ends_by="power loss"), Life(nothing)))


def test_s6_what_a_recovery_counts_as_flushed_is_synced() -> None:
    """From RocketMQ's source: kill, recover, cut the power; flushedWhere had been set without a sync."""

    async def unsynced(life: Life, store: MessageStore) -> None:
        await put_some(life, store, 8)

    async def flushed(life: Life, store: MessageStore) -> None:
        assert store.commit_log.flushed_where == store.commit_log.max_offset > 0
        life.ledger.acknowledged.append((0, store.commit_log.flushed_where))

    for seed in SEEDS:
        first = Life(unsynced, config=ASYNC_FLUSH, ends_by="kill")
        whole(live(seed, first, Life(flushed, ends_by="power loss"), Life(nothing)))


# --- a slave's log ----------------------------------------------------------------------------------------------------


def test_s2_a_slave_goes_on_when_its_disk_does() -> None:
    """Cannot exist: appendToCommitLog's result was ignored, here it raises. The invariant: the slave's log is whole."""
    log = log_of_a_master()
    refused: list[int] = []

    async def follow(life: Life, store: MessageStore) -> None:
        life.node.disk.fail(errno.ENOSPC, operation="open", path=COMMIT_LOG_DIRECTORY, count=3)
        while store.commit_log.max_offset < len(log):
            offset = store.commit_log.max_offset
            size = min(512, LOG_FILE_BYTES - offset % LOG_FILE_BYTES, len(log) - offset)
            try:
                store.append_to_commit_log(offset, log[offset : offset + size])
            except AppendRefused:
                refused.append(offset)
                assert store.commit_log.max_offset == offset
                await trio.sleep(6)

    ledger = whole(live(1, Life(follow, config=SLAVE), Life(nothing, config=SLAVE)))
    assert ledger.log == log
    assert refused


def test_s3_a_master_with_files_of_another_size_is_refused_by_name() -> None:
    """Cannot exist: the append returned false for ever, here it raises. The invariant: it says what is wrong."""
    log = log_of_a_master()
    other = attrs.evolve(SLAVE, mapped_file_size_commit_log_bytes=LOG_FILE_BYTES // 2)

    async def follow(life: Life, store: MessageStore) -> None:
        def follow_all() -> None:
            for offset in range(0, len(log), 512):
                store.append_to_commit_log(offset, log[offset : offset + 512])

        with pytest.raises(AppendRefused, match="is mappedFileSizeCommitLog the same on both"):
            follow_all()

    live(1, Life(follow, config=other))
