"""RocketMQ's own Java client 4.9.7 against a broker of this project and one of RocketMQ 4.9.7, in one run.

`python -m tests.bench.java_clients PART... --rounds 3`, see `--help`. The parts:

    alone, slave, sync   sending to a master alone, with a slave, and to a SYNC_MASTER with a slave: 1, 8 and 32
                         messages under way, synchronous and asynchronous, bodies of 128 B and 1 KiB
    pull                 pulls of 32 messages, of 128 B and 1 KiB, 1 and 4 under way
    start                an empty directory: from the start of the process to the first SEND_OK; resident memory then
    killed               the same over a store of 2 GiB that kill -9 has left; needs 10 GiB in TMPDIR

One Java process has the clients for both (`java/ClientBench.java`), so that its compiler has seen the same of both. All
brokers of a part run at the same time, those that are not measured idle, and the two take turns case by case: a ratio
is of a pair that ran within seconds. `ratio` is the median of the pairs. Every broker has RocketMQ's default settings,
but that no message is refused because the machine is slow (`_PROPERTIES`), with ASYNC_FLUSH and a name server of
RocketMQ's. Latencies and rates are wall time; on a shared machine look at CPU time a message as well.

The client reads one command a line and prints a JSON object for each:

    first NAME_SERVER TOPIC BODY_BYTES                                      failed, once a message was answered SEND_OK
    send NAME_SERVER TOPIC sync|async IN_FLIGHT BODY_BYTES WARM_UP_MS MEASURE_MS
    pull NAME_SERVER TOPIC IN_FLIGHT MESSAGES_MAX WARM_UP_MS MEASURE_MS

The last two print `warm`, and then messages, failed, measured_s, client_cpu_s, p50_us, p99_us of a call.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import attrs

from tests.bench.java_programs import compile_program, java_version
from tests.bench.measuring import bare_checkpoint_us, hardware
from tests.bench.store_recovery import BODY_BYTES, STORE_BYTES
from tests.bench.store_runs import OURS, ROCKETMQ, copy_store, store_programs
from tests.worlds.java_broker import JavaBroker
from tests.worlds.java_name_server import JavaNameServer
from tests.worlds.java_process import JavaRuntime
from tests.worlds.java_tools import java_command, rocketmq_classpath
from tests.worlds.own_broker import BrokerCommand
from tests.worlds.server_process import ServerProcess

#: As bin/runbroker.sh has them, but for a heap of 1 GiB instead of 8 that is not touched before it is used.
BROKER_FLAGS = (
    *("-server", "-Xms1g", "-Xmx1g", "-XX:+UseG1GC", "-XX:G1HeapRegionSize=16m", "-XX:G1ReservePercent=25"),
    *("-XX:InitiatingHeapOccupancyPercent=30", "-XX:SoftRefLRUPolicyMSPerMB=0", "-XX:-OmitStackTraceInFastThrow"),
    *("-XX:MaxDirectMemorySize=1g", "-XX:-UseLargePages"),
    # What Java 17 needs.
    *("--add-opens=java.base/java.nio=ALL-UNNAMED", "--add-exports=java.base/jdk.internal.ref=ALL-UNNAMED"),
    *("-Drocketmq.broker.diskSpaceWarningLevelRatio=0.99", "-Drocketmq.client.logUseSlf4j=true"),
    "-Dtls.server.mode=disabled",
)
CLIENT_FLAGS = ("-Xms512m", "-Xmx512m", "-Drocketmq.client.logUseSlf4j=true")
_PROPERTIES: Mapping[str, str | int] = {
    "mappedFileSizeCommitLog": 1024**3,
    "mappedFileSizeConsumeQueue": 6_000_000,
    "maxHashSlotNum": 5_000_000,
    "maxIndexNum": 20_000_000,
    "brokerIP1": "127.0.0.1",
    "flushDiskType": "ASYNC_FLUSH",
    "diskMaxUsedSpaceRatio": 95,
    "brokerFastFailureEnable": "false",
    "osPageCacheBusyTimeOutMills": 60_000,
}
IN_FLIGHT = (1, 8, 32)
BODIES = (128, 1024)
PULLS = (1, 4)
#: RocketMQ's most.
MESSAGES_A_PULL = 32
ROLES = {"alone": "ASYNC_MASTER", "slave": "ASYNC_MASTER", "sync": "SYNC_MASTER"}
_PARTS = (*ROLES, "pull", "start", "killed")
_WARM_UP_MS, _MEASURE_MS = 500, 1_500
#: For Java's compilers.
_FIRST_WARM_UP_MS = 6_000
_FILL_MS = 3_000
_IDLE_S = 5.0
SENDING_GOAL, PULLING_GOAL, SYNC_P50_GOAL = 1.3, 1.0, 1.0
START_GOAL, MEMORY_GOAL = 0.3, 0.35
KILLED_GOALS = {OURS: 0.2, ROCKETMQ: 0.8}

Numbers = Mapping[str, float]


@attrs.define(eq=False)
class Client:
    """The Java process that has the clients."""

    _process: subprocess.Popen[str]

    def ask(self, *words: object, when_warm: Callable[[], None] | None = None) -> Numbers:
        """Have a command done."""
        assert self._process.stdin is not None
        self._process.stdin.write(" ".join(map(str, words)) + "\n")
        self._process.stdin.flush()
        answer = self.read()
        if "warm" in answer:
            if when_warm is not None:
                when_warm()
            answer = self.read()
        return answer

    def read(self) -> Numbers:
        """What it prints next."""
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError("the Java client has ended; see its stack trace above")
        printed: Numbers = json.loads(line)
        return printed


@attrs.frozen
class Side:
    """One of the two: its name server, and how its brokers are made in a directory."""

    name: str
    name_server: str
    new_broker: Callable[[Path, Mapping[str, str | int]], JavaBroker | BrokerCommand]

    def broker(self, directory: Path, **properties: str | int) -> JavaBroker | BrokerCommand:
        """A broker, not started yet."""
        directory.mkdir()
        own = {"brokerName": "broker-bench", "namesrvAddr": self.name_server}
        return self.new_broker(directory, {**_PROPERTIES, **own, **properties})


@attrs.frozen
class Row:
    """A figure of both sides, this project's first, round by round. `holds`: how the ratio compares with the goal."""

    part: str
    case: str
    unit: str
    sides: tuple[list[float], list[float]]
    holds: str
    goal: float

    @property
    def ratio(self) -> float:
        """The median of the rounds' ratios."""
        ratios = [one / other for one, other in zip(*self.sides, strict=True) if other]
        return statistics.median(ratios) if ratios else float("nan")

    @property
    def verdict(self) -> str:
        """The goal, and whether it is met."""
        if not self.holds:
            return ""
        is_met = self.ratio >= self.goal if self.holds == ">=" else self.ratio <= self.goal
        return f" ({self.holds} {self.goal:g}: {'met' if is_met else 'missed'}, {self.ratio:.2f})"


