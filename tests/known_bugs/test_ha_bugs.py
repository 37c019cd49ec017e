"""RocketMQ's bugs of replication: each test bears the number that the bug has there.

A test fails when the bug's cause is planted here: docs/known-bugs.md names the diff that does. Where no diff is named
the cause cannot exist here: the test says why, and holds the invariant that the bug broke. S1 to S14 have no report:
they are from RocketMQ's source.
"""

from __future__ import annotations

import pytest
import trio

from rmq_actors.broker.broker_controller import BrokerController
from rmq_actors.protocols.group_transfer import ReplicationState
from rmq_actors.protocols.ha_slave import HaSlave
from rmq_actors.protocols.put_completion import PutStatus
from rmq_actors.settings.configure import ConfigurationError, Properties, configure
from rmq_actors.store.check.check_store import check_store
from rmq_actors.store.config import MessageStoreConfig
from rmq_actors.tracing.events.ha import HaClientConnect, HaConnectionClose, HaConnectionOpen, HaHeartbeat, HaReport
from rmq_actors.tracing.events.store import PutEnd
from rmq_actors.wire.ha_frames import encode_report, encode_transfer_header
from sim_net import LinkConfig, Partition, WorldConfig
from tests.worlds.ha_world import FILE_BYTES, RECORD_BYTES, HaCluster
from tests.worlds.store_workload import files_of, queues_on

OK, TIMEOUT, UNAVAILABLE = PutStatus.PUT_OK, PutStatus.FLUSH_SLAVE_TIMEOUT, PutStatus.SLAVE_NOT_AVAILABLE
#: The time-out of RocketMQ's clients: what is answered later, nobody hears.
CLIENT_TIMEOUT_S = 3.0
STRAYS = {
    "2^40": encode_report(1 << 40),
    "-1": encode_report(-1),
    "an HTTP request": b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
}


def log_of(cluster: HaCluster, name: str) -> bytes:
    log = cluster.brokers[name].store.commit_log
    return b"".join(bytes(view) for view in log.ranges(log.min_offset, log.max_offset))


async def wait_replicated(cluster: HaCluster, slave: str = "slave") -> None:
    with trio.fail_after(30):
        while cluster.brokers[slave].store.commit_log.max_offset != cluster.master_end:
            await trio.sleep(0.05)
    await trio.sleep(0.5)  # dispatched, too


async def remove_files(broker: BrokerController, count: int) -> None:
    """Clean, once there is a checkpoint after what goes."""
    log = broker.store.commit_log
    await trio.sleep(20)
    for _ in range(count):
        await log.sync_names()
        assert log.remove_oldest_file()
    await log.sync_names()


def bodies_of(cluster: HaCluster, name: str, queue_id: int, offset: int) -> list[bytes]:
    """What a consumer gets from a queue, from an offset on."""
    bodies: list[bytes] = []
    reads = cluster.brokers[name].store.reads
    while found := reads.get_message("TopicTest", queue_id, offset + len(bodies), 8).messages:
        bodies += [bytes(record) for record in found]
    return bodies


@pytest.mark.parametrize("stays", [True, False])
@pytest.mark.parametrize("stray", STRAYS)
def test_3015_a_stray_report_acknowledges_nothing(stray: str, stays: bool) -> None:
    """Also #1155, #3349. Any eight bytes on the HA port raised for ever what counted as replicated."""

    async def main(cluster: HaCluster) -> None:
        await cluster.start("master")
        assert await cluster.put() is UNAVAILABLE
        peer = cluster.visit("stray", STRAYS[stray])
        await trio.sleep(1)
        assert peer.is_closed
        if not stays:
            cluster.nodes["stray"].kill()
            cluster.visit("empty", encode_report(0))
            await trio.sleep(1)
        assert OK not in await cluster.put_many(3)

    HaCluster().run(main)


def test_2706_a_slave_ahead_of_its_master_acknowledges_nothing() -> None:
    """The other way to the same bug: a master that lost its log, and its old slave."""

    async def main(cluster: HaCluster) -> None:
        await cluster.start_pair()
        assert await cluster.put_many(3) == [OK] * 3
        await cluster.stop("slave")
        cluster.nodes["master"].kill()
        cluster.brokers["master"] = await cluster.start("emptied", master="emptied")
        await cluster.start("slave", master="emptied")
        await trio.sleep(10)
        assert OK not in await cluster.put_many(2)
        assert cluster.brokers["slave"].store.commit_log.max_offset == 3 * RECORD_BYTES

    cluster = HaCluster().run(main)
    assert set(cluster.closed("emptied")) == set()
    reasons = [event.status for event in cluster.events(HaConnectionClose, "emptied")]
    assert set(reasons[:-1]) == {"slave_ahead"}


