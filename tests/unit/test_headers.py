"""The typed headers: all that RocketMQ has, and what is read and refused as Java would or would not."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmq_actors.wire.headers import REQUEST_HEADERS, RESPONSE_HEADERS, CommandHeader, decode_header, encode_header
from rmq_actors.wire.headers.clients import GetConsumerRunningInfoRequestHeader, GetConsumeStatsInBrokerHeader
from rmq_actors.wire.headers.messages import (
    SendMessageRequestHeader,
    SendMessageRequestHeaderV2,
    SendMessageResponseHeader,
    create_send_message_request_header_v1,
    create_send_message_request_header_v2,
)
from rmq_actors.wire.headers.namesrv import RegisterBrokerRequestHeader
from rmq_actors.wire.headers.offsets import GetMaxOffsetRequestHeader, GetMaxOffsetResponseHeader
from rmq_actors.wire.headers.topics import CreateTopicRequestHeader, GetRouteInfoRequestHeader
from rmq_actors.wire.headers.transactions import CheckTransactionStateResponseHeader, EndTransactionRequestHeader
from rmq_actors.wire.java_numbers import Int32, Int64
from rmq_actors.wire.remoting_command import RemotingCommand, RemotingCommandError
from tests.worlds import header_tables
from tests.worlds.header_values import HEADERS, NAMES, WHOLE, header_values

#: Fields that may be absent here, and not by RocketMQ's annotations, which it does not enforce.
LENIENT = {
    ("CreateTopicRequestHeader", "order"): "false in Java; the C++ client does not send it",
    ("UpdateGlobalWhiteAddrsConfigRequestHeader", "aclFileFullPath"): "mqadmin sends it only when told a file",
}
#: Headers of this project alone.
OWN = {"UpdateBrokerConfigRequestHeader": "RocketMQ's request has none: the term of a promotion, which Java ignores"}
JAVA_TYPES: Mapping[str, tuple[object, ...]] = {
    "String": (str, str | None),
    "Integer": (Int32, Int32 | None),
    "int": (Int32,),
    "Long": (Int64, Int64 | None),
    "long": (Int64,),
    "Boolean": (bool, bool | None),
    "boolean": (bool,),
}


def java_headers() -> dict[str, dict[str, tuple[str, bool]]]:
    """Class: name of a field: its type in Java, and whether it may be absent."""
    table: dict[str, dict[str, tuple[str, bool]]] = {}
    for name, fields in re.findall(r"^(\w+): (.+(?:\n    .+)*)", header_tables.HEADERS, re.MULTILINE):
        found = re.findall(r"(\??)(\w+):(\w+)", fields)
        table[name] = {field: (kind, optional == "?") for optional, field, kind in found}
    return table


def test_every_header_of_rocketmq_is_there_and_no_other() -> None:
    assert HEADERS.keys() - OWN.keys() == java_headers().keys()


@pytest.mark.parametrize("name", [name for name in NAMES if name not in OWN])
def test_a_header_has_the_fields_of_java(name: str) -> None:
    fields = {field.encode_name: field for field in msgspec.structs.fields(HEADERS[name])}
    java = java_headers()[name]
    assert fields.keys() == java.keys()
    for field_name, (kind, optional) in java.items():
        field = fields[field_name]
        assert field.type in JAVA_TYPES[kind], field_name
        assert field.required != (optional or (name, field_name) in LENIENT), field_name


def test_the_registries_have_every_code_and_every_header() -> None:
    codes = {int(code) for code in re.findall(r"\w+ (\d+)", header_tables.REQUEST_CODES)}
    assert REQUEST_HEADERS.keys() == RESPONSE_HEADERS.keys() == codes
    used = {
        header_type.__name__ for header_type in (*REQUEST_HEADERS.values(), *RESPONSE_HEADERS.values()) if header_type
    }
    assert HEADERS.keys() - used - OWN.keys() == {"RegisterOrderTopicRequestHeader"}


def with_fields(ext_fields: dict[str, str] | None) -> RemotingCommand:
    return RemotingCommand(0, ext_fields)


@given(
    st.sampled_from(NAMES).flatmap(header_values), st.dictionaries(st.sampled_from(["bname", "ReqT", "x"]), st.text())
)
def test_what_is_written_is_read(header: CommandHeader, foreign: dict[str, str]) -> None:
    """Whatever else stands beside it: nothing that a header does not know disturbs it."""
    ext_fields = encode_header(header)
    assert all(type(text) is str for text in ext_fields.values())
    assert decode_header(type(header), with_fields(foreign | ext_fields)) == header


def test_text_is_what_java_writes() -> None:
    header = SendMessageResponseHeader("7F00000100002A9F0000000000000000", 3, -1)
    assert encode_header(header) == {"msgId": "7F00000100002A9F0000000000000000", "queueId": "3", "queueOffset": "-1"}
    assert encode_header(GetConsumeStatsInBrokerHeader(is_order=True)) == {"isOrder": "true"}
    assert encode_header(GetConsumerRunningInfoRequestHeader("g", "c")) == {
        "consumerGroup": "g",
        "clientId": "c",
        "jstackEnable": "false",
    }


def test_what_may_be_absent_has_the_value_of_java() -> None:
    header = decode_header(
        RegisterBrokerRequestHeader,
        with_fields({"brokerName": "b", "brokerAddr": "a", "clusterName": "c", "haServerAddr": "h", "brokerId": "0"}),
    )
    assert (header.compressed, header.body_crc32) == (False, 0)
    assert decode_header(GetRouteInfoRequestHeader, with_fields({"topic": "T"})).accept_standard_json_only is None


@pytest.mark.parametrize("ext_fields", [None, {}, {"topic": "T"}, {"topic": "T", "queueID": "0"}])
def test_what_is_missing_is_named(ext_fields: dict[str, str] | None) -> None:
    field = "queueId" if ext_fields else "topic"
    with pytest.raises(RemotingCommandError, match=rf"^GetMaxOffsetRequestHeader\.{field} is missing$"):
        decode_header(GetMaxOffsetRequestHeader, with_fields(ext_fields))


@pytest.mark.parametrize(
    "text", ["", " ", "five", "0x10", " 5", "5 ", "1_0", "--5", "+-5", "5.5", "1e-3", "-", "+", "NaN", "null"]
)
def test_what_is_no_number_is_named(text: str) -> None:
    with pytest.raises(RemotingCommandError, match=r"^GetMaxOffsetResponseHeader\.offset is no number: '") as error:
        decode_header(GetMaxOffsetResponseHeader, with_fields({"offset": text}))
    assert repr(text) in str(error.value)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("5", 5),
        ("-5", -5),
        ("+5", 5),
        ("007", 7),
        ("-0", 0),
        ("0" * 60 + "12", 12),
        ("\N{ARABIC-INDIC DIGIT FIVE}", 5),
        (str(2**63 - 1), 2**63 - 1),
    ],
)
def test_numbers_are_read_as_java_reads_them(text: str, value: int) -> None:
    assert decode_header(GetMaxOffsetResponseHeader, with_fields({"offset": text})).offset == value


@pytest.mark.parametrize("text", [str(2**31), str(-(2**31) - 1), str(2**63), "9" * 5000])
def test_a_number_beyond_32_bits_is_named(text: str) -> None:
    with pytest.raises(RemotingCommandError, match=r"^GetMaxOffsetRequestHeader\.queueId is beyond 32 bits") as error:
        decode_header(GetMaxOffsetRequestHeader, with_fields({"topic": "T", "queueId": text}))
    assert len(str(error.value)) < 200


@pytest.mark.parametrize("text", [str(2**63), str(-(2**63) - 1), "9" * 5000])
def test_a_number_beyond_64_bits_is_named(text: str) -> None:
    with pytest.raises(RemotingCommandError, match=r"^GetMaxOffsetResponseHeader\.offset is beyond 64 bits: '"):
        decode_header(GetMaxOffsetResponseHeader, with_fields({"offset": text}))


def java_parse_int(text: str, bits: int) -> int | None:
    """Integer.parseInt and Long.parseLong; None for a NumberFormatException."""
    if not re.fullmatch(r"[+-]?\d+", text):
        return None
    number = int(text)
    return number if -(2 ** (bits - 1)) <= number < 2 ** (bits - 1) else None


NUMERALS = st.one_of(
    st.integers(-(2**65), 2**65).map(str),
    st.sampled_from([2**31, 2**63]).flatmap(lambda edge: st.integers(-edge - 2, edge + 2)).map(str),
    st.from_regex(re.compile(r"[+-]?0{0,3}[0-9]{0,25}"), fullmatch=True),
    st.from_regex(WHOLE, fullmatch=True),
    st.text(st.sampled_from("0123456789+-.eE_ xnulNaf\N{ARABIC-INDIC DIGIT FIVE}\N{SUPERSCRIPT TWO}"), max_size=8),
)


@given(NUMERALS, st.booleans())
def test_a_number_is_javas_or_a_whole_one_otherwise_written_or_refused(text: str, is_int32: bool) -> None:
    """Never anything else: what is taken beyond Java's numerals is the whole number that the text says."""
    ext_fields = {"topic": "T", "queueId": text if is_int32 else "0", "offset": "0" if is_int32 else text}
    command = with_fields(ext_fields)
    expected = java_parse_int(text, 32 if is_int32 else 64)
    try:
        if is_int32:
            number = decode_header(GetMaxOffsetRequestHeader, command).queue_id
        else:
            number = decode_header(GetMaxOffsetResponseHeader, command).offset
    except RemotingCommandError:
        assert expected is None
        return
    if expected is None:
        assert WHOLE.fullmatch(text)
        assert number == float(text)
        assert math.fabs(number) <= 2**53
    else:
        assert number == expected


