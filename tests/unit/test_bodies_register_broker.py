"""The compressed form of registrations, and the checksum: what is broken, cut or a bomb is refused in words."""

from __future__ import annotations

import base64
import struct
import tracemalloc
import zlib

import hypothesis.strategies as st
import pytest
from hypothesis import given

from rmq_actors.wire.bodies import decode_body, encode_body, register_broker, unknown_members
from rmq_actors.wire.bodies.register_broker import RegisterBrokerBody, body_crc32
from rmq_actors.wire.bodies.topic_configs import (
    DataVersion,
    TopicConfig,
    TopicConfigSerializeWrapper,
)
from rmq_actors.wire.remoting_command import RemotingCommandError
from tests.worlds.body_values import REGISTRATIONS

#: What RegisterBrokerBody.encode(true) of 4.9.7 gave, and UtilAll.crc32 of it.
BY_JAVA = base64.b64decode(
    "eNpjYGDQqFZKzi/NK0ktUrIytNBRKsnMTS0uScwtAHLNLU2NjExMTY0NTI1qGRgYGIFYUTXINSQoUtXZPT49PyclNU/BUMFIwUwh2NPP3cc1PsTR"
    "HaiIPVopzcpQKRYAoFkXdg=="
)
BY_JAVA_CRC32 = 369330438
#: Both forms of what 5.3.1 gave.
BY_JAVA_5 = base64.b64decode(
    "eNpjYGCwqFZKzi/NK0ktUrIy0FEqLkksSQ1LLSrOzM8DC5Rk5qYCBXMLlKwMzS1NjSxMTE2NzU2NaxkYGBiBWDdEwVDBSMFMIdjTz93HNT7E0V2h"
    "WkkbqKk4MT1Vr6SyIFXJSsnPP8jX0UcJpIkpOhZIMgAAPMIf4w=="
)
JSON_BY_JAVA_5 = (
    b'{"filterServerList":[],"topicConfigSerializeWrapper":{"dataVersion":{"counter":0,"stateVersion":0,"timestamp":'
    b'1795284553753},"mappingDataVersion":{"counter":0,"stateVersion":0,"timestamp":1795284553753},"topicConfigTable":'
    b'{"T":{"attributes":{"+message.type":"NORMAL"},"order":false,"perm":6,"readQueueNums":1,"topicFilterType":'
    b'"SINGLE_TAG","topicName":"T","topicSysFlag":0,"writeQueueNums":2}},"topicQueueMappingDetailMap":{},'
    b'"topicQueueMappingInfoMap":{}}}'
)
TOPIC = b"T 1 1 6 SINGLE_TAG"


def with_length(data: bytes) -> bytes:
    return struct.pack(">i", len(data)) + data


def compressed(
    *,
    version: bytes = b'{"counter":1,"timestamp":2}',
    topics: tuple[bytes, ...] = (),
    count: int | None = None,
    filters: bytes = b"[]",
    rest: bytes = b"",
) -> bytes:
    number = struct.pack(">i", len(topics) if count is None else count)
    return zlib.compress(
        with_length(version) + number + b"".join(map(with_length, topics)) + with_length(filters) + rest
    )


def decode(data: bytes) -> RegisterBrokerBody:
    return RegisterBrokerBody.decode(data, compressed=True)


@given(REGISTRATIONS, st.booleans())
def test_either_form_comes_back(body: RegisterBrokerBody, is_compressed: bool) -> None:
    data = body.encode(compressed=is_compressed)
    assert repr(RegisterBrokerBody.decode(data, compressed=is_compressed)) == repr(body)


def test_the_form_that_is_not_compressed_is_json() -> None:
    body = RegisterBrokerBody(filter_server_list=["f:1"])
    assert body.encode(compressed=False) == encode_body(body)
    assert decode_body(RegisterBrokerBody, body.encode(compressed=False)) == body


def test_what_java_compressed_is_read_and_written() -> None:
    """`order`, which was true, is lost in it."""
    body = decode(BY_JAVA)
    topic = TopicConfig(topic_name="%RETRY%CG_golden", read_queue_nums=1, write_queue_nums=2, perm=6)
    version = DataVersion(counter=18, timestamp=1795224553052)
    wrapper = TopicConfigSerializeWrapper(data_version=version, topic_config_table={topic.topic_name: topic})
    assert body == RegisterBrokerBody(filter_server_list=["f:1"], topic_config_serialize_wrapper=wrapper)
    assert zlib.decompress(body.encode(compressed=True)) == zlib.decompress(BY_JAVA)
    assert body.encode(compressed=True)[:2] == BY_JAVA[:2]  # the level of compression
    assert body_crc32(BY_JAVA) == BY_JAVA_CRC32


def test_topics_go_as_text() -> None:
    topic = TopicConfig(topic_name="%RETRY%g", read_queue_nums=1, write_queue_nums=2, perm=6, order=True)
    assert topic.encode() == "%RETRY%g 1 2 6 SINGLE_TAG"
    assert TopicConfig.decode(topic.encode()) == TopicConfig(
        topic_name="%RETRY%g", read_queue_nums=1, write_queue_nums=2, perm=6
    )


