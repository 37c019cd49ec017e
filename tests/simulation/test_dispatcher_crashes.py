"""Consume queues and index, each alone on a disk: whatever a crash leaves, they come back as the log says.

A dispatcher takes records and is flushed now and then; the power goes, or the process dies, at any disk operation. Its
next life recovers to the last flush that ended, takes the records again from where it asks for them, and holds exactly
what one holds that never crashed; also after a further crash in the middle of that. Every other one takes columns.
"""

from __future__ import annotations

import errno
import functools
import itertools
import operator
import random
from collections.abc import Callable, Sequence
from typing import Any

import attrs
import pytest
import trio

from rmq_actors.store.dispatch.commit_log_dispatcher import CommitLogDispatcher
from rmq_actors.store.dispatch.consume_queues import ConsumeQueues
from rmq_actors.store.dispatch.index_service import IndexService
from rmq_actors.wire.dispatch_request import DispatchRequest
from rmq_actors.wire.index_key import index_key_hash, index_keys
from rmq_actors.wire.record import TRANSACTION_PREPARED_TYPE
from sim_net import DiskConfig, Fault, Node, SimDisk, World, WorldConfig
from tests.worlds.dispatch_batches import batch_of
from tests.worlds.store_workload import CONFIG, NODE, files_of, kill_at, power_loss_at, queues_on

RECORDS = 120
#: Small steps, so that a checkpoint lies anywhere.
BATCHES = (1, 2, 5, 9)
#: A life meets fewer.
ERRORS_MAX = 50
EXTENDED = attrs.evolve(CONFIG, enable_consume_queue_ext=True, mapped_file_size_consume_queue_ext_bytes=100)


def records(seed: str, before: Sequence[DispatchRequest] = (), count: int = RECORDS) -> list[DispatchRequest]:
    """A log of so many records that begins with those of `before`; some have keys, some no queue."""
    rng = random.Random(seed)
    found = list(before)
    numbers: dict[tuple[str, int], int] = {}
    for each in before:
        if each.takes_queue_offset:
            numbers[each.topic, each.queue_id] = each.consume_queue_offset + 1
    while len(found) < count:
        number, queue = len(found), (rng.choice(("A", "B")), rng.randrange(2))
        prepared = rng.random() < 0.1
        properties = {"UNIQ_KEY": f"U{number}"} if rng.random() < 0.5 else {}
        if rng.random() < 0.5:
            properties["KEYS"] = " ".join(f"k{rng.randrange(4)}" for _ in range(rng.randrange(1, 4)))
        queue_offset = 0 if prepared else numbers.get(queue, 0)
        found.append(
            DispatchRequest(
                *queue,
                found[-1].end_offset if found else 0,
                rng.randrange(100, 200),
                rng.randrange(1 << 31),
                1_700_000_000_000 + 700 * number,
                queue_offset,
                TRANSACTION_PREPARED_TYPE if prepared else 0,
                0,
                properties,
            )
        )
        if not prepared:
            numbers[queue] = queue_offset + 1
    return found


def queue_entries(disk: SimDisk) -> object:
    return queues_on(disk)


def extended_queue_entries(disk: SimDisk) -> object:
    """The same, with the tags code of the unit that an entry names."""
    rows: dict[str, bytes] = {}
    for path, data in files_of(disk, "consumequeue_ext").items():
        _, topic, queue_id, name = path.split("/")
        queue = f"{topic}/{queue_id}"
        assert len(rows.get(queue, b"")) == int(name)
        rows[queue] = rows.get(queue, b"") + data
    queues = queues_on(disk)
    for queue, entries in queues.items():
        named = set[int]()
        for index, (offset, size, address) in entries.items():
            at = address + (1 << 63)
            assert int.from_bytes(rows[queue][at : at + 2], "big") == 20
            entries[index] = (offset, size, int.from_bytes(rows[queue][at + 2 : at + 10], "big"))
            named.add(at)
        assert len(named) == len(entries), "two entries name one unit"
    return queues


