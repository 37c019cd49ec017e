"""One frame: what is written is read, in both encodings; what others write too; what is broken is refused by name."""

from __future__ import annotations

import json
import struct
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmq_actors.wire.remoting_command import (
    FRAME_MAX_LENGTH_BYTES,
    HEADER_MAX_LENGTH_BYTES,
    ONEWAY_FLAG,
    RESPONSE_FLAG,
    LanguageCode,
    RemotingCommand,
    RemotingCommandError,
    SerializeType,
    decode_command,
    encode_command,
)

INT16 = st.integers(-(2**15), 2**15 - 1)
INT32 = st.integers(-(2**31), 2**31 - 1)
#: Any text that has a form in UTF-8.
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=40)
FIELDS = st.none() | st.dictionaries(TEXT, TEXT, max_size=5)

json_commands = st.builds(
    RemotingCommand,
    code=INT32,
    ext_fields=FIELDS,
    flag=INT32,
    language=TEXT,
    opaque=INT32,
    remark=st.none() | TEXT,
    version=INT32,
    body=st.binary(max_size=40),
)
rocketmq_commands = st.builds(
    RemotingCommand,
    code=INT16,
    ext_fields=FIELDS,
    flag=INT32,
    language=st.sampled_from([code.name for code in LanguageCode]),
    opaque=INT32,
    remark=st.none() | TEXT,
    version=INT16,
    body=st.binary(max_size=40),
    serialize_type=st.just(SerializeType.ROCKETMQ),
)


def frame_of(header: bytes, body: bytes = b"", serialize_type: int = 0) -> bytes:
    """What follows a frame's length field."""
    return (serialize_type << 24 | len(header)).to_bytes(4, "big") + header + body


def decode_json(header: str | dict[str, Any]) -> RemotingCommand:
    return decode_command(frame_of((header if isinstance(header, str) else json.dumps(header)).encode()))


# --- JSON


@given(json_commands)
def test_json_is_read_as_it_was_written(command: RemotingCommand) -> None:
    frame = encode_command(command)
    assert int.from_bytes(frame[:4], "big") == len(frame) - 4
    assert decode_command(frame[4:]) == command


@given(json_commands)
def test_json_is_json(command: RemotingCommand) -> None:
    frame = encode_command(command)
    header = json.loads(frame[8 : len(frame) - len(command.body)])
    assert list(header) == sorted(header)
    assert header["serializeTypeCurrentRPC"] == "JSON"
    assert header.get("extFields") == command.ext_fields
    assert header.get("remark") == command.remark
    numbers = (command.code, command.flag, command.language, command.opaque, command.version)
    assert (header["code"], header["flag"], header["language"], header["opaque"], header["version"]) == numbers


def test_json_is_what_fastjson_writes() -> None:
    command = RemotingCommand(105, {"topic": "T\x01\u00e9"}, 0, "JAVA", 7, None, 407, b"body")
    header = (
        '{"code":105,"extFields":{"topic":"T\\u0001\u00e9"},"flag":0,"language":"JAVA","opaque":7,'
        '"serializeTypeCurrentRPC":"JSON","version":407}'
    )
    frame = frame_of(header.encode(), b"body")
    assert encode_command(command) == len(frame).to_bytes(4, "big") + frame
    assert b"extFields" not in encode_command(RemotingCommand(34))
    assert b'"extFields":{}' in encode_command(RemotingCommand(34, {}))


GO = '{"code":34,"language":"GO","version":317,"opaque":1,"flag":0,"remark":"","extFields":null}'
CPP = (
    '{"code":11,"extFields":{"AccessKey":"","queueId":3,"queueOffset":"12","topic":"T"},"flag":0,"language":"CPP",'
    '"opaque":9,"remark":"","version":252}\n'
)


@pytest.mark.parametrize(
    ("header", "command"),
    [
        (GO, RemotingCommand(34, None, 0, "GO", 1, "", 317)),
        (
            CPP,
            RemotingCommand(
                11, {"AccessKey": "", "queueId": "3", "queueOffset": "12", "topic": "T"}, 0, "CPP", 9, "", 252
            ),
        ),
        ('{"code":34}', RemotingCommand(34, None, 0, "JAVA", 0, None, 0)),
    ],
)
def test_what_clients_of_other_languages_write_is_read(header: str, command: RemotingCommand) -> None:
    assert decode_json(header) == command


