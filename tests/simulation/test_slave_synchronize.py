"""A slave's metadata are its master's: after faults, with odd masters, and on the disk."""

from __future__ import annotations

import errno
import itertools
from collections.abc import Awaitable, Callable

import attrs
import pytest
import trio

from rmq_actors.ha.ha_client import FollowedMaster
from rmq_actors.remoting.connection import RemotingRequest
from rmq_actors.tracing.events.broker import BrokerMaster, BrokerPersistOffsets, BrokerSlaveSynchronize
from rmq_actors.wire.headers import CommandHeader
from rmq_actors.wire.headers.messages import ViewMessageRequestHeader
from rmq_actors.wire.headers.namesrv import RegisterBrokerResponseHeader
from rmq_actors.wire.headers.offsets import GetMaxOffsetRequestHeader, GetMinOffsetRequestHeader
from rmq_actors.wire.record import Message, encode_blank
from rmq_actors.wire.remoting_command import RemotingCommand
from rmq_actors.wire.request_code import RequestCode
from rmq_actors.wire.response_code import ResponseCode
from sim_net import On, Partition, PowerLoss, Schedule
from tests.worlds.metadata_world import (
    CODES,
    FILES,
    FIRST_SYNC_S,
    HEALED_S,
    JAVA_BODIES,
    PARTS,
    PERIOD_S,
    Bench,
    ScriptedMaster,
    change_everything,
    delete_everything,
    json_on,
    metadata_of,
    run,
    tables_of,
    tables_on,
)
from tests.worlds.registration_world import LISTEN_PORT, NameServer
from tests.worlds.remoting_calls import ask_once

#: More than the disk operations of one sync.
LAST_OPERATION = 36


# --- what a slave has -------------------------------------------------------------------------------------------------


def test_a_slave_has_its_masters_tables_and_files() -> None:
    async def main(bench: Bench) -> None:
        await bench.start()
        await change_everything(bench.master, 1)
        await trio.sleep(FIRST_SYNC_S)
        assert bench.is_synchronized()
        assert tables_on(bench.slave.node.disk, bench.slave.config) == tables_of(bench.master)
        await trio.sleep(10)  # the master writes its offsets
        for name in FILES:
            assert json_on(bench.slave.node.disk, name) == json_on(bench.master.node.disk, name), name

    bench = run(main)
    for part in PARTS:
        assert bench.statuses(part) == ["changed", "unchanged"]


def test_what_changes_and_what_is_deleted_follows_within_a_period() -> None:
    async def main(bench: Bench) -> None:
        await bench.start()
        for number in range(1, 4):
            await change_everything(bench.master, number)
            await trio.sleep(PERIOD_S)
            assert bench.is_synchronized()
        for number in (1, 3):
            await delete_everything(bench.master, number)
            await trio.sleep(PERIOD_S)
            assert bench.is_synchronized()
        topics, groups, offsets, delays = tables_of(bench.slave)
        assert "Topic-2" in topics.topic_config_table
        assert "Topic-3" not in topics.topic_config_table
        assert "Group-3" not in groups.subscription_group_table
        assert (offsets, delays) == ({"Topic-2@Group-2": dict.fromkeys(range(4), 20)}, {3: 3})

    run(main, slaves=2)


def test_offsets_are_written_every_5_s_after_the_first_10_s_and_at_an_orderly_stop() -> None:
    async def main(bench: Bench) -> None:
        written: list[float] = []
        await bench.master.start()
        begin = trio.current_time()
        for number in range(41):
            metadata_of(bench.master).consumer_offsets.commit_offset("c", "G", "T", 0, number)
            await trio.sleep(0.5)
        for event in bench.master.events(BrokerPersistOffsets):
            assert event.sim_time_ns is not None
            written.append(event.sim_time_ns / 1e9 - begin)
        assert written == pytest.approx([10.0, 15.0, 20.0], abs=0.1)
        metadata_of(bench.master).consumer_offsets.commit_offset("c", "G", "T", 0, 1000)
        await bench.master.stop()
        assert json_on(bench.master.node.disk, "consumerOffset") == {"offsetTable": {"T@G": {"0": 1000}}}

    run(main)


