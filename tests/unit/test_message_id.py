"""Message ids: those that RocketMQ gave, and every other."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmq_actors.wire.message_id import MessageIdError, create_message_id, decode_message_id
from rmq_actors.wire.record import MessageIllegal

hosts = st.builds("{}:{}".format, st.ip_addresses(v=4), st.integers(0, 65535)) | st.builds(
    "[{}]:{}".format, st.ip_addresses(v=6), st.integers(0, 65535)
)
offsets = st.integers(0, (1 << 63) - 1)


def test_the_ids_that_rocketmq_gave() -> None:
    """From golden_producer.out: the second plain message, and the first of a batch."""
    for text, offset in (("7F00000100002A9F00000000000000B1", 177), ("7F00000100002A9F0000000000005960", 22880)):
        assert create_message_id("127.0.0.1:10911", offset) == text
        assert decode_message_id(text) == ("127.0.0.1:10911", offset)


@given(hosts, offsets)
def test_round_trip(host: str, offset: int) -> None:
    text = create_message_id(host, offset)
    assert re.fullmatch(r"[0-9A-F]{56}" if host[0] == "[" else r"[0-9A-F]{32}", text)
    assert decode_message_id(text) == decode_message_id(text.lower()) == (host, offset)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "has 0 characters, not 32 or 56"),
        ("7F" * 15, "has 30 characters"),
        ("7F" * 20, "has 40 characters"),
        ("7G" * 16, "is not hexadecimal"),
        (" " * 32, "is not hexadecimal"),
        ("7F " * 10 + "7F", "is not hexadecimal"),
        ("0" * 16 + "F" * 16, "offset -1 is below 0"),
        ("7F000001" + "FFFFFFFF" + "0" * 16, "port"),
        ("7F000001" + "00010000" + "0" * 16, "port"),
    ],
)
def test_what_is_no_id_says_why(text: str, problem: str) -> None:
    with pytest.raises(MessageIdError, match=problem):
        decode_message_id(text)


def test_a_host_that_is_none() -> None:
    with pytest.raises(MessageIllegal, match="host 'broker:1'"):
        create_message_id("broker:1", 0)
