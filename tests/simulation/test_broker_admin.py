"""What operators ask a running broker over its port: to change, to show, to cut; and what it refuses."""

from __future__ import annotations

import itertools
import re

import pytest
import trio

from rmq_actors.broker.broker_configuration import BrokerFiles, Configuration, config_file
from rmq_actors.ha.config import HaConfig
from rmq_actors.protocols.put_completion import PutStatus
from rmq_actors.settings.properties_text import parse_properties
from rmq_actors.store.config import BrokerRole
from rmq_actors.tracing.events.broker import BrokerRoleEvent
from rmq_actors.tracing.events.ha import HaConnectionClose
from rmq_actors.wire.bodies.decoding import decode_body
from rmq_actors.wire.bodies.ha_runtime_info import HARuntimeInfo
from rmq_actors.wire.bodies.routes import KVTable
from rmq_actors.wire.bodies.topic_configs import DataVersion
from rmq_actors.wire.headers import decode_header
from rmq_actors.wire.headers.admin import GetBrokerConfigResponseHeader
from rmq_actors.wire.remoting_command import RemotingCommand
from rmq_actors.wire.request_code import OwnRequestCode, RequestCode, RequestCode5
from rmq_actors.wire.response_code import ResponseCode
from sim_net import DiskError, Partition, Schedule
from tests.worlds.role_world import FOLLOWS_S, RoleWorld, queue_bodies
from tests.worlds.store_workload import files_of

OK = PutStatus.PUT_OK
MASTER = "DefaultCluster", "broker-a", 0


async def update(servers: RoleWorld, node: str, text: str) -> RemotingCommand:
    """UPDATE_BROKER_CONFIG, as mqadmin sends it."""
    return await servers.ask_broker(node, RemotingCommand(RequestCode.UPDATE_BROKER_CONFIG, body=text.encode()))


async def runtime_info(servers: RoleWorld, node: str) -> dict[str, str]:
    answer = await servers.ask_broker(node, RemotingCommand(RequestCode.GET_BROKER_RUNTIME_INFO))
    assert answer.code == ResponseCode.SUCCESS, answer
    return decode_body(KVTable, answer.body).table


async def ha_status(servers: RoleWorld, node: str) -> HARuntimeInfo:
    answer = await servers.ask_broker(node, RemotingCommand(RequestCode5.GET_BROKER_HA_STATUS))
    assert answer.code == ResponseCode.SUCCESS, answer
    return decode_body(HARuntimeInfo, answer.body)


async def shown(servers: RoleWorld, node: str) -> tuple[dict[str, str], DataVersion]:
    """The settings as GET_BROKER_CONFIG has them, and their version."""
    answer = await servers.ask_broker(node, RemotingCommand(RequestCode.GET_BROKER_CONFIG))
    header = decode_header(GetBrokerConfigResponseHeader, answer)
    properties = parse_properties(answer.body.decode(), "the answer")
    return dict(properties.values), decode_body(DataVersion, header.version.encode())


# --- roles ------------------------------------------------------------------------------------------------------------


def test_a_slave_is_promoted_by_a_request() -> None:
    servers = RoleWorld.of()

    async def use() -> None:
        assert (await servers.put("a-0", b"before")).status is OK
        servers.nodes["a-0"].power_loss()
        answer = await update(servers, "a-1", "brokerRole=ASYNC_MASTER\n")
        assert (answer.code, answer.remark) == (ResponseCode.SUCCESS, None)
        assert (await servers.put("a-1", b"after")).status is OK
        await trio.sleep(1)
        assert queue_bodies(servers.controller("a-1")) == [b"before", b"after"]
        assert servers.known("ns-1").brokers[MASTER] == servers.brokers["a-1"].address
        values, version = await shown(servers, "a-1")
        assert (values["brokerRole"], values["brokerId"], version.counter) == ("ASYNC_MASTER", "0", 1)
        assert (await runtime_info(servers, "a-1"))["brokerRole"] == "ASYNC_MASTER"

    servers.run_well(use)


