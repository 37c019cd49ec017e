"""What a slave refuses that is asked to be the master, beside what the transcripts show."""

from __future__ import annotations

import attrs
import pytest

from rmq_actors.protocols.exchange_partner import Promotion, SlavePreparation, SlaveState, is_promoted

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