@pytest.mark.parametrize(
    ("text", "value"),
    [
        *[(text, True) for text in ("true", "TRUE", "tRuE", "1")],
        *[(text, False) for text in ("false", "False", "0", "", "yes", "on", " true", "null", "2")],
    ],
)
def test_booleans_are_read_as_java_reads_them_but_for_1(text: str, value: bool) -> None:
    assert decode_header(GetConsumeStatsInBrokerHeader, with_fields({"isOrder": text})).is_order is value


def test_one_odd_field_does_not_change_how_the_others_are_read() -> None:
    fields = {
        "a": "null",
        "b": "T",
        "c": "TBW102",
        "d": "+4",
        "e": "2",
        "f": "0",
        "g": "1",
        "h": "0",
        "k": "yes",
        "m": "TRUE",
    }
    header = decode_header(SendMessageRequestHeaderV2, with_fields(fields))
    assert header == SendMessageRequestHeaderV2("null", "T", "TBW102", 4, 2, 0, 1, 0, unit_mode=False, batch=True)


@given(header_values("SendMessageRequestHeaderV2"))
def test_long_and_short_names_say_the_same_message(header: CommandHeader) -> None:
    assert isinstance(header, SendMessageRequestHeaderV2)
    long = create_send_message_request_header_v1(header)
    assert create_send_message_request_header_v2(long, header.broker_name) == header
    for field in msgspec.structs.fields(SendMessageRequestHeader):
        assert getattr(long, field.name) == getattr(header, field.name)


