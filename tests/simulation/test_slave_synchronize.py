"""A slave's metadata are its master's: after faults, with odd masters, and on the disk."""

from __future__ import annotations

import errno
import itertools
from collections.abc import Awaitable, Callable

import attrs
import pytest
import trio

from rmq_actors.ha.followed_master import FollowedMaster
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
    MetadataCluster,
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
    async def main(cluster: MetadataCluster) -> None:
        await cluster.start()
        await change_everything(cluster.master, 1)
        await trio.sleep(FIRST_SYNC_S)
        assert cluster.is_synchronized()
        assert tables_on(cluster.slave.node.disk, cluster.slave.config) == tables_of(cluster.master)
        await trio.sleep(10)  # the master writes its offsets
        for name in FILES:
            assert json_on(cluster.slave.node.disk, name) == json_on(cluster.master.node.disk, name), name

    cluster = run(main)
    for part in PARTS:
        assert cluster.statuses(part) == ["changed", "unchanged"]


def test_what_changes_and_what_is_deleted_follows_within_a_period() -> None:
    async def main(cluster: MetadataCluster) -> None:
        await cluster.start()
        for number in range(1, 4):
            await change_everything(cluster.master, number)
            await trio.sleep(PERIOD_S)
            assert cluster.is_synchronized()
        for number in (1, 3):
            await delete_everything(cluster.master, number)
            await trio.sleep(PERIOD_S)
            assert cluster.is_synchronized()
        topics, groups, offsets, delays = tables_of(cluster.slave)
        assert "Topic-2" in topics.topic_config_table
        assert "Topic-3" not in topics.topic_config_table
        assert "Group-3" not in groups.subscription_group_table
        assert (offsets, delays) == ({"Topic-2@Group-2": dict.fromkeys(range(4), 20)}, {3: 3})

    run(main, slaves=2)


def test_offsets_are_written_every_5_s_after_the_first_10_s_and_at_an_orderly_stop() -> None:
    async def main(cluster: MetadataCluster) -> None:
        written: list[float] = []
        await cluster.master.start()
        begin = trio.current_time()
        for number in range(41):
            metadata_of(cluster.master).consumer_offsets.commit_offset("c", "G", "T", 0, number)
            await trio.sleep(0.5)
        for event in cluster.master.events(BrokerPersistOffsets):
            assert event.sim_time_ns is not None
            written.append(event.sim_time_ns / 1e9 - begin)
        assert written == pytest.approx([10.0, 15.0, 20.0], abs=0.1)
        metadata_of(cluster.master).consumer_offsets.commit_offset("c", "G", "T", 0, 1000)
        await cluster.master.stop()
        assert json_on(cluster.master.node.disk, "consumerOffset") == {"offsetTable": {"T@G": {"0": 1000}}}

    run(main)


def test_offsets_that_cannot_be_written_are_written_later_and_that_is_seen() -> None:
    async def main(cluster: MetadataCluster) -> None:
        await cluster.master.start()
        metadata_of(cluster.master).consumer_offsets.commit_offset("c", "G", "T", 0, 7)
        failing = cluster.master.node.disk.fail(errno.ENOSPC, path="consumerOffset", count=100)
        await trio.sleep(12)
        assert [event.status for event in cluster.master.events(BrokerPersistOffsets)] == ["OSError"]
        failing.end()
        await trio.sleep(5)
        assert [event.status for event in cluster.master.events(BrokerPersistOffsets)] == ["OSError", "written"]
        assert json_on(cluster.master.node.disk, "consumerOffset") == {"offsetTable": {"T@G": {"0": 7}}}

    run(main)


# --- faults -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["kill", "power_loss", "stop"])
def test_a_master_that_restarts_is_asked_again(how: str) -> None:
    async def main(cluster: MetadataCluster) -> None:
        await cluster.start()
        await change_everything(cluster.master, 1)
        await trio.sleep(FIRST_SYNC_S)
        if how == "stop":
            await cluster.master.stop()
        else:
            getattr(cluster.master.node, how)()
        before = tables_of(cluster.slave)
        await trio.sleep(60)
        assert tables_of(cluster.slave) == before
        await cluster.master.start()
        await change_everything(cluster.master, 2)
        await trio.sleep(HEALED_S)
        slave, master = tables_of(cluster.slave), tables_of(cluster.master)
        assert slave[:2] == master[:2]
        # What a master lost that had not written it, a slave that had it keeps where the master names it again.
        assert slave[2].items() >= master[2].items()

    cluster = run(main)
    failed = [status for status in cluster.statuses("topics") if status not in {"changed", "unchanged"}]
    # Nobody asks a master whose log does not come: a power loss tells that after a while.
    assert len(failed) <= {"kill": 1, "power_loss": 8, "stop": 1}[how]
    assert set(failed) <= {"LookupFailed", "NoAnswer", "RemotingTimeoutError"}


