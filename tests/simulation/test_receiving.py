"""A slave that receives a log faster than it dispatches it: cut off in between, it loses nothing of what it derives."""

from __future__ import annotations

import pytest
import trio

from rmq_actors.store.message_store import MessageStore
from tests.worlds.ha_world import HaCluster

PUTS = 120
#: A receive fills one, as a real master's log fills a large one.
SMALL_BUFFERS = {"read_buffer_bytes": 2048, "ha_transfer_batch_size_bytes": 512}


def behind(store: MessageStore) -> int:
    return store.commit_log.max_offset - store.files.reput.reput_from_offset


def queues(store: MessageStore) -> list[list[int]]:
    """Of each queue: where its records are."""
    offsets = store.offsets
    return [
        [
            offsets.get_commit_log_offset_in_queue("TopicTest", queue_id, number)
            for number in range(offsets.get_max_offset_in_queue("TopicTest", queue_id))
        ]
        for queue_id in (0, 1)
    ]


async def catch_up_to(cluster: HaCluster, share: float) -> None:
    """Start a slave, and return when it has so much of the master's log, and has dispatched less."""
    slave = await cluster.start("slave")
    with slave.store.log_end.subscribe() as growth:
        while slave.store.commit_log.max_offset < share * cluster.master_end:
            await growth.receive()
    assert behind(slave.store) > 0.3 * slave.store.commit_log.max_offset


@pytest.mark.parametrize("share", [0.5, 1.0])
@pytest.mark.parametrize("end", ["kill", "power_loss", "stop"])
def test_what_was_received_and_not_dispatched_is_dispatched_after_the_next_start(end: str, share: float) -> None:
    async def main(cluster: HaCluster) -> None:
        master = await cluster.start("master")
        await cluster.put_many(PUTS)
        await catch_up_to(cluster, share)
        if end == "stop":
            await cluster.stop("slave")
        else:
            getattr(cluster.node("slave"), end)()
        slave = await cluster.start("slave")
        await trio.sleep(5)
        assert slave.store.commit_log.max_offset == cluster.master_end
        assert not behind(slave.store)
        assert queues(slave.store) == queues(master.store)
        assert sum(map(len, queues(slave.store))) == PUTS

    HaCluster(ha=SMALL_BUFFERS).run(main)


def test_a_catch_up_is_the_same_in_every_run() -> None:
    def run() -> list[object]:
        async def main(cluster: HaCluster) -> None:
            await cluster.start("master")
            await cluster.put_many(PUTS)
            await catch_up_to(cluster, 1.0)
            await trio.sleep(1)
            assert not behind(cluster.brokers["slave"].store)

        return list(HaCluster(ha=SMALL_BUFFERS).run(main).recorder.events)

    assert run() == run()
