"""Two healthy brokers exchange their roles by hand: nothing is lost, and nobody halts, cuts, or takes older tables."""

from __future__ import annotations

import pytest
import trio

from rmq_actors.broker.broker_controller import BrokerController
from rmq_actors.broker.last_round import FIRST_ANSWER_S
from rmq_actors.protocols.evidence import Doubt
from rmq_actors.protocols.term import Term
from rmq_actors.store.config import BrokerRole
from rmq_actors.tracing.event import of_kind
from rmq_actors.tracing.events.broker import BrokerSlaveSynchronize
from rmq_actors.tracing.events.ha import HaClientCompare
from rmq_actors.tracing.events.store import LogTruncate, StoreOpen
from rmq_actors.wire.record import Message
from rmq_actors.wire.remoting_command import RemotingCommand
from rmq_actors.wire.request_code import OwnRequestCode
from rmq_actors.wire.response_code import ResponseCode
from sim_net import Bandwidth, Partition, Pause, Schedule
from tests.worlds.exchange_runs import HA_PORT, LEAF, NEW, OLD, Exchange, Plan, manual, run_plan, run_seed
from tests.worlds.recording import E
from tests.worlds.role_world import TOPIC

MASTER, SLAVE = BrokerRole.ASYNC_MASTER, BrokerRole.SLAVE


@pytest.mark.parametrize("seed", [*range(8), *(pytest.param(seed, marks=pytest.mark.long) for seed in range(8, 20))])
def test_an_exchange_by_hand_loses_nothing(seed: int) -> None:
    assert not run_seed("manual", seed)


async def step_down(run: Exchange) -> None:
    """The first of the two commands."""
    assert await run.change_role(OLD, SLAVE, haMasterAddress=run.address(NEW, HA_PORT), masterAddr=run.address(NEW))


def term(run: Exchange, name: str) -> Term:
    return run.brokers[name].term


def events(run: Exchange, node: str, kind: type[E]) -> list[E]:
    return [event for event in of_kind(run.recorder.events, kind) if event.node == node]


def ends_of(run: Exchange, name: str) -> set[str]:
    """Why a slave's attempts ended."""
    followed = run.brokers[name].followed_master
    assert followed is not None
    return set(followed.ends)


# --- a slave's word ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("truncates", [False, True])
def test_a_slave_that_lags_is_no_evidence_against_the_old_master(truncates: bool) -> None:
    """It lacks what the old master alone has: that is neither cut nor a reason to halt, and it comes."""

    async def operate(run: Exchange) -> None:
        # Nothing listens there: the slave does not get what is put now.
        assert await run.change_role(NEW, SLAVE, haMasterAddress=run.address(OLD, 1))
        await trio.sleep(1.0)
        await step_down(run)
        await trio.sleep(10.0)
        ends = [run.brokers[name].store.commit_log.max_offset for name in (OLD, NEW)]
        assert ends[0] > ends[1] + 2000
        assert "no_master" in ends_of(run, OLD)
        assert await run.change_role(NEW, SLAVE, haMasterAddress=run.address(OLD, HA_PORT))
        await trio.sleep(10.0)
        await run.change_role(NEW, MASTER)

    run, wrong = run_plan(Plan(truncates=truncates), operate)
    assert wrong == {"stores opened for nothing": 2}  # by the operator's own commands
    assert not run.complaints
    assert (term(run, OLD), term(run, NEW)) == (Term(2), Term(2, leads=True))


@pytest.mark.parametrize("truncates", [False, True])
def test_while_both_follow_each_other_nothing_is_cut_and_no_store_is_opened_again(truncates: bool) -> None:
    """Also where one of them holds a part of a record for a minute."""

    async def operate(run: Exchange) -> None:
        await step_down(run)
        opened = len(events(run, OLD, StoreOpen)), len(events(run, NEW, StoreOpen))
        await trio.sleep(60.0)
        assert (len(events(run, OLD, StoreOpen)), len(events(run, NEW, StoreOpen))) == opened
        assert run.brokers[NEW].store.commit_log.max_offset < run.brokers[OLD].store.commit_log.max_offset
        await trio.sleep(60.0)
        await run.change_role(NEW, MASTER)

    slow = Bandwidth(14.0, 62.0, OLD, NEW, 400.0)
    _, wrong = run_plan(Plan(truncates=truncates, body_bytes_max=2000, put_every_s=0.05, faults=(slow,)), operate)
    assert not wrong


