"""The process dies, or the power goes, at every disk operation of a store's life, and again while it recovers.

Each run of this file asserts the same five laws, in `Ledger` and here: what was acknowledged under SYNC_FLUSH is there
byte for byte; the log is a prefix of what was written, with zeros after it; queues, index and transactions agree with
it; a second recovery changes nothing; and what a consumer has read is still there.
"""

from __future__ import annotations

import bisect
import contextlib
import errno
import functools
from collections.abc import Callable
from functools import partial

import attrs
import pytest
import trio

from rmq_actors.store.config import BrokerRole, MessageStoreConfig
from rmq_actors.store.dispatch import reput_message_service
from rmq_actors.store.files.layout import CHECKPOINT_FILE, COMMIT_LOG_DIRECTORY
from rmq_actors.store.files.store_checkpoint import RECOVERY_POINT_POSITION, Checkpoint
from rmq_actors.store.log import log_walk
from rmq_actors.store.message_store import MessageStore
from rmq_actors.tracing.recorder import Tracer
from rmq_actors.wire.record import Message
from sim_net import DiskConfig, Fault, On, PowerLoss, SimDisk
from tests.worlds.store_workload import (
    ASYNC_FLUSH,
    CONFIG,
    LOG_FILE_BYTES,
    NODE,
    Ending,
    Ledger,
    Life,
    a_few_puts,
    busy,
    files_of,
    kill_at,
    live,
    log_file_begin,
    nothing,
    power_loss_at,
)

ANY = DiskConfig(unsynced="any")
PREFIX = DiskConfig(unsynced="prefix")
POOL = attrs.evolve(ASYNC_FLUSH, transient_store_pool_enable=True)
SLAVE = attrs.evolve(CONFIG, broker_role=BrokerRole.SLAVE)
#: How many seeds, which decide what survives a power loss, each operation gets in the long tests.
SEEDS = 3


@functools.cache
def operations_of_a_life(config: MessageStoreConfig = CONFIG) -> int:
    """How many disk operations the life has in which nothing happens."""
    return live(0, Life(busy, config=config)).operations[0]


def survive(
    seed: int,
    *crashes: Fault,
    config: MessageStoreConfig = CONFIG,
    disk: DiskConfig = ANY,
) -> Ledger:
    """Live until the crashes, each in a life of its own, then thrice up to a kill, twice in good order, and go on."""
    first, *later = crashes
    lives = [
        Life(busy, faults=(first,), config=config),
        *(Life(a_few_puts, faults=(crash,), config=config) for crash in later),
        *(Life(nothing, killed_when_open=True, config=config) for _ in range(3)),
        *(Life(nothing, config=config) for _ in range(2)),
        Life(a_few_puts, config=config),
        Life(nothing, config=config),
    ]
    ledger = live(seed, *lives, disk=disk)
    assert not ledger.broken, ledger.broken[0]
    # The first one may follow an orderly stop: the power went as that ended.
    _, killed_once, killed_twice, stopped_once, stopped_twice = ledger.files[len(crashes) : len(crashes) + 5]
    assert different(killed_once, killed_twice) == [], "a second recovery has changed files"
    assert different(stopped_once, stopped_twice) == [], "a recovery after an orderly stop has changed files"
    return ledger


@functools.cache
def log_of_a_master() -> bytes:
    """Some files of a log, whole records to its end."""
    return live(0, Life(busy)).log


@functools.cache
def record_ends(log: bytes) -> list[int]:
    """Where records and blanks end in a log that begins at 0."""
    ends = [0]
    while ends[-1] < len(log):
        ends.append(ends[-1] + int.from_bytes(log[ends[-1] : ends[-1] + 4], "big"))
    return ends


async def follow(life: Life, store: MessageStore, log: bytes) -> None:
    """Take a master's log in pieces, as HAClient does; what was flushed must stay."""
    ends = record_ends(log)
    while (offset := store.commit_log.max_offset) < len(log):
        room, record = LOG_FILE_BYTES - offset % LOG_FILE_BYTES, ends[bisect.bisect_right(ends, offset)] - offset
        size = min(room, max(520, record) + offset % 777)
        assert store.append_to_commit_log(offset, log[offset : offset + size], whole_records=True) in ends
        life.ledger.acknowledged.append((0, store.commit_log.flushed_where))
        await trio.sleep(0.02)
    await trio.sleep(1)


