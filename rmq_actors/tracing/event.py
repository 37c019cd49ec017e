"""What an event is: `Event`, from which each kind derives a class, the columns of a trace, and the registry of kinds.

A trace is the list of events of one run, simulated or real. Arrow's and Spark's schemas and `docs/trace-schema.md` are
made from the classes. This project's kinds are in `rmq_actors.tracing.events`; a program that derives a class with a
kind's name has registered one (`docs/trace-schema.md`, "A kind of your own").

Events are made by the hundred thousand, so they are msgspec's structs: one is made in a tenth of the time that an attrs
class takes. They are frozen for type checkers alone, because the recorder fills in what it knows.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple, TypeVar, cast, dataclass_transform

import attrs
import msgspec

SCHEMA_VERSION = 2
#: Earlier versions are read as well: version 1 had columns that nothing filled, and lacked some (see `COLUMNS`).
SCHEMA_VERSIONS_READ = frozenset({1, 2})

ColumnType = Literal["int8", "int16", "int32", "int64", "string", "dictionary", "links", "string_map"]

_KIND_NAME = re.compile(r"[a-z][a-z0-9_]*(\.[a-z][a-z0-9_]*)+")


@attrs.frozen
class Column:
    """One column: its name, its type, and what it means."""

    name: str
    type: ColumnType
    meaning: str
    nullable: bool = True


class _Declared(NamedTuple):
    """A column as `Event` declares it. `default`: of a column that the recorder fills in; kinds declare the others."""

    type: ColumnType
    meaning: str
    nullable: bool
    is_recorders: bool
    default: object


def recorded(
    column_type: ColumnType,
    meaning: str,
    *,
    at_first: object = None,
    nullable: bool = True,
    init: Literal[False] = False,  # noqa: ARG001  # type checkers read it: nobody passes this field
) -> Any:  # noqa: ANN401  # it stands for a value of the field's type
    """A column of every event, which the recorder fills in."""
    return _Declared(column_type, meaning, nullable, True, at_first)


def column(
    column_type: ColumnType,
    meaning: str,
    *,
    init: Literal[False] = False,  # noqa: ARG001  # type checkers read it: a kind that has this field says so
) -> Any:  # noqa: ANN401  # see `recorded`
    """A column that a kind has when it declares a field of this name; it is None in the others."""
    return _Declared(column_type, meaning, True, False, None)


def attribute(name: str, *, default: object = msgspec.NODEFAULT) -> Any:  # noqa: ANN401  # see `recorded`
    """A field of a kind that traces know as `name`, and that is no column whatever the name is."""
    return msgspec.field(name=name, default=default)


class KindRefused(TypeError):
    """A class cannot be a kind of events: its name is taken or is no name, or its fields would be confused."""


class UnknownKind(ValueError):
    """No kind of this name is registered."""


_kinds: dict[str, type[Event]] = {}
#: Every registered kind by name. Import it from `rmq_actors.tracing.events`: then this project's kinds are in it.
KINDS: Mapping[str, type[Event]] = MappingProxyType(_kinds)

if TYPE_CHECKING:
    _Meta = type
    _Struct = object
else:
    _Meta = msgspec.StructMeta
    _Struct = msgspec.Struct


@dataclass_transform(kw_only_default=True, frozen_default=True, field_specifiers=(recorded, column, attribute))
class EventMeta(_Meta):
    """Makes structs of `Event` and the classes that derive from it, and registers those with a kind's name."""

    def __new__(
        cls,
        name: str,
        bases: tuple[type, ...],
        namespace: dict[str, Any],
        *,
        kind: str = "",
        emitter: str = "",
        actor: str = "",
    ) -> Any:  # noqa: ANN401  # type checkers know what a class statement makes
        """`kind`: its name in traces. `emitter`: the modules that emit it. `actor`: its default actor."""
        if any(isinstance(base, EventMeta) for base in bases):
            _check_class(name, bases, namespace, kind)
            namespace |= {"kind": kind, "emitter": emitter, "default_actor": actor}
        else:
            _declare_columns(namespace)
        made: Any = super().__new__(cls, name, bases, namespace, kw_only=True, gc=False)
        if kind:
            _register(made)
        return made