def test_nothing_is_cut_by_command_on_the_word_of_a_master_that_is_none_any_more() -> None:
    """What it lacks may be what nobody else has."""
    answers: list[RemotingCommand | None] = []

    async def operate(run: Exchange) -> None:
        # The slave has nothing of what is put now, and is promoted all the same.
        assert await run.change_role(NEW, SLAVE, haMasterAddress=run.address(OLD, 1))
        await trio.sleep(1.0)
        await step_down(run)
        assert await run.change_role(NEW, MASTER)
        await trio.sleep(8.0)
        run.is_writing = False
        followed = run.brokers[OLD].followed_master
        assert followed is not None
        assert followed.halted is not None
        assert followed.halted.common_end is not None
        assert await run.change_role(NEW, SLAVE, haMasterAddress=run.address(OLD, HA_PORT))
        answers.append(await run.ask(OLD, RemotingCommand(OwnRequestCode.TRUNCATE_LOG), 5_000))
        assert await run.change_role(NEW, MASTER)
        answers.append(await run.ask(OLD, RemotingCommand(OwnRequestCode.TRUNCATE_LOG), 5_000))

    run, wrong = run_plan(Plan(put_every_s=0.05), operate)
    refused, done = answers
    assert refused is not None
    assert refused.code == ResponseCode.SYSTEM_ERROR
    assert "was the master when this slave halted; now it is a slave" in (refused.remark or "")
    assert done is not None
    assert done.code == ResponseCode.SUCCESS
    assert wrong.keys() == {"acknowledged messages lost", "halts", "truncations", "stores opened for nothing"}
    assert len(events(run, OLD, LogTruncate)) == 1


def test_by_setting_a_master_that_is_none_any_more_is_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is replaced between the halt and the cut: what whoever is the master then says counts."""
    doubts: list[Doubt | None] = [Doubt("no_master", "it is a slave"), None]

    async def doubt(_: BrokerController) -> Doubt | None:
        await trio.lowlevel.checkpoint()
        return doubts.pop(0)

    async def operate(run: Exchange) -> None:
        assert await run.change_role(NEW, SLAVE, haMasterAddress=run.address(OLD, 1))
        await trio.sleep(1.0)
        await step_down(run)
        assert await run.change_role(NEW, MASTER)

    monkeypatch.setattr(BrokerController, "_doubt_in_master", doubt)
    run, wrong = run_plan(Plan(truncates=True, put_every_s=0.05), operate)
    assert not doubts
    assert (wrong["halts"], wrong["truncations"], "halted" in wrong) == (2, 1, False)
    assert [event.status for event in events(run, OLD, HaClientCompare)].count("diverged") == 2


def test_the_operators_word_is_asked_for_before_a_master_of_an_old_term_is_followed() -> None:
    """A slave is promoted while the master is away, which comes back as if nothing had been."""

    async def operate(run: Exchange) -> None:
        run.is_writing = False
        run.world.start_schedule(Schedule((Partition(15.0, 10.0, OLD, NEW),)))
        assert await run.change_role(NEW, MASTER)
        await run.on_node(NEW, lambda: run.brokers[NEW].put_message(Message(TOPIC, b"of the new one", 1)))
        await trio.sleep(15.0)
        # The operator wants the old one after all.
        assert await run.change_role(NEW, SLAVE, haMasterAddress=run.address(OLD, HA_PORT), masterAddr=run.address(OLD))
        await trio.sleep(10.0)
        assert "old_term" in ends_of(run, NEW)
        followed = run.brokers[NEW].followed_master
        assert followed is not None
        assert not followed.connections
        assert followed.halted is None
        assert not await run.change_role(OLD, MASTER, term=1)
        assert await run.change_role(OLD, MASTER, term=3)

    run, wrong = run_plan(Plan(truncates=True, put_every_s=0.1), operate)
    # What the wrong one had taken is cut, on the word of the right one.
    assert wrong == {"halts": 1, "truncations": 1, "stores opened for nothing": 2}
    assert (term(run, OLD), term(run, NEW)) == (Term(3, leads=True), Term(3))


# --- a slave of a slave -----------------------------------------------------------------------------------------------


def test_terms_travel_down_a_chain() -> None:
    async def operate(run: Exchange) -> None:
        assert [term(run, name) for name in (OLD, NEW, LEAF)] == [Term(1, leads=True), Term(1), Term(1)]
        await manual(run)

    run, wrong = run_plan(Plan(has_leaf=True, made_before_s=(0.1,)), operate)
    assert not wrong
    assert [term(run, name) for name in (OLD, NEW, LEAF)] == [Term(2), Term(2, leads=True), Term(2)]


def test_what_a_slave_in_the_middle_has_lost_is_no_evidence_against_its_slave() -> None:
    """It may get that again from the master: the slave's slave waits, and goes on."""

    async def operate(run: Exchange) -> None:
        run.is_writing = False
        await trio.sleep(2.0)
        run.world.start_schedule(Schedule((Pause(0.0, 8.0, OLD),)))
        middle = run.world.nodes[NEW]
        middle.power_loss()
        middle.restart()
        await trio.sleep(5.0)
        assert run.brokers[NEW].store.commit_log.max_offset < run.brokers[LEAF].store.commit_log.max_offset
        assert ends_of(run, LEAF) >= {"no_master"}
        await trio.sleep(20.0)

    run, wrong = run_plan(Plan(has_leaf=True, truncates=True, put_every_s=0.05), operate, seed=2)
    assert not wrong
    assert run.master == OLD


