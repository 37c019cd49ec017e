"""Random runs of name servers and brokers: a case in, a result out.

While faults are made, operators change topics, move brokers, let them change roles, stop and remove them. After the
last of it every name server must say what is true, within the bounds of `name_server_world`, and go on saying it.
"""

from __future__ import annotations

import logging
import random
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import Any, Literal

import attrs
import trio
from attrs.validators import ge, le

from rmq_actors.tracing.event import Event, RunInfo
from sim_net import (
    Deadlock,
    Fault,
    Livelock,
    NodeFailed,
    Schedule,
    StepsExceeded,
    VirtualTimeExceeded,
    World,
    fault_kind,
)
from sim_net.faults.sampling import sample_fault
from sim_net.search.search import Case, Parameter
from tests.worlds.name_server_world import LiveBroker, Member, NameServerWorld, NotConverged, pair

SCENARIO = "name_server"
Outcome = Literal["passed", "invariant", "crash", "liveness"]

_LINK_KINDS = ("Delay", "Partition", "Partition", "Stall", "Reset", "Hold", "Loss", "Bandwidth")
_NODE_KINDS = ("ShortIO", "Kill", "Kill", "PowerLoss", "PowerLoss", "Pause", "Pause", "ClockJump", "ClockDrift")
_DISK_KINDS = ("DiskSlow", "DiskStuck", "DiskError", "DiskFull")
_LINK_FAULTS = 0.5
#: Every kind of fault that `random_case` draws.
CHAOS_KINDS = tuple(dict.fromkeys((*_LINK_KINDS, *_NODE_KINDS, *_DISK_KINDS)))
#: What disk errors do to stores is for other runs to show.
_WHOLE_BROKERS = 0.1
_TIMED_BY_EVENTS = 0.3
_EVENTS = ("namesrv.register", "namesrv.remove", "broker.register", "broker.unregister", "remoting.open")
#: For so long faults may wait for their event; later ones are called off.
_EVENTS_WAIT_S = 60.0
#: Around what counts here: a heartbeat's period, a request's time-out, and the time that a silent broker lives.
_LONG_S = (3.0, 7.0, 35.0, 70.0, 119.0, 130.0)
_LATER_S = (0.0, 0.0, 5.0, 31.0, 60.0)
#: What shows in a run only while something lasts: TCP's own pauses grow with a lossy time, and outlast it.
_SHORT_KINDS = ("Loss", "DiskStuck", "ShortIO", "Bandwidth")

RESERVE = "spare"
_NAMES = "abc"
_POLL_S = 0.5
_REGISTERED_S = 5.0
_DOWN_S = 0.7


@attrs.frozen
class Plan:
    """The parameters of a case: who is there, and what operators do when (in seconds; None: never).

    `moved_s`: the last master returns at another port. `switched_s`: "a-0" and "a-1" change roles. `stopped_s`: the
    last broker is stopped in order, and started again. `left_s`: the last broker of the first name loses its power for
    good. `replaced_s`: another machine takes the place of the last master, who is stopped `overlap` seconds later.
    The topics are those of whoever is the master of "broker-a".
    """

    name_servers: int = attrs.field(default=2, validator=[ge(1), le(9)])
    broker_names: int = attrs.field(default=2, validator=[ge(1), le(len(_NAMES))])
    slaves: int = attrs.field(default=1, validator=[ge(0), le(9)])
    force_register: bool = True
    compressed_register: bool = False
    period_ms: int = attrs.field(default=30_000, validator=[ge(10_000), le(60_000)])
    whole_brokers: bool = False
    created_s: float | None = None
    changed_s: float | None = None
    deleted_s: float | None = None
    moved_s: float | None = None
    switched_s: float | None = None
    stopped_s: float | None = None
    left_s: float | None = None
    replaced_s: float | None = None
    overlap: int = attrs.field(default=20, validator=ge(0))

    @classmethod
    def draw(cls, rng: random.Random) -> Plan:
        """A random one."""
        times = (None, 1.0, 6.0, 20.0, 45.0)
        return cls(
            name_servers=rng.choice((1, 2, 2, 3)),
            broker_names=rng.choice((1, 2, 3)),
            slaves=rng.choice((0, 1, 1, 2)),
            force_register=rng.choice((True, False)),
            compressed_register=rng.choice((False, True)),
            period_ms=rng.choice((10_000, 30_000)),
            whole_brokers=rng.random() < _WHOLE_BROKERS,
            overlap=rng.choice((0, 3, 20, 50)),
            **{name: rng.choice(times) for name in _OPERATIONS},
        )

    def members(self) -> list[Member]:
        """The brokers; the last one is the reserve."""
        members = [member for name in _NAMES[: self.broker_names] for member in pair(name, self.slaves)]
        return [*members, Member(RESERVE, members[-1].broker_name)]

    @property
    def last_master(self) -> str:
        """A node."""
        return f"{_NAMES[self.broker_names - 1]}-0"

    @property
    def last_broker(self) -> str:
        """A node."""
        return f"{_NAMES[self.broker_names - 1]}-{self.slaves}"

    @property
    def leaving(self) -> str:
        """A node."""
        return f"a-{self.slaves}"

    @property
    def name_server_names(self) -> list[str]:
        """The nodes of the name servers."""
        return [f"ns-{number + 1}" for number in range(self.name_servers)]

    def to_parameters(self) -> dict[str, Parameter]:
        """As the parameters of a case."""
        return attrs.asdict(self)


