"""A slave whose master has lost what the slave has: noticed before anything is appended, also where it grew past it."""

from __future__ import annotations

import contextlib
import errno
import functools
import itertools
import logging
from collections.abc import Awaitable, Callable
from typing import Any

import attrs
import pytest
import trio

from rmq_actors.broker.broker_controller import BrokerController, open_broker
from rmq_actors.broker.config import BrokerConfig
from rmq_actors.broker.offset_persist_service import synced_to
from rmq_actors.broker.runtime_info import RuntimeInfo
from rmq_actors.broker.stopped_broker import truncate_stopped_broker
from rmq_actors.ha.config import HaConfig
from rmq_actors.ha.log_comparison import LogComparison
from rmq_actors.ha.master_record_lookup import LookupFailed
from rmq_actors.ports.environment import Environment
from rmq_actors.protocols.divergence import Ahead, Divergence
from rmq_actors.protocols.following import ASK_AGAIN_S, LOOKUP_PATIENCE_S, SILENCE_PATIENCE_S, Halt
from rmq_actors.protocols.put_completion import PutStatus
from rmq_actors.protocols.term import Term
from rmq_actors.remoting.config import RemotingServerConfig
from rmq_actors.remoting.connection import RemotingRequest
from rmq_actors.remoting.processor import ProcessorTable
from rmq_actors.store.check.check_store import check_store
from rmq_actors.store.config import BrokerRole, FlushDiskType, MessageStoreConfig
from rmq_actors.store.files.delay_offsets import DelayOffsets
from rmq_actors.store.files.json_file import JsonFile
from rmq_actors.store.lifecycle.truncation import TruncationRefused, truncate_store
from rmq_actors.testing.sim_trace import open_sim_recorder
from rmq_actors.tracing.event import RunInfo, of_kind
from rmq_actors.tracing.events.broker import BrokerSlaveSynchronize
from rmq_actors.tracing.events.ha import HaClientClose, HaClientCompare, HaClientConnect, HaClientHalt, HaReport
from rmq_actors.tracing.events.store import LogTruncate
from rmq_actors.tracing.recorder import Recorder
from rmq_actors.wire.bodies.topic_configs import TopicConfig
from rmq_actors.wire.record import BLANK, Message, encode_blank
from sim_net import Node, Partition, Schedule, World
from tests.worlds.recording import E
from tests.worlds.store_workload import files_of, log_file_begin, queues_on

PORT = 10911
HA_PORT = PORT + 1
#: A file holds seven records and a blank.
RECORD_BYTES, BODY = 512, 412
FILE_BYTES = 4096

Use = Callable[[BrokerController], Awaitable[None]]


@attrs.define(eq=False, repr=False)
class Pair:
    """A master that syncs nothing before it stops, and a slave."""

    seed: int = 1
    #: Whether the two have the ports on which a slave can ask.
    has_remoting: bool = True
    truncates: bool = False
    slave_file_bytes: int = FILE_BYTES
    slave_name: str = "broker-a"
    world: World = attrs.field(init=False)
    recorder: Recorder = attrs.field(init=False)
    master: Node = attrs.field(init=False)
    slave: Node = attrs.field(init=False)
    #: What runs on each node.
    brokers: dict[str, BrokerController] = attrs.field(factory=dict, init=False)
    _puts: int = attrs.field(default=0, init=False)

    def __attrs_post_init__(self) -> None:
        self.world = World(self.seed, guard_packages=("rmq_actors",))
        self.recorder = open_sim_recorder(self.world, RunInfo("test", "divergence", self.seed))
        self.master, self.slave = self.world.node("master"), self.world.node("slave")

    def config(self, node: Node) -> BrokerConfig:
        is_slave = node is self.slave
        store = MessageStoreConfig(
            broker_role=BrokerRole.SLAVE if is_slave else BrokerRole.ASYNC_MASTER,
            flush_disk_type=FlushDiskType.ASYNC_FLUSH,
            mapped_file_size_commit_log_bytes=self.slave_file_bytes if is_slave else FILE_BYTES,
            mapped_file_size_consume_queue_bytes=200,
            max_hash_slot_num=16,
            max_index_num=32,
            flush_interval_commit_log_ms=10**6,
            flush_commit_log_thorough_interval_ms=10**6,
        )
        ha = HaConfig(
            ha_listen_host=node.address,
            ha_listen_port=HA_PORT,
            ha_master_address=f"{self.master.address}:{HA_PORT}" if is_slave else None,
            ha_truncate_on_divergence=self.truncates,
        )
        if not self.has_remoting:
            return BrokerConfig(node.name, store, ha)
        return BrokerConfig(
            self.slave_name if is_slave else "broker-a",
            store,
            ha,
            remoting=RemotingServerConfig(node.address, PORT),
            broker_id=1 if is_slave else 0,
            master_addr=f"{self.master.address}:{PORT}" if is_slave else None,
        )

    async def boot(self, node: Node) -> BrokerController:
        """Start a broker on `node`, which runs until the node dies or is told to stop."""
        opened = trio.Event()

        async def run(node: Node) -> None:
            environment = Environment(node.disk, node.wall_clock, node.entropy)
            tracer = self.recorder.tracer(node.name)
            node.on_fence(tracer.fence)
            async with open_broker(self.config(node), environment, tracer) as broker:
                self.brokers[node.name] = broker
                opened.set()
                await trio.sleep_forever()

        node.boot(run)
        await opened.wait()
        return self.brokers[node.name]

    async def put(self, broker: BrokerController, count: int, size: int = BODY) -> None:
        for _ in range(count):
            self._puts += 1
            body = (b"%d " % self._puts * size)[:size]
            result = await broker.put_message(Message("TopicTest", body, self._puts % 2))
            assert result.status is PutStatus.PUT_OK

    def run(self, main: Callable[[], Awaitable[None]]) -> None:
        async def in_world(_: World) -> None:
            await main()

        self.world.run(in_world)

    def events(self, kind: type[E], node: str = "slave") -> list[E]:
        return [event for event in of_kind(self.recorder.events, kind) if event.node == node]

    def log(self, broker: BrokerController) -> bytes:
        log = broker.store.commit_log
        return b"".join(bytes(view) for view in log.ranges(log.min_offset, log.max_offset))

    async def part(self, regrown: int, *, size: int = BODY) -> tuple[BrokerController, int]:
        """Both have the same records, and the master loses some at the end, then has `regrown` others.

        The slave is down. The master's broker, and where the last record ends that both have. Raises `NothingLost`.
        """
        master, slave = await self.boot(self.master), await self.boot(self.slave)
        await self.put(master, 5)
        await master.store.commit_log.flush()
        await self.put(master, 12)
        end = master.store.commit_log.max_offset
        await trio.sleep(1)
        assert slave.store.commit_log.max_offset == end
        self.slave.kill()
        self.master.power_loss()
        master = await self.boot(self.master)
        common = master.store.commit_log.max_offset
        if common == end:
            raise NothingLost
        await self.put(master, regrown, size)
        return master, common - RECORD_BYTES if common and common % FILE_BYTES == 0 else common

    def halted(self) -> Halt | None:
        followed = self.brokers["slave"].followed_master
        assert followed is not None
        return followed.halted