def rows_of(files: Sequence[Path]) -> tuple[list[Row], list[str]]:
    """The rows of several runs with `--json`, each with the rounds of all; and their notes."""
    rows: dict[tuple[str, str, str], Row] = {}
    notes = dict[str, None]()
    for file in files:
        printed = json.loads(file.read_text(encoding="utf-8"))
        notes |= dict.fromkeys([printed["hardware"], *printed["notes"]])
        for fields in printed["rows"]:
            ours, theirs = fields["sides"]
            key = fields["part"], fields["case"], fields["unit"]
            before = rows[key].sides if key in rows else ([], [])
            sides = [*before[0], *ours], [*before[1], *theirs]
            rows[key] = Row(*key, sides, fields["holds"], fields["goal"])
    return list(rows.values()), list(notes)


@attrs.define(eq=False)
class Bench:
    """What all parts need, and the rows that they have made."""

    client: Client
    sides: Sequence[Side]
    directory: Path
    rounds: int
    rows: list[Row] = attrs.field(factory=list)
    notes: list[str] = attrs.field(factory=list)

    def new_directory(self) -> Path:
        """A fresh one."""
        return Path(tempfile.mkdtemp(dir=self.directory))

    def add(
        self, part: str, case: str, unit: str, pairs: Mapping[str, Sequence[float]], holds: str = "", goal: float = 0
    ) -> None:
        """A row; `holds` is >= or <= where there is a goal."""
        self.rows.append(Row(part, case, unit, (list(pairs[OURS]), list(pairs[ROCKETMQ])), holds, goal))


@contextlib.contextmanager
def java_client() -> Iterator[Client]:
    """The client, for the length of a block."""
    with tempfile.TemporaryDirectory(prefix="client-bench-") as directory:
        command = compile_program("ClientBench", CLIENT_FLAGS, Path(directory))
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
            try:
                client = Client(process)
                client.read()
                yield client
            finally:
                process.kill()


