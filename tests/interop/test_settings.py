"""The settings that docs/settings.md is held against are those of the classes of the Maven artefacts."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from tests.worlds.java_tools import ToolMissing, java_command, rocketmq_classpath
from tests.worlds.rocketmq_settings import listed_keys

pytestmark = [pytest.mark.interop]

#: A field that is one of an object, as javap shows it.
_FIELD = re.compile(r"^  (?:private|protected)(?: volatile| final)* [\w.$\[\]]+ (\w+);", re.MULTILINE)

#: A class with its body.
_CLASS = re.compile(r"^(?:\w+ )*class ([\w.$]+)[^\n]*\{$.*?^\}", re.MULTILINE | re.DOTALL)


def test_the_list_is_that_of_the_classes() -> None:
    try:
        javap, classpath = Path(java_command()).with_name("javap"), rocketmq_classpath()
    except ToolMissing as error:
        pytest.skip(str(error))
    if not javap.exists():
        pytest.skip("there is no javap beside java")
    listed = listed_keys()
    # One call for all classes: each call costs a Java process a second.
    command: list[str | Path] = [javap, "-J-XX:TieredStopAtLevel=1", "-p", "-cp", classpath, *listed]
    shown = subprocess.run(command, check=True, capture_output=True, text=True)
    classes = {found[1]: found[0] for found in _CLASS.finditer(shown.stdout)}
    assert classes.keys() == listed.keys()
    for name, keys in listed.items():
        assert sorted(_FIELD.findall(classes[name]), key=str.lower) == keys, name