def test_a_partition_costs_one_slave_its_syncs_and_the_other_nothing() -> None:
    async def main(cluster: MetadataCluster) -> None:
        await cluster.start()
        await trio.sleep(FIRST_SYNC_S)
        cut = Partition(trio.current_time(), 60.0, "master", "slave-1")
        cluster.world.start_schedule(Schedule((cut,)))
        for number in range(1, 5):
            await change_everything(cluster.master, number)
            await trio.sleep(PERIOD_S)
            assert tables_of(cluster.slaves[1]) == tables_of(cluster.master)
            assert tables_of(cluster.slaves[0]) != tables_of(cluster.master)
        await delete_everything(cluster.master, 2)
        await trio.sleep(60.0 - 4 * PERIOD_S + HEALED_S)
        assert cluster.is_synchronized()

    cluster = run(main, slaves=2)
    assert "NoAnswer" in cluster.statuses("topics")
    assert set(cluster.statuses("topics", cluster.slaves[1])) <= {"changed", "unchanged"}


@pytest.mark.parametrize("how", ["kill", "power_loss", "stop"])
def test_a_slave_that_restarts_has_what_it_had_and_goes_on(how: str) -> None:
    async def main(cluster: MetadataCluster) -> None:
        await cluster.start()
        await change_everything(cluster.master, 1)
        await trio.sleep(FIRST_SYNC_S)
        before = tables_of(cluster.slave)
        if how == "stop":
            await cluster.slave.stop()
        else:
            getattr(cluster.slave.node, how)()
        await change_everything(cluster.master, 2)
        await delete_everything(cluster.master, 1)
        await cluster.slave.start()
        assert tables_of(cluster.slave) == before
        await trio.sleep(FIRST_SYNC_S)
        assert cluster.is_synchronized()

    run(main)


@pytest.mark.parametrize("name", FILES)
def test_a_table_that_cannot_be_stored_is_asked_for_again_and_holds_up_no_other(name: str) -> None:
    part = PARTS[FILES.index(name)]

    async def main(cluster: MetadataCluster) -> None:
        await cluster.start()
        await change_everything(cluster.master, 1)
        failing = cluster.slave.node.disk.fail(errno.ENOSPC, path=f"{name}.json", count=1000)
        await trio.sleep(FIRST_SYNC_S + 6)
        assert len(cluster.statuses(part)) >= 3
        assert set(cluster.statuses(part)) == {"OSError"}
        for other in PARTS:
            if other != part:
                assert cluster.statuses(other) == ["changed"]
        failing.end()
        await trio.sleep(10)
        assert cluster.is_synchronized()
        assert tables_on(cluster.slave.node.disk, cluster.slave.config) == tables_of(cluster.master)

    run(main)


def test_the_power_goes_at_each_disk_operation_of_a_sync() -> None:
    """The slave then has each table as it was, or as the master has it; and with its next sync all are the master's."""
    cuts = 0
    for nth in range(1, LAST_OPERATION):

        async def main(cluster: MetadataCluster, nth: int = nth) -> None:
            nonlocal cuts
            await cluster.start()
            await change_everything(cluster.master, 1)
            await trio.sleep(FIRST_SYNC_S)
            old = tables_of(cluster.slave)
            await change_everything(cluster.master, 2)
            await delete_everything(cluster.master, 1)
            new = tables_of(cluster.master)
            slave = cluster.slave.node
            cluster.world.start_schedule(
                Schedule((PowerLoss(0.0, slave.name, 1000.0, on=On("disk.*", slave.name, nth)),))
            )
            await trio.sleep(PERIOD_S)
            if slave.is_up:
                return
            cuts += 1
            found = tables_on(slave.disk, cluster.slave.config)
            assert all(table in pair for table, *pair in zip(found, old, new, strict=True))
            await cluster.slave.start()
            await trio.sleep(FIRST_SYNC_S)
            assert cluster.is_synchronized()

        run(main, seed=nth)
    assert cuts >= 24


