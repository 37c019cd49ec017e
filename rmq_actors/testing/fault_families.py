"""The faults that a scenario draws: which kinds, how many, and where."""

from __future__ import annotations

import random
from collections.abc import Sequence

import attrs

from rmq_actors.store.files.layout import COMMIT_LOG_DIRECTORY
from rmq_actors.testing.fault_family_checks import (
    check_disk_errors,
    check_events,
    check_links,
    check_nodes,
    check_number,
    check_operations,
    check_share,
)
from rmq_actors.testing.operation import OPERATIONS, draw_operations
from rmq_actors.testing.topology import CONSUMERS, NAME_SERVER, OTHER_CONSUMERS, PRODUCERS, Topology
from sim_net import BitRot, DiskError, DiskFull, DiskStuck, Fault, Kill, On, Partition, Pause, PowerLoss, Schedule
from sim_net.faults.sampling import sample_fault

LINK_KINDS = ("Delay", "Partition", "Stall", "Reset", "Hold", "Loss", "Bandwidth")
NODE_KINDS = (
    "ShortIO",
    "Kill",
    "Kill",
    "PowerLoss",
    "Pause",
    "ClockJump",
    "ClockDrift",
    "DiskSlow",
    "DiskStuck",
    "DiskError",
    "DiskFull",
)
#: How often a fault is one of a link, and how often one may wait for an event of these kinds.
_LINK_FAULTS = 0.5
_TIMED_BY_EVENTS = 0.4
_EVENTS = ("log.append", "log.roll", "log.flush", "ha.transfer", "ha.client.report", "ha.replicated", "put.begin")
#: How many faults the links of clients have.
_OF_CLIENTS = (0, 1, 2)
#: The same where there are consumer groups.
_OF_GROUPS = (0, 1, 2, 4)
#: How many faults name servers have, how often one is of the name server itself, and which.
_OF_NAME_SERVERS = (1, 2, 3, 4)
_AT_NAME_SERVERS = 0.7
_KINDS_AT_NAME_SERVERS = ("Kill", "Kill", "Kill", "Pause")
#: When all servers stand still, and for how long: longer than a broker may be silent.
_STANDSTILLS_AT_S, _STANDSTILL_S = (3.0, 20.0, 40.0), 135.0
#: How often power is lost right after an append of the same node.
_AT_AN_APPEND = 0.7
#: How long a node goes on with a disk that fails before it crashes, and how long it is down.
_CRASH_AFTER_S = (0.01, 0.1, 0.3, 0.7, 1.5, 3.0)
_DOWN_S = (0.01, 0.5, 3.0)
_POWER_IS_LOST = 0.7
#: When a disk begins to wait for an operation that it lets fail, how long it does, and how many of them fail.
_WAITS_FROM_S, _WAITS_S = (0.5, 2.0, 6.0, 15.0, 30.0), 60.0
_ERRORS = (1, 1, 1, 3)
#: How long after the error such a broker crashes, and after the how manieth of all.
_AFTER_AN_ERROR_S = (0.0, 0.0003, 0.003, 0.03, 0.3, 3.0)
_NTH_MET = (1, 1, 1, 2)
#: How long after a broker's process begins again it crashes once more: within its start, or as it follows.
_AGAIN_AFTER_S = (0.0003, 0.001, 0.003, 0.01, 0.03, 0.3)
#: Which operation of a kind a disk fails at first.
_NTH_ERROR = (1, 1, 2, 3)
#: After which of a node's events a fault comes, and how long after it.
_NTH = (1, 1, 2, 3, 5, 8)
_RIGHT_AFTER_S = (0.0, 0.0, 0.0003, 0.003, 0.03)


