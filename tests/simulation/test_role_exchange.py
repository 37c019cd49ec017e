"""The safe exchange of a master and its slave: over the brokers' own requests, in a simulated world."""

from __future__ import annotations

import contextlib
import functools
import re
from collections.abc import Awaitable, Callable
from typing import Any

import attrs
import pytest
import trio

from rmq_actors.broker.broker_configuration import config_file
from rmq_actors.broker.table_fence import TableFenced
from rmq_actors.cli.broker_exchange import exchange_roles
from rmq_actors.cli.broker_request import RequestFailed
from rmq_actors.cli.broker_status import status_lines
from rmq_actors.protocols.following import Halt
from rmq_actors.protocols.put_completion import PutStatus
from rmq_actors.store.config import BrokerRole, FlushDiskType
from rmq_actors.store.files.layout import EXCHANGE_FILE
from rmq_actors.tracing.event import Event
from rmq_actors.tracing.events.broker import BrokerExchange, BrokerRoleEvent
from rmq_actors.tracing.events.ha import HaClientHalt
from rmq_actors.wire.bodies.decoding import decode_body
from rmq_actors.wire.bodies.encoding import encode_body
from rmq_actors.wire.bodies.role_exchange import BeginExchangeBody, ExchangeAnswer, ExchangeInfo, PrepareExchangeBody
from rmq_actors.wire.bodies.routes import KVTable
from rmq_actors.wire.bodies.subscription_groups import SubscriptionGroupConfig
from rmq_actors.wire.bodies.topic_configs import TopicConfig
from rmq_actors.wire.remoting_command import RemotingCommand
from rmq_actors.wire.request_code import OwnRequestCode, RequestCode
from rmq_actors.wire.response_code import ResponseCode
from sim_net import DiskError, DiskSlow, Kill, Node, On, Partition, Schedule
from tests.simulation.test_broker_admin import keep_in_file
from tests.worlds.name_server_world import CLIENT, pair
from tests.worlds.role_world import RoleWorld, outcome_of, queue_bodies

ASYNC_MASTER, SYNC_MASTER, SLAVE = BrokerRole.ASYNC_MASTER, BrokerRole.SYNC_MASTER, BrokerRole.SLAVE


@attrs.define(eq=False, repr=False)
class ExchangeWorld(RoleWorld):
    """A pair whose roles are exchanged."""

    async def begin(
        self, master: str = "a-0", slave: str = "a-1", limit_s: float = 30.0, to: str = ""
    ) -> RemotingCommand:
        address = to or self.brokers[slave].address
        body = BeginExchangeBody(limit_ms=int(1000 * limit_s), slave_addr=address)
        return await self.ask_broker(master, RemotingCommand(OwnRequestCode.BEGIN_EXCHANGE, body=encode_body(body)))

    async def info(self, master: str = "a-0") -> ExchangeInfo:
        answer = await self.ask_broker(master, RemotingCommand(OwnRequestCode.GET_EXCHANGE))
        assert answer.code == ResponseCode.SUCCESS
        return decode_body(ExchangeInfo, answer.body)

    async def exchange(self, master: str = "a-0", slave: str = "a-1", to: str = "") -> ExchangeInfo:
        """Begin, and return when it has ended."""
        answer = await self.begin(master, slave, to=to)
        assert answer.code == ResponseCode.SUCCESS, answer.remark
        return await self.ended(master)

    async def ended(self, master: str = "a-0") -> ExchangeInfo:
        with trio.fail_after(120):
            while not (info := await self.info(master)).ended:
                await trio.sleep(0.05)
        return info

    def roles(self) -> list[BrokerRole]:
        return [self.controller(name).config.store.broker_role for name in ("a-0", "a-1")]


