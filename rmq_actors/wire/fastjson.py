"""The JSON that RocketMQ writes with fastjson 1.x: standard JSON, and map keys that are numbers or objects.

`{"offsetTable":{1:5,2:7}}` has integers as keys; `{{"brokerName":"a","queueId":0}:{...}}` has objects. Both appear in
files below `config/` and in bodies of the remoting protocol. Standard JSON is read as well.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from typing import NoReturn, TypeGuard

from rmq_actors.wire.java_numbers import INT32

MAX_DEPTH = 64
MAX_SIZE_BYTES = 64 * 1024 * 1024

JsonScalar = str | int | float | bool | None
#: An object that stands for a key (MessageQueue in ConsumeStats): its members, in their order. Integers have 32 bits.
ObjectKey = tuple[tuple[str, str | int | None], ...]
JsonKey = str | int | ObjectKey
JsonValue = JsonScalar | list["JsonValue"] | dict[JsonKey, "JsonValue"]
#: What can be written: any mapping, any sequence.
JsonInput = (
    JsonScalar
    | Sequence["JsonInput"]
    | Mapping[JsonKey, "JsonInput"]
    | Mapping[str, "JsonInput"]
    | Mapping[int, "JsonInput"]
)

_BLANK = frozenset(" \t\n\r")
_BLANKS = re.compile(r"[ \t\n\r]*")
_INTEGER_KEY = re.compile(r"-?(?:0|[1-9]\d{0,18})(?=[ \t\n\r]*:)", re.ASCII)


#: Members of an object that is a key; MessageQueue has three.
_KEY_MEMBERS_MAX = 4


class FastJsonError(ValueError):
    """Text that is not fastjson's; names the place by line, column and character."""


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON")


#: For strings, control characters in them or not, numbers, true, false and null: what nests is read here, where the
#: depth is bounded.
_DECODER = json.JSONDecoder(parse_constant=_refuse_constant, strict=False)


def parse_fastjson(
    data: bytes | memoryview, *, max_depth: int = MAX_DEPTH, max_bytes: int = MAX_SIZE_BYTES
) -> JsonValue:
    """Parse UTF-8 text. Unquoted integer keys come as `int`, objects as keys as `ObjectKey`.

    If a key comes twice, the last one counts, as in Java. Raises `FastJsonError`.
    """
    if len(data) > max_bytes:
        raise FastJsonError(f"{len(data)} bytes of JSON: at most {max_bytes} are read")
    try:
        text = str(data, "utf-8")
    except UnicodeDecodeError as error:
        raise FastJsonError(f"byte {error.start} is no UTF-8: {error.reason}") from error
    parser = _Parser(text, max_depth)
    value = parser.value(0)
    parser.skip_blanks()
    if parser.at < len(text):
        parser.fail("the text goes on after its value")
    return value


def integer_keys(value: JsonValue, where: str) -> dict[int, JsonValue]:
    """The map `value` with its keys as integers, quoted in the text or not. Raises `FastJsonError` naming `where`."""
    if not isinstance(value, dict):
        raise FastJsonError(f"{where} is not a map")
    result = {}
    for key, item in value.items():
        number = int(key) if isinstance(key, str) and re.fullmatch(r"-?\d{1,19}", key, re.ASCII) else key
        if not isinstance(number, int):
            raise FastJsonError(f"{where} has a key that is no integer: {key!r}")
        result[number] = item
    return result


def _may_be_in_key(value: JsonValue) -> TypeGuard[str | int | None]:
    """Whether few values have the hash of this one: of floats and large integers a peer could choose thousands."""
    return value is None or isinstance(value, str) or (isinstance(value, int) and value in INT32)


