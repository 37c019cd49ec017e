"""A broker changes its role while it runs: what stays, what is refused meanwhile, and what happens when it fails."""

from __future__ import annotations

import functools
import itertools
import logging
import re

import pytest
import trio
import trio.lowlevel

from rmq_actors.broker.consumer_offsets import ConsumerOffsetManager
from rmq_actors.broker.role_changes import RoleChangeFailed
from rmq_actors.broker.table_fence import TableFenced
from rmq_actors.ha.config import HaConfig
from rmq_actors.protocols.broker_registration import MasterAddresses
from rmq_actors.protocols.put_completion import PutStatus
from rmq_actors.store.config import BrokerRole, FlushDiskType
from rmq_actors.store.files.layout import ABORT_FILE, TERM_FILE
from rmq_actors.tracing.events.broker import BrokerRoleEvent, BrokerSlaveSynchronize
from rmq_actors.tracing.events.ha import HaClientConnect, HaClientHalt, HaClientReport, HaConnectionClose
from rmq_actors.tracing.events.namesrv import NamesrvRemove
from rmq_actors.tracing.events.remoting import RemotingClose
from rmq_actors.tracing.events.store import LogAppend
from rmq_actors.wire.bodies.subscription_groups import SubscriptionGroupConfig
from rmq_actors.wire.bodies.topic_configs import TopicConfig
from rmq_actors.wire.dispatch_request import SCHEDULE_TOPIC
from rmq_actors.wire.headers import encode_header
from rmq_actors.wire.headers.offsets import GetMaxOffsetRequestHeader
from rmq_actors.wire.record import Message
from rmq_actors.wire.remoting_command import RemotingCommand
from rmq_actors.wire.request_code import RequestCode
from rmq_actors.wire.response_code import ResponseCode
from sim_net import DiskSlow, Hold, Partition, Schedule, ShortIO
from tests.worlds.role_world import FOLLOWS_S, TOPIC, RoleWorld, outcome_of, queue_bodies

OK = PutStatus.PUT_OK
FIRST_SYNC_S = 8.0
MASTER = "DefaultCluster", "broker-a", 0
ASYNC_MASTER, SYNC_MASTER, SLAVE = BrokerRole.ASYNC_MASTER, BrokerRole.SYNC_MASTER, BrokerRole.SLAVE


# --- failover ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("flush", FlushDiskType)
@pytest.mark.parametrize("seed", [0, 1, 24])
def test_a_slave_takes_over_from_a_master_that_lost_its_power(flush: FlushDiskType, seed: int) -> None:
    """Producers go on with the new master, the old one follows it, and what was acknowledged is in both logs.

    What the old one had alone, for nobody, it cuts off: it may.
    """
    servers = RoleWorld.of(seed=seed, flush_disk_type=flush)
    acked: list[bytes] = []
    numbers = itertools.count()

    async def produce(until_s: float) -> None:
        while trio.current_time() < until_s:
            master = next((name for name, member in servers.members.items() if not member.broker_id), "")
            if master not in servers.brokers:
                await trio.sleep(0.05)
                continue
            body = b"%d" % next(numbers)
            with trio.move_on_after(3):
                if (await servers.put(master, body)).status is PutStatus.PUT_OK:
                    acked.append(body)

    async def use() -> None:
        start = trio.current_time()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(produce, start + 12)
            await trio.sleep(1 + seed * 0.007)
            servers.nodes["a-0"].power_loss()
            before = len(acked)
            await trio.sleep(1)
            assert await servers.change_role("a-1", SYNC_MASTER) is None
            servers.configure(
                "a-0",
                broker_id=1,
                ha=HaConfig(ha_listen_host=servers.nodes["a-0"].address, ha_truncate_on_divergence=True),
            )
            servers.boot("a-0")
        assert 20 < before < len(acked) - 20
        await servers.settle()
        await servers.wait_replicated("a-0", master="a-1")
        [change] = servers.events(BrokerRoleEvent, status="changed")
        for kind in (HaClientConnect, HaClientReport, BrokerSlaveSynchronize):
            assert not [event for event in servers.events(kind, node="a-1") if event.seq > change.seq]
        for name in ("a-0", "a-1"):
            bodies = queue_bodies(servers.controller(name))
            assert len(bodies) == len(set(bodies))
            assert set(bodies) >= set(acked), name
        assert bytes_of(servers, "a-0") == bytes_of(servers, "a-1")

    servers.run_well(use)


