"""Each invariant alone: a small history in which it breaks, and one in which it holds. More: `test_invariants.py`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest

from rmq_actors.testing.invariants import (
    REPLICATION_INVARIANTS,
    REPLICATION_LIMITS,
    Checkpointed,
    Deletions,
    Refused,
    Synced,
    TermKept,
)
from rmq_actors.testing.invariants.answer import ANSWER_MAX_S
from rmq_actors.testing.invariants.checkpointed import CHECKPOINT_MAX_S
from rmq_actors.testing.invariants.divergence import Divergence
from rmq_actors.testing.invariants.invariant import Invariant
from rmq_actors.testing.invariants.queue_offsets import QueueOffsets
from rmq_actors.testing.invariants.read_in_the_end import LAST_READER
from rmq_actors.testing.view import STORE_SERVICES
from rmq_actors.tracing.events.actor import ActorStart
from rmq_actors.wire.record import Message, encode_message
from tests.worlds.client_story import chaos_record, tell_pull, tell_read, tell_sent
from tests.worlds.cluster_story import ANSWER, MASTER, OTHER, SLAVE, Story, cut, follow, halt


def prefix(story: Story, holds: bool) -> None:
    story.append(MASTER, b"abc")
    story.append(SLAVE, b"abc" if holds else b"abX")


def whole(story: Story, holds: bool) -> None:
    story.append(MASTER, b"abc")
    story.append(SLAVE, b"abc" if holds else b"ab")


def answer(story: Story, holds: bool) -> None:
    story.put(0, b"abc")
    story.append(SLAVE, b"abc")
    story.now_s += ANSWER_MAX_S if holds else ANSWER_MAX_S + 1
    story.answer(0, 3)


def derived(story: Story, holds: bool) -> None:
    if not holds:
        story.damaged[SLAVE] = ["consumequeue/Topic/0: entry 3 speaks of nothing"]
    story.end()


def convergence(story: Story, holds: bool) -> None:
    for node in (MASTER, SLAVE, OTHER) if holds else (MASTER, SLAVE):
        story.append(node, b"abc")
    story.end()


def divergence(story: Story, holds: bool) -> None:
    story.append(MASTER, b"abc")
    story.promote(SLAVE, is_longest=False)
    if holds:
        story.append(SLAVE, b"other")
    halt(story, MASTER if holds else OTHER)


def survival(story: Story, holds: bool) -> None:
    story.append(MASTER, b"abc")
    story.emit(MASTER, "log.flush", offset=3)
    story.lose_power(MASTER, 3 if holds else 0)


def synced(story: Story, holds: bool) -> None:
    story.append(MASTER, b"abc")
    story.append(SLAVE, b"abc")
    story.emit(SLAVE, "log.flush", offset=3 if holds else 2)
    story.emit(SLAVE, "ha.client.report", offset=3)


def report(story: Story, holds: bool) -> None:
    story.emit(OTHER, "ha.client.report", offset=0 if holds else 1)


def replicated(story: Story, holds: bool) -> None:
    story.append(MASTER, b"abc")
    if holds:
        story.append(SLAVE, b"abc")
    story.emit(MASTER, "ha.replicated", offset=3)


def ack(story: Story, holds: bool) -> None:
    story.put(0, b"abc")
    if holds:
        story.append(SLAVE, b"abc")
    story.answer(0, 3)


def acknowledged(story: Story, holds: bool) -> None:
    story.put(0, b"abc")
    story.append(SLAVE, b"abc")
    story.answer(0, 3)
    story.promote(SLAVE if holds else OTHER, is_longest=True)


def at_rest(story: Story, holds: bool) -> None:
    told: dict[str, object] = {"duration_ns": 30 * 10**9, "held_pulls": 0, "detail": "a task 100"}
    story.emit(MASTER, "broker.rest", role="MASTER", slaves=2, steps=150, disk_operations=0, **told)
    story.emit(SLAVE, "broker.rest", role="SLAVE", slaves=0, steps=270, disk_operations=0 if holds else 1, **told)


def leaks(story: Story, holds: bool) -> None:
    story.left_open += [] if holds else ["slave-1: a socket", "slave-1: a file"]
    story.end()


def queue_offsets(story: Story, holds: bool) -> None:
    story.emit(MASTER, "store.term", term=1, status="promoted", leads=True)
    for queue_offset in (0, 1, 2 if holds else 1):
        story.append(MASTER, record(queue_offset))


def queue_begun_again(story: Story, holds: bool) -> None:
    """The new master, a new slave before, has its log from where the old one's began after a cleaning."""
    story.emit(MASTER, "store.term", term=1, status="promoted", leads=True)
    for queue_offset in range(2):
        story.append(MASTER, record(queue_offset))
    if holds:
        story.append(SLAVE, bytes(story.logs[MASTER]))
    else:
        end = len(story.logs[MASTER])
        story.append(MASTER, b"blank")
        story.emit(MASTER, "log.delete", offset=end, status="cleaned")
        story.logs[SLAVE] += bytes(end)
        story.append(SLAVE, b"blank")
    story.promote(SLAVE, is_longest=True)
    story.emit(SLAVE, "store.term", term=2, status="promoted", leads=True)
    story.append(SLAVE, record(2 if holds else 0))


