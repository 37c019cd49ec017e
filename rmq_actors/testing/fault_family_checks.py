"""What `FaultFamilies` may have: validators of its fields. They raise ValueError naming the field.

Faults are drawn when a campaign runs, perhaps in another process: what cannot be drawn is refused where it is written.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import attrs

from rmq_actors.settings.field_types import shown
from rmq_actors.testing.operation import KNOWN_OPERATIONS
from rmq_actors.tracing.events import KINDS
from sim_net.disk.disk_rule import OPERATIONS as DISK_OPERATIONS
from sim_net.faults.faults import FAULT_TYPES
from sim_net.field_checks import field_name

_OF_LINKS: Final = tuple(name for name, kind in FAULT_TYPES.items() if "a" in attrs.fields_dict(kind))
_OF_NODES: Final = tuple(name for name in FAULT_TYPES if name not in _OF_LINKS)
#: What a disk does is an event without a class: nothing but a fault listens to it.
_DISK_EVENTS: Final = tuple(f"disk.{operation}" for operation in DISK_OPERATIONS)


def check_links(instance: object, attribute: attrs.Attribute[Any], value: object) -> None:
    """Kinds of faults that links have."""
    _check_faults(field_name(instance, attribute), value, _OF_LINKS, "links")


def check_nodes(instance: object, attribute: attrs.Attribute[Any], value: object) -> None:
    """Kinds of faults that nodes have."""
    _check_faults(field_name(instance, attribute), value, _OF_NODES, "nodes")


def check_share(instance: object, attribute: attrs.Attribute[Any], value: object) -> None:
    """A chance: 0 is never, 1 is always."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 1:
        raise ValueError(f"{field_name(instance, attribute)} must be a number from 0 to 1, not {shown(value)}")


def check_number(instance: object, attribute: attrs.Attribute[Any], value: object) -> None:
    """How many there are."""
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise ValueError(f"{field_name(instance, attribute)} must be a whole number of at least 0, not {shown(value)}")


def check_events(instance: object, attribute: attrs.Attribute[Any], value: object) -> None:
    """Kinds of events that a fault may wait for; one that ends in `*` stands for several."""
    field = field_name(instance, attribute)
    known = (*KINDS, *_DISK_EVENTS)
    for event in _texts(field, value):
        prefix = event[:-1] if event.endswith("*") else ""
        if event not in known and not (prefix and any(each.startswith(prefix) for each in known)):
            raise ValueError(
                f"{field}: no event is of kind {shown(event)}; kinds are those of rmq_actors.tracing.events.KINDS, "
                f"and {', '.join(_DISK_EVENTS)}"
            )


def check_operations(instance: object, attribute: attrs.Attribute[Any], value: object) -> None:
    """What an `Operation` may be."""
    field = field_name(instance, attribute)
    for operation in _texts(field, value):
        if operation not in KNOWN_OPERATIONS:
            raise ValueError(
                f"{field}: no operation is called {shown(operation)}; there are {', '.join(KNOWN_OPERATIONS)}"
            )


def check_disk_errors(instance: object, attribute: attrs.Attribute[Any], value: object) -> None:
    """Pairs of an operation of a disk, or "" for any, and a part of a path."""
    field = field_name(instance, attribute)
    if not isinstance(value, list | tuple):
        raise ValueError(f"{field} must be a tuple of pairs, not {shown(value)}")  # noqa: TRY004 - bad input
    for number, pair in enumerate(value):
        if not isinstance(pair, list | tuple) or len(pair) != 2 or not all(isinstance(each, str) for each in pair):
            raise ValueError(f"{field}[{number}] must be an operation and a part of a path, not {shown(pair)}")
        if pair[0] and pair[0] not in DISK_OPERATIONS:
            raise ValueError(
                f"{field}[{number}]: no operation of a disk is called {shown(pair[0])}; "
                f"there are {', '.join(DISK_OPERATIONS)}"
            )


def _check_faults(field: str, value: object, known: Sequence[str], place: str) -> None:
    for kind in _texts(field, value):
        if kind not in FAULT_TYPES:
            raise ValueError(f"{field}: no fault is called {shown(kind)}; there are {', '.join(known)}")
        if kind not in known:
            raise ValueError(f"{field}: {kind} is not a fault of {place}; there are {', '.join(known)}")


def _texts(field: str, value: object) -> Sequence[str]:
    if not isinstance(value, list | tuple) or not all(isinstance(each, str) for each in value):
        raise ValueError(f"{field} must be a tuple of texts, not {shown(value)}")
    return value
