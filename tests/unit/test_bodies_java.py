"""RocketMQ's own bodies: what Java writes is read and written here (what Java reads: `interop/test_java_bodies.py`).

`java_bodies/samples.tsv` is what `java_bodies/JavaBodies.java` printed with the jars of 4.9.7: a value of each class
with every field set, the same in standard JSON, and a new one. `samples-5.tsv` has what 4.9 lacks, of 5.3.1.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

import msgspec
import pytest

from rmq_actors.wire.bodies import decode_body, encode_body, unknown_members
from rmq_actors.wire.bodies.topic_configs import DataVersion
from rmq_actors.wire.fastjson import parse_fastjson
from tests.worlds.body_values import JAVA_BODY_TYPES, fields_of, has_objects_as_keys
from tests.worlds.java_tools import POM, POM_5, ToolMissing, java_command, rocketmq_classpath

PROGRAM = Path(__file__).with_name("java_bodies") / "JavaBodies.java"
SAMPLES = {POM: PROGRAM.with_name("samples.tsv"), POM_5: PROGRAM.with_name("samples-5.tsv")}


def lines(samples: Path) -> dict[str, list[str]]:
    """By Java's name of the class."""
    text = samples.read_text(encoding="utf-8")
    return {line.split("\t")[0]: line.split("\t")[1:] for line in text.split("\n")[:-1]}


#: By the class's own name, without that of the class that it stands in.
LINES = {name.rpartition("$")[2]: line for samples in SAMPLES.values() for name, line in lines(samples).items()}


def command(pom: Path, *args: str) -> list[str]:
    try:
        return [java_command(), "-Duser.timezone=UTC", "-cp", rocketmq_classpath(pom), str(PROGRAM), *args]
    except ToolMissing as missing:
        pytest.skip(str(missing))


def test_there_is_a_sample_of_every_type() -> None:
    assert sorted(LINES) == sorted(JAVA_BODY_TYPES)


@pytest.mark.parametrize("name", JAVA_BODY_TYPES)
def test_a_sample_of_java_comes_back_byte_for_byte(name: str) -> None:
    kind, (full, standard, _) = JAVA_BODY_TYPES[name], LINES[name]
    body = decode_body(kind, full.encode())
    assert encode_body(body).decode() == full
    assert unknown_members(kind, full.encode()) == ()
    if not has_objects_as_keys(kind):
        assert encode_body(body, standard_json=True).decode() == standard
        assert decode_body(kind, standard.encode()) == body


@pytest.mark.parametrize("name", JAVA_BODY_TYPES)
def test_a_sample_of_java_sets_every_field(name: str) -> None:
    """But for what 5.x adds."""
    body = decode_body(JAVA_BODY_TYPES[name], LINES[name][0].encode())
    later = {"state_version"} if isinstance(body, DataVersion) else set()
    assert {field for field in body.__struct_fields__ if getattr(body, field) is None} == later


@pytest.mark.parametrize("name", JAVA_BODY_TYPES)
def test_the_defaults_are_those_of_java(name: str) -> None:
    """But for what has none here (names, above all), for times, and for maps and lists that are null there."""
    kind, empty = JAVA_BODY_TYPES[name], parse_fastjson(LINES[name][2].encode())
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
@pytest.mark.processes
@pytest.mark.parametrize("pom", SAMPLES)
def test_the_samples_are_what_java_writes_today(pom: Path) -> None:
    done = subprocess.run(command(pom, *lines(SAMPLES[pom])), capture_output=True, timeout=100, check=True)
    assert done.stdout.decode() == SAMPLES[pom].read_text(encoding="utf-8")
