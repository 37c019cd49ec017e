"""PutCompletion by example: what RocketMQ answers in each case."""

from __future__ import annotations

import math

import pytest

from rmq_actors.protocols.put_completion import Completed, PutCompletion, PutStatus

OK = PutStatus.PUT_OK
DISK = PutStatus.FLUSH_DISK_TIMEOUT
SLAVE = PutStatus.FLUSH_SLAVE_TIMEOUT
NO_SLAVE = PutStatus.SLAVE_NOT_AVAILABLE


def test_a_put_that_waits_for_nothing_is_answered_at_once() -> None:
    machine: PutCompletion[str] = PutCompletion()
    assert machine.add("a", 10, flush_deadline=None, replica_deadline=None) == [Completed("a", OK)]
    assert machine.waiting == 0
    assert machine.wake_at() == math.inf


def test_a_put_below_both_watermarks_is_answered_at_once() -> None:
    machine: PutCompletion[str] = PutCompletion()
    assert machine.flushed_to(10) == []
    assert machine.replicated_to(10) == []
    assert machine.add("a", 10, flush_deadline=1.0, replica_deadline=1.0) == [Completed("a", OK)]


def test_a_put_waits_for_the_last_of_its_two_conditions() -> None:
    machine: PutCompletion[str] = PutCompletion()
    assert machine.add("a", 10, flush_deadline=1.0, replica_deadline=1.0) == []
    assert machine.replicated_to(10) == []
    assert machine.waiting == 1
    assert machine.flushed_to(9) == []
    assert machine.flushed_to(10) == [Completed("a", OK)]
    assert machine.waiting == 0


def test_a_watermark_that_falls_takes_nothing_back_and_gives_nothing() -> None:
    machine: PutCompletion[str] = PutCompletion()
    machine.add("a", 10, flush_deadline=None, replica_deadline=1.0)
    machine.add("b", 20, flush_deadline=None, replica_deadline=1.0)
    assert machine.replicated_to(10) == [Completed("a", OK)]
    assert machine.replicated_to(0) == []
    assert machine.replicated_to(19) == []
    assert machine.replicated_to(20) == [Completed("b", OK)]


def test_one_rise_answers_many_in_their_order() -> None:
    machine: PutCompletion[int] = PutCompletion()
    for number in range(1, 6):
        machine.add(number, 10 * number, flush_deadline=1.0, replica_deadline=None)
    assert machine.flushed_to(35) == [Completed(number, OK) for number in (1, 2, 3)]


def test_without_a_slave_the_put_is_stored_but_not_confirmed() -> None:
    machine: PutCompletion[str] = PutCompletion()
    assert machine.add("a", 10, flush_deadline=None, replica_deadline=1.0, slave_available=False) == [
        Completed("a", NO_SLAVE)
    ]
    # It still waits for the disk, and the slave's absence hides what the disk says.
    assert machine.add("b", 20, flush_deadline=1.0, replica_deadline=1.0, slave_available=False) == []
    assert machine.expire(1.0) == [Completed("b", NO_SLAVE)]


@pytest.mark.parametrize(
    ("flushed", "replicated", "status"),
    [(True, True, OK), (False, True, DISK), (True, False, SLAVE), (False, False, SLAVE)],
)
def test_a_slaves_failure_hides_the_disks(flushed: bool, replicated: bool, status: PutStatus) -> None:
    machine: PutCompletion[str] = PutCompletion()
    machine.add("a", 10, flush_deadline=1.0, replica_deadline=1.0)
    done = machine.flushed_to(10) if flushed else []
    done += machine.replicated_to(10) if replicated else []
    assert done + machine.expire(1.0) == [Completed("a", status)]


def test_a_failed_sync_answers_those_that_wait_for_the_disk_only() -> None:
    machine: PutCompletion[str] = PutCompletion()
    machine.add("disk", 10, flush_deadline=9.0, replica_deadline=None)
    machine.add("slave", 20, flush_deadline=None, replica_deadline=9.0)
    machine.add("both", 30, flush_deadline=9.0, replica_deadline=9.0)
    assert machine.flush_failed() == [Completed("disk", DISK)]
    # A sync that pretends success afterwards changes nothing.
    assert machine.flushed_to(30) == []
    assert machine.replicated_to(30) == [Completed("slave", OK), Completed("both", DISK)]


def test_time_runs_out_at_the_deadline_not_before() -> None:
    machine: PutCompletion[str] = PutCompletion()
    machine.add("a", 10, flush_deadline=1.0, replica_deadline=None)
    assert machine.wake_at() == 1.0
    assert machine.expire(0.999) == []
    assert machine.expire(1.0) == [Completed("a", DISK)]
    assert machine.wake_at() == math.inf


def test_a_later_put_with_an_earlier_deadline_waits_for_the_one_before_it() -> None:
    machine: PutCompletion[str] = PutCompletion()
    machine.add("a", 10, flush_deadline=2.0, replica_deadline=None)
    machine.add("b", 20, flush_deadline=1.0, replica_deadline=None)
    assert machine.expire(1.5) == []
    assert machine.expire(2.0) == [Completed("a", DISK), Completed("b", DISK)]


def test_wake_at_is_the_nearer_of_the_two_deadlines() -> None:
    machine: PutCompletion[str] = PutCompletion()
    machine.add("a", 10, flush_deadline=None, replica_deadline=3.0)
    machine.add("b", 20, flush_deadline=2.0, replica_deadline=None)
    assert machine.wake_at() == 2.0
    machine.expire(2.0)
    assert machine.wake_at() == 3.0


@pytest.mark.parametrize("end_offset", [9, 10])
def test_offsets_must_rise(end_offset: int) -> None:
    machine: PutCompletion[str] = PutCompletion()
    machine.add("a", 10, flush_deadline=1.0, replica_deadline=None)
    with pytest.raises(ValueError, match=f"a put that ends at {end_offset} after one that ends at 10"):
        machine.add("b", end_offset, flush_deadline=1.0, replica_deadline=None)


def test_room_is_bounded_by_the_longer_queue() -> None:
    machine: PutCompletion[str] = PutCompletion(waiting_max=2)
    rooms = [machine.has_room]
    machine.add("a", 10, flush_deadline=1.0, replica_deadline=1.0)
    rooms.append(machine.has_room)
    machine.add("b", 20, flush_deadline=None, replica_deadline=1.0)
    rooms.append(machine.has_room)
    machine.replicated_to(10)
    rooms.append(machine.has_room)
    assert rooms == [True, True, False, True]
