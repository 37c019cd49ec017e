"""EIO and ENOSPC at every disk operation of a store: an OK is durable, and what cannot be is refused with a reason.

After each life with an error the power goes, with the worst that un-synced pages can do, and the next life goes on upon
what is left. A sync that fails leaves its pages clean and not durable, and the next one pretends success.
"""

from __future__ import annotations

import errno
import random
from collections.abc import Sequence
from functools import partial

import attrs
import pytest
import trio

from rmq_actors.protocols.put_completion import PutStatus
from rmq_actors.store.config import FlushDiskType
from rmq_actors.store.message_store import MessageStore
from rmq_actors.store.running_flags import RunningFlag
from rmq_actors.wire.record import RECORD_OVERHEAD_BYTES, Message
from sim_net import SimDisk
from sim_net.disk.disk_rule import Operation
from tests.simulation.test_store_crash_points import operations_of_a_life, spread
from tests.worlds.store_workload import (
    ASYNC_FLUSH,
    Ending,
    Ledger,
    Life,
    a_few_puts,
    busy,
    kill_at,
    live,
    nothing,
    power_loss_at,
)

ENDINGS: tuple[Ending, ...] = ("stop", "kill", "power loss", "stop, then power loss")
PAGE_BYTES = 4096


def failing(disk: SimDisk, number: int, *, nth: int = 1, operation: Operation | None = None, path: str = "") -> None:
    disk.fail(number, nth=nth, operation=operation, path=path)


def survive(seed: int, life: Life) -> Ledger:
    """After a life with errors: go on, lose the power, go on, and be whole."""
    ledger = live(seed, life, Life(a_few_puts, ends_by="power loss"), Life(a_few_puts), Life(nothing))
    assert not ledger.broken, ledger.broken[0]
    return ledger


# --- one operation fails ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("number", [errno.EIO, errno.ENOSPC], ids=["EIO", "ENOSPC"])
def test_some_operations_fail(number: int) -> None:
    for nth in spread(16, operations_of_a_life()):
        survive(nth, Life(busy, arrange=partial(failing, number=number, nth=nth), ends_by=ENDINGS[nth % 4]))


@pytest.mark.long
@pytest.mark.parametrize("number", [errno.EIO, errno.ENOSPC], ids=["EIO", "ENOSPC"])
@pytest.mark.parametrize("ending", ENDINGS)
def test_every_operation_fails(number: int, ending: Ending) -> None:
    for nth in range(1, operations_of_a_life() + 1):
        survive(nth, Life(busy, arrange=partial(failing, number=number, nth=nth), ends_by=ending))


@pytest.mark.parametrize("number", [errno.EIO, errno.ENOSPC], ids=["EIO", "ENOSPC"])
def test_operations_of_a_recovery_fail(number: int) -> None:
    """The store opens, or says why not; the next time it opens, upon what the failed attempt has left."""
    before = Life(busy, ends_by="power loss")
    recovery = live(1, before, Life(nothing)).operations[1]
    for nth in range(1, recovery + 1, 3):
        arrange = partial(failing, number=number, nth=nth)
        ledger = live(
            1,
            Life(busy, ends_by="power loss"),
            Life(a_few_puts, arrange=arrange, ends_by="power loss"),
            Life(a_few_puts),
            Life(nothing),
        )
        assert not ledger.broken, ledger.broken[0]
        assert all("Errno" in refused for refused in ledger.refused)


# --- a failed sync ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("ending", ENDINGS)
@pytest.mark.parametrize("nth", [1, 2, 7])
def test_after_a_failed_sync_of_the_log_nothing_is_taken_until_the_next_start(nth: int, ending: Ending) -> None:
    """Also when later syncs succeed: they find clean pages."""
    taken: list[str] = []

    async def work(life: Life, store: MessageStore) -> None:
        failing(life.node.disk, errno.EIO, nth=nth, operation="sync", path="commitlog")
        for number in range(12):
            result = await life.put(store, Message("Plain", life.body(number, 300)))
            taken.append(result.status.value)
        flushed_where = store.commit_log.flushed_where
        await trio.sleep(30)
        assert store.commit_log.flushed_where == flushed_where

    ledger = survive(nth, Life(work, ends_by=ending))
    assert taken[: nth - 1] == ["PUT_OK"] * (nth - 1)
    assert taken[nth - 1] == "FLUSH_DISK_TIMEOUT"
    assert taken[nth:] == ["SERVICE_NOT_AVAILABLE"] * (12 - nth)
    assert all("a sync" in refused and "failed" in refused for refused in ledger.refused)


