"""The process dies, or the power goes, at every step of a broker that delivers delayed messages and notes how far.

Whatever it is: what waits in the log is delivered, at last and not early; nothing comes twice but what was delivered
after the offsets were last written; and what a slave takes over does not count what its log lacks.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import attrs
import pytest
import trio

from rmq_actors.ha.followed_master import FollowedMaster
from rmq_actors.store.config import BrokerRole, FlushDiskType
from rmq_actors.tracing.event import of_kind
from rmq_actors.tracing.events.broker import BrokerDeliver, BrokerPersistOffsets
from rmq_actors.wire.dispatch_request import SCHEDULE_TOPIC
from rmq_actors.wire.record import Message, StoredMessage, decode_message
from sim_net import Fault, Kill, On, PowerLoss, Schedule, World
from tests.worlds.metadata_world import MetadataCluster, metadata_of
from tests.worlds.registration_world import Broker

TOPIC = "Topic"
DELAY_S = 1.0
MESSAGES = 30
EVERY_S = 0.05
#: Offsets are written first 10 s after the start.
FIRST_PUT_S, FIRST_PERSIST_S = 8.9, 10.0
DOWN_S = 0.3
OVER_S = 16.0
Kills = Callable[[On], Fault]


def kill(on: On) -> Fault:
    return Kill(0.0, "master", DOWN_S, on=on)


def power_loss(on: On) -> Fault:
    return PowerLoss(0.0, "master", DOWN_S, on=on)


def configured(cluster: MetadataCluster, **store: Any) -> Broker:
    master = cluster.master
    settings = attrs.evolve(master.config.store, **{"broker_role": BrokerRole.ASYNC_MASTER, **store})
    master.config = attrs.evolve(master.config, store=settings, flush_consumer_offset_interval_ms=150)
    return master


def queue(broker: Broker, topic: str) -> list[StoredMessage]:
    """All messages of queue 0."""
    found: list[StoredMessage] = []
    while messages := broker.controller.store.reads.get_message(topic, 0, len(found), 32).messages:
        found += [decode_message(message) for message in messages]
    return found


async def put_all(broker: Broker) -> set[bytes]:
    """Put messages one after the other, if the broker is there; those that it took."""
    taken: set[bytes] = set()
    for number in range(MESSAGES):
        if broker.node.is_up and broker.ready.is_set():
            body = b"%d" % number
            pending = broker.controller.async_put_message(Message(TOPIC, body, delay_time_level=1))
            if pending.result is not None and pending.result.append is not None:
                taken.add(body)
        await trio.sleep(EVERY_S)
    return taken


@attrs.frozen
class Run:
    """What is left: `taken` were put, `waiting` and `delivered` are in the log at last."""

    taken: set[bytes]
    waiting: list[StoredMessage]
    delivered: list[StoredMessage]
    offset: int
    lives: int
    cluster: MetadataCluster


def run(*faults: Fault, seed: int = 1, **store: Any) -> Run:
    cluster = MetadataCluster.make(seed, 0)
    master = configured(cluster, **store)
    runs: list[Run] = []

    async def main(world: World) -> None:
        await master.start()
        await trio.sleep_until(FIRST_PUT_S)
        async with trio.open_nursery() as nursery:
            taken: list[set[bytes]] = []

            async def put() -> None:
                taken.append(await put_all(master))

            nursery.start_soon(put)
            await trio.sleep_until(FIRST_PERSIST_S - 0.03)
            world.start_schedule(Schedule(faults))
        await trio.sleep_until(OVER_S)
        offset = metadata_of(master).delay_offsets.offset_table.get(1, 0)
        runs.append(
            Run(taken[0], queue(master, SCHEDULE_TOPIC), queue(master, TOPIC), offset, master.node.incarnation, cluster)
        )
        await master.stop()

    cluster.world.run(main)
    return runs[0]


def check(run: Run) -> None:
    waiting = {message.body: message for message in run.waiting}
    counts = Counter(message.body for message in run.delivered)
    assert counts.keys() == waiting.keys()
    assert run.offset == len(run.waiting)
    for message in run.delivered:
        waited_ms = message.store_timestamp_ms - waiting[message.body].store_timestamp_ms
        assert waited_ms >= 1000 * DELAY_S
    # What comes twice was delivered in the first life, after the offsets were read that were written last: that was
    # after those before were written. A put may be in the log before the event that tells of its delivery.
    events = run.cluster.recorder.events
    persisted = [0, 0]
    persisted += [
        event.seq
        for event in of_kind(events, BrokerPersistOffsets)
        if (event.part, event.status, event.life) == ("delay_offsets", "written", 1)
    ]
    may_repeat = sum(
        event.queue_offset_next - event.queue_offset
        for event in of_kind(events, BrokerDeliver)
        if (event.status, event.life) == ("delivered", 1) and event.seq > persisted[-2]
    )
    assert sum(counts.values()) - len(counts) <= may_repeat + 1
    assert max(counts.values(), default=1) <= 2


def test_without_a_crash_each_message_comes_once() -> None:
    found = run()
    check(found)
    assert found.taken == {b"%d" % number for number in range(MESSAGES)}
    assert [message.body for message in found.delivered] == [b"%d" % number for number in range(MESSAGES)]
    assert found.lives == 1


@pytest.mark.parametrize("crash", [kill, power_loss])
@pytest.mark.parametrize("kind", ["broker.deliver", "put.begin", "broker.persist_offsets", "log.flush"])
def test_a_crash_at_each_event(crash: Kills, kind: str) -> None:
    crashed = 0
    for nth in (1, 3):
        found = run(crash(On(kind, "master", nth)), seed=nth)
        check(found)
        crashed += found.lives == 2
        if crash is kill:
            assert {message.body for message in found.waiting} == found.taken
    assert crashed == 2


@pytest.mark.parametrize("flush", [FlushDiskType.ASYNC_FLUSH, FlushDiskType.SYNC_FLUSH])
def test_the_power_goes_at_each_disk_operation_of_a_delivery_and_a_persist(flush: FlushDiskType) -> None:
    crashed = 0
    for nth in range(1, 25, 6):
        found = run(power_loss(On("disk.*", "master", nth)), seed=nth, flush_disk_type=flush)
        check(found)
        crashed += found.lives == 2
        if flush is FlushDiskType.SYNC_FLUSH:
            waiting = {message.body for message in found.waiting}
            assert found.taken <= waiting  # nothing was answered before it was on the disk
    assert crashed >= 3


@pytest.mark.long
@pytest.mark.parametrize("crash", [kill, power_loss])
@pytest.mark.parametrize("flush", [FlushDiskType.ASYNC_FLUSH, FlushDiskType.SYNC_FLUSH])
@pytest.mark.parametrize("pool", [False, True])
def test_a_crash_at_every_disk_operation(crash: Kills, flush: FlushDiskType, pool: bool) -> None:
    for nth in range(1, 120):
        store: dict[str, Any] = {"flush_disk_type": flush, "transient_store_pool_enable": pool}
        check(run(crash(On("disk.*", "master", nth)), seed=nth, **store))


def test_a_log_that_is_seldom_flushed_makes_no_offset_durable_that_it_lacks() -> None:
    """The offsets were written while what they count was in memory alone: after a power loss it was gone."""
    slow: dict[str, Any] = {"flush_interval_commit_log_ms": 1_000, "flush_commit_log_thorough_interval_ms": 60_000}
    for nth in (1, 2):
        found = run(power_loss(On("broker.persist_offsets", "master", nth)), seed=nth, **slow)
        check(found)
        assert found.lives == 2


def test_a_slave_takes_no_offsets_that_count_what_its_log_lacks(monkeypatch: pytest.MonkeyPatch) -> None:
    """As the next master it would deliver nothing of what lies between."""
    monkeypatch.setattr(FollowedMaster, "is_followed", property(lambda _: True, lambda _, __: None))
    cluster = MetadataCluster.make(1, 1)
    master = configured(cluster)
    nowhere = attrs.evolve(cluster.slave.config.ha, ha_master_address=f"{master.node.address}:9")
    cluster.slave.config = attrs.evolve(cluster.slave.config, ha=nowhere)

    async def main(_: World) -> None:
        await cluster.start()
        await master.controller.put_message(Message(TOPIC, b"x", delay_time_level=1))
        await trio.sleep(15)
        assert metadata_of(master).delay_offsets.offset_table == {1: 1}
        assert metadata_of(cluster.slave).delay_offsets.offset_table == {}

    cluster.world.run(main)
    assert "LogBehind" in cluster.statuses("delay_offsets")