@pytest.mark.parametrize("role", [ASYNC_MASTER, SYNC_MASTER])
@pytest.mark.parametrize("flush", FlushDiskType)
def test_roles_are_exchanged_under_load_and_nothing_is_lost(role: BrokerRole, flush: FlushDiskType) -> None:
    servers = ExchangeWorld.of(broker_role=role, flush_disk_type=flush)
    acked: list[bytes] = []
    statuses: set[PutStatus] = set()

    async def produce() -> None:
        number = 0
        while True:
            for name in ("a-0", "a-1"):
                if not servers.controller(name).config.is_slave:
                    body, number = b"%d" % number, number + 1
                    result = await servers.put(name, body)
                    statuses.add(result.status)
                    if result.status is PutStatus.PUT_OK:
                        acked.append(body)
            await trio.sleep(0.003)

    async def make_topic(name: str) -> None:
        remoting = servers.controller("a-0").remoting
        assert remoting is not None
        await remoting.metadata.topics.update_topic_config(TopicConfig(topic_name=name))

    async def use() -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(produce)
            await trio.sleep(1)
            await servers.on_node("a-0", lambda: make_topic("JustMade"))
            before = len(acked)
            info = await servers.exchange()
            assert info.exchanged, info
            during = len(acked)
            await trio.sleep(1)
            nursery.cancel_scope.cancel()
        assert servers.roles() == [SLAVE, role]
        assert len(acked) > during + 20 > before + 20
        assert PutStatus.SERVICE_NOT_AVAILABLE in statuses
        await servers.wait_replicated("a-0", master="a-1")
        for name in ("a-0", "a-1"):
            broker = servers.controller(name)
            assert set(acked) <= set(queue_bodies(broker)), name
            assert broker.remoting is not None
            assert broker.remoting.metadata.topics.select_topic_config("JustMade") is not None
        assert servers.controller("a-1").term.leads
        assert servers.controller("a-1").term.number == 2
        assert not servers.events(HaClientHalt)

    servers.run_well(use)


# --- refused: nothing has changed -------------------------------------------------------------------------------------


async def check_refused(servers: ExchangeWorld, why: str, slave: str = "a-1") -> None:
    """The exchange ends with this reason, and the master takes puts as before."""
    term = servers.controller("a-0").term
    info = await servers.exchange(slave=slave)
    assert not info.exchanged
    assert re.search(why, info.detail), info.detail
    assert servers.roles() == [ASYNC_MASTER, SLAVE]
    assert servers.controller("a-0").term == term
    assert (await servers.put("a-0", b"as before")).status is PutStatus.PUT_OK
    assert not servers.events(BrokerRoleEvent)


def async_pair(**settings: Any) -> ExchangeWorld:
    return ExchangeWorld.of(broker_role=ASYNC_MASTER, **settings)


def test_a_slave_that_follows_nobody_is_refused() -> None:
    servers = async_pair()

    async def use() -> None:
        followed = servers.controller("a-1").followed_master
        assert followed is not None
        followed.is_followed = False
        await check_refused(servers, "10.0.0.3:10911: it follows no master at the moment")
        followed.halted = Halt("diverged", "another record", "10.0.0.2:10912", 100)
        await check_refused(servers, "it has halted: diverged: another record")
        followed.halted = None

    servers.run_well(use)


def test_a_slave_that_is_down_is_refused() -> None:
    servers = async_pair()

    async def use() -> None:
        address = servers.brokers["a-1"].address
        servers.nodes["a-1"].kill()
        info = await servers.exchange(to=address)
        assert re.search(r"10\.0\.0\.3:10911: .*[Rr]efused", info.detail), info.detail
        assert (await servers.put("a-0", b"as before")).status is PutStatus.PUT_OK

    servers.run_well(use)