@attrs.frozen
class FaultFamilies:
    """From `fewest` to `most` faults of these kinds; one that is named twice comes twice as often.

    What is not given is of all kinds: for faults of links alone say `nodes=()`.

    Each is one of a link with the chance `link_faults`: of the master's, or with the chance `any_link` of one between
    any two brokers. With the chance `all_slaves` all slaves are cut off at once, and with `rot` a bit flips in a
    slave's log. A fault may wait for one of `events`, with the chance `timed_by_events`. A power loss comes right after
    an append with the chance `at_an_append`, and any fault of a node right after one of `events` there with the chance
    `at_own_events`. An error of a disk is of one of `disk_errors`, an operation and a part of a path, if there are any.
    With the chance `errors_wait` such an error comes whenever the disk does that, also long after the fault begins.
    A node whose disk fails crashes a little later with the chance `crash_soon`, by a power loss or a kill; one that
    crashes does so once more in its next start, or soon after it, with the chance `crash_again`. With the chance
    `standstills` brokers and name server stand still at once, as machines of a suspended host do. Up to
    `operations_most` of `operations` (see `Operation`) come on top, most of them at one of `operation_events`, if there
    are any. Times come from small sets, so that faults meet each other.

    Raises ValueError naming the field for what cannot be drawn. Kinds of events are those that are registered by then.
    """

    links: tuple[str, ...] = attrs.field(default=LINK_KINDS, validator=check_links)
    nodes: tuple[str, ...] = attrs.field(default=NODE_KINDS, validator=check_nodes)
    fewest: int = attrs.field(default=2, validator=check_number)
    most: int = attrs.field(default=7, validator=check_number)
    any_link: float = attrs.field(default=0.0, validator=check_share)
    all_slaves: float = attrs.field(default=0.25, validator=check_share)
    rot: float = attrs.field(default=0.0, validator=check_share)
    events: tuple[str, ...] = attrs.field(default=_EVENTS, validator=check_events)
    timed_by_events: float = attrs.field(default=_TIMED_BY_EVENTS, validator=check_share)
    at_an_append: float = attrs.field(default=_AT_AN_APPEND, validator=check_share)
    at_own_events: float = attrs.field(default=0.0, validator=check_share)
    link_faults: float = attrs.field(default=_LINK_FAULTS, validator=check_share)
    errors_wait: float = attrs.field(default=0.0, validator=check_share)
    crash_soon: float = attrs.field(default=0.0, validator=check_share)
    crash_again: float = attrs.field(default=0.0, validator=check_share)
    standstills: float = attrs.field(default=0.0, validator=check_share)
    disk_errors: tuple[tuple[str, str], ...] = attrs.field(default=(), validator=check_disk_errors)
    operations: tuple[str, ...] = attrs.field(default=OPERATIONS, validator=check_operations)
    operations_most: int = attrs.field(default=0, validator=check_number)
    operation_events: tuple[str, ...] = attrs.field(default=(), validator=check_events)

    def __attrs_post_init__(self) -> None:
        if self.fewest > self.most:
            raise ValueError(
                f"FaultFamilies.fewest must be at most FaultFamilies.most: from {self.fewest} to {self.most} "
                "faults are none"
            )
        if self.most and not (*self.links, *self.nodes):
            raise ValueError("FaultFamilies: faults must be of links or of nodes: neither has a kind")
        if not self.events:
            for name, share in (("timed_by_events", self.timed_by_events), ("at_own_events", self.at_own_events)):
                if share:
                    raise ValueError(f"FaultFamilies.events has no kind to wait for: FaultFamilies.{name} must be 0")
        if self.operations_most and not self.operations:
            raise ValueError("FaultFamilies.operations has none to draw: FaultFamilies.operations_most must be 0")

    @property
    def kinds(self) -> tuple[str, ...]:
        """Every kind that may be drawn, once."""
        rot = (BitRot.__name__,) if self.rot else ()
        return tuple(dict.fromkeys((*self.links, *self.nodes, *rot)))

    def draw(self, rng: random.Random, seed: int, topology: Topology, *, master_may_lose_power: bool) -> Schedule:
        """The faults of a seed. Without `master_may_lose_power` no power loss is the first master's."""
        may_lose_power = topology.names if master_may_lose_power else topology.slaves
        count = rng.randint(self.fewest, self.most)
        faults = [self._fault(rng, topology, may_lose_power) for _ in range(count)]
        if self.crash_soon:
            faults = self._with_crashes(random.Random(f"crashes/{seed}"), faults, may_lose_power)
        if self.crash_again:
            faults = self._with_second_crashes(random.Random(f"again/{seed}"), faults, may_lose_power)
        if rng.random() < self.all_slaves:
            # While one slave is well every put is confirmed: what time-outs do shows only when none is.
            at_s, duration_s = rng.choice((0.5, 1.0, 2.0)), rng.choice((2.0, 6.0, 25.0))
            faults += [Partition(at_s, duration_s, topology.master, slave) for slave in topology.slaves]
        if self.rot:
            faults += self._rot(random.Random(f"rot/{seed}"), topology.slaves)
        if self.operations_most:
            operations = random.Random(f"operations/{seed}")
            faults += draw_operations(
                operations,
                topology.names,
                operations.randint(1, self.operations_most),
                self.operations,
                self.operation_events,
            )
        return Schedule(tuple(faults))

    def draw_for_clients(
        self, rng: random.Random, topology: Topology, machines: Sequence[str] = (PRODUCERS, CONSUMERS)
    ) -> list[Fault]:
        """Faults of links between brokers and clients: answers are lost, so that messages are sent again."""
        count = rng.choice(_OF_CLIENTS if OTHER_CONSUMERS not in machines else _OF_GROUPS) if self.links else 0
        links = [rng.sample((rng.choice(topology.names), rng.choice(machines)), 2) for _ in range(count)]
        faults = [sample_fault(rng.choice, link, kinds=self.links, events=self._events(rng)) for link in links]
        if NAME_SERVER in machines and rng.random() < self.standstills:
            at_s = rng.choice(_STANDSTILLS_AT_S)
            faults += [Pause(at_s, _STANDSTILL_S, name) for name in (NAME_SERVER, *topology.names)]
        return faults

    def draw_for_name_servers(self, rng: random.Random, topology: Topology, name_servers: Sequence[str]) -> list[Fault]:
        """Name servers die and are back with nothing, stand still, or lose brokers' connections."""
        faults: list[Fault] = []
        for _ in range(rng.choice(_OF_NAME_SERVERS)):
            name_server = rng.choice(name_servers)
            if rng.random() < _AT_NAME_SERVERS:
                faults.append(sample_fault(rng.choice, (name_server,), kinds=_KINDS_AT_NAME_SERVERS))
            else:
                link = rng.sample((rng.choice(topology.names), name_server), 2)
                faults.append(sample_fault(rng.choice, link, kinds=self.links))
        return faults

    def _fault(self, rng: random.Random, topology: Topology, may_lose_power: Sequence[str]) -> Fault:
        """A fault of a link, or of a node."""
        share = self.link_faults if self.links and self.nodes else float(bool(self.links))
        if rng.random() < share:
            link = rng.sample((topology.master, rng.choice(topology.slaves)), 2)
            if self.any_link and rng.random() < self.any_link:
                link = rng.sample(topology.names, 2)
            return sample_fault(rng.choice, link, kinds=self.links, events=self._events(rng))
        if self.at_own_events and rng.random() < self.at_own_events:
            return self._at_an_event(rng, topology, may_lose_power)
        kind = rng.choice(self.nodes)
        if kind == PowerLoss.__name__:
            return self._power_loss(rng, rng.choice(may_lose_power))
        return sample_fault(rng.choice, topology.names, kinds=(kind,), events=self._events(rng))

    def _at_an_event(self, rng: random.Random, topology: Topology, may_lose_power: Sequence[str]) -> Fault:
        """A fault of a node right after it has told something."""
        kind = rng.choice(self.nodes)
        names = may_lose_power if kind == PowerLoss.__name__ else topology.names
        fault = sample_fault(rng.choice, (rng.choice(names),), kinds=(kind,))
        on = On(rng.choice(self.events), fault.nodes[0], rng.choice(_NTH))
        return attrs.evolve(fault, at_s=rng.choice(_RIGHT_AFTER_S), on=on)

    def _with_crashes(self, rng: random.Random, faults: Sequence[Fault], may_lose_power: Sequence[str]) -> list[Fault]:
        """The faults, errors of disks where they tell, and crashes soon after what a disk does wrong."""
        found: list[Fault] = []
        for fault in faults:
            if not isinstance(fault, DiskError | DiskFull | DiskStuck):
                found.append(fault)
                continue
            waits = isinstance(fault, DiskError) and self.errors_wait > 0 and rng.random() < self.errors_wait
            found.append(self._where_it_tells(rng, fault) if isinstance(fault, DiskError) else fault)
            if waits:
                found[-1:] = self._waiting_error(rng, found[-1], may_lose_power)
            elif rng.random() < self.crash_soon:
                at_s, down_s = fault.at_s + rng.choice(_CRASH_AFTER_S), rng.choice(_DOWN_S)
                crash = PowerLoss if fault.node in may_lose_power and rng.random() < _POWER_IS_LOST else Kill
                found.append(crash(round(at_s, 4), fault.node, down_s, on=fault.on))
        return found

    def _waiting_error(self, rng: random.Random, error: Fault, may_lose_power: Sequence[str]) -> list[Fault]:
        """The error whenever its operation comes, and perhaps a crash right after the broker has met it."""
        assert isinstance(error, DiskError)
        error = attrs.evolve(
            error, at_s=rng.choice(_WAITS_FROM_S), on=None, duration_s=_WAITS_S, count=rng.choice(_ERRORS), nth=1
        )
        if rng.random() >= self.crash_soon:
            return [error]
        crash = PowerLoss if error.node in may_lose_power and rng.random() < _POWER_IS_LOST else Kill
        met = On("storage.error", error.node, rng.choice(_NTH_MET))
        return [error, crash(rng.choice(_AFTER_AN_ERROR_S), error.node, rng.choice(_DOWN_S), on=met)]

    def _with_second_crashes(
        self, rng: random.Random, faults: Sequence[Fault], may_lose_power: Sequence[str]
    ) -> list[Fault]:
        """The faults, and what strikes a broker again that comes back from one."""
        found: list[Fault] = []
        for fault in faults:
            found.append(fault)
            if isinstance(fault, Kill | PowerLoss) and rng.random() < self.crash_again:
                at_s = fault.at_s + fault.down_s + rng.choice(_AGAIN_AFTER_S)
                crash = PowerLoss if fault.node in may_lose_power and rng.random() < _POWER_IS_LOST else Kill
                found.append(crash(round(at_s, 4), fault.node, rng.choice(_DOWN_S), on=fault.on))
        return found

    def _where_it_tells(self, rng: random.Random, error: DiskError) -> DiskError:
        operation, path = rng.choice(self.disk_errors) if self.disk_errors else (error.operation, error.path)
        return attrs.evolve(error, operation=operation, path=path, nth=rng.choice(_NTH_ERROR))

    def _rot(self, rng: random.Random, slaves: Sequence[str]) -> list[Fault]:
        if rng.random() >= self.rot:
            return []
        fault = sample_fault(rng.choice, slaves, kinds=(BitRot.__name__,), events=self._events(rng))
        assert isinstance(fault, BitRot)
        return [attrs.evolve(fault, path=f"{COMMIT_LOG_DIRECTORY}/")]

    def _power_loss(self, rng: random.Random, node: str) -> Fault:
        """Mostly right after an append of the node, where there is something to lose."""
        fault = sample_fault(rng.choice, (node,), kinds=(PowerLoss.__name__,), events=self._events(rng))
        if rng.random() < self.at_an_append:
            on = On("log.append", node, rng.choice((1, 2, 3, 5, 8, 13, 21)))
            return attrs.evolve(fault, at_s=rng.choice((0.0, 0.0003, 0.003)), on=on)
        return fault

    def _events(self, rng: random.Random) -> Sequence[str]:
        return self.events if rng.random() < self.timed_by_events else ()
