"""What brokers do with their disks in runs: a scenario's disk errors must be of operations that there are."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

import attrs
import pytest

from rmq_actors.testing.scenario import Scenario
from rmq_actors.testing.scenarios import RunResult, run_case
from sim_net.disk.directory import Directory
from sim_net.disk.disk import SimDisk
from sim_net.disk.disk_rule import Operation
from sim_net.disk.page_cache import CachedFile
from sim_net.kernel.identity import current_incarnation


@contextmanager
def noted_operations() -> Iterator[set[tuple[str, str]]]:
    """The operations within the block, each with its path, as a set that grows."""
    operations: set[tuple[str, str]] = set()
    begin, wait_durable = SimDisk.begin, SimDisk.wait_durable

    def note(operation: str, path: str) -> None:
        if current_incarnation.get() is not None:  # a harness task meets no errors
            operations.add((operation, path))

    def noted_begin(disk: SimDisk, operation: Operation, path: str) -> bool:
        note(operation, path)
        return begin(disk, operation, path)

    async def noted_wait(disk: SimDisk, operation: Operation, path: str, target: CachedFile | Directory) -> None:
        note(operation, path)
        await wait_durable(disk, operation, path, target)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(SimDisk, "begin", noted_begin)
        patch.setattr(SimDisk, "wait_durable", noted_wait)
        yield operations


@attrs.frozen
class NotedRuns:
    """Runs of a scenario, and the operations of disks that they had, each with its path."""

    scenario: Scenario
    results: list[RunResult]
    operations: set[tuple[str, str]]

    @classmethod
    def of(cls, scenario: Scenario, seeds: Iterable[int]) -> NotedRuns:
        """Run these seeds."""
        with noted_operations() as operations:
            return cls(scenario, [run_case(scenario.case(seed), scenario) for seed in seeds], operations)

    @property
    def failed(self) -> list[tuple[int, str]]:
        """The seeds that have not passed, and why."""
        return [(each.case.seed, each.failure) for each in self.results if each.outcome != "passed"]

    @property
    def unmet(self) -> set[object]:
        """The errors of disks that no operation can meet, and the events of disks that none causes."""
        faults, operations = self.scenario.faults, self.operations
        kinds = {*faults.events, *faults.operation_events}
        return {*errors_of_nothing(faults.disk_errors, operations), *events_of_nothing(kinds, operations)}


def errors_of_nothing(errors: Iterable[tuple[str, str]], operations: set[tuple[str, str]]) -> set[tuple[str, str]]:
    """Those of `errors`, each an operation and a part of a path, that none of `operations` can meet."""
    return {
        (operation, path)
        for operation, path in errors
        if not any(operation in ("", done) and path in on for done, on in operations)
    }


def events_of_nothing(kinds: Iterable[str], operations: set[tuple[str, str]]) -> set[str]:
    """Those of `kinds` that are events of disks, and that none of `operations` causes."""
    return {kind for kind in kinds if kind.startswith("disk.")} - {f"disk.{operation}" for operation, _ in operations}
