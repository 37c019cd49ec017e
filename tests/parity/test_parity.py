"""The simulated world does what the real one does: every case of the table."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.parity.arena import NoSuchWorld
from tests.parity.table import CASES, Case, table


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.family}-{case.name}")
def test_worlds_agree(case: Case, record_property: Callable[[str, object], None]) -> None:
    record_property("parity", (case.family, case.name, case.shows))
    try:
        seen = case.seen()
    except NoSuchWorld as missing:
        pytest.skip(str(missing))
    assert seen == dict.fromkeys(seen, seen["Linux"])


def test_the_table_names_every_case_once_and_says_what_it_shows() -> None:
    assert len({(case.family, case.name) for case in CASES}) == len(CASES)
    for case in CASES:
        assert case.shows
        assert case.name in table({})
    assert sum(case.family == "socket" for case in CASES) >= 30
    assert sum(case.family == "disk" for case in CASES) >= 40