def test_3388_a_slave_that_was_away_for_too_long_is_refused_by_name() -> None:
    """It got heartbeats for ever, and nothing said why."""

    async def main(cluster: HaCluster) -> None:
        master, _ = await cluster.start_pair()
        await cluster.put_many(4)
        await cluster.stop("slave")
        await cluster.put_many(24)
        await remove_files(master, 2)
        await cluster.start("slave")
        await trio.sleep(60)
        # It does not seem to be a slave that somebody could wait for.
        assert cluster.closed()[1:] == ["offset_gone"] * (len(cluster.closed()) - 1)
        assert cluster.counters.ends["offset_gone"] > 5
        assert await cluster.put() is UNAVAILABLE
        # A slave without a log takes its place.
        cluster.nodes["slave"].kill()
        await cluster.start("other")
        await wait_replicated(cluster, "other")
        assert log_of(cluster, "other") == log_of(cluster, "master")

    HaCluster().run(main)


@pytest.mark.parametrize("from_last_file", [False, True])
def test_3661_a_new_slave_gets_all_that_its_master_has(from_last_file: bool) -> None:
    """Also #9580. It got the master's last file alone; who wants that sets syncFromLastFile."""

    async def main(cluster: HaCluster) -> None:
        master = await cluster.start("master")
        await cluster.put_many(20)
        await cluster.start("slave")
        await wait_replicated(cluster)
        begin = 2 * FILE_BYTES if from_last_file else 0
        assert cluster.brokers["slave"].store.commit_log.min_offset == begin
        assert log_of(cluster, "slave") == log_of(cluster, "master")[begin:]
        for queue_id in range(2):
            first = 7 if from_last_file else 0
            messages = bodies_of(cluster, "slave", queue_id, first)
            assert messages == bodies_of(cluster, "master", queue_id, first)
            assert len(messages) == 10 - first
        assert await cluster.put() is OK
        assert master.store.commit_log.min_offset == 0

    HaCluster(ha={"sync_from_last_file": from_last_file}).run(main)


@pytest.mark.parametrize("why", ["the master has deleted files", "syncFromLastFile"])
def test_69_queues_that_do_not_begin_at_0_are_right(why: str) -> None:
    """alibaba#69. A slave whose log does not begin at 0 built no queues."""

    async def main(cluster: HaCluster) -> None:
        master = await cluster.start("master")
        await cluster.put_many(60)
        if why != "syncFromLastFile":
            await remove_files(master, 5)
        await cluster.start("slave")
        await wait_replicated(cluster)
        await check(cluster)
        assert await cluster.put_many(9) == [OK] * 9
        await check(cluster)
        cluster.nodes["slave"].power_loss()
        await cluster.start("slave")
        await wait_replicated(cluster)
        await check(cluster)
        await cluster.stop("slave")
        findings = check_store(cluster.nodes["slave"].disk, max_hash_slot_num=16)
        assert [str(each) for each in findings if each.severity != "note"] == []

    async def check(cluster: HaCluster) -> None:
        slave = cluster.brokers["slave"]
        begin = slave.store.commit_log.min_offset
        assert begin >= 5 * FILE_BYTES
        await trio.sleep(1)
        queues = queues_on(cluster.nodes["slave"].disk)
        assert queues == queues_on(cluster.nodes["master"].disk, begin)
        assert len(queues) == 2
        for name, queue in queues.items():
            queue_id, first = int(name[-1]), min(queue)
            assert slave.store.offsets.get_min_offset_in_queue("TopicTest", queue_id) == first > 0
            assert bodies_of(cluster, "slave", queue_id, first) == bodies_of(cluster, "master", queue_id, first)

    HaCluster(ha={"sync_from_last_file": why == "syncFromLastFile"}).run(main)


def test_1082_an_idle_pair_stays_connected() -> None:
    """Also #1118. Only log bytes were signs of life, so a pair without puts connected again every 20 s."""

    async def main(cluster: HaCluster) -> None:
        await cluster.start_pair()
        await trio.sleep(120)
        assert await cluster.put() is OK

    cluster = HaCluster().run(main)
    assert len(cluster.events(HaClientConnect, "slave")) == 1
    assert cluster.closed("slave") == []
    assert len(cluster.events(HaHeartbeat)) >= 23


