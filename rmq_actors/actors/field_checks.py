"""Validators of attrs fields that name the class, the field and the value. This package imports no other's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import attrs

#: How much of a refused value is shown.
_SHOWN_CHARS = 200


def _refuse(instance: object, attribute: attrs.Attribute[Any], must: str, value: object) -> ValueError:
    shown = repr(value)[:_SHOWN_CHARS]
    return ValueError(f"{type(instance).__name__}.{attribute.name} must be {must}, not {shown}")


def check_whole_number(instance: object, attribute: attrs.Attribute[Any], value: object) -> None:
    """Refuse what is not a whole number; True and False are not."""
    if not isinstance(value, int) or isinstance(value, bool):
        raise _refuse(instance, attribute, "a whole number", value)


def check_number(instance: object, attribute: attrs.Attribute[Any], value: object) -> None:
    """Refuse what is not a number; True and False are not."""
    if not isinstance(value, int | float) or isinstance(value, bool):
        raise _refuse(instance, attribute, "a number", value)


def check_tuple(instance: object, attribute: attrs.Attribute[Any], value: object) -> None:
    """Refuse what is not a tuple."""
    if not isinstance(value, tuple):
        raise _refuse(instance, attribute, "a tuple", value)


def one_of(choices: tuple[object, ...]) -> Callable[[object, attrs.Attribute[Any], object], None]:
    """A validator that takes these values alone."""

    def check(instance: object, attribute: attrs.Attribute[Any], value: object) -> None:
        if value not in choices:
            raise _refuse(instance, attribute, f"one of {', '.join(map(str, choices))}", value)

    return check
