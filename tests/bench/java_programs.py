"""The Java programs beside the benchmarks (`java/*.java`), compiled against RocketMQ 4.9.7 when they are needed."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

from tests.worlds.java_tools import ToolMissing, java_command, rocketmq_classpath

_SOURCES = Path(__file__).parent / "java"
_COMPILE_TIMEOUT_S = 300
_LOGBACK = '<configuration><root level="OFF"/></configuration>'


def compile_program(name: str, flags: Sequence[str], directory: Path) -> Sequence[str]:
    """Compile a program into a directory; the command that runs it, without a log. Raises `ToolMissing`."""
    java, classpath = java_command(), rocketmq_classpath()
    javac = shutil.which("javac", path=str(Path(java).resolve().parent)) or shutil.which("javac")
    if javac is None:
        raise ToolMissing(f"a JDK is missing: no javac beside {java} or on PATH")
    source = _SOURCES / f"{name}.java"
    subprocess.run([javac, "-d", str(directory), "-cp", classpath, str(source)], check=True, timeout=_COMPILE_TIMEOUT_S)
    logback = directory / "logback.xml"
    logback.write_text(_LOGBACK, encoding="utf-8")
    path = os.pathsep.join((str(directory), classpath))
    return [java, *flags, f"-Dlogback.configurationFile={logback}", "-cp", path, name]


def java_version() -> str:
    """What the machine's Java says that it is."""
    return subprocess.run(
        [java_command(), "--version"], capture_output=True, text=True, check=True
    ).stdout.splitlines()[0]
