"""Headers beside Java's own classes: the same fields, the same numbers and booleans, the same odd JSON."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rmq_actors.wire.headers import CommandHeader, decode_header, encode_header
from rmq_actors.wire.headers.clients import GetConsumeStatsInBrokerHeader
from rmq_actors.wire.headers.offsets import GetMaxOffsetRequestHeader, GetMaxOffsetResponseHeader
from rmq_actors.wire.remoting_command import RemotingCommand, decode_command
from tests.interop.java_gateway import JavaGateway
from tests.worlds.header_values import JAVA_NAMES, WHOLE, header_values

pytestmark = [pytest.mark.interop, pytest.mark.timeout(600)]

PACKAGE = "org.apache.rocketmq.common.protocol.header"


def java_class(gateway: JavaGateway, name: str) -> Any:
    """The class of that name, in one of the packages that hold headers."""
    loader = gateway.jvm.java.lang.Thread.currentThread().getContextClassLoader()
    for package in (PACKAGE, f"{PACKAGE}.namesrv", f"{PACKAGE}.filtersrv"):
        if loader.getResource(f"{package}.{name}".replace(".", "/") + ".class") is not None:
            return gateway.jvm.java.lang.Class.forName(f"{package}.{name}")
    raise AssertionError(name)


def decoded_by_java(gateway: JavaGateway, name: str, ext_fields: dict[str, str]) -> Any:
    command = gateway.jvm.org.apache.rocketmq.remoting.protocol.RemotingCommand.createRequestCommand(0, None)
    for key, text in ext_fields.items():
        command.addExtField(key, text)
    return command.decodeCommandCustomHeader(java_class(gateway, name))


def fields_of(java_command: Any) -> dict[str, str]:
    fields = java_command.getExtFields() or {}
    return {str(key): fields[key] for key in fields if fields[key] is not None}


@pytest.mark.parametrize("name", JAVA_NAMES)
@settings(max_examples=3)
@given(data=st.data())
def test_java_reads_each_header_and_writes_the_same(java_gateway: JavaGateway, name: str, data: st.DataObject) -> None:
    header: CommandHeader = data.draw(header_values(name))
    ext_fields = encode_header(header)
    java_header = decoded_by_java(java_gateway, name, ext_fields)
    protocol = java_gateway.jvm.org.apache.rocketmq.remoting.protocol
    java_command = protocol.RemotingCommand.createRequestCommand(0, java_header)
    java_command.makeCustomHeaderToNet()
    assert fields_of(java_command) == ext_fields


@settings(max_examples=60)
@given(st.one_of(st.integers(-(2**65), 2**65).map(str), st.text(st.sampled_from("019+-.eE_ \u0665\u00b2"), max_size=6)))
def test_numbers_are_read_as_java_reads_them(java_gateway: JavaGateway, text: str) -> None:
    """But for whole numbers otherwise written, at which Java stumbles."""
    java = decoded_by_java(java_gateway, "GetMaxOffsetRequestHeader", {"topic": "T", "queueId": text}).getQueueId()
    java_long = decoded_by_java(java_gateway, "GetMaxOffsetResponseHeader", {"offset": text}).getOffset()
    for header_type, field, expected in (
        (GetMaxOffsetRequestHeader, "queue_id", java),
        (GetMaxOffsetResponseHeader, "offset", java_long),
    ):
        command = RemotingCommand(0, {"topic": "T", "queueId": text, "offset": text})
        if expected is not None:
            assert getattr(decode_header(header_type, command), field) == expected
        elif not WHOLE.fullmatch(text):
            with pytest.raises(ValueError, match=header_type.__name__):
                decode_header(header_type, command)


@pytest.mark.parametrize("text", ["true", "TRUE", "tRuE", "false", "0", "", "yes", " true", "true ", "null", "t"])
def test_booleans_are_read_as_java_reads_them(java_gateway: JavaGateway, text: str) -> None:
    java = decoded_by_java(java_gateway, "GetConsumeStatsInBrokerHeader", {"isOrder": text})
    assert (
        decode_header(GetConsumeStatsInBrokerHeader, RemotingCommand(0, {"isOrder": text})).is_order == java.isOrder()
    )


@pytest.mark.parametrize(
    "header",
    [
        b'{"code":34,"language":"GO","version":317,"opaque":1,"flag":0,"remark":"","extFields":null}',
        b'{"code":11,"extFields":{"AccessKey":"","queueId":3,"topic":"T"},"flag":0,"language":"CPP","version":252}\n',
        b'{"code":"310","opaque":"-5"}',
        b'{"code":1,"language":9}',
        b'{"code":1,"remark":5,"flag":null,"version":null,"opaque":null}',
        b'{"code":1,"extFields":{"a":1,"b":true,"c":null,"d":2.5,"e":1.0,"f":99999999999999999999}}',
        b'{"code":1,"code":2,"extFields":{"a":"1","a":"2"}}',
        b'{"code":1,"new":{"deep":[1,{}]}}',
        b'{"code":1,"extFields":{"i":"\xc4\xe3\xba\xc3","j":"\xf0\x9f\x98"},"remark":"\xff\xff"}',
        b'{"code":1,"extFields":{"a":"\\ud83d\\ude00"},"remark":"a\\ud800b\\udc00"}',
        json.dumps({"code": 1, "extFields": {"\x01\x02\u2028": "\x7f\u00e9"}}, ensure_ascii=False).encode(),
    ],
)
def test_odd_headers_are_read_as_java_reads_them(java_gateway: JavaGateway, header: bytes) -> None:
    frame = len(header).to_bytes(4, "big") + header
    java = java_gateway.jvm.org.apache.rocketmq.remoting.protocol.RemotingCommand.decode(bytearray(frame))
    ours = decode_command(frame)
    assert (ours.code, ours.flag, ours.version, ours.remark) == (
        java.getCode(),
        java.getFlag(),
        java.getVersion(),
        java.getRemark(),
    )
    assert (ours.language, ours.ext_fields or {}) == (java.getLanguage().name(), fields_of(java))