def test_a_broker_of_another_name_a_master_and_who_knows_no_exchange_are_refused() -> None:
    servers = async_pair(members=[*pair("a", 1), *pair("b", 1)])

    async def use() -> None:
        await check_refused(servers, "10.0.0.5:10911: its brokerName is broker-b, not broker-a", "b-1")
        await check_refused(servers, "10.0.0.4:10911: it is not a slave", "b-0")
        answer = await servers.begin("a-1", "a-0")
        assert answer.remark == "this broker is a slave: ask its master"
        answer = await servers.begin("a-0", "a-0")
        assert answer.remark == "10.0.0.2:10911 is this master itself"
        remoting = servers.controller("a-1").remoting
        assert remoting is not None
        del remoting.processors._by_code[OwnRequestCode.PREPARE_EXCHANGE]
        await check_refused(servers, "10.0.0.3:10911 is no broker of this project, or an older one")

    servers.run_well(use)


def test_a_slave_of_the_same_name_that_follows_another_broker_is_refused() -> None:
    """Its log may be another one that ends at the same offset."""
    servers = async_pair()

    async def use() -> None:
        exchange = servers.controller("a-0").exchange
        assert exchange is not None
        body = PrepareExchangeBody(broker_name="broker-a", exchange_id="of somebody else", term=1)
        request = RemotingCommand(OwnRequestCode.PREPARE_EXCHANGE, body=encode_body(body))
        told = decode_body(ExchangeAnswer, (await servers.ask_broker("a-1", request)).body)
        assert told.refused == "it follows 10.0.0.2:10911, which is another broker, or exchanges no roles now"

    servers.run_well(use)


def test_a_slave_that_does_not_catch_up_ends_it_and_puts_are_taken_again() -> None:
    servers = async_pair(flush_disk_type=FlushDiskType.SYNC_FLUSH)

    async def use() -> None:
        servers.world.start_schedule(Schedule((DiskSlow(0.0, 60.0, "a-1", 5.0),)))
        await trio.sleep(0.1)
        await servers.put("a-0", b"not synced there")
        assert (await servers.begin(limit_s=3.0)).code == ResponseCode.SUCCESS
        await trio.sleep(1.5)
        refused = await servers.put("a-0", b"not now")
        assert refused.status is PutStatus.SERVICE_NOT_AVAILABLE
        assert refused.reason == "the store is not writeable: roles are being exchanged with 10.0.0.3:10911"
        remoting = servers.controller("a-0").remoting
        assert remoting is not None
        topics, groups = remoting.metadata.topics, remoting.metadata.subscription_groups
        topic, group = TopicConfig(topic_name="New"), SubscriptionGroupConfig(group_name="New")
        changes: list[Callable[[], Awaitable[None]]] = [
            lambda: topics.update_topic_config(topic),
            lambda: groups.update_subscription_group_config(group),
        ]
        for change in changes:
            outcome = await servers.on_node("a-0", functools.partial(outcome_of, change()))
            assert isinstance(outcome, TableFenced)
        info = await servers.ended()
        assert re.match("not ready within 3 s: 10.0.0.3:10911: ", info.detail), info.detail
        for change in changes:
            await servers.on_node("a-0", change)
        assert (await servers.put("a-0", b"again")).status is PutStatus.PUT_OK
        assert servers.controller("a-0").term.number == 1

    servers.run_well(use)


def test_one_exchange_at_a_time_and_the_same_one_asked_for_twice_is_one() -> None:
    servers = async_pair(members=pair("a", 2))

    async def use() -> None:
        servers.nodes["a-1"].pause()
        first = decode_body(ExchangeInfo, (await servers.begin()).body)
        again = decode_body(ExchangeInfo, (await servers.begin()).body)
        assert first.exchange_id == again.exchange_id
        assert (await servers.begin(slave="a-2")).remark == "roles are being exchanged with 10.0.0.3:10911"
        servers.nodes["a-1"].resume()
        assert (await servers.ended()).exchanged

    servers.run_well(use)


# --- access control ---------------------------------------------------------------------------------------------------


def write_white_list(node: Node, *addresses: str) -> None:
    text = "globalWhiteRemoteAddresses:\n" + "".join(f"- {address}\n" for address in addresses)
    with contextlib.suppress(FileNotFoundError):
        node.disk.remove("conf/plain_acl.yml")
    with contextlib.closing(node.disk.open("conf/plain_acl.yml", allocate_bytes=len(text))) as file:
        file.write_at(0, text.encode())


