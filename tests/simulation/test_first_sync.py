"""A slave without a log, and a master that sends such a slave its last file alone, as 4.9 does, but tells its range.

The master's HA port is this project's with `syncFromLastFile`; where the slave asks, somebody answers as a test tells.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import attrs
import pytest
import trio

from rmq_actors.broker.broker_controller import BrokerController, open_broker
from rmq_actors.broker.config import BrokerConfig
from rmq_actors.broker.processors.query import QueryMessageProcessor
from rmq_actors.ha.config import HaConfig
from rmq_actors.ports.environment import Environment
from rmq_actors.protocols.following import LOOKUP_PATIENCE_S
from rmq_actors.protocols.put_completion import PutStatus
from rmq_actors.remoting.config import RemotingServerConfig
from rmq_actors.remoting.connection import RemotingRequest
from rmq_actors.remoting.processor import ProcessorTable, RequestPool
from rmq_actors.remoting.server import RemotingServer
from rmq_actors.store.check.check_store import check_store
from rmq_actors.store.config import BrokerRole, FlushDiskType, MessageStoreConfig
from rmq_actors.testing.sim_trace import open_sim_recorder
from rmq_actors.tracing.event import RunInfo
from rmq_actors.tracing.recorder import Recorder
from rmq_actors.wire.bodies.encoding import encode_body
from rmq_actors.wire.bodies.routes import KVTable
from rmq_actors.wire.record import Message
from rmq_actors.wire.remoting_command import RemotingCommand
from rmq_actors.wire.request_code import RequestCode
from rmq_actors.wire.response_code import ResponseCode
from sim_net import Node, World
from tests.worlds.store_workload import queues_on

PORT = 10911
HA_PORT = PORT + 1
ANSWER_PORT = PORT + 10
#: A file holds seven records and a blank.
FILE_BYTES, RECORD_BYTES, BODY_BYTES = 4096, 512, 412

#: Answers GET_BROKER_RUNTIME_INFO, of a master.
Answer = Callable[[BrokerController, RemotingRequest], RemotingCommand]


def told(request: RemotingRequest, begin: object, end: object) -> RemotingCommand:
    table = KVTable(table={"commitLogMinOffset": str(begin), "commitLogMaxOffset": str(end)})
    return request.command.response(ResponseCode.SUCCESS, body=encode_body(table))


def tell_range(master: BrokerController, request: RemotingRequest) -> RemotingCommand:
    """As 4.9 does, whose log begins at -1 before there is a file."""
    log = master.store.commit_log
    return told(request, log.min_offset if log.max_offset else -1, log.max_offset)


def tell_other_things(master: BrokerController, request: RemotingRequest) -> RemotingCommand:
    return request.command.response(ResponseCode.SUCCESS, body=encode_body(KVTable(table={"brokerVersion": "1"})))


def know_no_such_request(master: BrokerController, request: RemotingRequest) -> RemotingCommand:
    return request.command.response(ResponseCode.REQUEST_CODE_NOT_SUPPORTED, "no such request")


def refuse(master: BrokerController, request: RemotingRequest) -> RemotingCommand:
    return request.command.response(ResponseCode.NO_PERMISSION, "not for you")


@attrs.define(eq=False, repr=False)
class Pair:
    """`slave_ha` and `slave_store` are settings of the slave. Without an `answer` it asks this project's master."""

    answer: Answer | None = tell_range
    seed: int = 1
    slave_ha: dict[str, Any] = attrs.field(factory=dict)
    slave_store: dict[str, Any] = attrs.field(factory=dict)
    world: World = attrs.field(init=False)
    recorder: Recorder = attrs.field(init=False)
    master: Node = attrs.field(init=False)
    slave: Node = attrs.field(init=False)
    #: What runs on each node.
    brokers: dict[str, BrokerController] = attrs.field(factory=dict, init=False)
    _puts: int = attrs.field(default=0, init=False)

    def __attrs_post_init__(self) -> None:
        self.world = World(self.seed, guard_packages=("rmq_actors",))
        self.recorder = open_sim_recorder(self.world, RunInfo("test", "first-sync", self.seed))
        self.master, self.slave = self.world.node("master"), self.world.node("slave")

    def config(self, node: Node) -> BrokerConfig:
        is_slave = node is self.slave
        store = MessageStoreConfig(
            broker_role=BrokerRole.SLAVE if is_slave else BrokerRole.ASYNC_MASTER,
            mapped_file_size_commit_log_bytes=FILE_BYTES,
            mapped_file_size_consume_queue_bytes=200,
            max_hash_slot_num=16,
            max_index_num=64,
        )
        ha = HaConfig(
            ha_listen_host=node.address,
            ha_listen_port=HA_PORT,
            ha_master_address=f"{self.master.address}:{HA_PORT}" if is_slave else None,
            sync_from_last_file=not is_slave,
        )
        return BrokerConfig(
            "broker-a",
            attrs.evolve(store, **self.slave_store) if is_slave else store,
            attrs.evolve(ha, **self.slave_ha) if is_slave else ha,
            remoting=RemotingServerConfig(node.address, PORT),
            broker_id=1 if is_slave else 0,
            master_addr=f"{self.master.address}:{PORT if self.answer is None else ANSWER_PORT}" if is_slave else None,
        )

    async def boot(self, node: Node) -> BrokerController:
        """Start a broker on `node`, which runs until the node dies."""
        opened = trio.Event()

        async def run(node: Node) -> None:
            environment = Environment(node.disk, node.wall_clock, node.entropy)
            tracer = self.recorder.tracer(node.name)
            node.on_fence(tracer.fence)
            async with open_broker(self.config(node), environment, tracer) as broker:
                self.brokers[node.name] = broker
                if node is self.master and self.answer is not None:
                    await broker.system.start(self._answering(broker, self.answer))
                opened.set()
                await trio.sleep_forever()

        node.boot(run)
        await opened.wait()
        return self.brokers[node.name]

    def _answering(self, master: BrokerController, answer: Answer) -> RemotingServer:
        tracer = self.recorder.tracer(self.master.name)
        processors = ProcessorTable(tracer)
        pool = RequestPool("Unused", 1, 1, None, tracer)
        QueryMessageProcessor(lambda: master.store, pool, lambda *_: None).register(processors)
        processors.register([RequestCode.GET_BROKER_RUNTIME_INFO], lambda request: answer(master, request))
        return RemotingServer(
            RemotingServerConfig(self.master.address, ANSWER_PORT), processors, tracer, name="AnsweringServer"
        )

    async def put(self, count: int) -> None:
        for _ in range(count):
            self._puts += 1
            body = (b"%d " % self._puts * BODY_BYTES)[:BODY_BYTES]
            result = await self.brokers["master"].put_message(Message("TopicTest", body, self._puts % 2))
            assert result.status is PutStatus.PUT_OK

    async def remove_files(self, count: int) -> None:
        """Clean the master's log, once there is a checkpoint after what goes."""
        log = self.brokers["master"].store.commit_log
        await trio.sleep(20)
        for _ in range(count):
            await log.sync_names()
            assert log.remove_oldest_file()
        await log.sync_names()

    def run(self, main: Callable[[], Awaitable[None]]) -> None:
        async def in_world(_: World) -> None:
            await main()

        self.world.run(in_world)

    def log(self, name: str, begin: int) -> bytes:
        log = self.brokers[name].store.commit_log
        return b"".join(bytes(view) for view in log.ranges(begin, log.max_offset))

    async def check_slave(self, begin: int) -> None:
        """The slave gets all from `begin` on, and what is put then; with queues and index."""
        slave, master = self.brokers["slave"], self.brokers["master"]
        for count in (0, 9):
            await self.put(count)
            with trio.fail_after(120):
                while slave.store.commit_log.max_offset < master.store.commit_log.max_offset:
                    await trio.sleep(0.1)
            await trio.sleep(1)
            assert slave.store.commit_log.min_offset == begin
            assert self.log("slave", begin) == self.log("master", begin)
            assert queues_on(self.slave.disk) == queues_on(self.master.disk, begin)
        self.slave.kill()
        await self.boot(self.slave)
        await trio.sleep(60)
        findings = [each for each in check_store(self.slave.disk, max_hash_slot_num=16) if each.severity == "error"]
        assert findings == []
        assert self.log("slave", begin) == self.log("master", begin)


