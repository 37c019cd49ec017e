"""The judge of what strangers are answered: small histories in which it breaks, and such in which it holds."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from rmq_actors.testing.invariants import Answered
from rmq_actors.testing.strange_requests import STRAY, WAITING_PUTS_MAX, Left, StrangeRequest, overtaken
from rmq_actors.tracing.events.run import ClientTopicRead
from rmq_actors.tracing.events.storage import StorageError
from rmq_actors.wire.dispatch_request import SCHEDULE_TOPIC
from rmq_actors.wire.remoting_command import RemotingCommand
from tests.worlds.cluster_story import MASTER, OTHER, SLAVE, Story
from tests.worlds.stranger_story import leads, may_leave, read_last, strange_record, tell, tell_asked

SIZE = len(strange_record(0))


def told(operation: str, status: str, role: str = "MASTER", *, detail: str = "") -> Callable[[Story], None]:
    """A request and its answer, of a broker that is this one all the while."""

    def play(story: Story) -> None:
        tell_asked(story, operation, role)
        tell(story, operation, status, role, detail=detail)

    return play


def role_changes(status: str, operation: str = "good") -> Callable[[Story], None]:
    def play(story: Story) -> None:
        tell_asked(story, operation, "SLAVE")
        tell(story, operation, status, "MASTER")

    return play


def store_opens_again(story: Story) -> None:
    tell_asked(story, "query", "SLAVE")
    story.emit(MASTER, "store.open", offset=0, size=0)
    tell(story, "query", "SYSTEM_ERROR", "SLAVE")


def disk_has_failed(story: Story) -> None:
    story.recorder.record(StorageError(status="EIO", operation="write", path="x"), MASTER)
    told("good", "SYSTEM_ERROR")(story)


def topic_is_lost(story: Story) -> None:
    story.promote(SLAVE, is_longest=True)
    told("good", "TOPIC_NOT_EXIST")(story)


def many_wait(story: Story, count: int = WAITING_PUTS_MAX) -> None:
    for number in range(count):
        story.emit(MASTER, "put.begin", msg_id=number, offset=0, size=1)


def too_many_wait(story: Story) -> None:
    many_wait(story, WAITING_PUTS_MAX + 1)


def is_stored(story: Story) -> None:
    may_leave(story)
    story.append(MASTER, strange_record(0))


def is_stored_by_nobody(story: Story) -> None:
    may_leave(story, "s2")
    story.append(MASTER, strange_record(0))


def is_stored_elsewhere(story: Story) -> None:
    may_leave(story, queue_id=1)
    story.append(MASTER, strange_record(0))


def is_stored_anywhere(story: Story) -> None:
    may_leave(story, queue_id=-1)
    story.append(MASTER, strange_record(0, queue_id=1))


def stray_is_stored(story: Story) -> None:
    may_leave(story)
    story.append(MASTER, strange_record(0, topic=f"{STRAY}-1"))


def system_topic_is_stored(story: Story) -> None:
    may_leave(story)
    story.append(MASTER, strange_record(0, topic="SELF_TEST_TOPIC"))


def waits_first(story: Story) -> None:
    may_leave(story, is_delayed=True)
    story.append(MASTER, strange_record(0, topic=SCHEDULE_TOPIC))
    story.append(MASTER, strange_record(0))


def comes_at_once(story: Story) -> None:
    may_leave(story, is_delayed=True)
    story.append(MASTER, strange_record(0))


def waits_unasked(story: Story) -> None:
    may_leave(story)
    story.append(MASTER, strange_record(0, topic=SCHEDULE_TOPIC))


def altered_is_read(story: Story) -> None:
    read = ClientTopicRead(status="altered", offset=0, topic="Strange", queue_id=0, queue_offset=0, asked_ns=0)
    story.recorder.record(read, MASTER)


def everywhere(story: Story) -> None:
    is_stored(story)
    for node in (SLAVE, OTHER):
        story.append(node, strange_record(0))


def all_is_read(story: Story) -> None:
    everywhere(story)
    for node in (MASTER, SLAVE, OTHER):
        read_last(story, (0, 0), node=node)
    story.end()


def one_does_not_know_the_topic(story: Story) -> None:
    everywhere(story)
    read_last(story, (0, 0))
    story.end()


def slave_hears_of_the_topic_later(story: Story) -> None:
    may_leave(story, queue_id=1)
    for node in (MASTER, SLAVE, OTHER):
        story.append(node, strange_record(0, queue_id=1))
    read_last(story, node=SLAVE)
    story.end()


def slave_gives_less(story: Story) -> None:
    everywhere(story)
    read_last(story, (0, 0))
    read_last(story, node=SLAVE)
    story.end()


def more_is_read(story: Story) -> None:
    everywhere(story)
    read_last(story, (0, 0), (1, SIZE))
    story.end()


def stray_is_made(story: Story) -> None:
    story.tables[SLAVE, "topics"] = {f"{STRAY}-1"}
    story.end()


@pytest.mark.parametrize(
    ("play", "holds"),
    [
        (told("good", "SUCCESS"), True),
        (told("good", "FLUSH_SLAVE_TIMEOUT"), True),
        (told("good", "SERVICE_NOT_AVAILABLE"), True),
        (told("good", "MESSAGE_ILLEGAL"), False),
        (told("good", "TOPIC_NOT_EXIST"), False),
        (told("good", "SYSTEM_ERROR"), False),
        (told("good", "RemotingTimeoutError"), True),
        (told("good", "SUCCESS", "SLAVE"), False),
        (told("good", "SERVICE_NOT_AVAILABLE", "SLAVE"), True),
        (told("long_body", "MESSAGE_ILLEGAL"), True),
        (told("long_body", "SUCCESS"), False),
        (told("long_body", "MESSAGE_ILLEGAL", "SLAVE"), False),
        (told("pull_some", "SUCCESS"), True),
        (told("pull_some", "SUCCESS", detail="gives too much"), False),
        (role_changes("SUCCESS"), True),
        (role_changes("SYSTEM_ERROR"), True),
        (role_changes("SUCCESS", "long_body"), False),
        (role_changes("FLUSH_DISK_TIMEOUT", "long_body"), False),
        (role_changes("NO_PERMISSION", "long_body"), True),
        (role_changes("SLAVE_NOT_AVAILABLE", "end_nothing"), True),
        (told("view", "unanswered"), False),
        (role_changes("unanswered", "view"), True),
        (too_many_wait, False),
        (many_wait, True),
        (store_opens_again, True),
        (disk_has_failed, True),
        (topic_is_lost, True),
        (is_stored, True),
        (is_stored_by_nobody, False),
        (is_stored_elsewhere, False),
        (is_stored_anywhere, True),
        (stray_is_stored, False),
        (system_topic_is_stored, False),
        (waits_first, True),
        (comes_at_once, False),
        (waits_unasked, False),
        (altered_is_read, False),
        (all_is_read, True),
        (one_does_not_know_the_topic, True),
        (slave_hears_of_the_topic_later, True),
        (slave_gives_less, False),
        (more_is_read, False),
        (stray_is_made, False),
    ],
)
def test_each_law(play: Callable[[Story], None], holds: bool) -> None:
    story = Story(takes_parts=False)
    story.watch(Answered)
    leads(story)
    play(story)
    assert story.seen == ([] if holds else ["answered"])


def placed(kind: str, offset: int) -> tuple[StrangeRequest, RemotingCommand]:
    """A message of one queue, and the answer that tells its place."""
    answer = RemotingCommand(0, ext_fields={"queueId": "1", "queueOffset": str(offset)})
    return StrangeRequest(kind, [], [Left("Strange", 1, b"", [])]), answer


def test_a_message_that_overtakes_one_of_its_connection_is_told() -> None:
    assert overtaken([placed("good", 4), placed("batch", 5), placed("good", 6)]) == ""
    assert "offset 4 of queue 1 after one that got 5" in overtaken([placed("good", 5), placed("batch", 4)])


def test_messages_may_overtake_an_answer_to_a_client() -> None:
    """RocketMQ serves it in a pool of its own, replyMessageExecutor."""
    assert overtaken([placed("batch", 0), placed("reply", 5), placed("any_queue", 4)]) == ""
