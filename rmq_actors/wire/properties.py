"""Message properties as RocketMQ stores them: `name 0x01 value 0x02 name 0x01 value` (MessageDecoder).

Since 4.9.1 no separator follows the last value; both forms are read. The order on disk is that of Java's HashMap:
compare properties as maps, never as bytes.
"""

from __future__ import annotations

from collections.abc import Mapping

NAME_VALUE_SEPARATOR = "\x01"
PROPERTY_SEPARATOR = "\x02"

PROPERTY_WAIT_STORE_MSG_OK = "WAIT"


class IllegalProperty(ValueError):
    """A property whose name or value holds a separator, or is no Unicode text."""


def encode_properties(properties: Mapping[str, str]) -> bytes:
    """Encode as UTF-8. Raises `IllegalProperty` for a name or value that would not come back."""
    parts = []
    for name, value in properties.items():
        if NAME_VALUE_SEPARATOR in name or PROPERTY_SEPARATOR in name or PROPERTY_SEPARATOR in value or not name:
            raise IllegalProperty(f"property {name!r}: a name must not be empty, and neither may hold 0x01 or 0x02")
        if NAME_VALUE_SEPARATOR in value:
            raise IllegalProperty(f"property {name!r}: its value holds 0x01")
        parts.append(f"{name}{NAME_VALUE_SEPARATOR}{value}")
    text = PROPERTY_SEPARATOR.join(parts)
    if text.endswith("\0"):
        raise IllegalProperty("the last property ends in 0x00: recovery could not tell it from a torn record")
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise IllegalProperty(f"properties that are no Unicode text: {error}") from error


def decode_properties(data: bytes) -> dict[str, str]:
    """Decode as Java does: an entry without a separator, or without a name, is dropped; of equal names the last counts.

    Raises `UnicodeDecodeError` if `data` is not UTF-8.
    """
    properties = {}
    for entry in data.decode().split(PROPERTY_SEPARATOR):
        name, separator, value = entry.partition(NAME_VALUE_SEPARATOR)
        if separator and name:
            properties[name] = value
    return properties
