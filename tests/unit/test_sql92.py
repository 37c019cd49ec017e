"""SQL92 expressions of consumers: what compiles, what each says of a message, and what is refused."""

from __future__ import annotations

import pytest

from rmq_actors.broker.sql92 import EXPRESSION_CHARS_MAX, CompileError, Sql92Filter, compile_expression
from rmq_actors.protocols.selector import DEPTH_MAX, NoAnswer
from rmq_actors.wire.record import Message, encode_message

NO_ANSWER = "no answer"


def value(expression: str, **properties: str) -> object:
    try:
        return compile_expression(expression).value(properties)
    except NoAnswer:
        return NO_ANSWER


@pytest.mark.parametrize(
    ("expression", "properties", "wanted"),
    [
        ("a = 'x'", {"a": "x"}, True),
        ("a = 'x'", {"a": "y"}, False),
        ("a = 'x'", {}, None),
        ("a <> 'x'", {}, None),
        ("a = 'it''s'", {"a": "it's"}, True),
        ("A = 'x'", {"a": "x"}, None),  # names of properties have a case, keywords have none
        ("a is null", {}, True),
        ("a IS NOT NULL", {"a": ""}, True),
        # A text becomes the type of the number that it is compared with, or there is no answer.
        ("a > 5", {"a": "6"}, True),
        ("a > 5", {"a": "-6"}, False),
        ("a > 5", {"a": "6.5"}, NO_ANSWER),
        ("a > 5.5", {"a": " 6 "}, True),
        ("a > 5", {"a": "x"}, NO_ANSWER),
        ("a > 5", {"a": "3000000000"}, NO_ANSWER),  # it is an Integer's
        ("a > 3000000000", {"a": "3000000001"}, True),
        ("a > 5", {}, None),
        ("5 < a", {"a": "6"}, True),
        ("a > b", {"a": "10", "b": "9"}, True),  # two texts are compared as numbers
        ("a > b", {"a": "x", "b": "9"}, NO_ANSWER),
        ("a = b", {"a": "1.0", "b": "1"}, False),  # or as texts
        ("a = TRUE", {"a": "True"}, True),
        ("a = TRUE", {"a": "1"}, False),
        ("TRUE = a", {"a": "true"}, NO_ANSWER),
        ("-a = 1", {"a": "-1"}, None),
        ("a BETWEEN 1 AND 3", {"a": "3"}, True),
        ("a NOT BETWEEN 1 AND 3", {"a": "4"}, True),
        ("a NOT BETWEEN 1 AND 3", {}, None),
        ("a IN ('x', 'y')", {"a": "y"}, True),
        ("a NOT IN ('x', 'y')", {"a": "z"}, True),
        ("a NOT IN ('x')", {}, None),
        # Three values.
        ("a = 1 AND b = 1", {"a": "2"}, False),
        ("a = 1 AND b = 1", {"a": "1"}, None),
        ("a = 1 OR b = 1", {"a": "1"}, True),
        ("a = 1 OR b = 1", {"a": "2"}, None),
        ("NOT a = 1", {"a": "1"}, False),  # NOT binds first: a condition is no number
        ("NOT (a = 1)", {"a": "2"}, True),
        ("a", {"a": "true"}, False),
        ("NOT a", {"a": "true"}, True),
        ("TRUE", {}, True),
        ("NULL", {}, None),
        ("a = 1 /* of */ --comments\n AND b = 2", {"a": "1", "b": "2"}, True),
        ("notes = 1 AND order1 = 1 AND inner = 1", {"notes": "1", "order1": "1", "inner": "1"}, True),
        ("a = .5e1 OR a = 5. OR a = 5l", {"a": "5"}, True),
    ],
)
def test_what_an_expression_says_of_a_message(expression: str, properties: dict[str, str], wanted: object) -> None:
    assert value(expression, **properties) is wanted


@pytest.mark.parametrize(
    ("expression", "why"),
    [
        ("", "at its end"),
        ("a =", "at its end"),
        ("a = 1 b", "at 'b'"),
        ("a == 1", "at '= 1'"),
        ("and", "at 'and'"),
        ("a = 1 OR Between IS NULL", "at 'Between"),
        ("a = \u00fc", "at '\u00fc'"),
        ("a LIKE 'x%'", 'at "LIKE'),
        ("a = NULL", "write IS NULL"),
        ("5", "not result in a boolean"),
        ("'x'", "not result in a boolean"),
        ("a > 'x'", "have an order"),
        ("(a = 1) > 2", "have an order"),
        ("TRUE = 1", "True cannot be compared with 1"),
        ("1 IN ('x')", "takes a property"),
        ("a IN (1)", "at '1)'"),
        ("a BETWEEN 3 AND 1", "wrong order: 3, 1"),
        ("a BETWEEN NULL AND 1", "cannot be NULL"),
        ("a BETWEEN 1 AND 'x'", "cannot be compared"),
        ("a = 9223372036854775808", "more than 64 bits"),
        ("a = 0.0", "is less than"),
        ("a = 1e999", "is greater than"),
        ("a = 007", "at '07'"),
        ("NOT " * DEPTH_MAX + "a", f"more than {DEPTH_MAX} levels"),
        ("a = '" + "x" * EXPRESSION_CHARS_MAX + "'", f"at most {EXPRESSION_CHARS_MAX} are allowed"),
    ],
)
def test_what_is_no_expression_is_refused_with_the_place(expression: str, why: str) -> None:
    with pytest.raises(CompileError) as caught:
        compile_expression(expression)
    assert why in str(caught.value)
    assert len(str(caught.value)) < 300


def test_a_long_chain_is_not_a_deep_one() -> None:
    chain = " OR ".join(f"a = {number}" for number in range(300))
    assert value(chain, a="299") is True
    assert value("(" * 500 + "a = 1" + ")" * 500, a="1") is True


def test_only_messages_that_meet_it_pass() -> None:
    def passes(expression: str, **properties: str) -> bool:
        encoded = encode_message(Message("Topic", b"body", properties=properties))
        encoded.place(queue_offset=0, physical_offset=0, store_timestamp_ms=0)
        return Sql92Filter.of(expression).is_matched_by_commit_log(memoryview(encoded.data))

    assert passes("a > 5 AND TAGS = 'x'", a="6", TAGS="x")
    assert not passes("a > 5", a="5")
    assert not passes("a > 5")
    assert not passes("a > 5", a="many")