def test_with_access_control_each_needs_the_others_address_on_its_white_list() -> None:
    servers = async_pair()
    servers.settings = {"acl_enable": True}
    nodes = servers.nodes
    client = nodes[CLIENT].address
    write_white_list(nodes["a-0"], client, nodes["a-1"].address)
    write_white_list(nodes["a-1"], client)

    async def use() -> None:
        await check_refused(servers, "10.0.0.3:10911 answers 1: .*No accessKey is configured")
        write_white_list(nodes["a-1"], client, nodes["a-0"].address)
        await trio.sleep(6)
        assert (await servers.exchange()).exchanged

    servers.run_well(use)


# --- the operator sets the role ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("died_after", ["Promote", "Prepare"])
def test_change_role_ends_an_exchange_whose_slave_is_gone(died_after: str) -> None:
    servers = async_pair()

    async def use() -> None:
        stop = Kill(0.0, "a-1", 3600.0, on=On("broker.exchange", "a-0", {"Prepare": 3, "Promote": 5}[died_after]))
        servers.world.start_schedule(Schedule((stop,)))
        assert (await servers.begin()).code == ResponseCode.SUCCESS
        await trio.sleep(2)
        assert (await servers.put("a-0", b"fenced")).status is PutStatus.SERVICE_NOT_AVAILABLE
        effects = [event.effect for event in servers.events(BrokerExchange)]
        assert died_after in effects
        assert await servers.change_role("a-0", ASYNC_MASTER) is None
        info = await servers.info()
        assert (info.ended, info.exchanged) == (True, False)
        assert info.detail == "the role was set by command meanwhile"
        assert (await servers.put("a-0", b"again")).status is PutStatus.PUT_OK
        # The slave may have written term 2.
        assert servers.controller("a-0").term.number == (3 if died_after == "Promote" else 1)
        servers.nodes["a-0"].kill()
        servers.boot("a-0")
        await trio.sleep(3)
        assert (await servers.put("a-0", b"after a restart")).status is PutStatus.PUT_OK

    servers.run_well(use)


def promoted_unheard(servers: ExchangeWorld) -> None:
    """The slave becomes the master, and nothing that it says comes for a while."""
    cut = Partition(0.0, 20.0, "a-1", "a-0", two_way=False, on=On("broker.exchange", "a-0", 5))
    servers.world.start_schedule(Schedule((cut,)))


def test_a_master_that_is_made_a_slave_while_it_waits_takes_no_put_and_follows_who_was_promoted() -> None:
    """It would not believe a master of a term before its own."""
    servers = async_pair()

    async def put_again_and_again() -> None:
        while True:
            assert (await servers.put("a-0", b"fenced, or of a slave")).status is not PutStatus.PUT_OK
            await trio.sleep(0.001)

    async def use() -> None:
        promoted_unheard(servers)
        assert (await servers.begin()).code == ResponseCode.SUCCESS
        await trio.sleep(5)
        assert servers.roles() == [ASYNC_MASTER, ASYNC_MASTER]
        async with trio.open_nursery() as nursery:
            nursery.start_soon(put_again_and_again)
            assert await servers.change_role("a-0", SLAVE) is None
            await trio.sleep(1)
            nursery.cancel_scope.cancel()
        info = await servers.info()
        assert (info.ended, info.detail) == (True, "the role was set by command meanwhile")
        assert (await servers.put("a-1", b"of the new master")).status is PutStatus.PUT_OK
        await servers.wait_replicated("a-0", master="a-1")
        assert servers.controller("a-0").term.number == servers.controller("a-1").term.number == 2
        assert not servers.nodes["a-0"].disk.exists(EXCHANGE_FILE)

    servers.run_well(use)