@pytest.mark.parametrize(
    ("header", "attribute", "value"),
    [
        ('{"code":"310","opaque":"-5"}', "code", 310),
        ('{"code":1,"opaque":"-5"}', "opaque", -5),
        ('{"code":1,"opaque":null,"flag":null,"version":null,"language":null}', "opaque", 0),
        ('{"code":1,"language":null}', "language", "JAVA"),
        ('{"code":1,"language":9}', "language", "GO"),
        ('{"code":1,"language":99}', "language", "OTHER"),
        ('{"code":1,"language":"KOTLIN"}', "language", "KOTLIN"),
        ('{"code":1,"remark":null}', "remark", None),
        ('{"code":1,"remark":5}', "remark", "5"),
        ('{"code":1,"extFields":null}', "ext_fields", None),
        ('{"code":1,"extFields":{"a":1,"b":true,"c":null,"d":2.5,"e":false,"f":"x"}}', "ext_fields",
         {"a": "1", "b": "true", "d": "2.5", "e": "false", "f": "x"}),
        ('{"code":1,"extFields":{1:"x"}}', "ext_fields", {"1": "x"}),
        ('{"code":1,"extFields":{"i":"a\x01b\x02\n"}}', "ext_fields", {"i": "a\x01b\x02\n"}),
        ('{"code":1,"extFields":{"a":99999999999999999999}}', "ext_fields", {"a": "99999999999999999999"}),
        ('{"code":1,"code":2}', "code", 2),
        ('{"code":1,"extFields":{"a":"1","a":"2"}}', "ext_fields", {"a": "2"}),
        ('{"code":1,"remark":"a\\ud800b"}', "remark", "a?b"),
        ('{"code":1,"extFields":{"\\udc00":"\\ud83d\\ude00"}}', "ext_fields", {"?": "\U0001f600"}),
        ('{"code":1,"new":{"deep":[1,{}]},"newer":2}', "unknown_fields", ("new", "newer")),
        ('{"code":1,"' + "n" * 100 + '":2}', "unknown_fields", ("n" * 80,)),
        ('{"code":1,"extFields":{"a":"b"},"new":1}', "ext_fields", {"a": "b"}),
        (' { "code" : 1 } ', "code", 1),
        ('{"code":1,"new":"' + "x" * 65_517 + '"}', "unknown_fields", ("new",)),
    ],
)  # fmt: skip
def test_what_fastjson_reads_is_read(header: str, attribute: str, value: object) -> None:
    assert getattr(decode_json(header), attribute) == value


def test_bytes_that_are_no_utf_8_are_read_as_java_reads_them() -> None:
    """A client that writes another encoding can still send; its text is as bad here as there."""
    header = b'{"code":310,"extFields":{"i":"\xc4\xe3\xba\xc3"},"language":"CPP"}'
    text = b"\xc4\xe3\xba\xc3".decode(errors="replace")
    command = decode_command(frame_of(header))
    assert (command.code, command.language, command.ext_fields) == (310, "CPP", {"i": text})
    assert "\ufffd" in text
    fields = b"\0\1i\0\0\0\4\xc4\xe3\xba\xc3\0\1j\0\0\0\1x"
    assert decode_command(frame_of(rocketmq_header(fields=fields), b"", 1)).ext_fields == {"i": text, "j": "x"}
    remark = b"\xff" * 3
    assert decode_command(frame_of(rocketmq_header(remark=remark), b"", 1)).remark == "\ufffd" * 3


