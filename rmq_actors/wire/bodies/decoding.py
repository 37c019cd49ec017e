"""The JSON that fastjson 1.x writes and reads to bodies: strict JSON at once, all else by way of `wire.fastjson`."""

from __future__ import annotations

import math
import re
from typing import NoReturn, TypeVar, cast

import msgspec
from msgspec.inspect import (
    BoolType,
    DictType,
    EnumType,
    FloatType,
    IntType,
    ListType,
    NoneType,
    StrType,
    StructType,
    Type,
    UnionType,
    type_info,
)

from rmq_actors.wire.bodies.remoting_serializable import RemotingSerializable
from rmq_actors.wire.fastjson import FastJsonError, JsonKey, JsonValue, parse_fastjson, write_fastjson
from rmq_actors.wire.remoting_command import FRAME_MAX_LENGTH_BYTES, RemotingCommandError

#: The most values in a body, counted by commas and colons: more than all offsets of a big cluster.
VALUES_MAX = 2_000_000
#: The same for JSON that is neither strict nor strict but for integer keys: up to 6 us each, and everybody waits.
ODD_VALUES_MAX = 100_000
#: How many unknown members are named, and how much of each.
UNKNOWN_MEMBERS_MAX = 100
UNKNOWN_MEMBER_MAX_CHARS = 300

BodyT = TypeVar("BodyT", bound=RemotingSerializable)
ValueT = TypeVar("ValueT")

_DECLARATIONS: dict[object, Type] = {}
_UNQUOTED_KEY = re.compile(rb"([{,])(-?\d{1,19}):")
_INTEGER = re.compile(r"[+-]?\d{1,19}", re.ASCII)
_NUMBER = re.compile(r"[+-]?\d{1,400}(?:\.\d{1,400})?(?:[eE][+-]?\d{1,3})?", re.ASCII)
_TRUTH = {"true": True, "1": True, "false": False, "0": False, True: True, False: False}
#: What Java takes for null where it wants a number, a truth value or a name of an enum.
_NULL_TEXTS = ("", "null")


def decode_body(body_type: type[BodyT], data: bytes) -> BodyT:
    """Read a body as Java does: unquoted integer keys, objects as keys, numbers as text, ordinals of enums.

    Members that are null, absent, or hold an unknown name of an enum get the default of their field; unknown members
    are passed over, `unknown_members` names them. Raises `RemotingCommandError` naming the type, the place, the fault.
    """
    return _decode(body_type, body_type.__name__, data)


def decode_file(body_type: type[BodyT], data: memoryview) -> BodyT:
    """Read a body that stands in a file, of any size, perhaps as a person has written it. Raises `ValueError`."""
    try:
        return decode_body(body_type, bytes(data))
    except RemotingCommandError:
        return decode_body(body_type, write_fastjson(parse_fastjson(data)))


def decode_names(data: bytes, what: str) -> list[str]:
    """Read a list of strings. Raises `RemotingCommandError` naming `what`."""
    return _decode(list[str], what, data)


def _decode(kind: type[ValueT], what: str, data: bytes) -> ValueT:
    _check_limits(what, data)
    try:
        return msgspec.json.decode(data, type=kind)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        pass  # no standard JSON, or wrong: the last reader says which
    try:
        return msgspec.json.decode(_quote_integer_keys(data), type=kind)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        value = _parse_odd_json(what, data, error)
    try:
        return cast("ValueT", _convert(_declaration(kind), value))
    except _Mismatch as mismatch:
        raise RemotingCommandError(f"{what}{mismatch.path} {mismatch.what}") from mismatch


def unknown_members(body_type: type[RemotingSerializable], data: bytes) -> tuple[str, ...]:
    """The members of a body that its type does not have, each once, as `topicConfigTable.*.attributes`.

    Names of enums that are unknown are among them, as `consumeType=CONSUME_POP`. Raises `RemotingCommandError`.
    """
    _check_limits(body_type.__name__, data)
    try:
        value = msgspec.json.decode(_quote_integer_keys(data))
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        value = _parse_odd_json(body_type.__name__, data, error)
    found: dict[str, None] = {}
    _find_unknown(_declaration(body_type), value, "", found)
    return tuple(found)