def index_entries(disk: SimDisk) -> object:
    """Key hash and log offset of every entry, in order."""
    found: list[tuple[int, int]] = []
    for data in files_of(disk, "index").values():
        count = int.from_bytes(data[36:40], "big")
        at = 40 + 4 * CONFIG.max_hash_slot_num
        found += [
            (int.from_bytes(data[each : each + 4], "big"), int.from_bytes(data[each + 4 : each + 12], "big"))
            for each in range(at + 20, at + 20 * max(1, count), 20)
        ]
        assert not any(data[at + 20 * max(1, count) :]), "something stands behind the last entry"
    return found


def expected_queues(log: Sequence[DispatchRequest]) -> object:
    queues: dict[str, dict[int, tuple[int, int, int]]] = {}
    for each in log:
        if each.takes_queue_offset:
            queue = queues.setdefault(f"{each.topic}/{each.queue_id}", {})
            queue[each.consume_queue_offset] = (each.commit_log_offset, each.msg_size, each.tags_code)
    return queues


def expected_index(log: Sequence[DispatchRequest]) -> object:
    return [(index_key_hash(each.topic, key), each.commit_log_offset) for each in log for key in index_keys(each)]


@attrs.frozen
class Kind:
    """A dispatcher, and how to see what it holds."""

    make: Callable[[Node], CommitLogDispatcher]
    held: Callable[[SimDisk], object]
    expected: Callable[[Sequence[DispatchRequest]], object]
    check: Callable[[Any], object] = attrs.field(default=lambda _: None)
    #: Whether what it holds right after a recovery is what was durable.
    is_recovered: Callable[[Any, Any], bool] = operator.eq


def is_beginning(held: Sequence[object], durable: Sequence[object]) -> bool:
    """The index may have let go of its last entries, to have them dispatched again."""
    return held == durable[: len(held)]


def no_problems(index: IndexService) -> None:
    assert [problem for file in index.files for problem in file.problems()] == []


KINDS = {
    "queues": Kind(lambda node: ConsumeQueues(node.disk, CONFIG), queue_entries, expected_queues),
    "extended queues": Kind(lambda node: ConsumeQueues(node.disk, EXTENDED), extended_queue_entries, expected_queues),
    "index": Kind(
        lambda node: IndexService(node.disk, CONFIG, node.wall_clock),
        index_entries,
        expected_index,
        no_problems,
        is_beginning,
    ),
}


@attrs.define(eq=False)
class Dispatched:
    """One dispatcher over its lives. `durable_to`: what the store's checkpoint would say."""

    kind: Kind
    log: Sequence[DispatchRequest]
    seed: int
    #: How many disk operations fail in each life but the last.
    errors: int = 0
    #: Whether plain records come as columns.
    as_columns: bool = False
    durable_to: int = 0

    async def live(self, node: Node) -> None:
        rng = random.Random(f"{self.seed}/{node.incarnation}")
        # A crash may have taken the log's tail, and other records have come in its place.
        durable = [each for each in self.log if each.end_offset <= self.durable_to]
        kept = rng.randrange(len(durable), len(self.log) + 1)
        self.log = records(f"{self.seed}/{node.incarnation}", self.log[:kept])
        dispatcher = self.kind.make(node)
        redo_from = dispatcher.recover(self.durable_to)
        assert redo_from <= self.durable_to
        assert self.kind.is_recovered(self.kind.held(node.disk), self.kind.expected(durable)), "recovered"
        at = next((n for n, each in enumerate(self.log) if each.commit_log_offset >= redo_from), len(self.log))
        for number in range(self.errors):
            node.disk.fail(rng.choice((errno.EIO, errno.ENOSPC)), nth=1 + rng.randrange(30) + 10 * number)
        failed, errors = False, 0
        while at < len(self.log):
            batch = self.log[at : at + rng.choice(BATCHES)]
            await trio.sleep(0.001)
            try:
                self._dispatch(dispatcher, batch)
            except OSError:
                errors += 1
                assert errors <= ERRORS_MAX, "a dispatch that never succeeds"
                continue
            at += len(batch)
            if rng.random() < 0.3:
                failed = failed or await self._flush_fails(dispatcher, batch[-1].end_offset)
        self.kind.check(dispatcher)
        if not failed:
            await self._flush_fails(dispatcher, self.log[-1].end_offset)
        dispatcher.close()

    def _dispatch(self, dispatcher: CommitLogDispatcher, batch: Sequence[DispatchRequest]) -> None:
        for is_plain, part in itertools.groupby(batch, lambda each: self.as_columns and each.takes_queue_offset):
            if is_plain:
                dispatcher.dispatch_batch(batch_of(list(part)))
            else:
                dispatcher.dispatch(list(part))

    async def _flush_fails(self, dispatcher: CommitLogDispatcher, end_offset: int) -> bool:
        """Flush; after a sync that failed the checkpoint stays where it is until the next life."""
        try:
            await dispatcher.flush()
        except OSError:
            return True
        self.durable_to = max(self.durable_to, end_offset)
        return False


