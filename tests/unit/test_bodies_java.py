"""RocketMQ's own bodies: what Java writes is read and written here (what Java reads: `interop/test_java_bodies.py`).

`java_bodies/samples.tsv` is what `java_bodies/JavaBodies.java` printed with the jars of 4.9.7: a value of each class
with every field set, the same in standard JSON, and a new one.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

import msgspec
import pytest

from rmq_actors.wire.bodies import decode_body, encode_body, unknown_members
from rmq_actors.wire.bodies.topic_configs import DataVersion
from rmq_actors.wire.fastjson import parse_fastjson
from tests.interop.java_tools import ToolMissing, java_command, rocketmq_classpath
from tests.property.body_values import BODY_TYPES, fields_of, has_objects_as_keys

PROGRAM = Path(__file__).with_name("java_bodies") / "JavaBodies.java"
SAMPLES = PROGRAM.with_name("samples.tsv")
LINES = {line.split("\t")[0]: line.split("\t")[1:] for line in SAMPLES.read_text(encoding="utf-8").split("\n")[:-1]}


def command(*args: str) -> list[str]:
    try:
        return [java_command(), "-Duser.timezone=UTC", "-cp", rocketmq_classpath(), str(PROGRAM), *args]
    except ToolMissing as missing:
        pytest.skip(str(missing))


def test_there_is_a_sample_of_every_type() -> None:
    assert list(LINES) == sorted(BODY_TYPES)


@pytest.mark.parametrize("name", BODY_TYPES)
def test_a_sample_of_java_comes_back_byte_for_byte(name: str) -> None:
    kind, (full, standard, _) = BODY_TYPES[name], LINES[name]
    body = decode_body(kind, full.encode())
    assert encode_body(body).decode() == full
    assert unknown_members(kind, full.encode()) == ()
    if not has_objects_as_keys(kind):
        assert encode_body(body, standard_json=True).decode() == standard
        assert decode_body(kind, standard.encode()) == body


@pytest.mark.parametrize("name", BODY_TYPES)
def test_a_sample_of_java_sets_every_field(name: str) -> None:
    """But for what 5.x adds."""
    body = decode_body(BODY_TYPES[name], LINES[name][0].encode())
    later = {"state_version"} if isinstance(body, DataVersion) else set()
    assert {field for field in body.__struct_fields__ if getattr(body, field) is None} == later


@pytest.mark.parametrize("name", BODY_TYPES)
def test_the_defaults_are_those_of_java(name: str) -> None:
    """But for what has none here (names, above all), for times, and for maps and lists that are null there."""
    kind, empty = BODY_TYPES[name], parse_fastjson(LINES[name][2].encode())
    assert isinstance(empty, dict)
    full = parse_fastjson(LINES[name][0].encode())
    assert isinstance(full, dict)
    required = {field.encode_name: full[field.encode_name] for field in fields_of(kind).fields if field.required}
    new = msgspec.convert(required, kind)
    written = parse_fastjson(encode_body(new))
    assert isinstance(written, dict)
    known = {field.encode_name for field in fields_of(kind).fields} - required.keys()
    assert {key: item for key, item in written.items() if key in known and item not in ([], {})} == {
        key: item for key, item in empty.items() if key in known and not key.endswith("Str") and item not in ([], {})
    }


@pytest.mark.interop
def test_the_samples_are_what_java_writes_today() -> None:
    done = subprocess.run(command(*LINES), capture_output=True, timeout=100, check=True)
    assert done.stdout.decode() == SAMPLES.read_text(encoding="utf-8")
