"""The judge of topics that come and go, law by law: a small history in which it breaks, and one in which it holds."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from rmq_actors.testing.invariants import ConsumerOffsets, QueueOffsets, TopicLives
from rmq_actors.tracing.events.broker import BrokerOffsetBack
from tests.worlds.cluster_story import ANSWER, MASTER, OTHER, SLAVE, Story, cut
from tests.worlds.topic_story import TOPIC, ask, read_last, serve, tell_offset, topic_record

SIZE = len(topic_record(0))


def deleted() -> Story:
    """A message that two brokers have, and the topic is deleted at the master after that."""
    story = Story(takes_parts=False)
    story.watch(TopicLives)
    story.emit(MASTER, "store.term", term=1, status="promoted", leads=True)
    for node in (MASTER, SLAVE):
        story.append(node, topic_record(0))
    ask(story, "delete")
    return story


def told(story: Story, node: str = SLAVE, times: int = 2) -> None:
    for _ in range(times):
        story.take_table(node, set())


def promoted(story: Story) -> None:
    story.emit(MASTER, "store.term", term=1, status="resigned", leads=True)
    story.promote(SLAVE, is_longest=True)
    story.emit(SLAVE, "store.term", term=2, status="promoted", leads=True)


def master_serves_it(story: Story) -> bool:
    serve(story, 0, 0)
    return False


def master_serves_the_next_life(story: Story) -> bool:
    story.append(MASTER, topic_record(0))
    serve(story, 0, SIZE)
    return True


def it_comes_back_after_a_kill(story: Story) -> bool:
    story.emit(MASTER, "node.kill")
    story.emit(MASTER, "store.open", offset=SIZE, status="crash")
    serve(story, 0, 0)
    return False


def slave_that_was_not_told_serves_it(story: Story) -> bool:
    told(story, times=1)  # it may have asked before
    serve(story, 0, 0, SLAVE)
    return True


def slave_that_was_told_serves_it(story: Story) -> bool:
    told(story)
    serve(story, 0, 0, SLAVE)
    return False


def slave_whose_log_was_cut_serves_it(story: Story) -> bool:
    told(story)
    cut(story, SLAVE, SIZE)
    serve(story, 0, 0, SLAVE)
    return True


def next_master_that_was_told_serves_it(story: Story) -> bool:
    told(story)
    promoted(story)
    serve(story, 0, 0, SLAVE)
    return False


def next_master_that_was_not_told_serves_it(story: Story) -> bool:
    promoted(story)
    serve(story, 0, 0, SLAVE)
    serve(story, 0, 0)  # and so may the one before it, once it follows
    return True


def next_master_that_asked_once_more_serves_it(story: Story) -> bool:
    story.emit(MASTER, "store.term", term=1, status="resigned", leads=True)
    story.take_table(SLAVE, set(), actor="LastRound")
    promoted(story)
    serve(story, 0, 0, SLAVE)
    return False


def next_life_counts_on(story: Story) -> bool:
    story.append(MASTER, topic_record(1))
    return False


def next_life_begins_at_0(story: Story) -> bool:
    story.append(MASTER, topic_record(0))
    story.append(MASTER, topic_record(1))
    return True


def deletion_without_an_answer(story: Story) -> bool:
    ask(story, "delete", "RemotingTimeoutError")
    story.append(MASTER, topic_record(1))
    return True


def offset_is_left(story: Story) -> bool:
    tell_offset(story, "query", 1)
    return False


def offset_of_this_life(story: Story) -> bool:
    tell_offset(story, "query", 0)
    tell_offset(story, "commit", 1)
    tell_offset(story, "query", 1)
    return True


def settings_are_left(story: Story) -> bool:
    told(story, OTHER)
    story.tables[OTHER, "topics"] = {TOPIC}
    story.end()
    return False


def offsets_are_left_at_a_slave(story: Story) -> bool:
    story.offsets[OTHER] = {f"{TOPIC}@Group": {0: 1}}
    story.end()
    return False


def nothing_is_left(story: Story) -> bool:
    read_last(story)
    story.end()
    return True


def queue_is_left_at_a_slave(story: Story) -> bool:
    read_last(story)
    read_last(story, (0, 0), node=OTHER)
    story.end()
    return False


def message_of_the_next_life_is_lost(story: Story) -> bool:
    story.append(MASTER, topic_record(0))
    for node in (MASTER, SLAVE, OTHER):
        read_last(story, node=node)
    story.end()
    return False


def every_broker_has_the_next_life(story: Story) -> bool:
    story.append(MASTER, topic_record(0))
    for node in (MASTER, SLAVE, OTHER):
        read_last(story, (0, SIZE), node=node)
    story.end()
    return True


def queue_does_not_begin_at_0(story: Story) -> bool:
    for node in (MASTER, SLAVE, OTHER):
        read_last(story, (1, SIZE), node=node)
    story.end()
    return False


def what_nobody_has_sent(story: Story) -> bool:
    serve(story, 0, SIZE, status="altered")
    return False


@pytest.mark.parametrize(
    "history",
    [
        master_serves_it,
        master_serves_the_next_life,
        it_comes_back_after_a_kill,
        slave_that_was_not_told_serves_it,
        slave_that_was_told_serves_it,
        slave_whose_log_was_cut_serves_it,
        next_master_that_was_told_serves_it,
        next_master_that_was_not_told_serves_it,
        next_master_that_asked_once_more_serves_it,
        next_life_counts_on,
        next_life_begins_at_0,
        deletion_without_an_answer,
        offset_is_left,
        offset_of_this_life,
        settings_are_left,
        offsets_are_left_at_a_slave,
        nothing_is_left,
        queue_is_left_at_a_slave,
        message_of_the_next_life_is_lost,
        every_broker_has_the_next_life,
        queue_does_not_begin_at_0,
        what_nobody_has_sent,
    ],
    ids=lambda each: each.__name__,
)
def test_it_holds_or_breaks(history: Callable[[Story], bool]) -> None:
    story = deleted()
    holds = history(story)
    assert story.seen == ([] if holds else ["topic_lives"])


def test_what_a_deleted_topic_had_says_nothing_of_its_next_life() -> None:
    """Its queues begin again, and its groups' offsets go back: other invariants are not told of that."""
    story = Story(takes_parts=False)
    story.watch(QueueOffsets, ConsumerOffsets)
    story.emit(MASTER, "store.term", term=1, status="promoted", leads=True)
    story.append(MASTER, topic_record(0))
    ask(story, "delete")
    story.append(MASTER, topic_record(0))
    for offset in (3, 2):
        story.offsets[SLAVE] = {f"{TOPIC}@Group": {0: offset}}
        attributes = ANSWER | {"part": "consumer_offsets"}
        story.emit(SLAVE, "broker.slave_synchronize", status="changed", attributes=attributes)
    assert story.seen == []


@pytest.mark.parametrize("set_back_to", [None, 4, 2, 0])
def test_an_offset_of_a_slave_goes_back_only_where_a_client_has_set_it_back(set_back_to: int | None) -> None:
    story = Story(takes_parts=False)
    story.watch(ConsumerOffsets)
    attributes = ANSWER | {"part": "consumer_offsets"}
    for offset in (5, 2):
        if offset < 5 and set_back_to is not None:
            offsets = {"queue_offset": 5, "queue_offset_next": set_back_to}
            story.recorder.record(BrokerOffsetBack(group="Group", topic=TOPIC, queue_id=0, **offsets), SLAVE)
        story.offsets[SLAVE] = {f"{TOPIC}@Group": {0: offset}}
        story.emit(SLAVE, "broker.slave_synchronize", status="changed", attributes=attributes)
    assert story.seen == (["consumer_offsets"] if set_back_to in {None, 4} else [])
