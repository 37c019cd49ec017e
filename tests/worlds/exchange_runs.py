"""Exchanges of two healthy brokers under load: `python -m tests.worlds.exchange_runs --how manual --seeds 0:100`.

A master, its slave, in some runs a slave of that slave, no name servers, writers that put to whoever is the master, and
an operator who exchanges the roles in one of the ways of `HOW`. Links and slave are slow, or pause, as it comes.
Counted is what went wrong: a way is right if nothing did, whatever the seed.
"""

from __future__ import annotations

import argparse
import collections
import functools
import itertools
import logging
import random
import sys
from collections.abc import Awaitable, Callable, Iterator, Mapping

import attrs
import trio

from rmq_actors.actors.system import open_actor_system
from rmq_actors.broker.broker_controller import BrokerController, open_broker
from rmq_actors.broker.config import BrokerConfig
from rmq_actors.ha.config import HaConfig
from rmq_actors.ports.environment import Environment
from rmq_actors.protocols.put_completion import PutStatus
from rmq_actors.remoting.client import RemotingClient
from rmq_actors.remoting.config import RemotingClientConfig, RemotingServerConfig
from rmq_actors.remoting.connection import RemotingError
from rmq_actors.remoting.processor import ProcessorTable
from rmq_actors.settings.properties_text import format_properties
from rmq_actors.store.config import BrokerRole, FlushDiskType, MessageStoreConfig
from rmq_actors.testing.sim_trace import open_sim_recorder
from rmq_actors.tracing.event import RunInfo
from rmq_actors.tracing.recorder import Recorder
from rmq_actors.wire.bodies.decoding import decode_body
from rmq_actors.wire.bodies.encoding import encode_body
from rmq_actors.wire.bodies.role_exchange import BeginExchangeBody, ExchangeInfo
from rmq_actors.wire.bodies.routes import KVTable
from rmq_actors.wire.bodies.subscription_groups import SubscriptionGroupConfig
from rmq_actors.wire.bodies.topic_configs import TopicConfig
from rmq_actors.wire.record import Message
from rmq_actors.wire.remoting_command import RemotingCommand
from rmq_actors.wire.request_code import OwnRequestCode, RequestCode
from rmq_actors.wire.response_code import ResponseCode
from sim_net import Bandwidth, Delay, DiskSlow, Fault, LinkConfig, Node, Pause, Schedule, World, WorldConfig
from tests.worlds.role_world import TOPIC, queue_bodies

PORT = 10911
HA_PORT = PORT + 1
OPERATOR = "operator"
#: The master at first, its slave, and a slave of that one.
OLD, NEW, LEAF = "a", "b", "c"

_WORLD = WorldConfig(
    link=LinkConfig(latency_min_s=0.0002, latency_max_s=0.02), journal_keep=False, virtual_time_max_s=3600.0
)
_STATUS_TIMEOUT_MS = 5_000
_CHANGE_TIMEOUT_MS = 60_000
_GIVES_UP_S = 120.0
_LIMIT_S = 30.0
_LOAD_BEFORE_S = 2.0
_LOAD_AFTER_S = 2.0
_CONVERGES_S = 60.0
_LOOKS_EVERY_S = 0.1


@attrs.frozen
class Plan:
    """What is drawn for one run."""

    master_role: BrokerRole = BrokerRole.ASYNC_MASTER
    flush: FlushDiskType = FlushDiskType.ASYNC_FLUSH
    truncates: bool = False
    log_file_bytes: int = 4096
    body_bytes_max: int = 400
    put_every_s: float = 0.01
    has_leaf: bool = False
    #: When the operator begins, and how long before that each topic was made, each group too.
    begins_at_s: float = 15.0
    made_before_s: tuple[float, ...] = ()
    #: A patient operator goes on only so long after it may; in any case it looks so often.
    waits_s: float = 0.0
    looks_every_s: float = 0.05
    faults: tuple[Fault, ...] = ()

    @classmethod
    def draw(cls, rng: random.Random) -> Plan:
        begins_at_s = rng.uniform(14.0, 16.0)
        return cls(
            master_role=rng.choice([BrokerRole.ASYNC_MASTER, BrokerRole.SYNC_MASTER]),
            flush=rng.choice(list(FlushDiskType)),
            truncates=rng.random() < 0.5,
            log_file_bytes=rng.choice([4096, 65536]),
            body_bytes_max=rng.choice([50, 400, 2000]),
            put_every_s=rng.choice([0.01, 0.02, 0.05]),
            has_leaf=rng.random() < 0.3,
            begins_at_s=begins_at_s,
            made_before_s=tuple(rng.uniform(0.01, 11.0) for _ in range(4)),
            waits_s=rng.choice([0.0, rng.uniform(1.0, 30.0)]),
            looks_every_s=rng.choice([0.05, 1.0]),
            faults=tuple(_faults(rng, begins_at_s)),
        )