def test_2821_a_slave_that_stops_is_not_waited_for() -> None:
    """Its connection stayed open, and for 20 s every put waited for it."""

    async def main(cluster: HaCluster) -> None:
        await cluster.start_pair()
        assert await cluster.put() is OK
        await cluster.stop("slave")
        await trio.sleep(0.1)
        began = trio.current_time()
        assert await cluster.put() is UNAVAILABLE
        assert trio.current_time() - began < 0.1

    cluster = HaCluster().run(main)
    assert cluster.closed() == ["peer_closed"]


def test_1244_a_message_that_is_acknowledged_in_many_steps_is_replicated() -> None:
    """Also #1535, ROCKETMQ-272. A put waited for five reports, whatever they said, instead of for its deadline."""

    async def main(cluster: HaCluster) -> None:
        await cluster.start("master")
        cluster.visit("slave", follows=True, pause_s=0.001)
        await trio.sleep(1)
        assert await cluster.put(bytes(300 * 1024)) is OK

    cluster = HaCluster(store={"mapped_file_size_commit_log_bytes": 1 << 20}).run(main)
    assert len(cluster.events(HaReport)) >= 10


@pytest.mark.parametrize("slave", ["frozen", "read-only"])
def test_3484_puts_that_wait_for_a_slave_that_hangs_are_answered_in_time(slave: str) -> None:
    """Also #5657. A put waited for 5 s, each one after the others; the clients had gone after 3 s."""
    answers: list[tuple[float, PutStatus]] = []

    async def put(cluster: HaCluster) -> None:
        began = trio.current_time()
        status = await cluster.put()
        answers.append((trio.current_time() - began, status))

    async def main(cluster: HaCluster) -> None:
        if slave == "frozen":
            await cluster.start_pair()
            assert await cluster.put() is OK
            cluster.nodes["slave"].pause()
        else:
            await cluster.start("master")
            cluster.visit("slave", encode_report(0), heartbeat=0)
            await trio.sleep(1)
        for _ in range(2):
            async with trio.open_nursery() as nursery:
                for _ in range(10):
                    nursery.start_soon(put, cluster)
                    await trio.sleep(0.01)

    HaCluster().run(main)
    assert [status for _, status in answers] == [TIMEOUT] * 20
    assert max(waited_s for waited_s, _ in answers) < CLIENT_TIMEOUT_S


def test_290_a_slave_that_connects_again_and_again_leaves_nothing_behind() -> None:
    """Each connection left an entry in the table of those who wait for the log to grow."""

    async def main(cluster: HaCluster) -> None:
        await cluster.start("master")
        await cluster.put_many(3)
        await trio.sleep(1)
        before = await left_behind(cluster)
        for number in range(200):
            peer = cluster.visit("slave", follows=True)
            await trio.sleep(0.02)
            assert peer.end == 3 * RECORD_BYTES, number
            cluster.nodes["slave"].kill()
        assert await left_behind(cluster) == before
        assert cluster.counters.connections == 200
        assert sum(cluster.counters.ends.values()) == 200

    async def left_behind(cluster: HaCluster) -> dict[str, int]:
        await trio.sleep(1)
        store, service = cluster.master.store, cluster.master.ha_service
        return {
            "connections": len(service.connections),
            "receivers": store.log_end.receivers + store.flush_outcomes.receivers,
            "tasks": trio.lowlevel.current_statistics().tasks_living,
        }

    HaCluster().run(main)


@pytest.mark.parametrize("seed", range(8))
def test_145_each_put_is_answered_once_however_reports_and_deadlines_meet(seed: int) -> None:
    """Also ROCKETMQ-33. Two threads exchanged the lists of those who wait, and some were lost.

    Cannot exist: one queue, changed by one task between two awaits.
    """
    answers: list[PutStatus] = []

    async def put(cluster: HaCluster) -> None:
        answers.extend(await cluster.put_many(10))

    async def main(cluster: HaCluster) -> None:
        await cluster.start_pair()
        with trio.fail_after(10):
            async with trio.open_nursery() as nursery:
                for _ in range(4):
                    nursery.start_soon(put, cluster)
        await trio.sleep(1)

    # A report takes about as long as a put waits.
    world = WorldConfig(link=LinkConfig(latency_min_s=0.001, latency_max_s=0.003))
    cluster = HaCluster(seed, world, store={"slave_timeout_ms": 4}).run(main)
    assert len(answers) == 40
    assert set(answers) == {OK, TIMEOUT}
    assert len(cluster.events(PutEnd)) == 40


