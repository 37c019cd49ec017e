"""Go, and programs of a directory of this project with the modules that they need: built once, then cached.

The cache is that of the jars (`java_tools`); one directory for each content of the sources.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
import shutil
import subprocess
from pathlib import Path

from tests.worlds.java_tools import ToolMissing, cache_directory

GO_MINOR_MIN = 19
#: Modules are fetched, and compiled with the standard library, when nothing is cached.
_TIMEOUT_S = 600


def go_command() -> str:
    """The path of a `go` of version 1.19 or later. Raises `ToolMissing`."""
    go = shutil.which("go")
    if go is None:
        raise ToolMissing(f"Go 1.{GO_MINOR_MIN} is missing: no go on PATH")
    answer = subprocess.run([go, "version"], capture_output=True, text=True, check=False, timeout=60).stdout
    found = re.search(r"go1\.(\d+)", answer)
    if found is None or int(found[1]) < GO_MINOR_MIN:
        raise ToolMissing(f"Go 1.{GO_MINOR_MIN} is missing: {go} says {answer.strip()!r}")
    return go


def go_program(source: Path) -> Path:
    """The program of a directory with a Go module. Raises `ToolMissing`, or `RuntimeError` with what the build said."""
    go, content = go_command(), hashlib.sha256()
    for path in sorted(source.iterdir()):
        content.update(path.read_bytes())
    program = cache_directory() / f"{source.name}-{content.hexdigest()[:12]}"
    cache_directory().mkdir(parents=True, exist_ok=True)
    with (cache_directory() / "lock-go").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not program.exists():
            incomplete = program.with_name(f"{program.name}.incomplete")
            command = [go, "build", "-mod=readonly", "-buildvcs=false", "-o", str(incomplete), "."]
            done = subprocess.run(
                command, cwd=source, env=os.environ, capture_output=True, text=True, check=False, timeout=_TIMEOUT_S
            )
            if done.returncode:
                raise RuntimeError(f"{source} could not be built:\n{done.stderr[-4000:]}")
            incomplete.rename(program)
    return program
