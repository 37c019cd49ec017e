"""What the invariants of topics, groups and consumers' offsets take for a loss, and what for none."""

from __future__ import annotations

import pytest

from tests.worlds.cluster_story import MASTER, OTHER, SLAVE, Story


@pytest.fixture
def story() -> Story:
    """The master leads, and has acknowledged a topic; one slave has it."""
    story = Story()
    story.emit(MASTER, "store.term", term=1, status="promoted", leads=True)
    story.make_topic(MASTER, "Orders")
    story.take_table(SLAVE, {"Orders"})
    return story


def promote(story: Story, node: str) -> None:
    story.promote(node, is_longest=True)


def test_what_was_refused_may_be_there_or_not(story: Story) -> None:
    story.make_topic(MASTER, "Refused", acknowledged=False)
    story.emit(MASTER, "store.open", offset=0, status="clean")
    for slave in (SLAVE, OTHER):
        story.take_table(slave, {"Orders"})
    story.end()
    assert story.seen == []


def test_what_a_broker_was_killed_over_may_be_gone_after_a_power_loss(story: Story) -> None:
    """It was in the file, and not durable; the next master has made the same meanwhile."""
    story.tables[MASTER, "topics"].add("Payments")
    story.make_topic(MASTER, "Payments", acknowledged=False)
    promote(story, SLAVE)
    story.make_topic(SLAVE, "Payments")
    story.tables[MASTER, "topics"].remove("Payments")
    story.lose_power(MASTER, 0)
    assert story.seen == []


def test_what_was_acknowledged_must_be_on_the_masters_disk(story: Story) -> None:
    story.emit(MASTER, "client.table", status="ok", attributes={"part": "topics", "entry": "Payments"})
    assert story.seen == ["tables_kept"]


def test_a_power_loss_of_the_master_loses_nothing_that_was_acknowledged(story: Story) -> None:
    story.tables[MASTER, "topics"].clear()
    story.lose_power(MASTER, 0)
    assert story.seen == ["tables_kept"]


def test_a_slave_that_is_promoted_may_lack_what_it_never_had(story: Story) -> None:
    promote(story, OTHER)
    story.take_table(SLAVE, set())
    story.take_table(MASTER, set())
    story.end()
    assert story.seen == []


@pytest.mark.parametrize(("of", "seen"), [("10.0.0.1", ["tables_kept"]), ("10.0.0.3", [])])
def test_a_slave_has_what_the_master_has_unless_it_follows_another_slave(
    story: Story, of: str, seen: list[str]
) -> None:
    """That one may be behind."""
    story.take_table(SLAVE, set(), of=of)
    assert story.seen == seen


def test_the_master_that_was_made_a_slave_keeps_what_it_has(story: Story) -> None:
    """Whoever it follows by then may have the older tables."""
    story.emit(MASTER, "store.term", term=1, status="resigned", leads=True)
    story.take_table(MASTER, set(), of="10.0.0.2")
    assert story.seen == ["tables_kept"]


def test_who_is_set_up_again_has_lost_nothing(story: Story) -> None:
    story.emit(SLAVE, "operator.set_up_anew")
    story.take_table(SLAVE, set())
    assert story.seen == []


@pytest.mark.parametrize("is_a_slave", [True, False])
def test_the_last_round_before_a_promotion_loses_nothing_once_the_master_is_a_slave(
    story: Story, *, is_a_slave: bool
) -> None:
    """A master that still takes changes may have made the topic after it answered."""
    if is_a_slave:
        story.emit(MASTER, "store.term", term=1, status="resigned", leads=True)
    story.take_table(OTHER, set(), actor="LastRound")
    promote(story, OTHER)
    assert story.seen == (["tables_kept"] if is_a_slave else [])


@pytest.mark.parametrize(("offset", "seen"), [(6, ["tables_equal"]), (7, []), (8, [])])
def test_a_slave_has_no_smaller_offset_in_the_end(story: Story, offset: int, seen: list[str]) -> None:
    story.take_table(OTHER, {"Orders"})
    for node in (MASTER, SLAVE, OTHER):
        story.offsets[node] = {"Orders@group": {0: 7}}
    story.offsets[OTHER] = {"Orders@group": {0: offset}}
    story.end()
    assert story.seen == seen


def test_a_slave_that_has_halted_takes_nothing_over(story: Story) -> None:
    story.view.nodes[OTHER].has_halted = True
    story.end()
    assert story.seen == []