def test_offsets_that_cannot_be_written_are_written_later_and_that_is_seen() -> None:
    async def main(bench: Bench) -> None:
        await bench.master.start()
        metadata_of(bench.master).consumer_offsets.commit_offset("c", "G", "T", 0, 7)
        failing = bench.master.node.disk.fail(errno.ENOSPC, path="consumerOffset", count=100)
        await trio.sleep(12)
        assert [event.status for event in bench.master.events(BrokerPersistOffsets)] == ["OSError"]
        failing.end()
        await trio.sleep(5)
        assert [event.status for event in bench.master.events(BrokerPersistOffsets)] == ["OSError", "written"]
        assert json_on(bench.master.node.disk, "consumerOffset") == {"offsetTable": {"T@G": {"0": 7}}}

    run(main)


# --- faults -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["kill", "power_loss", "stop"])
def test_a_master_that_restarts_is_asked_again(how: str) -> None:
    async def main(bench: Bench) -> None:
        await bench.start()
        await change_everything(bench.master, 1)
        await trio.sleep(FIRST_SYNC_S)
        if how == "stop":
            await bench.master.stop()
        else:
            getattr(bench.master.node, how)()
        before = tables_of(bench.slave)
        await trio.sleep(60)
        assert tables_of(bench.slave) == before
        await bench.master.start()
        await change_everything(bench.master, 2)
        await trio.sleep(HEALED_S)
        slave, master = tables_of(bench.slave), tables_of(bench.master)
        assert slave[:2] == master[:2]
        # What a master lost that had not written it, a slave that had it keeps where the master names it again.
        assert slave[2].items() >= master[2].items()

    bench = run(main)
    failed = [status for status in bench.statuses("topics") if status not in {"changed", "unchanged"}]
    # Nobody asks a master whose log does not come: a power loss tells that after a while.
    assert len(failed) <= {"kill": 1, "power_loss": 8, "stop": 1}[how]
    assert set(failed) <= {"LookupFailed", "NoAnswer", "RemotingTimeoutError"}


def test_a_partition_costs_one_slave_its_syncs_and_the_other_nothing() -> None:
    async def main(bench: Bench) -> None:
        await bench.start()
        await trio.sleep(FIRST_SYNC_S)
        cut = Partition(trio.current_time(), 60.0, "master", "slave-1")
        bench.world.start_schedule(Schedule((cut,)))
        for number in range(1, 5):
            await change_everything(bench.master, number)
            await trio.sleep(PERIOD_S)
            assert tables_of(bench.slaves[1]) == tables_of(bench.master)
            assert tables_of(bench.slaves[0]) != tables_of(bench.master)
        await delete_everything(bench.master, 2)
        await trio.sleep(60.0 - 4 * PERIOD_S + HEALED_S)
        assert bench.is_synchronized()

    bench = run(main, slaves=2)
    assert "NoAnswer" in bench.statuses("topics")
    assert set(bench.statuses("topics", bench.slaves[1])) <= {"changed", "unchanged"}


@pytest.mark.parametrize("how", ["kill", "power_loss", "stop"])
def test_a_slave_that_restarts_has_what_it_had_and_goes_on(how: str) -> None:
    async def main(bench: Bench) -> None:
        await bench.start()
        await change_everything(bench.master, 1)
        await trio.sleep(FIRST_SYNC_S)
        before = tables_of(bench.slave)
        if how == "stop":
            await bench.slave.stop()
        else:
            getattr(bench.slave.node, how)()
        await change_everything(bench.master, 2)
        await delete_everything(bench.master, 1)
        await bench.slave.start()
        assert tables_of(bench.slave) == before
        await trio.sleep(FIRST_SYNC_S)
        assert bench.is_synchronized()

    run(main)


@pytest.mark.parametrize("name", FILES)
def test_a_table_that_cannot_be_stored_is_asked_for_again_and_holds_up_no_other(name: str) -> None:
    part = PARTS[FILES.index(name)]

    async def main(bench: Bench) -> None:
        await bench.start()
        await change_everything(bench.master, 1)
        failing = bench.slave.node.disk.fail(errno.ENOSPC, path=f"{name}.json", count=1000)
        await trio.sleep(FIRST_SYNC_S + 6)
        assert len(bench.statuses(part)) >= 3
        assert set(bench.statuses(part)) == {"OSError"}
        for other in PARTS:
            if other != part:
                assert bench.statuses(other) == ["changed"]
        failing.end()
        await trio.sleep(10)
        assert bench.is_synchronized()
        assert tables_on(bench.slave.node.disk, bench.slave.config) == tables_of(bench.master)

    run(main)


