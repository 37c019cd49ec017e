"""When a slave asks its master for what."""

from __future__ import annotations

import math

from rmq_actors.protocols.metadata_rounds import Metadata, SlaveSynchronization

ALL = list(Metadata)
TOPICS, OFFSETS, DELAYS, GROUPS = ALL
MASTER, OTHER = "10.0.0.1:10911", "10.0.0.2:10911"


def test_everything_after_3_s_then_every_10_s_in_rocketmqs_order() -> None:
    machine = SlaveSynchronization(100.0, MASTER)
    assert machine.wake_at == 103.0
    assert not machine.due(102.9)
    assert machine.due(103.0) == ALL
    for part in ALL:
        machine.succeeded(part, MASTER, 103.5)
    assert machine.wake_at == 113.5
    assert machine.due(113.5) == ALL


def test_what_failed_is_asked_again_sooner_and_holds_up_nothing_else() -> None:
    machine = SlaveSynchronization(0.0, MASTER)
    for part in (TOPICS, DELAYS, GROUPS):
        machine.succeeded(part, MASTER, 3.0)
    now, retries = 3.0, []
    for _ in range(3):
        machine.failed(OFFSETS, MASTER, now, 0.5)
        assert machine.due(machine.wake_at) == [OFFSETS]
        retries.append(machine.wake_at - now)
        now = machine.wake_at
    assert retries == [0.75, 1.5, 3.0]
    machine.succeeded(OFFSETS, MASTER, now)
    assert machine.due(13.0) == [TOPICS, DELAYS, GROUPS]
    machine.failed(OFFSETS, MASTER, now, 0.5)
    assert machine.wake_at == now + 0.75


def test_retries_are_never_farther_apart_than_the_period() -> None:
    machine, now = SlaveSynchronization(0.0, MASTER), 3.0
    for _ in range(20):
        machine.failed(TOPICS, MASTER, now, 0.999)
        for part in (OFFSETS, DELAYS, GROUPS):
            machine.succeeded(part, MASTER, now)
        assert machine.wake_at <= now + 10.0
        now = machine.wake_at


def test_another_master_is_asked_at_once_and_without_the_back_off_of_the_one_before() -> None:
    machine = SlaveSynchronization(0.0, MASTER)
    for _ in range(9):
        machine.failed(TOPICS, MASTER, 1.0, 0.5)
    machine.master_changed(OTHER, 1.0)
    assert machine.master == OTHER
    assert machine.due(1.0) == ALL
    machine.failed(TOPICS, OTHER, 1.0, 0.5)
    assert TOPICS not in machine.due(1.74)
    assert TOPICS in machine.due(1.75)


def test_what_an_earlier_master_answered_leaves_everything_due() -> None:
    machine = SlaveSynchronization(0.0, MASTER)
    machine.master_changed(OTHER, 1.0)
    machine.succeeded(TOPICS, MASTER, 2.0)
    machine.failed(OFFSETS, MASTER, 2.0, 0.5)
    assert machine.due(2.0) == ALL


def test_nobody_is_asked_while_no_master_is_known() -> None:
    machine = SlaveSynchronization(0.0, None)
    assert machine.wake_at == math.inf
    assert not machine.due(1e9)
    machine.master_changed(MASTER, 5.0)
    assert machine.due(5.0) == ALL
