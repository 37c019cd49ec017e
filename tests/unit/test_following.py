"""Following decides without a clock or a socket: how long a master is asked, and when a halt is looked into again."""

from __future__ import annotations

import math

import pytest

from rmq_actors.protocols.following import ASK_AGAIN_S, LOOKUP_PATIENCE_S, SILENCE_PATIENCE_S, Halt, Patience


@pytest.mark.parametrize(("is_silent", "patience_s"), [(False, LOOKUP_PATIENCE_S), (True, SILENCE_PATIENCE_S)])
def test_a_master_that_gives_no_answer_is_asked_for_a_while(is_silent: bool, patience_s: float) -> None:
    patience = Patience()
    assert patience.failed(100.0, is_silent=is_silent)
    assert patience.failed(99.9 + patience_s, is_silent=is_silent)
    assert not patience.failed(100.0 + patience_s, is_silent=is_silent)


def test_the_time_begins_again_with_another_failure() -> None:
    patience = Patience()
    assert patience.failed(0.0, is_silent=False)
    assert patience.failed(LOOKUP_PATIENCE_S, is_silent=True)
    assert patience.failed(LOOKUP_PATIENCE_S + 1, is_silent=False)
    assert patience.failed(2 * LOOKUP_PATIENCE_S, is_silent=False)


@pytest.mark.parametrize("forget", [Patience.answered, Patience.absent])
def test_the_time_begins_again_after_an_answer_and_after_an_absence(forget: object) -> None:
    assert callable(forget)
    patience = Patience()
    patience.failed(0.0, is_silent=False)
    forget(patience)
    assert patience.failed(2 * LOOKUP_PATIENCE_S, is_silent=False)


@pytest.mark.parametrize("reason", ["diverged", "offset_gone"])
def test_a_halt_that_nothing_can_cut_is_looked_into_again(reason: str) -> None:
    halt = Halt(reason, "", "10.0.0.1:10912", 500)
    assert halt.may_end
    assert halt.ask_again_after_s(0.0) == ASK_AGAIN_S
    assert halt.ask_again_after_s(0.999) == pytest.approx(ASK_AGAIN_S * 2 / 3, rel=0.01)


@pytest.mark.parametrize(("reason", "common_end"), [("diverged", 300), ("diverged", 0), ("file_size_mismatch", None)])
def test_any_other_halt_waits_for_an_operator(reason: str, common_end: int | None) -> None:
    halt = Halt(reason, "", "10.0.0.1:10912", 500, common_end)
    assert not halt.may_end
    assert halt.ask_again_after_s(0.5) == math.inf
