"""One run of a scenario: brokers in a simulated world, clients, an operator, and faults; what must hold in the end."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import attrs
import trio

from rmq_actors.broker.broker_controller import BrokerController
from rmq_actors.broker.log_truncation_service import RETRY_INTERVAL_S
from rmq_actors.broker.role_changes import RoleChangeFailed
from rmq_actors.protocols.put_completion import PutStatus
from rmq_actors.testing.account_clients import AccountClients
from rmq_actors.testing.application_clients import ApplicationClients
from rmq_actors.testing.brokers import BrokersUnderTest, brokers_under_test
from rmq_actors.testing.clients import Writers
from rmq_actors.testing.errand_clients import ErrandClients
from rmq_actors.testing.judge import Broken, Judge
from rmq_actors.testing.observation import FaultObserver
from rmq_actors.testing.operators import Operator, done_by
from rmq_actors.testing.remote_clients import RemoteClients
from rmq_actors.testing.rest import tell_of_rest
from rmq_actors.testing.run_ends import InvariantBroken, LimitReached, NotConverged
from rmq_actors.testing.scenario import Scenario
from rmq_actors.testing.settings_clients import SettingsClients
from rmq_actors.testing.sim_brokers import Beside
from rmq_actors.testing.sim_trace import open_sim_recorder
from rmq_actors.testing.stranger_clients import StrangerClients
from rmq_actors.testing.table_clients import TableClients
from rmq_actors.testing.topic_clients import TopicClients
from rmq_actors.testing.transactional_clients import TransactionalClients
from rmq_actors.testing.view import ClusterView
from rmq_actors.testing.workload import Workload
from rmq_actors.tracing.event import Event, RunInfo
from rmq_actors.tracing.events.actor import ActorCrash
from rmq_actors.tracing.events.broker import BrokerRoleEvent, BrokerSlaveSynchronize
from rmq_actors.tracing.events.consumer import ConsumerQueue
from rmq_actors.tracing.events.ha import HaClientHalt, HaConnectionClose, HaConnectionOpen
from rmq_actors.tracing.events.namesrv import NamesrvRegister, NamesrvRemove
from rmq_actors.tracing.events.run import (
    ClientCall,
    ClientConsume,
    ClientMember,
    ClientTable,
    FaultObserved,
    InvariantBrokenEvent,
    NameServerEmpty,
    NameServerTells,
)
from rmq_actors.tracing.events.store import LogAppend, PutEnd, StoreDispatch, StoreOpen
from rmq_actors.tracing.recorder import Recorder
from sim_net import World
from sim_net.search.search import Case

_LOOK_EVERY_S = 0.1
_LAST_SENDS_MAX = 3
#: How long faults may wait for their event before they are called off.
_EVENTS_WAIT_S = 5.0
#: After one of these events, what the harness waits for may be true.
_MOVES: tuple[type[Event], ...] = (
    StoreDispatch,
    ActorCrash,
    LogAppend,
    PutEnd,
    StoreOpen,
    HaConnectionOpen,
    HaConnectionClose,
    HaClientHalt,
    BrokerRoleEvent,
    BrokerSlaveSynchronize,
    ClientTable,
)
#: What clients and name servers tell of themselves, at their machines.
_OF_OTHERS = (
    *(ClientCall, ClientConsume, ClientMember, ConsumerQueue),
    *(NamesrvRegister, NamesrvRemove, NameServerEmpty, NameServerTells),
)


@attrs.define(eq=False, repr=False)
class ReplicationRun:
    """The moving parts of one run of a scenario."""

    case: Case
    world: World
    info: RunInfo
    scenario: Scenario
    sabotage: Callable[[World], object]
    workload: Workload = attrs.field(init=False)
    recorder: Recorder = attrs.field(init=False)
    brokers: BrokersUnderTest = attrs.field(init=False)
    clients: Writers = attrs.field(init=False)
    table_clients: TableClients = attrs.field(init=False)
    operator: Operator = attrs.field(init=False)
    judge: Judge = attrs.field(init=False)
    observer: FaultObserver = attrs.field(init=False)
    crashes: list[str] = attrs.field(factory=list, init=False)
    reached_limit: bool = attrs.field(default=False, init=False)
    _broken: trio.Event = attrs.field(factory=trio.Event, init=False)
    _moved: trio.Event = attrs.field(factory=trio.Event, init=False)

    def __attrs_post_init__(self) -> None:
        self.workload = Workload.of(self.case.parameters)
        self.recorder = open_sim_recorder(self.world, self.info)
        scenario = self.scenario
        self.brokers = brokers_under_test(
            self.world,
            self.recorder,
            scenario.topology,
            self.workload,
            scenario.store,
            changes_roles=scenario.operator.changes_roles,
            keeps_files=scenario.operator.takes_orders,
        )
        self.judge = Judge(self.view, [make() for make in scenario.invariants], self._on_broken, self._on_limit)
        self.observer = FaultObserver(self.recorder, self.case.schedule, self.view)
        self.recorder.subscribe(self._of_brokers(self.judge.observe), self.judge.kinds)
        self.brokers.follow_promotions(self.view)
        self.recorder.subscribe(self._of_brokers(self.observer.observe), self.observer.kinds)
        self.recorder.subscribe(self._on_crash, [ActorCrash])
        self.recorder.subscribe(self._on_move, _MOVES)
        self.clients = _clients_of(self.workload)(self.brokers)
        self.table_clients = TableClients(self.brokers)
        self.operator = scenario.operator(self.brokers, self.clients)

    @property
    def view(self) -> ClusterView:
        """What the trace tells of the brokers."""
        return self.brokers.view

    def _of_brokers(self, observe: Callable[[Event], object]) -> Callable[[Event], object]:
        """`observe`, for events of brokers alone: clients have machines, too."""
        if not self.workload.clients and not self.workload.name_servers:
            return observe
        names = frozenset((*self.brokers.names, ""))

        def observe_brokers(event: Event) -> None:
            if event.node in names or isinstance(event, _OF_OTHERS):
                observe(event)

        return observe_brokers

    # --- what is told -----------------------------------------------------------------------------------------------

    def _on_broken(self, broken: Broken) -> None:
        self.recorder.record(InvariantBrokenEvent(status=broken.invariant, detail=broken.detail))
        self._broken.set()

    def _on_limit(self, name: str, what: str) -> None:
        self.recorder.record(FaultObserved(status=name, detail=what), actor="Judge")
        self.observer.observed.add(name)
        self.reached_limit = True
        self._broken.set()

    def _on_crash(self, event: ActorCrash) -> None:
        # A supervisor may restart it; it is a fault of the product all the same.
        is_of_a_role = event.status == RoleChangeFailed.__name__  # of a broker, then
        if is_of_a_role and (self.brokers.met_disk_error(event.node) or self.view.nodes[event.node].rotten):
            return  # a disk's fault spoils a change of role: the process ends, and is started again
        self.crashes.append(f"{event.actor} of {event.node}: {event.status}: {event.detail}")

    def _on_move(self, event: Event) -> None:
        self._moved.set()

    async def wait_for(self, predicate: Callable[[], bool], timeout_s: float) -> bool:
        """Return when `predicate` is true, or after `timeout_s`; whether it is."""
        with trio.move_on_after(timeout_s):
            while not predicate():
                self._moved = trio.Event()
                await self._moved.wait()
        return predicate()

    # --- the run ----------------------------------------------------------------------------------------------------

    async def main(self, world: World) -> None:
        """Boot, break, wait until all is well again, stop, and look at what is left."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._end_when_broken)
            self.operator.start(nursery)
            self.clients.start(nursery)
            world.start_schedule(self.case.schedule)
            self.sabotage(world)
            self.brokers.boot(beside=self._beside)
            self.clients.boot()
            await done_by(self.operator.act)
            await self._outlast_faults()
            if not await self.wait_for(self._is_well, self._converges_in_s):
                raise NotConverged(self._state())
            await self._last_put()
            await self._last_read()
            if not await self.wait_for(self._is_at_rest, self._converges_in_s):
                raise NotConverged(f"{self._state()}, and delayed messages wait")
            if self.workload.rests_s:
                await tell_of_rest(self.brokers, self.workload.rests_s)
            await self._stop_brokers()
            self.judge.check_end(len(self.recorder.events))
            nursery.cancel_scope.cancel()

    def _beside(self, name: str) -> Iterable[Beside]:
        yield from self.clients.beside(name)
        yield from self.table_clients.beside(name)
        yield from self.operator.beside(name)

    async def _outlast_faults(self) -> None:
        """Wait until all faults are over, then let the operator restart brokers that cannot write any more."""
        if any(fault.on is not None for fault in self.case.schedule.faults):
            await trio.sleep(_EVENTS_WAIT_S)
        await trio.sleep_until(self.case.schedule.ends_s)
        self.world.stop_waiting()
        await trio.sleep_until(self.world.faults_end_s)
        await done_by(self.operator.settle)
        await self.operator.restart_unwriteable()
        if self.operator.changes_roles:
            await self._end_quiet()

    async def _end_quiet(self) -> None:
        """Put once more where a slave waits for that: see `docs/invariants.md`, what is not promised."""
        await self.wait_for(
            lambda: not self.view.without_log and self.view.master.name == self.brokers.master,
            self.scenario.converges_in_s,
        )
        if self.view.needs_a_put:
            self.clients.put_once_more()

    @property
    def _converges_in_s(self) -> float:
        """How long convergence may take: a truncation that a disk has prevented is tried again after a while."""
        is_tried_again = self.operator.changes_roles and self.workload.divergence == "setting"
        return self.scenario.converges_in_s + (RETRY_INTERVAL_S if is_tried_again else 0)

    async def _end_when_broken(self) -> None:
        await self._broken.wait()
        if self.reached_limit:
            raise LimitReached
        raise InvariantBroken

    def _is_well(self) -> bool:
        brokers = self.brokers
        if len(brokers.running) < len(brokers.names):
            return False
        master = brokers.broker(brokers.master)
        return (
            self.clients.puts_left <= 0
            and not self.view.unanswered
            and self.view.master.name == brokers.master
            and self.view.converged
            and self._halts_are_final
            and not master.config.is_slave
            and self._connections(master) == self._followers
            and master.store.running_flags.is_writeable
            and self.table_clients.agree
            and self.clients.are_done
            and all(map(self.clients.has_let_go, brokers.names))
            and self.clients.has_all_delayed(master)
        )

    def _connections(self, master: BrokerController) -> int:
        """How many connections of slaves a master has: strangers have some, too."""
        peers = (each.peer.rpartition(":")[0] for each in master.ha_service.connections.values())
        return sum(self.view.node_of(host) != "" for host in peers)

    def _is_at_rest(self) -> bool:
        """Whether nothing is under way at the end: what a consumer had given up to send back may have come since."""
        return self.clients.has_all_delayed(self.brokers.broker(self.brokers.master)) and self.view.converged

    @property
    def _halts_are_final(self) -> bool:
        """Whether halted slaves stay halted: they know where they diverge, and nobody will cut their logs."""
        followed = [self.brokers.broker(name).followed_master for name in self.view.halted]
        return not followed or (
            self.workload.divergence == "halt"
            and all(each and each.halted and each.halted.common_end is not None for each in followed)
        )

    def _state(self) -> str:
        ends = ", ".join(f"{name} ends at {self.view.nodes[name].end}" for name in self.brokers.names)
        brokers = self.brokers
        is_up = brokers.master in brokers.running
        connections = self._connections(brokers.broker(brokers.master)) if is_up else 0
        halted = f" but {', '.join(sorted(self.view.halted))}, halted," if self.view.halted else ""
        tables = "" if not is_up or self.table_clients.agree else ", not all tables are the master's"
        return (
            f"{self._converges_in_s:g} s after the last fault: {ends};{halted} {connections} connections "
            f"of {self.brokers.master}, {self.clients.puts_left} puts left, {self.view.unanswered} unanswered{tables}"
        )

    @property
    def _followers(self) -> int:
        """How many slaves are to follow the master: all that have not halted."""
        return len(self.brokers.names) - 1 - len(self.view.halted)

    async def _last_put(self) -> None:
        """With every fault over, a put must be confirmed, if there are slaves enough, and reach every slave."""
        # The network has a client's request for a while, in which a slave may still be lost: it may send again.
        for tries_left in reversed(range(_LAST_SENDS_MAX if self.workload.clients else 1)):
            with trio.move_on_after(self.scenario.converges_in_s) as waiting:
                slaves = await self._wait_for_followers()
                status, end = await self.clients.put_last(self.brokers.master)
            if waiting.cancelled_caught:
                raise NotConverged(self._state())
            if (status is PutStatus.PUT_OK) is (slaves >= self.workload.acks):
                break
            if not tries_left:
                raise NotConverged(f"with every fault over, a put is answered {status.value}")
        # A transient pool's puts are answered before they are in the log.
        if not await self.wait_for(
            lambda: self.view.converged and self.view.master.end >= end, self.scenario.converges_in_s
        ):
            raise NotConverged(self._state())

    async def _wait_for_followers(self) -> int:
        """Return when all slaves follow that have not halted: how many these are."""
        master = self.brokers.broker(self.brokers.master)
        # A slave that is connected may still compare its log, and then begin again, or halt.
        while sum(each.ack_offset is not None for each in master.ha_service.slave_statuses()) < self._followers:  # noqa: ASYNC110
            await trio.sleep(_LOOK_EVERY_S)
        slaves = self._followers
        await master.store.wait_for_slaves(slaves)
        return slaves

    async def _last_read(self) -> None:
        """With every fault over, consumers get every message, and slaves what they have committed."""
        with trio.move_on_after(self.scenario.converges_in_s) as waiting:
            await self.clients.read_all(self.brokers.master)
            await self.clients.stop()
        if waiting.cancelled_caught:
            raise NotConverged(f"consumers have not read all in {self.scenario.converges_in_s:g} s")
        if not await self.wait_for(lambda: self.table_clients.agree, self.scenario.converges_in_s):
            raise NotConverged(self._state())

    async def _stop_brokers(self) -> None:
        with trio.move_on_after(self.scenario.converges_in_s) as waiting:
            await self.brokers.stop_all()
        if waiting.cancelled_caught:
            raise NotConverged(f"a broker has not stopped in {self.scenario.converges_in_s:g} s")


def _clients_of(workload: Workload) -> type[Writers]:
    if workload.groups != "none":
        return ApplicationClients
    if workload.transactions:
        return TransactionalClients
    if workload.topic_lives:
        return TopicClients
    if workload.strangers:
        return StrangerClients
    if workload.errands:
        return SettingsClients if workload.settings else ErrandClients
    if workload.accounts:
        return AccountClients
    return RemoteClients if workload.clients else Writers
