"""A slave's log that begins late and holds nothing: its one file goes in a start, which a crash may interrupt.

What is left then is a store without any file of its log whose checkpoint names the offset where it begins. Nothing was
in that log, so nothing is lost, and the next start must take it.
"""

from __future__ import annotations

import bisect
import errno
import functools
from collections.abc import Callable

import attrs
import pytest
import trio

from rmq_actors.ports.environment import Environment
from rmq_actors.store.check.check_store import check_store
from rmq_actors.store.config import BrokerRole
from rmq_actors.store.files.delay_offsets import DelayOffsets
from rmq_actors.store.files.layout import COMMIT_LOG_DIRECTORY
from rmq_actors.store.lifecycle.truncation import truncate_store
from rmq_actors.store.log.received_records import AppendRefused
from rmq_actors.store.message_store import MessageStore
from rmq_actors.tracing.recorder import Tracer
from rmq_actors.wire.record import Message
from sim_net import DiskConfig, Fault, SimDisk
from tests.worlds.store_workload import (
    ASYNC_FLUSH,
    CONFIG,
    LOG_FILE_BYTES,
    Ledger,
    Life,
    Work,
    busy,
    files_of,
    kill_at,
    live,
    nothing,
    power_loss_at,
)

ANY = DiskConfig(unsynced="any")
SLAVE = attrs.evolve(CONFIG, broker_role=BrokerRole.SLAVE)
#: Where the log begins that the slave takes.
BEGIN = LOG_FILE_BYTES


@functools.cache
def log_of_a_master() -> tuple[bytes, list[int]]:
    """Some files of a log, and where its records end."""
    log, ends = live(0, Life(busy)).log, [0]
    while ends[-1] < len(log):
        ends.append(ends[-1] + int.from_bytes(log[ends[-1] : ends[-1] + 4], "big"))
    return log, ends