def survive(kind: Kind, seed: int, *crashes: Fault, disk: DiskConfig, errors: int = 0, as_columns: bool = False) -> int:
    """Crash in each of the first lives; the last one ends well. The disk operations of the first life."""
    dispatched = Dispatched(kind, records(f"{seed}/1"), seed, errors, as_columns)

    async def main(world: World) -> int:
        node = world.node(NODE)
        first = 0
        for number, crash in enumerate((*crashes, None)):
            if crash is None:
                dispatched.errors = 0
            else:
                world.apply(crash, number)
            node.boot(dispatched.live)
            await node.wait_down()
            world.stop_waiting()
            node.disk.end_faults()
            first = first or node.disk.operations
        assert kind.held(node.disk) == kind.expected(dispatched.log)
        return first

    return World(seed, WorldConfig(disk=disk, journal_keep=False)).run(main)


@pytest.mark.parametrize("unsynced", ["any", "prefix"])
@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
def test_a_dispatcher_comes_back_as_the_log_says(kind: Kind, unsynced: Any) -> None:
    disk = DiskConfig(unsynced=unsynced)
    for seed in range(12):
        rng = random.Random(seed)
        as_columns = seed % 2 == 1
        operations = survive(kind, seed, disk=disk, as_columns=as_columns)
        for _ in range(3):
            crashes = [
                rng.choice((power_loss_at, power_loss_at, kill_at))(1 + rng.randrange(operations if not n else 40))
                for n in range(rng.choice((1, 2, 3)))
            ]
            survive(kind, seed, *crashes, disk=disk, as_columns=as_columns)


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
def test_a_dispatcher_comes_back_from_errors_too(kind: Kind) -> None:
    """Of a sync that failed the pages are clean, and not durable: the next life must not take them for written."""
    for seed in range(40):
        rng = random.Random(seed)
        crashes = [rng.choice((power_loss_at, kill_at, kill_at))(1 + rng.randrange(150)) for _ in range(3)]
        errors = rng.choice((1, 2, 4))
        survive(kind, seed, *crashes, disk=DiskConfig(unsynced="any"), errors=errors, as_columns=seed % 2 == 1)


@pytest.mark.long
@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
@pytest.mark.parametrize("seed", range(4))
def test_a_dispatcher_crashes_at_every_operation(kind: Kind, seed: int) -> None:
    run = functools.partial(survive, kind, seed, disk=DiskConfig(unsynced="any"), as_columns=seed % 2 == 1)
    for operation in range(1, run() + 1):
        run(power_loss_at(operation))
        run(power_loss_at(operation), power_loss_at(1 + operation % 50))
        run(kill_at(operation), power_loss_at(1 + operation % 50))


def test_a_recovery_that_dies_after_its_cut_loses_no_key() -> None:
    """The index lets its last entry go, to have it dispatched again; the recovery after that must ask for it too."""
    for seed, kills in (
        (742, (36, 31, 13, 45, 110)),
        (271, (92, 45, 135, 123, 20)),
        (842, (60, 20, 5)),
        (899, (70, 9)),
    ):
        for offset in range(-4, 5):
            crashes = [kill_at(max(1, kill + offset)) for kill in kills]
            survive(KINDS["index"], seed, *crashes, disk=DiskConfig(unsynced="any"))
