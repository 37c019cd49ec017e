"""What a broker says of its role, term and log in one answer, and how its term goes through promotions and restarts."""

from __future__ import annotations

import pytest
import trio

from rmq_actors.broker.broker_controller import BrokerController
from rmq_actors.protocols.put_completion import PutStatus
from rmq_actors.protocols.term import Term, TermRefused
from rmq_actors.store.config import BrokerRole
from rmq_actors.tracing.events.broker import BrokerRoleEvent
from rmq_actors.tracing.events.store import StoreTerm
from rmq_actors.wire.bodies.decoding import decode_body
from rmq_actors.wire.bodies.replication_state import ReplicationStateInfo
from rmq_actors.wire.remoting_command import RemotingCommand
from rmq_actors.wire.request_code import OwnRequestCode, RequestCode
from rmq_actors.wire.response_code import ResponseCode
from sim_net import DiskSlow, NodeFailed, World
from tests.simulation.test_role_change_failures import OneBroker
from tests.worlds.role_world import RoleWorld

SYNC_MASTER, SLAVE = BrokerRole.SYNC_MASTER, BrokerRole.SLAVE


async def ask(servers: RoleWorld, node: str) -> RemotingCommand:
    return await servers.ask_broker(node, RemotingCommand(OwnRequestCode.GET_REPLICATION_STATE))


async def state_of(servers: RoleWorld, node: str) -> ReplicationStateInfo:
    answer = await ask(servers, node)
    assert answer.code == ResponseCode.SUCCESS
    return decode_body(ReplicationStateInfo, answer.body)


async def update(servers: RoleWorld, node: str, properties: str, term: object) -> RemotingCommand:
    fields = {"term": str(term)}
    return await servers.ask_broker(
        node, RemotingCommand(RequestCode.UPDATE_BROKER_CONFIG, fields, body=properties.encode())
    )


def test_one_answer_tells_role_term_and_log() -> None:
    servers = RoleWorld.of()

    async def use() -> None:
        assert (await servers.put("a-0", b"x")).status is PutStatus.PUT_OK
        end, master, slave = servers.brokers["a-0"].log.max_offset, servers.brokers["a-0"], servers.brokers["a-1"]
        told = await state_of(servers, "a-0")
        assert (told.broker_name, told.broker_id, told.broker_role) == ("broker-a", 0, "SYNC_MASTER")
        assert (told.min_offset, told.max_offset, told.flushed_offset <= end) == (0, end, True)
        assert (told.ha_address, told.followed_address, told.followed) == (master.ha_address, None, False)
        assert (told.term, told.leads_term, told.halted) == (1, True, None)
        told = await state_of(servers, "a-1")
        assert (told.broker_name, told.broker_id, told.broker_role) == ("broker-a", 1, "SLAVE")
        assert (told.ha_address, told.followed_address, told.followed) == (slave.ha_address, master.ha_address, True)
        assert (told.max_offset, told.leads_term, told.halted) == (end, False, None)

    servers.run_well(use)


def test_a_broker_that_changes_its_role_tells_none() -> None:
    servers = RoleWorld.of()
    codes: list[int] = []

    async def use() -> None:
        DiskSlow(0.0, 60.0, "a-0", 0.1).begin(servers.world)

        async def ask_on() -> None:
            while True:
                codes.append((await ask(servers, "a-0")).code)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(ask_on)
            await trio.sleep(0.1)
            assert await servers.change_role("a-0", SLAVE) is None
            await trio.sleep(0.1)
            nursery.cancel_scope.cancel()
        assert (await state_of(servers, "a-0")).broker_role == "SLAVE"

    servers.run_well(use)
    assert set(codes) == {ResponseCode.SUCCESS, ResponseCode.SERVICE_NOT_AVAILABLE}