def test_what_5_3_1_registers_is_read() -> None:
    """Attributes stand after a topic, and tables after the filter servers: Java 4.9 cannot read this form."""
    topics = {"T": TopicConfig(topic_name="T", read_queue_nums=1, write_queue_nums=2, perm=6)}
    assert decode(BY_JAVA_5).topic_config_serialize_wrapper.topic_config_table == topics
    assert decode(BY_JAVA_5).topic_config_serialize_wrapper.data_version.state_version == 0
    body = RegisterBrokerBody.decode(JSON_BY_JAVA_5, compressed=False)
    assert body.topic_config_serialize_wrapper.topic_config_table == topics
    assert unknown_members(RegisterBrokerBody, JSON_BY_JAVA_5) == (
        "topicConfigSerializeWrapper.mappingDataVersion",
        "topicConfigSerializeWrapper.topicConfigTable.*.attributes",
        "topicConfigSerializeWrapper.topicQueueMappingDetailMap",
        "topicConfigSerializeWrapper.topicQueueMappingInfoMap",
    )


BROKEN = {
    "RegisterBrokerBody: 0 compressed bytes end too early": b"",
    "RegisterBrokerBody: 2 compressed bytes are broken": b"{}",
    "RegisterBrokerBody.dataVersion: the body ends within its length": zlib.compress(b"\0\0\0"),
    "RegisterBrokerBody.dataVersion has 5 bytes, 2 are left": zlib.compress(b"\0\0\0\5{}"),
    "RegisterBrokerBody.dataVersion has -1 bytes, 2 are left": zlib.compress(b"\xff\xff\xff\xff{}"),
    "DataVersion is a list, no DataVersion": compressed(version=b"[]"),
    "RegisterBrokerBody.topicConfigTable has -1 items, 6 bytes are left": compressed(count=-1),
    "RegisterBrokerBody.topicConfigTable has 2147483647 items, 6 bytes are left": compressed(count=2**31 - 1),
    "RegisterBrokerBody.topicConfigTable has 2 items, 28 bytes are left": compressed(topics=(TOPIC,), count=2),
    "topicConfigTable[0]: 'T 1 1 6' is no 'topic readQueueNums write": compressed(topics=(b"T 1 1 6",), rest=TOPIC),
    "topicConfigTable[0]: 'T  1 6 SINGLE_TAG' is no ": compressed(topics=(b"T  1 6 SINGLE_TAG",)),
    "topicConfigTable[0]: 'T 1_0 1 6 SINGLE_TAG' is no ": compressed(topics=(b"T 1_0 1 6 SINGLE_TAG",)),
    "topicConfigTable[0]: 'T 1 2147483648 6 SINGLE_TAG' is no ": compressed(topics=(b"T 1 2147483648 6 SINGLE_TAG",)),
    "topicConfigTable[0]: 'T 1 1 6 NO_TAG_AT_ALL' is no ": compressed(topics=(b"T 1 1 6 NO_TAG_AT_ALL",)),
    "RegisterBrokerBody.topicConfigTable[0]: byte 0 is no UTF-8": compressed(topics=(b"\xff 1 1 6 SINGLE_TAG",)),
    "RegisterBrokerBody.filterServerList is an object, no list": compressed(filters=b"{}"),
    "RegisterBrokerBody.filterServerList[0] is a list, no text": compressed(filters=b"[[]]"),
    "RegisterBrokerBody.filterServerList: the body is empty": compressed(filters=b""),
}


@pytest.mark.parametrize("error", BROKEN)
def test_a_broken_compressed_body_is_refused_in_words(error: str) -> None:
    with pytest.raises(RemotingCommandError) as refusal:
        decode(BROKEN[error])
    assert error in str(refusal.value)


@given(REGISTRATIONS, st.data())
def test_a_cut_compressed_body_is_refused(body: RegisterBrokerBody, data: st.DataObject) -> None:
    whole = body.encode(compressed=True)
    with pytest.raises(RemotingCommandError, match="RegisterBrokerBody: "):
        decode(whole[: data.draw(st.integers(0, len(whole) - 1))])


@given(REGISTRATIONS, st.data())
def test_a_broken_compressed_body_is_refused(body: RegisterBrokerBody, data: st.DataObject) -> None:
    """Whatever byte is changed: zlib has a checksum."""
    whole = bytearray(body.encode(compressed=True))
    whole[data.draw(st.integers(0, len(whole) - 1))] ^= data.draw(st.integers(1, 255))
    try:
        back = decode(bytes(whole))
    except RemotingCommandError:
        return
    assert repr(back) == repr(body)


def test_a_bomb_is_not_blown_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(register_broker, "INFLATED_MAX_BYTES", 1000)
    version = b'{"counter":1,"timestamp":2}'
    fits = version.ljust(1000 - 4 - 4 - 4 - 2)
    assert decode(compressed(version=fits)).topic_config_serialize_wrapper.data_version == DataVersion(
        counter=1, timestamp=2
    )
    for size in (991, 50_000_000):
        data = compressed(version=version.ljust(size))
        tracemalloc.start()
        error = f"RegisterBrokerBody: {len(data)} compressed bytes hold more than 1000 bytes"
        with pytest.raises(RemotingCommandError, match=error):
            decode(data)
        _, peak_bytes = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert peak_bytes < 1_000_000


def test_the_number_of_topics_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    """A few kilobytes inflate to millions of them, and each takes time."""
    monkeypatch.setattr(register_broker, "TOPICS_MAX", 3)
    assert list(decode(compressed(topics=(TOPIC,) * 3)).topic_config_serialize_wrapper.topic_config_table) == ["T"]
    with pytest.raises(RemotingCommandError, match="topicConfigTable has 4 items, at most 3 are read"):
        decode(compressed(topics=(TOPIC,) * 4))


def test_the_checksum_is_positive() -> None:
    """0 stands for a body that is not checked."""
    assert body_crc32(b"") == 0
    assert body_crc32(b"123456789") == 0xCBF43926 & 0x7FFFFFFF
