"""What slaves must do, and must not: the terms that they keep, whom they ask, whom they let go."""

from __future__ import annotations

import pytest

from rmq_actors.testing.invariants import Divergence, FollowedUnasked, Halted, Housekeeping, Terms, Understood
from tests.worlds.cluster_story import MASTER, OTHER, SLAVE, Story, follow, halt


@pytest.fixture
def story() -> Story:
    return Story()


@pytest.mark.parametrize("at_work", [False, True])
@pytest.mark.parametrize(("asked", "seen"), [(True, []), (False, ["halted"])])
def test_a_slave_that_has_halted_asks_again_when_it_is_told_to_unless_a_fault_is_at_work(
    *, asked: bool, seen: list[str], at_work: bool
) -> None:
    story = Story()
    story.watch(Halted)
    if at_work:
        attributes = {"fault.kind": "DiskStuck", "fault.nodes": SLAVE}
        story.emit("", "fault.begin", fault_id=1, attributes=attributes)
    halt(story, SLAVE, master="10.0.0.1")
    story.emit(SLAVE, "operator.command", status="follow_again", detail=None)
    if asked:
        follow(story, SLAVE)
    story.now_s += 20
    story.emit(MASTER, "ha.heartbeat", conn_id=1, offset=0)
    assert story.seen == ([] if at_work else seen)


@pytest.mark.parametrize(("wait_s", "seen"), [(50, []), (60, ["halted"])])
def test_a_slave_whose_halt_no_cut_ends_asks_again_by_itself(wait_s: int, seen: list[str]) -> None:
    story = Story()
    story.watch(Halted)
    halt(story, SLAVE, "offset_gone", master="10.0.0.1")
    story.now_s += wait_s
    story.emit(MASTER, "ha.heartbeat", conn_id=1, offset=0)
    assert story.seen == seen


@pytest.mark.parametrize(("calm_s", "seen"), [(30, []), (90, ["housekeeping"])])
def test_a_slave_ends_no_connection_for_silence_where_no_fault_was_at_work(calm_s: int, seen: list[str]) -> None:
    story = Story()
    story.watch(Housekeeping)
    follow(story, SLAVE)
    story.now_s += calm_s
    story.emit(SLAVE, "ha.client.close", status="housekeeping")
    assert story.seen == seen


def test_a_master_ends_the_connection_of_a_slave_that_it_does_not_hear() -> None:
    story = Story()
    story.watch(Housekeeping)
    story.connect(1, "10.0.0.2")
    story.now_s += 1
    attributes = {"fault.kind": "Partition", "fault.nodes": "slave-1,master"}
    story.emit("", "fault.begin", fault_id=1, attributes=attributes)
    story.now_s += 25
    story.emit("", "fault.end", fault_id=1, attributes=attributes)
    assert story.seen == ["housekeeping"]


def test_who_has_become_a_slave_confirms_nothing_before_it_is_promoted_again(story: Story) -> None:
    story.watch(Terms)
    for number, status in enumerate(("resigned", "promoted", "resigned")):
        story.emit(MASTER, "store.term", term=1, status=status, leads=True)
        if number:
            story.put(number, b"abc")
            story.answer(number, 3 * number)
        assert story.seen == (["terms"] if number == 2 else [])


def test_nobody_follows_a_master_of_an_older_term(story: Story) -> None:
    story.watch(Terms)
    story.terms = {MASTER: 1, SLAVE: 2}
    follow(story, SLAVE)
    story.emit(SLAVE, "ha.client.compare", status="same", offset=10, attributes={"questions": "1"})
    story.emit(SLAVE, "ha.client.report", offset=10)
    assert story.seen == ["terms"]


@pytest.mark.parametrize(("is_told", "seen"), [(True, ["terms"]), (False, [])])
def test_who_halts_for_a_master_keeps_the_term_that_this_one_says_it_has(
    story: Story, *, is_told: bool, seen: list[str]
) -> None:
    """A master whose term could not be made durable may have it in its file, and leads without it."""
    story.watch(Terms)
    story.terms = {MASTER: 2, SLAVE: 1}
    if is_told:
        story.emit(MASTER, "store.term", term=2, status="promoted", leads=True)
    follow(story, SLAVE)
    story.emit(SLAVE, "ha.client.compare", status="diverged", offset=10, attributes={"questions": "1"})
    halt(story, SLAVE, master="10.0.0.1")
    assert story.seen == seen


@pytest.mark.parametrize(("status", "wait_s"), [("lookup_failed", 10), ("no_answer", 60)])
def test_nothing_is_promised_of_a_slave_with_another_log_that_followed_as_nobody_answered(
    status: str, wait_s: int
) -> None:
    story = Story()
    story.watch(FollowedUnasked, Divergence)
    story.append(MASTER, b"abc")
    story.promote(SLAVE, is_longest=False)
    follow(story, MASTER, "10.0.0.2")
    story.now_s += wait_s
    story.emit(MASTER, "ha.client.compare", status=status, offset=3, attributes={"questions": "0"})
    story.emit(MASTER, "ha.client.report", offset=3)
    assert story.limits == ["followed_unasked"]


@pytest.mark.parametrize(
    ("status", "seen"),
    [("illegal_frame", ["understood"]), ("offset_mismatch", ["understood"]), ("connection_lost", [])],
)
def test_slaves_understand_their_masters(status: str, seen: list[str]) -> None:
    story = Story()
    story.watch(Understood)
    follow(story, SLAVE)
    story.emit(SLAVE, "ha.client.close", status=status)
    assert story.seen == seen


@pytest.mark.parametrize(("peer", "seen"), [("10.0.0.2", ["understood"]), ("10.0.0.9", [])])
def test_masters_understand_their_slaves_and_not_all_strangers(peer: str, seen: list[str]) -> None:
    story = Story()
    story.watch(Understood)
    story.connect(1, peer)
    story.emit(MASTER, "ha.connection.close", conn_id=1, status="illegal_report")
    assert story.seen == seen


@pytest.mark.parametrize(("has", "seen"), [(b"same", ["understood"]), (b"more than", [])])
def test_nobody_is_turned_away_as_ahead_who_never_was(has: bytes, seen: list[str]) -> None:
    story = Story()
    story.watch(Understood)
    story.append(MASTER, b"same")
    story.append(SLAVE, has)
    story.connect(1, "10.0.0.2")
    story.emit(MASTER, "ha.connection.close", conn_id=1, status="slave_ahead")
    assert story.seen == seen


@pytest.mark.parametrize(("data", "seen"), [(b"def", []), (b"xyz", ["prefix"])])
def test_a_slave_begins_with_what_is_left_at_a_master_before_that_it_still_follows(
    data: bytes, seen: list[str]
) -> None:
    """The next master has another log, of which the slave has nothing."""
    story = Story()
    story.emit(MASTER, "store.term", term=1, status="promoted", leads=True)
    story.append(MASTER, b"abcdef")
    story.emit(MASTER, "log.delete", offset=3)
    story.promote(OTHER, is_longest=False)
    story.append(OTHER, b"uvw")
    follow(story, SLAVE)
    story.logs[SLAVE] += bytes(3)
    story.append(SLAVE, data)
    assert story.seen == seen