class _Parser:
    """One text, read from `at` on."""

    def __init__(self, text: str, max_depth: int) -> None:
        self._text = text
        self._max_depth = max_depth
        self.at = 0

    def fail(self, what: str) -> NoReturn:
        line = self._text.count("\n", 0, self.at) + 1
        column = self.at - self._text.rfind("\n", 0, self.at)
        raise FastJsonError(f"line {line}, column {column} (character {self.at}): {what}")

    def skip_blanks(self) -> None:
        blanks = _BLANKS.match(self._text, self.at)
        if blanks is not None:
            self.at = blanks.end()

    def _peek(self) -> str:
        """The next character that is not blank; empty at the end."""
        char = self._text[self.at : self.at + 1]
        if char in _BLANK:
            self.skip_blanks()
            char = self._text[self.at : self.at + 1]
        return char

    def _take(self, char: str) -> bool:
        if self._peek() != char:
            return False
        self.at += 1
        return True

    def value(self, depth: int) -> JsonValue:
        char = self._peek()
        if char in {"{", "["}:
            if depth >= self._max_depth:
                self.fail(f"more than {self._max_depth} values inside of one another")
            self.at += 1
            return self._object(depth + 1) if char == "{" else self._array(depth + 1)
        return self._scalar()

    def _scalar(self) -> JsonScalar:
        try:
            value, end = _DECODER.raw_decode(self._text, self.at)
        except json.JSONDecodeError as error:
            self.at = error.pos
            self.fail(error.msg)
        except ValueError as error:  # an integer of thousands of digits, NaN
            self.fail(str(error))
        if isinstance(value, float) and not math.isfinite(value):
            self.fail("a number beyond those of 64 bits")
        self.at = end
        scalar: JsonScalar = value
        return scalar

    def _array(self, depth: int) -> list[JsonValue]:
        items: list[JsonValue] = []
        if self._take("]"):
            return items
        while True:
            items.append(self.value(depth))
            if self._take("]"):
                return items
            if not self._take(","):
                self.fail("neither ',' nor ']' follows an item")

    def _object(self, depth: int) -> dict[JsonKey, JsonValue]:
        members: dict[JsonKey, JsonValue] = {}
        if self._take("}"):
            return members
        while True:
            key = self._key(depth)
            if not self._take(":"):
                self.fail("no ':' follows a key")
            members[key] = self.value(depth)
            if self._take("}"):
                return members
            if not self._take(","):
                self.fail("neither ',' nor '}' follows a member")

    def _key(self, depth: int) -> JsonKey:
        char = self._peek()
        if char == '"':
            return str(self._scalar())
        if char == "{":
            begin = self.at
            members = self.value(depth)
            assert isinstance(members, dict)
            pairs: list[tuple[str, str | int | None]] = []
            for name, value in members.items():
                if not isinstance(name, str) or not _may_be_in_key(value) or len(members) > _KEY_MEMBERS_MAX:
                    self.at = begin
                    self.fail(f"an object that is a key may only hold {_KEY_MEMBERS_MAX} texts or numbers of 32 bits")
                pairs.append((name, value))
            return tuple(pairs)
        number = _INTEGER_KEY.match(self._text, self.at)
        if number is None:
            self.fail("a key must be a string, an integer or an object")
        self.at = number.end()
        return int(number.group())


def write_fastjson(value: JsonInput, *, unquoted_integer_keys: bool = True, pretty: bool = False) -> bytes:
    """Write UTF-8 text as fastjson does; `pretty` is its PrettyFormat, that of the files below `config/`.

    Without `unquoted_integer_keys` integer keys are strings, which is standard JSON, but for objects as keys. Raises
    `ValueError` for NaN and infinities.
    """
    pieces: list[str] = []
    _write(pieces, value, unquoted_integer_keys, "\n" if pretty else "")
    return "".join(pieces).encode()


def _write(pieces: list[str], value: JsonInput, unquoted: bool, line: str) -> None:
    """`line`: what begins a line at this depth, empty when not pretty."""
    inner = line and line + "\t"
    if isinstance(value, Mapping):
        separator = "{"
        for key, item in value.items():
            # fastjson begins a line for a member whose key is a string, and for no other.
            pieces.append(separator + inner if isinstance(key, str) or not unquoted else separator)
            _write_key(pieces, key, unquoted)
            pieces.append(":")
            _write(pieces, item, unquoted, inner)
            separator = ","
        pieces.append(line + "}" if value else "{}")
    elif isinstance(value, Sequence) and not isinstance(value, str):
        separator = "["
        for item in value:
            pieces.append(separator + inner)
            _write(pieces, item, unquoted, inner)
            separator = ","
        pieces.append(line + "]" if value else "[]")
    else:
        pieces.append(_plain(value))


def _write_key(pieces: list[str], key: JsonKey, unquoted: bool) -> None:
    if isinstance(key, str):
        pieces.append(_plain(key))
    elif isinstance(key, tuple):
        _write(pieces, dict(key), unquoted, "")
    else:
        pieces.append(str(key) if unquoted else f'"{key}"')


def _plain(value: JsonScalar) -> str:
    text = json.dumps(value, ensure_ascii=False, allow_nan=False)
    if isinstance(value, str) and not value.isascii():
        try:
            text.encode()
        except UnicodeEncodeError:  # half of a surrogate pair
            return json.dumps(value)
    return text
