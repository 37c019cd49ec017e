"""Laws of every body: what is written comes back, whoever reads it; what is cut or broken is refused in words."""

from __future__ import annotations

import json

import hypothesis.strategies as st
import pytest
from hypothesis import given

from rmq_actors.wire.bodies import decode_body, encode_body, unknown_members
from rmq_actors.wire.bodies.decoding import decode_file
from rmq_actors.wire.bodies.encoding import encode_file
from rmq_actors.wire.bodies.remoting_serializable import RemotingSerializable
from rmq_actors.wire.bodies.topic_configs import TopicConfig, TopicConfigSerializeWrapper
from rmq_actors.wire.fastjson import parse_fastjson, write_fastjson
from rmq_actors.wire.remoting_command import RemotingCommandError
from tests.worlds.body_values import BODY_TYPES, bodies, fields_of, has_objects_as_keys

BODIES = st.sampled_from(list(BODY_TYPES.values())).flatmap(bodies)
STANDARD_BODIES = st.sampled_from([kind for kind in BODY_TYPES.values() if not has_objects_as_keys(kind)]).flatmap(
    bodies
)
#: What peers send in the place of a member, by mistake or not.
JSON = st.recursive(
    st.sampled_from(["null", "true", "-1", "1.5", "1e400", '"x"', '""', '"7"', "9" * 30, '"\\ud800"', "NaN", "\xff"]),
    lambda inner: (
        st.lists(inner, max_size=3).map(lambda items: f"[{','.join(items)}]")
        | st.dictionaries(st.sampled_from(['"a"', "1", '{"topic":"T"}', '"1"']), inner, max_size=3).map(
            lambda items: "{" + ",".join(f"{key}:{item}" for key, item in items.items()) + "}"
        )
    ),
    max_leaves=6,
)
#: A member that is no strict JSON: what has it is read by the tolerant reader.
ODD_MEMBER = b'"5.x":{{}:null}'


def with_member(text: bytes, member: bytes) -> bytes:
    return b"{" + member + (b"," if text != b"{}" else b"") + text[1:]


def outcome(kind: type[RemotingSerializable], data: bytes) -> RemotingSerializable | RemotingCommandError:
    try:
        return decode_body(kind, data)
    except RemotingCommandError as error:
        return error


@given(BODIES)
def test_what_is_written_comes_back(body: RemotingSerializable) -> None:
    text = encode_body(body)
    back = decode_body(type(body), text)
    assert repr(back) == repr(body)
    assert encode_body(back) == text
    assert unknown_members(type(body), text) == ()


#: Nothing that two writers of JSON escape differently; much that looks like the layout of a file.
TEXTS = st.text(st.characters(exclude_categories=["C", "Z"]), max_size=8) | st.sampled_from(
    ['": ', ": ", '\\": ', "a\n  b", '"', "\\"]
)


@given(st.dictionaries(TEXTS, TEXTS, max_size=4))
def test_a_file_is_written_as_fastjson_writes_it(names: dict[str, str]) -> None:
    table = {name: TopicConfig(topic_name=text) for name, text in names.items()}
    body = TopicConfigSerializeWrapper(topic_config_table=table)
    text = encode_file(body)
    assert text == write_fastjson(json.loads(encode_body(body)), pretty=True)
    assert decode_file(TopicConfigSerializeWrapper, memoryview(text)) == body
    assert decode_file(TopicConfigSerializeWrapper, memoryview(with_member(text, ODD_MEMBER))) == body


@given(BODIES)
def test_the_tolerant_reader_reads_the_same(body: RemotingSerializable) -> None:
    text = with_member(encode_body(body), ODD_MEMBER)
    assert repr(decode_body(type(body), text)) == repr(body)
    assert unknown_members(type(body), text) == ("5.x",)


@given(BODIES)
def test_null_is_as_good_as_nothing(body: RemotingSerializable) -> None:
    text = encode_body(body)
    value = parse_fastjson(text)
    assert isinstance(value, dict)
    for field in fields_of(type(body)).fields:
        if field.encode_name not in value:
            text = with_member(text, f'"{field.encode_name}":null'.encode())
    assert repr(decode_body(type(body), text)) == repr(decode_body(type(body), with_member(text, ODD_MEMBER)))
    assert repr(decode_body(type(body), text)) == repr(body)


@given(STANDARD_BODIES)
def test_standard_json_is_for_every_reader(body: RemotingSerializable) -> None:
    text = encode_body(body, standard_json=True)
    assert text.isascii()
    json.loads(text)
    assert decode_body(type(body), text) == body


@given(BODIES, st.data())
def test_no_cut_body_is_taken_for_a_whole_one(body: RemotingSerializable, data: st.DataObject) -> None:
    text = encode_body(body)
    with pytest.raises(RemotingCommandError, match=type(body).__name__):
        decode_body(type(body), text[: data.draw(st.integers(0, len(text) - 1))])


@given(BODIES, JSON, st.data())
def test_what_is_broken_is_read_or_refused_in_words(body: RemotingSerializable, part: str, data: st.DataObject) -> None:
    kind, text = type(body), encode_body(body)
    at = data.draw(st.sampled_from([0, *(at + 1 for at, byte in enumerate(text) if byte in b":[{,")]))
    end = data.draw(st.integers(at, min(at + 12, len(text))))
    found = outcome(kind, text[:at] + part.encode("latin-1") + text[end:])
    if isinstance(found, RemotingCommandError):
        assert str(found).startswith(kind.__name__)
        assert len(str(found)) < 1000
    else:
        assert decode_body(kind, encode_body(found)) == found


@given(BODIES, st.sampled_from(["null", "1", '"x"', "[]", "{}", '[{"topic":1}]']))
def test_unknown_members_are_passed_over_and_named(body: RemotingSerializable, value: str) -> None:
    text = with_member(encode_body(body), f'"later":{value}'.encode())
    assert decode_body(type(body), text) == body
    assert unknown_members(type(body), text) == ("later",)


@pytest.mark.parametrize("name", BODY_TYPES)
def test_members_are_declared_as_fastjson_writes_them(name: str) -> None:
    names = [field.encode_name for field in fields_of(BODY_TYPES[name]).fields]
    assert names == sorted(names)
