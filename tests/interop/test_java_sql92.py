"""Expressions of SQL92 say the same of a message as RocketMQ 4.9.7's own filter does."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from py4j.protocol import Py4JJavaError

from rmq_actors.broker.sql92 import CompileError, compile_expression
from rmq_actors.protocols.selector import NoAnswer
from tests.interop.java_gateway import JavaGateway

pytestmark = [pytest.mark.interop, pytest.mark.timeout(600)]

REFUSED, NO_ANSWER = "refused", "no answer"

names = st.sampled_from(["a", "b", "In1", "_c$"])
texts = st.sampled_from(
    ["", "x", "5", "-5", "5.0", "3000000000", "true", "TRUE", " 7 ", "1e3", "NaN", "-0.0", "0x1p3", "+5"]
)
literals = st.one_of(
    texts.map(lambda text: f"'{text}'"),
    st.sampled_from(["0", "5", "7l", "3000000000", "5.0", ".5", "1e3", "5.", "TRUE", "false", "NULL", "'it''s'", "-5"]),
)
operands = st.one_of(names, names, literals, names.map("-{}".format))


def _grown(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    listed = st.lists(texts, min_size=1, max_size=6).map(lambda found: ", ".join(f"'{text}'" for text in found))
    return st.one_of(
        st.tuples(inner, st.sampled_from(["AND", "or", "=", "<>"]), inner).map(" ".join),
        st.tuples(operands, st.sampled_from(["=", "<>", "<", "<=", ">", ">="]), operands).map(" ".join),
        st.tuples(operands, st.sampled_from(["BETWEEN", "not between"]), operands, st.just("AND"), operands).map(
            " ".join
        ),
        st.tuples(operands, st.sampled_from(["IN", "NOT IN"]), listed).map(lambda it: f"{it[0]} {it[1]} ({it[2]})"),
        st.tuples(operands, st.sampled_from(["IS NULL", "is not null"])).map(" ".join),
        inner.map("NOT {}".format),
        inner.map("({})".format),
    )


expressions = st.recursive(operands, _grown, max_leaves=6)


def here(expression: str, properties: dict[str, str]) -> object:
    try:
        return compile_expression(expression).value(properties)
    except CompileError:
        return REFUSED
    except NoAnswer:
        return NO_ANSWER


def in_java(gateway: JavaGateway, expression: str, properties: dict[str, str]) -> object:
    jvm: Any = gateway.jvm
    try:
        compiled = jvm.org.apache.rocketmq.filter.FilterFactory.INSTANCE.get("SQL92").compile(expression)
    except Py4JJavaError:
        return REFUSED
    table = jvm.java.util.HashMap()
    for name, text in properties.items():
        table.put(name, text)
    try:
        return compiled.evaluate(jvm.org.apache.rocketmq.broker.filter.MessageEvaluationContext(table))
    except Py4JJavaError:
        return NO_ANSWER


@given(expression=expressions, properties=st.dictionaries(names, texts, max_size=4))
@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_it_says_the_same(java_gateway: JavaGateway, expression: str, properties: dict[str, str]) -> None:
    assert here(expression, properties) == in_java(java_gateway, expression, properties)


@pytest.mark.parametrize("word", ["AND", "or", "Not", "between", "IN", "is", "TRUE", "false", "null"])
@pytest.mark.parametrize("expression", ["{}", "{} = 1", "a = {}", "{} IS NULL", "a > 1 AND {}", "NOT {}", "{}1 = 1"])
def test_words_of_the_language_name_no_property(java_gateway: JavaGateway, expression: str, word: str) -> None:
    asked = expression.format(word)
    assert here(asked, {"a": "5"}) == in_java(java_gateway, asked, {"a": "5"})