@pytest.fixture(autouse=True)
def _only_starts_count(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is in the log is for other tests: this one has nothing. It is made first, as worlds run one at a time."""
    log_of_a_master()
    log_of_one_queue()
    monkeypatch.setattr(Ledger, "check_recovered", lambda *_, **__: None)


async def has_no_room(life: Life, store: MessageStore) -> None:
    """Its log's first file cannot be written."""
    log, ends = log_of_a_master()
    rule = life.node.disk.fail(errno.ENOSPC, operation="write", path=COMMIT_LOG_DIRECTORY, count=1)
    with pytest.raises(AppendRefused, match="No space left"):
        store.append_to_commit_log(BEGIN, log[BEGIN : ends[bisect.bisect_right(ends, BEGIN)]], whole_records=True)
    rule.end()


async def follow(life: Life, store: MessageStore) -> None:
    """Take a part of the log in pieces."""
    log, ends = log_of_a_master()
    while (offset := max(BEGIN, store.commit_log.max_offset)) < min(len(log), 3 * BEGIN):
        room, record = LOG_FILE_BYTES - offset % LOG_FILE_BYTES, ends[bisect.bisect_right(ends, offset)] - offset
        size = min(room, max(520, record) + offset % 777)
        store.append_to_commit_log(offset, log[offset : offset + size], whole_records=True)
        await trio.sleep(0.05)
    await trio.sleep(1)


async def ends_with_a_full_disk(life: Life, store: MessageStore) -> None:
    """A master, whose disk is full as its log comes to the third file, and which cleans the others away."""
    rule = life.node.disk.fail(
        errno.ENOSPC, operation="write", path=f"{COMMIT_LOG_DIRECTORY}/{2 * BEGIN:020}", count=None
    )
    while (await life.put(store, Message("T", b"x", 0))).append is not None:
        pass
    await trio.sleep(3)
    rule.end()
    log = store.files.commit_log
    while len(log._queue.files) > 1:
        log._queue.remove_first_file()
        await log.sync_names()


async def deletes_a_topic(_: Life, store: MessageStore) -> None:
    """It writes the checkpoint with that: no record is named, and the queue's entries count."""
    await store.topic_deletion.delete({"Other"})
    await trio.sleep(2)
    point = store.files.checkpointing._store_checkpoint.checkpoint.recovery_point
    assert point is not None
    assert (point.record_size, point.queue_ends > 0) == (0, True)


@attrs.define(eq=False)
class CutToItsBegin(Life):
    """An operator's `store truncate` to the log's first byte."""

    async def run(self, tracer: Tracer) -> None:
        self.ledger.acknowledged.clear()
        self.ledger.read.clear()
        environment = Environment(self.node.disk, self.node.wall_clock, self.node.entropy)
        await truncate_store(SLAVE, environment, tracer, BEGIN, DelayOffsets.load(environment.disk))


def slave(work: Work = nothing, *faults: Fault) -> Life:
    return Life(work, config=SLAVE, faults=faults, is_undamaged=False)


def without_room(*faults: Fault) -> list[Life]:
    return [slave(has_no_room), slave(nothing, *faults), slave(), slave()]


def cut(*faults: Fault) -> list[Life]:
    return [slave(follow), CutToItsBegin(nothing, config=SLAVE), slave(nothing, *faults), slave(), slave()]


def cut_and_led(*faults: Fault) -> list[Life]:
    """It was started as a master after the cut, and stopped in order: the file stays, empty."""
    led = Life(nothing, is_undamaged=False)
    return [
        *(slave(follow), CutToItsBegin(nothing, config=SLAVE), led, slave(nothing, *faults)),
        *(slave(), slave()),
    ]


def cleaned(*faults: Fault) -> list[Life]:
    """A master of which the empty newest file is left becomes a slave."""
    masters = [Life(work, is_undamaged=False) for work in (ends_with_a_full_disk, deletes_a_topic)]
    return [*masters, slave(nothing, *faults), slave(), slave()]


@functools.cache
def log_of_one_queue() -> bytes:
    """Two files and a bit, whose records are in one queue."""

    async def put(life: Life, store: MessageStore) -> None:
        for _ in range(60):
            await life.put(store, Message("Q", b"x" * 100, 0))

    return live(0, Life(put, is_undamaged=False)).log


async def take_a_file(_: Life, store: MessageStore) -> None:
    store.append_to_commit_log(BEGIN, log_of_one_queue()[BEGIN : 2 * BEGIN], whole_records=True)
    await trio.sleep(0.2)


def begun_again(*faults: Fault) -> list[Life]:
    """It has lost its log's first file, which was not synced, and not an empty file of a queue; then more comes."""

    def lose(disk: SimDisk) -> None:
        for path in files_of(disk, COMMIT_LOG_DIRECTORY):
            disk.remove(path)

    late = attrs.evolve(ASYNC_FLUSH, broker_role=BrokerRole.SLAVE)
    before = Life(take_a_file, config=late, is_undamaged=False, ends_by="kill")
    after = Life(nothing, config=late, is_undamaged=False, arrange=lose)
    return [before, after, Life(take_a_file, config=late, is_undamaged=False, faults=faults), slave(), slave()]


@pytest.mark.parametrize("crash", [kill_at, power_loss_at])
@pytest.mark.parametrize(
    ("lives", "number"), [(without_room, 1), (cut, 2), (cut_and_led, 3), (cleaned, 2), (begun_again, 2)]
)
def test_a_start_that_has_removed_the_empty_log_may_crash(
    lives: Callable[..., list[Life]], number: int, crash: Callable[[int], Fault]
) -> None:
    for operation in range(1, live(0, *lives()).operations[number] + 1):
        ledger = live(operation, *lives(crash(operation)), disk=ANY)  # it raises what a start raises
        assert len(ledger.files) == len(lives()), operation


def test_a_check_of_such_a_store_finds_nothing_missing() -> None:
    found = list[str]()

    def look(disk: SimDisk) -> None:
        if not disk.list(COMMIT_LOG_DIRECTORY):
            found.extend(str(each) for each in check_store(disk, max_hash_slot_num=16) if each.severity == "error")
            found.append("looked")

    for operation in range(40, 70):
        life = Life(nothing, config=SLAVE, arrange=look, is_undamaged=False)
        live(operation, *cut(kill_at(operation))[:3], life, disk=ANY)
    assert "looked" in found
    assert {*found} == {"looked"}