def _declare_columns(namespace: dict[str, Any]) -> None:
    """Of `Event` itself: what the recorder fills in becomes fields, every other column is None until a kind has it."""
    annotations = namespace["__annotations__"]
    declared = {name: value for name, value in namespace.items() if isinstance(value, _Declared)}
    for name, each in declared.items():
        namespace[name] = each.default
        if not each.is_recorders:
            del annotations[name]
    namespace["declared"] = MappingProxyType(declared)


def _check_class(name: str, bases: tuple[type, ...], namespace: dict[str, Any], kind: str) -> None:
    if any(cast("type[Event]", base).kind for base in bases if isinstance(base, EventMeta)):
        raise KindRefused(f"{name}: a kind is no base of another; put common fields into a class without a kind")
    if kind and not _KIND_NAME.fullmatch(kind):
        raise KindRefused(
            f"{name}: a kind's name is lower case words with dots between, as in my_app.started: {kind!r}"
        )
    taken = [field for field in namespace.get("__annotations__", ()) if field in _OF_EVERY_EVENT]
    if taken:
        raise KindRefused(f"{name}: every event has {', '.join(taken)} already")


def _register(made: type[Event]) -> None:
    other = _kinds.get(made.kind)
    place = made.__module__, made.__qualname__
    if other is not None and (other.__module__, other.__qualname__) != place:  # else: it is loaded again
        raise KindRefused(
            f"{made.__qualname__}: {other.__module__}.{other.__qualname__} is the kind {made.kind} already"
        )
    fields: Any = made
    trace_names = dict(zip(fields.__struct_encode_fields__, fields.__struct_fields__, strict=True))
    own = {trace: field for trace, field in trace_names.items() if field not in _RECORDERS}
    made.field_names = MappingProxyType(own)
    made.attribute_names = MappingProxyType({key: field for key, field in own.items() if field not in made.declared})
    _kinds[made.kind] = made


class Event(_Struct, metaclass=EventMeta):
    """One event. A kind's class declares the columns that it fills, narrower than here, and attributes beside them.

    So a reader asks for the class and has typed fields: `def _on_append(self, event: LogAppend)`, subscribed with
    `recorder.subscribe(self._on_append, [LogAppend])`; or `isinstance(event, LogAppend)`; or `match`. Where any kind
    may come, each column that a kind does not have is None, and `attrs` has the attributes as text.

    More than 20 fields because they are the columns of the trace.
    """

    #: The name of the kind; empty for a class that only lends its fields to others.
    kind: ClassVar[str] = ""
    #: The modules that emit it, with commas between; sim_net's journal its kinds.
    emitter: ClassVar[str] = ""
    default_actor: ClassVar[str] = ""
    declared: ClassVar[Mapping[str, _Declared]]
    #: What traces call the fields of this kind, to the fields' names; and those of them that are no columns.
    field_names: ClassVar[Mapping[str, str]] = MappingProxyType({})
    attribute_names: ClassVar[Mapping[str, str]] = MappingProxyType({})

    seq: int = recorded(
        "int64", "position in the run, dense from 0 (dense per node for real brokers)", at_first=-1, nullable=False
    )
    sim_time_ns: int | None = recorded("int64", "virtual time since the start of the run; null in real runs")
    wall_time_ns: int = recorded(
        "int64", "wall clock of the recording process, ns since the epoch", at_first=0, nullable=False
    )
    node: str = recorded(
        "dictionary", "the node that the event happened on; empty for the world itself", at_first="", nullable=False
    )
    life: int | None = recorded("int32", "which life of the node: 1 from its first node.boot on; null before it")
    actor: str = recorded("dictionary", "the actor, under RocketMQ's name for it", at_first="", nullable=False)
    status: str | None = column("dictionary", "how it ended, or why")
    state_from: str | None = column("dictionary", "the state before a transition")
    state_to: str | None = column("dictionary", "the state after a transition")
    task: int | None = column("int32", "number of the Trio task, in order of spawning")
    parent_seq: int | None = column("int64", "seq of the event that caused this one")
    link_id: int | None = column("int64", "envelope number of an actor message")
    conn_id: int | None = column("int32", "connection number, given by the master: from 1 in each life of the node")
    conn_dir: int | None = column("int8", "0 from the slave or client, 1 from the master or server")
    offset: int | None = column("int64", "physical offset in the commit log, bytes")
    size: int | None = column("int32", "bytes")
    msg_id: int | None = column("int64", "number of the put, given by the master: from 0 in each life of the node")
    msg_id_last: int | None = column("int64", "of several puts that are told at once: the last one's number")
    fault_id: int | None = column("int32", "index of the fault in the run's schedule")
    topic: str | None = column("dictionary", "a message's topic; messaging.destination.name of OpenTelemetry")
    message_id: str | None = column(
        "string", "a message's unique key, which clients call its id; messaging.message.id of OpenTelemetry"
    )
    lamport: int | None = column("int64", "Lamport time")
    links: tuple[tuple[str, int], ...] | None = column("links", "further causes, as (node, seq)")

    if TYPE_CHECKING:

        def __init_subclass__(cls, *, kind: str = "", emitter: str = "", actor: str = "") -> None: ...

    @property
    def attrs(self) -> dict[str, str] | None:
        """What the kind has beyond columns, as text, under the names of the trace. None if it has nothing."""
        names = self.attribute_names.items()
        return {name: str(value) for name, field in names if (value := getattr(self, field)) is not None} or None


