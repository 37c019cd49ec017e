"""Conditions on a message's properties, as SQL92 expressions state them, with RocketMQ's types and conversions.

An expression has a value for a message: null, a Boolean, a number or a text. What is built here decides as RocketMQ's
classes in `org.apache.rocketmq.filter.expression` do, to the conversions of texts: a property is a text, and takes the
type of the number that it is compared with, or has no answer. `ValueError` where an expression can mean nothing is
raised when it is built, not for each message. Nothing here parses: `broker/sql92.py` does.
"""

from __future__ import annotations

import math
import re
import struct
from collections.abc import Callable, Mapping, Sequence
from typing import Final, TypeAlias

import attrs

#: A value of an expression. Java's Integer is int, its Long is `Long`.
Value: TypeAlias = "str | int | float | bool | None"
Properties = Mapping[str, str]

_INT_MIN, _INT_MAX = -(1 << 31), (1 << 31) - 1
_LONG_MIN, _LONG_MAX = -(1 << 63), (1 << 63) - 1
_LONG_DIGITS = 19
_SHOWN_CHARS = 40
_DOUBLE_MAX, _DOUBLE_MIN = 1.7976931348623157e308, 5e-324
_WHOLE = re.compile(r"[+-]?\d+")
_DECIMAL = re.compile(r"([+-]?)(NaN|Infinity|(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?[fFdD]?)")
_HEXADECIMAL = re.compile(r"([+-]?0[xX](?:[0-9a-fA-F]+\.?|[0-9a-fA-F]*\.[0-9a-fA-F]+)[pP][+-]?[0-9]+)[fFdD]?")
_JAVA_SPACE = "".join(map(chr, range(0x21)))
#: How deep expressions may be nested, as each level is a call within a call.
DEPTH_MAX: Final = 100


class Long(int):
    """A number that Java keeps in 64 bits, and for which it reads a text as one."""


class NoAnswer(Exception):
    """An expression has no value for a message: a text is not the number that it is compared with, say."""


@attrs.frozen
class Expression:
    """`value(properties)` raises `NoAnswer`. `is_condition`: it is yes, no or null. `is_constant`: it is a literal."""

    value: Callable[[Properties], Value]
    is_condition: bool = False
    is_constant: bool = False
    #: The property whose value it is.
    name: str | None = None
    depth: int = 1

    def __attrs_post_init__(self) -> None:
        if self.depth > DEPTH_MAX:
            raise ValueError(f"the expression is nested more than {DEPTH_MAX} levels deep")

    def matches(self, properties: Properties) -> bool:
        """Whether the message with these properties is wanted. Null is no. Raises `NoAnswer`."""
        return self.value(properties) is True


def property_value(name: str) -> Expression:
    """The text of a property, null where it is missing."""
    return Expression(lambda properties: properties.get(name), name=name)


def literal(value: Value) -> Expression:
    """A constant. A Boolean and null are conditions, too."""
    return Expression(lambda _: value, value is None or isinstance(value, bool), is_constant=True)


def whole_number(text: str) -> Expression:
    """A literal without a point, perhaps with an L after it. Raises `ValueError`."""
    return literal(_narrowed(_to_long(text.rstrip("lL"))))


def floating_point(text: str) -> Expression:
    """A literal with a point or an exponent. Raises `ValueError` for what Java's Double has not, and for zero."""
    value = float(text)
    if value > _DOUBLE_MAX:
        raise ValueError(f"{text} is greater than {_DOUBLE_MAX}")
    if value < _DOUBLE_MIN:
        raise ValueError(f"{text} is less than {_DOUBLE_MIN}")
    return literal(value)


def negate(operand: Expression) -> Expression:
    """A number with the other sign; null for what is no number."""

    def value(properties: Properties) -> Value:
        found = operand.value(properties)
        if isinstance(found, bool) or not isinstance(found, int | float):
            return None
        return Long(-found) if isinstance(found, Long) else -found

    return Expression(value, depth=operand.depth + 1)


