"""A change of role while the disk fails or the power goes: a broker in one of the two roles, or a stopped one."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import attrs
import pytest
import trio

from rmq_actors.broker.broker_controller import BrokerController, open_broker
from rmq_actors.broker.config import BrokerConfig
from rmq_actors.broker.role_changes import RoleChangeFailed
from rmq_actors.ha.config import HaConfig
from rmq_actors.ports.environment import Environment
from rmq_actors.protocols.term import Term
from rmq_actors.store.check.check_store import check_store
from rmq_actors.store.config import BrokerRole, FlushDiskType, MessageStoreConfig
from rmq_actors.store.files.json_file import ConfigFileDamaged
from rmq_actors.store.files.layout import TERM_FILE
from rmq_actors.store.lifecycle.clean_services import CleanCommitLogService
from rmq_actors.testing.sim_trace import open_sim_recorder
from rmq_actors.tracing.event import RunInfo
from rmq_actors.tracing.recorder import Recorder
from rmq_actors.wire.record import Message
from sim_net import DiskError, DiskSlow, Fault, Node, On, PowerLoss, Schedule, World
from tests.worlds.role_world import outcome_of, queue_bodies

MASTER, SLAVE = BrokerRole.SYNC_MASTER, BrokerRole.SLAVE
PUTS = 60
#: More disk operations than a change has.
LAST_OPERATION = 200
#: Every fault is over by then.
FAULT_S = 100.0


def leaves(group: ExceptionGroup[Exception]) -> Iterator[Exception]:
    for error in group.exceptions:
        if isinstance(error, ExceptionGroup):
            yield from leaves(error)
        else:
            yield error


@attrs.define(eq=False)
class OneBroker:
    """A broker alone on its machine, which begins in the role `begins`."""

    begins: BrokerRole
    seed: int = 1
    world: World = attrs.field(init=False)
    node: Node = attrs.field(init=False)
    recorder: Recorder = attrs.field(init=False)
    #: What the program that runs last was stopped by.
    ended_by: list[Exception] = attrs.field(factory=list, init=False)

    def __attrs_post_init__(self) -> None:
        self.world = World(self.seed, guard_packages=("rmq_actors",))
        self.node = self.world.node("a")
        self.recorder = open_sim_recorder(self.world, RunInfo("test", "role_change", self.seed))

    def config(self, role: BrokerRole, **settings: Any) -> BrokerConfig:
        store = MessageStoreConfig(
            broker_role=role,
            flush_disk_type=FlushDiskType.SYNC_FLUSH,
            mapped_file_size_commit_log_bytes=4096,
            mapped_file_size_consume_queue_bytes=400,
            max_hash_slot_num=16,
            max_index_num=64,
            store_stats_sampling=False,
            **settings,
        )
        return BrokerConfig("broker-a", store, HaConfig(ha_master_address="10.0.0.99:10912"))

    async def run(self, role: BrokerRole, use: Callable[[BrokerController], Awaitable[None]]) -> None:
        """Run the broker for as long as `use` takes, or lives."""

        async def serve(node: Node) -> None:
            environment = Environment(node.disk, node.wall_clock, node.entropy)
            tracer = self.recorder.tracer(node.name)
            node.on_fence(tracer.fence)
            try:
                async with open_broker(self.config(role), environment, tracer) as broker:
                    await use(broker)
            except* ConfigFileDamaged as group:
                if "deletedTopics.json" not in str(next(iter(leaves(group)))):
                    raise
                self.ended_by += leaves(group)
            except* (RoleChangeFailed, OSError) as group:
                self.ended_by += leaves(group)

        self.node.boot(serve)
        await self.node.wait_down()

    async def fill(self, broker: BrokerController) -> None:
        assert broker.config.store.broker_role is MASTER
        puts = [
            broker.async_put_message(Message("Topic", b"%d" % number, properties={"KEYS": f"key-{number}"}))
            for number in range(PUTS)
        ]
        for put in puts:
            assert (await put.wait()).append is not None

    async def check_all_is_there(self, broker: BrokerController) -> None:
        assert queue_bodies(broker, "Topic") == [b"%d" % number for number in range(PUTS)]
        result = await broker.put_message(Message("Topic", b"one more"))
        assert result.append is not None
        assert result.append.queue_offset == PUTS

    def change_under(self, fault: Fault) -> tuple[Exception | str | None, list[str]]:
        """Change from `begins` to the other role under a fault, and look at what is there after a restart.

        What became of the change ("died" without an answer), and what is wrong with the store in the end.
        """
        outcomes: list[Exception | None] = []
        other = SLAVE if self.begins is MASTER else MASTER

        async def change(broker: BrokerController) -> None:
            if self.begins is MASTER:
                await self.fill(broker)
            self.world.start_schedule(Schedule((fault,)))
            await trio.sleep(0.001)
            with trio.CancelScope(shield=True):  # as one who is not stopped with the broker
                outcomes.append(await outcome_of(broker.change_role(other)))

        async def main(_: World) -> None:
            if self.begins is SLAVE:
                await self.run(MASTER, self.fill)
            await self.run(self.begins, change)
            await trio.sleep_until(FAULT_S)
            await self.run(MASTER, self.check_all_is_there)

        self.world.run(main)
        findings = [
            str(finding) for finding in check_store(self.node.disk, max_hash_slot_num=16) if finding.severity != "note"
        ]
        return outcomes[0] if outcomes else "died", findings


@pytest.mark.parametrize(
    ("begins", "error"),
    [
        (MASTER, "EIO"),
        (SLAVE, "ENOSPC"),
        pytest.param(MASTER, "ENOSPC", marks=pytest.mark.long),
        pytest.param(SLAVE, "EIO", marks=pytest.mark.long),
    ],
)
def test_a_disk_error_at_each_operation_of_a_change_leaves_a_stopped_broker_or_a_changed_one(
    begins: BrokerRole, error: str
) -> None:
    failed, unharmed = 0, 0
    for nth in range(1, LAST_OPERATION):
        broker = OneBroker(begins, nth)
        outcome, findings = broker.change_under(DiskError(0.0, FAULT_S, "a", error, nth=nth))
        assert not findings
        steps = [event.status for event in broker.recorder.events if event.kind == "broker.role"]
        if outcome is None:
            assert steps == ["changed"]
            unharmed += 1
            if unharmed == 10:  # what fails now fails after the change
                break
            continue
        failed, unharmed = failed + 1, 0
        if begins is SLAVE and isinstance(outcome, OSError):  # it has looked whether its term can be written
            assert (steps, broker.ended_by) == ([], [])
            continue
        assert isinstance(outcome, RoleChangeFailed)
        assert steps[0] in {"stop_failed", "open_failed", "start_failed"}
        [stopped_by] = broker.ended_by
        assert isinstance(stopped_by, RoleChangeFailed)
        assert isinstance(stopped_by.__cause__, OSError | ConfigFileDamaged)
    assert failed >= 15


@pytest.mark.parametrize("error", ["ENOSPC", "EIO"])
def test_a_full_disk_keeps_no_store_without_a_term_from_starting(error: str) -> None:
    """Nobody could clean it. A store that knows no term, RocketMQ's or an older version's, is in term 0 till then."""
    broker, terms = OneBroker(MASTER), list[Term]()

    async def look(controller: BrokerController) -> None:
        if not terms:
            await broker.check_all_is_there(controller)
        terms.append(controller.term)

    async def main(_: World) -> None:
        await broker.run(MASTER, broker.fill)
        broker.node.disk.remove(TERM_FILE)
        fault = DiskError(0.0, FAULT_S, "a", error, path="replicationTerm.json.tmp", count=1000)
        broker.world.start_schedule(Schedule((fault,)))
        await trio.sleep(0.001)
        await broker.run(MASTER, look)
        await trio.sleep_until(2 * FAULT_S)
        await broker.run(MASTER, look)

    broker.world.run(main)
    promoted = Term(1, leads=True)
    assert terms == ([Term(), promoted] if error == "ENOSPC" else [promoted])
    assert [type(error) for error in broker.ended_by] == ([] if error == "ENOSPC" else [OSError])


@pytest.mark.parametrize("begins", [MASTER, SLAVE])
def test_the_power_goes_at_each_disk_operation_of_a_change(begins: BrokerRole) -> None:
    cuts = 0
    for nth in range(1, LAST_OPERATION):
        broker = OneBroker(begins, nth)
        fault = PowerLoss(0.0, "a", 1000 * FAULT_S, on=On("disk.*", "a", nth))
        outcome, findings = broker.change_under(fault)
        assert not findings
        if outcome is None:
            break
        cuts += 1
    assert cuts >= 15


def test_a_port_that_somebody_took_meanwhile_stops_the_broker_and_names_it() -> None:
    """The store is open by then: it is closed in the end, with everything in it."""
    broker = OneBroker(SLAVE)
    outcomes: list[Exception | None] = []

    async def change(controller: BrokerController) -> None:
        async def take() -> None:
            while True:
                try:
                    [listener] = await trio.open_tcp_listeners(port, host="127.0.0.1")
                except OSError:
                    await trio.sleep(0.0001)
                    continue
                async with listener:
                    await trio.sleep(10)

        port = int(controller.ha_address.rpartition(":")[2])
        async with trio.open_nursery() as nursery:
            nursery.start_soon(take)
            with trio.CancelScope(shield=True):
                outcomes.append(await outcome_of(controller.change_role(MASTER)))
            nursery.cancel_scope.cancel()

    async def main(_: World) -> None:
        await broker.run(MASTER, broker.fill)
        broker.world.start_schedule(Schedule((DiskSlow(0.0, FAULT_S, "a", 0.01),)))
        await broker.run(SLAVE, change)
        await broker.run(MASTER, broker.check_all_is_there)

    broker.world.run(main)
    [outcome] = outcomes
    assert isinstance(outcome, RoleChangeFailed)
    assert "SLAVE to SYNC_MASTER: cannot start: " in str(outcome)


def test_a_service_that_does_not_stop_keeps_the_store_from_being_opened_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    async def stubborn(self: CleanCommitLogService, *, task_status: trio.TaskStatus[None]) -> None:
        task_status.started()
        with trio.CancelScope(shield=True):
            await trio.sleep(60)

    broker = OneBroker(MASTER)
    outcomes: list[Exception | None] = []

    async def change(controller: BrokerController) -> None:
        with trio.CancelScope(shield=True):
            outcomes.append(await outcome_of(controller.change_role(SLAVE)))

    async def main(_: World) -> None:
        await broker.run(MASTER, broker.fill)
        with monkeypatch.context() as patched:
            patched.setattr(CleanCommitLogService, "run", stubborn)
            await broker.run(MASTER, change)
        await broker.run(MASTER, broker.check_all_is_there)

    broker.world.run(main)
    [outcome] = outcomes
    assert isinstance(outcome, RoleChangeFailed)
    assert "cannot stop: store/1/CleanCommitLogService does not stop" in str(outcome)
    assert len([event for event in broker.recorder.events if event.kind == "store.open"]) == 3
