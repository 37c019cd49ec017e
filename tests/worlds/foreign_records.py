"""Records that no encoder here makes, and a RocketMQ master may: any bytes as topic and properties, of any length."""

from __future__ import annotations

import struct
from typing import Any

import attrs

from rmq_actors.wire.java_string import decode_utf8
from rmq_actors.wire.record import EncodedMessage, Message, encode_message

_TOTAL_SIZE = struct.Struct(">i")
_PROPERTIES_LENGTH = struct.Struct(">H")
#: What stands after the body of a record of topic "T" without properties.
_ENDING = b"\1T\0\0"

#: Properties that are too long for RocketMQ's readers: what its master makes of a batch with long ones.
LONG_PROPERTIES = b"TAGS\1a\2KEYS\1long\2X\1" + b"x" * 33_000
#: Tags and keys that are not UTF-8, as Java reads them: U+FFFD in place of each malformed sequence.
NO_UTF8_PROPERTIES = b"TAGS\1\xff\xc3\2KEYS\1k\xed\xa0\x80x k2\2UNIQ_KEY\1u\xe2\x82"
NO_UTF8_TAGS, NO_UTF8_KEYS, NO_UTF8_UNIQ_KEY = "\ufffd\ufffd", ("k\ufffdx", "k2"), "u\ufffd"


def encode_foreign(topic: bytes, properties: bytes, body: bytes = b"", **fields: Any) -> EncodedMessage:
    """A record of these bytes; `fields` are those of a `Message`."""
    encoded = encode_message(Message("T", body, **fields))
    data = encoded.data
    assert data.endswith(_ENDING)
    del data[-len(_ENDING) :]
    data += bytes((len(topic),)) + topic + _PROPERTIES_LENGTH.pack(len(properties)) + properties
    _TOTAL_SIZE.pack_into(data, 0, len(data))
    return attrs.evolve(encoded, topic_queue=(decode_utf8(topic), encoded.topic_queue[1]))
