"""Checks settings by their annotations: text for an enum becomes the member, other types are refused.

A settings class says `@attrs.frozen(field_transformer=typed_fields)`. Python would take `broker_role="SYNC_MASTER"` as
it is. Then no comparison with the enum's members is true, and the setting silently has no effect.
"""

from __future__ import annotations

import enum
import functools
import sys
import types
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

import attrs

#: How much of a refused value is shown.
_SHOWN_CHARS = 200

_NAMES = {
    bool: "True or False",
    int: "a whole number",
    float: "a number",
    str: "text",
    tuple: "a tuple",
    Mapping: "a mapping",
    Sequence: "a sequence",
    Iterable: "an iterable",
    Callable: "a function",
}


def typed_fields(config_type: type, fields: list[attrs.Attribute[Any]]) -> list[attrs.Attribute[Any]]:
    """The fields, each of which looks at its value before validators do: attrs' `field_transformer`.

    They raise `ValueError` naming the class, the field, what it may be and the value. True and False are no numbers.
    """
    hints = functools.cache(lambda: _hints_of(config_type))
    return [field.evolve(converter=_converter(config_type, field, hints)) for field in fields]


def _hints_of(config_type: type) -> dict[str, Any]:
    # Names are looked up in the module: a class may have a field called `type`.
    return get_type_hints(config_type, vars(sys.modules[config_type.__module__]), {})


def _converter(
    config_type: type, field: attrs.Attribute[Any], hints: Callable[[], dict[str, Any]]
) -> Callable[[Any], Any]:
    exact_types: frozenset[type] | None = None

    def convert(value: Any) -> Any:  # noqa: ANN401  # whatever somebody has written
        nonlocal exact_types
        if exact_types is None:
            exact_types = taken_as_they_are(hints()[field.name])
        if type(value) in exact_types:
            return value
        try:
            return typed_value(value, hints()[field.name])
        except ValueError as error:
            raise ValueError(f"{config_type.__name__}.{field.name} {error}") from None

    # What help() shows of the class.
    convert.__annotations__ = {"value": field.type, "return": field.type}
    return convert


def taken_as_they_are(hint: object) -> frozenset[type]:
    """The types whose own values, not those of subclasses, `typed_value` hands back whatever they are."""
    choices = choices_of(hint)
    kinds = {kind for choice in choices if isinstance(kind := get_origin(choice) or choice, type)}
    if float in kinds:
        kinds.add(int)
    if any(issubclass(kind, enum.Enum) for kind in kinds):
        kinds.discard(str)  # text may be the name of a member
    return frozenset(kinds)


def choices_of(hint: object) -> tuple[object, ...]:
    """What an annotation allows: the parts of a union, or itself."""
    return get_args(hint) if get_origin(hint) in {Union, types.UnionType} else (hint,)


def typed_value(value: object, hint: object) -> object:
    """`value` as `hint` has it. Raises `ValueError` saying what it must be."""
    choices = choices_of(hint)
    for choice in choices:
        if isinstance(choice, type) and issubclass(choice, enum.Enum) and isinstance(value, str):
            return _member(value, choice)
    if any(_is_of(value, choice) for choice in choices):
        return value
    wanted = " or ".join(_name(choice) for choice in choices)
    raise ValueError(f"must be {wanted}, not {shown(value)}")


def _member(text: str, kind: type[enum.Enum]) -> enum.Enum:
    found = kind.__members__.get(text)
    if found is None:
        found = next((member for member in kind if member.value == text), None)
    if found is None:
        raise ValueError(f"must be {_name(kind)}, not {shown(text)}")
    return found


def _is_of(value: object, hint: object) -> bool:
    if get_origin(hint) is Literal:
        return value in get_args(hint)
    kind = get_origin(hint) or hint
    if not isinstance(kind, type):
        return True  # nothing that can be checked at one value, such as Any
    if isinstance(value, bool):
        return kind in {bool, object}
    if getattr(kind, "_is_protocol", False):
        return all(hasattr(value, name) for name in _members_of(kind))
    return isinstance(value, (int, float) if kind is float else kind)


def _members_of(protocol: type) -> list[str]:
    return [name for name in {**vars(protocol), **protocol.__annotations__} if not name.startswith("_")]


def _name(hint: object) -> str:
    kind = get_origin(hint) or hint
    if kind is Literal:
        return f"one of {', '.join(map(str, get_args(hint)))}"
    if kind in {None, types.NoneType}:
        return "None"
    if isinstance(kind, type) and issubclass(kind, enum.Enum):
        return f"one of {', '.join(kind.__members__)}"
    return _NAMES.get(kind, getattr(kind, "__name__", str(kind))) if isinstance(kind, type) else str(kind)


def shown(value: object) -> str:
    """A value that is refused, as an error shows it."""
    try:
        return repr(value)[:_SHOWN_CHARS]
    except Exception:  # noqa: BLE001 - whatever somebody has written; Python shows no number of 4,300 digits either
        return f"a {type(value).__name__} that cannot be shown"


def on_one_line(text: str) -> str:
    """The text with what is not printable, as names of files may have it, as escapes."""
    return "".join(each if each.isprintable() else each.encode("unicode_escape").decode() for each in text)