def operations_of_a_slave(log: bytes) -> int:
    """How many disk operations a slave's life has that gets all of a log."""
    return live(0, Life(partial(follow, log=log), config=SLAVE)).operations[0]


def survive_as_slave(seed: int, crash: Fault, log: bytes) -> None:
    """Follow until the crash, recover, follow to the end: the master's log."""
    work = partial(follow, log=log)
    ledger = live(
        seed,
        Life(work, faults=(crash,), config=SLAVE),
        *(Life(nothing, killed_when_open=True, config=SLAVE) for _ in range(3)),
        Life(work, config=SLAVE),
        Life(nothing, config=SLAVE),
    )
    assert not ledger.broken, ledger.broken[0]
    # The first one may follow an orderly stop: the crash came as that ended.
    assert different(ledger.files[2], ledger.files[3]) == [], "a second recovery has changed files"
    assert ledger.log == log


def different(before: dict[str, bytes], after: dict[str, bytes]) -> list[str]:
    """The paths whose bytes are not the same."""
    return [path for path in sorted({*before, *after}) if before.get(path) != after.get(path)]


def spread(count: int, of: int) -> list[int]:
    """About `count` numbers of 1 to `of`, evenly."""
    return sorted({1 + index * of // count for index in range(count)})


# --- a sample ---------------------------------------------------------------------------------------------------------


def test_a_life_without_crashes_loses_nothing() -> None:
    ledger = live(0, Life(busy), Life(a_few_puts), Life(nothing))
    assert not ledger.broken, ledger.broken[0]
    assert len(ledger.log) > 4 * 4096
    assert len(ledger.acknowledged) > 30
    assert ledger.acknowledged[-1][1] == ledger.end
    assert len(ledger.read) > 30
    assert ledger.refused == []


@pytest.mark.parametrize("part", range(4))
def test_power_cut_at_some_operations(part: int) -> None:
    for operation in spread(32, operations_of_a_life())[part::4]:
        survive(operation, power_loss_at(operation))


def test_killed_at_some_operations() -> None:
    for operation in spread(12, operations_of_a_life()):
        survive(operation, kill_at(operation))


def test_power_cut_again_while_it_recovers() -> None:
    for operation in spread(6, operations_of_a_life()):
        for again in (2, 9, 25):
            survive(operation, power_loss_at(operation), power_loss_at(again))


@pytest.mark.parametrize("config", [ASYNC_FLUSH, POOL], ids=["file", "pool"])
def test_power_cut_under_async_flush(config: MessageStoreConfig) -> None:
    for operation in spread(6, operations_of_a_life(config)):
        survive(operation, power_loss_at(operation), config=config)


def test_power_cut_on_a_slave() -> None:
    log = log_of_a_master()
    for seed, operation in enumerate(spread(12, operations_of_a_slave(log))):
        survive_as_slave(seed, power_loss_at(operation), log)


def test_killed_on_a_slave() -> None:
    log = log_of_a_master()
    for seed, operation in enumerate(spread(6, operations_of_a_slave(log))):
        survive_as_slave(seed, kill_at(operation), log)


@pytest.fixture
def columns(monkeypatch: pytest.MonkeyPatch) -> None:
    """Records are dispatched as columns, however few they are, in recovery too."""
    for module in (log_walk, reput_message_service):
        monkeypatch.setattr(module, "COLUMNS_RECORDS_FIRST", 1)
        monkeypatch.setattr(module, "COLUMNS_RECORDS_MIN", 1)


@pytest.mark.usefixtures("columns")
@pytest.mark.parametrize("kind", [power_loss_at, kill_at])
def test_a_crash_while_records_are_dispatched_as_columns(kind: Callable[[int], Fault]) -> None:
    for operation in spread(12, live(0, Life(busy)).operations[0]):
        survive(operation, kind(operation))


@pytest.mark.usefixtures("columns")
def test_a_crash_of_a_slave_that_dispatches_columns() -> None:
    log = log_of_a_master()
    for seed, operation in enumerate(spread(8, operations_of_a_slave(log))):
        survive_as_slave(seed, power_loss_at(operation), log)


# --- everything -------------------------------------------------------------------------------------------------------


@pytest.mark.long
@pytest.mark.parametrize("disk", [ANY, PREFIX], ids=["any", "prefix"])
@pytest.mark.parametrize("part", range(32))
def test_power_cut_at_every_operation(part: int, disk: DiskConfig) -> None:
    for operation in range(1 + part, operations_of_a_life() + 1, 32):
        for seed in range(SEEDS):
            survive(seed, power_loss_at(operation), disk=disk)


@pytest.mark.long
@pytest.mark.parametrize("part", range(8))
def test_power_cut_at_every_operation_under_async_flush(part: int) -> None:
    for operation in range(1 + part, operations_of_a_life(ASYNC_FLUSH) + 1, 8):
        for seed in range(SEEDS):
            survive(seed, power_loss_at(operation), config=ASYNC_FLUSH)


@pytest.mark.long
@pytest.mark.parametrize("config", [CONFIG, ASYNC_FLUSH], ids=["SYNC_FLUSH", "ASYNC_FLUSH"])
def test_killed_at_every_operation(config: MessageStoreConfig) -> None:
    for operation in range(1, operations_of_a_life(config) + 1):
        survive(operation, kill_at(operation), config=config)


@pytest.mark.long
@pytest.mark.parametrize("kind", [power_loss_at, kill_at], ids=["power loss", "kill"])
@pytest.mark.parametrize("part", range(8))
def test_crashed_again_at_every_operation_of_a_recovery(part: int, kind: Callable[[int], Fault]) -> None:
    for number, operation in enumerate(spread(16, operations_of_a_life())[part::8]):
        crash = power_loss_at(operation)
        recovery = live(number, Life(busy, faults=(crash,)), Life(nothing)).operations[1]
        for again in range(1, recovery + 1):
            survive(number, crash, kind(again))


@pytest.mark.long
@pytest.mark.parametrize("kind", [power_loss_at, kill_at], ids=["power loss", "kill"])
def test_crashed_at_every_operation_of_a_slave(kind: Callable[[int], Fault]) -> None:
    log = log_of_a_master()
    for operation in range(1, operations_of_a_slave(log) + 1):
        survive_as_slave(operation, kind(operation), log)


@pytest.mark.long
def test_three_crashes_in_a_row() -> None:
    for seed, operation in enumerate(spread(40, operations_of_a_life())):
        survive(seed, power_loss_at(operation), power_loss_at(1 + seed % 40), kill_at(1 + seed * 7 % 40))


# --- found by the runs above, and by tests/property/test_store_model.py -----------------------------------------------


def test_a_recovery_that_meets_nothing_but_the_blank_end_of_a_file_keeps_the_recovery_point() -> None:
    """The point named no record then; the next start took it for another log's, and read everything."""

    async def fill(life: Life, store: MessageStore) -> None:
        for number in range(3):
            await life.put(store, Message("Plain", life.body(number, 900), 0, life.keys(number)))

    async def roll(life: Life, store: MessageStore) -> None:
        life.node.disk.fail(errno.ENOSPC, operation="open", path=COMMIT_LOG_DIRECTORY, count=None)
        result = await life.put(store, Message("Plain", life.body(3, 1100)))
        assert result.append is None

    ledger = live(1, Life(fill), Life(roll, ends_by="kill"), Life(nothing), Life(nothing))
    assert not ledger.broken, ledger.broken[0]
    assert ledger.recovery_points[2:] == [LOG_FILE_BYTES] * 2
    point = Checkpoint.decode(ledger.files[3]["checkpoint"]).recovery_point
    assert point is not None
    assert point.record_size > 900


def remove(disk: SimDisk, directory: str) -> None:
    """Somebody removes the files below a directory while nobody has the store open."""
    for path in files_of(disk, directory):
        disk.remove(path)


@pytest.mark.parametrize("directory", ["consumequeue", "consumequeue/Batch", "index"])
@pytest.mark.parametrize("ending", ["stop", "kill"])
def test_power_cut_while_what_somebody_removed_is_built_again(directory: str, ending: Ending) -> None:
    """The recovery point was after all records: entries of theirs were believed that no sync had covered."""
    for seed in range(4):
        for operation in (1000, 40, 70):  # the first one never comes: then it is cut when the work is done
            ledger = live(
                seed,
                Life(busy, ends_by=ending),
                Life(
                    nothing,
                    arrange=partial(remove, directory=directory),
                    faults=(power_loss_at(operation),),
                    ends_by="power loss",
                ),
                *(Life(nothing, killed_when_open=True) for _ in range(2)),
                Life(a_few_puts),
                Life(nothing),
            )
            assert not ledger.broken, (seed, operation, ledger.broken[0])


@attrs.define(eq=False)
class LeftByRocketMQ(Life):
    """No life of ours: the store becomes one that RocketMQ has stopped in order, less what somebody has removed."""

    removed: str = ""

    async def run(self, tracer: Tracer) -> None:
        disk = self.node.disk
        file = disk.open(CHECKPOINT_FILE)
        file.write_at(RECOVERY_POINT_POSITION, bytes(100))
        await file.sync()
        file.close()
        for path in files_of(disk, self.removed):
            disk.remove(path)
            await disk.sync_directory(path.rpartition("/")[0])


@pytest.mark.parametrize("removed", ["consumequeue", "index"])
def test_power_cut_while_rocketmqs_store_is_taken_over(removed: str) -> None:
    """Its orderly stop was believed of entries that we had dispatched, and no sync had covered."""
    for operation in range(24, 84, 4):
        ledger = live(
            operation,
            Life(busy),
            LeftByRocketMQ(nothing, removed=removed),
            Life(nothing, faults=(power_loss_at(operation),)),
            *(Life(nothing, killed_when_open=True) for _ in range(2)),
            Life(a_few_puts),
            Life(nothing),
        )
        assert not ledger.broken, (operation, ledger.broken[0])


@attrs.define(eq=False)
class CrashedUnderRocketMQ(LeftByRocketMQ):
    """The same after a crash, with a first record that is damaged: nothing is left of the log then."""

    async def run(self, tracer: Tracer) -> None:
        await super().run(tracer)
        for path in files_of(self.node.disk):
            with contextlib.closing(self.node.disk.open(path)) as file:
                if path.startswith(f"{COMMIT_LOG_DIRECTORY}/") and not log_file_begin(path):
                    file.write_at(4, bytes(4))
                await file.sync()
            await self.node.disk.sync_directory(path.rpartition("/")[0])


@pytest.mark.parametrize("role", [BrokerRole.SLAVE, BrokerRole.ASYNC_MASTER])
def test_power_cut_while_several_files_are_removed(role: BrokerRole) -> None:
    """Any removals were undone: the next start was refused for a gap, or a slave's log began after one."""
    begins, config = [], attrs.evolve(CONFIG, broker_role=role)

    async def look(life: Life, store: MessageStore) -> None:
        begins.append((store.commit_log.min_offset, store.commit_log.max_offset))
        await trio.lowlevel.checkpoint()

    for seed in range(12):
        ledger = live(
            seed,
            Life(busy, ends_by="kill"),
            CrashedUnderRocketMQ(nothing, removed="index"),
            Life(
                nothing,
                faults=(PowerLoss(0.0, NODE, 3600, on=On("disk.remove", NODE, 7 + seed % 4)),),
                config=config,
            ),
            Life(look, config=config, is_undamaged=False),
            disk=ANY,
        )
        assert len(ledger.files) == 4
        # It is all kept.
        assert sum(len(data) for path, data in ledger.files[3].items() if path.startswith("cut/")) > 4 * LOG_FILE_BYTES
    assert begins == [(0, 0)] * 12


def test_no_cleaning_goes_by_a_recovery_point_that_no_disk_has() -> None:
    """After a failed sync and a kill it was read from the page cache, and gone with that: so was all of the log."""

    async def clean(life: Life, store: MessageStore) -> None:
        log = store.commit_log
        while log.min_offset + LOG_FILE_BYTES < store.files.checkpointing.offset:
            await log.sync_names()
            assert log.remove_oldest_file()
            await log.sync_names()
        assert log.min_offset

    def fail(disk: SimDisk) -> None:
        disk.fail(errno.EIO, operation="sync", path="checkpoint", nth=2, count=None)

    for seed in range(6):
        ledger = live(
            seed,
            Life(busy, arrange=fail, ends_by="kill"),
            Life(clean, ends_by="power loss"),
            Life(a_few_puts),
            Life(nothing),
        )
        assert not ledger.broken, (seed, ledger.broken[0])
