"""`store check` of a store that lost its power while queue files were removed or made again: a start takes it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest
import trio

from rmq_actors.store.check.check_store import check_store
from rmq_actors.store.files.layout import CONSUME_QUEUE_DIRECTORY
from rmq_actors.store.message_store import MessageStore
from rmq_actors.wire.record import Message
from sim_net import DiskConfig, Fault, SimDisk
from tests.worlds.store_workload import Ledger, Life, files_of, live, nothing, power_loss_at

ANY = DiskConfig(unsynced="any")
#: Several files of its queue.
MESSAGES = 34
Deletion = Callable[[MessageStore], Awaitable[object]]


async def delete(store: MessageStore) -> None:
    await store.topic_deletion.delete({"Gone"})


async def follow(store: MessageStore) -> None:
    """As a slave that is told of it."""
    await store.topic_deletion.follow({"Gone": {None: store.commit_log.max_offset}}, 0)


@pytest.mark.parametrize("deletion", [delete, follow])
def test_a_check_refuses_no_queue_that_a_start_takes(deletion: Deletion, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Ledger, "check_recovered", lambda *_, **__: None)  # what was deleted was acknowledged
    refused, operations = list[str](), list[int]()

    async def work(life: Life, store: MessageStore) -> None:
        for number in range(MESSAGES):
            await life.put(store, Message("Gone", b"x%d" % number, 0))
        await trio.sleep(1.5)
        operations.append(life.node.disk.operations)
        await deletion(store)
        operations.append(life.node.disk.operations)

    def look(disk: SimDisk) -> None:
        refused.extend(str(each) for each in check_store(disk, max_hash_slot_num=16) if each.is_refused)

    live(0, Life(work))
    begin, end = operations
    for operation in range(begin, end + 2):
        for seed in range(3):
            crash, start = (
                Life(work, faults=(power_loss_at(operation),)),
                Life(nothing, arrange=look, is_undamaged=False),
            )
            live(seed * 100 + operation, crash, start, disk=ANY)
    assert refused == []


def test_a_check_refuses_no_queue_that_a_start_makes_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Somebody has removed its files after an orderly stop, and the power goes amid the start that makes them again."""
    monkeypatch.setattr(Ledger, "check_recovered", lambda *_, **__: None)  # a start that was interrupted has not all
    refused, looks = list[str](), list[int]()

    async def work(life: Life, store: MessageStore) -> None:
        for number in range(MESSAGES):
            await life.put(store, Message("Gone", b"x%d" % number, 0))

    def remove(disk: SimDisk) -> None:
        for path in files_of(disk, CONSUME_QUEUE_DIRECTORY):
            disk.remove(path)
        directory = disk._tree.directory(f"{CONSUME_QUEUE_DIRECTORY}/Gone/0")
        directory.settle(directory.mark())  # no power loss brings them back

    def look(disk: SimDisk) -> None:
        looks.append(len(disk.list(f"{CONSUME_QUEUE_DIRECTORY}/Gone/0")))
        refused.extend(str(each) for each in check_store(disk, max_hash_slot_num=16) if each.is_refused)

    def lives(*faults: Fault) -> list[Life]:
        again = Life(nothing, arrange=remove, faults=faults, is_undamaged=False)
        return [Life(work), again, Life(nothing, arrange=look, is_undamaged=False)]

    operations = live(0, *lives()).operations[1]
    for operation in range(3, operations + 1):
        for seed in range(2):
            live(seed * 100 + operation, *lives(power_loss_at(operation)), disk=ANY)
    assert refused == []
    assert len({*looks}) > 2