def _faults(rng: random.Random, begins_at_s: float) -> Iterator[Fault]:
    """What slows the slave down, about when the operator begins."""
    at_s = begins_at_s - rng.uniform(0.0, 2.0)
    if rng.random() < 0.4:
        yield Pause(at_s, rng.uniform(0.2, 6.0), NEW)
    if rng.random() < 0.3:
        yield Delay(at_s, rng.uniform(1.0, 10.0), OLD, NEW, rng.uniform(0.02, 0.1))
    if rng.random() < 0.3:
        yield Bandwidth(at_s, rng.uniform(1.0, 5.0), OLD, NEW, rng.choice([20_000.0, 50_000.0]))
    if rng.random() < 0.3:
        yield DiskSlow(at_s, rng.uniform(1.0, 10.0), rng.choice([OLD, NEW]), rng.choice([0.005, 0.05]))


@attrs.define(eq=False, repr=False)
class Exchange:
    """One run: the brokers, what was put and made, and what went wrong."""

    plan: Plan
    seed: int
    world: World = attrs.field(init=False)
    recorder: Recorder = attrs.field(init=False)
    names: tuple[str, ...] = attrs.field(init=False)
    brokers: dict[str, BrokerController] = attrs.field(factory=dict, init=False)
    acked: list[bytes] = attrs.field(factory=list, init=False)
    topics: list[str] = attrs.field(factory=list, init=False)
    groups: list[str] = attrs.field(factory=list, init=False)
    is_writing: bool = attrs.field(default=True, init=False)
    #: What the operator has seen go wrong.
    complaints: list[str] = attrs.field(factory=list, init=False)
    _stopping: dict[str, trio.Event] = attrs.field(factory=dict, init=False)
    _numbers: Iterator[int] = attrs.field(factory=itertools.count, init=False)
    _client: RemotingClient | None = attrs.field(default=None, init=False)

    def __attrs_post_init__(self) -> None:
        self.world = World(self.seed, _WORLD, guard_packages=("rmq_actors",))
        self.recorder = open_sim_recorder(self.world, RunInfo("test", "exchange", self.seed))
        self.names = (OLD, NEW, LEAF) if self.plan.has_leaf else (OLD, NEW)
        for name in (*self.names, OPERATOR):
            self.world.node(name)

    # --- the brokers --------------------------------------------------------------------------------------------------

    def address(self, name: str, port: int = PORT) -> str:
        return f"{self.world.nodes[name].address}:{port}"

    def _config(self, name: str) -> BrokerConfig:
        plan, node = self.plan, self.world.nodes[name]
        master = {OLD: None, NEW: OLD, LEAF: NEW}[name]
        store = MessageStoreConfig(
            broker_role=plan.master_role if master is None else BrokerRole.SLAVE,
            flush_disk_type=plan.flush,
            mapped_file_size_commit_log_bytes=plan.log_file_bytes,
            mapped_file_size_consume_queue_bytes=400,
            max_hash_slot_num=16,
            max_index_num=64,
            store_stats_sampling=False,
        )
        ha = HaConfig(
            ha_listen_host=node.address,
            ha_listen_port=HA_PORT,
            ha_master_address=None if master is None else self.address(master, HA_PORT),
            ha_truncate_on_divergence=plan.truncates,
        )
        return BrokerConfig(
            "broker-a",
            store,
            ha,
            remoting=RemotingServerConfig(node.address, PORT),
            broker_id=0 if master is None else 1 + (name == LEAF),
            master_addr=None if master is None else self.address(master),
        )

    async def _serve(self, node: Node) -> None:
        tracer = self.recorder.tracer(node.name)
        node.on_fence(tracer.fence)
        environment = Environment(node.disk, node.wall_clock, node.entropy)
        async with open_broker(self._config(node.name), environment, tracer) as broker:
            self.brokers[node.name] = broker
            async with trio.open_nursery() as nursery:
                for queue_id in range(2):
                    nursery.start_soon(self._write, broker, node, queue_id)
                stopping = self._stopping[node.name] = trio.Event()
                await stopping.wait()
                nursery.cancel_scope.cancel()

    async def stop(self, name: str) -> None:
        """Stop a broker in order."""
        self._stopping[name].set()
        await self.world.nodes[name].wait_down()

    async def _write(self, broker: BrokerController, node: Node, queue_id: int) -> None:
        """A producer's thread, in the broker's process. It puts while the broker is a master."""
        await trio.sleep_until(self.plan.begins_at_s - _LOAD_BEFORE_S)
        while True:
            await trio.sleep(node.entropy.random() * 2 * self.plan.put_every_s)
            if not self.is_writing or broker.config.is_slave:
                continue
            number = b"%d " % next(self._numbers)
            body = number + node.entropy.token_bytes(int(node.entropy.random() * self.plan.body_bytes_max))
            result = await broker.put_message(Message(TOPIC, body, queue_id))
            if result.status is PutStatus.PUT_OK:
                self.acknowledged(node.name, body)

    def acknowledged(self, node: str, body: bytes) -> None:
        """A producer was told PUT_OK by the broker of that node."""
        self.acked.append(body)

    # --- what is made before ------------------------------------------------------------------------------------------

    async def _make_tables(self) -> None:
        """A topic and a group at each of their times, on the master."""
        for number, before_s in enumerate(sorted(self.plan.made_before_s, reverse=True)):
            await trio.sleep_until(self.plan.begins_at_s - before_s)
            await self.on_node(OLD, functools.partial(self._make_topic_and_group, number))

    async def _make_topic_and_group(self, number: int) -> None:
        remoting = self.brokers[OLD].remoting
        assert remoting is not None
        topic, group = f"Topic-{number}", f"Group-{number}"
        await remoting.metadata.topics.update_topic_config(TopicConfig(topic_name=topic))
        self.topics.append(topic)
        config = SubscriptionGroupConfig(group_name=group)
        await remoting.metadata.subscription_groups.update_subscription_group_config(config)
        self.groups.append(group)

    # --- what the operator does ---------------------------------------------------------------------------------------

    async def on_node(self, name: str, call: Callable[[], Awaitable[object]]) -> None:
        done = trio.Event()

        async def run() -> None:
            await call()
            done.set()

        self.world.nodes[name].start_soon(run)
        await done.wait()

    async def ask(self, name: str, request: RemotingCommand, timeout_ms: int) -> RemotingCommand | None:
        """The broker's answer to the operator; None without one."""
        answers: list[RemotingCommand] = []

        async def call() -> None:
            assert self._client is not None
            try:
                answers.append(await self._client.invoke(self.address(name), request, timeout_ms))
            except RemotingError as error:
                self.complaints.append(f"{name}: {error}")

        await self.on_node(OPERATOR, call)
        return answers[0] if answers else None

    async def change_role(self, name: str, role: BrokerRole, *, term: int | None = None, **properties: str) -> bool:
        """As `broker-admin change-role` does; whether that was done."""
        body = format_properties({"brokerRole": role.value, **properties}).encode()
        fields = None if term is None else {"term": str(term)}
        request = RemotingCommand(RequestCode.UPDATE_BROKER_CONFIG, fields, body=body)
        answer = await self.ask(name, request, _CHANGE_TIMEOUT_MS)
        if answer is None or answer.code != ResponseCode.SUCCESS:
            self.complaints.append(f"{name} does not become {role.value}: {answer and answer.remark}")
            return False
        return True

    async def begin_exchange(self, limit_s: float) -> ExchangeInfo | None:
        """As `broker-admin exchange` begins; None if it was refused, or not answered."""
        body = encode_body(BeginExchangeBody(limit_ms=int(1000 * limit_s), slave_addr=self.address(NEW)))
        answer = await self.ask(OLD, RemotingCommand(OwnRequestCode.BEGIN_EXCHANGE, body=body), _STATUS_TIMEOUT_MS)
        return self._info(answer)

    async def exchange_info(self) -> ExchangeInfo | None:
        """How it goes; None if that is not told now."""
        return self._info(await self.ask(OLD, RemotingCommand(OwnRequestCode.GET_EXCHANGE), _STATUS_TIMEOUT_MS))

    def _info(self, answer: RemotingCommand | None) -> ExchangeInfo | None:
        if answer is None or answer.code != ResponseCode.SUCCESS:
            return None
        return decode_body(ExchangeInfo, answer.body)

    async def status(self, name: str) -> Mapping[str, str]:
        """As `broker-admin status` does; nothing without an answer."""
        answer = await self.ask(name, RemotingCommand(RequestCode.GET_BROKER_RUNTIME_INFO), _STATUS_TIMEOUT_MS)
        return decode_body(KVTable, answer.body).table if answer is not None and answer.body else {}

    async def _operate(self, node: Node) -> None:
        async with open_actor_system(node.name, entropy=node.entropy) as system:
            tracer = self.recorder.tracer(node.name)
            self._client = RemotingClient(RemotingClientConfig(), node.entropy, tracer, ProcessorTable(tracer))
            await system.start(self._client)
            await trio.sleep_forever()

    # --- the run ------------------------------------------------------------------------------------------------------

    async def run(self, operate: Operator) -> None:
        for name in self.names:
            self.world.nodes[name].boot(self._serve)
        self.world.nodes[OPERATOR].boot(self._operate)
        self.world.start_schedule(Schedule(self.plan.faults))
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._make_tables)
            await trio.sleep_until(self.plan.begins_at_s)
            await operate(self)
        await trio.sleep(_LOAD_AFTER_S)
        self.is_writing = False
        await trio.sleep(4.0)  # every put is answered by then
        master = self.master
        if master is not None:
            # A slave that is ahead by a file's blank end waits for one more message.
            await self.on_node(master, lambda: self.brokers[master].put_message(Message(TOPIC, b"the last one", 3)))
        await self._look(lambda: self._is_equal() and not any(self.lacks(name) for name in self.names), _CONVERGES_S)

    async def _look(self, predicate: Callable[[], bool], timeout_s: float) -> None:
        give_up_at = trio.current_time() + timeout_s
        while not predicate() and trio.current_time() < give_up_at:
            await trio.sleep(_LOOKS_EVERY_S)

    @property
    def master(self) -> str | None:
        masters = [name for name in self.names if not self.brokers[name].config.is_slave]
        return masters[0] if len(masters) == 1 else None

    def _log(self, name: str) -> bytes:
        log = self.brokers[name].store.commit_log
        return b"".join(bytes(view) for view in log.ranges(log.min_offset, log.max_offset))

    def _is_equal(self) -> bool:
        slaves = [name for name in self.names if name != self.master]
        ends = {self.brokers[name].store.commit_log.max_offset for name in self.names}
        is_followed = all(self._follows(name) for name in slaves)
        return len(ends) == 1 and is_followed and len({self._log(name) for name in self.names}) == 1

    def _follows(self, name: str) -> bool:
        followed = self.brokers[name].followed_master
        return followed is not None and followed.is_followed

    def lacks(self, name: str) -> set[str]:
        """The topics and groups that a broker has not."""
        remoting = self.brokers[name].remoting
        assert remoting is not None
        topics = remoting.metadata.topics.wrapper().topic_config_table
        groups = remoting.metadata.subscription_groups.wrapper().subscription_group_table
        return (set(self.topics) - topics.keys()) | (set(self.groups) - groups.keys())

    def wrong(self) -> dict[str, int]:
        """What is wrong in the end, each with how much of it."""
        master, counts = self.master, collections.Counter[str]()
        if master is None:
            counts["no single master"] += 1
        else:
            has = {body for queue_id in range(2) for body in queue_bodies(self.brokers[master], TOPIC, queue_id)}
            counts["acknowledged messages lost"] += len(set(self.acked) - has)
        for name in self.names:
            followed, lacks = self.brokers[name].followed_master, self.lacks(name)
            counts["halted"] += followed is not None and followed.halted is not None
            counts["topics lost"] += len(lacks.intersection(self.topics))
            counts["groups lost"] += len(lacks.intersection(self.groups))
        counts["logs unequal, or not followed"] += not self._is_equal()
        counts["truncations"] += sum(event.kind == "log.truncate" for event in self.recorder.events)
        counts["stores opened for nothing"] += sum(
            event.kind == "broker.role" and event.status == "reopened" for event in self.recorder.events
        )
        counts["halts"] += sum(event.kind == "ha.client.halt" for event in self.recorder.events)
        return {what: count for what, count in counts.items() if count}


