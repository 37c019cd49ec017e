"""Backoff: doubling, bounded, jittered, forgetful of the past after a success."""

from __future__ import annotations

import pytest

from rmq_actors.protocols.backoff import Backoff


def test_pauses_double_to_their_bound() -> None:
    backoff = Backoff(0.1, 1.0)
    assert [backoff.next_pause_s(1.0) for _ in range(6)] == pytest.approx([0.1, 0.2, 0.4, 0.8, 1.0, 1.0])


def test_half_of_a_pause_is_chance() -> None:
    assert Backoff(0.1, 1.0).next_pause_s(0.0) == pytest.approx(0.05)
    assert Backoff(0.1, 1.0).next_pause_s(0.5) == pytest.approx(0.075)


def test_a_success_begins_again() -> None:
    backoff = Backoff(0.1, 1.0)
    backoff.next_pause_s(0.0)
    backoff.next_pause_s(0.0)
    backoff.succeeded()
    assert backoff.next_pause_s(1.0) == pytest.approx(0.1)


def test_no_number_of_failures_overflows() -> None:
    backoff = Backoff(0.1, 5.0)
    assert max(backoff.next_pause_s(0.99) for _ in range(5000)) <= 5.0
