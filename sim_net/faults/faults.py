"""Every kind of fault, by name, and faults as JSON."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, TypeVar

import attrs

from sim_net.faults.disk_faults import BitRot, DiskError, DiskFull, DiskSlow, DiskStuck, MisdirectedWrite
from sim_net.faults.fault import Fault, On
from sim_net.faults.network_faults import Bandwidth, Delay, Duplicate, Hold, Loss, Partition, Reorder, Reset, Stall
from sim_net.faults.node_faults import ClockDrift, ClockJump, Kill, Pause, PowerLoss, ShortIO

Json = None | bool | int | float | str | list["Json"] | dict[str, "Json"]

_KINDS: Final[tuple[type[Fault], ...]] = (
    Delay,
    Partition,
    Hold,
    Loss,
    Bandwidth,
    Duplicate,
    Reorder,
    Stall,
    Reset,
    ShortIO,
    Kill,
    PowerLoss,
    Pause,
    ClockJump,
    ClockDrift,
    DiskError,
    DiskFull,
    DiskSlow,
    DiskStuck,
    BitRot,
    MisdirectedWrite,
)

FAULT_TYPES: Final[Mapping[str, type[Fault]]] = {each.__name__: each for each in _KINDS}
#: Kinds that programs have registered.
_OWN_KINDS: Final[dict[str, type[Fault]]] = {}
_F = TypeVar("_F", bound=type[Fault])


def register_fault(kind: _F) -> _F:
    """Let JSON have faults of a kind of one's own: a decorator. Raises ValueError where its name is another kind's.

    Random schedules do not have it: who draws them adds it.
    """
    name = kind.__name__
    known = FAULT_TYPES.get(name) or _OWN_KINDS.get(name)
    if known is not None:
        raise ValueError(f"there is a fault of kind {name} already: {known.__module__}.{known.__qualname__}")
    _OWN_KINDS[name] = kind
    return kind


def fault_kind(fault: Fault) -> str:
    """The name of the fault's type, as in the journal and in JSON."""
    return type(fault).__name__


def fault_to_dict(fault: Fault) -> dict[str, Json]:
    """The fault as JSON: its type under `kind`, and its fields; `on` only if it waits for an event."""
    fields = attrs.asdict(fault, recurse=False)
    on = fields.pop("on")
    return {"kind": fault_kind(fault), **fields, **({} if on is None else {"on": attrs.asdict(on)})}


def fault_from_dict(data: object) -> Fault:
    """Undo `fault_to_dict`. ValueError naming the kind and field that are wrong."""
    if not isinstance(data, dict):
        raise ValueError(f"a fault must be an object, not {data!r}")  # noqa: TRY004 - bad input, not a bad call
    kind = data.get("kind")
    fault_type = FAULT_TYPES.get(kind) or _OWN_KINDS.get(kind) if isinstance(kind, str) else None
    if fault_type is None:
        raise ValueError(f"no fault is of kind {kind!r}; there are {', '.join((*FAULT_TYPES, *_OWN_KINDS))}")
    fields = {key: value for key, value in data.items() if key != "kind"}
    _check_fields(fault_type, fields, str(kind))
    on = fields.get("on")
    if isinstance(on, dict):
        _check_fields(On, on, f"{kind}.on")
        fields["on"] = On(**on)
    return fault_type(**fields)


def _check_fields(value_type: type[attrs.AttrsInstance], fields: Mapping[str, object], where: str) -> None:
    """ValueError if `fields` has unknown ones, or lacks one that has no default."""
    known = {field.name: field for field in attrs.fields(value_type)}
    unknown = [key for key in fields if key not in known]
    missing = [name for name, field in known.items() if name not in fields and field.default is attrs.NOTHING]
    if unknown or missing:
        problems = [f"unknown field {key!r}" for key in unknown] + [f"missing field {name!r}" for name in missing]
        raise ValueError(f"{where}: {', '.join(problems)}")
