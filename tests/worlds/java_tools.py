"""Java, Maven, and the jars of the real RocketMQ: found or fetched once, then cached.

The cache is `$RMQ_ACTORS_CACHE`, else `~/.cache/rmq-actors`; one directory for each content of a POM. With a filled
cache neither Maven nor a network is needed.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
import shutil
import subprocess
from pathlib import Path

POM = Path(__file__).with_name("pom.xml")
#: The broker of RocketMQ 5.3.1.
POM_5 = Path(__file__).with_name("pom-5.xml")
JAVA_MAJOR_MIN = 17
MAVEN_TIMEOUT_S = 600
#: A repository does not always answer.
MAVEN_TRIES = 3


class ToolMissing(Exception):
    """The machine lacks Java 17 or Maven; says which."""


def java_command() -> str:
    """The path of a `java` of version 17 or later. Raises `ToolMissing`."""
    home = os.environ.get("JAVA_HOME")
    java = shutil.which("java", path=str(Path(home, "bin"))) if home else shutil.which("java")
    if java is None:
        where = f"under JAVA_HOME={home}" if home else "on PATH"
        raise ToolMissing(f"Java {JAVA_MAJOR_MIN} is missing: no java {where}")
    answer = subprocess.run([java, "-version"], capture_output=True, text=True, check=False, timeout=60).stderr
    found = re.search(r'version "(\d+)', answer)
    if found is None or int(found[1]) < JAVA_MAJOR_MIN:
        raise ToolMissing(f"Java {JAVA_MAJOR_MIN} is missing: {java} says {answer.strip()!r}")
    return java


def cache_directory() -> Path:
    """Where fetched jars are kept."""
    given = os.environ.get("RMQ_ACTORS_CACHE")
    return Path(given) if given else Path.home() / ".cache" / "rmq-actors"


def rocketmq_classpath(pom: Path = POM) -> str:
    """The class path of the RocketMQ that a POM names, resolved by Maven the first time.

    Safe in several processes at once: one resolves, the others wait. Raises `ToolMissing` if Maven is needed and not
    there, `RuntimeError` with Maven's output if it fails.
    """
    jars = cache_directory() / f"rocketmq-{hashlib.sha256(pom.read_bytes()).hexdigest()[:12]}"
    cache_directory().mkdir(parents=True, exist_ok=True)
    with (cache_directory() / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not jars.is_dir():
            _fetch(pom, jars)
    return os.pathsep.join(str(jar) for jar in sorted(jars.glob("*.jar")))


def _fetch(pom: Path, jars: Path) -> None:
    maven = shutil.which("mvn")
    if maven is None:
        raise ToolMissing(f"Maven is missing: no mvn on PATH to fetch RocketMQ with, and nothing in {jars}")
    java_command()
    incomplete = jars.with_name(jars.name + ".incomplete")
    command = [maven, "--batch-mode", "--file", str(pom)]
    # Not to believe what it noted of an earlier failure.
    command += ["dependency:copy-dependencies", f"-DoutputDirectory={incomplete}", "--update-snapshots"]
    for _ in range(MAVEN_TRIES):
        shutil.rmtree(incomplete, ignore_errors=True)
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=MAVEN_TIMEOUT_S)
        if not done.returncode and list(incomplete.glob("rocketmq-broker-*.jar")):
            incomplete.rename(jars)
            return
    raise RuntimeError(f"Maven could not fetch what {pom} names (exit {done.returncode}):\n{done.stdout[-4000:]}")