def test_323_no_slave_is_less_than_nothing_behind() -> None:
    """A stray report made "fall behind" -8 * 10^18."""

    async def main(cluster: HaCluster) -> None:
        master = await cluster.start("master")
        await cluster.put_many(3)
        for number, data in enumerate([*STRAYS.values(), encode_report(3 * RECORD_BYTES + 1)]):
            cluster.visit(f"stray-{number}", data)
        for _ in range(100):
            await trio.sleep(0.0005)
            assert not [each for each in master.ha_service.slave_statuses() if (each.lag_bytes or 0) < 0]

    cluster = HaCluster().run(main)
    assert cluster.events(HaReport) == []
    assert len(cluster.events(HaConnectionOpen)) == len(cluster.closed()) == 4


def test_2784_a_slave_whose_queues_end_before_its_log_begins_goes_on() -> None:
    """It dispatched from where its queues ended, which was before its log began, and never came further.

    Cannot exist: dispatch begins where recovery ends, and recovery reads what the log has.
    """

    async def main(cluster: HaCluster) -> None:
        await cluster.start_pair()
        assert await cluster.put_many(10) == [OK] * 10
        await cluster.stop("slave")
        behind = files_of(cluster.nodes["slave"].disk, "consumequeue")
        await cluster.start("slave")
        await trio.sleep(1)
        assert await cluster.put_many(20) == [OK] * 20
        await remove_files(cluster.brokers["slave"], 2)
        await cluster.stop("slave")
        disk = cluster.nodes["slave"].disk
        for path in files_of(disk, "consumequeue"):
            if path not in behind:
                disk.remove(path)
        for path, data in behind.items():
            file = disk.open(path)
            file.truncate(len(data))
            file.write_at(0, data)
            file.close()
        disk.remove("checkpoint")
        disk.open("abort", allocate_bytes=0).close()
        await cluster.start("slave")
        await trio.sleep(1)
        assert await cluster.put_many(10) == [OK] * 10
        await wait_replicated(cluster)
        begin = cluster.brokers["slave"].store.commit_log.min_offset
        assert begin == 2 * FILE_BYTES
        assert queues_on(disk, begin) == queues_on(cluster.nodes["master"].disk, begin)

    HaCluster().run(main)


