"""What brokers must do, and must not, while they exchange their roles, or are given one."""

from __future__ import annotations

import pytest

from rmq_actors.testing.invariants import Exchanges, TablesKept
from tests.worlds.cluster_story import MASTER, SLAVE, Story


@pytest.fixture
def story() -> Story:
    story = Story()
    story.watch(Exchanges)
    return story


def step(story: Story, effect: str, status: str = "promote") -> None:
    story.emit(MASTER, "broker.exchange", status=status, attributes={"effect": effect})


def say(story: Story, status: str) -> None:
    story.emit(SLAVE, "broker.exchange_partner", status=status)


def test_a_put_is_taken_until_there_is_a_note_and_again_once_it_is_gone(story: Story) -> None:
    step(story, "WriteNote", "note")
    story.put(0, b"abc")  # the disk has not taken the note yet
    story.notes.add(MASTER)
    step(story, "Promote")
    step(story, "RemoveNote", "take_back")
    story.notes.clear()
    step(story, "Unfence", "take_back")
    story.put(1, b"abc")
    assert story.seen == []


def test_who_starts_with_a_note_takes_no_put(story: Story) -> None:
    story.notes.add(MASTER)
    story.emit(MASTER, "store.open", offset=0, status="recovered")
    story.put(0, b"abc")
    assert story.seen == ["exchanges"]


@pytest.mark.parametrize(
    ("said", "seen"),
    [
        (["ready", "is_promoted"], []),
        (["ready", "ready", "is_promoted", "ready", "is_promoted"], []),
        (["waits", "is_promoted"], ["exchanges"]),
        (["ready", "is_promoted", "refuses", "is_promoted"], ["exchanges"]),
    ],
)
def test_a_slave_is_promoted_once_for_each_time_that_it_was_ready(
    story: Story, said: list[str], seen: list[str]
) -> None:
    for each in said:
        say(story, each)
    assert story.seen == seen


def test_a_slave_that_has_opened_its_store_again_is_not_ready_any_more(story: Story) -> None:
    say(story, "ready")
    story.emit(SLAVE, "store.open", offset=0, status="clean")
    say(story, "is_promoted")
    assert story.seen == ["exchanges"]


@pytest.mark.parametrize(
    ("status", "role", "asks", "seen"),
    [
        ("changed", "SYNC_MASTER", True, []),
        ("changed", "SYNC_MASTER", False, ["tables_kept"]),
        ("changed", "SLAVE", False, []),
        ("reopened", "SYNC_MASTER", False, []),
    ],
)
def test_a_slave_asks_for_tables_once_more_before_it_becomes_the_master(
    *, status: str, role: str, asks: bool, seen: list[str]
) -> None:
    story = Story()
    story.watch(TablesKept)
    if asks:
        story.take_table(SLAVE, set(), actor="LastRound")
    story.emit(SLAVE, "broker.role", status=status, offset=0, attributes={"role": role})
    assert story.seen == seen