def bytes_of(servers: RoleWorld, node: str) -> bytes:
    log = servers.brokers[node].log
    return b"".join(bytes(view) for view in log.ranges(log.min_offset, log.max_offset))


def test_the_tail_that_an_old_master_alone_has_is_not_followed_over() -> None:
    """It comes back as a slave of a master that has other bytes there: it halts, says so, and keeps what it has."""
    servers = RoleWorld.of(broker_role=ASYNC_MASTER)

    async def use() -> None:
        for number in range(20):
            await servers.put("a-0", b"both %d" % number)
        await servers.wait_replicated("a-1")
        servers.nodes["a-1"].pause()
        for number in range(5):
            await servers.put("a-0", b"old %d" % number)
        servers.nodes["a-0"].kill()
        servers.nodes["a-1"].resume()
        assert await servers.change_role("a-1", ASYNC_MASTER) is None
        for number in range(10):
            await servers.put("a-1", b"new one %d" % number)
        servers.configure("a-0", broker_id=1)
        servers.boot("a-0")
        await trio.sleep(30)
        [halt] = servers.events(HaClientHalt, node="a-0")
        assert halt.status == "diverged"
        assert queue_bodies(servers.controller("a-0"))[20:] == [b"old %d" % number for number in range(5)]
        assert queue_bodies(servers.controller("a-1"))[20:] == [b"new one %d" % number for number in range(10)]

    servers.run_well(use)


# --- what a promoted slave goes on with -------------------------------------------------------------------------------


def delay_offsets(servers: RoleWorld, node: str) -> dict[int, int]:
    return servers.brokers[node].remoting.metadata.delay_offsets.offset_table


async def put_delayed(servers: RoleWorld, count: int) -> None:
    for number in range(count):
        await servers.put("a-0", b"%d" % number, delay_time_level=18)
    await servers.wait_replicated("a-1")


def test_a_promoted_slave_goes_on_with_its_masters_delay_offsets() -> None:
    servers = RoleWorld.of()

    async def use() -> None:
        await put_delayed(servers, 5)
        delay_offsets(servers, "a-0")[18] = 5
        await trio.sleep(10 + FIRST_SYNC_S)
        servers.nodes["a-0"].kill()
        assert await servers.change_role("a-1", ASYNC_MASTER) is None
        assert delay_offsets(servers, "a-1") == {18: 5}

    servers.run_well(use)


def test_a_promoted_slave_whose_log_lost_its_end_delivers_what_it_has() -> None:
    servers = RoleWorld.of(flush_commit_log_thorough_interval_ms=60_000, flush_interval_commit_log_ms=60_000)

    async def use() -> None:
        await put_delayed(servers, 20)
        delay_offsets(servers, "a-0")[18] = 20
        await trio.sleep(10 + FIRST_SYNC_S)
        assert delay_offsets(servers, "a-1") == {18: 20}
        servers.nodes["a-0"].kill()
        servers.nodes["a-1"].power_loss()
        servers.boot("a-1")
        await trio.sleep(1)
        assert await servers.change_role("a-1", ASYNC_MASTER) is None
        end = servers.controller("a-1").store.offsets.get_max_offset_in_queue(SCHEDULE_TOPIC, 17)
        assert end < 20
        assert delay_offsets(servers, "a-1") == {18: end}

    servers.run_well(use)


def test_a_promoted_slave_whose_log_lost_its_end_skips_no_message_that_comes_in_its_place() -> None:
    """A consumer that begins there again would be sent past what takes the place of the lost messages."""
    servers = RoleWorld.of(flush_commit_log_thorough_interval_ms=60_000, flush_interval_commit_log_ms=60_000)

    def offsets(node: str) -> ConsumerOffsetManager:
        return servers.brokers[node].remoting.metadata.consumer_offsets

    async def use() -> None:
        for number in range(20):
            await servers.put("a-0", b"%d" % number)
        await servers.wait_replicated("a-1")
        offsets("a-0").commit_offset("client", "Group", TOPIC, 0, 20)
        await trio.sleep(10 + FIRST_SYNC_S)
        assert offsets("a-1").query_offset("Group", TOPIC, 0) == 20
        servers.nodes["a-0"].kill()
        servers.nodes["a-1"].power_loss()
        servers.boot("a-1")
        await trio.sleep(1)
        assert await servers.change_role("a-1", ASYNC_MASTER) is None
        end = servers.controller("a-1").store.offsets.get_max_offset_in_queue(TOPIC, 0)
        assert end < 20
        assert offsets("a-1").query_offset("Group", TOPIC, 0) == end

    servers.run_well(use)


