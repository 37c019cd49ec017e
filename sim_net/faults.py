"""Faults as values: frozen, timed by virtual time, and JSON on demand.

`a`, `b` and `node` are names of nodes; times are virtual seconds, `at_s` since the start of the run. What each one
does to a world is in `nemesis`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Final, get_args

import attrs

Json = None | bool | int | float | str | list["Json"] | dict[str, "Json"]


def _field(instance: object, attribute: attrs.Attribute[Any]) -> str:
    return f"{type(instance).__name__}.{attribute.name}"


def _number(instance: object, attribute: attrs.Attribute[float], value: object) -> None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value) or value < 0:
        raise ValueError(f"{_field(instance, attribute)} must be a finite number of at least 0, not {value!r}")


def _positive(instance: object, attribute: attrs.Attribute[float], value: object) -> None:
    _number(instance, attribute, value)
    if not value:
        raise ValueError(f"{_field(instance, attribute)} must be above 0, not {value!r}")


def _name(instance: object, attribute: attrs.Attribute[str], value: object) -> None:
    if not isinstance(value, str) or not value:
        raise ValueError(f"{_field(instance, attribute)} must be the name of a node, not {value!r}")


def _flag(instance: object, attribute: attrs.Attribute[bool], value: object) -> None:
    if not isinstance(value, bool):
        raise ValueError(f"{_field(instance, attribute)} must be true or false, not {value!r}")  # noqa: TRY004 - bad input, not a bad call


def _count(instance: object, attribute: attrs.Attribute[int], value: object) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise ValueError(f"{_field(instance, attribute)} must be a whole number of at least 1, not {value!r}")


@attrs.frozen
class Delay:
    """Everything between `a` and `b` takes `extra_s` longer; from `a` to `b` only, if not `two_way`."""

    at_s: float = attrs.field(validator=_number)
    duration_s: float = attrs.field(validator=_positive)
    a: str = attrs.field(validator=_name)
    b: str = attrs.field(validator=_name)
    extra_s: float = attrs.field(validator=_number)
    two_way: bool = attrs.field(default=True, validator=_flag)


@attrs.frozen
class Partition:
    """Nothing passes between `a` and `b`; from `a` to `b` only, if not `two_way`. TCP sends it again after healing."""

    at_s: float = attrs.field(validator=_number)
    duration_s: float = attrs.field(validator=_positive)
    a: str = attrs.field(validator=_name)
    b: str = attrs.field(validator=_name)
    two_way: bool = attrs.field(default=True, validator=_flag)


@attrs.frozen
class Stall:
    """`b`'s receive windows for `a` are shut: what `a` sends stays in its buffers, then its sends wait."""

    at_s: float = attrs.field(validator=_number)
    duration_s: float = attrs.field(validator=_positive)
    a: str = attrs.field(validator=_name)
    b: str = attrs.field(validator=_name)


@attrs.frozen
class Reset:
    """Every connection between `a` and `b` is reset, at both ends."""

    at_s: float = attrs.field(validator=_number)
    a: str = attrs.field(validator=_name)
    b: str = attrs.field(validator=_name)


@attrs.frozen
class ShortIO:
    """Each send and receive of `node` moves a random 1 to `bytes_max` bytes at most."""

    at_s: float = attrs.field(validator=_number)
    duration_s: float = attrs.field(validator=_positive)
    node: str = attrs.field(validator=_name)
    bytes_max: int = attrs.field(validator=_count)


@attrs.frozen
class Kill:
    """`node` is killed, and restarted `down_s` later. Nothing happens if it is down already."""

    at_s: float = attrs.field(validator=_number)
    node: str = attrs.field(validator=_name)
    down_s: float = attrs.field(validator=_positive)


Fault = Delay | Partition | Stall | Reset | ShortIO | Kill

FAULT_TYPES: Final[Mapping[str, type[Fault]]] = {each.__name__: each for each in get_args(Fault)}


def fault_kind(fault: Fault) -> str:
    """The name of the fault's type, as in the journal and in JSON."""
    return type(fault).__name__


def fault_nodes(fault: Fault) -> tuple[str, ...]:
    """The names of the nodes that the fault is about."""
    return (fault.node,) if isinstance(fault, ShortIO | Kill) else (fault.a, fault.b)


def fault_to_dict(fault: Fault) -> dict[str, Json]:
    """The fault as JSON: its fields, and its type under `kind`."""
    return {"kind": fault_kind(fault), **attrs.asdict(fault)}


def fault_from_dict(data: object) -> Fault:
    """Undo `fault_to_dict`. ValueError naming the kind and field that are wrong."""
    if not isinstance(data, dict):
        raise ValueError(f"a fault must be an object, not {data!r}")  # noqa: TRY004 - bad input, not a bad call
    kind = data.get("kind")
    fault_type = FAULT_TYPES.get(kind) if isinstance(kind, str) else None
    if fault_type is None:
        raise ValueError(f"no fault is of kind {kind!r}; there are {', '.join(FAULT_TYPES)}")
    fields = {key: value for key, value in data.items() if key != "kind"}
    known = {field.name: field for field in attrs.fields(fault_type)}
    unknown = [key for key in fields if key not in known]
    missing = [name for name, field in known.items() if name not in fields and field.default is attrs.NOTHING]
    if unknown or missing:
        problems = [f"unknown field {key!r}" for key in unknown] + [f"missing field {name!r}" for name in missing]
        raise ValueError(f"{kind}: {', '.join(problems)}")
    return fault_type(**fields)
