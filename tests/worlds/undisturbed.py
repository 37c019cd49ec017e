"""A client that does its work while others load the broker, and what its broker holds meanwhile."""

from __future__ import annotations

import contextlib
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import attrs

from tests.worlds.java_client import PULL_MESSAGE, JavaClient

TOPIC = "TopicUndisturbed"
_PROJECT = Path(__file__).parents[2]
_BODY = bytes(128)
_PULL_FLAGS = 4


@attrs.frozen
class Seen:
    """How long its calls took, and the most of the broker's memory that files do not back."""

    sends_ms: Sequence[float]
    pulls_ms: Sequence[float]
    anonymous_mb: float

    @property
    def p99_ms(self) -> float:
        """Of sends and pulls alike."""
        return quantile([*self.sends_ms, *self.pulls_ms], 0.99)


def quantile(values: Sequence[float], share: float) -> float:
    """The value that so many are not above."""
    return sorted(values)[min(len(values) - 1, int(len(values) * share))]


def work(port: int, pid: int, calls: int, pause_s: float = 0.0) -> Seen:
    """Send a message and pull it, one call at a time, so often."""
    sends_ms, pulls_ms, anonymous_mb = list[float](), list[float](), 0.0
    with JavaClient.connect(port) as client:
        for number in range(calls):
            began_s = time.perf_counter()
            sent = client.put(TOPIC, _BODY, queue_id=number % 4)
            sent_s = time.perf_counter()
            # The queue may lag behind the answer by a moment: then the pull finds nothing yet, which is an answer, too.
            client.call(PULL_MESSAGE, _pull_fields(sent.queue_id, sent.queue_offset))
            pulled_s = time.perf_counter()
            sends_ms.append((sent_s - began_s) * 1e3)
            pulls_ms.append((pulled_s - sent_s) * 1e3)
            if not number % 16:
                anonymous_mb = max(anonymous_mb, memory_mb(pid, "RssAnon"))
            if pause_s:
                time.sleep(pause_s)
    return Seen(sends_ms, pulls_ms, anonymous_mb)


def memory_mb(pid: int, line: str) -> float:
    """A line of a process's status: VmRSS, or of that RssAnon or RssFile."""
    for each in Path(f"/proc/{pid}/status").read_text(encoding="ascii").splitlines():
        if each.startswith(f"{line}:"):
            return int(each.split()[1]) / 1024
    raise ValueError(f"no {line} of process {pid}")


@contextlib.contextmanager
def load_process(kind: str, port: int) -> Iterator[subprocess.Popen[str]]:
    """A load that is under way, for the length of a block."""
    command = [sys.executable, "-m", "tests.worlds.broker_loads", kind, str(port)]
    with subprocess.Popen(command, cwd=_PROJECT, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            if not process.stdout.readline():
                raise RuntimeError(f"the load {kind} has ended, exit code {process.wait()}")
            yield process
            if process.poll() is not None:
                raise RuntimeError(f"the load {kind} has ended, exit code {process.returncode}")
        finally:
            process.kill()


def _pull_fields(queue_id: int, offset: int) -> dict[str, object]:
    return {
        "consumerGroup": "CG_undisturbed",
        "topic": TOPIC,
        "queueId": queue_id,
        "queueOffset": offset,
        "maxMsgNums": 32,
        "sysFlag": _PULL_FLAGS,
        "commitOffset": 0,
        "suspendTimeoutMillis": 0,
        "subscription": "*",
        "subVersion": 0,
        "expressionType": "TAG",
    }
