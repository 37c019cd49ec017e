"""The invariants of the scenario `settings`: slaves that are near, light queues, stops, brokers of another name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest

from rmq_actors.testing.invariants import Errands, LightQueues, Near, OffsetsOfACut, OfOneName, Stops
from rmq_actors.testing.operation import Operation
from rmq_actors.tracing.events.run import ClientErrand, FaultBegin, FaultEnd, OperatorStop
from rmq_actors.wire.dispatch_request import PROPERTY_INNER_MULTI_DISPATCH, PROPERTY_INNER_MULTI_QUEUE_OFFSET
from rmq_actors.wire.record import Message, encode_message
from sim_net import Kill
from tests.worlds.cluster_story import MASTER, OTHER, SLAVE, Story, follow, halt

STRANGER = "10.0.0.9"


# --- near -------------------------------------------------------------------------------------------------------------


def near(acks: int = 1) -> Story:
    story = Story(acks=acks)
    story.watch(Near)
    return story


@pytest.mark.parametrize(
    ("reports", "acks", "end", "status", "breaks"),
    [
        ([5000], 1, 5999, "PUT_OK", False),
        ([5000], 1, 5999, "FLUSH_SLAVE_TIMEOUT", False),
        ([5000], 1, 5999, "SLAVE_NOT_AVAILABLE", True),
        ([4000], 1, 5999, "SLAVE_NOT_AVAILABLE", False),
        ([4000], 1, 5999, "FLUSH_SLAVE_TIMEOUT", True),
        ([4000], 1, 5999, "PUT_OK", True),
        ([4000], 1, 5999, "not_waited", False),
        ([5000, 4000], 1, 5999, "PUT_OK", False),
        ([5000, 4000], 2, 5999, "FLUSH_SLAVE_TIMEOUT", True),
        ([5000], 2, 5999, "SLAVE_NOT_AVAILABLE", False),
        ([], 1, 100, "SLAVE_NOT_AVAILABLE", False),
        ([], 1, 100, "PUT_OK", True),
        ([4000], 0, 5999, "SLAVE_NOT_AVAILABLE", False),
    ],
)
def test_a_put_waits_for_slaves_that_are_near(
    reports: Sequence[int], acks: int, end: int, status: str, *, breaks: bool
) -> None:
    story = near(acks)
    for number, report in enumerate(reports):
        story.connect(number, f"10.0.0.{2 + number}")
        story.report(number, report)
    story.emit(MASTER, "put.begin", msg_id=1, offset=end - 10, size=10)
    story.answer(1, end, status)
    assert story.seen == ["near"] * breaks


def test_what_a_slave_reported_that_is_gone_does_not_count() -> None:
    story = near()
    story.connect(1, "10.0.0.2")
    story.report(1, 5000)
    story.emit(MASTER, "ha.connection.close", conn_id=1, status="connection_lost")
    story.connect(2, "10.0.0.3")
    story.report(2, 0)
    story.emit(MASTER, "put.begin", msg_id=1, offset=5000, size=10)
    story.answer(1, 5010, "FLUSH_SLAVE_TIMEOUT")
    assert story.seen == ["near"]


def test_nothing_is_judged_while_a_slave_has_two_connections() -> None:
    story = near()
    for conn_id in (1, 2):
        story.connect(conn_id, "10.0.0.2")
    story.emit(MASTER, "put.begin", msg_id=1, offset=5000, size=10)
    story.answer(1, 5010, "PUT_OK")
    assert story.seen == []


# --- stops ------------------------------------------------------------------------------------------------------------


def _stop(end_kind: str, after_s: float, *faults: str) -> list[str]:
    story = Story()
    story.watch(Stops)
    for kind in faults:
        for number, event in enumerate((FaultBegin, FaultEnd)):
            if number == 0 or kind == Operation.__name__:
                story.recorder.record(event(fault_id=1, fault_kind=kind, nodes=MASTER), "")
    story.recorder.record(OperatorStop(), MASTER)
    story.now_s += after_s
    story.emit(MASTER, end_kind)
    return story.seen


def test_a_stop_ends_soon_where_nothing_is_wrong() -> None:
    assert _stop("node.stop", 14.0) == []
    assert _stop("node.stop", 16.0) == ["stops"]
    assert _stop("node.kill", 16.0) == ["stops"]
    assert _stop("node.kill", 16.0, Operation.__name__) == ["stops"]
    assert _stop("node.kill", 16.0, Kill.__name__) == []


@pytest.mark.parametrize(("kind", "breaks"), [("read_while_it_stops", True), ("held_pull", False)])
def test_some_errands_outlive_a_stop_in_order_and_none_a_kill(kind: str, *, breaks: bool) -> None:
    for end_kind, is_judged in (("node.stop", breaks), ("node.kill", False)):
        story = Story()
        story.watch(Errands)
        for status, detail in (("begun", ""), ("done", "a half of a frame")):
            story.recorder.record(ClientErrand(status=status, operation=kind, key="E", detail=detail), MASTER)
            if status == "begun":
                story.recorder.record(OperatorStop(), MASTER)
                story.emit(MASTER, end_kind)
        assert story.seen == ["errands"] * is_judged


# --- brokers of another name ------------------------------------------------------------------------------------------


def test_nobody_follows_a_broker_of_another_name() -> None:
    story = Story()
    story.watch(OfOneName)
    follow(story, SLAVE, STRANGER)  # it asks what that is
    story.emit(SLAVE, "ha.client.close", status="other_name")
    follow(story, SLAVE)
    story.emit(SLAVE, "ha.client.report", offset=0, conn_dir=1)
    halt(story, OTHER, master="10.0.0.1")
    story.take_table(SLAVE, set())
    assert story.seen == []
    follow(story, SLAVE, STRANGER)
    story.emit(SLAVE, "ha.client.report", offset=0, conn_dir=1)
    assert story.seen == ["of_one_name"]


def test_nobody_halts_for_a_broker_of_another_name_or_takes_its_tables() -> None:
    for act in (
        lambda story: halt(story, SLAVE, master=STRANGER),
        lambda story: story.take_table(SLAVE, set(), of=STRANGER),
    ):
        story = Story()
        story.watch(OfOneName)
        act(story)
        assert story.seen == ["of_one_name"]


# --- light queues -----------------------------------------------------------------------------------------------------


def light(offsets: Mapping[str, int]) -> bytes:
    properties = {
        PROPERTY_INNER_MULTI_DISPATCH: ",".join(offsets),
        PROPERTY_INNER_MULTI_QUEUE_OFFSET: ",".join(map(str, offsets.values())),
    }
    encoded = encode_message(Message("T", b"body", 0, properties))
    encoded.place(queue_offset=0, physical_offset=0, store_timestamp_ms=0)
    return bytes(encoded.data)


@pytest.mark.parametrize(
    ("records", "deleted", "breaks"),
    [
        ([{"%LMQ%a": 0}, {"%LMQ%a": 1, "%LMQ%b": 0}, {"%LMQ%b": 1}], "", False),
        ([{"%LMQ%a": 0}, {"%LMQ%a": 0}], "", True),
        ([{"%LMQ%a": 0}, {"%LMQ%a": 2}], "", True),
        ([{"%LMQ%a": 0}, {"%LMQ%a": 1, "%LMQ%b": 1}], "", True),
        ([{"%LMQ%a": 0}, {"%LMQ%a": 0}], "%LMQ%a", False),
    ],
)
def test_light_queues_are_numbered_one_by_one(
    records: Sequence[Mapping[str, int]], deleted: str, *, breaks: bool
) -> None:
    story = Story()
    story.watch(LightQueues)
    story.emit(MASTER, "store.term", status="promoted", term=1, leads=True)
    story.view.deleted_topics.add(deleted)
    for each in records:
        story.append(MASTER, light(each))
    assert story.seen == ["light_queues"] * breaks


# --- consumers' offsets -----------------------------------------------------------------------------------------------


def test_a_store_that_was_opened_again_has_no_offset_past_its_queues_end() -> None:
    story = Story(past_ends={SLAVE: [("T@G", 0, 7, 5)]})
    story.watch(OffsetsOfACut)
    story.emit(SLAVE, "store.open", offset=0, status="clean")
    follow(story, SLAVE)  # it has begun with that file
    story.emit(SLAVE, "store.open", offset=0, status="clean")
    story.emit(SLAVE, "node.boot")
    follow(story, SLAVE)
    assert story.seen == []
    for _ in range(2):
        story.emit(SLAVE, "store.open", offset=0, status="clean")
    follow(story, SLAVE)
    assert story.seen == ["offsets_of_a_cut"]