@pytest.mark.parametrize("ending", ENDINGS)
@pytest.mark.parametrize("path", ["consumequeue", "index", "checkpoint"])
def test_after_a_failed_sync_beside_the_log_the_next_start_does_not_trust_those_files(
    path: str, ending: Ending
) -> None:
    arrange = partial(failing, number=errno.EIO, nth=2, operation="sync", path=path)
    ledger = survive(1, Life(busy, arrange=arrange, ends_by=ending))
    assert [refused for refused in ledger.refused if not refused.startswith("stop: ")] == []
    assert len(ledger.acknowledged) > 30


def test_pages_that_a_failed_sync_left_clean_are_written_again_by_the_next_start() -> None:
    """A sync fails; the process is killed, and the next one finds all bytes in the page cache. They are not durable.

    New messages stand after them: were the page lost, recovery would end the log before what was acknowledged.
    """

    async def work(life: Life, store: MessageStore) -> None:
        await life.put(store, Message("Plain", life.body(0, 300)))
        failing(life.node.disk, errno.EIO, operation="sync", path="commitlog")
        pending = [store.puts.async_put_message(Message("Plain", life.body(number, 1500))) for number in range(1, 6)]
        for put in pending:
            assert (await put.wait()).status is PutStatus.FLUSH_DISK_TIMEOUT

    for seed in range(10):
        ledger = live(seed, Life(work, ends_by="kill"), Life(a_few_puts, ends_by="power loss"), Life(nothing))
        assert not ledger.broken, ledger.broken[0]
        assert len(ledger.acknowledged) == 1 + 6


def test_a_failed_sync_on_a_full_disk_is_not_forgotten() -> None:
    """A full disk must not keep the next start from knowing of it."""

    async def work(life: Life, store: MessageStore) -> None:
        await life.put(store, Message("Plain", life.body(0, 300)))
        pending = [store.puts.async_put_message(Message("Plain", life.body(number, 1500))) for number in range(1, 6)]
        life.node.disk.fill_up()
        failing(life.node.disk, errno.EIO, operation="sync", path="commitlog")
        for put in pending:
            assert (await put.wait()).status is PutStatus.FLUSH_DISK_TIMEOUT

    for seed in range(10):
        ledger = live(seed, Life(work, ends_by="kill"), Life(a_few_puts, ends_by="power loss"), Life(nothing))
        assert not ledger.broken, ledger.broken[0]
        assert len(ledger.acknowledged) == 1 + 6


@pytest.mark.parametrize("pause_s", [0.0, 0.0001, 0.0005, 0.001, 0.002])
def test_a_sync_that_fails_while_its_process_dies_is_told_by_nobody(pause_s: float) -> None:
    """The next start acknowledged what stood after pages that no disk had."""

    async def work(life: Life, store: MessageStore) -> None:
        await life.put(store, Message("Plain", life.body(0, 300)))
        failing(life.node.disk, errno.EIO, operation="sync", path="commitlog")
        for number in range(1, 6):
            store.puts.async_put_message(Message("Plain", life.body(number, 1500)))
        await trio.sleep(pause_s)

    for seed in range(5):
        ledger = live(seed, Life(work, ends_by="kill"), Life(a_few_puts, ends_by="power loss"), Life(nothing))
        assert not ledger.broken, ledger.broken[0]
        assert len(ledger.acknowledged) == 1 + 6