def condition(operand: Expression) -> Expression:
    """An expression as a condition: a property by itself is never true. Raises `ValueError` for numbers and texts."""
    if operand.is_condition:
        return operand
    if operand.name is None:
        raise ValueError("the expression will not result in a boolean value")

    def value(properties: Properties) -> Value:
        return None if operand.value(properties) is None else False

    return Expression(value, is_condition=True, depth=operand.depth + 1)


def negation(operand: Expression) -> Expression:
    """NOT: null stays null."""
    operand = condition(operand)

    def value(properties: Properties) -> Value:
        found = operand.value(properties)
        return None if found is None else not found

    return Expression(value, is_condition=True, depth=operand.depth + 1)


def all_of(operands: Sequence[Expression]) -> Expression:
    """AND: no if one says no, else null if one is null."""
    return _combined(operands, decisive=False)


def any_of(operands: Sequence[Expression]) -> Expression:
    """OR: yes if one says yes, else null if one is null."""
    return _combined(operands, decisive=True)


def _combined(operands: Sequence[Expression], *, decisive: bool) -> Expression:
    if len(operands) == 1:
        return operands[0]
    values = [condition(operand).value for operand in operands]

    def value(properties: Properties) -> Value:
        is_null = False
        for each in values:
            found = each(properties)
            if found is decisive:
                return decisive
            is_null = is_null or found is None
        return None if is_null else not decisive

    return Expression(value, is_condition=True, depth=1 + max(operand.depth for operand in operands))


def equal(left: Expression, right: Expression) -> Expression:
    """`left = right`. Raises `ValueError` if one is the literal NULL, or a Boolean is compared with another literal."""
    for operand in (left, right):
        if operand.is_constant and operand.value({}) is None:
            raise ValueError("NULL cannot be compared: write IS NULL")
    if left.is_constant and right.is_constant and left.is_condition and not right.is_condition:
        raise ValueError(f"{left.value({})} cannot be compared with {right.value({})!r}")
    return _equal(left, right)


def is_null(operand: Expression) -> Expression:
    """Whether there is no value."""
    return _equal(operand, literal(None))


def _equal(left: Expression, right: Expression) -> Expression:
    def value(properties: Properties) -> Value:
        lv, rv = left.value(properties), right.value(properties)
        if lv is None or rv is None:
            return True if lv is rv else None if lv is None else False
        return _compare(lv, rv) == 0

    return Expression(value, is_condition=True, depth=1 + max(left.depth, right.depth))


def ordered(left: Expression, right: Expression, is_so: Callable[[int], bool]) -> Expression:
    """`left < right` and its like: `is_so` is given -1, 0 or 1. Raises `ValueError` for what has no order."""
    for operand in (left, right):
        if operand.is_condition or (operand.is_constant and isinstance(operand.value({}), str)):
            raise ValueError("only properties and numbers have an order")

    def value(properties: Properties) -> Value:
        lv = left.value(properties)
        if lv is None:
            return None
        rv = right.value(properties)
        if rv is None:
            return None
        if isinstance(lv, str) and isinstance(rv, str):
            return is_so(_compare_doubles(_to_double(lv), _to_double(rv)))
        return is_so(_compare(lv, rv))

    return Expression(value, is_condition=True, depth=1 + max(left.depth, right.depth))


def between(operand: Expression, low: Expression, high: Expression) -> Expression:
    """`operand BETWEEN low AND high`. Raises `ValueError` if literals are in the wrong order, or have none."""
    if low.is_constant and high.is_constant:
        lv, hv = low.value({}), high.value({})
        if lv is None or hv is None:
            raise ValueError("the bounds of BETWEEN cannot be NULL")
        try:
            is_wrong = _compare(hv, lv) < 0
        except NoAnswer as error:
            raise ValueError(f"the bounds of BETWEEN cannot be compared: {error}") from error
        if is_wrong:
            raise ValueError(f"the bounds of BETWEEN are in the wrong order: {lv!r}, {hv!r}")
    return all_of([ordered(operand, low, lambda sign: sign >= 0), ordered(operand, high, lambda sign: sign <= 0)])