@pytest.mark.parametrize("seed", [0, 3, 8])
def test_two_brokers_exchange_their_roles_while_puts_are_under_way(seed: int) -> None:
    """Every put is answered, and what was confirmed is in both logs, each time once."""
    servers = RoleWorld.of(seed=seed)
    acked: list[bytes] = []
    numbers = itertools.count()
    statuses: set[PutStatus] = set()

    async def produce() -> None:
        while True:
            body = b"%d" % next(numbers)
            for name in ("a-0", "a-1"):
                status = (await servers.put(name, body)).status
                statuses.add(status)
                if status is OK:
                    acked.append(body)
                if status is not PutStatus.SERVICE_NOT_AVAILABLE:
                    break
            await trio.sleep(0.002)

    async def use() -> None:
        async with trio.open_nursery() as nursery:
            for _ in range(4):
                nursery.start_soon(produce)
            await trio.sleep(1)
            before = len(acked)
            assert (await update(servers, "a-0", "brokerRole=SLAVE\nbrokerId=2\n")).code == ResponseCode.SUCCESS
            assert (await update(servers, "a-1", "brokerRole=SYNC_MASTER\n")).code == ResponseCode.SUCCESS
            await trio.sleep(5)
            assert 20 < before < len(acked) - 20
            nursery.cancel_scope.cancel()
        await trio.sleep(1)
        await servers.wait_replicated("a-0", master="a-1")
        bodies = queue_bodies(servers.controller("a-0"))
        assert bodies == queue_bodies(servers.controller("a-1"))
        assert len(acked) == len(set(acked))
        assert set(bodies) >= set(acked)
        assert servers.controller("a-0").config.broker_id == 2
        # Stored and not confirmed is what waited for a slave, or had none yet; nothing else was refused.
        assert statuses <= {
            OK, PutStatus.SERVICE_NOT_AVAILABLE, PutStatus.FLUSH_SLAVE_TIMEOUT, PutStatus.SLAVE_NOT_AVAILABLE
        }  # fmt: skip

    servers.run_well(use)


def test_a_slave_is_told_another_master_by_a_request() -> None:
    servers = RoleWorld.of(slaves=2)

    async def use() -> None:
        servers.nodes["a-0"].power_loss()
        await update(servers, "a-1", "brokerRole=SYNC_MASTER\n")
        address = servers.brokers["a-1"].ha_address
        assert (await update(servers, "a-2", f"haMasterAddress={address}\n")).code == ResponseCode.SUCCESS
        await trio.sleep(1)
        assert (await servers.put("a-1", b"x")).status is OK
        [slave] = (await ha_status(servers, "a-1")).ha_connection_info
        assert (slave.addr or "").startswith(servers.nodes["a-2"].address)

    servers.run_well(use)


# --- settings ---------------------------------------------------------------------------------------------------------

REFUSED = {
    "listenPort=1": "listenPort is read at the start alone",
    "listenPrt=1": "listenPrt is unknown",
    "serverWorkerThreads=1": "serverWorkerThreads has no effect here",
    "slaveTimeout=soon": "slaveTimeout=soon: it is an integer",
    "brokerRole=KING": "brokerRole=KING: it is one of ASYNC_MASTER, SYNC_MASTER, SLAVE",
    "brokerId=1": "brokerId=1: a master's is 0",
    "brokerRole=ASYNC_MASTER\nbrokerId=1": "brokerId=1: a master's is 0",
    "brokerRole=SLAVE\nbrokerId=0": "a slave's brokerId must be > 0",
    "brokerRole=SLAVE\nslaveTimeout=0": "slaveTimeout=0: ",
    "brokerRole=SLAVE\nmappedFileSizeCommitLog=8192": "mappedFileSizeCommitLog is read at the start alone",
    "inSyncReplicas=3": "inSyncReplicas 3 and totalReplicas 2 are not in this order: set totalReplicas",
    "haMasterAddress=nowhere": "haMasterAddress=nowhere",
    "slaveTimeout=\\u00": "line 1: ",
}


def test_what_cannot_be_changed_is_named_and_nothing_is_changed() -> None:
    """A key beside it that could be changed stays as it is, too."""
    servers = RoleWorld.of()

    async def use() -> None:
        config, before = servers.controller("a-0").config, await shown(servers, "a-0")
        for text, reason in REFUSED.items():
            answer = await update(servers, "a-0", f"{text}\nhaTruncateOnDivergence=true\n")
            assert answer.code == ResponseCode.SYSTEM_ERROR, text
            assert reason in (answer.remark or ""), (text, answer.remark)
        for key in ("configBlackList", "rocketmqHome", "brokerConfigPath"):
            answer = await update(servers, "a-0", f"{key}=x\nbrokerRole=SLAVE\n")
            assert (answer.code, answer.remark) == (
                ResponseCode.NO_PERMISSION,
                "Can not update config in black list.",
            )
        answer = await servers.ask_broker("a-0", RemotingCommand(RequestCode.UPDATE_BROKER_CONFIG, body=b"\xff"))
        assert answer.code == ResponseCode.SYSTEM_ERROR
        assert [crash for crash in servers.crashes if "bad_request" not in crash] == []
        servers.crashes.clear()
        assert (await update(servers, "a-0", "")).code == ResponseCode.SUCCESS
        assert servers.controller("a-0").config is config
        assert await shown(servers, "a-0") == before

    servers.run_well(use)
    assert not servers.events(BrokerRoleEvent)