def test_zeros_that_a_failed_sync_left_clean_are_written_again_by_the_next_start() -> None:
    """A power loss leaves a record behind a lost one; a recovery zeroes it, and its sync fails.

    The next start finds zeros, which the disk has not. A new message ends where the old record would begin: it must not
    come back after it.
    """
    overhead = RECORD_OVERHEAD_BYTES + len("Plain")
    page = attrs.evolve(ASYNC_FLUSH, mapped_file_size_commit_log_bytes=4 * PAGE_BYTES)

    async def before(life: Life, store: MessageStore) -> None:
        await life.put(store, Message("Plain", life.body(0, 1000)))
        await trio.sleep(2)
        await life.put(store, Message("Plain", life.body(1, PAGE_BYTES - 1000 - 2 * overhead)))
        await life.put(store, Message("Plain", life.body(2, 500)))
        life.ledger.acknowledged.clear()  # under ASYNC_FLUSH that promises nothing

    async def after(life: Life, store: MessageStore) -> None:
        end = store.commit_log.max_offset
        if end < PAGE_BYTES:
            await life.put(store, Message("Plain", life.body(3, PAGE_BYTES - end - overhead)))

    cut = 0
    for seed in range(24):
        arrange = partial(failing, number=errno.EIO, operation="sync", path="commitlog")
        ledger = live(
            seed,
            Life(before, config=page, ends_by="power loss"),
            Life(nothing, config=page, arrange=arrange),
            Life(after, config=attrs.evolve(page, flush_disk_type=FlushDiskType.SYNC_FLUSH), ends_by="power loss"),
            Life(nothing, config=page),
        )
        assert not ledger.broken, (seed, ledger.broken[0])
        cut += any(path.startswith("cut/") for path in ledger.files[2])
    assert cut, "no seed leaves a record behind a lost one"


# --- a full disk ------------------------------------------------------------------------------------------------------


async def until_the_disk_is_full_and_after(life: Life, store: MessageStore, free_pages: int) -> None:
    """Put until the disk is full for a while, make room, and see that all is well again."""
    make_room = life.node.disk.fill_up(free_pages * PAGE_BYTES)
    for number in range(40):
        properties = life.keys(number)
        await life.put(store, Message(f"T{number % 3}", life.body(number, 400), number % 2, properties))
    await trio.sleep(5)
    assert any("No space left" in refused for refused in life.ledger.refused), life.ledger.refused
    make_room()
    await trio.sleep(5)
    before = len(life.ledger.refused)
    for number in range(40, 50):
        result = await life.put(store, Message("T0", life.body(number, 400), 0, life.keys(number)))
        assert result.append is not None, result
    assert len(life.ledger.refused) == before


@pytest.mark.parametrize("free_pages", [0, 1, 2, 3, 5, 8])
@pytest.mark.parametrize("ending", ENDINGS)
def test_a_full_disk_refuses_and_recovers_when_space_is_back(free_pages: int, ending: Ending) -> None:
    ledger = survive(free_pages, Life(partial(until_the_disk_is_full_and_after, free_pages=free_pages), ends_by=ending))
    assert len(ledger.acknowledged) >= 10


@pytest.mark.parametrize("free_pages", range(12))
def test_a_store_opens_on_a_full_disk_or_says_why_not(free_pages: int) -> None:
    """Disk full during the first start, or during a recovery; then with room again."""

    def fill(disk: SimDisk) -> None:
        disk.fill_up(free_pages * PAGE_BYTES)

    for first in ((), (Life(busy, ends_by="power loss"),)):
        ledger = live(
            free_pages, *first, Life(a_few_puts, arrange=fill, ends_by="power loss"), Life(a_few_puts), Life(nothing)
        )
        assert not ledger.broken, ledger.broken[0]
        assert all("No space left" in refused for refused in ledger.refused), ledger.refused
        assert len(ledger.acknowledged) >= 6


LIGHT = {"INNER_MULTI_DISPATCH": "%LMQ%a,%LMQ%b"}


def next_offsets(store: MessageStore) -> list[int]:
    """What the log gives next to the queues that wait."""
    queues = (("New", 0), ("New", 1), ("%LMQ%a", 0), ("%LMQ%b", 0))
    return [store.commit_log.next_queue_offset(*queue) for queue in queues]


def fill(disk: SimDisk) -> None:
    disk.fill_up(0)


