"""RocketMQ's bugs of cleaning, and of transactions nobody asks about: as in `test_recovery_bugs`."""

from __future__ import annotations

import attrs
import pytest
import trio

from rmq_actors.store.message_store import MessageStore
from rmq_actors.wire.record import (
    TRANSACTION_COMMIT_TYPE,
    TRANSACTION_PREPARED_TYPE,
    TRANSACTION_ROLLBACK_TYPE,
    Message,
)
from tests.known_bugs.test_recovery_bugs import whole
from tests.worlds.store_workload import CONFIG, LOG_FILE_BYTES, Ending, Life, live, nothing

_HOUR_MS = 3_600_000
#: After so long everything is before the recovery point, and may be removed.
CHECKPOINT_S = 2
#: Any hour is one to delete in.
CLEANING = attrs.evolve(CONFIG, delete_when=";".join(f"{hour:02d}" for hour in range(24)))


async def fill_files(life: Life, store: MessageStore, count: int, first: int) -> int:
    """Fill so many files of the log, three messages each; the number of the next message."""
    for number in range(first, first + 3 * count):
        await life.put(store, Message("Plain", life.body(number, LOG_FILE_BYTES // 4), 0, life.keys(number)))
    return first + 3 * count


def log_names(life: Life) -> list[int]:
    """Where the log's files begin, in file sizes."""
    return [int(name) // LOG_FILE_BYTES for name in life.node.disk.list("commitlog")]


def test_321_cleaning_leaves_no_hole() -> None:
    """Cannot exist: only the oldest file is ever looked at. The invariant, with one old file between younger ones."""

    async def work(life: Life, store: MessageStore) -> None:
        clock, cleaning = life.node.wall_clock, store.clean_commit_log_service
        number = await fill_files(life, store, 2, 0)
        clock.jump(-100 * _HOUR_MS)
        number = await fill_files(life, store, 1, number)
        clock.jump(100 * _HOUR_MS)
        await fill_files(life, store, 3, number)
        await trio.sleep(CHECKPOINT_S)
        before = log_names(life)
        assert await cleaning.clean() == 0
        clock.jump(73 * _HOUR_MS)
        assert await cleaning.clean() > 0
        left = log_names(life)
        assert left == before[-len(left) :]

    whole(live(1, Life(work, config=CLEANING), Life(nothing, config=CLEANING)))


def test_1948_files_expire_by_the_time_of_their_records() -> None:
    """Cannot exist: the disk port knows no time of modification. The invariant: after 72 hours, not before."""

    async def work(life: Life, store: MessageStore) -> None:
        await fill_files(life, store, 3, 0)
        life.node.wall_clock.jump(72 * _HOUR_MS - 60_000)

    async def not_yet(life: Life, store: MessageStore) -> None:
        assert await store.clean_commit_log_service.clean() == 0
        life.node.wall_clock.jump(120_000)
        assert await store.clean_commit_log_service.clean() == 2

    whole(live(1, Life(work, config=CLEANING), Life(not_yet, config=CLEANING), Life(nothing, config=CLEANING)))


def test_1137_cleaning_keeps_up_with_what_comes_in() -> None:
    """A round deleted ten files at most, with pauses in between, however full the disk was."""
    config = attrs.evolve(CONFIG, disk_max_used_space_ratio=50, disk_space_clean_forcibly_ratio=50)

    async def work(life: Life, store: MessageStore) -> None:
        await fill_files(life, store, 40, 0)
        await trio.sleep(CHECKPOINT_S)
        disk = life.node.disk
        disk.capacity_bytes = disk.used_bytes * 100 // 95
        assert await store.clean_commit_log_service.clean() > 0
        usage = disk.usage()
        assert usage.used_bytes * 100 <= 50 * (usage.used_bytes + usage.available_bytes)

    whole(live(1, Life(work, config=config), Life(nothing, config=config)))


@pytest.mark.parametrize("ending", ["stop", "kill", "power loss"])
def test_544_an_open_transaction_stays_in_the_table_until_it_ends(ending: Ending) -> None:
    """Cannot exist: the store checks nothing. The invariant: who checks finds each open transaction, no other."""
    open_offsets: list[int] = []

    async def work(life: Life, store: MessageStore) -> None:
        for number in range(9):
            body, properties = life.body(number, 80), {**life.keys(number), "PGROUP": "group"}
            half = await life.put(store, Message("Deal", body, 0, properties, sys_flag=TRANSACTION_PREPARED_TYPE))
            assert half.append is not None
            if number % 3 == 0:
                open_offsets.append(half.append.offset)
                continue
            end = TRANSACTION_COMMIT_TYPE if number % 3 == 1 else TRANSACTION_ROLLBACK_TYPE
            offset = half.append.offset
            await life.put(
                store, Message("Deal", body, 0, properties, sys_flag=end, prepared_transaction_offset=offset)
            )

    async def ask(life: Life, store: MessageStore) -> None:
        transactions = store.files.transaction_state_service.open_transactions()
        assert [each.physical_offset for each in transactions] == open_offsets

    whole(live(1, Life(work, ends_by=ending), Life(ask), Life(ask)))