def sent(story: Story, holds: bool) -> None:
    story.append(MASTER, chaos_record(0))
    tell_sent(story, queue_offset=0 if holds else 1)


def send_ok(story: Story, holds: bool) -> None:
    story.put(0, chaos_record(0))
    end = len(chaos_record(0))
    story.emit(MASTER, "put.end", msg_id=0, offset=end, status="PUT_OK" if holds else "FLUSH_SLAVE_TIMEOUT")
    tell_sent(story, queue_offset=0)


def read(story: Story, holds: bool) -> None:
    story.append(MASTER, chaos_record(0))
    tell_read(story, chaos_record(0), expected=0 if holds else 1)


def read_in_the_end(story: Story, holds: bool) -> None:
    story.append(MASTER, chaos_record(0))
    tell_pull(story)
    if holds:
        tell_read(story, chaos_record(0), actor=LAST_READER)
    story.end()


def tables_kept(story: Story, holds: bool) -> None:
    """Made a slave, the master takes over the tables of another slave, which is none of its masters."""
    story.make_topic(MASTER, "Orders")
    story.take_table(MASTER, {"Orders"} if holds else set())


def tables_equal(story: Story, holds: bool) -> None:
    story.make_topic(MASTER, "Orders")
    for slave in (SLAVE, OTHER) if holds else (SLAVE,):
        story.take_table(slave, {"Orders"})
    story.end()


def consumer_offsets(story: Story, holds: bool) -> None:
    for offset in (3, 4 if holds else 2):
        story.offsets[SLAVE] = {"Orders@group": {0: offset}}
        story.emit(
            SLAVE, "broker.slave_synchronize", status="changed", attributes=ANSWER | {"part": "consumer_offsets"}
        )


def term_kept(story: Story, holds: bool) -> None:
    """After a power loss the file has what it had before the promotion."""
    story.emit(MASTER, "store.term", term=2, status="promoted", leads=True)
    if not holds:
        story.terms[MASTER] = 1
    story.emit(MASTER, "store.open", offset=0, status="clean")


def record(queue_offset: int) -> bytes:
    """A message of the queue 0."""
    encoded = encode_message(Message("Orders", b"body"))
    encoded.place(queue_offset=queue_offset, physical_offset=0, store_timestamp_ms=0)
    return bytes(encoded.data)


def terms(story: Story, holds: bool) -> None:
    story.emit(MASTER, "store.term", term=3, status="promoted", leads=True)
    story.terms = {SLAVE: 2}
    follow(story, SLAVE)
    compare(story, SLAVE, "same")
    story.terms[SLAVE] = 3 if holds else 2
    story.emit(SLAVE, "ha.client.report", offset=0)


def halted(story: Story, holds: bool) -> None:
    halt(story, SLAVE, master="10.0.0.1")
    story.take_table(SLAVE, set())  # it was under way
    if holds:
        follow(story, SLAVE)
    story.take_table(SLAVE, set())


