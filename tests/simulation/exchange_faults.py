"""Exchanges by command, with faults at each step: `python -m tests.simulation.exchange_faults --seeds 0:100`.

The pair of `exchange_runs`, whose brokers keep their settings in files, so that each starts again as what it was. A
fault is set off by what a broker is about to do, and strikes then or a little later. Once it is over the pair must be
one again: nothing acknowledged is lost, never did both acknowledge, one is the master, the other follows it, and the
tables are equal.
"""

from __future__ import annotations

import argparse
import collections
import logging
import random
import sys
from collections.abc import Callable, Iterator, Mapping

import attrs
import trio

from rmq_actors.broker.broker_configuration import BrokerFiles, config_file
from rmq_actors.broker.broker_controller import open_broker
from rmq_actors.broker.config import BROKER_KEYS, BrokerConfig
from rmq_actors.ports.environment import Environment
from rmq_actors.protocols.exchange import Step
from rmq_actors.settings.configure import Properties, configure
from rmq_actors.store.config import FlushDiskType
from rmq_actors.tracing.events.broker import BrokerExchange, BrokerExchangePartner
from rmq_actors.wire.bodies.role_exchange import ExchangeInfo
from rmq_actors.wire.record import Message
from sim_net import Fault, Kill, Node, On, Partition, Pause, PowerLoss, Schedule, World
from sim_net.faults.nemesis import Announce
from tests.worlds.exchange_runs import NEW, OLD, OPERATOR, Exchange, Plan
from tests.worlds.role_world import TOPIC

#: What the old master is about to do, and what the slave says, in the order of an exchange.
OLD_STEPS = ("Check", "Fence", "Prepare", "WriteNote", "Promote", "StepDown", "RemoveNote", "Unfence")
NEW_STEPS = ("can", "ready", "is_promoted", "leads")
STEPS = (*(f"broker.exchange.{step}" for step in OLD_STEPS), *(f"broker.exchange_partner.{step}" for step in NEW_STEPS))
#: Each makes one fault, of this length.
MakeFault = Callable[[float, float, On], Fault]
FAULTS: Mapping[str, MakeFault] = {
    "pause the old master": lambda at_s, length_s, on: Pause(at_s, length_s, OLD, on=on),
    "pause the slave": lambda at_s, length_s, on: Pause(at_s, length_s, NEW, on=on),
    "kill the old master": lambda at_s, length_s, on: Kill(at_s, OLD, length_s, on=on),
    "kill the slave": lambda at_s, length_s, on: Kill(at_s, NEW, length_s, on=on),
    "power cut at the old master": lambda at_s, length_s, on: PowerLoss(at_s, OLD, length_s, on=on),
    "power cut at the slave": lambda at_s, length_s, on: PowerLoss(at_s, NEW, length_s, on=on),
    "partition": lambda at_s, length_s, on: Partition(at_s, length_s, OLD, NEW, on=on),
    "requests are lost": lambda at_s, length_s, on: Partition(at_s, length_s, OLD, NEW, two_way=False, on=on),
    "answers are lost": lambda at_s, length_s, on: Partition(at_s, length_s, NEW, OLD, two_way=False, on=on),
}
_LIMIT_S = 10.0
_LOOKS_EVERY_S = 0.05
#: How long the pair may take to be one again; TCP sends again at last after a minute or so.
_SETTLES_S = 180.0
_IN_THE_FILE = ("brokerRole", "brokerId", "haMasterAddress", "masterAddr")


@attrs.frozen
class Incident:
    """One fault, when it strikes after its event, and how long it lasts."""

    what: str
    on: On
    at_s: float
    length_s: float

    def fault(self) -> Fault:
        return FAULTS[self.what](self.at_s, self.length_s, self.on)


