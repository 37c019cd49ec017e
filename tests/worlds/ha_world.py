"""A master, slaves and whoever else comes to its HA port, in a simulated world."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import attrs
import trio

from rmq_actors.broker.broker_controller import BrokerController, open_broker
from rmq_actors.broker.config import BrokerConfig
from rmq_actors.ha.config import HaConfig
from rmq_actors.ha.slave_status import HaCounters
from rmq_actors.ports.environment import Environment
from rmq_actors.protocols.ha_slave import HaSlave
from rmq_actors.protocols.put_completion import PutStatus
from rmq_actors.store.config import BrokerRole, MessageStoreConfig
from rmq_actors.testing.sim_trace import open_sim_recorder
from rmq_actors.tracing.event import RunInfo, of_kind
from rmq_actors.tracing.events.ha import HaClientClose, HaConnectionClose
from rmq_actors.tracing.recorder import Recorder
from rmq_actors.wire.ha_frames import encode_report
from rmq_actors.wire.record import Message
from sim_net import Node, World, WorldConfig
from tests.worlds.recording import E

HA_PORT = 10912
#: A file holds seven records and a blank.
RECORD_BYTES, BODY_BYTES, FILE_BYTES = 512, 412, 4096
SMALL_STORE = MessageStoreConfig(
    mapped_file_size_commit_log_bytes=FILE_BYTES,
    mapped_file_size_consume_queue_bytes=200,
    max_hash_slot_num=16,
    max_index_num=64,
    store_stats_sampling=False,
)


@attrs.define(eq=False, repr=False)
class HaCluster:
    """`master` is a SYNC_MASTER, every other broker its slave. `store` and `ha`: settings of all of them."""

    seed: int = 1
    world_config: WorldConfig = attrs.field(factory=WorldConfig)
    store: dict[str, Any] = attrs.field(factory=dict)
    ha: dict[str, Any] = attrs.field(factory=dict)
    world: World = attrs.field(init=False)
    recorder: Recorder = attrs.field(init=False)
    nodes: dict[str, Node] = attrs.field(factory=dict, init=False)
    brokers: dict[str, BrokerController] = attrs.field(factory=dict, init=False)
    _stops: dict[str, tuple[trio.Event, trio.Event]] = attrs.field(factory=dict, init=False)
    _puts: int = attrs.field(default=0, init=False)

    def __attrs_post_init__(self) -> None:
        self.world = World(self.seed, self.world_config, guard_packages=("rmq_actors",))
        self.recorder = open_sim_recorder(self.world, RunInfo("test", "ha", self.seed))

    def run(self, main: Callable[[HaCluster], Awaitable[None]]) -> HaCluster:
        self.world.run(lambda _: main(self))
        return self

    def node(self, name: str) -> Node:
        if name not in self.nodes:
            self.nodes[name] = self.world.node(name)
        return self.nodes[name]

    @property
    def master(self) -> BrokerController:
        return self.brokers["master"]

    @property
    def master_end(self) -> int:
        return self.master.store.commit_log.max_offset

    @property
    def connections(self) -> int:
        """How many the master has."""
        return len(self.master.ha_service.connections)

    @property
    def counters(self) -> HaCounters:
        """What has happened on the master's HA port."""
        return self.master.ha_service.counters()

    async def start(self, name: str, *, master: str = "master") -> BrokerController:
        """Start a broker, which follows `master` unless it is the one."""
        node, opened = self.node(name), trio.Event()
        node.kill()
        is_master = name == master
        config = BrokerConfig(
            name,
            attrs.evolve(
                SMALL_STORE, broker_role=BrokerRole.SYNC_MASTER if is_master else BrokerRole.SLAVE, **self.store
            ),
            HaConfig(
                ha_listen_host=node.address,
                ha_listen_port=HA_PORT,
                ha_master_address=None if is_master else f"{self.node(master).address}:{HA_PORT}",
                **self.ha,
            ),
        )

        async def serve(node: Node) -> None:
            tracer = self.recorder.tracer(name)
            node.on_fence(tracer.fence)
            stop, stopped = self._stops[name] = trio.Event(), trio.Event()
            environment = Environment(node.disk, node.wall_clock, node.entropy)
            async with open_broker(config, environment, tracer) as broker:
                self.brokers[name] = broker
                opened.set()
                await stop.wait()
            stopped.set()
            await trio.sleep_forever()

        node.boot(serve)
        await opened.wait()
        return self.brokers[name]

    async def stop(self, name: str) -> None:
        """Stop a broker in order; return when it has. Its process goes on, until another broker is started."""
        stop, stopped = self._stops[name]
        stop.set()
        await stopped.wait()

    async def start_pair(self) -> tuple[BrokerController, BrokerController]:
        """A master and a slave that has connected."""
        master, slave = await self.start("master"), await self.start("slave")
        await trio.sleep(1)
        return master, slave

    async def put(self, body: bytes = b"", **fields: Any) -> PutStatus:
        """Put one message to the master; every second one goes to the second queue."""
        self._puts += 1
        body = body or (b"%d " % self._puts * BODY_BYTES)[:BODY_BYTES]
        return (await self.master.put_message(Message("TopicTest", body, self._puts % 2, **fields))).status

    async def put_many(self, count: int) -> list[PutStatus]:
        return [await self.put() for _ in range(count)]

    def events(self, kind: type[E], node: str = "master") -> list[E]:
        return [event for event in of_kind(self.recorder.events, kind) if event.node == node]

    def closed(self, node: str = "master") -> list[str | None]:
        """Why connections ended, on that side."""
        closes = self.events(HaConnectionClose if node == "master" else HaClientClose, node)
        return [event.status for event in closes]

    def visit(self, name: str, *said: bytes, **behaviour: Any) -> RawPeer:
        """Somebody who connects to the master's HA port, says something, and is no broker."""
        peer = RawPeer(self.node("master").address, said, **behaviour)
        self.node(name).boot(peer.run)
        return peer


