"""Message properties: what comes back, and what is refused because it would not."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmq_actors.wire.properties import IllegalProperty, decode_properties, encode_properties
from tests.worlds.golden_capture import golden_messages, stored_bytes

texts = st.text(st.characters(codec="utf-8", exclude_characters="\x00\x01\x02"), max_size=20)


@given(st.dictionaries(texts.filter(bool), texts, max_size=6))
def test_round_trip(properties: dict[str, str]) -> None:
    """All but empty values, which Java's decoder drops."""
    come_back = {name: value for name, value in properties.items() if value}
    assert decode_properties(encode_properties(properties)) == come_back


def test_the_golden_properties() -> None:
    whole = [row for row in golden_messages() if len(stored_bytes(row["propsRaw"])) < 80]
    assert len(whole) > 50
    for row in whole:
        raw = stored_bytes(row["propsRaw"])
        assert decode_properties(raw) == row["props"]
        # As decoded, so encoded: the order is the stored one.
        assert encode_properties(decode_properties(raw)) == raw


@pytest.mark.parametrize(
    ("data", "properties"),
    [
        (b"", {}),
        (b"A\x011", {"A": "1"}),
        (b"A\x011\x02", {"A": "1"}),
        (b"A\x011\x02B\x012", {"A": "1", "B": "2"}),
        (b"A\x01\x02B\x012", {"B": "2"}),
        (b"A\x01", {}),
        (b"A\x011\x02A\x01", {"A": "1"}),
        (b"no separator\x02B\x012", {"B": "2"}),
        (b"\x01no name\x02B\x012", {"B": "2"}),
        (b"A\x011\x02A\x012", {"A": "2"}),
    ],
)
def test_decoding_of_what_others_wrote(data: bytes, properties: dict[str, str]) -> None:
    assert decode_properties(data) == properties


@pytest.mark.parametrize(
    "properties", [{"": "v"}, {"a\x01": "v"}, {"a\x02": "v"}, {"a": "v\x01"}, {"a": "v\x02"}, {"a": "\x01"}]
)
def test_what_would_not_come_back_is_refused_by_name(properties: dict[str, str]) -> None:
    with pytest.raises(IllegalProperty, match="property " + repr(next(iter(properties))).replace("\\", "\\\\")):
        encode_properties(properties)


def test_bytes_that_are_no_text_are_read_as_java_does() -> None:
    data = b"A\x01\xff\x02\xc3\x01b\x02\xed\xa0\x80\x01\xe2\x82"
    assert decode_properties(data) == {"A": "\ufffd", "\ufffd": "\ufffd"}


@pytest.mark.parametrize("properties", [{"A": "b", "KEYS": "k\ud800"}, {"A": "b", "KEYS\udfff": "", "C": "d"}])
def test_text_that_is_no_unicode_is_refused_by_name(properties: dict[str, str]) -> None:
    name = [*properties][1]
    with pytest.raises(IllegalProperty, match=re.escape(f"property {name!r} is no Unicode text: ")):
        encode_properties(properties)
