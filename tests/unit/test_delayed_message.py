"""What becomes of a record of SCHEDULE_TOPIC_XXXX when its time has come."""

from __future__ import annotations

import re

import attrs
import pytest

from rmq_actors.wire.delayed_message import Undeliverable, message_timeup
from rmq_actors.wire.dispatch_request import SCHEDULE_TOPIC
from rmq_actors.wire.record import TRANSACTION_COMMIT_TYPE, StoredMessage, decode_record, encode_message
from tests.worlds.golden_capture import golden_log, golden_messages


def golden(topic: str) -> list[StoredMessage]:
    """The delayed messages of the golden log in a topic."""
    view = memoryview(golden_log())
    found = [decode_record(view, row["phyOffset"], row["phyOffset"]) for row in golden_messages()]
    return [each for each in found if each.topic == topic and "DELAY" in each.properties]


def test_rocketmqs_delayed_messages_become_what_it_delivered() -> None:
    waiting = {each.properties["UNIQ_KEY"]: each for each in golden(SCHEDULE_TOPIC)}
    delivered = golden("TopicDelay")
    assert len(delivered) == 9
    for each in delivered:
        made = encode_message(message_timeup(waiting[each.properties["UNIQ_KEY"]]))
        made.place(
            queue_offset=each.queue_offset,
            physical_offset=each.physical_offset,
            store_timestamp_ms=each.store_timestamp_ms,
        )
        assert decode_record(memoryview(made.data), 0, each.physical_offset) == each


@pytest.mark.parametrize(
    ("properties", "why"),
    [
        ({}, "REAL_TOPIC None and REAL_QID None are no queue"),
        ({"REAL_TOPIC": "T"}, "REAL_TOPIC 'T' and REAL_QID None are no queue"),
        ({"REAL_TOPIC": "T", "REAL_QID": "-1"}, "REAL_QID '-1'"),
        ({"REAL_TOPIC": "T", "REAL_QID": "1" * 5000}, "are no queue"),
        ({"REAL_TOPIC": "", "REAL_QID": "1"}, "REAL_TOPIC ''"),
        ({"REAL_TOPIC": "RMQ_SYS_TRANS_HALF_TOPIC", "REAL_QID": "0"}, "cannot become a half message"),
    ],
)
def test_a_record_that_names_no_queue_goes_nowhere(properties: dict[str, str], why: str) -> None:
    stored = attrs.evolve(golden(SCHEDULE_TOPIC)[0], properties={"DELAY": "1", **properties})
    with pytest.raises(Undeliverable, match=re.escape(why)):
        message_timeup(stored)


def test_a_committed_message_is_not_the_end_of_another_transaction() -> None:
    """A delivered message has no prepared one: the table would take it for the end of that at offset 0."""
    stored = attrs.evolve(golden(SCHEDULE_TOPIC)[0], sys_flag=TRANSACTION_COMMIT_TYPE | 1)
    assert message_timeup(stored).sys_flag == 1
