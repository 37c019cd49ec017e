"""What a master and a slave that have nothing to do cost, in steps of tasks."""

from __future__ import annotations

from tests.bench.idle_pair import idle

HOUR_S = 3600


def test_an_idle_pair_takes_a_step_for_each_deadline_and_each_frame_and_no_other() -> None:
    steps = idle(2 * HOUR_S).steps - idle(HOUR_S).steps
    frames = 2 * HOUR_S / 5  # heartbeats and reports: who sends one is woken, and who reads it
    looks = HOUR_S / 10 + HOUR_S / 15 + HOUR_S / 60  # at the disk, at the peer's silence, at how far slaves are behind
    expected = 2 * (frames + looks)
    assert 0.95 * expected < steps <= expected