@pytest.mark.parametrize("received_bytes", [1, 300, 800])
def test_a_promoted_slave_has_no_part_of_a_record(received_bytes: int) -> None:
    """Its master died while it sent: the part is in no log, and the next record stands in its place."""
    servers = RoleWorld.of(broker_role=ASYNC_MASTER)
    servers.configure("a-0", ha=HaConfig(ha_listen_host=servers.nodes["a-0"].address, ha_transfer_batch_size_bytes=90))

    async def use() -> None:
        for number in range(10):
            await servers.put("a-0", b"%d" % number)
        await servers.wait_replicated("a-1")
        whole = servers.brokers["a-1"].log.max_offset
        servers.world.start_schedule(Schedule((ShortIO(0.0, 60.0, "a-0", 60),)))
        await trio.sleep(0.001)
        servers.nodes["a-0"].start_soon(lambda: servers.controller("a-0").put_message(Message(TOPIC, b"x" * 2500)))
        followed = servers.controller("a-1").followed_master
        assert followed is not None
        received = followed.slave
        assert received is not None
        while received.max_offset < whole + received_bytes:
            await trio.sleep(0.0001)
        servers.world.start_schedule(Schedule((Partition(0.0, 60.0, "a-0", "a-1"),)))
        await trio.sleep(2)
        servers.nodes["a-0"].power_loss()
        assert whole < received.max_offset < whole + 2500
        assert servers.brokers["a-1"].log.max_offset == whole
        assert await servers.change_role("a-1", ASYNC_MASTER) is None
        assert servers.brokers["a-1"].log.max_offset == whole
        result = await servers.put("a-1", b"next")
        assert result.append is not None
        assert (result.append.offset, result.append.queue_offset) == (whole, 10)
        await trio.sleep(1)
        assert queue_bodies(servers.controller("a-1"))[10:] == [b"next"]

    servers.run_well(use)


def test_the_other_slaves_follow_the_promoted_one_within_a_period() -> None:
    servers = RoleWorld.of(slaves=2)

    async def use() -> None:
        for number in range(10):
            await servers.put("a-0", b"%d" % number)
        await servers.wait_replicated("a-1", "a-2")
        servers.nodes["a-0"].power_loss()
        assert await servers.change_role("a-1", SYNC_MASTER) is None
        assert (await servers.put("a-1", b"nobody has it")).status is PutStatus.SLAVE_NOT_AVAILABLE
        await trio.sleep(30 + FOLLOWS_S)
        assert (await servers.put("a-1", b"x")).status is OK
        assert bytes_of(servers, "a-1") == bytes_of(servers, "a-2")
        # A slave that has been told by hand follows at once.
        servers.nodes["a-1"].power_loss()
        await trio.sleep(1)
        address = servers.brokers["a-2"].ha_address
        servers.configure("a-1", broker_id=1)
        servers.boot("a-1")
        assert await servers.change_role("a-2", SYNC_MASTER) is None
        await trio.sleep(1)
        assert await servers.change_role("a-1", SLAVE, ha_master_address=address) is None
        await trio.sleep(2)
        assert (await servers.put("a-2", b"y")).status is OK

    servers.run_well(use)


# --- name servers ---------------------------------------------------------------------------------------------------


def test_known_bug_5374_a_late_unregister_of_the_old_master_leaves_the_promoted_slave() -> None:
    """The broker's name and id were removed, whoever had them by then."""
    servers = RoleWorld.of()

    async def use() -> None:
        await trio.sleep(20)
        servers.world.apply(Hold(0.0, 15.0, "a-0", "ns-1"), 1)
        await trio.sleep(0.1)
        await servers.stop_broker("a-0")
        assert await servers.change_role("a-1", SYNC_MASTER) is None
        await trio.sleep(1)
        for _ in range(60):
            assert servers.known("ns-1").brokers[MASTER] == servers.brokers["a-1"].address
            await trio.sleep(0.5)
        assert [event.status for event in servers.events(NamesrvRemove)] == ["unregistered"]  # it did arrive

    servers.run_well(use)