def test_each_promotion_goes_to_a_greater_term_and_a_restart_to_none() -> None:
    servers = RoleWorld.of()

    async def use() -> None:
        assert servers.controller("a-0").term == Term(1, leads=True)
        assert await servers.change_role("a-0", SLAVE) is None
        assert servers.controller("a-0").term == Term(1, leads=True, resigned=True)
        assert await servers.change_role("a-0", SYNC_MASTER) is None
        assert servers.controller("a-0").term == Term(2, leads=True)
        servers.nodes["a-0"].power_loss()
        servers.boot("a-0")
        await trio.sleep(5)
        # It leads that term already: nobody was promoted meanwhile that it knows of.
        assert servers.controller("a-0").term == Term(2, leads=True)
        assert [(event.term, event.leads) for event in servers.events(StoreTerm, node="a-0")] == [
            (1, True),
            (1, True),
            (2, True),
        ]

    servers.run_well(use)


def test_a_term_that_is_asked_for_is_taken_if_it_is_greater() -> None:
    servers = RoleWorld.of()

    async def use() -> None:
        for term, why in ((1, "term 1 is not greater than 1"), (-5, "term -5 is not")):
            answer = await update(servers, "a-0", "brokerRole=ASYNC_MASTER\n", term)
            assert answer.code == ResponseCode.SYSTEM_ERROR
            assert why in (answer.remark or "")
        assert servers.controller("a-0").config.store.broker_role is SYNC_MASTER
        assert not servers.events(BrokerRoleEvent)
        refused = await update(servers, "a-1", "brokerRole=SLAVE\n", 7)
        assert "a slave does not choose its term" in (refused.remark or "")
        # A master goes to it, too: its slaves hear of it.
        assert (await update(servers, "a-0", "brokerRole=SYNC_MASTER\n", 7)).code == ResponseCode.SUCCESS
        assert servers.controller("a-0").term == Term(7, leads=True)
        assert isinstance(await servers.change_role("a-0", SYNC_MASTER, term=7), TermRefused)
        assert await servers.change_role("a-0", SLAVE) is None
        assert (await update(servers, "a-0", "brokerRole=SYNC_MASTER\n", 70)).code == ResponseCode.SUCCESS
        assert servers.controller("a-0").term == Term(70, leads=True)
        assert (await state_of(servers, "a-0")).term == 70

    servers.run_well(use)


@pytest.mark.parametrize("seed", range(6))
def test_a_promotion_is_durable_when_the_broker_is_a_master(seed: int) -> None:
    """The power goes at that moment: who has been a master in a term knows of it afterwards."""
    broker = OneBroker(SLAVE, seed)
    terms: list[Term] = []

    async def promote(controller: BrokerController) -> None:
        await controller.change_role(SYNC_MASTER)
        terms.append(controller.term)
        broker.node.power_loss()
        await trio.sleep_forever()

    async def look(controller: BrokerController) -> None:
        terms.append(controller.term)

    async def main(_: World) -> None:
        await broker.run(SLAVE, promote)
        await broker.run(SLAVE, look)

    broker.world.run(main)
    assert terms == [Term(1, leads=True), Term(1, leads=True, resigned=True)]


def test_a_slave_that_is_started_as_a_master_goes_to_a_greater_term() -> None:
    """It led that term before it was a slave: somebody else may have been promoted since."""
    broker = OneBroker(SYNC_MASTER)
    terms: list[Term] = []

    async def look(controller: BrokerController) -> None:
        terms.append(controller.term)

    async def main(_: World) -> None:
        for role in (SYNC_MASTER, SYNC_MASTER, SLAVE, SYNC_MASTER):
            await broker.run(role, look)

    broker.world.run(main)
    assert terms == [
        Term(1, leads=True), Term(1, leads=True), Term(1, leads=True, resigned=True), Term(2, leads=True)
    ]  # fmt: skip


def test_a_broker_whose_term_cannot_be_read_does_not_start_and_says_why() -> None:
    broker = OneBroker(SYNC_MASTER)
    terms: list[Term] = []

    async def look(controller: BrokerController) -> None:
        terms.append(controller.term)

    async def main(_: World) -> None:
        await broker.run(SYNC_MASTER, look)
        file = broker.node.disk.open("config/replicationTerm.json")
        file.write_at(0, b"x")
        file.close()
        await broker.run(SYNC_MASTER, look)

    with pytest.raises(NodeFailed, match=r"ConfigFileDamaged: config/replicationTerm.json cannot be read \(line 1"):
        broker.world.run(main)
    assert terms == [Term(1, leads=True)]
