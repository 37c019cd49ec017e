"""RocketMQ's bugs of changes of role: as in `test_recovery_bugs`."""

from __future__ import annotations

import itertools

import pytest
import trio

from rmq_actors.protocols.put_completion import PutStatus
from rmq_actors.store.config import BrokerRole, FlushDiskType
from rmq_actors.store.puts.message_puts import PutResult
from rmq_actors.wire.record import Message
from sim_net import Partition
from tests.worlds.role_world import TOPIC, RoleWorld, queue_bodies

ASYNC_MASTER, SYNC_MASTER, SLAVE = BrokerRole.ASYNC_MASTER, BrokerRole.SYNC_MASTER, BrokerRole.SLAVE
MASTER = "DefaultCluster", "broker-a", 0


def test_8539_a_promoted_slave_goes_on_with_the_queue_offsets() -> None:
    """It knew the end of no queue: the next message got offset 0, and consumers never saw it."""
    servers = RoleWorld.of()

    async def use() -> None:
        for number in range(100):
            await servers.put("a-0", b"%d" % number, queue_id=number % 3)
        await servers.wait_replicated("a-1")
        servers.nodes["a-0"].kill()
        assert await servers.change_role("a-1", ASYNC_MASTER) is None
        for queue_id, count in enumerate((34, 33, 33)):
            result = await servers.put("a-1", b"next", queue_id=queue_id)
            assert result.append is not None
            assert result.append.queue_offset == count
            await trio.sleep(0.1)
            bodies = queue_bodies(servers.controller("a-1"), queue_id=queue_id)
            assert bodies == [*(b"%d" % number for number in range(queue_id, 100, 3)), b"next"]

    servers.run_well(use)


@pytest.mark.parametrize("force_register", [True, False])
def test_3381_a_promotion_is_routed_at_once_though_the_topics_are_the_same(force_register: bool) -> None:
    """Without forceRegister only the version of the topics was compared, and the role that had changed never came."""
    servers = RoleWorld.of()
    servers.settings = {"force_register": force_register}

    async def use() -> None:
        await trio.sleep(40)
        servers.nodes["a-0"].power_loss()
        assert await servers.change_role("a-1", SYNC_MASTER) is None
        await trio.sleep(0.2)
        assert servers.known("ns-1").brokers == {MASTER: servers.brokers["a-1"].address}

    servers.run_well(use)


def test_s10_a_put_that_waits_is_answered_when_the_role_changes() -> None:
    """Nobody answered it: it waited until its time was over."""
    servers = RoleWorld.of()
    answers: list[tuple[float, PutResult]] = []

    async def put(number: int) -> None:
        result = await servers.put("a-0", b"%d" % number)
        answers.append((trio.current_time(), result))

    async def use() -> None:
        servers.world.apply(Partition(0.0, 60.0, "a-0", "a-1"), 1)
        with trio.fail_after(30):
            await put_and_change()
        assert [result.status for _, result in answers] == [PutStatus.FLUSH_SLAVE_TIMEOUT] * 5
        assert sorted(queue_bodies(servers.controller("a-0"))) == [b"%d" % number for number in range(5)]

    async def put_and_change() -> None:
        async with trio.open_nursery() as nursery:
            for number in range(5):
                nursery.start_soon(put, number)
            await trio.sleep(0.5)
            assert not answers
            assert await servers.change_role("a-0", ASYNC_MASTER) is None
            changed_s = trio.current_time()
        assert all(at_s <= changed_s for at_s, _ in answers)

    servers.run_well(use)


def test_2457_a_promoted_slave_with_the_pool_takes_puts() -> None:
    """The pool was made for the role that the broker had started in: a promoted one was always busy."""
    servers = RoleWorld.of(transient_store_pool_enable=True, flush_disk_type=FlushDiskType.ASYNC_FLUSH)
    numbers = itertools.count()

    async def use() -> None:
        for master, slave in (("a-0", "a-1"), ("a-1", "a-0")):
            for _ in range(20):
                result = await servers.put(master, b"%d" % next(numbers))
                assert result.status is PutStatus.PUT_OK
            await servers.wait_replicated(slave, master=master)
            assert await servers.change_role(master, SLAVE) is None
            assert await servers.change_role(slave, SYNC_MASTER) is None
            await trio.sleep(15)
        controller = servers.controller("a-0")
        assert controller.config.store.uses_transient_store_pool
        put = await servers.on_node("a-0", lambda: controller.put_message(Message(TOPIC, b"last")))
        assert put.append is not None
        await trio.sleep(1)
        assert queue_bodies(controller) == [*(b"%d" % number for number in range(40)), b"last"]

    servers.run_well(use)