@attrs.define(eq=False, repr=False)
class FaultyExchange(Exchange):
    """One run. The operator may go away once the exchange has begun."""

    operator_stays: bool = attrs.field(default=True, kw_only=True)
    #: Who acknowledged, in order, each once in a row.
    acknowledged_by: list[str] = attrs.field(factory=list, init=False)
    result: ExchangeInfo | None = attrs.field(default=None, init=False)
    #: What is wrong in the end.
    found: dict[str, int] = attrs.field(factory=dict, init=False)

    def __attrs_post_init__(self) -> None:
        super().__attrs_post_init__()
        self.world.trace_source(self._announce_steps)

    def _announce_steps(self, announce: Announce) -> None:
        def tell(event: BrokerExchange | BrokerExchangePartner) -> None:
            effect = event.effect if isinstance(event, BrokerExchange) else ""
            announce(event.node, f"{event.kind}.{effect or event.status}")

        self.recorder.subscribe(tell, [BrokerExchange, BrokerExchangePartner])

    async def _serve(self, node: Node) -> None:
        tracer = self.recorder.tracer(node.name)
        node.on_fence(tracer.fence)
        environment = Environment(node.disk, node.wall_clock, node.entropy)
        config, files = self._configured(node)
        async with open_broker(config, environment, tracer, files=files) as broker:
            self.brokers[node.name] = broker
            async with trio.open_nursery() as nursery:
                for queue_id in range(2):
                    nursery.start_soon(self._write, broker, node, queue_id)

    def _configured(self, node: Node) -> tuple[BrokerConfig, BrokerFiles]:
        """As the file says that the node's disk has, or as at first."""
        config, file = self._config(node.name), config_file(node.disk, "conf/broker.conf")
        said = file.read()
        if said is not None:
            kept = {key: said.values[key] for key in _IN_THE_FILE if said.values.get(key)}
            config = configure(config, Properties("broker.conf", kept), BROKER_KEYS)
        return config, BrokerFiles(node.disk, file, {} if said is None else said.values, {})

    def acknowledged(self, node: str, body: bytes) -> None:
        super().acknowledged(node, body)
        if self.acknowledged_by[-1:] != [node]:
            self.acknowledged_by.append(node)

    # --- the operator -------------------------------------------------------------------------------------------------

    async def exchange(self) -> None:
        info = await self.begin_exchange(_LIMIT_S)
        if info is None:
            return
        if not self.operator_stays:
            await trio.sleep(_LIMIT_S)
            return
        give_up_at = trio.current_time() + _SETTLES_S
        while not info.ended and trio.current_time() < give_up_at:
            await trio.sleep(_LOOKS_EVERY_S)
            now = await self.exchange_info()
            if now is not None:
                if not now.exchange_id.startswith(info.exchange_id):
                    break  # it was started again, without a note
                info = now
        self.result = info

    # --- the run ------------------------------------------------------------------------------------------------------

    async def run_with(self, incidents: tuple[Incident, ...]) -> None:
        for name in self.names:
            self.world.nodes[name].boot(self._serve)
        self.world.nodes[OPERATOR].boot(self._operate)
        self.world.start_schedule(Schedule((*self.plan.faults, *(each.fault() for each in incidents))))
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._make_tables)
            await trio.sleep_until(self.plan.begins_at_s)
            await self.exchange()
        self.world.stop_waiting()
        await trio.sleep(max([2.0, *(each.at_s + each.length_s for each in incidents)]))
        await self._look(self.is_settled, _SETTLES_S)
        await trio.sleep(1.0)
        self.is_writing = False
        await trio.sleep(4.0)
        master = self.master
        if master is not None and self.is_settled():
            await self.on_node(master, lambda: self.brokers[master].put_message(Message(TOPIC, b"the last one", 3)))
        await self._look(self._is_equal, 60.0)
        await self._look(self.has_all_tables, 30.0)

    def is_settled(self) -> bool:
        """Whether all are up, one is the master and takes puts, and no exchange is under way."""
        if not all(node.is_up and not node.is_paused for node in self.world.nodes.values()) or self.master is None:
            return False
        machines = [broker.exchange.machine for broker in self.brokers.values() if broker.exchange is not None]
        is_over = all(machine is None or machine.step is Step.ENDED for machine in machines)
        return is_over and self.brokers[self.master].store.running_flags.is_writeable

    def has_all_tables(self) -> bool:
        """Whether the slave has taken over what was made."""
        tables = [broker.remoting.metadata.topics.wrapper() for broker in self.brokers.values() if broker.remoting]
        groups = [broker.remoting.metadata.subscription_groups for broker in self.brokers.values() if broker.remoting]
        return all(set(self.topics) <= each.topic_config_table.keys() for each in tables) and all(
            set(self.groups) <= each.wrapper().subscription_group_table.keys() for each in groups
        )

    def wrong(self) -> dict[str, int]:
        counts = collections.Counter(super().wrong())
        counts.pop("truncations", None)
        counts["stuck"] = not self.is_settled()
        # Once the new master has acknowledged, the old one does not any more.
        counts["two masters"] = self.acknowledged_by not in ([OLD], [NEW], [OLD, NEW])
        if self.result is not None and self.result.ended and self.result.exchanged != (self.master == NEW):
            counts["told otherwise than it is"] = 1
        return {what: count for what, count in counts.items() if count}


