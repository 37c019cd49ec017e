"""A scenario whose operator loses, spoils and puts back files of brokers that are down, as docs/operating.md warns of.

What is derived from the log comes back equal to it. Where the log or the term is not what it was, the broker does not
open its store as if nothing were wrong, and goes on once the file is put back. Records of other programs at the log's
end are cut, or keep the broker from starting.
"""

from __future__ import annotations

import random
from collections.abc import Iterable
from typing import Final

import attrs
import trio

from rmq_actors.embedding.cluster_protocol import BrokerDown
from rmq_actors.store.files.layout import ABORT_FILE
from rmq_actors.testing.drawn_operator import DrawnOperator
from rmq_actors.testing.fault_families import FaultFamilies
from rmq_actors.testing.invariants import REPLICATION_INVARIANTS, REPLICATION_LIMITS, Refused
from rmq_actors.testing.operation import FILES, Operation
from rmq_actors.testing.spoilt_files import SPOILINGS, Contents, Files, Spoiling, appended, make_so, read_file
from rmq_actors.testing.store_work import STORE_WORK, draw_store_work
from rmq_actors.testing.workload import Workload
from rmq_actors.tracing.events.run import OperatorFiles
from rmq_actors.tracing.events.store import LogAppend
from sim_net import SimDisk

#: How long a broker tries in vain to start before its files are put back.
_REFUSES_S: Final = 1.6
#: How long the operator waits until a slave that begins again has removed what it had.
_EMPTIED_S: Final = 20.0
_STOPPED_IN_ORDER: Final = 0.6
#: Where brokers write their settings, they keep the ones before.
_SETTINGS_BACKUP: Final = "conf/broker.conf.bak"
_OPERATIONS: Final = (
    *(*FILES, *FILES, "lose_queue_files", "lose_queue_files", "records_of_rocketmq", "records_of_rocketmq"),
    *("restart", "reopen", "fail_over", "set_up_again", "set_up_again"),
    *("exchange", "exchange", "exchange_by_hand", "exchange_by_hand"),
)