def _check_limits(what: str, data: bytes) -> None:
    if not data:
        raise RemotingCommandError(f"{what}: the body is empty")
    if len(data) > FRAME_MAX_LENGTH_BYTES:
        raise RemotingCommandError(f"{what}: {len(data)} bytes of JSON, at most {FRAME_MAX_LENGTH_BYTES} are read")
    _check_values(what, data, VALUES_MAX, "JSON")


def _check_values(what: str, data: bytes, limit: int, form: str) -> None:
    count = max(data.count(b","), data.count(b":"))
    if count > limit:
        raise RemotingCommandError(f"{what}: about {count} values, at most {limit} are read of {form}")


def _declaration(kind: object) -> Type:
    """What a type declares, found out once."""
    declaration = _DECLARATIONS.get(kind)
    if declaration is None:
        declaration = _DECLARATIONS[kind] = type_info(kind)
    return declaration


def _quote_integer_keys(data: bytes) -> bytes:
    """What looks like a key within a string breaks the text: the quote ends the string before a digit."""
    return _UNQUOTED_KEY.sub(rb'\1"\2":', data)


def _parse_odd_json(what: str, data: bytes, error: Exception) -> JsonValue:
    _check_values(what, data, ODD_VALUES_MAX, f"JSON that is not strict ({error!s:.200})")
    try:
        return parse_fastjson(data)
    except FastJsonError as fault:
        raise RemotingCommandError(f"{what}: {fault}") from fault


class _Mismatch(ValueError):
    """A value that does not fit; its place is put together while it rises."""

    def __init__(self, what: str) -> None:
        super().__init__(what)
        self.what = what
        self.path = ""

    def inside(self, step: str) -> _Mismatch:
        self.path = step + self.path
        return self


def _refuse(value: JsonValue, wanted: str) -> NoReturn:
    kind = {dict: "an object", list: "a list", bool: "a truth value", type(None): "null"}.get(type(value))
    raise _Mismatch(f"is {kind or repr(value)[:80]}, no {wanted}")


def _convert(kind: Type, value: JsonValue) -> object:
    match kind:
        case StructType():
            return _to_struct(kind, value)
        case DictType():
            return _to_dict(kind, value)
        case ListType():
            return _to_list(kind, value)
        case StrType():
            return _to_str(value)
        case IntType():
            return _to_int(kind, value)
        case FloatType():
            return _to_float(value)
        case BoolType():
            return _to_bool(value)
        case EnumType():
            return _to_enum(kind, value)
        case _:
            raise AssertionError(f"bodies have no members of {kind}")


def _to_struct(kind: StructType, value: JsonValue) -> object:
    if not isinstance(value, dict):
        _refuse(value, f"{kind.cls.__name__}")
    members: dict[str, object] = {}
    for field in kind.fields:
        item = value.get(field.encode_name)
        inner = _without_none(field.type)
        if _is_absent(inner, item):
            if field.required:
                raise _Mismatch("is missing").inside(f".{field.encode_name}")
            continue
        try:
            members[field.name] = _convert(inner, item)
        except _Mismatch as mismatch:
            raise mismatch.inside(f".{field.encode_name}") from None
    return kind.cls(**members)


def _without_none(kind: Type) -> Type:
    if isinstance(kind, UnionType):
        (kind,) = (one for one in kind.types if not isinstance(one, NoneType))
    return kind


def _is_absent(kind: Type, value: JsonValue) -> bool:
    if value is None:
        return True
    if not isinstance(value, str) or isinstance(kind, StrType):
        return False
    if isinstance(kind, EnumType):
        return value not in kind.cls.__members__
    return value in _NULL_TEXTS and isinstance(kind, IntType | FloatType | BoolType)