_OPERATIONS = tuple(field.name for field in attrs.fields(Plan) if field.name.endswith("_s"))


@attrs.frozen
class Result:
    """One run: how it ended, and everything that happened."""

    case: Case
    outcome: Outcome
    failure: str
    digest: str
    events: Sequence[Event]
    converged_s: float
    checks: int


class _InvariantBroken(Exception):
    pass


def random_case(seed: int) -> Case:
    """The case that an integer stands for."""
    rng = random.Random(f"{SCENARIO}/{seed}")
    plan = Plan.draw(rng)
    faults = tuple(_random_fault(rng, plan) for _ in range(rng.randint(1, 7)))
    return Case(seed, Schedule(faults), plan.to_parameters())


def is_runnable(case: Case) -> bool:
    """Whether the parameters make sense together and the faults name nodes that there are: a shrinker tries many."""
    try:
        plan = Plan(**case.parameters)  # type: ignore[arg-type]
    except ValueError:
        return False
    names = {*plan.name_server_names, *(member.node for member in plan.members())}
    waited_for = {fault.on.node for fault in case.schedule.faults if fault.on is not None and fault.on.node}
    return names >= {name for fault in case.schedule.faults for name in fault.nodes} | waited_for


def _random_fault(rng: random.Random, plan: Plan) -> Fault:
    servers, brokers = plan.name_server_names, [member.node for member in plan.members()[:-1]]
    events = _EVENTS if rng.random() < _TIMED_BY_EVENTS else ()
    if rng.random() < _LINK_FAULTS:
        link = rng.sample((rng.choice(servers), rng.choice(brokers)), 2)
        fault = sample_fault(rng.choice, link, kinds=_LINK_KINDS, events=events)
    else:
        kinds = _NODE_KINDS if plan.whole_brokers else (*_NODE_KINDS, *_DISK_KINDS)
        # As often a name server as a broker, of which there are more.
        node = rng.choice((rng.choice(servers), rng.choice(brokers)))
        fault = sample_fault(rng.choice, (node,), kinds=kinds, events=events)
    if fault.on is None:
        fault = attrs.evolve(fault, at_s=fault.at_s + rng.choice(_LATER_S))
    if fault_kind(fault) in _SHORT_KINDS or rng.random() < 0.5:
        return fault
    longer: dict[str, Any] = {
        name: rng.choice(_LONG_S) for name in ("down_s", "duration_s") if name in attrs.fields_dict(type(fault))
    }
    return attrs.evolve(fault, **longer)