Operator = Callable[[Exchange], Awaitable[None]]


async def manual(run: Exchange) -> None:
    """The page's procedure: the master becomes a slave; that one's slave the master once their logs end alike."""
    plan = run.plan
    if not await run.change_role(
        OLD, BrokerRole.SLAVE, haMasterAddress=run.address(NEW, HA_PORT), masterAddr=run.address(NEW)
    ):
        return
    give_up_at = trio.current_time() + _GIVES_UP_S
    while True:
        ends = [(await run.status(name)).get("commitLogMaxOffset") for name in (OLD, NEW)]
        if ends[0] is not None and ends[0] == ends[1]:
            break
        if trio.current_time() >= give_up_at:
            run.complaints.append(f"the logs end at {ends}")
            return
        await trio.sleep(plan.looks_every_s)
    await trio.sleep(plan.waits_s)
    await run.change_role(NEW, plan.master_role)


async def command(run: Exchange) -> None:
    """The page's command: it is done, or the master says why not."""
    info = await run.begin_exchange(_LIMIT_S)
    while info is not None and not info.ended:
        await trio.sleep(run.plan.looks_every_s)
        info = await run.exchange_info()
    if info is None or not info.exchanged:
        run.complaints.append(f"not exchanged: {info and info.detail}")
    elif run.master != NEW:
        run.complaints.append("told as exchanged, and is not")