class NothingLost(Exception):
    """What a power loss takes of what was not synced is drawn."""


def for_each_loss(main: Callable[[Pair], Awaitable[None]], **settings: Any) -> list[Pair]:
    """Run `main` with some seeds; the pairs whose master lost something."""
    pairs = []
    for seed in range(6):
        pair = Pair(seed, **settings)
        with contextlib.suppress(NothingLost):
            pair.run(functools.partial(main, pair))
            pairs.append(pair)
    assert len(pairs) >= 2
    return pairs


def test_a_master_that_lost_its_tail_and_grew_past_it_is_noticed(caplog: pytest.LogCaptureFixture) -> None:
    async def main(pair: Pair) -> None:
        master, common = await pair.part(regrown=20)
        slave = await pair.boot(pair.slave)
        booted_at = pair.recorder.events[-1].seq
        end = slave.store.commit_log.max_offset
        assert common < end < master.store.commit_log.max_offset
        before = pair.log(slave)
        await trio.sleep(60)
        await pair.put(master, 3)
        await trio.sleep(60)
        assert pair.log(slave) == before
        halted = pair.halted()
        assert halted is not None
        assert (halted.reason, halted.end_offset, halted.common_end) == ("diverged", end, common)
        assert [each.seq > booted_at for each in pair.events(HaClientConnect)].count(True) == 1
        (halt,) = pair.events(HaClientHalt)
        assert (halt.status, halt.offset) == ("diverged", end)
        assert pair.events(HaClientCompare)[-1].status == "diverged"

    for_each_loss(main)
    texts = [each.getMessage() for each in caplog.records if each.levelno == logging.ERROR]
    assert all("is not followed any more: diverged: the master has" in text for text in texts)
    assert texts


def test_a_master_that_is_shorter_is_noticed() -> None:
    async def main(pair: Pair) -> None:
        _, common = await pair.part(regrown=0)
        await pair.boot(pair.slave)
        await trio.sleep(10)
        halted = pair.halted()
        assert halted is not None
        assert halted.common_end == common
        assert "the master has no record at offset" in halted.detail

    for_each_loss(main)


def test_a_slave_that_halts_keeps_the_term_of_the_master_that_it_halts_for() -> None:
    """Promoted by hand instead, it would lead the same term as that master."""

    async def main(pair: Pair) -> None:
        master, _ = await pair.part(regrown=20)
        await master.change_role(BrokerRole.ASYNC_MASTER, term=5)
        slave = await pair.boot(pair.slave)
        await trio.sleep(10)
        halted = pair.halted()
        assert halted is not None
        assert halted.reason == "diverged"
        assert slave.term == Term(5)
        await slave.change_role(BrokerRole.ASYNC_MASTER)
        assert (master.term, slave.term) == (Term(5, leads=True), Term(6, leads=True))

    for_each_loss(main)