def test_a_setting_takes_effect_while_the_broker_runs() -> None:
    """With its slave gone a put waits slaveTimeout."""
    servers = RoleWorld.of()

    async def use() -> None:
        for slave_timeout_ms in (500, 1500):
            assert (await update(servers, "a-0", f"slaveTimeout={slave_timeout_ms}\n")).code == ResponseCode.SUCCESS
            await trio.sleep(FOLLOWS_S)
            servers.nodes["a-1"].pause()
            start = trio.current_time()
            assert (await servers.put("a-0", b"x")).status is PutStatus.FLUSH_SLAVE_TIMEOUT
            assert trio.current_time() - start == pytest.approx(slave_timeout_ms / 1000, abs=0.05)
            servers.nodes["a-1"].resume()
            await trio.sleep(FOLLOWS_S)

    servers.run_well(use)
    assert [event.status for event in servers.events(BrokerRoleEvent)] == ["reopened"] * 2


def test_what_a_master_does_not_use_disturbs_nobody() -> None:
    """haMasterAddress is for its next time as a slave, and haTruncateOnDivergence is looked at when it counts."""
    servers = RoleWorld.of()

    async def use() -> None:
        for text in ("haMasterAddress=10.9.9.9:10912\n", "haTruncateOnDivergence=true\n"):
            assert (await update(servers, "a-0", text)).code == ResponseCode.SUCCESS
        assert (await servers.put("a-0", b"x")).status is OK
        assert servers.controller("a-0").config.ha.ha_master_address == "10.9.9.9:10912"
        assert not servers.events(HaConnectionClose)

    servers.run_well(use)
    assert not servers.events(BrokerRoleEvent)


def keep_in_file(servers: RoleWorld, node: str) -> None:
    """Have the broker keep its settings in a file of the node's disk."""
    disk, controller = servers.nodes[node].disk, servers.controller(node)
    files = BrokerFiles(disk, config_file(disk, "/conf/broker.conf"), {"brokerName": "broker-a", "x": "y"}, {})
    controller.configuration = Configuration(servers.nodes[node].wall_clock, files)


def test_a_change_is_in_the_file_before_it_is_made() -> None:
    """So an old master that is stopped after its change never starts as a master again."""
    servers = RoleWorld.of()

    async def use() -> None:
        keep_in_file(servers, "a-1")
        servers.nodes["a-0"].power_loss()
        assert (await update(servers, "a-1", "brokerRole=SYNC_MASTER\n")).code == ResponseCode.SUCCESS
        servers.nodes["a-1"].power_loss()
        disk = servers.nodes["a-1"].disk
        text = bytes(disk.open("conf/broker.conf", read_only=True).map()).decode()
        assert dict(parse_properties(text, "").values) == {
            "brokerName": "broker-a", "x": "y", "brokerRole": "SYNC_MASTER", "brokerId": "0"
        }  # fmt: skip

    servers.run_well(use)


def test_without_its_file_nothing_is_changed() -> None:
    servers = RoleWorld.of()

    async def use() -> None:
        keep_in_file(servers, "a-0")
        config = servers.controller("a-0").config
        servers.world.start_schedule(Schedule((DiskError(0.0, 60.0, "a-0", "ENOSPC", path="conf/"),)))
        answer = await update(servers, "a-0", "brokerRole=SLAVE\n")
        assert answer.code == ResponseCode.SYSTEM_ERROR
        assert re.search("No space left|ENOSPC", answer.remark or "")
        assert servers.controller("a-0").config is config
        assert (await servers.put("a-0", b"x")).status is OK

    servers.run_well(use)
    assert not servers.events(BrokerRoleEvent)


# --- what it tells ----------------------------------------------------------------------------------------------------


