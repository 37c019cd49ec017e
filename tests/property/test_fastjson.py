"""fastjson's text: whatever is written comes back, RocketMQ's own files are read and written byte for byte."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmq_actors.wire.fastjson import FastJsonError, JsonKey, JsonValue, integer_keys, parse_fastjson, write_fastjson
from tests.worlds.golden_capture import STORE_MASTER_CLEAN, STORE_MASTER_KILLED, STORE_SLAVE_CLEAN

INT64 = st.integers(-(2**63), 2**63 - 1)
TEXT = st.text(st.characters(codec=None), max_size=8)
SCALARS = st.none() | st.booleans() | INT64 | st.floats(allow_nan=False, allow_infinity=False) | TEXT
KEY_SCALARS = st.none() | st.booleans() | st.integers(-(2**31), 2**31 - 1) | TEXT
OBJECT_KEYS = st.dictionaries(TEXT, KEY_SCALARS, max_size=4).map(lambda members: tuple(members.items()))
KEYS: st.SearchStrategy[JsonKey] = TEXT | INT64 | OBJECT_KEYS
VALUES: st.SearchStrategy[JsonValue] = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(KEYS, inner, max_size=4), max_leaves=20
)
STANDARD_VALUES = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXT, inner, max_size=4), max_leaves=20
)
CONFIG_FILES = [
    path
    for store in (STORE_MASTER_CLEAN, STORE_MASTER_KILLED, STORE_SLAVE_CLEAN)
    for path in sorted((store / "config").iterdir())
]


@given(VALUES, st.booleans())
def test_what_is_written_comes_back(value: JsonValue, pretty: bool) -> None:
    back = parse_fastjson(write_fastjson(value, pretty=pretty))
    assert back == value
    assert repr(back) == repr(value)  # 1 is not 1.0, nor True


@given(STANDARD_VALUES)
def test_standard_json_is_read_and_written(value: JsonValue) -> None:
    assert parse_fastjson(json.dumps(value, indent=1).encode()) == value
    assert json.loads(write_fastjson(value)) == value
    assert json.loads(write_fastjson(value, pretty=True)) == value


@given(st.dictionaries(INT64, INT64))
def test_integer_keys_are_quoted_for_those_who_read_standard_json_alone(table: dict[int, int]) -> None:
    text = write_fastjson({"offsetTable": table}, unquoted_integer_keys=False)
    assert json.loads(text) == {"offsetTable": {str(key): value for key, value in table.items()}}
    value = parse_fastjson(text)
    assert isinstance(value, dict)
    assert integer_keys(value["offsetTable"], "offsetTable") == table


@given(VALUES, st.data())
def test_no_cut_text_is_taken_for_another_value(value: JsonValue, data: st.DataObject) -> None:
    text = write_fastjson([value])
    with pytest.raises(FastJsonError):
        parse_fastjson(text[: data.draw(st.integers(0, len(text) - 1))])


@given(st.binary(max_size=60) | st.text('{}[]:,"\\0123456789.e-+ \ntrufalsn', max_size=40).map(str.encode))
def test_no_bytes_raise_anything_else(data: bytes) -> None:
    try:
        value = parse_fastjson(data)
    except FastJsonError:
        return
    assert parse_fastjson(write_fastjson(value)) == value


@pytest.mark.parametrize("path", CONFIG_FILES, ids=lambda path: f"{path.parts[-3]}-{path.name}")
def test_the_files_of_rocketmq_are_read_and_written_byte_for_byte(path: Path) -> None:
    text = path.read_bytes()
    value = parse_fastjson(text)
    assert isinstance(value, dict)
    # A slave writes the delay offsets as the master sent them.
    assert write_fastjson(value, pretty=b"\n" in text) == text


def test_objects_are_keys() -> None:
    text = b'{"offsetTable":{{"brokerName":"a","queueId":0,"topic":"T"}:{"brokerOffset":1},{"queueId":1}:{}}}'
    value = parse_fastjson(text)
    assert value == {
        "offsetTable": {
            (("brokerName", "a"), ("queueId", 0), ("topic", "T")): {"brokerOffset": 1},
            (("queueId", 1),): {},
        }
    }
    assert write_fastjson(value) == text


def test_blanks_may_stand_anywhere_between_and_the_last_of_equal_keys_counts() -> None:
    assert parse_fastjson(b" \n{ 1 : [ ] ,\t-2 :{ } , 1\r: 3}\n") == {1: 3, -2: {}}


@pytest.mark.parametrize(
    ("text", "place", "what"),
    [
        (b"", "line 1, column 1 (character 0)", "Expecting value"),
        (b'{\n  "a":1,\n  b:2}', "line 3, column 3 (character 13)", "a key must be a string, an integer or an object"),
        (b"{01:2}", "line 1, column 2 (character 1)", "a key must be"),
        (b"{1.5:2}", "line 1, column 2 (character 1)", "a key must be"),
        (b"{12345678901234567890:2}", "line 1, column 2 (character 1)", "a key must be"),
        (b"{1 2}", "line 1, column 2 (character 1)", "a key must be"),
        (b'{"a" 2}', "line 1, column 6 (character 5)", "no ':' follows a key"),
        (b'{"a":2,}', "line 1, column 8 (character 7)", "a key must be"),
        (b'{"a":2 "b"}', "line 1, column 8 (character 7)", "neither ',' nor '}'"),
        (b"[1 2]", "line 1, column 4 (character 3)", "neither ',' nor ']'"),
        (b"[1,]", "line 1, column 4 (character 3)", "Expecting value"),
        (b"{{1:2}:3}", "line 1, column 2 (character 1)", "an object that is a key"),
        (b'{{"a":[]}:3}', "line 1, column 2 (character 1)", "an object that is a key"),
        (b'{{"a":2147483648}:3}', "line 1, column 2 (character 1)", "an object that is a key"),
        (b'{{"a":1.0}:3}', "line 1, column 2 (character 1)", "an object that is a key"),
        (b'{{"a":1,"b":1,"c":1,"d":1,"e":1}:3}', "line 1, column 2 (character 1)", "an object that is a key"),
        (b"[NaN]", "line 1, column 2 (character 1)", "NaN is no JSON"),
        (b"[-Infinity]", "line 1, column 2 (character 1)", "-Infinity is no JSON"),
        (b"[1e999]", "line 1, column 2 (character 1)", "a number beyond those of 64 bits"),
        (b"[" + b"9" * 5000 + b"]", "line 1, column 2 (character 1)", "Exceeds the limit"),
        (b"1 2", "line 1, column 3 (character 2)", "the text goes on"),
        (b'"\n', "line 1, column 1 (character 0)", "Unterminated string"),
    ],
)  # fmt: skip
def test_an_error_names_the_place(text: bytes, place: str, what: str) -> None:
    with pytest.raises(FastJsonError) as caught:
        parse_fastjson(text)
    assert place in str(caught.value)
    assert what in str(caught.value)


def test_control_characters_may_stand_in_texts_and_keys_as_they_are() -> None:
    """As fastjson reads them, though it escapes them when it writes."""
    text = "".join(map(chr, range(0x20)))
    assert parse_fastjson(f'{{"{text}":"{text}"}}'.encode()) == {text: text}


def test_depth_and_size_are_bounded() -> None:
    assert parse_fastjson(b"[" * 64 + b"]" * 64) != []
    with pytest.raises(FastJsonError, match=r"character 64\): more than 64 values inside of one another"):
        parse_fastjson(b"[" * 65 + b"]" * 65)
    with pytest.raises(FastJsonError, match=r"character 3\): more than 3 values inside"):
        parse_fastjson(b"{" * 100_000, max_depth=3)
    with pytest.raises(FastJsonError, match="11 bytes of JSON: at most 10 are read"):
        parse_fastjson(b" " * 11, max_bytes=10)
    with pytest.raises(FastJsonError, match="byte 1 is no UTF-8"):
        parse_fastjson(b'"\xff"')


def test_no_keys_are_accepted_that_share_a_hash_by_the_thousand() -> None:
    """Python's hash of a number is its remainder: a table of such keys takes the square of their number."""
    keys = ",".join(f'{{"a":{number * sys.hash_info.modulus}}}:1' for number in range(1, 3_000))
    with pytest.raises(FastJsonError, match="an object that is a key"):
        parse_fastjson(f"{{{keys}}}".encode())


@pytest.mark.parametrize("number", [float("nan"), float("inf")])
def test_numbers_that_are_no_json_are_not_written(number: float) -> None:
    with pytest.raises(ValueError, match="not JSON compliant"):
        write_fastjson([number])


@pytest.mark.parametrize("text", [b"[]", b'{"a":1}', b"{{}:1}", b'{"1.0":1}'])
def test_a_map_of_integers_has_integer_keys(text: bytes) -> None:
    with pytest.raises(FastJsonError, match=r"offsetTable (is not a map|has a key that is no integer)"):
        integer_keys(parse_fastjson(text), "offsetTable")