def test_a_broker_of_another_name_is_not_believed(caplog: pytest.LogCaptureFixture) -> None:
    """A wrong address: the slave of another pair neither halts nor cuts, and takes over no term, table or message."""

    async def main(pair: Pair) -> None:
        master, _ = await pair.part(regrown=20)
        await master.change_role(BrokerRole.ASYNC_MASTER, term=5)
        pair.slave_name = "broker-b"
        slave = await pair.boot(pair.slave)
        before = pair.log(slave)
        assert before
        await trio.sleep(60)
        followed = slave.followed_master
        assert followed is not None
        assert (followed.halted, followed.connections, set(followed.ends)) == (None, 0, {"other_name"})
        assert followed.following(trio.current_time()).startswith(
            "no (never yet): other_name: its brokerName is broker-a, and this broker's is broker-b"
        )
        assert pair.log(slave) == before
        assert slave.term.number < 5

    for_each_loss(main, truncates=True)
    texts = [each.getMessage() for each in caplog.records if each.levelno == logging.WARNING]
    assert any("other_name: its brokerName is broker-a, and this broker's is broker-b" in text for text in texts)


def test_a_slave_says_whether_it_follows_and_why_not() -> None:
    """In the answer that `broker-admin status` shows."""

    async def main() -> None:
        master, slave = await pair.boot(pair.master), await pair.boot(pair.slave)

        def told() -> str:
            return RuntimeInfo(slave).table()["haFollowing"]

        assert told() == "no (never yet): no attempt has ended"
        await pair.put(master, 3)
        await trio.sleep(1)
        assert told() == "yes"
        pair.master.kill()
        await trio.sleep(20)
        assert told().startswith("no (not for 20 s): connection_lost: ")
        await pair.boot(pair.master)
        await trio.sleep(20)
        assert told() == "yes"

    pair = Pair()
    pair.run(main)


def test_a_master_that_is_the_same_is_asked_once_and_followed() -> None:
    pair = Pair()

    async def main() -> None:
        master, slave = await pair.boot(pair.master), await pair.boot(pair.slave)
        await pair.put(master, 9)
        await trio.sleep(1)
        pair.slave.kill()
        await pair.put(master, 5)
        slave = await pair.boot(pair.slave)
        await trio.sleep(1)
        assert pair.log(slave) == pair.log(master)

    pair.run(main)
    # Of an empty log there is nothing to ask.
    compared = [(event.status, event.questions) for event in pair.events(HaClientCompare)]
    assert compared == [("same", 1)]