@pytest.mark.parametrize("files_gone", [0, 2])
@pytest.mark.parametrize("flush", FlushDiskType)
def test_the_slave_begins_where_its_master_does(files_gone: int, flush: FlushDiskType) -> None:
    pair = Pair(slave_store={"flush_disk_type": flush})

    async def main() -> None:
        await pair.boot(pair.master)
        await pair.put(40)
        if files_gone:
            await pair.remove_files(files_gone)
        await pair.boot(pair.slave)
        await pair.check_slave(files_gone * FILE_BYTES)
        # The first report asked for what follows the first record: with SYNC_FLUSH only once that was synced.
        reports = [event.offset for event in pair.recorder.events if event.kind == "ha.client.report"]
        assert reports[0] == files_gone * FILE_BYTES + RECORD_BYTES

    pair.run(main)


@pytest.mark.parametrize("records", [0, 1, 5])
def test_a_master_of_a_short_log(records: int) -> None:
    pair = Pair()

    async def main() -> None:
        await pair.boot(pair.master)
        await pair.put(records)
        await pair.boot(pair.slave)
        await trio.sleep(1)
        await pair.check_slave(0)

    pair.run(main)


def test_a_slave_with_sync_from_last_file_begins_there() -> None:
    pair = Pair(slave_ha={"sync_from_last_file": True})

    async def main() -> None:
        await pair.boot(pair.master)
        await pair.put(20)
        await pair.boot(pair.slave)
        await pair.check_slave(2 * FILE_BYTES)

    pair.run(main)