def unasked(story: Story, holds: bool) -> None:
    for wait_s in (9.0, 1.0 if holds else 0.5):
        follow(story, SLAVE)
        story.now_s += wait_s
        compare(story, SLAVE, "lookup_failed")
        if wait_s == 9.0:
            story.emit(SLAVE, "ha.client.close", status="lookup_failed")
    story.emit(SLAVE, "ha.client.report", offset=0)


def housekeeping(story: Story, holds: bool) -> None:
    follow(story, SLAVE)
    story.emit(SLAVE, "ha.client.report", offset=0)
    story.now_s += 1
    fault(story, "fault.begin", "Hold", "master,slave-1")
    story.now_s += 20
    if holds:
        story.emit(SLAVE, "ha.client.close", status="housekeeping")
    story.now_s += 5
    fault(story, "fault.end", "Hold", "master,slave-1")


def understood(story: Story, holds: bool) -> None:
    follow(story, SLAVE)
    story.emit(SLAVE, "ha.client.close", status="silence" if holds else "illegal_frame")


def exchanges(story: Story, holds: bool) -> None:
    if holds:
        story.notes.add(MASTER)
    story.emit(MASTER, "broker.exchange", status="promote", attributes={"effect": "Promote"})


def commands(story: Story, holds: bool) -> None:
    for status in ("asked", "refused"):
        story.emit(MASTER, "operator.role", status=status, attributes={"role": "SLAVE"})
        if not holds:
            story.emit(MASTER, "broker.role", status="changed", offset=0, attributes={"role": "SLAVE"})


def deletions(story: Story, holds: bool) -> None:
    story.emit(SLAVE, "store.open", offset=0, status="recovered")
    if not holds:
        story.deleting[SLAVE] = {"Topic"}
    story.recorder.record(ActorStart(), SLAVE, "RoleChanges")


def compare(story: Story, node: str, status: str) -> None:
    story.emit(node, "ha.client.compare", status=status, offset=0, attributes={"questions": "1"})


def fault(story: Story, kind: str, fault_kind: str, nodes: str) -> None:
    story.emit("", kind, fault_id=1, attributes={"fault.kind": fault_kind, "fault.nodes": nodes})


def followed_unasked(story: Story, holds: bool) -> None:
    story.append(MASTER, b"abc")
    story.promote(SLAVE, is_longest=False)
    follow(story, MASTER, "10.0.0.2")
    if holds:
        story.kept[MASTER] = b"abc"
        cut(story, MASTER, 0)
    story.now_s += 10
    attributes = {"questions": "1"}
    story.emit(MASTER, "ha.client.compare", status="lookup_failed", offset=0 if holds else 3, attributes=attributes)
    story.emit(MASTER, "ha.client.report", offset=0 if holds else 3)


def damaged_master(story: Story, holds: bool) -> None:
    story.append(MASTER, b"abc")
    story.rot(SLAVE, 1)
    story.promote(OTHER if holds else SLAVE, is_longest=False)


HISTORIES: Mapping[str, Callable[[Story, bool], None]] = {
    history.__name__: history
    for history in (
        prefix,
        whole,
        answer,
        derived,
        convergence,
        divergence,
        survival,
        synced,
        report,
        replicated,
        ack,
        acknowledged,
        at_rest,
        leaks,
        followed_unasked,
        damaged_master,
        queue_offsets,
        queue_begun_again,
        tables_kept,
        tables_equal,
        consumer_offsets,
        terms,
        halted,
        unasked,
        housekeeping,
        understood,
        exchanges,
        deletions,
        commands,
        term_kept,
        sent,
        send_ok,
        read,
        read_in_the_end,
    )
}


@pytest.mark.parametrize("holds", [True, False], ids=["holds", "breaks"])
@pytest.mark.parametrize("invariant", [*REPLICATION_INVARIANTS, *REPLICATION_LIMITS], ids=lambda each: each.name)
def test_it_holds_or_breaks(invariant: type[Invariant[Any]], holds: bool) -> None:
    story = Story(sync_flush=(SLAVE,) if invariant.name == "synced" else (), takes_parts=False)
    story.watch(invariant)
    HISTORIES[invariant.name](story, holds)
    assert [*story.seen, *story.limits] == ([] if holds else [invariant.name])