@pytest.mark.parametrize("settings", ["brokerRole=ASYNC_MASTER\nbrokerId=3\n", "brokerRole=ASYNC_MASTER\nhaSlave=1\n"])
def test_a_command_that_is_refused_gives_nothing_up(settings: str) -> None:
    """There would be two masters, and the operator would be told that nothing has changed."""
    servers = async_pair()

    async def use() -> None:
        promoted_unheard(servers)
        assert (await servers.begin()).code == ResponseCode.SUCCESS
        await trio.sleep(5)
        change = RemotingCommand(RequestCode.UPDATE_BROKER_CONFIG, body=settings.encode())
        assert (await servers.ask_broker("a-0", change)).code == ResponseCode.SYSTEM_ERROR
        assert isinstance(await servers.change_role("a-0", ASYNC_MASTER, broker_id=3), ValueError)
        assert isinstance(await servers.change_role("a-0", ASYNC_MASTER, term=1), ValueError)
        assert (await servers.put("a-0", b"fenced")).status is PutStatus.SERVICE_NOT_AVAILABLE
        assert (await servers.ended()).exchanged

    servers.run_well(use)


def test_no_exchange_begins_while_the_role_is_set() -> None:
    servers = async_pair()

    async def use() -> None:
        servers.world.start_schedule(Schedule((DiskSlow(0.0, 10.0, "a-0", 0.5),)))
        async with trio.open_nursery() as nursery:
            nursery.start_soon(servers.change_role, "a-0", SYNC_MASTER)
            await trio.sleep(0.05)
            assert servers.roles() == [ASYNC_MASTER, SLAVE]
            assert (await servers.begin()).remark == "the role of this broker is being set by command"
        await trio.sleep(3)
        assert (await servers.exchange()).exchanged

    servers.run_well(use)


def test_a_slave_that_is_promoted_by_command_when_it_is_asked_to_lead_says_yes() -> None:
    """The master takes a no for final: there would be two masters."""
    servers = async_pair()
    outcomes: list[object] = []

    async def promote() -> None:
        outcomes.append(await outcome_of(servers.controller("a-1").change_role(ASYNC_MASTER)))

    def by_command(event: BrokerExchange) -> None:
        if event.effect == "Promote":
            servers.nodes["a-1"].start_soon(promote)

    async def use() -> None:
        servers.recorder.subscribe(by_command, [BrokerExchange])
        info = await servers.exchange()
        assert outcomes == [None]
        assert info.exchanged, info
        assert servers.roles() == [SLAVE, ASYNC_MASTER]

    servers.run_well(use)


def test_a_start_with_a_note_refuses_puts_from_the_first_moment() -> None:
    """The slave may be the master by now. When it can be asked, and says no, the old master goes on."""
    servers = async_pair()

    async def use() -> None:
        cut = Partition(0.0, 20.0, "a-0", "a-1", on=On("broker.exchange", "a-0", 5))
        servers.world.start_schedule(Schedule((cut,)))
        assert (await servers.begin()).code == ResponseCode.SUCCESS
        await trio.sleep(1)
        servers.nodes["a-0"].kill()
        servers.nodes["a-1"].kill()
        servers.boot("a-0")
        servers.boot("a-1")
        await trio.sleep(2)
        assert (await servers.put("a-0", b"fenced")).status is PutStatus.SERVICE_NOT_AVAILABLE
        assert (await servers.info()).step == "promote"
        told = await servers.ask_broker("a-0", RemotingCommand(RequestCode.GET_BROKER_RUNTIME_INFO))
        table = decode_body(KVTable, told.body).table
        assert table["putsRefused"] == "roles are being exchanged with 10.0.0.3:10911"
        assert "puts refused    roles are being exchanged with 10.0.0.3:10911" in status_lines(table, None)
        info = await servers.ended()
        assert re.search("it has not prepared for that, or not since it was started", info.detail)
        assert (await servers.put("a-0", b"again")).status is PutStatus.PUT_OK
        assert servers.controller("a-0").term.number == 3

    servers.run_well(use)