def not_between(operand: Expression, low: Expression, high: Expression) -> Expression:
    """`operand NOT BETWEEN low AND high`: less or greater."""
    return any_of([ordered(operand, low, lambda sign: sign < 0), ordered(operand, high, lambda sign: sign > 0)])


def is_in(operand: Expression, texts: Sequence[str], *, is_not: bool = False) -> Expression:
    """`property IN ('a', 'b')`. Raises `ValueError` for what is no property."""
    if operand.name is None:
        raise ValueError("IN takes a property on its left")
    name, wanted = operand.name, frozenset(texts)

    def value(properties: Properties) -> Value:
        found = properties.get(name)
        return None if found is None else (found in wanted) is not is_not

    return Expression(value, is_condition=True, depth=operand.depth + 1)


# --- how values compare (ComparisonExpression.__compare) -----------------------------------------------------------


def _compare(left: Value, right: Value) -> int:
    """-1, 0 or 1. Raises `NoAnswer`."""
    if isinstance(left, bool):
        if isinstance(right, bool):
            return int(left) - int(right)
        if isinstance(right, str):
            raise NoAnswer(f"{left} is compared with the text {right!r}")
        return -1
    if isinstance(left, str):
        if isinstance(right, str):
            return _sign(left, right)
        return _compare(_read_as(left, right), right)
    if isinstance(right, bool):
        return -1
    if isinstance(right, str):
        right = _read_as(right, left)
    assert left is not None
    assert right is not None
    if isinstance(left, float) or isinstance(right, float):
        return _compare_doubles(float(left), float(right))
    return _sign(left, right)


def _read_as(text: str, other: Value) -> Value:
    """A text as a value of the type of `other`. Raises `NoAnswer`."""
    if isinstance(other, bool):
        return text.lower() == "true"
    if isinstance(other, float):
        return _to_double(text)
    try:
        number = _to_long(text)
    except ValueError as error:
        raise NoAnswer(str(error)) from error
    if not isinstance(other, Long) and not _INT_MIN <= number <= _INT_MAX:
        raise NoAnswer(f"{text!r} has more than 32 bits, and is compared with a number that has no more")
    return number


def _to_long(text: str) -> Long:
    """Java's Long.valueOf. Raises `ValueError`."""
    if not _WHOLE.fullmatch(text):
        raise ValueError(f"{text[:_SHOWN_CHARS]!r} is no whole number")
    digits = text.lstrip("+-").lstrip("0")
    number = int(digits or "0") if len(digits) <= _LONG_DIGITS else _LONG_MAX + 1
    if text.startswith("-"):
        number = -number
    if not _LONG_MIN <= number <= _LONG_MAX:
        raise ValueError(f"{text[:_SHOWN_CHARS]!r} has more than 64 bits")
    return Long(number)


def _narrowed(number: Long) -> int:
    return int(number) if _INT_MIN <= number <= _INT_MAX else number


def _to_double(text: str) -> float:
    """Java's Double.valueOf. Raises `NoAnswer`."""
    trimmed = text.strip(_JAVA_SPACE)
    if found := _DECIMAL.fullmatch(trimmed):
        number = found.group(2)
        if number in ("NaN", "Infinity"):
            return float(found.group(1) + number)
        return float(found.group(1) + number.rstrip("fFdD"))
    if found := _HEXADECIMAL.fullmatch(trimmed):
        try:
            return float.fromhex(found.group(1))
        except OverflowError:
            return float("-inf" if trimmed[0] == "-" else "inf")
    raise NoAnswer(f"{text[:_SHOWN_CHARS]!r} is no number")


def _compare_doubles(left: float, right: float) -> int:
    """Java's Double.compareTo: -0.0 is less than 0.0, and NaN is greater than all else and equal to itself."""
    if left != right or left == 0:
        return _sign(_order_of(left), _order_of(right))
    return 0


def _order_of(number: float) -> int:
    if math.isnan(number):
        return _LONG_MAX
    (bits,) = struct.unpack(">q", struct.pack(">d", number))
    return int(bits) if bits >= 0 else _LONG_MIN - int(bits) - 1


def _sign(left: int | str, right: int | str) -> int:
    return 0 if left == right else -1 if left < right else 1  # type: ignore[operator]