def test_known_bug_11043_a_late_expiry_of_the_old_master_leaves_the_promoted_slave() -> None:
    """Who expired was removed by name and id too."""
    servers = RoleWorld.of()

    async def use() -> None:
        await trio.sleep(20)
        servers.nodes["a-0"].power_loss()
        await trio.sleep(50)
        assert await servers.change_role("a-1", SYNC_MASTER) is None
        await trio.sleep(1)
        for _ in range(200):
            assert servers.known("ns-1").brokers[MASTER] == servers.brokers["a-1"].address
            await trio.sleep(0.5)
        assert [event.status for event in servers.events(NamesrvRemove)] == ["expired"]

    servers.run_well(use)


@pytest.mark.parametrize("later_s", [0.5, 3.0, 20.0])
def test_known_bug_7790_a_master_that_became_a_slave_knows_its_master_soon(later_s: float) -> None:
    """It registered before the other did, one-way, and asked again after a period."""
    servers = RoleWorld.of()

    async def use() -> None:
        await trio.sleep(15)
        assert await servers.change_role("a-0", SLAVE) is None
        await trio.sleep(later_s)
        assert servers.brokers["a-0"].master == MasterAddresses()
        assert await servers.change_role("a-1", SYNC_MASTER) is None
        await servers.converge(later_s + 1.0)
        await trio.sleep(3)
        assert (await servers.put("a-1", b"x")).status is PutStatus.PUT_OK

    servers.run_well(use)


# --- one change after the other ---------------------------------------------------------------------------------------


def test_two_brokers_exchange_their_roles_again_and_again(caplog: pytest.LogCaptureFixture) -> None:
    """The master steps down first; the log goes on, and each finds the other through the name server.

    No change has anything to dispatch again: the store was stopped in order.
    """
    caplog.set_level(logging.INFO, "rmq_actors.store.lifecycle.store_files")
    servers = RoleWorld.of()

    async def use() -> None:
        master, slave = "a-0", "a-1"
        for turn in range(6):
            for number in range(10):
                result = await servers.put(master, b"%d %d" % (turn, number))
                assert (result.status, result.append and result.append.queue_offset) == (OK, 10 * turn + number)
            await servers.wait_replicated(slave, master=master)
            assert await servers.change_role(master, SLAVE) is None
            assert servers.brokers[master].master == MasterAddresses()
            assert (await servers.put(master, b"x")).status is PutStatus.SERVICE_NOT_AVAILABLE
            assert await servers.change_role(slave, SYNC_MASTER) is None
            master, slave = slave, master
            await servers.converge(FOLLOWS_S)
            await trio.sleep(FOLLOWS_S)
        for name in (master, slave):
            bodies = queue_bodies(servers.controller(name))
            assert bodies == [b"%d %d" % (turn, number) for turn in range(6) for number in range(10)]

    servers.run_well(use)
    assert not servers.events(HaClientHalt)
    opened = re.findall(r"the log ends at (\d+); dispatched from (\d+): ", caplog.text)
    assert len(opened) == 2 + 12
    assert all(end == dispatched for end, dispatched in opened)


def test_changes_come_one_after_the_other() -> None:
    servers = RoleWorld.of(slaves=0)
    roles = [SLAVE, ASYNC_MASTER, SLAVE, SYNC_MASTER, ASYNC_MASTER, ASYNC_MASTER]
    ends: list[tuple[BrokerRole, str]] = []

    async def change(role: BrokerRole) -> None:
        assert await servers.change_role("a-0", role) is None
        ends.append((role, servers.controller("a-0").store.config.broker_role.value))

    async def use() -> None:
        async with trio.open_nursery() as nursery:
            for role in roles:
                nursery.start_soon(change, role)
                await trio.lowlevel.checkpoint()

    servers.run_well(use)
    changes = [event.role for event in servers.events(BrokerRoleEvent, status="changed")]
    assert changes == ["SLAVE", "ASYNC_MASTER", "SLAVE", "SYNC_MASTER", "ASYNC_MASTER"]
    assert [role for role, _ in ends] == roles


def test_a_change_to_what_the_broker_is_does_nothing() -> None:
    servers = RoleWorld.of()

    async def use() -> None:
        stores = [servers.controller(name).store for name in ("a-0", "a-1")]
        assert await servers.change_role("a-0", SYNC_MASTER) is None
        assert await servers.change_role("a-1", SLAVE) is None
        assert await servers.change_role("a-1", SLAVE, broker_id=1) is None
        assert [servers.controller(name).store for name in ("a-0", "a-1")] == stores
        assert not servers.events(BrokerRoleEvent)
        assert await servers.change_role("a-1", SLAVE, broker_id=2) is None
        await servers.converge(FOLLOWS_S)
        assert servers.known("ns-1").brokers["DefaultCluster", "broker-a", 2] == servers.brokers["a-1"].address
        await trio.sleep(FOLLOWS_S)
        assert (await servers.put("a-0", b"x")).status is OK

    servers.run_well(use)