# --- tables -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("waits_s", [0.0, 30.0])
@pytest.mark.parametrize("before_s", [0.02, 2.0, 9.0])
def test_topics_and_groups_survive_whenever_they_were_made(before_s: float, waits_s: float) -> None:
    plan = Plan(made_before_s=(before_s,), waits_s=waits_s, put_every_s=0.05)
    run, wrong = run_plan(plan, manual)
    assert not wrong
    assert run.topics == ["Topic-0"]


def test_an_old_master_does_not_take_the_tables_of_its_slave() -> None:
    """Both are slaves for a while, with the same log: the one that was the master has the newer tables."""

    async def operate(run: Exchange) -> None:
        await step_down(run)
        await trio.sleep(0.5)
        # The slave has not asked for tables since.
        statuses = [event.status for event in events(run, NEW, BrokerSlaveSynchronize)]
        assert run.lacks(NEW) == {"Topic-0", "Group-0"}, statuses
        await trio.sleep(8.0)
        assert not run.lacks(OLD)
        assert {event.status for event in events(run, OLD, BrokerSlaveSynchronize)} <= {"TablesNotTaken"}
        await run.change_role(NEW, MASTER)

    _, wrong = run_plan(Plan(made_before_s=(0.5,), begins_at_s=14.0, put_every_s=0.05), operate)
    assert not wrong


@pytest.mark.parametrize("how", ["down", "silent"])
def test_a_master_that_is_gone_holds_up_no_promotion(how: str) -> None:
    took_s: list[float] = []

    async def operate(run: Exchange) -> None:
        run.is_writing = False
        if how == "down":
            run.world.nodes[OLD].kill()
        else:
            run.world.start_schedule(Schedule((Partition(0.0, 1000.0, OLD, NEW),)))
        await trio.sleep(0.05)
        began_s = trio.current_time()
        assert await run.change_role(NEW, MASTER)
        took_s.append(trio.current_time() - began_s)
        run.world.nodes[OLD].kill()
        del run.brokers[OLD]
        run.names = (NEW,)

    _, wrong = run_plan(Plan(put_every_s=0.05), operate)
    assert not wrong
    assert took_s[0] < FIRST_ANSWER_S + 0.2


def test_a_master_that_has_lost_its_log_gives_no_tables_at_a_promotion() -> None:
    """It has lost its tables with it: the slave's are the last copy. Both are in term 1."""

    async def operate(run: Exchange) -> None:
        node = run.world.nodes[OLD]
        node.kill()
        for name in ("commitlog", "config"):
            for file in node.disk.list(name):
                node.disk.remove(f"{name}/{file}")
        run.is_writing = False
        del run.brokers[OLD]
        node.restart()
        while OLD not in run.brokers:
            await trio.sleep(0.01)
        assert await run.change_role(NEW, MASTER)
        remoting = run.brokers[NEW].remoting
        assert remoting is not None
        assert "Topic-0" in remoting.metadata.topics.wrapper().topic_config_table

    run, _ = run_plan(Plan(made_before_s=(14.0,), put_every_s=0.05), operate)
    assert events(run, NEW, BrokerSlaveSynchronize)[-1].status == "LookupFailed"