_RECORDERS = frozenset(name for name, each in Event.declared.items() if each.is_recorders)
_OF_EVERY_EVENT = _RECORDERS | {"kind", "attrs", "run_id", "seed", "schema_version"}


def _columns() -> Iterator[Column]:
    yield Column("run_id", "int64", "stable hash of campaign, scenario, seed and config", nullable=False)
    yield Column("seed", "int64", "the integer that the run was made from; 0 for a real run", nullable=False)
    for name, each in Event.declared.items():
        yield Column(name, each.type, each.meaning, each.nullable)
        if name == "actor":
            yield Column("kind", "dictionary", "what happened: the name of a kind", nullable=False)
    yield Column("schema_version", "int16", "version of this table's meaning", nullable=False)
    yield Column("attrs", "string_map", "what the kind has beyond columns; OpenTelemetry's names where it has one")


#: Columns in file order. They are only ever added and may be null, until a new `SCHEMA_VERSION` takes some away.
COLUMNS: tuple[Column, ...] = tuple(_columns())
RUN_COLUMNS = frozenset({"run_id", "seed", "schema_version"})


_E = TypeVar("_E", bound="Event")


def of_kind(events: Iterable[Event], kind: type[_E]) -> list[_E]:
    """Those of a kind, with its fields."""
    return [event for event in events if isinstance(event, kind)]


def event_of(kind: str, values: Mapping[str, object]) -> Event:
    """The event of that kind whose columns and attributes have these values, by the names that traces give them.

    For callers with names instead of classes: a journal, a table. Raises `UnknownKind`, and `TypeError` for a name
    that the kind does not have, or one that is missing.
    """
    made = KINDS.get(kind)
    if made is None:
        raise UnknownKind(kind)
    unknown = values.keys() - made.field_names.keys()
    if unknown:
        raise TypeError(f"{kind} has no {', '.join(sorted(unknown))}")
    make: Any = made
    event: Event = make(**{made.field_names[name]: value for name, value in values.items()})
    return event


#: An event's fields as a tuple: what the recorder has filled in, then what the kind has.
values_of: Callable[[Event], tuple[Any, ...]] = cast("Any", msgspec.structs.astuple)


def unfilled_columns(kinds: Iterable[type[Event]]) -> frozenset[str]:
    """Columns that none of these kinds fills: they are there for what is to come."""
    filled = {field for kind in kinds for field in kind.field_names.values()}
    return frozenset(Event.declared.keys() - filled - _RECORDERS)


@attrs.frozen
class RunInfo:
    """What identifies a run. `run_id` is the same for the same four values, in every process."""

    campaign: str
    scenario: str
    seed: int
    config: str = "{}"
    source: Literal["sim", "broker"] = "sim"
    git_revision: str = ""

    @property
    def run_id(self) -> int:
        """A stable signed 64-bit hash of campaign, scenario, seed and config."""
        text = "\x00".join((self.campaign, self.scenario, str(self.seed), self.config))
        return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "big", signed=True)
