"""Typed headers (CommandCustomHeader) and the `ext_fields` that carry them: text to values and back."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TypeVar

import msgspec

from rmq_actors.wire.java_numbers import INT32, INT64, Int32
from rmq_actors.wire.remoting_command import RemotingCommand, RemotingCommandError


class CommandHeader(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    """What a request or a response says beside its code and body (CommandCustomHeader).

    A subclass has the name of RocketMQ's class and its fields, those first that may not be absent. `None` stands for
    Java's null, which is not written. Other names on the wire are none of a header's business: `bname`, which every
    client from 4.9.5 on sends, stays in `ext_fields`.
    """


Header = TypeVar("Header", bound=CommandHeader)

_INTEGER = re.compile(r"[+-]?\d+")
_SHOWN_CHARS = 80


def decode_header(header_type: type[Header], command: RemotingCommand) -> Header:
    """The header that `command` carries. Raises `RemotingCommandError` naming the class, the field and its text.

    The good path is one call into C. It takes more than Java: a whole number in any notation of JSON (`5.0`, `1e3`),
    `1` and `0` as booleans, `null` for a number that may be absent. Each means one thing only, and whoever sends it
    could have sent that thing plainly; so nothing is spent on refusing them. What it does not take is read as Java
    reads it (`+5`, `007`, any other text as false), or refused.
    """
    try:
        return msgspec.convert(command.ext_fields, header_type, strict=False)
    except msgspec.ValidationError:
        return _decode_as_java(header_type, command.ext_fields or {})


def encode_header(header: CommandHeader) -> dict[str, str]:
    """The `ext_fields` of a header: text as Java's `toString` writes it."""
    ext_fields: dict[str, str] = {}
    for name, value in zip(header.__struct_encode_fields__, msgspec.structs.astuple(header), strict=True):
        if value is None:
            continue
        if value is True or value is False:
            ext_fields[name] = "true" if value else "false"
        else:
            ext_fields[name] = str(value)
    return ext_fields


def _decode_as_java(header_type: type[Header], ext_fields: Mapping[str, str]) -> Header:
    """By Integer.parseInt, Long.parseLong and Boolean.parseBoolean, one field after the other."""
    values: dict[str, str | int | bool] = {}
    for field in msgspec.structs.fields(header_type):
        text = ext_fields.get(field.encode_name)
        where = f"{header_type.__name__}.{field.encode_name}"
        if text is not None:
            values[field.encode_name] = _parse(text, field.type, where)
        elif field.required:
            raise RemotingCommandError(f"{where} is missing")
    try:
        return msgspec.convert(values, header_type)
    except msgspec.ValidationError as error:  # what a header says of itself: __post_init__
        raise RemotingCommandError(f"{header_type.__name__}: {error}") from error


def _parse(text: str, field_type: object, where: str) -> str | int | bool:
    if field_type in (str, str | None):
        return text
    if field_type in (bool, bool | None):
        return text.lower() == "true"
    is_int32 = field_type in (Int32, Int32 | None)
    shown = repr(text[:_SHOWN_CHARS])
    if not _INTEGER.fullmatch(text):
        raise RemotingCommandError(f"{where} is no number: {shown}")
    # More digits than Python converts are more than 64 bits, but for leading zeros.
    number = int(text) if len(text) <= _SHOWN_CHARS else None
    if number is None or number not in (INT32 if is_int32 else INT64):
        raise RemotingCommandError(f"{where} is beyond {32 if is_int32 else 64} bits: {shown}")
    return number
