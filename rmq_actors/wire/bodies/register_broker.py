"""What a broker registers with a name server (RegisterBrokerBody), as JSON or compressed, and the checksum of it.

    i32 length | DataVersion as JSON | i32 topics | topics x (i32 length | TopicConfig as text) | i32 length | JSON

is the compressed form before zlib; the last JSON is the list of filter servers.
"""

from __future__ import annotations

import struct
import zlib

from msgspec import field

from rmq_actors.wire.bodies.decoding import decode_body, decode_names
from rmq_actors.wire.bodies.encoding import encode_body
from rmq_actors.wire.bodies.remoting_serializable import RemotingSerializable
from rmq_actors.wire.bodies.topic_configs import DataVersion, TopicConfig, TopicConfigSerializeWrapper
from rmq_actors.wire.remoting_command import RemotingCommandError

#: What a compressed body may grow to.
INFLATED_MAX_BYTES = 64 * 1024 * 1024
#: The most topics in it: as many as `decoding.VALUES_MAX` allows in JSON. All the same one, millions are few kilobytes.
TOPICS_MAX = 250_000

_I32 = struct.Struct(">i")
#: The length of a topic, and the least text: a topic of one character.
_TOPIC_MIN_BYTES = 4 + len("T 1 1 6 MULTI_TAG")


def body_crc32(body: bytes) -> int:
    """What `bodyCrc32` holds (UtilAll.crc32). 0 in a request: the body is not checked."""
    return zlib.crc32(body) & 0x7FFFFFFF


class RegisterBrokerBody(RemotingSerializable, frozen=True, kw_only=True):
    """The topics of a broker, and its filter servers."""

    filter_server_list: list[str] = field(default_factory=list)
    topic_config_serialize_wrapper: TopicConfigSerializeWrapper = field(default_factory=TopicConfigSerializeWrapper)

    def encode(self, *, compressed: bool) -> bytes:
        """The body of REGISTER_BROKER. Raises `ValueError` for text with half a surrogate pair."""
        if not compressed:
            return encode_body(self)
        wrapper = self.topic_config_serialize_wrapper
        topics = wrapper.topic_config_table.values()
        pieces = [_with_length(encode_body(wrapper.data_version)), _I32.pack(len(topics))]
        pieces.extend(_with_length(topic.encode().encode()) for topic in topics)
        pieces.append(_with_length(encode_body(self.filter_server_list)))
        return zlib.compress(b"".join(pieces), 9)

    @staticmethod
    def decode(data: bytes, *, compressed: bool) -> RegisterBrokerBody:
        """Read either form. What 5.x writes after the filter servers is dropped. Raises `RemotingCommandError`."""
        if not compressed:
            return decode_body(RegisterBrokerBody, data)
        fields = _Fields(_inflate(data))
        data_version = decode_body(DataVersion, fields.take("dataVersion"))
        count = fields.take_count("topicConfigTable", _TOPIC_MIN_BYTES)
        topics = {}
        for index in range(count):
            where = f"topicConfigTable[{index}]"
            topic = _topic(fields.take(where), where)
            topics[topic.topic_name] = topic
        filter_servers = decode_names(fields.take("filterServerList"), "RegisterBrokerBody.filterServerList")
        wrapper = TopicConfigSerializeWrapper(data_version=data_version, topic_config_table=topics)
        return RegisterBrokerBody(filter_server_list=filter_servers, topic_config_serialize_wrapper=wrapper)


def _with_length(data: bytes) -> bytes:
    return _I32.pack(len(data)) + data


def _topic(data: bytes, where: str) -> TopicConfig:
    try:
        return TopicConfig.decode(data.decode())
    except UnicodeDecodeError as error:
        raise RemotingCommandError(f"RegisterBrokerBody.{where}: byte {error.start} is no UTF-8") from error
    except RemotingCommandError as error:
        raise RemotingCommandError(f"RegisterBrokerBody.{where}: {error}") from error


def _inflate(data: bytes) -> bytes:
    inflater = zlib.decompressobj()
    try:
        inflated = inflater.decompress(data, INFLATED_MAX_BYTES + 1)
    except zlib.error as error:
        raise RemotingCommandError(f"RegisterBrokerBody: {len(data)} compressed bytes are broken: {error}") from error
    if len(inflated) > INFLATED_MAX_BYTES:
        raise RemotingCommandError(
            f"RegisterBrokerBody: {len(data)} compressed bytes hold more than {INFLATED_MAX_BYTES} bytes"
        )
    if not inflater.eof:
        raise RemotingCommandError(f"RegisterBrokerBody: {len(data)} compressed bytes end too early")
    return inflated


class _Fields:
    """The fields of the compressed form, one after the other."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def _take_int(self, what: str) -> int:
        if len(self._data) - self._at < 4:
            raise RemotingCommandError(f"RegisterBrokerBody.{what}: the body ends within its length")
        (number,) = _I32.unpack_from(self._data, self._at)
        self._at += 4
        return int(number)

    def take(self, what: str) -> bytes:
        """The bytes of the next field."""
        length = self._take_int(what)
        end = self._at + length
        if length < 0 or end > len(self._data):
            raise RemotingCommandError(
                f"RegisterBrokerBody.{what} has {length} bytes, {len(self._data) - self._at} are left"
            )
        field = self._data[self._at : end]
        self._at = end
        return field

    def take_count(self, what: str, item_min_bytes: int) -> int:
        """How many items follow, each of that many bytes or more."""
        count = self._take_int(what)
        left = len(self._data) - self._at
        if count < 0 or count * item_min_bytes > left:
            raise RemotingCommandError(f"RegisterBrokerBody.{what} has {count} items, {left} bytes are left")
        if count > TOPICS_MAX:
            raise RemotingCommandError(f"RegisterBrokerBody.{what} has {count} items, at most {TOPICS_MAX} are read")
        return count