@attrs.define(eq=False)
class RawPeer:
    """A connection to the master's HA port: says what is given, and reads unless told that it does not.

    With `follows` it is a slave without a log, which takes `pause_s` to report a frame.
    """

    _address: str
    _said: tuple[bytes, ...]
    reads: bool = True
    follows: bool = False
    pause_s: float = 0.0
    #: Reports this every 5 s while it does nothing else.
    heartbeat: int | None = None
    end: int = attrs.field(default=0, init=False)
    is_closed: bool = attrs.field(default=False, init=False)
    _stream: trio.SocketStream | None = attrs.field(default=None, init=False)
    _sending: trio.Lock = attrs.field(factory=trio.Lock, init=False)

    async def run(self, _: Node) -> None:
        try:
            async with await trio.open_tcp_stream(self._address, HA_PORT) as stream, trio.open_nursery() as nursery:
                self._stream = stream
                for data in self._said:
                    await stream.send_all(data)
                if self.follows:
                    await self.report(self.end)
                nursery.start_soon(self._keep_alive)
                await self._read(stream)
                nursery.cancel_scope.cancel()
        except* trio.BrokenResourceError:
            pass  # it was refused
        except* OSError:
            pass
        self.is_closed = True
        await trio.sleep_forever()

    async def report(self, offset: int) -> None:
        """Say so, once it is connected."""
        assert self._stream is not None
        async with self._sending:
            await self._stream.send_all(encode_report(offset))

    async def _read(self, stream: trio.SocketStream) -> None:
        if not self.reads:
            await trio.sleep_forever()
        slave = HaSlave(self.end, trio.current_time(), 5.0, 20.0)
        while size := await stream.socket.recv_into(slave.free()):
            for append in slave.received(size, trio.current_time()):
                if self.follows:
                    await trio.sleep(self.pause_s)
                    self.end = append.offset + len(append.data)
                    await self.report(self.end)

    async def _keep_alive(self) -> None:
        while True:
            await trio.sleep(5)
            if self.follows:
                await self.report(self.end)
            elif self.heartbeat is not None:
                await self.report(self.heartbeat)
