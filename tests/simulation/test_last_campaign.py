"""The page of the last campaign, as its command writes it."""

from __future__ import annotations

from typing import Any

from rmq_actors.testing.scenarios import SCENARIOS
from tests.simulation.last_campaign import PAGE, RUNS, count_of, page, what_people_wrote


def result(seed: int, outcome: str = "passed") -> dict[str, Any]:
    told = {"seed": seed, "outcome": outcome, "failure": "", "acked": 700, "checks": 800, "virtual_s": 1.25}
    return {**told, "fired": ["Kill"], "under_load": [], "observed": ["kill"]}


def test_what_people_have_written_stays() -> None:
    written = what_people_wrote(PAGE.read_text())
    assert all(written.values())
    text = page({"routes": [result(7)]}, "abc", "2026-11-29", written)
    assert what_people_wrote(text) == written


def test_the_tables_are_of_the_runs() -> None:
    runs = {"routes": [result(7), result(8, "crash")], "store-work": [result(7)]}
    text = page(runs, "abc", "2026-11-29", what_people_wrote(PAGE.read_text()))
    assert "What 3 chaos runs of all 2 scenarios met, all on one commit (`abc`)" in text
    assert "**1 failed: routes 8.** The seeds of each scenario begin at 7." in text
    assert "\n| routes | 2 | 1 | 1,400 | 1,600 | 2 |\n| store-work | 1 | 1 | 700 | 800 | 1 |\n| all | 3 | 2 |" in text
    assert "\n| Kill | 2 | 1 |\n" in text
    assert "\n| kill | 2 | 1 |\n" in text
    assert "\n| torn_pages | 0 | 0 |\n" in text


def test_the_campaign_has_ten_thousand_runs_of_scenarios_that_there_are() -> None:
    assert RUNS.keys() <= SCENARIOS.keys()
    assert sum(map(count_of, SCENARIOS)) >= 10_000