def test_a_broker_that_syncs_first_dispatches_nothing_else() -> None:
    for dispatched, seen in ((2, []), (3, ["synced"])):
        story = Story(sync_flush=(SLAVE,))
        story.watch(Synced)
        story.append(SLAVE, b"abc")
        story.emit(SLAVE, "log.flush", offset=2)
        story.emit(MASTER, "store.dispatch", offset=3, size=1)  # ASYNC_FLUSH
        story.emit(SLAVE, "store.dispatch", offset=dispatched, size=1)
        assert story.seen == seen


def test_a_store_whose_disk_is_well_moves_its_recovery_point() -> None:
    for synced, fails, waits_s, seen in (
        (4, False, CHECKPOINT_MAX_S, []),
        (4, False, CHECKPOINT_MAX_S + 1, ["checkpointed"]),
        (3, False, CHECKPOINT_MAX_S + 1, []),
        (4, True, CHECKPOINT_MAX_S + 1, []),
    ):
        story = Story()
        story.watch(Checkpointed)
        for offset in range(1, 4):  # each time it is a little later
            story.now_s += CHECKPOINT_MAX_S - 1
            story.emit(SLAVE, "store.dispatch", offset=offset, size=1)
            story.emit(SLAVE, "log.flush", offset=offset)
            story.emit(SLAVE, "store.checkpoint", offset=offset)
        story.emit(SLAVE, "store.dispatch", offset=4, size=1)
        story.emit(SLAVE, "log.flush", offset=synced)
        if fails:
            story.emit(SLAVE, "storage.error", status="EIO", attributes={"path": "checkpoint", "operation": "sync"})
        story.now_s += waits_s
        story.emit(SLAVE, "store.dispatch", offset=5, size=1)
        assert story.seen == seen


@pytest.mark.parametrize(("waits_s", "seen"), [(CHECKPOINT_MAX_S, []), (CHECKPOINT_MAX_S + 1, ["checkpointed"])])
def test_a_slow_sync_excuses_no_more_than_the_time_that_it_takes(waits_s: float, seen: list[str]) -> None:
    story = Story()
    story.watch(Checkpointed)
    story.emit(SLAVE, "store.dispatch", offset=4, size=1)
    story.emit(SLAVE, "log.flush", offset=4)
    slow = {"path": "checkpoint", "operation": "sync", "extra_s": 20.0}
    story.emit(SLAVE, "storage.slow", attributes=slow)
    story.now_s += 20.0 + waits_s
    story.emit(SLAVE, "store.dispatch", offset=5, size=1)
    assert story.seen == seen


@pytest.mark.parametrize(("fails_before", "seen"), [(False, []), (True, ["deletions"])])
def test_an_error_of_the_disk_excuses_a_deletion_until_the_store_is_opened_again(
    fails_before: bool, seen: list[str]
) -> None:
    story = Story()
    story.watch(Deletions)
    story.deleting[SLAVE] = {"Topic"}
    events: tuple[tuple[str, dict[str, Any]], ...] = (
        ("store.open", {"offset": 0, "status": "recovered"}),
        ("storage.error", {"status": "EIO", "attributes": {"path": "config/topics.json", "operation": "write"}}),
    )
    for kind, columns in reversed(events) if fails_before else events:
        story.emit(SLAVE, kind, **columns)
    story.recorder.record(ActorStart(), SLAVE, "RoleChanges")
    assert story.seen == seen


def test_a_broker_that_was_set_up_again_has_no_term_to_keep() -> None:
    story = Story()
    story.watch(TermKept)
    story.emit(SLAVE, "store.term", term=2, status="adopted", leads=False)
    story.terms[SLAVE] = 0
    story.emit(SLAVE, "operator.set_up_anew")
    story.emit(SLAVE, "store.open", offset=0, status="clean")
    assert story.seen == []