@pytest.mark.parametrize("answer", [know_no_such_request, tell_other_things, None])
def test_a_master_that_tells_no_range_decides(answer: Answer | None) -> None:
    """This project's, last of all: it sends everything by itself, or was told not to."""
    pair = Pair(answer)

    async def main() -> None:
        await pair.boot(pair.master)
        await pair.put(20)
        await pair.boot(pair.slave)
        await trio.sleep(LOOKUP_PATIENCE_S / 2)
        await pair.check_slave(2 * FILE_BYTES)

    pair.run(main)


def test_a_master_that_refuses_to_tell_is_followed_after_a_while(caplog: pytest.LogCaptureFixture) -> None:
    pair = Pair(refuse)

    async def main() -> None:
        await pair.boot(pair.master)
        await pair.put(20)
        slave = await pair.boot(pair.slave)
        await trio.sleep(LOOKUP_PATIENCE_S / 2)
        assert slave.store.commit_log.max_offset == 0
        await pair.check_slave(2 * FILE_BYTES)

    pair.run(main)
    assert any("may send its last file alone" in record.getMessage() for record in caplog.records)


@pytest.mark.parametrize(
    ("begin", "end", "what"),
    [("x", "1", "invalid literal"), (100 * FILE_BYTES, 2**62, "has no record there"), (RECORD_BYTES // 2, 2**62, "")],
)
def test_an_answer_that_cannot_be_is_tried_again(
    begin: object, end: object, what: str, caplog: pytest.LogCaptureFixture
) -> None:
    """The second also when the master deletes its first file between the two questions."""
    asked = []

    def answer(master: BrokerController, request: RemotingRequest) -> RemotingCommand:
        asked.append(request)
        return told(request, begin, end) if len(asked) == 1 else tell_range(master, request)

    pair = Pair(answer)

    async def main() -> None:
        await pair.boot(pair.master)
        await pair.put(20)
        await pair.boot(pair.slave)
        await pair.check_slave(0)

    pair.run(main)
    assert len(asked) == 2
    assert any("lookup_failed" in record.getMessage() and what in record.getMessage() for record in caplog.records)