def incidents_of(rng: random.Random) -> Iterator[Incident]:
    """One or two, at any step."""
    for _ in range(rng.choice([1, 1, 2])):
        step = rng.choice(STEPS)
        nth = rng.choice([1, 1, 2])
        node = OLD if step.startswith("broker.exchange.") else NEW
        at_s = rng.choice([0.0, rng.uniform(0.0, 0.05), rng.uniform(0.0, 1.0)])
        yield Incident(rng.choice(list(FAULTS)), On(step, node, nth), at_s, rng.choice([0.5, 5.0, 30.0]))


def run_faulty(
    seed: int, incidents: tuple[Incident, ...] | None = None, *, put_every_s: float | None = None
) -> FaultyExchange:
    """A run with these incidents alone, or with those of its seed, and slow links and pauses; look at `found`.

    How often a writer puts is drawn too, unless it is given.
    """
    rng = random.Random(f"faults/{seed}")
    plan = attrs.evolve(Plan.draw(rng), has_leaf=False, waits_s=0.0)
    if incidents is None:
        incidents = tuple(incidents_of(rng))
    else:
        plan = attrs.evolve(plan, faults=(), put_every_s=put_every_s or plan.put_every_s)
    if any("power" in incident.what for incident in incidents):
        plan = attrs.evolve(plan, flush=FlushDiskType.SYNC_FLUSH)  # else a power cut may take what was acknowledged
    run = FaultyExchange(plan, seed, operator_stays=rng.random() < 0.8)

    async def main(_: World) -> None:
        await run.run_with(incidents)
        run.found = run.wrong()

    run.world.run(main)
    return run


def main() -> int:
    """Exit code 1 if anything went wrong."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulation.exchange_faults", description=__doc__)
    parser.add_argument("--seeds", default="0:100", metavar="A:B", help="which runs (default 0:100)")
    begin, end = map(int, parser.parse_args().seeds.split(":"))
    logging.getLogger("rmq_actors").setLevel(logging.CRITICAL)
    amounts, outcomes = collections.Counter[str](), collections.Counter[str]()
    for seed in range(begin, end):
        run = run_faulty(seed)
        wrong = run.found
        amounts.update(wrong)
        outcomes["exchanged" if run.master == NEW else "not exchanged"] += 1
        if wrong:
            print(f"seed {seed}: {wrong}; {run.result}", flush=True)
    print(f"{end - begin} runs: {dict(outcomes)}; wrong: {dict(amounts) or 'nothing'}")
    return 1 if amounts else 0


if __name__ == "__main__":
    sys.exit(main())
