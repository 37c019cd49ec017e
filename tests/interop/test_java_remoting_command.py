"""Frames beside Java's own RemotingCommand, which reads what is written here and writes what is read here."""

from __future__ import annotations

import struct
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rmq_actors.wire.remoting_command import (
    LanguageCode,
    RemotingCommand,
    SerializeType,
    decode_command,
    encode_command,
)
from tests.interop.java_gateway import JavaGateway

pytestmark = [pytest.mark.interop, pytest.mark.timeout(600)]

#: Java's strings are UTF-16: it has no lone surrogates to write as UTF-8.
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=40)
#: What both write alike in JSON. Java escapes some more, and has capitals in the numbers of others.
PLAIN_TEXT = st.text(
    st.characters(
        exclude_categories=["Cs"],
        exclude_characters=[*map(chr, range(0x0B, 0x20)), *map(chr, range(0x7F, 0xA0)), "\u2028", "\u2029"],
    ),
    max_size=40,
)


def commands(text: st.SearchStrategy[str]) -> st.SearchStrategy[RemotingCommand]:
    # ROCKETMQ has 16 bits for the code; and it writes no empty remark, and no fields where there are none.
    return st.builds(
        RemotingCommand,
        code=st.integers(-(2**15), 2**15 - 1),
        ext_fields=st.none() | st.dictionaries(text.filter(bool), text, min_size=1, max_size=5),
        flag=st.integers(0, 3),
        language=st.sampled_from(list(LanguageCode.__members__)),
        opaque=st.integers(-(2**31), 2**31 - 1),
        remark=st.none() | text.filter(bool),
        version=st.integers(0, 2**15 - 1),
        body=st.binary(max_size=40),
        serialize_type=st.sampled_from(SerializeType),
    )


def read_by_java(gateway: JavaGateway, frame: bytes) -> RemotingCommand:
    java = gateway.jvm.org.apache.rocketmq.remoting.protocol.RemotingCommand.decode(bytearray(frame[4:]))
    fields = java.getExtFields()
    return RemotingCommand(
        java.getCode(),
        None if fields is None else {str(key): fields[key] or "" for key in fields},
        java.getFlag(),
        java.getLanguage().name(),
        java.getOpaque(),
        java.getRemark(),
        java.getVersion(),
        bytes(java.getBody() or b""),
        SerializeType[java.getSerializeTypeCurrentRPC().name()],
    )


def written_by_java(gateway: JavaGateway, command: RemotingCommand) -> bytes:
    protocol: Any = gateway.jvm.org.apache.rocketmq.remoting.protocol
    java = protocol.RemotingCommand.createRequestCommand(command.code, None)
    java.setExtFields(command.ext_fields)
    java.setFlag(command.flag)
    java.setLanguage(protocol.LanguageCode.valueOf(command.language))
    java.setOpaque(command.opaque)
    java.setRemark(command.remark)
    java.setVersion(command.version)
    java.setBody(bytearray(command.body))
    java.setSerializeTypeCurrentRPC(protocol.SerializeType.valueOf(command.serialize_type.name))
    return bytes(java.encode().array())


@settings(max_examples=60)
@given(commands(TEXT))
def test_java_reads_what_is_written_here(java_gateway: JavaGateway, command: RemotingCommand) -> None:
    assert read_by_java(java_gateway, encode_command(command)) == command


@settings(max_examples=60)
@given(commands(TEXT))
def test_what_java_writes_is_read_here(java_gateway: JavaGateway, command: RemotingCommand) -> None:
    assert decode_command(written_by_java(java_gateway, command)[4:]) == command


@settings(max_examples=60)
@given(commands(PLAIN_TEXT))
def test_what_java_writes_is_written_again_byte_for_byte(java_gateway: JavaGateway, command: RemotingCommand) -> None:
    # Java's fields are in the order of its hash map; the order read is the order written.
    frame = written_by_java(java_gateway, command)
    assert encode_command(decode_command(frame[4:])) == frame


@settings(max_examples=60)
@given(st.text(st.characters(max_codepoint=0x1F), min_size=1, max_size=8))
def test_control_characters_that_are_not_escaped_are_read_as_java_reads_them(
    java_gateway: JavaGateway, text: str
) -> None:
    header = f'{{"code":1,"extFields":{{"a":"{text}"}}}}'.encode()
    frame = struct.pack(">ii", 4 + len(header), len(header)) + header
    assert decode_command(frame[4:]).ext_fields == read_by_java(java_gateway, frame).ext_fields == {"a": text}
