"""What others notice while a broker is under load, and what its process holds. `python -m tests.bench.broker_load`.

For each load of `tests.worlds.broker_loads`, in a process of its own, and each round a fresh broker with default
settings. A client that behaves sends a message of 128 B and pulls it, again and again with a pause of 2 ms in between:
its latencies are wall time, before the load, during and after it. Then a broker of 10,000 topics, each with a message
that is not yet on the disk: how long it takes to stop and to start, as processes.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import attrs

from tests.bench.measuring import bare_checkpoint_us, hardware
from tests.worlds.broker_loads import LOADS, fill, send_all, send_frame
from tests.worlds.java_broker import write_topics
from tests.worlds.own_broker import BrokerCommand
from tests.worlds.undisturbed import Seen, load_process, memory_mb, quantile, work

_CALLS = 600
_PAUSE_S = 0.002
_TOPICS = 10_000
_FILE_BYTES = 1024**3
_TOPICS_GOAL_S = 2.0
#: Those that RocketMQ has, in place of the small ones that tests take.
_PROPERTIES = {
    "mappedFileSizeCommitLog": _FILE_BYTES,
    "mappedFileSizeConsumeQueue": 6_000_000,
    "maxHashSlotNum": 5_000_000,
    "maxIndexNum": 20_000_000,
}


@attrs.frozen
class Phase:
    """What a client saw in a time, and what the broker held at its end."""

    seen: Seen
    resident_mb: float
    cpu_share: float


def phase(broker: BrokerCommand) -> Phase:
    """Have the client do its work."""
    began_s, cpu_began_s = time.perf_counter(), cpu_s(broker)
    seen = work(broker.listen_port, broker.pid, _CALLS, _PAUSE_S)
    share = (cpu_s(broker) - cpu_began_s) / (time.perf_counter() - began_s)
    return Phase(seen, memory_mb(broker.pid, "VmRSS"), share)


def cpu_s(broker: BrokerCommand) -> float:
    """CPU time of all threads of a broker."""
    return time.clock_gettime(~broker.pid << 3 | 2)


def under_load(kind: str, directory: Path) -> list[Phase]:
    """Before, during and after one load."""
    broker = BrokerCommand(directory, _PROPERTIES)
    try:
        broker.start()
        fill(broker.listen_port)
        work(broker.listen_port, broker.pid, 50)
        before = phase(broker)
        with load_process(kind, broker.listen_port):
            during = phase(broker)
        return [before, during, phase(broker)]
    finally:
        broker.kill()


def many_topics(directory: Path) -> dict[str, float]:
    """Seconds that a stop and a start take."""
    broker = BrokerCommand(directory, _PROPERTIES)
    names = [f"TopicOfMany{number}" for number in range(_TOPICS)]
    write_topics(broker.store, dict.fromkeys(names, 1))
    took = {}
    try:
        broker.start()
        send_all(broker.listen_port, [send_frame(name, b"x") for name in names])
        for what in ("first stop", "stop with nothing new"):
            began_s = time.perf_counter()
            broker.stop()
            stopped_s = time.perf_counter()
            took[what] = stopped_s - began_s
            broker.start()
            took["start"] = time.perf_counter() - stopped_s
        took["resident MB"] = memory_mb(broker.pid, "VmRSS")
    finally:
        broker.kill()
    return took


def spread(values: Sequence[float]) -> str:
    """Minimum / median / maximum."""
    return " / ".join(f"{each:.3g}" for each in (min(values), statistics.median(values), max(values)))


def table_of(kind: str, rounds: Sequence[Sequence[Phase]]) -> list[str]:
    """A row for each phase."""
    lines = []
    for number, name in enumerate(("before", "during", "after")):
        phases = [phases[number] for phases in rounds]
        cells = (
            spread([quantile(each.seen.sends_ms, 0.5) for each in phases]),
            spread([quantile(each.seen.sends_ms, 0.99) for each in phases]),
            spread([quantile(each.seen.pulls_ms, 0.99) for each in phases]),
            spread([each.seen.anonymous_mb for each in phases]),
            spread([each.resident_mb for each in phases]),
            spread([100 * each.cpu_share for each in phases]),
        )
        lines.append(f"| {kind} | {name} | {' | '.join(cells)} |")
    return lines


def main() -> None:
    """Measure and print, in Markdown."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("kinds", nargs="*", default=[*LOADS, "topics"], help="loads, and topics; all by default")
    parser.add_argument("--rounds", type=int, default=3, help="rounds a figure (default 3)")
    options = parser.parse_args()
    # An installed program is compiled once: not at each start, which takes half a second.
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    say(f"{hardware()}; a bare Trio checkpoint takes {bare_checkpoint_us():.1f} us")
    say("")
    say("| load | | send p50 ms | send p99 ms | pull p99 ms | anonymous MB | resident MB | CPU % |")
    say("|--|--|--|--|--|--|--|--|")
    with tempfile.TemporaryDirectory(prefix="broker-load-") as scratch:
        for kind in options.kinds:
            rounds: list[list[Phase]] = []
            topics: list[dict[str, float]] = []
            for _ in range(options.rounds):
                directory = Path(tempfile.mkdtemp(dir=scratch))
                if kind == "topics":
                    topics.append(many_topics(directory))
                else:
                    rounds.append(under_load(kind, directory))
                shutil.rmtree(directory)
            if rounds:
                say(*table_of(kind, rounds))
            if topics:
                say("", f"{_TOPICS:,} topics; goal: start and stop <= {_TOPICS_GOAL_S:g} s")
                say(*(f"{what}: {spread([each[what] for each in topics])}" for what in topics[0]))


def say(*lines: str) -> None:
    """Print, at once: the whole takes minutes."""
    sys.stdout.write("".join(f"{line}\n" for line in lines))
    sys.stdout.flush()


if __name__ == "__main__":
    main()
