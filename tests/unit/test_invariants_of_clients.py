"""What producers and consumers are told: what each of its invariants notices, and what it lets pass."""

from __future__ import annotations

import pytest

from rmq_actors.testing.invariants import Read, ReadInTheEnd, Sent, Transactions
from rmq_actors.testing.invariants.read_in_the_end import LAST_READER
from tests.worlds.client_story import chaos_record, tell_pull, tell_read, tell_sent
from tests.worlds.cluster_story import A_BLANK, MASTER, SLAVE, Story

FIRST, SECOND = chaos_record(0), chaos_record(1, "b")


def two_messages(sync_flush: tuple[str, ...] = ()) -> Story:
    """The master has two messages."""
    story = Story(takes_parts=False, sync_flush=sync_flush)
    story.watch(Sent, Read, ReadInTheEnd)
    story.append(MASTER, FIRST)
    story.append(MASTER, SECOND)
    return story


def promoted_with_less(story: Story) -> None:
    """A slave with the first message alone is the master now, and writes another second one."""
    story.append(SLAVE, FIRST)
    story.promote(SLAVE, is_longest=True)
    story.append(SLAVE, chaos_record(1, "c"))


def test_what_is_told_as_it_is_breaks_nothing() -> None:
    story = two_messages()
    tell_sent(story)
    tell_sent(story, "b", offset=len(FIRST), queue_offset=1)
    for actor in ("Consumer", LAST_READER):
        tell_pull(story, actor=actor)
        tell_read(story, FIRST, actor=actor)
        tell_read(story, SECOND, offset=len(FIRST), queue_offset=1, actor=actor)
    story.end()
    assert story.seen == []


@pytest.mark.parametrize(
    ("key", "offset", "queue_offset"), [("b", 0, 0), ("a", len(FIRST), 0), ("a", 0, 1), ("a", 7, 0), ("a", 9999, 0)]
)
def test_a_producer_is_told_of_another_place(key: str, offset: int, queue_offset: int) -> None:
    story = two_messages()
    tell_sent(story, key, offset=offset, queue_offset=queue_offset)
    assert story.seen == ["sent"]


def test_what_was_stored_may_be_lost_before_its_producer_knows() -> None:
    story = two_messages()
    promoted_with_less(story)
    tell_sent(story, "b", offset=len(FIRST), queue_offset=1)
    assert story.seen == []


def test_what_was_answered_from_a_pool_need_not_be_there() -> None:
    story = two_messages()
    story.emit(MASTER, "put.begin", msg_id=1, offset=9000, size=99)
    story.answer(1, 9099)
    tell_sent(story, "c", offset=9000, queue_offset=2)
    assert story.seen == []


def test_a_file_of_the_log_ends_where_nobody_was_told_of() -> None:
    story = two_messages()
    story.append(MASTER, A_BLANK)
    tell_sent(story, "c", offset=len(FIRST) + len(SECOND), queue_offset=2)
    assert story.seen == ["sent"]
    assert str(story.broken[0]).endswith("; there is no message (at event 6)")


def test_a_consumer_gets_what_nobody_has_sent() -> None:
    story = two_messages()
    tell_read(story, FIRST, status="altered")
    assert story.seen == ["read"]


def test_a_consumer_gets_bytes_that_no_log_has() -> None:
    story = two_messages()
    tell_read(story, SECOND)
    assert story.seen == ["read"]
    assert "never stood at 0" in str(story.broken[0])


def test_a_consumer_gets_what_a_master_had_that_is_gone() -> None:
    story = two_messages()
    promoted_with_less(story)
    tell_read(story, SECOND, offset=len(FIRST), queue_offset=1)
    assert story.seen == []


@pytest.mark.parametrize("is_cleaned", [False, True])
def test_an_offset_is_left_out(is_cleaned: bool) -> None:
    story = two_messages()
    if is_cleaned:
        story.emit(MASTER, "log.delete", offset=len(FIRST), status="cleaned")
    tell_read(story, SECOND, offset=len(FIRST), queue_offset=1, expected=0)
    assert story.seen == ([] if is_cleaned else ["read"])


def test_an_offset_comes_again() -> None:
    story = two_messages()
    story.emit(MASTER, "log.delete", offset=len(FIRST), status="cleaned")
    tell_read(story, SECOND, offset=len(FIRST), queue_offset=1, expected=2)
    assert story.seen == ["read"]


@pytest.mark.parametrize("synced", [len(FIRST), len(FIRST) + len(SECOND)])
def test_what_is_read_where_puts_are_synced_is_synced(synced: int) -> None:
    story = two_messages(sync_flush=(MASTER,))
    story.emit(MASTER, "log.flush", offset=synced)
    tell_read(story, SECOND, offset=len(FIRST), queue_offset=1)
    assert story.seen == ([] if synced > len(FIRST) else ["read"])


def test_another_message_at_the_same_offset() -> None:
    story = two_messages()
    story.append(MASTER, chaos_record(1, "again"))
    tell_read(story, SECOND, offset=len(FIRST), queue_offset=1)
    tell_read(story, chaos_record(1, "again"), offset=len(FIRST) + len(SECOND), queue_offset=1)
    assert story.seen == ["read"]


def test_another_message_at_the_same_offset_after_the_log_has_gone_another_way() -> None:
    story = two_messages()
    tell_read(story, SECOND, offset=len(FIRST), queue_offset=1)
    promoted_with_less(story)
    tell_read(story, chaos_record(1, "c"), offset=len(FIRST), queue_offset=1, node=SLAVE)
    assert story.seen == []


@pytest.mark.parametrize(
    ("least", "power_fails", "seen"), [(0, False, True), (1, False, True), (1, True, False), (0, True, True)]
)
def test_a_message_that_nobody_gets_in_the_end(least: int, power_fails: bool, seen: bool) -> None:
    story = two_messages()
    if power_fails:
        story.emit(MASTER, "log.flush", offset=len(story.logs[MASTER]))
        story.lose_power(MASTER, len(story.logs[MASTER]))
    tell_pull(story, least=least)
    tell_read(story, SECOND, offset=len(FIRST), queue_offset=1, actor=LAST_READER)
    story.end()
    assert story.seen == (["read_in_the_end"] if seen else [])


def test_what_was_cleaned_away_is_not_missed() -> None:
    story = two_messages()
    story.emit(MASTER, "log.delete", offset=len(FIRST), status="cleaned")
    tell_pull(story, least=1)
    tell_read(story, SECOND, offset=len(FIRST), queue_offset=1, actor=LAST_READER)
    story.end()
    assert story.seen == []


def test_nothing_is_missed_where_nobody_reads() -> None:
    story = two_messages()
    story.end()
    assert story.seen == []


@pytest.mark.parametrize(("status", "is_broken"), [("asked", False), ("too_old", False), ("AssertionError", True)])
def test_a_half_message_that_cannot_be_checked(status: str, is_broken: bool) -> None:
    story = Story()
    story.watch(Transactions)
    story.emit(MASTER, "transaction.check", status=status, offset=0, check_times=0, producer_group="PG")
    assert story.seen == ["transactions"] * is_broken