@pytest.mark.parametrize(
    ("role", "to", "text"),
    [
        (SLAVE, {"broker_id": 0}, "a slave's brokerId must be > 0, not 0"),
        (SLAVE, {"ha_master_address": "nowhere"}, "ha_master_address: "),
        (SLAVE, {"master_addr": "nowhere"}, "master_addr: "),
        (ASYNC_MASTER, {"broker_id": 1}, "a master's brokerId is 0"),
        (ASYNC_MASTER, {"ha_master_address": "10.0.0.9:10912"}, "it follows nobody"),
    ],
)
def test_a_role_that_cannot_be_leaves_the_broker_as_it_is(role: BrokerRole, to: dict[str, object], text: str) -> None:
    servers = RoleWorld.of(slaves=0)

    async def use() -> None:
        store = servers.controller("a-0").store
        error = await servers.change_role("a-0", role, **to)
        assert isinstance(error, ValueError)
        assert text in str(error)
        assert servers.controller("a-0").store is store
        assert (await servers.put("a-0", b"x")).append is not None

    servers.run_well(use)


@pytest.mark.parametrize("what", ["promotion", "greater term"])
def test_a_promotion_whose_term_cannot_be_written_changes_nothing(what: str) -> None:
    """Somebody has made a directory of the name that the file of before is to have: the broker used to stop."""
    servers = RoleWorld.of()
    name = "a-1" if what == "promotion" else "a-0"
    change = {} if what == "promotion" else {"term": 7}

    async def use() -> None:
        disk, store = servers.nodes[name].disk, servers.controller(name).store
        disk.open(f"{TERM_FILE}.bak/somebody's", allocate_bytes=1).close()
        error = await servers.change_role(name, SYNC_MASTER, **change)
        assert isinstance(error, IsADirectoryError)
        assert f"{TERM_FILE}.bak" in str(error)
        assert servers.controller(name).store is store
        assert (await servers.put("a-0", b"x")).status is OK
        disk.remove(f"{TERM_FILE}.bak/somebody's")
        disk.remove_directory(f"{TERM_FILE}.bak")
        assert await servers.change_role(name, SYNC_MASTER, **change) is None

    servers.run_well(use)


# --- meanwhile --------------------------------------------------------------------------------------------------------


def test_requests_meanwhile_are_answered_not_available_and_keep_their_connection() -> None:
    """Whoever asks again is answered; the tables, which are not the store's, are there all the time."""
    servers = RoleWorld.of()
    answers: list[tuple[int, str]] = []

    async def use() -> None:
        for number in range(10):
            await servers.put("a-0", b"%d" % number)
        header = encode_header(GetMaxOffsetRequestHeader(topic=TOPIC, queue_id=0))
        DiskSlow(0.0, 60.0, "a-0", 0.1).begin(servers.world)

        async def ask() -> None:
            while True:
                answer = await servers.ask_broker("a-0", RemotingCommand(RequestCode.GET_MAX_OFFSET, header))
                answers.append((answer.code, (answer.ext_fields or {}).get("offset", "") or answer.remark or ""))
                tables = await servers.ask_broker("a-0", RemotingCommand(RequestCode.GET_ALL_TOPIC_CONFIG))
                assert tables.code == ResponseCode.SUCCESS

        async with trio.open_nursery() as nursery:
            nursery.start_soon(ask)
            await trio.sleep(0.2)
            assert await servers.change_role("a-0", ASYNC_MASTER) is None
            await trio.sleep(0.2)
            assert not servers.events(RemotingClose, node="a-0")
            nursery.cancel_scope.cancel()

    servers.run_well(use)
    assert [key for key, _ in itertools.groupby(answers)] == [
        (0, "10"),
        (ResponseCode.SERVICE_NOT_AVAILABLE, "the broker changes its role, try again"),
        (0, "10"),
    ]