def test_how_replication_is_doing() -> None:
    servers = RoleWorld.of(broker_role=BrokerRole.ASYNC_MASTER)

    async def use() -> None:
        for _ in range(20):
            await servers.put("a-0", bytes(500))
        await servers.wait_replicated("a-1")
        await trio.sleep(6)
        end = servers.brokers["a-0"].log.max_offset
        master, slave = await ha_status(servers, "a-0"), await ha_status(servers, "a-1")
        assert (master.master, master.master_commit_log_max_offset, master.in_sync_slave_nums) == (True, end, 1)
        [connection] = master.ha_connection_info
        assert (connection.slave_ack_offset, connection.diff, connection.in_sync) == (end, 0, True)
        assert connection.transfer_from_where == end
        # From the slave's beginning on, then between two questions.
        assert 0 < connection.transferred_byte_in_second < end
        client = slave.ha_client_runtime_info
        assert (slave.master, client.max_offset) == (False, end)
        assert client.master_addr == servers.brokers["a-0"].ha_address
        assert 0 < client.transferred_byte_in_second < end
        now_ms = servers.nodes["a-1"].wall_clock.now_ms()
        assert now_ms - 6_000 < client.last_read_timestamp <= now_ms
        assert now_ms - 6_000 < client.last_write_timestamp <= now_ms
        await trio.sleep(2)
        [connection] = (await ha_status(servers, "a-0")).ha_connection_info
        assert connection.transferred_byte_in_second == 0

        servers.nodes["a-1"].pause()
        await servers.put("a-0", bytes(500))
        await trio.sleep(2)
        [connection] = (await ha_status(servers, "a-0")).ha_connection_info
        info = await runtime_info(servers, "a-0")
        behind = servers.brokers["a-0"].log.max_offset - end
        assert connection.diff == behind > 500
        assert info["haSlaves"] == "1"
        assert f"ackOffset={end}, behindBytes={behind}, " in info[f"haSlave_{connection.addr}"]
        assert info["commitLogMaxOffset"] == str(end + behind)
        servers.nodes["a-1"].kill()
        await trio.sleep(30)
        info = await runtime_info(servers, "a-0")
        assert (info["haSlaves"], info["haConnections"]) == ("0", "1")
        assert re.fullmatch(r"\w+ 1", info["haConnectionEnds"])

    servers.run_well(use)


def test_a_slave_beyond_ha_slave_fallbehind_max_is_not_in_sync() -> None:
    servers = RoleWorld.of(broker_role=BrokerRole.ASYNC_MASTER, ha_slave_fallbehind_max_bytes=1000)

    async def use() -> None:
        servers.nodes["a-1"].pause()
        for in_sync in (True, False):
            await servers.put("a-0", bytes(600))
            status = await ha_status(servers, "a-0")
            assert [slave.in_sync for slave in status.ha_connection_info] == [in_sync]
            assert status.in_sync_slave_nums == in_sync

    servers.run_well(use)


def test_while_the_store_is_opened_again_there_is_nothing_to_look_at() -> None:
    servers = RoleWorld.of()

    async def use() -> None:
        remoting = servers.brokers["a-0"].remoting
        remoting.use_store(None, is_slave=False)
        for code in (RequestCode.GET_BROKER_RUNTIME_INFO, RequestCode5.GET_BROKER_HA_STATUS):
            answer = await servers.ask_broker("a-0", RemotingCommand(code))
            assert answer.code == ResponseCode.SERVICE_NOT_AVAILABLE
        assert (await shown(servers, "a-0"))[0]["brokerRole"] == "SYNC_MASTER"
        remoting.use_store(servers.controller("a-0").store, is_slave=False)

    servers.run_well(use)


# --- divergence -------------------------------------------------------------------------------------------------------


PARTED_S = 2.0


def part(servers: RoleWorld) -> None:
    """For a moment master and slave do not hear each other."""
    servers.world.start_schedule(Schedule((Partition(0.0, PARTED_S, "a-0", "a-1"),)))


async def diverge(servers: RoleWorld) -> None:
    """Make a-1 the master, and a-0 a slave with five messages that only it has, which has halted."""
    for number in range(20):
        await servers.put("a-0", b"both %d" % number)
    await servers.wait_replicated("a-1")
    part(servers)
    for number in range(5):
        await servers.put("a-0", b"old %d" % number)
    servers.nodes["a-0"].kill()
    await trio.sleep(PARTED_S)
    assert (await update(servers, "a-1", "brokerRole=ASYNC_MASTER\n")).code == ResponseCode.SUCCESS
    for number in range(10):
        await servers.put("a-1", b"new one %d" % number)
    servers.configure("a-0", broker_id=1)
    servers.boot("a-0")
    await trio.sleep(30)


