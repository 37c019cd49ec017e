"""Properties files beside java.util.Properties: what it reads, and what it reads of what is written here."""

from __future__ import annotations

import re

import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from rmq_actors.settings.properties_text import format_properties, parse_properties
from tests.interop.java_gateway import JavaGateway

pytestmark = [pytest.mark.interop, pytest.mark.timeout(600)]


def read_by_java(gateway: JavaGateway, text: str) -> dict[str, str]:
    properties = gateway.jvm.java.util.Properties()
    properties.load(gateway.jvm.java.io.StringReader(text))
    return {str(key): str(properties[key]) for key in properties}


@settings(max_examples=150)
@given(st.text("ab=: \\\t\f\n\r#!", max_size=30))
@example("\\\n#a")
@example("\\\n\na")
@example("a\\\n\\\n\nb")
@example("a\\\n\\\n#b")
@example("a\\")
def test_a_text_is_read_as_java_reads_it(java_gateway: JavaGateway, text: str) -> None:
    # A backslash and nothing else on the last line is an empty key there.
    assume(re.search(r"(?:^|[\r\n])[ \t\f]*\\(?:\r\n?|\n)?\Z", text) is None)
    assert parse_properties(text, "the text").values == read_by_java(java_gateway, text)


@settings(max_examples=100)
@given(st.dictionaries(st.text("a=: \\\t\f\n\r#!ä€", min_size=1), st.text("a=: \\\t\f\n\r#!ä€\U0001f600")))
def test_java_reads_what_is_written(java_gateway: JavaGateway, values: dict[str, str]) -> None:
    assert read_by_java(java_gateway, format_properties(values)) == values