@contextlib.contextmanager
def both_sides(directory: Path) -> Iterator[Sequence[Side]]:
    """Both, each with a name server of RocketMQ's that runs."""
    runtime = JavaRuntime(java_command(), rocketmq_classpath())
    with contextlib.ExitStack() as running:
        sides = []
        for number, name in enumerate((OURS, ROCKETMQ)):
            home = directory / f"namesrv-{number}"
            home.mkdir()
            server = JavaNameServer(home, runtime)
            running.callback(server.kill)
            server.start()

            def new_broker(
                home: Path, properties: Mapping[str, str | int], *, name: str = name
            ) -> JavaBroker | BrokerCommand:
                if name == OURS:
                    return BrokerCommand(home, properties)
                return JavaBroker(home, runtime, properties, java_flags=BROKER_FLAGS)

            sides.append(Side(name, server.address, new_broker))
        yield sides


def cpu_s(process: ServerProcess) -> float:
    """CPU time of all threads of a process."""
    return time.clock_gettime(~process.pid << 3 | 2)


def resident_mb(process: ServerProcess) -> float:
    """What of a process is in memory, mapped files included."""
    for line in Path(f"/proc/{process.pid}/status").read_text(encoding="ascii").splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) / 1024
    raise RuntimeError(f"no VmRSS of process {process.pid}")


def measured(client: Client, brokers: Sequence[ServerProcess], *words: object) -> dict[str, float]:
    """What the client says of a command, and the brokers' CPU time while it is measured."""
    began: list[float] = []
    answer = client.ask(
        *words, _WARM_UP_MS, _MEASURE_MS, when_warm=lambda: began.extend(cpu_s(each) for each in brokers)
    )
    ended = [cpu_s(each) for each in brokers]
    messages = answer["messages"] or float("nan")
    cpu_us = [(end - begin) / messages * 1e6 for begin, end in zip(began, ended, strict=True)]
    return {
        **answer,
        "per_s": answer["messages"] / answer["measured_s"],
        "client_us": answer["client_cpu_s"] / messages * 1e6,
        **{f"broker_{number}_us": value for number, value in enumerate(cpu_us)},
    }