def test_puts_stay_refused_when_the_store_is_opened_again() -> None:
    servers = async_pair()

    async def use() -> None:
        stop = Kill(0.0, "a-1", 3600.0, on=On("broker.exchange", "a-0", 5))
        servers.world.start_schedule(Schedule((stop,)))
        assert (await servers.begin()).code == ResponseCode.SUCCESS
        await trio.sleep(2)
        before = servers.controller("a-0").store
        change = RemotingCommand(RequestCode.UPDATE_BROKER_CONFIG, body=b"maxMessageSize=1000000\n")
        assert (await servers.ask_broker("a-0", change)).code == ResponseCode.SUCCESS
        assert servers.controller("a-0").store is not before
        assert (await servers.put("a-0", b"fenced")).status is PutStatus.SERVICE_NOT_AVAILABLE

    servers.run_well(use)


@pytest.mark.parametrize(
    ("node", "why"),
    [
        ("a-1", "10.0.0.3:10911: it cannot write its settings: "),
        ("a-0", "this broker cannot be the slave of 10.0.0.3:10911: it cannot write its settings: "),
    ],
)
def test_nothing_is_fenced_where_a_file_of_settings_cannot_be_written(node: str, why: str) -> None:
    """On a read-only volume. Noticed later, it would leave a master that refuses puts, or one without a slave."""
    servers = async_pair()
    fences: list[Event] = []

    def fenced(event: BrokerExchange) -> None:
        if event.effect == "Fence":
            fences.append(event)

    async def use() -> None:
        keep_in_file(servers, node)
        servers.recorder.subscribe(fenced, [BrokerExchange])
        failing = DiskError(0.0, 20.0, node, error="EROFS", operation="open", path="conf/broker.conf.tmp", count=1000)
        servers.world.start_schedule(Schedule((failing,)))
        info = await servers.exchange()
        assert not info.exchanged
        assert info.detail.startswith(why)
        assert not fences
        assert servers.roles() == [ASYNC_MASTER, SLAVE]
        assert (await servers.put("a-0", b"as before")).status is PutStatus.PUT_OK
        await trio.sleep(20)
        assert (await servers.exchange()).exchanged

    servers.run_well(use)


@pytest.mark.parametrize("node", ["a-0", "a-1"])
@pytest.mark.parametrize(
    ("path", "why"),
    [
        ("conf/broker.conf", "/conf/broker.conf, line 1"),
        ("conf/broker.conf.bak/notes", "move it away: 'conf/broker.conf.bak'"),
    ],
    ids=["no property", "its .bak is a directory"],
)
def test_nothing_is_fenced_where_a_file_of_settings_cannot_be_replaced(node: str, path: str, why: str) -> None:
    """An operator is at work on it; a directory that has the name of its `.bak` lets no file become that."""
    servers = async_pair()

    async def use() -> None:
        keep_in_file(servers, node)
        file = servers.nodes[node].disk.open(path, allocate_bytes=4, exclusive=True)
        file.write_at(0, b"=\\u1")
        file.close()
        info = await servers.exchange()
        assert not info.exchanged
        assert "it cannot write its settings: " in info.detail
        assert why in info.detail
        assert servers.roles() == [ASYNC_MASTER, SLAVE]
        assert (await servers.put("a-0", b"as before")).status is PutStatus.PUT_OK

    servers.run_well(use)