# --- odd masters ------------------------------------------------------------------------------------------------------


@pytest.fixture
def followed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A scripted master has no log, and is asked all the same."""
    monkeypatch.setattr(FollowedMaster, "is_followed", property(lambda _: True, lambda _, __: None))


def with_scripted_master(
    bodies: dict[int, bytes | Callable[[RemotingRequest], RemotingCommand | None]],
    use: Callable[[MetadataCluster, ScriptedMaster], Awaitable[None]],
) -> MetadataCluster:
    async def main(cluster: MetadataCluster) -> None:
        master = ScriptedMaster(cluster.master.node, bodies)
        master.boot()
        await cluster.slave.start()
        await use(cluster, master)

    return run(main)


@pytest.mark.usefixtures("followed")
def test_what_a_java_master_sends_is_taken_over() -> None:
    async def use(cluster: MetadataCluster, master: ScriptedMaster) -> None:
        await trio.sleep(FIRST_SYNC_S)
        topics, groups, offsets, delays = tables_of(cluster.slave)
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

    async def use(cluster: MetadataCluster, master: ScriptedMaster) -> None:
        before = tables_of(cluster.slave)
        await trio.sleep(60)
        assert tables_of(cluster.slave) == before
        assert len(master.asked) == 1
        assert cluster.statuses("topics") == ["MasterNotFollowed"]

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

    async def use(cluster: MetadataCluster, master: ScriptedMaster) -> None:
        await trio.sleep(FIRST_SYNC_S)
        good = tables_of(cluster.slave)
        master.bodies[code] = body
        await trio.sleep(15)
        assert tables_of(cluster.slave) == good
        assert cluster.statuses(part)[1] not in {"changed", "unchanged"}
        assert len(cluster.statuses(part)) >= 4
        assert all(len(cluster.statuses(other)) == 2 for other in PARTS if other != part)
        master.bodies[code] = JAVA_BODIES[code]
        await trio.sleep(10)
        assert cluster.statuses(part)[-1] == "unchanged"

    with_scripted_master({**JAVA_BODIES}, use)


@pytest.mark.usefixtures("followed")
def test_a_master_that_refuses_is_asked_ever_more_seldom_but_once_a_period() -> None:
    async def use(cluster: MetadataCluster, master: ScriptedMaster) -> None:
        await trio.sleep(120)
        times = [at for at, code in master.asked if code == RequestCode.GET_ALL_DELAY_OFFSET]
        gaps = [later - earlier for earlier, later in itertools.pairwise(times)]
        assert all(0.5 <= gap <= 10.1 for gap in gaps)
        assert max(gaps[:2]) < min(gaps[4:])
        assert set(cluster.statuses("delay_offsets")) == {"MQBrokerError"}

    bodies = {code: body for code, body in JAVA_BODIES.items() if code != RequestCode.GET_ALL_DELAY_OFFSET}
    with_scripted_master({**bodies}, use)


@pytest.mark.usefixtures("followed")
def test_a_stop_waits_for_no_answer() -> None:
    async def use(cluster: MetadataCluster, master: ScriptedMaster) -> None:
        master.bodies.update(dict.fromkeys(CODES, lambda request: None))
        await trio.sleep(FIRST_SYNC_S)
        before = trio.current_time()
        await cluster.slave.stop()
        assert trio.current_time() - before < 1.0

    with_scripted_master({}, use)


@pytest.mark.usefixtures("followed")
def test_another_master_is_asked_at_once_also_while_the_one_before_does_not_answer() -> None:
    async def main(cluster: MetadataCluster) -> None:
        name_server = NameServer(cluster.world.node("ns1"))
        silent = ScriptedMaster(cluster.world.node("silent"), dict.fromkeys(CODES, lambda request: None))
        answering = ScriptedMaster(cluster.master.node, {**JAVA_BODIES})
        for server in (name_server, silent, answering):
            server.boot()
        await trio.sleep(1)
        name_server.says = RegisterBrokerResponseHeader(master_addr=f"{silent.node.address}:{LISTEN_PORT}")
        cluster.slave.config = attrs.evolve(cluster.slave.config, master_addr=None, namesrv_addr=name_server.address)
        await cluster.slave.start()
        while not silent.asked:
            await trio.sleep(0.1)
        name_server.says = RegisterBrokerResponseHeader(master_addr=f"{answering.node.address}:{LISTEN_PORT}")
        while not cluster.slave.events(BrokerMaster)[1:]:
            await trio.sleep(0.01)
        await trio.sleep(0.5)
        assert tables_of(cluster.slave)[2:] == ({"T@G": {0: 8, 1: 7}}, {1: 3, 2: 9})
        assert [code for _, code in answering.asked] == list(CODES)
        asked_before = len(silent.asked)
        await trio.sleep(30)
        assert len(silent.asked) == asked_before

    cluster = run(main)
    assert cluster.statuses("topics").count("changed") == 1


# --- what else a broker answers ---------------------------------------------------------------------------------------


def test_a_record_by_its_offset_and_the_bounds_of_a_queue() -> None:
    async def main(cluster: MetadataCluster) -> None:
        await cluster.master.start()
        offsets = []
        for number in range(3):
            put = await cluster.master.controller.put_message(Message("T", b"body %d" % number, queue_id=1))
            assert put.append is not None
            offsets.append(put.append.offset)
        await trio.sleep(1)
        client, address = cluster.world.node("client"), f"{cluster.master.node.address}:{LISTEN_PORT}"
        log = cluster.master.controller.store.commit_log

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
        await cluster.master.controller.put_message(Message("U", bytes(room)))
        answer = await ask(RequestCode.VIEW_MESSAGE_BY_ID, ViewMessageRequestHeader(offset=blank_at))
        assert (answer.code, answer.body) == (ResponseCode.SUCCESS, encode_blank(room))
        for topic, queue_id, expected in (("T", 1, "3"), ("T", 0, "0"), ("None", 1, "0")):
            answer = await ask(RequestCode.GET_MAX_OFFSET, GetMaxOffsetRequestHeader(topic=topic, queue_id=queue_id))
            assert (answer.code, answer.ext_fields) == (0, {"offset": expected})
            answer = await ask(RequestCode.GET_MIN_OFFSET, GetMinOffsetRequestHeader(topic=topic, queue_id=queue_id))
            assert (answer.code, answer.ext_fields) == (0, {"offset": "0"})
        remoting = cluster.master.controller.remoting
        assert remoting is not None
        remoting.use_store(None, is_slave=False)
        answer = await ask(RequestCode.VIEW_MESSAGE_BY_ID, ViewMessageRequestHeader(offset=0))
        assert answer.code == ResponseCode.SERVICE_NOT_AVAILABLE

    run(main)


def test_a_slave_that_nobody_tells_its_master_asks_nobody() -> None:
    async def main(cluster: MetadataCluster) -> None:
        cluster.slave.config = attrs.evolve(cluster.slave.config, master_addr=None)
        await cluster.start()
        await trio.sleep(60)
        assert not cluster.slave.events(BrokerSlaveSynchronize)

    run(main)


@pytest.mark.usefixtures("followed")
@pytest.mark.parametrize("role", ["SLAVE", "KING", ""])
def test_the_tables_of_a_peer_that_is_no_master_are_not_taken_over(role: str) -> None:
    async def use(cluster: MetadataCluster, master: ScriptedMaster) -> None:
        master.role = role
        before = tables_of(cluster.slave)
        await trio.sleep(60)
        assert tables_of(cluster.slave) == before
        assert not master.asked
        assert set(cluster.statuses("topics")) == {"LookupFailed" if role == "KING" else "TablesNotTaken"}
        master.role = "SYNC_MASTER"
        await trio.sleep(PERIOD_S)
        assert cluster.statuses("topics")[-1] == "changed"

    with_scripted_master({**JAVA_BODIES}, use)


@pytest.mark.usefixtures("followed")
def test_the_tables_of_a_master_that_is_none_any_more_when_it_has_answered_are_not_taken_over() -> None:
    masters: list[ScriptedMaster] = []

    def answer_at_the_end(request: RemotingRequest) -> RemotingCommand:
        masters[0].role = "SLAVE"
        return request.command.response(ResponseCode.SUCCESS, body=JAVA_BODIES[RequestCode(request.command.code)])

    async def use(cluster: MetadataCluster, master: ScriptedMaster) -> None:
        masters.append(master)
        before = tables_of(cluster.slave)
        await trio.sleep(60)
        assert tables_of(cluster.slave) == before
        assert len(master.asked) == 1
        assert set(cluster.statuses("topics")) == {"TablesNotTaken"}

    with_scripted_master(dict.fromkeys(CODES, answer_at_the_end), use)
