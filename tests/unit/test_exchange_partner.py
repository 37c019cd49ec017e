"""What a slave refuses that is asked to be the master, beside what the transcripts show."""

from __future__ import annotations

import attrs
import pytest

from rmq_actors.protocols.slave_preparation import Promotion, SlavePreparation, SlaveState, is_promoted

READY = SlaveState("broker-a", is_slave=True, term=3, leads=False, log_end=1000, life=1)
ASKED = Promotion("x-1", 4, 1000)


@pytest.mark.parametrize("end", [999, 1001])
def test_another_end_of_the_log_is_refused(end: int) -> None:
    preparation = SlavePreparation()
    preparation.ready("x-1", READY)
    assert preparation.why_not_promoted(attrs.evolve(ASKED, end=end), READY) == (
        f"its log ends at 1000, it was to end at {end}"
    )
    preparation.ready("x-1", READY)
    assert preparation.why_not_promoted(ASKED, attrs.evolve(READY, log_end=end)) is not None
    preparation.ready("x-1", READY)
    assert preparation.why_not_promoted(ASKED, READY) is None


def test_a_slave_that_was_promoted_before_does_not_lead() -> None:
    """It is of that term, and has given up its role since."""
    assert not is_promoted(ASKED, attrs.evolve(READY, term=4, leads=True))
    assert is_promoted(ASKED, attrs.evolve(READY, term=5, leads=True, is_slave=False))
    assert not is_promoted(ASKED, attrs.evolve(READY, term=3, leads=True, is_slave=False))


def test_tables_that_have_changed_since_are_refused() -> None:
    """An answer to an earlier question may come after the one to the last, and be older."""
    preparation, own = SlavePreparation(), attrs.evolve(READY, tables=("topics 7", "groups 3"))
    preparation.ready("x-1", own)
    why = preparation.why_not_promoted(ASKED, attrs.evolve(own, tables=("topics 6", "groups 3")))
    assert why == "its tables have changed since it prepared: an answer of its master that was late may be older"
    preparation.ready("x-1", own)
    assert preparation.why_not_promoted(ASKED, own) is None
