"""The judge of what strangers are answered: small histories in which it breaks, and such in which it holds."""

from __future__ import annotations

from collections.abc import Callable

import attrs
import pytest

from rmq_actors.testing.invariants import Answered
from rmq_actors.testing.strange_asks import ASKS
from rmq_actors.testing.strange_requests import (
    GROUP,
    STRAY,
    WAITING_PUTS_MAX,
    Dice,
    Draft,
    Left,
    StrangeRequest,
    overtaken,
)
from rmq_actors.tracing.events.run import ClientTopicRead, FaultBegin, FaultEnd
from rmq_actors.tracing.events.storage import StorageError
from rmq_actors.wire.dispatch_request import SCHEDULE_TOPIC
from rmq_actors.wire.headers import encode_header
from rmq_actors.wire.headers.offsets import PullMessageResponseHeader
from rmq_actors.wire.remoting_command import RemotingCommand
from rmq_actors.wire.response_code import ResponseCode
from tests.worlds.cluster_story import MASTER, OTHER, SLAVE, Story
from tests.worlds.running_store import NoEntropy
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


def light_queue_is_behind(story: Story) -> None:
    """The disk took no entry of it."""
    story.recorder.record(StorageError(status="ENOSPC", operation="write", path="x"), MASTER)
    told("light", "PULL_NOT_FOUND")(story)


def disk_failed_in_another_life(story: Story) -> None:
    story.recorder.record(StorageError(status="EIO", operation="write", path="x"), MASTER)
    story.emit(MASTER, "store.open", offset=0, size=0)
    told("good", "SYSTEM_ERROR")(story)


def topic_is_lost(story: Story, node: str = SLAVE, *, is_known: bool = False) -> None:
    story.promote(SLAVE, is_longest=True)
    if is_known:
        tell_asked(story, "good", node=node)
        tell(story, "good", "SUCCESS", node=node)
    tell_asked(story, "good", node=node)
    tell(story, "good", "TOPIC_NOT_EXIST", node=node)


def topic_is_lost_by_nobody(story: Story) -> None:
    topic_is_lost(story, MASTER)


def known_topic_is_lost(story: Story) -> None:
    topic_is_lost(story, is_known=True)


def fault(story: Story, *, is_over_s: float | None = None, status: str = "RemotingTimeoutError") -> None:
    """A request without an answer while there is a fault, or so long after one."""
    story.recorder.record(FaultBegin(fault_id=1, fault_kind="Partition", nodes=MASTER), MASTER)
    if is_over_s is not None:
        story.recorder.record(FaultEnd(fault_id=1, fault_kind="Partition", nodes=MASTER), MASTER)
        story.now_s += is_over_s
    told("good", status)(story)


def fault_is_just_over(story: Story) -> None:
    fault(story, is_over_s=3)


def fault_is_long_over(story: Story) -> None:
    fault(story, is_over_s=60, status="no_answer")


def slave_knows_the_group(story: Story) -> None:
    story.tables[MASTER, "subscription_groups"] = {GROUP}
    told("pull_badly", "SERVICE_NOT_AVAILABLE", "SLAVE")(story)


def full_is_refused(story: Story, status: str = "SYSTEM_BUSY") -> None:
    tell_asked(story, "good")
    many_wait(story)
    tell(story, "good", status)


def was_full_before(story: Story) -> None:
    many_wait(story)
    for number in range(WAITING_PUTS_MAX):
        story.emit(MASTER, "put.end", msg_id=number, offset=1, status="PUT_OK")
    told("good", "SYSTEM_BUSY")(story)


def disk_takes_nothing(story: Story) -> None:
    story.recorder.record(StorageError(status="ENOSPC", operation="write", path="x"), MASTER)
    told("good", "SERVICE_NOT_AVAILABLE")(story)


def answered_with(
    status: str, operation: str = "good", *, stored: int = 0, of: int = 1, is_full: bool = False
) -> Callable[[Story], None]:
    """So many messages of one request are in the log when it is answered."""

    def play(story: Story) -> None:
        for number in range(of):
            may_leave(story, f"s{number}")
        tell_asked(story, operation)
        for number in range(stored):
            story.append(MASTER, strange_record(number, f"s{number}"))
        if is_full:
            many_wait(story)
        tell(story, operation, status)

    return play


def batch_lacks_a_message(story: Story) -> None:
    answered_with("SUCCESS", "batch", stored=1, of=2)(story)


def is_stored_twice(story: Story) -> None:
    is_stored(story)
    story.append(MASTER, strange_record(1))


def waits_twice(story: Story) -> None:
    waits_first(story)
    story.append(MASTER, strange_record(1, topic=SCHEDULE_TOPIC))


def comes_twice(story: Story) -> None:
    """Its delay offset was lost with a crash."""
    waits_first(story)
    story.append(MASTER, strange_record(1))


def is_lost_with_the_power(story: Story) -> None:
    may_leave(story, "s2")
    story.append(MASTER, strange_record(0, "s2"))
    is_stored(story)
    story.lose_power(MASTER, 0)
    leads(story)
    story.append(MASTER, strange_record(0))


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
    read_last(story, (0, 0), queue_id=1)
    read_last(story, node=SLAVE)
    story.end()