@pytest.mark.parametrize("value", [-1, 4, 13])
def test_a_transaction_ends_in_one_of_three_ways(value: int) -> None:
    header = EndTransactionRequestHeader("PG", 0, 0, 8, "id")
    assert decode_header(EndTransactionRequestHeader, with_fields(encode_header(header))) == header
    fields = encode_header(header) | {"commitOrRollback": str(value)}
    with pytest.raises(RemotingCommandError, match=rf"^EndTransactionRequestHeader: commitOrRollback .*: {value}$"):
        decode_header(EndTransactionRequestHeader, with_fields(fields))
    with pytest.raises(ValueError, match="commitOrRollback"):
        EndTransactionRequestHeader("PG", 0, 0, value, "id")


def test_an_answer_to_a_check_is_never_unknown() -> None:
    with pytest.raises(ValueError, match="neither 8 nor 12: 0"):
        CheckTransactionStateResponseHeader("PG", 0, 0, 0)


def test_a_topic_filter_type_is_one_of_two() -> None:
    fields = encode_header(CreateTopicRequestHeader("T", "TBW102", 4, 4, 6, "SINGLE_TAG"))
    with pytest.raises(RemotingCommandError, match=r"^CreateTopicRequestHeader: topicFilterType .*: 'OTHER'"):
        decode_header(CreateTopicRequestHeader, with_fields(fields | {"topicFilterType": "OTHER"}))