@pytest.mark.parametrize("has", [5, BLANK.size, RECORD_BYTES])
@pytest.mark.parametrize("size", [100, BODY])
def test_a_slave_that_is_ahead_by_a_blank_waits_for_the_masters_next_message(
    has: int, size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It comes after the answer and before the report: no slave may count as one that has it."""
    divergence, pair, lost = LogComparison.divergence, Pair(), 7 * RECORD_BYTES
    statuses: list[str] = []

    async def then_one_more(comparison: LogComparison, near: int | None) -> Divergence | Ahead | None:
        found = await divergence(comparison, near)
        if pair.brokers["master"].store.commit_log.max_offset == lost:
            await pair.put(pair.brokers["master"], 1, size)
        return found

    async def main() -> None:
        master, slave = await pair.boot(pair.master), await pair.boot(pair.slave)
        await pair.put(master, 7)
        await trio.sleep(1)
        pair.master.kill()
        # From a master that has gone: this one has not received it.
        slave.store.append_to_commit_log(lost, encode_blank(RECORD_BYTES).ljust(RECORD_BYTES, b"\0")[:has])
        monkeypatch.setattr(LogComparison, "divergence", then_one_more)
        master = await pair.boot(pair.master)
        await trio.sleep(15)
        statuses.extend(event.status for event in pair.events(HaClientCompare))
        if size == BODY:
            assert statuses == ["slave_ahead", "same"]
            assert pair.log(slave) == pair.log(master)
        else:
            assert statuses == ["slave_ahead", "diverged"]
            halted = pair.halted()
            assert halted is not None
            assert halted.common_end == lost

    pair.run(main)
    assert statuses[0] in {event.status for event in pair.events(HaClientClose)}
    reports = [event.offset for event in pair.events(HaReport, "master")]
    assert (lost + has in reports) is (size == BODY)


def test_a_slave_that_does_not_follow_keeps_its_tables() -> None:
    """A master that lost its log may have lost its topics and offsets with it: the slave's are the last copy."""

    async def main(pair: Pair) -> None:
        await pair.part(regrown=20)
        remoting = (await pair.boot(pair.slave)).remoting
        assert remoting is not None
        await remoting.topic_config_manager.update_topic_config(TopicConfig(topic_name="Orders"))
        remoting.metadata.consumer_offsets.commit_offset("client", "billing", "Orders", 0, 120)
        await trio.sleep(60)
        assert pair.halted() is not None
        assert "Orders" in remoting.topic_config_manager.wrapper().topic_config_table
        assert remoting.metadata.consumer_offsets.query_offset("billing", "Orders", 0) == 120
        assert not pair.events(BrokerSlaveSynchronize)

    for_each_loss(main)


def test_without_anybody_to_ask_a_master_is_followed_as_rocketmq_does() -> None:
    """The limit: records of the same sizes, and no port on which to ask."""

    async def main(pair: Pair) -> None:
        master, common = await pair.part(regrown=20)
        slave = await pair.boot(pair.slave)
        await trio.sleep(10)
        assert pair.halted() is None
        assert slave.store.commit_log.max_offset == master.store.commit_log.max_offset
        assert pair.log(slave)[:common] == pair.log(master)[:common]
        assert pair.log(slave) != pair.log(master)
        assert not pair.events(HaClientCompare)

    for_each_loss(main, has_remoting=False)


def kept_aside(node: Node) -> dict[int, bytes]:
    """What `cut/` holds, by the offset in the log."""
    return {log_file_begin(path): data for path, data in files_of(node.disk, "cut").items()}


async def converged(pair: Pair, master: BrokerController, common: int, before: bytes) -> None:
    """The slave has the master's log, and beside it what it had after `common`; queues and index agree."""
    slave = pair.brokers["slave"]
    with trio.fail_after(30):
        while slave.store.commit_log.max_offset != master.store.commit_log.max_offset:
            await trio.sleep(0.1)
    assert pair.log(slave) == pair.log(master)
    kept = kept_aside(pair.slave)
    assert sorted(kept) == [common, *range(common - common % FILE_BYTES + FILE_BYTES, len(before), FILE_BYTES)]
    for begin, data in kept.items():
        file_end = begin - begin % FILE_BYTES + FILE_BYTES
        assert before[begin:file_end] == data.ljust(min(file_end, len(before)) - begin, b"\0")
    await trio.sleep(1)
    findings = check_store(pair.slave.disk, max_hash_slot_num=16)
    assert [str(each) for each in findings if each.severity != "note"] == []
    found = queues_on(pair.slave.disk)
    assert found == queues_on(pair.master.disk)
    assert found


@pytest.mark.parametrize("regrown", [0, 20], ids=["shorter", "regrown"])
@pytest.mark.parametrize("by", ["command", "setting"])
def test_a_slave_that_may_cut_its_log_converges(by: str, regrown: int) -> None:
    async def main(pair: Pair) -> None:
        master, common = await pair.part(regrown)
        slave = await pair.boot(pair.slave)
        before = pair.log(slave)
        if by == "command":
            await trio.sleep(5)
            await slave.truncate_log()
        await trio.sleep(5)
        await pair.put(master, 3)
        await converged(pair, master, common, before)
        assert pair.halted() is None
        (cut,) = pair.events(LogTruncate)
        assert (cut.offset, cut.size) == (common, len(before) - common)
        with pytest.raises(TruncationRefused, match="this slave has not halted: there is nothing to cut"):
            await slave.truncate_log()
        await trio.sleep(5)
        assert pair.log(slave) == pair.log(master)

    for_each_loss(main, truncates=by == "setting")


def test_consumers_skip_nothing_of_what_takes_the_place_of_a_cut() -> None:
    """Offsets never go back by a sync: those after the cut would stay, and stand in the midst of what comes next."""

    async def main(pair: Pair) -> None:
        master, common = await pair.part(regrown=0)
        slave = await pair.boot(pair.slave)
        assert slave.remoting is not None
        offsets = slave.remoting.metadata.consumer_offsets
        ends = [slave.store.offsets.get_max_offset_in_queue("TopicTest", queue) for queue in range(2)]
        for queue, end in enumerate(ends):
            offsets.commit_offset("client", "Group", "TopicTest", queue, end)
        await trio.sleep(5)
        await slave.truncate_log()
        assert slave.store.commit_log.max_offset == common
        for queue, end in enumerate(ends):
            new_end = slave.store.offsets.get_max_offset_in_queue("TopicTest", queue)
            assert offsets.query_offset("Group", "TopicTest", queue) == new_end < end
        assert master.store.commit_log.max_offset >= common

    for_each_loss(main)


def test_consumers_skip_nothing_after_a_cut_while_the_broker_was_down() -> None:
    """By `store truncate`."""

    async def main(pair: Pair) -> None:
        _, common = await pair.part(regrown=0)
        slave = await pair.boot(pair.slave)
        assert slave.remoting is not None
        ends = [slave.store.offsets.get_max_offset_in_queue("TopicTest", queue) for queue in range(2)]
        for queue, end in enumerate(ends):
            slave.remoting.metadata.consumer_offsets.commit_offset("client", "Group", "TopicTest", queue, end)
        await trio.sleep(30)
        pair.slave.kill()
        done = trio.Event()

        async def cut(node: Node) -> None:
            environment = Environment(node.disk, node.wall_clock, node.entropy)
            await truncate_stopped_broker(pair.config(node).store, environment, pair.recorder.tracer(node.name), common)
            done.set()
            await trio.sleep_forever()

        pair.slave.boot(cut)
        await done.wait()
        pair.slave.kill()
        slave = await pair.boot(pair.slave)
        assert slave.remoting is not None
        assert slave.store.commit_log.max_offset == common
        for queue, end in enumerate(ends):
            new_end = slave.store.offsets.get_max_offset_in_queue("TopicTest", queue)
            corrected = slave.remoting.metadata.consumer_offsets.query_offset("Group", "TopicTest", queue)
            assert corrected == new_end < end

    for_each_loss(main)


LEVEL = 3


async def count_as_delivered(pair: Pair, slave: BrokerController, common: int) -> None:
    """The slave has been the master: 90 messages were delivered before `common`, 10 after it."""
    assert slave.remoting is not None
    offsets = slave.remoting.metadata.delay_offsets
    for next_offset, log_offset in ((90, common), (100, slave.store.commit_log.max_offset)):
        offsets.delivered(LEVEL, next_offset, log_offset)
        assert await offsets.persist(functools.partial(synced_to, slave.store))


@pytest.mark.parametrize("by", ["command", "setting"])
def test_what_was_delivered_after_a_cut_is_delivered_again(by: str) -> None:
    """Its delay offsets outlived the cut: as the next master, the broker passed over what the cut had taken."""

    async def main(pair: Pair) -> None:
        _, common = await pair.part(regrown=20)
        slave = await pair.boot(pair.slave)
        await count_as_delivered(pair, slave, common)
        assert slave.remoting is not None
        if by == "command":
            await trio.sleep(5)
            await slave.truncate_log()
        else:
            with trio.fail_after(7):
                while not [e for e in pair.recorder.events if isinstance(e, LogTruncate)]:
                    await trio.sleep(0.01)
        assert slave.remoting.metadata.delay_offsets.offset_table == {LEVEL: 90}
        assert DelayOffsets.load(pair.slave.disk).offset_table == {LEVEL: 90}

    for_each_loss(main, truncates=by == "setting")


def test_what_was_delivered_after_a_cut_while_the_broker_was_down_is_delivered_again() -> None:
    """By `store truncate`."""

    async def main(pair: Pair) -> None:
        _, common = await pair.part(regrown=0)
        slave = await pair.boot(pair.slave)
        await count_as_delivered(pair, slave, common)
        pair.slave.kill()
        done = trio.Event()

        async def cut(node: Node) -> None:
            environment = Environment(node.disk, node.wall_clock, node.entropy)
            await truncate_stopped_broker(pair.config(node).store, environment, pair.recorder.tracer(node.name), common)
            assert DelayOffsets.load(node.disk).offset_table == {LEVEL: 90}
            done.set()
            await trio.sleep_forever()

        pair.slave.boot(cut)
        await done.wait()

    for_each_loss(main)


def test_what_was_delivered_in_a_lost_end_of_the_log_is_delivered_again() -> None:
    """What a recovery does not find is lost like what is cut."""

    async def main(pair: Pair) -> None:
        _, common = await pair.part(regrown=0)
        slave = await pair.boot(pair.slave)
        await count_as_delivered(pair, slave, common)
        pair.slave.kill()
        done = trio.Event()

        async def lose(node: Node) -> None:
            environment = Environment(node.disk, node.wall_clock, node.entropy)
            nowhere = DelayOffsets({}, JsonFile(node.disk, "config/other.json"), {})
            await truncate_store(pair.config(node).store, environment, pair.recorder.tracer("x"), common, nowhere)
            assert DelayOffsets.load(node.disk).offset_table == {LEVEL: 100}
            done.set()
            await trio.sleep_forever()

        pair.slave.boot(lose)
        await done.wait()
        pair.slave.kill()
        slave = await pair.boot(pair.slave)
        assert slave.remoting is not None
        assert slave.remoting.metadata.delay_offsets.offset_table == {LEVEL: 90}
        assert DelayOffsets.load(pair.slave.disk).offset_table == {LEVEL: 90}

    for_each_loss(main)


def test_of_two_commands_at_once_one_cuts() -> None:
    """What the first one has brought back the second would cut again."""

    async def main(pair: Pair) -> None:
        master, common = await pair.part(regrown=20)
        slave = await pair.boot(pair.slave)
        before = pair.log(slave)
        await trio.sleep(5)
        refused: list[str] = []

        async def truncate() -> None:
            try:
                await slave.truncate_log()
            except TruncationRefused as error:
                refused.append(str(error))

        async with trio.open_nursery() as nursery:
            for _ in range(2):
                nursery.start_soon(truncate)
        assert refused == ["the broker has changed meanwhile"]
        await converged(pair, master, common, before)

    for_each_loss(main)


def test_a_slave_without_room_for_what_it_cuts_stays_as_it_is() -> None:
    """What cannot be kept is not cut. It is tried again after a minute."""

    async def main(pair: Pair) -> None:
        master, common = await pair.part(regrown=20)
        pair.slave.disk.fail(errno.ENOSPC, operation="write", path="cut", count=1)
        slave = await pair.boot(pair.slave)
        before = pair.log(slave)
        await trio.sleep(30)
        assert pair.log(slave) == before
        assert pair.halted() is not None
        await trio.sleep(60)
        await converged(pair, master, common, before)

    for_each_loss(main, truncates=True)


def test_a_master_that_does_not_answer_yet_is_not_followed_yet() -> None:
    """It serves its log before it answers: a slave that went on at once would not notice."""

    async def main(pair: Pair) -> None:
        master, _ = await pair.part(regrown=20)
        assert master.remoting is not None
        master.remoting.use_store(None, is_slave=False)
        slave = await pair.boot(pair.slave)
        before = pair.log(slave)
        await trio.sleep(LOOKUP_PATIENCE_S / 2)
        assert pair.log(slave) == before
        assert pair.halted() is None
        master.remoting.use_store(master.store, is_slave=False)
        await trio.sleep(LOOKUP_PATIENCE_S / 2)
        assert pair.log(slave) == before
        assert pair.halted() is not None

    for_each_loss(main)


def test_a_master_that_never_answers_is_followed_after_a_while(caplog: pytest.LogCaptureFixture) -> None:
    pair = Pair()

    async def main() -> None:
        master = await pair.boot(pair.master)
        await pair.put(master, 5)
        slave = await pair.boot(pair.slave)
        await trio.sleep(1)
        pair.slave.kill()
        assert master.remoting is not None
        master.remoting.use_store(None, is_slave=False)
        await pair.put(master, 5)
        slave = await pair.boot(pair.slave)
        await trio.sleep(LOOKUP_PATIENCE_S - 1)
        assert len(pair.log(slave)) < len(pair.log(master))
        await trio.sleep(5)
        assert pair.log(slave) == pair.log(master)

    pair.run(main)
    assert "is followed, and not asked whether it has the same log" in caplog.text


def test_a_master_that_says_nothing_has_longer_than_a_stall(monkeypatch: pytest.MonkeyPatch) -> None:
    """A stall of that one connection hides another log as well as a master that is slow to start does."""
    silence = [False]
    process = ProcessorTable.process

    def process_or_not(processors: ProcessorTable, request: RemotingRequest) -> None:
        if not silence[0]:
            process(processors, request)

    monkeypatch.setattr(ProcessorTable, "process", process_or_not)

    async def main(pair: Pair) -> None:
        silence[0] = False
        await pair.part(regrown=20)
        silence[0] = True
        slave = await pair.boot(pair.slave)
        before = pair.log(slave)
        await trio.sleep(SILENCE_PATIENCE_S - LOOKUP_PATIENCE_S)
        assert pair.log(slave) == before
        assert {event.status for event in pair.events(HaClientCompare)} == {"no_answer"}
        silence[0] = False
        await trio.sleep(LOOKUP_PATIENCE_S)
        assert pair.log(slave) == before
        assert pair.halted() is not None

    for_each_loss(main)


def test_a_master_that_was_away_meanwhile_has_its_time_to_answer_again() -> None:
    """It did not answer when it died: when it is back it serves its log first, as ever."""

    async def main(pair: Pair) -> None:
        master, _ = await pair.part(regrown=20)
        assert master.remoting is not None
        master.remoting.use_store(None, is_slave=False)
        slave = await pair.boot(pair.slave)
        before = pair.log(slave)
        await trio.sleep(1)
        assert pair.events(HaClientCompare)[-1].status == "lookup_failed"
        pair.master.kill()
        await trio.sleep(6 * LOOKUP_PATIENCE_S)
        master = await pair.boot(pair.master)
        assert master.remoting is not None
        master.remoting.use_store(None, is_slave=False)
        await trio.sleep(LOOKUP_PATIENCE_S / 2)
        assert pair.log(slave) == before
        master.remoting.use_store(master.store, is_slave=False)
        await trio.sleep(LOOKUP_PATIENCE_S)
        assert pair.log(slave) == before
        assert pair.halted() is not None

    for_each_loss(main)


@pytest.mark.parametrize("failures", [1, 1000])
@pytest.mark.parametrize("truncates", [False, True])
def test_a_search_that_a_failure_ends_is_made_again(
    failures: int, truncates: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A slave that halts without knowing where the two part has nothing to cut: it waits for an operator."""
    search, left = LogComparison.common_end, [0]

    async def common_end(comparison: LogComparison) -> int | None:
        left[0] -= 1
        if left[0] >= 0:
            raise LookupFailed("the connection is gone")
        return await search(comparison)

    monkeypatch.setattr(LogComparison, "common_end", common_end)

    async def main(pair: Pair) -> None:
        left[0] = failures
        master, common = await pair.part(regrown=20)
        slave = await pair.boot(pair.slave)
        before = pair.log(slave)
        await trio.sleep(2 * LOOKUP_PATIENCE_S)
        if failures > 1:
            halted = pair.halted()
            assert halted is not None
            assert halted.common_end is None
            assert pair.log(slave) == before
        elif truncates:
            await converged(pair, master, common, before)
        else:
            halted = pair.halted()
            assert halted is not None
            assert halted.common_end == common

    for_each_loss(main, truncates=truncates)


def test_a_halted_slave_asks_again_by_command() -> None:
    async def main(pair: Pair) -> None:
        master, _ = await pair.part(regrown=0)
        slave = await pair.boot(pair.slave)
        followed = slave.followed_master
        assert followed is not None
        await trio.sleep(5)
        for count in (1, 2):
            assert pair.halted() is not None
            assert len(pair.events(HaClientHalt)) == count
            followed.follow_again()
            await trio.sleep(5)
        # Somebody has brought the master's log back.
        before = pair.log(slave)
        end = master.store.commit_log.max_offset
        while end < len(before):
            size = min(len(before), end - end % FILE_BYTES + FILE_BYTES) - end
            master.store.append_to_commit_log(end, before[end : end + size])
            end += size
        followed.follow_again()
        await trio.sleep(5)
        assert pair.halted() is None
        assert pair.events(HaClientCompare)[-1].status == "same"
        followed.follow_again()  # it follows: nothing happens
        await trio.sleep(5)
        assert pair.events(HaClientClose)[-1].status == "diverged"

    for_each_loss(main)


async def empty(pair: Pair) -> tuple[BrokerController, BrokerController, bytes]:
    """Both have the same log, and the master comes back without its disk; the two, and what the slave has."""
    master, slave = await pair.boot(pair.master), await pair.boot(pair.slave)
    await pair.put(master, 9)
    await trio.sleep(1)
    before = pair.log(slave)
    pair.master.kill()
    for path in files_of(pair.master.disk):
        pair.master.disk.remove(path)
    master = await pair.boot(pair.master)
    assert not master.store.commit_log.max_offset
    await trio.sleep(ASK_AGAIN_S)
    return master, slave, before


def bring_back(master: BrokerController, log: bytes) -> None:
    end = 0
    while end < len(log):
        size = min(len(log), end + FILE_BYTES) - end
        master.store.append_to_commit_log(end, log[end : end + size])
        end += size


@pytest.mark.parametrize("truncates", [False, True])
def test_a_slave_of_an_emptied_master_asks_again_and_follows_once_that_has_its_log(
    caplog: pytest.LogCaptureFixture, truncates: bool
) -> None:
    """An empty log tells nothing of where the two part: the slave halted for good, and no truncation could end it."""
    pair = Pair(truncates=truncates)

    async def main() -> None:
        master, slave, before = await empty(pair)
        halted = pair.halted()
        assert halted is not None
        assert (halted.reason, halted.common_end) == ("diverged", None)
        await trio.sleep(10 * ASK_AGAIN_S)
        assert pair.halted() == halted
        assert pair.log(slave) == before
        bring_back(master, before)
        await trio.sleep(ASK_AGAIN_S)
        assert pair.halted() is None
        await pair.put(master, 3)
        await trio.sleep(1)
        assert pair.log(slave) == pair.log(master) != before

    pair.run(main)
    # It is asked at each moment of its own, and told of once.
    asked = [(event.sim_time_ns or 0) / 1e9 for event in pair.events(HaClientHalt)]
    pauses = [after - before for before, after in itertools.pairwise(asked)]
    assert 10 <= len(pauses) <= 17
    assert all(ASK_AGAIN_S * 2 / 3 <= pause <= ASK_AGAIN_S + 1 for pause in pauses)
    assert len({round(pause, 2) for pause in pauses}) > 5
    told = [each.levelno for each in caplog.records if "is not followed any more" in each.getMessage()]
    assert told == [logging.ERROR]


@pytest.mark.parametrize("truncates", [False, True])
def test_the_first_message_of_an_emptied_master_tells_where_the_logs_part(truncates: bool) -> None:
    pair = Pair(truncates=truncates)

    async def main() -> None:
        master, slave, before = await empty(pair)
        await pair.put(master, 1)
        await trio.sleep(ASK_AGAIN_S + 5)
        halted = pair.halted()
        if truncates:
            assert halted is None
            assert pair.log(slave) == pair.log(master)
        else:
            assert halted is not None
            assert (halted.reason, halted.common_end) == ("diverged", 0)
            assert pair.log(slave) == before

    pair.run(main)


def test_it_is_halted_while_it_asks_again() -> None:
    """Who looks at that moment may take "not halted" for a slave that follows."""
    pair = Pair()

    async def main() -> None:
        _, slave, _ = await empty(pair)
        pair.world.start_schedule(Schedule((Partition(0.0, 2.0, "master", "slave"),)))
        halt = slave.follow_again()
        for _ in range(15):
            await trio.sleep(0.1)
            assert pair.halted() == halt

    pair.run(main)


@pytest.mark.parametrize("truncates", [False, True])
def test_3388_a_slave_that_was_away_for_too_long_halts(truncates: bool) -> None:
    """What the master has deleted tells nothing of where the two part: nothing is cut."""
    pair = Pair(truncates=truncates)

    async def main() -> None:
        master, slave = await pair.boot(pair.master), await pair.boot(pair.slave)
        await pair.put(master, 5)
        await trio.sleep(1)
        pair.slave.kill()
        await pair.put(master, 20)
        for _ in range(2):
            await master.store.commit_log.sync_names()
            assert master.store.commit_log.remove_oldest_file()
        slave = await pair.boot(pair.slave)
        before = pair.log(slave)
        assert len(before) < master.store.commit_log.min_offset
        await trio.sleep(ASK_AGAIN_S / 2)
        halted = pair.halted()
        assert halted is not None
        assert (halted.reason, halted.common_end) == ("offset_gone", None)
        begin, end = master.store.commit_log.min_offset, len(before)
        last = slave.store.files.reput.last
        assert last is not None
        assert halted.detail == (
            f"the master's log begins at {begin}, this slave's last record at {last.commit_log_offset}, "
            f"and it ends at {end}: too long away"
        )
        with pytest.raises(TruncationRefused):
            await slave.truncate_log()
        await trio.sleep(60)
        assert pair.halted() == halted
        assert pair.log(slave) == before

    pair.run(main)
    assert {event.status for event in pair.events(HaClientHalt)} == {"offset_gone"}
    assert pair.events(HaClientClose)[-1].status == "offset_gone"


def test_a_slave_that_ends_where_its_masters_log_begins_now_is_not_taken_for_the_same() -> None:
    """A slave with records that the master never had asked again, had nothing to compare, and followed with them."""
    for pair in for_each_loss(_master_cleans_up_to_its_slave):
        assert {event.status for event in pair.events(HaClientHalt)} == {"diverged", "offset_gone"}


async def _master_cleans_up_to_its_slave(pair: Pair) -> None:
    master, _ = await pair.part(regrown=40)
    slave = await pair.boot(pair.slave)
    await trio.sleep(10)
    halted = pair.halted()
    assert halted is not None
    assert halted.reason == "diverged"
    before = pair.log(slave)
    end = -(-len(before) // FILE_BYTES) * FILE_BYTES
    # Its last file ends, as if it had taken some more before it halted.
    room = end - len(before)
    slave.store.append_to_commit_log(len(before), encode_blank(room).ljust(room, b"\0"))
    while master.store.commit_log.min_offset < end:
        await master.store.commit_log.sync_names()
        assert master.store.commit_log.remove_oldest_file()
    slave.follow_again()
    await trio.sleep(10)
    halted = pair.halted()
    assert halted is not None
    assert (halted.reason, halted.common_end) == ("offset_gone", None)
    assert slave.store.commit_log.max_offset == end


@pytest.mark.parametrize("has_remoting", [False, True])
@pytest.mark.parametrize("size", [FILE_BYTES // 2, 2 * FILE_BYTES])
def test_s3_a_slave_with_files_of_another_size_halts(size: int, has_remoting: bool) -> None:
    """However often it connects, the next attempt ends like the last one."""
    pair = Pair(slave_file_bytes=size, has_remoting=has_remoting)

    async def main() -> None:
        master, slave = await pair.boot(pair.master), await pair.boot(pair.slave)
        await pair.put(master, 20)
        await trio.sleep(60)
        halted = pair.halted()
        assert halted is not None
        assert halted.reason == "file_size_mismatch"
        assert "is mappedFileSizeCommitLog the same on both?" in halted.detail
        assert pair.log(slave) == pair.log(master)[: halted.end_offset]
        with pytest.raises(TruncationRefused):
            await slave.truncate_log()

    pair.run(main)
    assert len(pair.events(HaClientConnect)) == 1


def test_a_full_disk_is_no_reason_to_halt() -> None:
    pair = Pair()

    async def main() -> None:
        master, slave = await pair.boot(pair.master), await pair.boot(pair.slave)
        pair.slave.disk.fail(errno.ENOSPC, operation="write", path="commitlog", count=3)
        await pair.put(master, 5)
        await trio.sleep(30)
        assert pair.log(slave) == pair.log(master)

    pair.run(main)
    closed = [event.status for event in pair.events(HaClientClose)]
    assert "append_refused" in closed
    assert not pair.events(HaClientHalt)


def test_a_slave_cut_at_its_logs_first_byte_keeps_no_queue_of_what_was_cleaned_before() -> None:
    """It is a new slave: what comes from its master's beginning would be taken for what the queues had before."""
    pair = Pair()

    async def main() -> None:
        master, slave = await pair.boot(pair.master), await pair.boot(pair.slave)
        await pair.put(master, 30)
        await trio.sleep(1)
        await slave.store.commit_log.flush()
        await trio.sleep(120)  # the recovery point follows
        for _ in range(3):
            await slave.store.commit_log.sync_names()
            assert slave.store.commit_log.remove_oldest_file()
        begin = slave.store.commit_log.min_offset
        pair.slave.kill()
        slave = await pair.boot(pair.slave)
        assert slave.store.offsets.get_min_offset_in_queue("TopicTest", 0) > 0
        pair.slave.kill()
        done = trio.Event()

        async def cut(node: Node) -> None:
            environment = Environment(node.disk, node.wall_clock, node.entropy)
            await truncate_stopped_broker(pair.config(node).store, environment, pair.recorder.tracer(node.name), begin)
            done.set()
            await trio.sleep_forever()

        pair.slave.boot(cut)
        await done.wait()
        pair.slave.kill()
        slave = await pair.boot(pair.slave)
        await trio.sleep(10)
        assert pair.log(slave) == pair.log(master)
        for queue in range(2):
            assert slave.store.offsets.get_min_offset_in_queue("TopicTest", queue) == 0
        pair.slave.kill()
        pair.master.kill()
        assert queues_on(pair.slave.disk) == queues_on(pair.master.disk)

    pair.run(main)
