"""What the interop tests say on a machine that lacks Java or Maven, or has the wrong ones."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.worlds.java_tools import POM_5, ToolMissing, java_command, rocketmq_classpath


@pytest.fixture
def bin_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The only directory on PATH; and the cache is empty."""
    directory = tmp_path / "bin"
    directory.mkdir()
    monkeypatch.setenv("PATH", str(directory))
    monkeypatch.setenv("RMQ_ACTORS_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    return directory


def install(directory: Path, name: str, script: str) -> Path:
    tool = directory / name
    tool.write_text(f"#!/bin/sh\n{script}\n")
    tool.chmod(0o755)
    return tool


def test_no_java_is_named(bin_directory: Path) -> None:
    with pytest.raises(ToolMissing, match="Java 17 is missing: no java on PATH"):
        java_command()


def test_an_old_java_is_named_with_what_it_says(bin_directory: Path) -> None:
    install(bin_directory, "java", """echo 'openjdk version "11.0.2"' >&2""")
    with pytest.raises(ToolMissing, match=r'Java 17 is missing: .*/bin/java says .*version "11\.0\.2"'):
        java_command()


@pytest.mark.parametrize("version", ["17.0.15", "21", "25-ea"])
def test_a_new_java_is_taken(bin_directory: Path, version: str) -> None:
    java = install(bin_directory, "java", f"""echo 'openjdk version "{version}"' >&2""")
    assert java_command() == str(java)


def test_java_home_goes_before_path(bin_directory: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(bin_directory, "java", """echo 'openjdk version "17"' >&2""")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "jdk"))
    with pytest.raises(ToolMissing, match=r"Java 17 is missing: no java under JAVA_HOME=.*/jdk"):
        java_command()


def test_no_maven_is_named_when_nothing_is_cached(bin_directory: Path) -> None:
    with pytest.raises(ToolMissing, match="Maven is missing: no mvn on PATH"):
        rocketmq_classpath()


def test_a_failing_maven_is_quoted_and_leaves_no_cache(bin_directory: Path, tmp_path: Path) -> None:
    install(bin_directory, "java", """echo 'openjdk version "17"' >&2""")
    install(bin_directory, "mvn", "echo 'could not resolve'; exit 1")
    with pytest.raises(RuntimeError, match=r"(?s)exit 1.*could not resolve"):
        rocketmq_classpath()
    assert list((tmp_path / "cache").glob("rocketmq-*")) == []


def test_a_maven_that_fails_once_is_run_again(bin_directory: Path, tmp_path: Path) -> None:
    install(bin_directory, "java", """echo 'openjdk version "17"' >&2""")
    install(
        bin_directory,
        "mvn",
        f"""directory="${{5#*=}}"; /bin/mkdir -p "$directory"
[ -e {tmp_path}/failed ] || {{ : > {tmp_path}/failed; : > "$directory/half-a.jar"; exit 1; }}
: > "$directory/rocketmq-broker-4.9.7.jar\"""",
    )
    assert [Path(jar).name for jar in rocketmq_classpath().split(os.pathsep)] == ["rocketmq-broker-4.9.7.jar"]


def test_what_maven_fetched_is_used_again_without_it(bin_directory: Path, tmp_path: Path) -> None:
    install(bin_directory, "java", """echo 'openjdk version "17"' >&2""")
    # "$5" is -DoutputDirectory=...; only the shell's own commands are at hand.
    maven = install(
        bin_directory,
        "mvn",
        'directory="${5#*=}"; /bin/mkdir -p "$directory"; : > "$directory/rocketmq-broker-4.9.7.jar"',
    )
    first, other = rocketmq_classpath(), rocketmq_classpath(POM_5)
    maven.unlink()
    assert (rocketmq_classpath(), rocketmq_classpath(POM_5)) == (first, other)
    assert Path(first).parent != Path(other).parent
    assert Path(first).parent.parent == tmp_path / "cache"
    assert Path(first).name == "rocketmq-broker-4.9.7.jar"