#: The ways to exchange the roles.
HOW: Mapping[str, Operator] = {"manual": manual, "command": command}


def run_seed(how: str, seed: int) -> dict[str, int]:
    """What went wrong in a run; nothing, if all is well."""
    return run_plan(Plan.draw(random.Random(f"{how}/{seed}")), HOW[how], seed)[1]


def run_plan(plan: Plan, operate: Operator, seed: int = 1) -> tuple[Exchange, dict[str, int]]:
    """A run that is over, and what went wrong in it."""
    exchange = Exchange(plan, seed)

    async def main(_: World) -> dict[str, int]:
        await exchange.run(operate)
        return exchange.wrong()

    return exchange, exchange.world.run(main)


def main() -> int:
    """Exit code 1 if anything went wrong."""
    options = _arguments()
    logging.getLogger("rmq_actors").setLevel(logging.CRITICAL)
    begin, end = map(int, options.seeds.split(":"))
    runs, amounts = collections.Counter[str](), collections.Counter[str]()
    for seed in range(begin, end):
        wrong = run_seed(options.how, seed)
        runs.update(wrong.keys())
        amounts.update(wrong)
        if wrong:
            _say(f"seed {seed}: {_text(wrong)}")
    what, how_much = _text(runs) or "nothing wrong", _text(amounts) or "nothing"
    _say(f"{options.how}, {end - begin} runs; with {what}; in all {how_much}")
    return 1 if runs else 0


def _say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def _text(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{what}: {count}" for what, count in sorted(counts.items()))


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.worlds.exchange_runs", description=__doc__)
    parser.add_argument("--how", choices=list(HOW), default="manual", help="how the operator goes about it")
    parser.add_argument("--seeds", default="0:100", metavar="A:B", help="which runs (default 0:100)")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