def slave_gives_less(story: Story) -> None:
    everywhere(story)
    read_last(story, (0, 0))
    read_last(story, node=SLAVE)
    story.end()


def master_does_not_know_the_topic(story: Story) -> None:
    everywhere(story)
    story.end()


def promoted_does_not_know_the_topic(story: Story) -> None:
    everywhere(story)
    story.promote(SLAVE, is_longest=True)
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
        (told("good", "SERVICE_NOT_AVAILABLE"), False),
        (told("good", "SYSTEM_BUSY"), False),
        (told("pull_some", "SYSTEM_BUSY", "SLAVE"), False),
        (told("pull_badly", "SERVICE_NOT_AVAILABLE", "SLAVE"), True),
        (slave_knows_the_group, False),
        (full_is_refused, True),
        (was_full_before, False),
        (disk_takes_nothing, True),
        (told("good", "MESSAGE_ILLEGAL"), False),
        (told("good", "TOPIC_NOT_EXIST"), False),
        (told("good", "SYSTEM_ERROR"), False),
        (told("good", "RemotingTimeoutError"), False),
        (told("good", "no_answer"), False),
        (told("end_another", "not_asked"), True),
        (role_changes("RemotingTimeoutError"), True),
        (fault, True),
        (fault_is_just_over, True),
        (fault_is_long_over, False),
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
        (role_changes("SUCCESS", "half_refused"), True),
        (told("half_refused", "SUCCESS"), False),
        (told("ask_deaf", "RemotingTimeoutError"), True),
        (told("light", "PULL_NOT_FOUND"), False),
        (light_queue_is_behind, True),
        (told("view", "unanswered"), False),
        (role_changes("unanswered", "view"), True),
        (too_many_wait, False),
        (many_wait, True),
        (store_opens_again, True),
        (disk_has_failed, True),
        (disk_failed_in_another_life, False),
        (topic_is_lost, True),
        (topic_is_lost_by_nobody, False),
        (known_topic_is_lost, False),
        (answered_with("SUCCESS", stored=1), True),
        (answered_with("SUCCESS", stored=0), False),
        (answered_with("FLUSH_DISK_TIMEOUT", stored=0), False),
        (batch_lacks_a_message, False),
        (answered_with("SUCCESS", "batch", stored=2, of=2), True),
        (answered_with("SYSTEM_ERROR", "reply", stored=1), True),
        (answered_with("SYSTEM_ERROR", "reply", stored=0), False),
        (answered_with("SYSTEM_ERROR", "reply", stored=0, is_full=True), True),
        (answered_with("SYSTEM_BUSY", stored=0, is_full=True), True),
        (is_stored, True),
        (is_stored_by_nobody, False),
        (is_stored_elsewhere, False),
        (is_stored_anywhere, True),
        (stray_is_stored, False),
        (system_topic_is_stored, False),
        (is_stored_twice, False),
        (is_lost_with_the_power, True),
        (waits_first, True),
        (waits_twice, False),
        (comes_twice, True),
        (comes_at_once, False),
        (waits_unasked, False),
        (altered_is_read, False),
        (all_is_read, True),
        (one_does_not_know_the_topic, True),
        (master_does_not_know_the_topic, False),
        (promoted_does_not_know_the_topic, True),
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


@attrs.frozen
class SameDraw(NoEntropy):
    """Always this chance."""

    chance: float = 0.0

    def random(self) -> float:
        return self.chance


def pulled(asked: int, code: int, role: str, begin: int = 0, end: int = 0) -> str:
    """What is wrong with the code of a pull, by what the answer says of the queue."""
    header = PullMessageResponseHeader(0, asked, begin, end)
    answer = RemotingCommand(code, encode_header(header), remark="NO_MESSAGE_IN_QUEUE")
    request = ASKS["pull_nothing"][1](Draft(Dice(SameDraw(0.9 if asked else 0.0)), "s1", 4096))
    return request.wrong(role, [answer])


@pytest.mark.parametrize(
    ("asked", "code", "role", "is_right"),
    [
        (0, ResponseCode.PULL_NOT_FOUND, "MASTER", True),
        (0, ResponseCode.PULL_NOT_FOUND, "SLAVE", True),
        (0, ResponseCode.PULL_OFFSET_MOVED, "MASTER", False),
        (0, ResponseCode.PULL_RETRY_IMMEDIATELY, "SLAVE", False),
        (7, ResponseCode.PULL_OFFSET_MOVED, "MASTER", True),
        (7, ResponseCode.PULL_NOT_FOUND, "MASTER", False),
        (7, ResponseCode.PULL_RETRY_IMMEDIATELY, "SLAVE", True),
        (7, ResponseCode.PULL_NOT_FOUND, "SLAVE", False),
    ],
)
def test_the_code_of_a_pull_follows_from_what_the_queue_has(
    asked: int, code: int, role: str, *, is_right: bool
) -> None:
    assert (pulled(asked, code, role) == "") is is_right