def test_a_master_that_steps_down_confirms_nothing_once_it_serves_no_slave() -> None:
    """What it would take then is on no slave, and goes with what the old master alone has."""
    servers = RoleWorld.of(broker_role=ASYNC_MASTER)
    results: list[PutStatus] = []

    async def put_until_refused() -> None:
        broker = servers.controller("a-0")
        while not results or results[-1] is OK:
            results.append((await broker.put_message(Message(TOPIC, bytes(100)))).status)
            await trio.lowlevel.checkpoint()

    async def use() -> None:
        assert (await servers.put("a-0", b"before")).status is OK
        async with trio.open_nursery() as nursery:
            nursery.start_soon(servers.on_node, "a-0", put_until_refused)
            assert await servers.change_role("a-0", SLAVE, broker_id=2) is None
        assert results[-1] is PutStatus.SERVICE_NOT_AVAILABLE

    servers.run_well(use)
    closed = servers.events(HaConnectionClose, node="a-0")[0]
    assert closed.status == "stopped"
    assert servers.events(LogAppend, node="a-0")[-1].seq < closed.seq


def test_a_master_that_is_a_slave_has_no_change_of_its_tables_under_way() -> None:
    """Whoever hears that it is a slave takes its tables for the last ones: until then a change ends, or is refused."""
    servers = RoleWorld.of()
    outcomes: list[bool] = []

    async def use() -> None:
        DiskSlow(0.0, 60.0, "a-0", 0.1).begin(servers.world)
        broker = servers.controller("a-0")
        assert broker.remoting is not None
        metadata = broker.remoting.metadata

        async def change(number: int) -> None:
            group, topic = SubscriptionGroupConfig(group_name=f"Group-{number}"), TopicConfig(topic_name=f"T-{number}")
            changes = (
                functools.partial(metadata.subscription_groups.update_subscription_group_config, group),
                functools.partial(metadata.topics.update_topic_config, topic),
            )
            outcome = await outcome_of(changes[number % 2]())
            assert outcome is None or isinstance(outcome, TableFenced)
            assert not broker.config.is_slave or outcome is not None
            outcomes.append(outcome is None)

        async def change_all_the_time() -> None:
            async with trio.open_nursery() as nursery:
                for number in itertools.count():
                    if broker.config.is_slave:
                        return
                    nursery.start_soon(change, number)
                    await trio.sleep(0.05)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(servers.on_node, "a-0", change_all_the_time)
            await trio.sleep(0.5)
            assert await servers.change_role("a-0", SLAVE) is None
        assert True in outcomes
        assert False in outcomes
        await servers.on_node(
            "a-0", functools.partial(metadata.topics.update_topic_config, TopicConfig(topic_name="After"))
        )

    servers.run_well(use)


def test_a_change_that_has_begun_is_finished_without_its_caller() -> None:
    servers = RoleWorld.of()

    async def use() -> None:
        DiskSlow(0.0, 60.0, "a-1", 0.1).begin(servers.world)

        async def give_up_soon() -> None:
            with trio.move_on_after(0.05):
                await servers.controller("a-1").change_role(SYNC_MASTER)

        servers.nodes["a-0"].kill()
        await servers.on_node("a-1", give_up_soon)
        assert not servers.events(BrokerRoleEvent)
        await trio.sleep(5)
        assert (await servers.put("a-1", b"x")).append is not None
        servers.note_role("a-1")

    servers.run_well(use)


@pytest.mark.parametrize("after_ms", [0, 20, 60, 120, 200, 400, 600, 800])
def test_a_broker_that_is_stopped_during_a_change_stops_in_order(after_ms: int) -> None:
    """Whatever the change had come to, the next start finds an orderly stop, and everything that was put."""
    servers = RoleWorld.of(slaves=0)
    outcomes: list[Exception | None] = []

    async def change() -> None:
        outcomes.append(await outcome_of(servers.controller("a-0").change_role(SLAVE)))

    async def use() -> None:
        for number in range(10):
            await servers.put("a-0", b"%d" % number)
        slow = DiskSlow(0.0, 60.0, "a-0", 0.1)
        undo = slow.begin(servers.world)
        servers.nodes["a-0"].start_soon(change)
        await trio.sleep(after_ms / 1000)
        await servers.stop_broker("a-0")
        assert not servers.nodes["a-0"].disk.exists(ABORT_FILE)
        assert undo is not None
        undo()
        servers.boot("a-0")
        await trio.sleep(1)
        assert queue_bodies(servers.controller("a-0")) == [b"%d" % number for number in range(10)]

    servers.run_well(use)
    [outcome] = outcomes
    assert outcome is None or isinstance(outcome, RoleChangeFailed)