def send(bench: Bench, part: str) -> None:
    """The parts alone, slave and sync."""
    modes = itertools.product(("sync", "async"), IN_FLIGHT, BODIES)
    cases = list(modes)
    runs: dict[tuple[tuple[str, int, int], str], list[dict[str, float]]] = {}
    with contextlib.ExitStack() as running:
        brokers = {side.name: start_brokers(bench, side, part, running) for side in bench.sides}
        for side in bench.sides:
            for body in BODIES:
                bench.client.ask("send", side.name_server, "TopicBench", "async", 32, body, 0, _FIRST_WARM_UP_MS // 2)
                bench.client.ask("send", side.name_server, "TopicBench", "sync", 8, body, 0, _FIRST_WARM_UP_MS // 4)
        for number, case, side in itertools.product(range(bench.rounds), cases, bench.sides):
            mode, in_flight, body = case
            if part == "sync" and not number and case == cases[0]:
                bench.client.ask("first", side.name_server, "TopicBench", body)
            run = measured(
                bench.client, brokers[side.name], "send", side.name_server, "TopicBench", mode, in_flight, body
            )
            runs.setdefault((case, side.name), []).append(run)
    for case in cases:
        add_runs(bench, part, case, {side.name: runs[case, side.name] for side in bench.sides})


def start_brokers(bench: Bench, side: Side, part: str, running: contextlib.ExitStack) -> list[ServerProcess]:
    """Those of a part: a master, and its slave. Returns when the master sends to the slave."""
    home = bench.new_directory()
    running.callback(shutil.rmtree, home)
    master = side.broker(home / "master", brokerRole=ROLES[part])
    running.callback(master.kill)
    master.start()
    brokers: list[ServerProcess] = [master]
    if part != "alone":
        slave = side.broker(home / "slave", brokerRole="SLAVE", brokerId=1, haMasterAddress=master.ha_address)
        running.callback(slave.kill)
        slave.start()
        brokers.append(slave)
    bench.client.ask("first", side.name_server, "TopicBench", BODIES[0])
    return brokers


def add_runs(
    bench: Bench, part: str, case: tuple[str, int, int], runs: Mapping[str, Sequence[Mapping[str, float]]]
) -> None:
    """The rows of one case of sending."""
    mode, in_flight, body = case
    name = f"{mode}, {in_flight} in flight, {body} B"

    def values(key: str) -> dict[str, list[float]]:
        return {side: [run[key] for run in of_side] for side, of_side in runs.items()}

    bench.add(part, name, "messages/s", values("per_s"), ">=", SENDING_GOAL)
    if part == "sync" and in_flight == 1:
        bench.add(part, name, "p50 us", values("p50_us"), "<=", SYNC_P50_GOAL)
    else:
        bench.add(part, name, "p50 us", values("p50_us"))
    bench.add(part, name, "p99 us", values("p99_us"))
    bench.add(part, name, "master CPU us", values("broker_0_us"))
    if part != "alone":
        bench.add(part, name, "slave CPU us", values("broker_1_us"))
    bench.add(part, name, "client CPU us", values("client_us"))
    note_failures(bench, f"{part}: {name}", runs)


def note_failures(bench: Bench, case: str, runs: Mapping[str, Sequence[Mapping[str, float]]]) -> None:
    """Say what was not answered SEND_OK."""
    for side, of_side in runs.items():
        failed = sum(run["failed"] for run in of_side)
        if failed:
            bench.notes.append(f"{case}, {side}: {failed:.0f} messages were not answered SEND_OK")


def pull(bench: Bench) -> None:
    """Pulls from a topic that was filled before."""
    cases = list(itertools.product(PULLS, BODIES))
    runs: dict[tuple[tuple[int, int], str], list[dict[str, float]]] = {}
    with contextlib.ExitStack() as running:
        brokers = {side.name: start_brokers(bench, side, "alone", running) for side in bench.sides}
        for side, body in itertools.product(bench.sides, BODIES):
            topic = f"TopicPull{body}"
            bench.client.ask("send", side.name_server, topic, "async", 32, body, 0, _FILL_MS)
            for in_flight in PULLS:
                bench.client.ask("pull", side.name_server, topic, in_flight, MESSAGES_A_PULL, 0, _FIRST_WARM_UP_MS // 2)
        for _, case, side in itertools.product(range(bench.rounds), cases, bench.sides):
            in_flight, body = case
            words = ("pull", side.name_server, f"TopicPull{body}", in_flight, MESSAGES_A_PULL)
            runs.setdefault((case, side.name), []).append(measured(bench.client, brokers[side.name], *words))
    for case in cases:
        in_flight, body = case
        name = f"pulls of {MESSAGES_A_PULL}, {in_flight} in flight, {body} B"
        of_sides = {side.name: runs[case, side.name] for side in bench.sides}

        def values(key: str, of_sides: Mapping[str, Sequence[Numbers]] = of_sides) -> dict[str, list[float]]:
            return {side: [run[key] for run in of_side] for side, of_side in of_sides.items()}

        bench.add("pull", name, "messages/s", values("per_s"), ">=", PULLING_GOAL)
        bench.add("pull", name, "p50 us a pull", values("p50_us"))
        bench.add("pull", name, "p99 us a pull", values("p99_us"))
        bench.add("pull", name, "broker CPU us", values("broker_0_us"))
        bench.add("pull", name, "client CPU us", values("client_us"))


def first_send_ok(bench: Bench, side: Side, broker: JavaBroker | BrokerCommand, topic: str) -> float:
    """Seconds from the start of a broker's process to the answer to the first message."""
    answered_s: list[float] = []

    def ask() -> None:
        bench.client.ask("first", side.name_server, topic, BODIES[0])
        answered_s.append(time.perf_counter())

    asking = threading.Thread(target=ask)
    asking.start()
    began_s = time.perf_counter()
    broker.start()
    asking.join()
    return answered_s[0] - began_s


def start(bench: Bench) -> None:
    """Starts in an empty directory."""
    took: dict[str, list[float]] = {side.name: [] for side in bench.sides}
    used: dict[str, list[float]] = {side.name: [] for side in bench.sides}
    resident: dict[str, list[float]] = {side.name: [] for side in bench.sides}
    for number, side in itertools.product(range(bench.rounds), bench.sides):
        home = bench.new_directory()
        broker = side.broker(home / "broker")
        try:
            took[side.name].append(first_send_ok(bench, side, broker, f"TopicStart{number}"))
            used[side.name].append(cpu_s(broker))
            time.sleep(_IDLE_S)
            resident[side.name].append(resident_mb(broker))
            broker.stop()
        finally:
            broker.kill()
            shutil.rmtree(home)
    bench.add("start", "process start to the first SEND_OK", "s", took, "<=", START_GOAL)
    bench.add("start", "its CPU time until then", "s", used)
    bench.add("start", f"resident memory, idle for {_IDLE_S:g} s", "MiB", resident, "<=", MEMORY_GOAL)


def killed(bench: Bench) -> None:
    """Starts over what kill -9 has left."""
    took: dict[str, list[float]] = {}
    used: dict[str, list[float]] = {}
    stores = bench.new_directory()
    with store_programs() as (programs, _):
        for name, program in programs.items():
            filled = program.fill_and_kill(stores / name, BODY_BYTES, STORE_BYTES)
            bench.notes.append(f"{name} left {filled['messages']:,.0f} messages, {filled['end_offset']:,.0f} bytes")
    opens = {
        f"{OURS} its own": (bench.sides[0], OURS),
        f"{OURS} RocketMQ's": (bench.sides[0], ROCKETMQ),
        f"{ROCKETMQ} its own": (bench.sides[1], ROCKETMQ),
    }
    for number, (case, (side, source)) in itertools.product(range(bench.rounds), opens.items()):
        home = bench.new_directory()
        broker = side.broker(home / "broker")
        copy_store(stores / source, broker.store)
        try:
            took.setdefault(case, []).append(first_send_ok(bench, side, broker, f"TopicKilled{number}-{len(case)}"))
            used.setdefault(case, []).append(cpu_s(broker))
        finally:
            broker.kill()
            shutil.rmtree(home)
    shutil.rmtree(stores)
    theirs = f"{ROCKETMQ} its own"
    for source, words in ((OURS, "its own"), (ROCKETMQ, "RocketMQ's")):
        ours, goal = f"{OURS} {words}", KILLED_GOALS[source]
        row = f"process start to the first SEND_OK, {words} directory"
        bench.add("killed", row, "s", {OURS: took[ours], ROCKETMQ: took[theirs]}, "<=", goal)
        bench.add("killed", f"its CPU time, {words} directory", "s", {OURS: used[ours], ROCKETMQ: used[theirs]})


def print_rows(rows: Sequence[Row], notes: Sequence[str]) -> None:
    """A table in Markdown: a line a case, with its other figures as medians, this project's before RocketMQ's."""
    lines = ["| | | rmq-actors | RocketMQ 4.9.7 | ratio | goal | besides |", "|--|--|--|--|--|--|--|"]
    for (part, case), of_case in itertools.groupby(rows, key=lambda row: (row.part, row.case)):
        first, *others = of_case
        if others:
            besides = "; ".join(f"{row.unit} {' / '.join(map(median, row.sides))}{row.verdict}" for row in others)
        else:
            besides = ""
        cells = (f"{part}: {case}", first.unit, *map(spread, first.sides), f"{first.ratio:.2f}")
        lines.append(f"| {' | '.join(cells)} | {first.verdict.strip()} | {besides} |")
    sys.stdout.write("\n".join((*lines, "", *notes)) + "\n")


def median(values: Sequence[float]) -> str:
    """Of three digits, or all before the point."""
    value = statistics.median(values)
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def spread(values: Sequence[float]) -> str:
    """Minimum / median / maximum."""
    return " / ".join(median([value]) for value in (min(values), statistics.median(values), max(values)))


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("parts", nargs="*", help=f"what is measured, of {', '.join(_PARTS)}")
    parser.add_argument("--rounds", type=int, default=3, help="rounds a figure (default 3)")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--read", nargs="+", type=Path, metavar="FILE", help="the table of earlier runs with --json")
    options = parser.parse_args()
    if unknown := set(options.parts) - set(_PARTS):
        parser.error(f"no such parts: {', '.join(sorted(unknown))}")
    if options.read:
        print_rows(*rows_of(options.read))
        return
    # An installed program is compiled once: not at each start, which takes half a second.
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    checkpoint_us = bare_checkpoint_us()
    with (
        tempfile.TemporaryDirectory(prefix="java-clients-") as directory,
        java_client() as client,
        both_sides(Path(directory)) as sides,
    ):
        bench = Bench(client, sides, Path(directory), options.rounds)
        bench.notes.append(f"a bare Trio checkpoint takes {checkpoint_us:.1f} us; {java_version()}")
        bench.notes.append(f"RocketMQ's broker: {' '.join(BROKER_FLAGS)}; the client: {' '.join(CLIENT_FLAGS)}")
        parts: Mapping[str, Callable[[Bench], None]] = {"pull": pull, "start": start, "killed": killed}
        for part in options.parts:
            if part in ROLES:
                send(bench, part)
            else:
                parts[part](bench)
        if options.json:
            facts = {"hardware": hardware(), "notes": bench.notes, "rows": [attrs.asdict(row) for row in bench.rows]}
            sys.stdout.write(json.dumps(facts, indent=1) + "\n")
        else:
            print_rows(bench.rows, [hardware(), *bench.notes])


if __name__ == "__main__":
    main()
