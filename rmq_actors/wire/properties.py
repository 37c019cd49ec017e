"""Message properties as RocketMQ stores them: `name 0x01 value 0x02 name 0x01 value` (MessageDecoder).

Since 4.9.1 no separator follows the last value; both forms are read. The order on disk is that of Java's HashMap:
compare properties as maps, never as bytes.
"""

from __future__ import annotations

from collections.abc import Mapping

from rmq_actors.ports.disk import SECTOR_BYTES
from rmq_actors.wire.java_string import decode_utf8

NAME_VALUE_SEPARATOR = "\x01"
PROPERTY_SEPARATOR = "\x02"

PROPERTY_WAIT_STORE_MSG_OK = "WAIT"

#: Recovery takes a record for torn whose text lacks a sector.
_SECTOR_ZEROS = bytes(SECTOR_BYTES)


class IllegalProperty(ValueError):
    """A property whose name or value holds a separator or is no Unicode text, or whose value means nothing."""


def encode_properties(properties: Mapping[str, str], *, without: str | None = None) -> bytes:
    """Encode as UTF-8, but for the property named `without`.

    Raises `IllegalProperty` for a name or value that would not come back, but for empty values, which Java writes too.
    """
    return _checked(properties, without)[1]


def properties_text(properties: Mapping[str, str]) -> str:
    """What `encode_properties` encodes. Raises as it does."""
    return _checked(properties, None)[0]


def _checked(properties: Mapping[str, str], without: str | None) -> tuple[str, bytes]:
    """Properties as text, and encoded."""
    entries = [f"{name}{NAME_VALUE_SEPARATOR}{value}" for name, value in properties.items() if name != without]
    if not entries:
        return "", b""
    text = PROPERTY_SEPARATOR.join(entries)
    if (
        text.count(NAME_VALUE_SEPARATOR) != len(entries)
        or text.count(PROPERTY_SEPARATOR) != len(entries) - 1
        or text[0] == NAME_VALUE_SEPARATOR
        or PROPERTY_SEPARATOR + NAME_VALUE_SEPARATOR in text
    ):
        raise IllegalProperty(_illegal(properties))
    try:
        data = text.encode()
    except UnicodeEncodeError as error:
        raise IllegalProperty(f"property {_name_at(text, error.start)!r} is no Unicode text: {error}") from error
    check_not_torn(data)
    return text, data


def _name_at(text: str, at: int) -> str:
    """The name of the property that the character at `at` of encoded properties is a part of."""
    begin = text.rfind(PROPERTY_SEPARATOR, 0, at) + 1
    return text[begin:].partition(PROPERTY_SEPARATOR)[0].partition(NAME_VALUE_SEPARATOR)[0]


def check_utf8(data: bytes) -> None:
    """Raise `IllegalProperty` for encoded properties that are not UTF-8: others would read other text out of them."""
    try:
        data.decode()
    except UnicodeDecodeError as error:
        name = _name_at(data.decode("latin-1"), error.start).encode("latin-1")
        raise IllegalProperty(f"property {decode_utf8(name)!r} is not UTF-8: {error}") from error


def check_not_torn(data: bytes) -> None:
    """Raise `IllegalProperty` for encoded properties that would look torn to recovery: no checksum covers them."""
    if 0 not in data:
        return
    if data[0] == 0 or data[-1] == 0:
        what = "the first property begins with" if data[0] == 0 else "the last property ends in"
        raise IllegalProperty(f"{what} 0x00: recovery could not tell it from a torn record")
    if _SECTOR_ZEROS in data:
        what = f"properties hold {SECTOR_BYTES} times 0x00"
        raise IllegalProperty(f"{what}: recovery could not tell them from a torn record")


def _illegal(properties: Mapping[str, str]) -> str:
    for name, value in properties.items():
        if NAME_VALUE_SEPARATOR in name or PROPERTY_SEPARATOR in name or PROPERTY_SEPARATOR in value or not name:
            return f"property {name!r}: a name must not be empty, and neither may hold 0x01 or 0x02"
        if NAME_VALUE_SEPARATOR in value:
            return f"property {name!r}: its value holds 0x01"
    raise AssertionError("these properties are legal")


def decode_properties(data: bytes) -> dict[str, str]:
    """Decode as Java does: an entry without separator, name or value is dropped; of equal names the last counts.

    What is not UTF-8 becomes U+FFFD.
    """
    entries = decode_utf8(data).removesuffix(PROPERTY_SEPARATOR).split(PROPERTY_SEPARATOR)
    pairs = [entry.split(NAME_VALUE_SEPARATOR, 1) for entry in entries]
    try:
        properties = dict(pairs)
        is_whole = "" not in properties.values()
    except ValueError:  # an entry without a separator
        is_whole = False
    if not is_whole:
        properties = dict([pair for pair in pairs if len(pair) == 2 and pair[1]])
    properties.pop("", None)
    return properties