@attrs.define(eq=False, repr=False)
class _Run:
    """The moving parts of one run."""

    case: Case
    sabotage: Callable[[World], object]
    plan: Plan = attrs.field(init=False)
    servers: NameServerWorld = attrs.field(init=False)
    converged_s: float = attrs.field(default=0.0, init=False)
    checks: int = attrs.field(default=0, init=False)
    #: Processes that knew a master at some time.
    _with_master: dict[tuple[str, int], None] = attrs.field(factory=dict, init=False)

    def __attrs_post_init__(self) -> None:
        plan = self.plan = Plan(**self.case.parameters)  # type: ignore[arg-type]
        self.servers = NameServerWorld(
            plan.members(),
            self.case.seed,
            plan.name_server_names,
            (RESERVE,),
            () if plan.replaced_s is None else (plan.members()[-1].broker_name,),
            {
                "force_register": plan.force_register,
                "compressed_register": plan.compressed_register,
                "register_name_server_period_ms": plan.period_ms,
            },
            whole_brokers=plan.whole_brokers,
            run_info=RunInfo("chaos", SCENARIO, self.case.seed, self.case.to_json()),
        )

    async def main(self, world: World) -> None:
        """Boot, break, and wait until all is well again."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._watch)
            world.start_schedule(self.case.schedule)
            self.sabotage(world)
            self.servers.boot()
            async with trio.open_nursery() as operators:
                for name, operation in self._operations().items():
                    at_s = getattr(self.plan, name)
                    if at_s is not None:
                        operators.start_soon(self._operate, at_s, operation)
                operators.start_soon(self._outlast_faults, world)
            self.converged_s = await self.servers.settle()
            nursery.cancel_scope.cancel()

    async def _outlast_faults(self, world: World) -> None:
        if any(fault.on is not None for fault in self.case.schedule.faults):
            await trio.sleep(_EVENTS_WAIT_S)
        await trio.sleep_until(self.case.schedule.ends_s)
        world.stop_waiting()
        await trio.sleep_until(world.faults_end_s)

    # --- what operators do --------------------------------------------------------------------------------------------

    def _operations(self) -> Mapping[str, Callable[[], Awaitable[None]]]:
        return {
            "created_s": partial(self._set_topic, "Created", 6),
            "changed_s": partial(self._set_topic, "Created", 4),
            "deleted_s": self._delete_topic,
            "moved_s": self._move,
            "switched_s": self._switch,
            "stopped_s": self._stop,
            "left_s": self._leave,
            "replaced_s": self._replace,
        }

    async def _operate(self, at_s: float, operation: Callable[[], Awaitable[None]]) -> None:
        await trio.sleep_until(at_s)
        await operation()

    async def _set_topic(self, topic: str, perm: int) -> None:
        await self._on_master(lambda broker: broker.set_topic(topic, perm=perm))

    async def _delete_topic(self) -> None:
        await self._on_master(lambda broker: broker.remoting.topic_config_manager.delete_topic_config("Created"))

    async def _on_master(self, change: Callable[[LiveBroker], Awaitable[object]]) -> None:
        """Have the master of broker-a change its topics, if there is one that can; nobody tries again."""
        for name, broker in self.servers.brokers.items():
            if (broker.member.broker_name, broker.member.broker_id) == ("broker-a", 0):
                self.servers.nodes[name].start_soon(self._try, partial(change, broker))
                return

    @staticmethod
    async def _try(change: Callable[[], Awaitable[object]]) -> None:
        try:
            await change()
        except OSError as error:
            logging.getLogger(__name__).info("topics are not changed: %s", error)

    async def _move(self) -> None:
        name = self.plan.last_master
        self.servers.configure(name, port=self.servers.members[name].port + 10)
        await self._kill(name)

    async def _switch(self) -> None:
        if not self.plan.slaves or (self.plan.replaced_s is not None and self.plan.broker_names == 1):
            return  # there is nobody, or there would be two masters for good
        ids = {name: self.servers.members[name].broker_id for name in ("a-0", "a-1")}
        for name, broker_id in zip(ids, reversed(ids.values()), strict=True):
            self.servers.configure(name, broker_id=broker_id)
        async with trio.open_nursery() as nursery:
            for name in ids:
                nursery.start_soon(self._kill, name)

    async def _kill(self, name: str) -> None:
        """Kill a broker, if it runs, and start it again."""
        node = self.servers.nodes[name]
        if node.is_up:
            node.kill()
            await self._start_later(name)

    async def _stop(self) -> None:
        """Stop a broker in order, if it runs, and start it again."""
        name = self.plan.last_broker
        if name in self.servers.brokers:
            self.servers.brokers[name].stopping.set()
            await self.servers.nodes[name].wait_down()
            await self._start_later(name)

    async def _replace(self) -> None:
        """What is down is not started again: its machine is given away."""
        self.servers.boot(RESERVE)
        await trio.sleep(self.plan.overlap)
        node = self.servers.nodes[self.plan.last_master]
        node.begin_outage(restart=False)
        if node.name in self.servers.brokers:
            self.servers.brokers[node.name].stopping.set()
            await node.wait_down()
        elif node.is_up:
            node.kill()

    async def _start_later(self, name: str) -> None:
        start = self.servers.nodes[name].begin_outage(restart=True)
        await trio.sleep(_DOWN_S)
        start()

    async def _leave(self) -> None:
        node = self.servers.nodes[self.plan.leaving]
        node.power_loss()
        node.begin_outage(restart=False)  # nobody ends it

    # --- what must always be true -------------------------------------------------------------------------------------

    async def _watch(self) -> None:
        """Look at what everybody knows, as often as anything happens."""
        unharmed, events = self._unharmed(), 0
        while True:
            await trio.sleep(_POLL_S)
            if events == len(self.servers.recorder.events):
                continue
            events = len(self.servers.recorder.events)
            for name in self.servers.name_servers:
                self.checks += 1
                known = self.servers.known(name)
                for key, address in known.brokers.items():
                    if (*key, address) not in self.servers.addresses:
                        raise _InvariantBroken(f"{name} has {key} at {address}, where it never was")
                self._check_unharmed(name, known.brokers, unharmed)
            self._check_slaves()

    def _check_unharmed(
        self, name: str, known: Mapping[tuple[str, str, int], str], unharmed: Sequence[tuple[float, str, Member]]
    ) -> None:
        for since_s, name_server, member in unharmed:
            key = member.cluster_name, member.broker_name, member.broker_id
            address = f"{self.servers.nodes[member.node].address}:{member.port}"
            if name_server == name and trio.current_time() > since_s and known.get(key) != address:
                raise _InvariantBroken(f"{name} has {key} at {known.get(key)}, and nothing ever happened to {address}")

    def _check_slaves(self) -> None:
        for name, broker in self.servers.brokers.items():
            incarnation = name, self.servers.nodes[name].incarnation
            if broker.master.master_addr is not None:
                self._with_master[incarnation] = None
            elif incarnation in self._with_master:
                raise _InvariantBroken(f"{name} has forgotten its master")

    def _unharmed(self) -> list[tuple[float, str, Member]]:
        """Since when, name servers and brokers that no fault and no operator comes between."""
        plan = self.plan
        links = {frozenset(fault.nodes) for fault in self.case.schedule.faults}
        touched = {
            *({"a-0", "a-1"} if plan.switched_s is not None else {}),
            *({plan.last_master} if plan.moved_s is not None or plan.replaced_s is not None else {}),
            *({plan.last_broker} if plan.stopped_s is not None else {}),
            *({plan.leaving} if plan.left_s is not None else {}),
        }
        since_s = dict.fromkeys(self.servers.members, _REGISTERED_S)
        returns_anew = plan.moved_s is not None or (plan.stopped_s is not None and not plan.slaves)
        if plan.replaced_s is None or returns_anew:
            touched.add(RESERVE)  # one that moves, or was stopped and started, claims its place again
        else:
            since_s[RESERVE] = plan.replaced_s + _REGISTERED_S
        return [
            (since_s[member.node], name, member)
            for name in plan.name_server_names
            for member in plan.members()
            if member.node not in touched
            and not {frozenset({name}), frozenset({member.node}), frozenset({name, member.node})} & links
        ]


def run_case(case: Case, *, sabotage: Callable[[World], object] = lambda _: None) -> Result:
    """Run a case in a fresh world. Never raises for what the run did wrong: the outcome says it.

    `sabotage` is called as the run begins, and may break what no fault mends: it tests that the runs can fail.
    """
    run = _Run(case, sabotage)
    outcome, failure = _outcome(run)
    servers = run.servers
    return Result(case, outcome, failure, servers.world.digest, servers.recorder.events, run.converged_s, run.checks)


def _outcome(run: _Run) -> tuple[Outcome, str]:
    try:
        run.servers.world.run(run.main)
    except BaseExceptionGroup as group:
        broken, stuck = group.subgroup(_InvariantBroken), group.subgroup(NotConverged)
        if broken is not None:
            return "invariant", str(_leaf(broken))
        if stuck is not None:
            return "liveness", str(_leaf(stuck))
        raise
    except NodeFailed as error:
        return "crash", str(error)
    except (Deadlock, Livelock, StepsExceeded, VirtualTimeExceeded) as error:
        return "liveness", str(error)
    return ("crash", run.servers.crashes[0]) if run.servers.crashes else ("passed", "")


def _leaf(error: BaseException) -> BaseException:
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error
