"""Validators of attrs fields that name the class, the field and the value, whatever was put there."""

from __future__ import annotations

import sys
from typing import Any, TypeGuard

import attrs


def field_name(instance: object, attribute: attrs.Attribute[Any]) -> str:
    """A field as errors name it."""
    return f"{type(instance).__name__}.{attribute.name}"


def _is_finite(value: object) -> TypeGuard[float]:
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= sys.float_info.max


def check_finite(instance: object, attribute: attrs.Attribute[Any], value: object) -> None:
    """Validate a finite number."""
    if not _is_finite(value):
        raise ValueError(f"{field_name(instance, attribute)} must be a finite number, not {value!r}")


def check_not_negative(instance: object, attribute: attrs.Attribute[Any], value: object) -> None:
    """Validate a finite number of at least 0."""
    if not _is_finite(value) or value < 0:
        raise ValueError(f"{field_name(instance, attribute)} must be a finite number of at least 0, not {value!r}")


def check_positive(instance: object, attribute: attrs.Attribute[Any], value: object) -> None:
    """Validate a finite number above 0."""
    check_not_negative(instance, attribute, value)
    if not value:
        raise ValueError(f"{field_name(instance, attribute)} must be above 0, not {value!r}")


def check_probability(instance: object, attribute: attrs.Attribute[Any], value: object) -> None:
    """Validate a number above 0 and at most 1."""
    check_positive(instance, attribute, value)
    if isinstance(value, int | float) and value > 1:
        raise ValueError(f"{field_name(instance, attribute)} must be at most 1, not {value!r}")


def check_name(instance: object, attribute: attrs.Attribute[Any], value: object) -> None:
    """Validate the name of a node."""
    if not isinstance(value, str) or not value:
        raise ValueError(f"{field_name(instance, attribute)} must be the name of a node, not {value!r}")


def check_text(instance: object, attribute: attrs.Attribute[Any], value: object) -> None:
    """Validate a string, which may be empty."""
    if not isinstance(value, str):
        raise ValueError(f"{field_name(instance, attribute)} must be a string, not {value!r}")  # noqa: TRY004 - bad input, not a bad call


def check_flag(instance: object, attribute: attrs.Attribute[Any], value: object) -> None:
    """Validate true or false."""
    if not isinstance(value, bool):
        raise ValueError(f"{field_name(instance, attribute)} must be true or false, not {value!r}")  # noqa: TRY004 - bad input, not a bad call


def check_count(instance: object, attribute: attrs.Attribute[Any], value: object) -> None:
    """Validate a whole number of at least 1."""
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise ValueError(f"{field_name(instance, attribute)} must be a whole number of at least 1, not {value!r}")


def check_step(instance: object, attribute: attrs.Attribute[Any], value: object) -> None:
    """Validate a whole number other than 0."""
    if isinstance(value, bool) or not isinstance(value, int) or not value:
        raise ValueError(f"{field_name(instance, attribute)} must be a whole number other than 0, not {value!r}")


def check_whole(instance: object, attribute: attrs.Attribute[Any], value: object) -> None:
    """Validate a whole number."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise ValueError(f"{field_name(instance, attribute)} must be a whole number, not {value!r}")  # noqa: TRY004 - bad input, not a bad call


def check_size(instance: object, attribute: attrs.Attribute[Any], value: object) -> None:
    """Validate a whole number of at least 0."""
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise ValueError(f"{field_name(instance, attribute)} must be a whole number of at least 0, not {value!r}")