@attrs.define(eq=False, repr=False)
class FileOperator(DrawnOperator):
    """Also does what `SPOILINGS` has, at one broker's files at a time."""

    _at_files: trio.Lock = attrs.field(factory=trio.Lock, init=False)

    async def _spoil(self, operation: Operation) -> None:
        spoiling, rng = SPOILINGS[operation.what], random.Random(repr(operation))
        async with self._at_files:
            if spoiling.goes_on:
                operation = attrs.evolve(operation, node=self.brokers.view.master.name)
            was = await self._change_files(operation, spoiling, rng)
            if spoiling.refused_as is not None:
                await trio.sleep(_REFUSES_S)
                await self._put_back(operation, was)

    async def _change_files(self, operation: Operation, spoiling: Spoiling, rng: random.Random) -> Contents:
        """Stop the broker, or kill it, change its files, and start it; what they had before. Raises `ValueError`."""
        brokers, name = self.brokers, operation.node
        brokers.broker(name)
        try:
            with brokers.files_at_rest(name) as disk:
                if spoiling.in_order or rng.random() < _STOPPED_IN_ORDER:
                    await self._stop(name)
                else:
                    await brokers.kill(name)
                node = brokers.view.nodes[name]
                if node.has_lost_power or (spoiling.in_order and disk.exists(ABORT_FILE)):
                    raise ValueError("it was not stopped in order")
                if spoiling.goes_on and node is not brokers.view.master:
                    raise ValueError("another one was promoted meanwhile")
                files = Files(disk, node.end, rng)
                wanted = spoiling.change(files)
                was = {path: read_file(disk, path) for path in wanted}
                if spoiling.refused_as is not None:
                    brokers.refusals[name] = spoiling.refused_as
                    brokers.evidence.set_aside(name, was)
                await make_so(disk, wanted)
                if spoiling.goes_on:
                    for offset, size in appended(files, wanted):
                        event = LogAppend(offset=offset, size=size)
                        brokers.evidence.forget_files(event)  # else it would look at the file of before
                        brokers.recorder.record(event, name, "Operator")
                self._tell(operation, "changed" if spoiling.refused_as is None else "refused", wanted)
        finally:
            self._start(name)
        return was

    async def _put_back(self, operation: Operation, was: Contents) -> None:
        brokers, name = self.brokers, operation.node
        with brokers.files_at_rest(name) as disk:
            if brokers.nodes[name].is_up:
                await brokers.kill(name)
            await make_so(disk, was)
            self._tell(operation, "mended", was)
            brokers.refusals.pop(name, None)
            brokers.evidence.put_back(name)
        self._start(name)

    def _tell(self, operation: Operation, status: str, paths: Iterable[str]) -> None:
        event = OperatorFiles(status=status, detail=f"{operation.what}: {', '.join(sorted(paths))}")
        self.brokers.recorder.record(event, operation.node)

    def _start(self, name: str) -> None:
        if not self.brokers.nodes[name].is_up:
            self.brokers.restart_node(name)

    _do_lose_queue_files = _spoil
    _do_lose_index_files = _spoil
    _do_lose_log_file = _spoil
    _do_spoil_record = _spoil
    _do_spoil_term = _spoil
    _do_part_of_a_record = _spoil
    _do_record_of_long_topic = _spoil
    _do_record_of_rocketmq_5 = _spoil
    _do_records_of_rocketmq = _spoil
    _do_tables_to_backups = _spoil

    async def _do_set_up_again(self, operation: Operation) -> None:
        """See `DrawnOperator`. Nobody puts back what it had before."""
        async with self._at_files:
            await super()._do_set_up_again(operation)
            await self._look(lambda: not self.brokers.is_to_be_emptied(operation.node), _EMPTIED_S)

    async def _do_directory_in_the_way(self, operation: Operation) -> None:
        """While a directory has the name that the settings before take at one of the two; then once more without it."""
        async with self._changing_roles:
            brokers, old, new = self.brokers, self._leading(), operation.node
            if old is None or old == new or new not in brokers.running:
                raise BrokerDown(f"{new} cannot take over")
            name = random.Random(repr(operation)).choice((old, new))
            disk = brokers.nodes[name].disk
            if disk.exists(_SETTINGS_BACKUP):
                disk.remove(_SETTINGS_BACKUP)
            disk.open(f"{_SETTINGS_BACKUP}/file", allocate_bytes=0).close()
            self._tell(attrs.evolve(operation, node=name), "blocked", [_SETTINGS_BACKUP])
            try:
                await self._exchange_roles(operation)
            finally:
                _remove_directory(disk)
                self._tell(attrs.evolve(operation, node=name), "mended", [_SETTINGS_BACKUP])
            await self._exchange_roles(operation)


def _remove_directory(disk: SimDisk) -> None:
    """A power loss may have removed it, or a part of it, before."""
    if disk.exists(f"{_SETTINGS_BACKUP}/file"):
        disk.remove(f"{_SETTINGS_BACKUP}/file")
    if disk.exists(_SETTINGS_BACKUP):
        disk.remove_directory(_SETTINGS_BACKUP)


def draw_lost_files(rng: random.Random, seed: int) -> Workload:
    """As `store-work`, with more changes of tables; nothing is cleaned away: what is lost can be derived again."""
    workload = draw_store_work(rng, seed)
    return attrs.evolve(
        workload,
        log_file_bytes=max(workload.log_file_bytes, rng.choice((600, 1200, 2400, 120_000))),
        table_changes=rng.choice((6, 12)),
        clean_every_s=0.0,
        transient_pool=False,
        delays=0.0,
    )


LOST_FILES = attrs.evolve(
    STORE_WORK,
    name="lost-files",
    description="files of stores are lost, spoilt and put back, and other programs leave records in logs",
    workload=draw_lost_files,
    operator=FileOperator,
    faults=FaultFamilies(
        links=("Partition", "Reset"),
        nodes=("Kill", "PowerLoss"),
        fewest=0,
        most=3,
        any_link=0.5,
        all_slaves=0.05,
        link_faults=0.4,
        operations=_OPERATIONS,
        operations_most=8,
    ),
    invariants=(*REPLICATION_LIMITS, *REPLICATION_INVARIANTS, Refused),
)
