"""The workload that the benchmark of chaos runs is frozen to is what it says it is."""

from __future__ import annotations

import attrs

from rmq_actors.testing.scenarios import run_case
from sim_net import fault_kind
from sim_net.search.search import Case
from tests.bench.chaos_runs import WORKLOAD


def test_the_reference_workload_has_its_puts_its_virtual_time_and_its_faults() -> None:
    case = Case.from_json(WORKLOAD.read_text(encoding="utf-8"))
    for seed in range(5):
        result = run_case(attrs.evolve(case, seed=seed))
        assert result.outcome == "passed", result.failure
        assert result.virtual_s >= 20
        kinds = [event.kind for event in result.events]
        assert kinds.count("put.begin") == 50 + 1  # the last one shows that all is well again
        assert kinds.count("put.end") == 50 + 1
        assert kinds.count("fault.begin") == kinds.count("fault.end") == len(case.schedule) == 7
        assert {"Delay", "Partition", "Stall", "Reset", "ShortIO", "Kill"} == set(map(fault_kind, case.schedule.faults))
