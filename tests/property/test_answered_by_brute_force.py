"""The judge of strangers says the same of small histories as a look at all of the history does."""

from __future__ import annotations

from collections.abc import Sequence

import attrs
from hypothesis import given
from hypothesis import strategies as st

from rmq_actors.testing.invariants import Answered
from rmq_actors.testing.strange_requests import read_message
from rmq_actors.testing.strange_rules import RULES
from rmq_actors.tracing.event import Event
from rmq_actors.tracing.events.run import ClientStranger, ClientStrangerLeaves, OperatorPromote
from rmq_actors.tracing.events.storage import StorageError
from rmq_actors.tracing.events.store import LogAppend, StoreOpen
from rmq_actors.wire.dispatch_request import SCHEDULE_TOPIC
from rmq_actors.wire.response_code import ResponseCode
from tests.property.told_histories import Act, Step, Telling
from tests.worlds.cluster_story import MASTER, SLAVE
from tests.worlds.stranger_story import leads, may_leave, strange_record, tell, tell_asked

KINDS = ("good", "long_body", "query", "new_topic", "pull_queue")
ROLES = ("MASTER", "SLAVE", "")
STATUSES = (
    *("SUCCESS", "FLUSH_DISK_TIMEOUT", "SYSTEM_ERROR", "SYSTEM_BUSY", "MESSAGE_ILLEGAL", "SERVICE_NOT_AVAILABLE"),
    *("TOPIC_NOT_EXIST", "QUERY_NOT_FOUND", "RemotingTimeoutError"),
)
KEYS = ("s1", "s2", "s3")
NAMES = ("ask", *3 * ("be_told",), "open", "promote", "fail", "allow", "allow", "store", "store", "delay")


@attrs.define(eq=False)
class Strange(Telling):
    """Also: strangers ask one thing at a time, and what they send is stored."""

    asked: str = ""

    def act(self, act: Act) -> None:
        name, who, much = act
        getattr(self, name)(who, much)

    def ask(self, who: int, much: int) -> None:
        if not self.asked:
            self.asked = KINDS[who % len(KINDS)]
            tell_asked(self, self.asked, ROLES[much % 2])

    def be_told(self, who: int, much: int) -> None:
        if self.asked:
            detail = "wrong" if who == 0 else ""
            tell(self, self.asked, STATUSES[much % len(STATUSES)], ROLES[who % len(ROLES)], detail=detail)
            self.asked = ""

    def open(self, who: int, _: int) -> None:
        self.emit((MASTER, SLAVE)[who % 2], "store.open", offset=len(self.logs[MASTER]) * (who % 2 == 0), size=0)

    def promote(self, node: int | str, _: int = 0, *, is_longest: bool = True) -> None:
        super().promote(MASTER, is_longest=True)

    def fail(self, who: int, _: int) -> None:
        self.recorder.record(StorageError(status="EIO", operation="write", path="x"), (MASTER, SLAVE)[who % 2])

    def allow(self, who: int, much: int) -> None:
        may_leave(self, KEYS[who % 3], queue_id=much % 3 - 1, is_delayed=who % 2 == 1)

    def store(self, who: int, much: int) -> None:
        self.append(MASTER, strange_record(0, KEYS[who % 3], queue_id=much % 2))

    def delay(self, who: int, _: int) -> None:
        self.append(MASTER, strange_record(0, KEYS[who % 3], SCHEDULE_TOPIC))


def is_broken(steps: Sequence[Step], at: int) -> bool:
    before, event = [step.event for step in steps[:at]], steps[at].event
    if isinstance(event, ClientStranger) and event.status in ResponseCode.__members__:
        return is_wrong(before, event)
    return isinstance(event, LogAppend) and is_unwanted(steps, at, event)


def is_wrong(before: Sequence[Event], event: ClientStranger) -> bool:
    code, rule = ResponseCode[event.status], RULES[event.operation]
    (at, asked), *_ = [
        (number, each)
        for number, each in reversed(list(enumerate(before)))
        if isinstance(each, ClientStranger) and each.status == "asked"
    ]
    opened = any(isinstance(each, StoreOpen) and each.node == event.node for each in before[at:])
    if opened or asked.role != event.role or not event.role:
        stored = {"SUCCESS", "FLUSH_DISK_TIMEOUT", "FLUSH_SLAVE_TIMEOUT", "SLAVE_NOT_AVAILABLE"}
        may_be = ResponseCode.SUCCESS in rule.at_master or ResponseCode.SUCCESS in rule.at_slave
        return event.status in stored and not may_be and code not in {*rule.at_master, *rule.at_slave}
    if code in (rule.at_master if event.role == "MASTER" else rule.at_slave):
        return event.detail != ""
    failed = any(isinstance(each, StorageError) and each.node == event.node for each in before)
    promoted = any(isinstance(each, OperatorPromote) for each in before)
    return not (
        (event.status == "SYSTEM_ERROR" and failed)
        or (event.status == "TOPIC_NOT_EXIST" and rule.needs_topic and promoted)
    )


def is_unwanted(steps: Sequence[Step], at: int, event: LogAppend) -> bool:
    found = read_message(steps[at].logs[MASTER][event.offset :])
    allowed = [
        step.event
        for step in steps[:at]
        if isinstance(step.event, ClientStrangerLeaves) and step.event.checksum == found.checksum
    ]
    if not allowed:
        return True
    last = allowed[-1]
    assert isinstance(last, ClientStrangerLeaves)
    if last.queue_id not in (-1, found.queue_id):
        return True
    if found.waits:
        return last.status != "delayed"
    waited = any(
        isinstance(step.event, LogAppend)
        and (earlier := read_message(step.logs[MASTER][step.event.offset :])).waits
        and earlier.checksum == found.checksum
        for step in steps[:at]
    )
    return last.status == "delayed" and not waited


@given(st.lists(st.tuples(st.sampled_from(NAMES), st.integers(0, 15), st.integers(0, 15)), max_size=16))
def test_it_is_broken_at_the_same_step(history: list[Act]) -> None:
    story = Strange(takes_parts=False)
    story.watch(Answered)
    leads(story)
    story.steps.clear()
    for act in history:
        story.act(act)
    broken = [
        number for number, step in enumerate(story.steps) if story.broken and step.event.seq == story.broken[0].seq
    ]
    assert broken == [number for number in range(len(story.steps)) if is_broken(story.steps, number)][:1]