def test_a_slave_says_no_only_when_its_file_says_so_too() -> None:
    """It might be the master after its next start; so the old master waits, fenced, for the file to be written."""
    servers = async_pair()

    async def use() -> None:
        keep_in_file(servers, "a-1")
        at_the_promotion = On("broker.exchange_partner", "a-1", 3)
        failing = DiskError(0.0, 20.0, "a-1", operation="sync_directory", path="conf", count=1000, on=at_the_promotion)
        servers.world.start_schedule(Schedule((failing,)))
        assert (await servers.begin()).code == ResponseCode.SUCCESS
        for _ in range(10):
            await trio.sleep(1)
            assert (await servers.put("a-0", b"fenced")).status is PutStatus.SERVICE_NOT_AVAILABLE
        assert "it cannot write its settings" in (await servers.info()).detail
        info = await servers.ended()
        assert "has been asked before" in info.detail
        said = config_file(servers.nodes["a-1"].disk, "conf/broker.conf").read()
        assert said is not None
        assert said.values["brokerRole"] == "SLAVE"
        assert servers.roles() == [ASYNC_MASTER, SLAVE]
        assert (await servers.put("a-0", b"again")).status is PutStatus.PUT_OK
        await servers.wait_replicated("a-1")
        assert (await servers.exchange()).exchanged

    servers.run_well(use)


# --- the command ------------------------------------------------------------------------------------------------------


async def by_command(servers: ExchangeWorld, limit_s: float = 30.0) -> str:
    """What the command says that it failed by; nothing if it did not."""
    client, master, slave = servers._client, "10.0.0.2:10911", "10.0.0.3:10911"
    assert client is not None
    failed = await servers.on_node(CLIENT, lambda: outcome_of(exchange_roles(client, master, slave, limit_s)))
    assert failed is None or isinstance(failed, RequestFailed)
    return "" if failed is None else str(failed)


def test_the_command_says_what_is_so() -> None:
    servers = async_pair()

    async def use() -> None:
        followed = servers.controller("a-1").followed_master
        assert followed is not None
        followed.is_followed = False
        said = await by_command(servers)
        assert said == "10.0.0.2:10911 is the master as before: 10.0.0.3:10911: it follows no master at the moment"
        followed.is_followed = True
        assert await by_command(servers) == ""
        assert servers.roles() == [SLAVE, ASYNC_MASTER]
        said = await by_command(servers)
        assert said == "10.0.0.2:10911 refuses (code 1): this broker is a slave: ask its master"

    servers.run_well(use)


def test_the_command_tells_of_a_slave_that_does_not_answer_any_more() -> None:
    servers = async_pair()

    async def use() -> None:
        stop = Kill(0.0, "a-1", 3600.0, on=On("broker.exchange", "a-0", 5))
        servers.world.start_schedule(Schedule((stop,)))
        said = await by_command(servers, 5.0)
        why = "10.0.0.2:10911 refuses puts until it knows whether 10.0.0.3:10911 is the master: step promote: "
        assert said.startswith(f"{why}it is not known whether the slave is the master by now: ")
        assert said.endswith("but only where 10.0.0.3:10911 is down, and stays so")

    servers.run_well(use)


def test_the_command_tells_of_a_master_whose_role_was_set_by_another_command() -> None:
    """It may be a slave by now, so nothing is as before."""
    servers = async_pair()

    async def use() -> None:
        promoted_unheard(servers)
        async with trio.open_nursery() as nursery:

            async def set_role() -> None:
                await trio.sleep(5)
                assert await servers.change_role("a-0", SLAVE) is None

            nursery.start_soon(set_role)
            said = await by_command(servers)
        why = "the role was set by command meanwhile: see the status of both"
        assert said == f"10.0.0.2:10911 has given the exchange up: {why}"
        assert servers.roles() == [SLAVE, ASYNC_MASTER]

    servers.run_well(use)


def test_the_command_tells_of_a_master_that_was_started_again() -> None:
    servers = async_pair()

    async def use() -> None:
        kill = Kill(0.0, "a-0", 1.0, on=On("broker.exchange", "a-0", 3))
        servers.world.start_schedule(Schedule((kill,)))
        said = await by_command(servers)
        assert said == ("10.0.0.2:10911 was started again meanwhile, and exchanges no roles: see the status of both")
        assert (await servers.put("a-0", b"as before")).status is PutStatus.PUT_OK

    servers.run_well(use)
