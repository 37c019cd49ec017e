"""What dispatchers make of a record's properties."""

from __future__ import annotations

import pytest

from rmq_actors.wire.dispatch_request import DELAY_LEVELS_MS, SCHEDULE_TOPIC, tags_code_of
from rmq_actors.wire.java_string import java_hash_code

STORED_MS = 1_700_000_000_000
LONG_MAX = (1 << 63) - 1


@pytest.mark.parametrize(
    ("delay", "level"),
    [
        ("1", 1),
        ("18", 18),
        ("19", 18),
        ("+3", 3),
        ("003", 3),
        ("9999999999", 18),
        ("0", None),
        ("-3", None),
        ("", None),
        ("x", None),
        ("\u0663", None),
        ("9" * 5000, None),
    ],
)
def test_the_tags_code_of_a_delayed_message_is_when_to_deliver_it(delay: str, level: int | None) -> None:
    """Without a level it is that of its tags, and no text, however long, is an error: dispatch would stop there."""
    properties = {"DELAY": delay, "TAGS": "TagA"}
    expected = java_hash_code("TagA") if level is None else STORED_MS + DELAY_LEVELS_MS[level - 1]
    assert tags_code_of(SCHEDULE_TOPIC, properties, STORED_MS) == expected
    assert tags_code_of("T", properties, STORED_MS) == java_hash_code("TagA")


def test_a_time_of_delivery_is_an_int64() -> None:
    assert tags_code_of(SCHEDULE_TOPIC, {"DELAY": "1"}, LONG_MAX) == LONG_MAX