@pytest.mark.parametrize("how", ["TRUNCATE_LOG", "haTruncateOnDivergence"])
def test_a_halted_slave_is_told_to_cut_its_log(how: str) -> None:
    servers = RoleWorld.of(broker_role=BrokerRole.ASYNC_MASTER)

    async def use() -> None:
        await diverge(servers)
        info = await runtime_info(servers, "a-0")
        assert info["haHalted"].startswith("diverged: ")
        common_end = int(info["haCommonEnd"])
        assert 0 < common_end < int(info["commitLogMaxOffset"])
        if how == "TRUNCATE_LOG":
            answer = await servers.ask_broker("a-0", RemotingCommand(OwnRequestCode.TRUNCATE_LOG))
            assert answer.code == ResponseCode.SUCCESS
            cut = f"the log was cut from {info['commitLogMaxOffset']} to {common_end}, and the master is followed again"
            assert answer.remark == cut
        else:
            assert (await update(servers, "a-0", "haTruncateOnDivergence=true\n")).code == ResponseCode.SUCCESS
        await trio.sleep(10)
        bodies = queue_bodies(servers.controller("a-0"))
        assert bodies[20:] == [b"new one %d" % number for number in range(10)]
        info = await runtime_info(servers, "a-0")
        assert (info["haHalted"], info["haCommonEnd"]) == ("", "")

    servers.run_well(use)


def test_a_permission_to_cut_can_be_taken_back() -> None:
    servers = RoleWorld.of(broker_role=BrokerRole.ASYNC_MASTER)
    servers.configure("a-0", ha=HaConfig(ha_listen_host=servers.nodes["a-0"].address, ha_truncate_on_divergence=True))

    async def use() -> None:
        for number in range(5):
            await servers.put("a-0", b"both %d" % number)
        await servers.wait_replicated("a-1")
        part(servers)
        await servers.put("a-0", b"old")
        assert (await update(servers, "a-1", "brokerRole=ASYNC_MASTER\n")).code == ResponseCode.SUCCESS
        await servers.put("a-1", b"new one")
        assert (await update(servers, "a-0", "haTruncateOnDivergence=false\n")).code == ResponseCode.SUCCESS
        assert (await update(servers, "a-0", "brokerRole=SLAVE\n")).code == ResponseCode.SUCCESS
        await trio.sleep(60)
        assert (await runtime_info(servers, "a-0"))["haHalted"].startswith("diverged: ")
        assert queue_bodies(servers.controller("a-0"))[5:] == [b"old"]

    servers.run_well(use)


def test_a_slave_whose_master_has_its_log_back_follows_by_command() -> None:
    """Nothing is cut, and nobody waits for the next time that it would ask by itself."""
    servers = RoleWorld.of(broker_role=BrokerRole.ASYNC_MASTER)

    async def use() -> None:
        for number in range(5):
            await servers.put("a-0", b"both %d" % number)
        await servers.wait_replicated("a-1")
        log = bytes_of(servers, "a-1")
        servers.nodes["a-0"].kill()
        for path in files_of(servers.nodes["a-0"].disk):
            servers.nodes["a-0"].disk.remove(path)
        servers.boot("a-0")
        await trio.sleep(15)
        assert (await runtime_info(servers, "a-1"))["haHalted"].startswith("diverged: ")
        servers.controller("a-0").store.append_to_commit_log(0, log)
        master = servers.controller("a-0").ha_address
        answer = await servers.ask_broker("a-1", RemotingCommand(OwnRequestCode.FOLLOW_AGAIN))
        assert (answer.code, answer.remark) == (
            ResponseCode.SUCCESS,
            f"master {master} is asked again; the slave had halted: diverged",
        )
        await trio.sleep(1)
        assert (await runtime_info(servers, "a-1"))["haHalted"] == ""
        assert bytes_of(servers, "a-1") == bytes_of(servers, "a-0") == log

    servers.run_well(use)


def bytes_of(servers: RoleWorld, node: str) -> bytes:
    log = servers.brokers[node].log
    return b"".join(bytes(view) for view in log.ranges(log.min_offset, log.max_offset))


def test_a_slave_that_follows_is_neither_cut_nor_asks_again() -> None:
    servers = RoleWorld.of()
    refused = [
        (OwnRequestCode.TRUNCATE_LOG, "a-0", "this broker is a master"),
        (OwnRequestCode.TRUNCATE_LOG, "a-1", "this slave has not halted: there is nothing"),
        (OwnRequestCode.FOLLOW_AGAIN, "a-0", "this broker is a master, which follows nobody"),
        (OwnRequestCode.FOLLOW_AGAIN, "a-1", "this slave has not halted: it follows its master, or tries to"),
    ]

    async def use() -> None:
        for code, node, why in refused:
            answer = await servers.ask_broker(node, RemotingCommand(code))
            assert answer.code == ResponseCode.SYSTEM_ERROR
            assert (answer.remark or "").startswith(why)
        assert (await servers.put("a-0", b"x")).status is OK

    servers.run_well(use)
    assert not servers.events(BrokerRoleEvent)