REFUSED_JSON = [
    ("", "the header is no JSON"),
    ("{", "the header is no JSON"),
    ("null", "the header is not a JSON object"),
    ("[1]", "the header is not a JSON object"),
    ("310", "the header is not a JSON object"),
    ("{}", "the header has no code"),
    ('{"code":null}', "the header has no code"),
    ('{"code":1}x', "goes on after its value"),
    ('{"code":true}', "code in the header is no 32-bit number: True"),
    ('{"code":1.0}', r"code in the header is no 32-bit number: 1\.0"),
    ('{"code":"1_0"}', "code in the header is no 32-bit number: '1_0'"),
    ('{"code":" 1"}', "code in the header is no 32-bit number: ' 1'"),
    ('{"code":""}', "code in the header is no 32-bit number: ''"),
    ('{"code":[1]}', r"code in the header is no 32-bit number: \[1\]"),
    ('{"code":2147483648}', "code in the header is no 32-bit number: 2147483648"),
    ('{"code":1,"flag":-2147483649}', "flag in the header is no 32-bit number: -2147483649"),
    ('{"code":1,"opaque":"2147483648"}', "opaque in the header is no 32-bit number: '2147483648'"),
    ('{"code":1,"version":1e9}', "version in the header is no 32-bit number"),
    ('{"code":' + "9" * 4000 + "}", "code in the header is no 32-bit number: 999"),
    ('{"code":' + "9" * 5000 + "}", "the header is no JSON"),
    ('{"code":1,"language":{}}', "language in the header is no plain value"),
    ('{"code":1,"remark":["x"]}', "remark in the header is no plain value"),
    ('{"code":1,"extFields":"x"}', "extFields in the header is no object"),
    ('{"code":1,"extFields":[1]}', "extFields in the header is no object"),
    ('{"code":1,"extFields":{"a":{"b":"c"}}}', r"extFields\.a in the header is no plain value"),
    ('{"code":1,"extFields":{{"b":1}:"c"}}', "extFields in the header has an object as a key"),
    ('{"code":1,"extFields":{"' + "k" * 5000 + '":[]}}', r"extFields\.k{80} in the header is no plain value"),
    ('{"code":1,"new":' + "[" * 10_000, "more than 64 values inside of one another"),
    ('{"code":1,"extFields":{' + ",".join(f'"{n}":"x"' for n in range(1025)) + "}}", "extFields has more than 1024"),
    ('{"code":1,"extFields":{' + ",".join(f'"{n}":1' for n in range(1025)) + "}}", "extFields has more than 1024"),
    ('{"code":1,"extFields":{' + ",".join(f"{n}:1" for n in range(1025)) + "}}", "extFields has more than 1024"),
    ("{" + ",".join(f'"{n}":1' for n in range(1025)) + ',"code":1}', "the header has more than 1024 unknown fields"),
    ('{"code":1,"new":"' + "x" * 65_518 + '"}', "a header of 65537 bytes that is not as Java writes it: at most 65536"),
]  # fmt: skip


@pytest.mark.parametrize(("header", "message"), REFUSED_JSON, ids=range(len(REFUSED_JSON)))
def test_json_that_says_nothing_is_refused_by_name(header: str, message: str) -> None:
    with pytest.raises(RemotingCommandError, match=message) as error:
        decode_json(header)
    assert len(str(error.value)) < 300


# --- ROCKETMQ


def rocketmq_header(remark: bytes = b"", fields: bytes = b"", **lengths: int) -> bytes:
    return (
        struct.pack(">hBhii", 310, 9, 407, 77, 2)
        + struct.pack(">i", lengths.get("remark_length", len(remark)))
        + remark
        + struct.pack(">i", lengths.get("fields_length", len(fields)))
        + fields
    )


def as_rocketmq_serializable_writes(command: RemotingCommand) -> bytes:
    """RocketMQSerializable.rocketMQProtocolEncode, member by member."""
    header = command.code.to_bytes(2, "big", signed=True)
    header += LanguageCode[command.language].to_bytes(1, "big")
    header += command.version.to_bytes(2, "big", signed=True)
    header += command.opaque.to_bytes(4, "big", signed=True)
    header += command.flag.to_bytes(4, "big", signed=True)
    remark = (command.remark or "").encode()
    header += len(remark).to_bytes(4, "big") + remark
    fields = b""
    for key, value in (command.ext_fields or {}).items():
        fields += len(key.encode()).to_bytes(2, "big") + key.encode()
        fields += len(value.encode()).to_bytes(4, "big") + value.encode()
    return header + len(fields).to_bytes(4, "big") + fields


@given(rocketmq_commands)
def test_rocketmq_is_written_as_java_writes_it_and_read_again(command: RemotingCommand) -> None:
    frame = frame_of(as_rocketmq_serializable_writes(command), command.body, 1)
    assert encode_command(command) == len(frame).to_bytes(4, "big") + frame
    # No remark and an empty one are the same bytes, and so are no fields and none.
    read = msgspec.structs.replace(command, remark=command.remark or None, ext_fields=command.ext_fields or None)
    assert decode_command(frame) == read


@given(rocketmq_commands)
def test_both_encodings_say_the_same(command: RemotingCommand) -> None:
    as_json = msgspec.structs.replace(command, serialize_type=SerializeType.JSON)
    read = decode_command(encode_command(as_json)[4:])
    again = decode_command(encode_command(msgspec.structs.replace(read, serialize_type=SerializeType.ROCKETMQ))[4:])
    assert again == decode_command(encode_command(command)[4:])


def test_languages_have_their_numbers() -> None:
    names = ["JAVA", "CPP", "DOTNET", "PYTHON", "DELPHI", "ERLANG", "RUBY", "OTHER", "HTTP", "GO", "PHP", "OMS", "RUST"]
    for number, name in enumerate(names):
        frame = encode_command(RemotingCommand(1, language=name, serialize_type=SerializeType.ROCKETMQ))
        assert frame[10] == number
        assert decode_command(frame[4:]).language == name
    unknown = encode_command(RemotingCommand(1, language="KOTLIN", serialize_type=SerializeType.ROCKETMQ))
    assert unknown[10] == LanguageCode.OTHER
    header = bytearray(rocketmq_header())
    header[2] = 127
    assert decode_command(frame_of(bytes(header), b"", 1)).language == "OTHER"


