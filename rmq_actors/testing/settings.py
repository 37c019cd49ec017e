"""A scenario of brokers whose settings no other scenario has, and of what these settings mean to clients and operators.

HA ports are elsewhere, topics are made by hand, slow groups are turned off, long frames have little room, slaves are
soon too far behind, messages name light queues, and a broker of another brokerName is near.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from typing import Final

import attrs
import trio

from rmq_actors.embedding.cluster_protocol import BrokerDown
from rmq_actors.store.config import BrokerRole
from rmq_actors.testing.drawn_operator import DrawnOperator
from rmq_actors.testing.errands_of_settings import READS_AFTER_S
from rmq_actors.testing.fault_families import FaultFamilies
from rmq_actors.testing.invariants import (
    REPLICATION_INVARIANTS,
    REPLICATION_LIMITS,
    Errands,
    LightQueues,
    Near,
    OffsetsOfACut,
    OfOneName,
    Stops,
)
from rmq_actors.testing.observation import OBSERVABLE, OBSERVABLE_IN_FAIL_OVERS, UNASKED
from rmq_actors.testing.operation import SETTINGS as OPERATIONS_OF_SETTINGS
from rmq_actors.testing.operation import Operation
from rmq_actors.testing.production import PRODUCTION_WORLD
from rmq_actors.testing.scenario import Scenario
from rmq_actors.testing.settings_clients import SettingsClients
from rmq_actors.testing.topology import Topology
from rmq_actors.testing.workload import COMBINATIONS, DIVERGENCE, Workload
from rmq_actors.tracing.events.run import OperatorStop

_OPERATIONS: Final = (
    *(OPERATIONS_OF_SETTINGS * 2),
    *("exchange", "exchange", "exchange_by_hand", "fail_over", "stop_and_fail_over", "restart"),
    *("set_up_again", "set_up_again", "set_up_again", "truncate", "reopen"),
)
#: Settings that go together, each group with what it may be, and how often it is drawn.
_GROUPS: Final[Sequence[tuple[float, Sequence[str]]]] = (
    (0.6, ("haListenPort=20912", "haListenPort=10950")),
    (
        0.4,
        (
            "disableConsumeIfConsumerReadSlowly=true;consumerFallbehindThreshold=20000",
            "disableConsumeIfConsumerReadSlowly=true;consumerFallbehindThreshold=50000",
        ),
    ),
    (0.4, ("haSlaveFallbehindMax=400", "haSlaveFallbehindMax=1500", "haSlaveFallbehindMax=5000")),
    (
        0.5,
        (
            "frameMaxLength=120000;receivedBytesMax=1048576;receivedBytesPerAddressMax=262144",
            "frameMaxLength=120000;receivedBytesMax=393216;receivedBytesPerAddressMax=524288",
        ),
    ),
    (0.6, ("enableLmq=true;enableMultiDispatch=true",)),
    (0.3, ("autoCreateTopicEnable=false",)),
    (0.2, ("longPollingEnable=false;shortPollingTimeMills=200",)),
    (0.2, ("enableConsumeQueueExt=true;mappedFileSizeConsumeQueueExt=4096",)),
    (0.2, ("slaveReadEnable=true",)),
    (0.2, ("compressedRegister=true", "forceRegister=false")),
    (0.2, ("registerNameServerPeriod=10000",)),
    (0.2, ("maxTransferCountOnMessageInMemory=3", "maxTransferBytesOnMessageInMemory=2000")),
    (0.2, ("flushCommitLogLeastPages=0", "flushIntervalCommitLog=50")),
    (0.2, ("messageIndexEnable=false",)),
    (0.2, ("slaveTimeout=1200", "syncFlushTimeout=1200")),
    (0.2, ("haSendHeartbeatInterval=1000",)),
    (0.2, ("warmMapedFileEnable=true",)),
)
_APART, _NEIGHBOUR = 0.4, 0.5
#: How long the operator is mistaken about an address, at least.
_MISTAKEN_S: Final = 3.0
#: How long after its beginning an exchange's master is stopped, by what the operator's patience is.
_STOPPED_AFTER_S: Final[Mapping[float, float]] = {0.0: 0.001, 0.3: 0.02, 2.0: 0.1}
#: A client reads on this long before it begins to, so that it is owed answers as its broker begins to stop.
_READS_BEFORE_S: Final = READS_AFTER_S - 0.2
_BACK_S: Final = 0.5


@attrs.define(eq=False, repr=False)
class SettingsOperator(DrawnOperator):
    """Also stops brokers at bad times, mistakes one address for another, and sets who makes topics."""

    async def settle(self) -> None:
        """See `DrawnOperator.settle`."""
        await super().settle()
        await self.restart_unwriteable()
        self.brokers.is_settled = True

    async def _stop(self, name: str) -> None:
        if name in self.brokers.running:
            self.brokers.recorder.record(OperatorStop(), name)
        await super()._stop(name)

    async def _do_exchange_and_stop(self, operation: Operation) -> None:
        """The master is stopped while its exchange begins, or is under way."""
        old = self._leading()
        if old is None or old == operation.node:
            return
        async with self._changing_roles, trio.open_nursery() as nursery:
            nursery.start_soon(self._tried, self._exchange_roles, operation)
            await trio.sleep(_STOPPED_AFTER_S.get(operation.patience_s, 0.5))
            await self._tried(lambda _: self._restart(old), operation)

    async def _do_restart_while_read(self, operation: Operation) -> None:
        """A client reads slowly as its broker stops."""
        name = operation.node
        self.brokers.broker(name)
        if isinstance(self.clients, SettingsClients):
            self.clients.run_beside("read_while_it_stops", name)
        await trio.sleep(_READS_BEFORE_S)
        await self._restart(name)

    async def _do_follow_another_name(self, operation: Operation) -> None:
        """A slave is given the address of a broker of another brokerName, for a while."""
        neighbour, name = self.brokers.neighbour, operation.node
        if neighbour is None:
            return
        async with self._changing_roles:
            master = self._leading()
            if master in (None, name) or not self.brokers.broker(name).config.is_slave:
                raise BrokerDown(f"{name} is no slave")
            await self._update(
                name,
                brokerRole=BrokerRole.SLAVE.value,
                haMasterAddress=neighbour.addresses.ha,
                masterAddr=neighbour.addresses.remoting,
            )
            await trio.sleep(_MISTAKEN_S + min(operation.patience_s, 20.0))
            await self._make_slave(name, str(master))

    async def _do_set_auto_create(self, operation: Operation) -> None:
        """Clients may make topics from now on, or may not; some brokers are started again with that."""
        may_make = operation.patience_s > 1
        if not may_make and isinstance(self.clients, SettingsClients):
            self.clients.makes_topics = True
        await self._update(operation.node, autoCreateTopicEnable=str(may_make).lower())
        if operation.patience_s in (0.0, 30.0):
            await self._restart(operation.node)

    async def _restart(self, name: str) -> None:
        await self._stop(name)
        await trio.sleep(_BACK_S)
        if not self.brokers.nodes[name].is_up:
            self.brokers.restart_node(name)


def draw_settings(rng: random.Random, seed: int) -> Workload:
    """Settings of all brokers, perhaps others of those that are slaves first, and errands at them."""
    role, master_flush, slave_flush = COMBINATIONS[seed % len(COMBINATIONS)]
    settings = [f"brokerClusterName=Cluster-{rng.choice('abc')}"]
    settings += [rng.choice(choices) for often, choices in _GROUPS if rng.random() < often]
    workload = Workload(
        puts=rng.choice((10, 20, 40)),
        pause_s=rng.choice((0.1, 0.3, 0.6)),
        in_flight=rng.choice((1, 1, 2)),
        body_bytes_max=rng.choice((100, 900)),
        transfer_batch_bytes=rng.choice((100, 4000, 32 * 1024)),
        log_file_bytes=rng.choice((60_000, 120_000)),
        queue_file_bytes=rng.choice((60, 100, 400)),
        master_role=role,
        master_flush=master_flush,
        slave_flush=slave_flush,
        in_sync_replicas=rng.choice((2, 2, 3)),
        divergence=rng.choice(DIVERGENCE),
        clients=True,
        errands=rng.choice((4, 6)),
        settings=";".join(settings),
        settings_apart="autoCreateTopicEnable=false" if rng.random() < _APART else "",
        neighbour=rng.random() < _NEIGHBOUR,
    )
    if not any(each.startswith("haSlaveFallbehindMax") for each in settings):
        return workload
    # A slave that begins again is behind for a while only if there is much to send, and its master asks for two.
    return attrs.evolve(
        workload,
        puts=40,
        pause_s=rng.choice((0.1, 0.3)),
        body_bytes_max=rng.choice((900, 6000)),
        body_skew=1,
        transfer_batch_bytes=rng.choice((100, 4000)),
        in_sync_replicas=rng.choice((2, 3, 3)),
    )


#: The last errand may begin late, and wait for two looks at slow groups.
_CONVERGES_IN_S: Final = 1500.0
SETTINGS = Scenario(
    "settings",
    "brokers have settings that others have not, and clients run errands at them; a broker of another name is near",
    Topology("broker-1", ("broker-2", "broker-3")),
    draw_settings,
    FaultFamilies(
        nodes=("Kill", "PowerLoss", "PowerLoss", "Pause", "DiskSlow", "DiskFull", "DiskFull", "ClockJump"),
        fewest=0,
        most=3,
        any_link=0.5,
        all_slaves=0.05,
        events=("client.errand", "log.append", "log.append", "put.begin", "broker.slave_synchronize"),
        timed_by_events=0.7,
        at_own_events=0.6,
        link_faults=0.3,
        crash_soon=0.5,
        operations=_OPERATIONS,
        operations_most=4,
    ),
    SettingsOperator,
    invariants=(
        *REPLICATION_LIMITS,
        OfOneName,
        *REPLICATION_INVARIANTS,
        Near,
        LightQueues,
        OffsetsOfACut,
        Stops,
        Errands,
    ),
    converges_in_s=_CONVERGES_IN_S,
    world=PRODUCTION_WORLD,
    observable=(*OBSERVABLE, *OBSERVABLE_IN_FAIL_OVERS, UNASKED),
)
