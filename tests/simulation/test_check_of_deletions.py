"""`store check` of a store whose broker lost its power amid the deletion of a topic: it refuses nothing that starts."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest
import trio

from rmq_actors.store.check.check_store import check_store
from rmq_actors.store.message_store import MessageStore
from rmq_actors.wire.record import Message
from sim_net import DiskConfig, SimDisk
from tests.worlds.store_workload import Ledger, Life, live, nothing, power_loss_at

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