def test_the_power_goes_at_each_disk_operation_of_a_sync() -> None:
    """The slave then has each table as it was, or as the master has it; and with its next sync all are the master's."""
    cuts = 0
    for nth in range(1, LAST_OPERATION):

        async def main(bench: Bench, nth: int = nth) -> None:
            nonlocal cuts
            await bench.start()
            await change_everything(bench.master, 1)
            await trio.sleep(FIRST_SYNC_S)
            old = tables_of(bench.slave)
            await change_everything(bench.master, 2)
            await delete_everything(bench.master, 1)
            new = tables_of(bench.master)
            slave = bench.slave.node
            bench.world.start_schedule(
                Schedule((PowerLoss(0.0, slave.name, 1000.0, on=On("disk.*", slave.name, nth)),))
            )
            await trio.sleep(PERIOD_S)
            if slave.is_up:
                return
            cuts += 1
            found = tables_on(slave.disk, bench.slave.config)
            assert all(table in pair for table, *pair in zip(found, old, new, strict=True))
            await bench.slave.start()
            await trio.sleep(FIRST_SYNC_S)
            assert bench.is_synchronized()

        run(main, seed=nth)
    assert cuts >= 24


# --- odd masters ------------------------------------------------------------------------------------------------------


@pytest.fixture
def followed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A scripted master has no log, and is asked all the same."""
    monkeypatch.setattr(FollowedMaster, "is_followed", property(lambda _: True, lambda _, __: None))


def with_scripted_master(
    bodies: dict[int, bytes | Callable[[RemotingRequest], RemotingCommand | None]],
    use: Callable[[Bench, ScriptedMaster], Awaitable[None]],
) -> Bench:
    async def main(bench: Bench) -> None:
        master = ScriptedMaster(bench.master.node, bodies)
        master.boot()
        await bench.slave.start()
        await use(bench, master)

    return run(main)


@pytest.mark.usefixtures("followed")
def test_what_a_java_master_sends_is_taken_over() -> None:
    async def use(bench: Bench, master: ScriptedMaster) -> None:
        await trio.sleep(FIRST_SYNC_S)
        topics, groups, offsets, delays = tables_of(bench.slave)
        assert list(topics.topic_config_table) == ["T"]
        assert list(groups.subscription_group_table) == ["G"]
        assert (offsets, delays) == ({"T@G": {0: 8, 1: 7}}, {1: 3, 2: 9})
        assert [code for _, code in master.asked] == list(CODES)

    with_scripted_master({**JAVA_BODIES}, use)


def test_an_answer_of_a_master_that_is_not_followed_any_more_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    is_followed = [True]
    monkeypatch.setattr(FollowedMaster, "is_followed", property(lambda _: is_followed[0], lambda _, __: None))

    def answer_at_the_end(request: RemotingRequest) -> RemotingCommand:
        is_followed[0] = False
        return request.command.response(ResponseCode.SUCCESS, body=JAVA_BODIES[RequestCode(request.command.code)])

    async def use(bench: Bench, master: ScriptedMaster) -> None:
        before = tables_of(bench.slave)
        await trio.sleep(60)
        assert tables_of(bench.slave) == before
        assert len(master.asked) == 1
        assert bench.statuses("topics") == ["MasterNotFollowed"]

    with_scripted_master(dict.fromkeys(CODES, answer_at_the_end), use)


@pytest.mark.usefixtures("followed")
@pytest.mark.parametrize("part", PARTS)
@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{}",
        b"null",
        b"[]",
        b"\xff",
        b'{"offsetTable":null,"topicConfigTable":null,"subscriptionGroupTable":null}',
        b'{"offsetTable":{"a":{"b":"c"}},"topicConfigTable":{"T":5},"subscriptionGroupTable":{"G":[]}}',
        b"[" * 2000,
    ],
)
def test_an_answer_that_makes_no_sense_changes_nothing_and_is_asked_for_again(part: str, body: bytes) -> None:
    code = CODES[PARTS.index(part)]

    async def use(bench: Bench, master: ScriptedMaster) -> None:
        await trio.sleep(FIRST_SYNC_S)
        good = tables_of(bench.slave)
        master.bodies[code] = body
        await trio.sleep(15)
        assert tables_of(bench.slave) == good
        assert bench.statuses(part)[1] not in {"changed", "unchanged"}
        assert len(bench.statuses(part)) >= 4
        assert all(len(bench.statuses(other)) == 2 for other in PARTS if other != part)
        master.bodies[code] = JAVA_BODIES[code]
        await trio.sleep(10)
        assert bench.statuses(part)[-1] == "unchanged"

    with_scripted_master({**JAVA_BODIES}, use)


@pytest.mark.usefixtures("followed")
def test_a_master_that_refuses_is_asked_ever_more_seldom_but_once_a_period() -> None:
    async def use(bench: Bench, master: ScriptedMaster) -> None:
        await trio.sleep(120)
        times = [at for at, code in master.asked if code == RequestCode.GET_ALL_DELAY_OFFSET]
        gaps = [later - earlier for earlier, later in itertools.pairwise(times)]
        assert all(0.5 <= gap <= 10.1 for gap in gaps)
        assert max(gaps[:2]) < min(gaps[4:])
        assert set(bench.statuses("delay_offsets")) == {"MQBrokerError"}

    bodies = {code: body for code, body in JAVA_BODIES.items() if code != RequestCode.GET_ALL_DELAY_OFFSET}
    with_scripted_master({**bodies}, use)


@pytest.mark.usefixtures("followed")
def test_a_stop_waits_for_no_answer() -> None:
    async def use(bench: Bench, master: ScriptedMaster) -> None:
        master.bodies.update(dict.fromkeys(CODES, lambda request: None))
        await trio.sleep(FIRST_SYNC_S)
        before = trio.current_time()
        await bench.slave.stop()
        assert trio.current_time() - before < 1.0

    with_scripted_master({}, use)


@pytest.mark.usefixtures("followed")
def test_another_master_is_asked_at_once_also_while_the_one_before_does_not_answer() -> None:
    async def main(bench: Bench) -> None:
        name_server = NameServer(bench.world.node("ns1"))
        silent = ScriptedMaster(bench.world.node("silent"), dict.fromkeys(CODES, lambda request: None))
        answering = ScriptedMaster(bench.master.node, {**JAVA_BODIES})
        for server in (name_server, silent, answering):
            server.boot()
        await trio.sleep(1)
        name_server.says = RegisterBrokerResponseHeader(master_addr=f"{silent.node.address}:{LISTEN_PORT}")
        bench.slave.config = attrs.evolve(bench.slave.config, master_addr=None, namesrv_addr=name_server.address)
        await bench.slave.start()
        while not silent.asked:
            await trio.sleep(0.1)
        name_server.says = RegisterBrokerResponseHeader(master_addr=f"{answering.node.address}:{LISTEN_PORT}")
        while not bench.slave.events(BrokerMaster)[1:]:
            await trio.sleep(0.01)
        await trio.sleep(0.5)
        assert tables_of(bench.slave)[2:] == ({"T@G": {0: 8, 1: 7}}, {1: 3, 2: 9})
        assert [code for _, code in answering.asked] == list(CODES)
        asked_before = len(silent.asked)
        await trio.sleep(30)
        assert len(silent.asked) == asked_before

    bench = run(main)
    assert bench.statuses("topics").count("changed") == 1


# --- what else a broker answers ---------------------------------------------------------------------------------------


def test_a_record_by_its_offset_and_the_bounds_of_a_queue() -> None:
    async def main(bench: Bench) -> None:
        await bench.master.start()
        offsets = []
        for number in range(3):
            put = await bench.master.controller.put_message(Message("T", b"body %d" % number, queue_id=1))
            assert put.append is not None
            offsets.append(put.append.offset)
        await trio.sleep(1)
        client, address = bench.world.node("client"), f"{bench.master.node.address}:{LISTEN_PORT}"
        log = bench.master.controller.store.commit_log

        async def ask(code: RequestCode, header: CommandHeader) -> RemotingCommand:
            return await ask_once(client, address, code, header)

        for offset, end in zip(offsets, [*offsets[1:], log.max_offset], strict=True):
            answer = await ask(RequestCode.VIEW_MESSAGE_BY_ID, ViewMessageRequestHeader(offset=offset))
            assert answer.code == ResponseCode.SUCCESS
            assert answer.body == b"".join(bytes(view) for view in log.ranges(offset, end))
        for offset in (offsets[1] + 1, log.max_offset, -1, 1 << 62):
            answer = await ask(RequestCode.VIEW_MESSAGE_BY_ID, ViewMessageRequestHeader(offset=offset))
            assert (answer.code, answer.remark) == (1, f"can not find message by the offset, {offset}")
        # Of a file's blank end its head.
        blank_at = log.max_offset
        room = log.file_size_bytes - blank_at
        await bench.master.controller.put_message(Message("U", bytes(room)))
        answer = await ask(RequestCode.VIEW_MESSAGE_BY_ID, ViewMessageRequestHeader(offset=blank_at))
        assert (answer.code, answer.body) == (ResponseCode.SUCCESS, encode_blank(room))
        for topic, queue_id, expected in (("T", 1, "3"), ("T", 0, "0"), ("None", 1, "0")):
            answer = await ask(RequestCode.GET_MAX_OFFSET, GetMaxOffsetRequestHeader(topic=topic, queue_id=queue_id))
            assert (answer.code, answer.ext_fields) == (0, {"offset": expected})
            answer = await ask(RequestCode.GET_MIN_OFFSET, GetMinOffsetRequestHeader(topic=topic, queue_id=queue_id))
            assert (answer.code, answer.ext_fields) == (0, {"offset": "0"})
        remoting = bench.master.controller.remoting
        assert remoting is not None
        remoting.use_store(None, is_slave=False)
        answer = await ask(RequestCode.VIEW_MESSAGE_BY_ID, ViewMessageRequestHeader(offset=0))
        assert answer.code == ResponseCode.SERVICE_NOT_AVAILABLE

    run(main)


def test_a_slave_that_nobody_tells_its_master_asks_nobody() -> None:
    async def main(bench: Bench) -> None:
        bench.slave.config = attrs.evolve(bench.slave.config, master_addr=None)
        await bench.start()
        await trio.sleep(60)
        assert not bench.slave.events(BrokerSlaveSynchronize)

    run(main)


@pytest.mark.usefixtures("followed")
@pytest.mark.parametrize("role", ["SLAVE", "KING", ""])
def test_the_tables_of_a_peer_that_is_no_master_are_not_taken_over(role: str) -> None:
    async def use(bench: Bench, master: ScriptedMaster) -> None:
        master.role = role
        before = tables_of(bench.slave)
        await trio.sleep(60)
        assert tables_of(bench.slave) == before
        assert not master.asked
        assert set(bench.statuses("topics")) == {"LookupFailed" if role == "KING" else "TablesNotTaken"}
        master.role = "SYNC_MASTER"
        await trio.sleep(PERIOD_S)
        assert bench.statuses("topics")[-1] == "changed"

    with_scripted_master({**JAVA_BODIES}, use)


@pytest.mark.usefixtures("followed")
def test_the_tables_of_a_master_that_is_none_any_more_when_it_has_answered_are_not_taken_over() -> None:
    masters: list[ScriptedMaster] = []

    def answer_at_the_end(request: RemotingRequest) -> RemotingCommand:
        masters[0].role = "SLAVE"
        return request.command.response(ResponseCode.SUCCESS, body=JAVA_BODIES[RequestCode(request.command.code)])

    async def use(bench: Bench, master: ScriptedMaster) -> None:
        masters.append(master)
        before = tables_of(bench.slave)
        await trio.sleep(60)
        assert tables_of(bench.slave) == before
        assert len(master.asked) == 1
        assert set(bench.statuses("topics")) == {"TablesNotTaken"}

    with_scripted_master(dict.fromkeys(CODES, answer_at_the_end), use)