#: What is wrong, and how it is named.
REFUSED_ROCKETMQ = [
    (rocketmq_header(remark_length=-1), "remark has -1 bytes"),
    (rocketmq_header(remark_length=2**31 - 1), "ends after 21 bytes, before its remark does"),
    (rocketmq_header(remark=b"abc", remark_length=100), "ends after 24 bytes, before its remark does"),
    (rocketmq_header(fields_length=-1), "extFields has -1 bytes, the header 0 left for it"),
    (rocketmq_header(fields_length=1), "extFields has 1 bytes, the header 0 left for it"),
    (rocketmq_header(fields=b"\0\1a\0\0\0\0", fields_length=6), "extFields has 6 bytes, the header 7 left for it"),
    (rocketmq_header(fields=b"\0"), "extFields has a field of .* at byte 0 of 1"),
    (rocketmq_header(fields=b"\0\1a"), "extFields has a field of 1 and 0 bytes at byte 0 of 3"),
    (rocketmq_header(fields=b"\0\5a\0\0\0\0"), "extFields has a field of 5 and .* at byte 0 of 7"),
    (rocketmq_header(fields=b"\0\1a\0\0\0\1"), "extFields has a field of 1 and 1 bytes at byte 0 of 7"),
    (rocketmq_header(fields=b"\0\1a\0\0\0\0\0\1b\xff\xff\xff\xff"), "a field of 1 and .* at byte 7 of 14"),
    (rocketmq_header(fields=b"\x80\0" + b"k" * 2**15 + b"\0\0\0\0"), "extFields has a field of 32768 and 0 bytes"),
    (rocketmq_header(fields=b"".join(b"\0\4%04d\0\0\0\0" % n for n in range(1025))), "more than 1024 fields"),
]  # fmt: skip


@pytest.mark.parametrize(("header", "message"), REFUSED_ROCKETMQ, ids=range(len(REFUSED_ROCKETMQ)))
def test_rocketmq_headers_whose_lengths_are_wrong_are_refused_by_name(header: bytes, message: str) -> None:
    with pytest.raises(RemotingCommandError, match=message):
        decode_command(frame_of(header, b"body", 1))


@given(rocketmq_commands, st.data())
def test_a_header_that_ends_early_is_refused(command: RemotingCommand, data: st.DataObject) -> None:
    header = as_rocketmq_serializable_writes(command)
    end = data.draw(st.integers(0, len(header) - 1))
    with pytest.raises(RemotingCommandError):
        decode_command(frame_of(header[:end], b"", 1))


# --- frames


@pytest.mark.parametrize(
    ("frame", "message"),
    [
        *[(bytes(size), f"a frame of {size} bytes has no room") for size in range(4)],
        (b"\0\0\0\1", "the header has 1 bytes, the frame 0"),
        (b"\0\0\0\x0b{}", "the header has 11 bytes, the frame 2"),
        (b"\0\xff\xff\xff{}", "the header has 16777215 bytes, the frame 2"),
        (b"\2\0\0\0", r"serialize type 2 is neither JSON \(0\) nor ROCKETMQ \(1\)"),
        (b"\xff\0\0\2{}", "serialize type 255 is neither"),
        (frame_of(b" " * (HEADER_MAX_LENGTH_BYTES + 1)), "a header of 1048577 bytes: at most 1048576 are read"),
        (frame_of(b"", b"", 1), "the header ends after 0 bytes"),
    ],
)
def test_frames_whose_lengths_are_wrong_are_refused_by_name(frame: bytes, message: str) -> None:
    with pytest.raises(RemotingCommandError, match=message):
        decode_command(frame)


HOSTILE = st.one_of(
    st.binary(max_size=60),
    st.builds(frame_of, st.binary(max_size=60), st.just(b""), st.sampled_from([0, 1])),
    st.builds(
        lambda value: frame_of(json.dumps(value).encode()),
        st.dictionaries(
            st.sampled_from(["code", "flag", "opaque", "version", "language", "remark", "extFields", "x"]),
            st.recursive(
                st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
                lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
                max_leaves=6,
            ),
        ),
    ),
    st.builds(
        lambda command, at, byte: encode_command(command)[4:][:at] + byte + encode_command(command)[4 + at + 1 :],
        json_commands | rocketmq_commands,
        st.integers(0, 80),
        st.binary(min_size=1, max_size=1),
    ),
)