def test_3664_a_round_trip_of_2_ms_costs_no_throughput() -> None:
    """Also #1372, #3825. Batches of 32 KiB, buffers of a fixed 64 KiB, and looks at the log every 200 ms.

    Cannot exist: frames are handed over a MiB at a time, nothing waits for a report, and the system sizes the buffers.
    """
    seconds: list[float] = []
    size = 10 << 20

    async def main(cluster: HaCluster) -> None:
        await cluster.start("master")
        for _ in range(10):
            await cluster.put(bytes(size // 10))
        began = trio.current_time()
        peer = cluster.visit("slave", follows=True)
        while peer.end < cluster.master_end:
            await trio.sleep(0.001)
        seconds.append(trio.current_time() - began)
        # Nor does a put wait for more than the way there and back.
        began = trio.current_time()
        assert await cluster.put() is OK
        assert trio.current_time() - began < 0.003

    for receive_buffer_bytes in (64 << 10, 1 << 20):
        world = WorldConfig(link=LinkConfig(0.001, 0.001), receive_buffer_bytes=receive_buffer_bytes)
        HaCluster(1, world, store={"mapped_file_size_commit_log_bytes": 16 << 20}).run(main)
        # What the peer has room for is under way at any time.
        assert seconds[-1] < 1.2 * size / (receive_buffer_bytes / 0.002) + 0.02, seconds


@pytest.mark.parametrize("bodies", [(0,), (1, 0, 40, 7)])
def test_5651_a_frame_may_arrive_in_any_pieces(bodies: tuple[int, ...]) -> None:
    """A header that was not whole yet was read as one: the smaller of two header sizes was asked for."""
    stream, offset = b"", 100
    for size in bodies:
        stream += encode_transfer_header(offset, size) + bytes(range(size))
        offset += size

    def appended(pieces: list[bytes]) -> list[tuple[int, bytes]]:
        slave, done = HaSlave(100, 0.0, 5.0, 20.0, 128), []
        for piece in pieces:
            slave.free()[: len(piece)] = piece
            done += [(append.offset, bytes(append.data)) for append in slave.received(len(piece), 0.0)]
        return done

    whole = appended([stream])
    assert [len(data) for _, data in whole] == [size for size in bodies if size]
    for cut in range(1, len(stream)):
        assert appended([stream[:cut], stream[cut:]]) == whole
    assert appended([stream[at : at + 1] for at in range(len(stream))]) == whole


def test_6306_slaves_that_leave_at_the_same_time_are_all_gone() -> None:
    """Also #9897. Two threads that removed a slave each wrote back what they had read before.

    Cannot exist: one task has the reports, and hears of each connection's end.
    """

    async def main(cluster: HaCluster) -> None:
        master = await cluster.start("master")
        for name in ("a", "b", "c"):
            await cluster.start(name)
        await trio.sleep(1)
        assert await cluster.put() is OK
        cluster.nodes["a"].kill()
        cluster.nodes["b"].kill()
        await trio.sleep(0.1)
        assert [each.peer.rpartition(":")[0] for each in master.ha_service.slave_statuses()] == [
            cluster.nodes["c"].address
        ]
        assert await cluster.put() is OK
        cluster.nodes["c"].kill()
        await trio.sleep(0.1)
        assert cluster.connections == 0
        assert await cluster.put() is UNAVAILABLE

    # What takes equally long ends in the same tick.
    HaCluster(world_config=WorldConfig(link=LinkConfig(0.001, 0.001))).run(main)


def test_2611_a_slave_may_be_more_than_2_gib_behind() -> None:
    """haSlaveFallbehindMax was an int of 32 bits."""
    size = 3 << 30
    settings = Properties("broker.conf", {"haSlaveFallbehindMax": str(size)})
    assert configure(MessageStoreConfig(), settings).ha_slave_fallbehind_max_bytes == size
    assert ReplicationState(1, 100).is_slave_ok(99 + size, size)
    assert not ReplicationState(1, 100).is_slave_ok(100 + size, size)
    with pytest.raises(ConfigurationError, match="haSlaveFallbehindMax=0"):
        configure(MessageStoreConfig(), Properties("broker.conf", {"haSlaveFallbehindMax": "0"}))


def test_s1_a_slave_notices_a_master_that_it_does_not_hear() -> None:
    """It looked at when it had written itself last, which goes on while nothing comes back."""

    async def main(cluster: HaCluster) -> None:
        await cluster.start_pair()
        assert await cluster.put() is OK
        fault = Partition(0, 60, "master", "slave", two_way=False)
        heal = fault.begin(cluster.world)
        await trio.sleep(30)
        assert cluster.closed("slave")[0] == "housekeeping"
        assert await cluster.put() is not OK
        await trio.sleep(30)
        heal()
        await wait_replicated(cluster)
        assert await cluster.put() is OK

    HaCluster().run(main)


def test_s4_what_slaves_had_that_are_gone_makes_no_other_one_near() -> None:
    """The highest report of all times was kept: an empty slave that joined passed for one that had caught up."""

    async def main(cluster: HaCluster) -> None:
        await cluster.start_pair()
        assert await cluster.put_many(5) == [OK] * 5
        cluster.nodes["slave"].kill()
        cluster.visit("empty", encode_report(0), heartbeat=0)
        await trio.sleep(1)
        assert cluster.connections == 1
        assert await cluster.put() is UNAVAILABLE

    HaCluster(store={"ha_slave_fallbehind_max_bytes": 4 * RECORD_BYTES}).run(main)


def test_s9_a_put_waits_for_no_other_one() -> None:
    """After one that waited, a put heard up to a second late that it was replicated."""
    answers: list[tuple[int, PutStatus, float]] = []

    async def put(cluster: HaCluster, number: int) -> None:
        status = await cluster.put()
        answers.append((number, status, trio.current_time()))

    async def main(cluster: HaCluster) -> None:
        await cluster.start("master")
        slave = cluster.visit("slave", encode_report(0))
        await trio.sleep(1)
        async with trio.open_nursery() as nursery:
            for number in range(3):
                nursery.start_soon(put, cluster, number)
                await trio.sleep(0.5)
            # The first is over; the others are in one report.
            await trio.sleep(1.5)
            reported = trio.current_time()
            await slave.report(3 * RECORD_BYTES)
        # Answered in one step: who hears of it first is Trio's choice.
        assert sorted((number, status) for number, status, _ in answers) == [(0, TIMEOUT), (1, OK), (2, OK)]
        assert answers[1][2] - reported < 0.01
        assert answers[1][2] == answers[2][2]

    HaCluster().run(main)


def test_s14_a_slave_that_is_ahead_does_not_seem_well() -> None:
    """The heartbeats that it got had its own offset in them."""

    async def main(cluster: HaCluster) -> None:
        await cluster.start("master")
        peer = cluster.visit("slave", encode_report(5000))
        await trio.sleep(15)
        assert peer.is_closed

    cluster = HaCluster().run(main)
    assert cluster.events(HaHeartbeat) == []
    assert cluster.closed() == ["slave_ahead"]