@pytest.mark.parametrize("count", [2, 5])
@pytest.mark.parametrize("again", [1, 3])
def test_a_start_on_a_disk_that_is_still_full_goes_on_as_the_store_did_before(count: int, again: int) -> None:
    """Kill and full disk: a queue needed a file, so the store did not start, so nobody could clean it."""
    given = [-(-count // 2), count // 2, count, count]
    config = attrs.evolve(ASYNC_FLUSH, enable_multi_dispatch=True, enable_lmq=True)

    async def until_it_is_full(life: Life, store: MessageStore) -> None:
        for number in range(6):
            await life.put(store, Message("Old", life.body(number, 100)))
        await trio.sleep(6)
        fill(life.node.disk)  # there is room in the page that the log has begun
        for number in range(count):
            life.ledger.note_put(await store.puts.put_message(Message("New", b"x", number % 2, LIGHT)))
            store.running_flags.clear(RunningFlag.WRITE_LOGICS_QUEUE_ERROR)
        await trio.sleep(3)
        assert next_offsets(store) == given
        assert store.offsets.get_max_offset_in_queue("New", 0) == 0
        assert "cannot be dispatched" in store.running_flags.why_not_writeable

    async def while_it_is_full(life: Life, store: MessageStore) -> None:
        assert next_offsets(store) == given
        await trio.sleep(3)
        assert len(store.reads.get_message("Old", 0, 0, 32).messages) == 6
        refused = await store.puts.put_message(Message("New", life.body(99, 10)))
        assert refused.append is None
        assert "cannot be dispatched" in refused.reason

    async def with_room_again(life: Life, store: MessageStore) -> None:
        await trio.sleep(1)
        assert [len(store.reads.get_message("New", queue_id, 0, 32).messages) for queue_id in range(2)] == given[:2]
        assert next_offsets(store) == given
        result = await life.put(store, Message("New", life.body(100, 10), 0, LIGHT))
        assert result.append is not None
        assert result.append.queue_offset == given[0]

    lives = [
        Life(until_it_is_full, config=config, ends_by="kill"),
        *(
            Life(while_it_is_full, config=config, ends_by="kill", arrange=fill, is_undamaged=False)
            for _ in range(again)
        ),
        Life(with_room_again, config=config),
        Life(a_few_puts, config=config),
    ]
    ledger = live(1, *lives)
    assert not ledger.broken, ledger.broken[0]
    assert not ledger.refused, "the store did not start"


# --- everything at once -----------------------------------------------------------------------------------------------


def any_lives(seed: int) -> list[Life]:
    """Some lives, each with errors, a full disk, a crash, or none of them; the last two are quiet."""
    rng = random.Random(seed)

    def break_disk(disk: SimDisk, errors: Sequence[tuple[int, int]], free_pages: int | None) -> None:
        for number, nth in errors:
            disk.fail(number, nth=nth)
        if free_pages is not None:
            disk.fill_up(free_pages * PAGE_BYTES)

    lives = []
    for _ in range(rng.randint(2, 5)):
        errors = [(rng.choice((errno.EIO, errno.ENOSPC)), rng.choice((rng.randint(1, 60), rng.randint(1, 400))))]
        arrange = partial(
            break_disk,
            errors=errors * rng.randint(0, 2),
            free_pages=rng.randint(0, 20) if rng.random() < 0.2 else None,
        )
        crash = rng.choice((power_loss_at, kill_at))(rng.choice((rng.randint(1, 60), rng.randint(1, 400))))
        faults = (crash,) if rng.random() < 0.6 else ()
        lives.append(Life(rng.choice((busy, a_few_puts)), faults, arrange=arrange, ends_by=rng.choice(ENDINGS)))
    return [*lives, Life(a_few_puts, ends_by="power loss"), Life(nothing)]


@pytest.mark.parametrize("part", range(3))
def test_any_lives(part: int) -> None:
    for seed in range(part, 36, 3):
        ledger = live(seed, *any_lives(seed))
        assert not ledger.broken, (seed, ledger.broken[0])


def test_a_log_file_that_took_nothing_is_lost_after_an_orderly_stop() -> None:
    """The disk is full when it is to be written; its length was never synced, nor the removal of the one after it."""
    ledger = live(1380, *any_lives(1380))
    assert not ledger.broken, ledger.broken[0]


def test_a_recovery_that_writes_an_entry_of_the_index_again_is_cut_off() -> None:
    """The entry was durable, and a power loss tore it."""
    ledger = live(1564, *any_lives(1564))
    assert not ledger.broken, ledger.broken[0]


def test_a_sync_and_its_note_fail() -> None:
    """And the next life showed consumers what a power loss then took."""
    ledger = live(1553, *any_lives(1553))
    assert not ledger.broken, ledger.broken[0]


@pytest.mark.long
@pytest.mark.parametrize("part", range(20))
def test_many_series_of_lives(part: int) -> None:
    for seed in range(100 + part, 2700, 20):
        ledger = live(seed, *any_lives(seed))
        assert not ledger.broken, (seed, ledger.broken[0])