def _to_dict(kind: DictType, value: JsonValue) -> dict[object, object]:
    if not isinstance(value, dict):
        _refuse(value, "map")
    result = {}
    for key, item in value.items():
        if item is None:
            continue
        try:
            result[_to_key(kind.key_type, key)] = _convert(kind.value_type, item)
        except _Mismatch as mismatch:
            raise mismatch.inside(f"[{_key_text(key)}]") from None
    return result


def _to_key(kind: Type, key: JsonKey) -> object:
    if isinstance(key, tuple):
        if not isinstance(kind, StructType):
            raise _Mismatch("has an object for its key")
        return _to_struct(kind, dict(key))
    if isinstance(kind, StructType):
        raise _Mismatch(f"has a key that is no {kind.cls.__name__}")
    return _convert(kind, key)


def _key_text(key: JsonKey) -> str:
    return ",".join(str(value) for _, value in key)[:120] if isinstance(key, tuple) else str(key)[:120]


def _to_list(kind: ListType, value: JsonValue) -> list[object]:
    if not isinstance(value, list):
        _refuse(value, "list")
    result = []
    for index, item in enumerate(value):
        try:
            result.append(_convert(kind.item_type, item))
        except _Mismatch as mismatch:
            raise mismatch.inside(f"[{index}]") from None
    return result


def _to_str(value: JsonValue) -> str:
    if value is None or isinstance(value, dict | list):
        _refuse(value, "text")
    if isinstance(value, bool):
        return "true" if value else "false"
    text = str(value)
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise _Mismatch(f"is no Unicode text: {error.reason} at character {error.start}") from error
    return text


def _to_int(kind: IntType, value: JsonValue) -> int:
    if not isinstance(value, str | int | float) or not _is_integer(value):
        _refuse(value, "integer")
    number = int(value)
    if (kind.ge is not None and number < kind.ge) or (kind.le is not None and number > kind.le):
        raise _Mismatch(f"is {str(number)[:80]}, not between {kind.ge} and {kind.le}")
    return number


def _is_integer(value: str | float) -> bool:
    return _INTEGER.fullmatch(value) is not None if isinstance(value, str) else value % 1 == 0


def _to_float(value: JsonValue) -> float:
    if isinstance(value, int | float) or (isinstance(value, str) and _NUMBER.fullmatch(value)):
        try:
            number = float(value)
        except OverflowError:
            number = math.inf
        if math.isfinite(number):
            return number
    _refuse(value, "number")


def _to_bool(value: JsonValue) -> bool:
    if isinstance(value, str | int) and value in _TRUTH:
        return _TRUTH[value]
    _refuse(value, "truth value")


def _to_enum(kind: EnumType, value: JsonValue) -> object:
    """By name, or by its place among the names (Java's ordinal), as clients in C++ write it."""
    constants = list(kind.cls)
    if isinstance(value, str) and value in kind.cls.__members__:
        return kind.cls[value]
    if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < len(constants):
        return constants[value]
    _refuse(value, f"{kind.cls.__name__}")


def _find_unknown(kind: Type, value: JsonValue, path: str, found: dict[str, None]) -> None:
    kind = _without_none(kind)
    if isinstance(kind, StructType) and isinstance(value, dict):
        fields = {field.encode_name: field.type for field in kind.fields}
        for name, item in value.items():
            place = f"{path}.{name}" if path else str(name)
            inner = fields.get(name) if isinstance(name, str) else None
            if inner is None:
                _name(place, found)
            else:
                _find_unknown(inner, item, place, found)
    elif isinstance(kind, DictType) and isinstance(value, dict):
        for item in value.values():
            _find_unknown(kind.value_type, item, f"{path}.*", found)
    elif isinstance(kind, ListType) and isinstance(value, list):
        for item in value:
            _find_unknown(kind.item_type, item, f"{path}[]", found)
    elif isinstance(kind, EnumType) and isinstance(value, str) and value not in kind.cls.__members__:
        _name(f"{path}={value}", found)


def _name(place: str, found: dict[str, None]) -> None:
    if len(found) < UNKNOWN_MEMBERS_MAX:
        found[place[:UNKNOWN_MEMBER_MAX_CHARS]] = None
