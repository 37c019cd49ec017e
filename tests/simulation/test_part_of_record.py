"""A master that goes while a record is under way to its slaves: `part_of_record`, some seeds of it."""

from __future__ import annotations

import pytest

from tests.simulation.part_of_record import FOLLOWS, SCENARIOS

#: When slaves had such parts in their logs, one of them halted for good with the first three of each.
SEEDS = {"fail-over": (3, 14, 19, 0, 1), "chain": (4, 8, 11, 0, 1)}


@pytest.mark.parametrize(("scenario", "seed"), [(name, seed) for name, seeds in SEEDS.items() for seed in seeds])
def test_a_slave_that_was_sent_a_part_of_a_record_follows(scenario: str, seed: int) -> None:
    assert SCENARIOS[scenario](seed, 60_000) == FOLLOWS


@pytest.mark.long
@pytest.mark.parametrize("body_bytes", [1_000, 20_000, 60_000, 200_000])
@pytest.mark.parametrize("scenario", SCENARIOS)
def test_so_it_does_with_many_seeds(scenario: str, body_bytes: int) -> None:
    outcomes = {seed: SCENARIOS[scenario](seed, body_bytes) for seed in range(100)}
    assert {seed: outcome for seed, outcome in outcomes.items() if outcome != FOLLOWS} == {}