def test_a_term_goes_back_within_a_life_only_after_a_broker_was_set_up_again() -> None:
    """Its file has each of the terms: nobody sees there that it went back."""
    for is_set_up, seen in ((False, ["term_kept"]), (True, [])):
        story = Story()
        story.watch(TermKept)
        for term in (1, 3):
            story.emit(SLAVE, "store.term", term=term, status="adopted", leads=False)
        if is_set_up:
            story.emit(SLAVE, "operator.set_up_anew")
        story.emit(SLAVE, "store.term", term=2, status="adopted", leads=False)
        story.emit(SLAVE, "store.open", offset=0, status="clean")
        assert story.seen == seen
    story = Story()
    story.watch(TermKept)
    for status in ("promoted", "resigned"):
        story.emit(SLAVE, "store.term", term=3, status=status, leads=status == "promoted")
    assert story.seen == []


def test_a_broker_does_not_go_to_work_before_its_files_are_mended() -> None:
    for told, node, actor, seen in (
        (["refused"], SLAVE, STORE_SERVICES, ["refused"]),
        (["refused"], SLAVE, "HAService", []),
        (["refused"], OTHER, STORE_SERVICES, []),
        (["changed"], SLAVE, STORE_SERVICES, []),
        (["refused", "mended"], SLAVE, STORE_SERVICES, []),
    ):
        story = Story()
        story.watch(Refused)
        for status in told:
            story.emit(SLAVE, "operator.files", status=status, attributes={"detail": "spoil_term"})
        story.emit(SLAVE, "store.open", offset=0, status="clean")
        story.recorder.record(ActorStart(), node, actor)
        assert story.seen == seen


def test_no_master_is_fenced_for_an_exchange_that_cannot_be_written_down() -> None:
    for told, effect, is_lost, seen in (
        (["blocked"], "Fence", False, ["refused"]),
        (["blocked"], "AskPartner", False, []),
        (["blocked"], "Fence", True, []),
        (["blocked", "mended"], "Fence", False, []),
    ):
        story = Story()
        story.watch(Refused)
        for status in told:
            story.emit(SLAVE, "operator.files", status=status, attributes={"detail": "directory_in_the_way"})
        if is_lost:
            story.emit(SLAVE, "node.power_loss")
        story.emit(MASTER, "broker.exchange", status="fence", attributes={"effect": effect})
        assert story.seen == seen


def test_a_part_of_a_record_is_no_reason_to_halt() -> None:
    """The next master never had the rest of it; who has a whole record more than that one halts rightly."""
    for data, seen in ((b"ab", ["divergence"]), (b"abc", [])):
        story = Story(takes_parts=False)
        story.watch(Divergence)
        story.append(MASTER, b"abc")
        story.append(SLAVE, data)
        story.promote(OTHER, is_longest=False)
        halt(story, SLAVE, master="10.0.0.3")
        assert story.seen == seen


def test_what_is_left_open_is_told_together() -> None:
    story = Story()
    leaks(story, holds=False)
    assert str(story.broken[0]) == "leaks: slave-1: a socket; slave-1: a file (at event 99)"


def test_flipped_bits_are_no_damage_but_in_a_body_they_must_be_found() -> None:
    story = Story()
    story.rot(SLAVE, 2)
    derived(story, holds=False)
    assert story.seen == []


@pytest.mark.parametrize(("is_asked", "seen"), [(True, []), (False, ["queue_offsets"])])
def test_a_queue_begins_again_once_somebody_has_asked_to_delete_its_topic(*, is_asked: bool, seen: list[str]) -> None:
    """A broker that deletes one by itself is no excuse."""
    story = Story()
    story.watch(QueueOffsets)
    story.emit(MASTER, "store.term", term=1, status="promoted", leads=True)
    for queue_offset in (0, 1):
        story.append(MASTER, record(queue_offset))
    if is_asked:
        story.emit("clients", "client.topic", status="asked", operation="delete", attributes={"topic": "Orders"})
    story.emit(MASTER, "broker.delete_topic", attributes={"topic": "Orders"})
    story.append(MASTER, record(0))
    assert story.seen == seen