@given(HOSTILE)
def test_any_bytes_are_a_command_or_refused(frame: bytes) -> None:
    """And a command, however odd its header was, is written in order and read again."""
    try:
        command = decode_command(frame)
    except RemotingCommandError:
        return
    known = msgspec.structs.replace(command, unknown_fields=())
    assert decode_command(encode_command(command)[4:]) == known


def test_nothing_of_the_buffer_is_kept() -> None:
    for command in (RemotingCommand(1, {"a": "b"}, body=b"body"),
                    RemotingCommand(1, {"a": "b"}, body=b"body", serialize_type=SerializeType.ROCKETMQ)):  # fmt: skip
        buffer = bytearray(encode_command(command)[4:])
        decoded = decode_command(memoryview(buffer))
        buffer[:] = bytes(len(buffer))
        buffer.clear()
        assert decoded == command


# --- what cannot be sent


@pytest.mark.parametrize("serialize_type", SerializeType)
@pytest.mark.parametrize("field", ["code", "flag", "opaque", "version"])
@pytest.mark.parametrize("number", [2**31, -(2**31) - 1, 10**30])
def test_numbers_that_do_not_fit_are_named(serialize_type: SerializeType, field: str, number: int) -> None:
    command = RemotingCommand(1, serialize_type=serialize_type)
    setattr(command, field, number)
    with pytest.raises(ValueError, match=f"{field} {number}.* too large a number for its field"):
        encode_command(command)


def test_rocketmq_has_16_bits_for_codes_and_versions_and_keys() -> None:
    for command in (RemotingCommand(2**15), RemotingCommand(1, version=2**15)):
        assert encode_command(command)
        command.serialize_type = SerializeType.ROCKETMQ
        with pytest.raises(ValueError, match=r"32768.* too large a number for its field"):
            encode_command(command)
    fits = RemotingCommand(1, {"k" * (2**15 - 1): ""}, serialize_type=SerializeType.ROCKETMQ)
    assert decode_command(encode_command(fits)[4:]).ext_fields == fits.ext_fields
    with pytest.raises(ValueError, match="a key of 32768 bytes: at most 32767 can be sent"):
        encode_command(RemotingCommand(1, {"k" * 2**15: ""}, serialize_type=SerializeType.ROCKETMQ))


@pytest.mark.parametrize("serialize_type", SerializeType)
def test_frames_and_headers_have_their_limits(serialize_type: SerializeType) -> None:
    header_length = len(encode_command(RemotingCommand(1, serialize_type=serialize_type))) - 8
    body = bytes(FRAME_MAX_LENGTH_BYTES - 8 - header_length)
    assert len(encode_command(RemotingCommand(1, body=body, serialize_type=serialize_type))) == FRAME_MAX_LENGTH_BYTES
    with pytest.raises(ValueError, match=r"a frame of 16777217 bytes \(code 1\)"):
        encode_command(RemotingCommand(1, body=body + b"x", serialize_type=serialize_type))
    text = "x" * (HEADER_MAX_LENGTH_BYTES - 200)
    command = RemotingCommand(1, {"a": text}, serialize_type=serialize_type)
    assert decode_command(encode_command(command)[4:]) == command
    with pytest.raises(ValueError, match="of them in its header"):
        encode_command(RemotingCommand(1, {"a": text + "x" * 200}, serialize_type=serialize_type))


@pytest.mark.parametrize("serialize_type", SerializeType)
def test_half_a_surrogate_pair_is_sent_as_java_sends_it(serialize_type: SerializeType) -> None:
    command = RemotingCommand(1, {"a\ud800": "\udfffb", "c": "\u00e9"}, remark="x\udc00", serialize_type=serialize_type)
    read = decode_command(encode_command(command)[4:])
    assert (read.ext_fields, read.remark) == ({"a?": "?b", "c": "\u00e9"}, "x?")


def test_an_answer_bears_the_opaque_and_the_encoding_of_its_request() -> None:
    request = RemotingCommand(105, opaque=-7, flag=ONEWAY_FLAG, serialize_type=SerializeType.ROCKETMQ)
    answer = request.response(17, "no route", {"a": "b"}, b"body")
    assert (answer.code, answer.remark, answer.ext_fields, answer.body) == (17, "no route", {"a": "b"}, b"body")
    assert (answer.opaque, answer.serialize_type) == (-7, SerializeType.ROCKETMQ)
    assert (answer.flag, answer.is_response, answer.is_oneway) == (RESPONSE_FLAG, True, False)
    assert (request.is_response, request.is_oneway) == (False, True)
