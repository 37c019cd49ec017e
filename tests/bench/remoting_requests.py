"""Requests of an empty processor: CPU time of the server's process a request, and requests a second.

`python -m tests.bench.remoting_requests --help`. Requests are SEND_MESSAGE_V2 frames; a connection has so many under
way, and sends as many new ones as answers have come. The load is made by this process. Beside each figure that of a
bare Trio loop (`remoting_server`), measured in the same round: what a server costs that does nothing but split frames.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import select
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence

import attrs
import rich.console
import rich.table

from rmq_actors.wire.remoting_command import RemotingCommand, encode_command
from rmq_actors.wire.request_code import RequestCode
from tests.bench.measuring import arguments, hardware
from tests.bench.remoting_server import answer

REMOTING, BARE = "remoting", "bare"
BODIES_BYTES = (128, 1024)
CONNECTIONS = (1, 4, 8, 32)
IN_FLIGHT = (1, 8, 32)
#: One opaque for all requests: nobody looks at it here, and all answers have one length.
OPAQUE = 1_234_567
_WARM_UP_S, _MEASURE_S = 0.05, 0.3
_WIDTH = 120


@attrs.frozen
class Shape:
    """How much is asked at a time."""

    body_bytes: int
    connections: int
    in_flight: int

    def __str__(self) -> str:
        return f"{self.body_bytes} B, {self.connections} x {self.in_flight}"


@attrs.frozen
class Run:
    """CPU microseconds of the server's process a request, and requests a second."""

    cpu_us: float
    per_second: float


@attrs.frozen
class ServerProcess:
    """One of the two servers."""

    port: int
    pid: int

    def cpu_s(self) -> float:
        """CPU time of all its threads: its CPU-time clock, as clock_getcpuclockid(3) names it on Linux."""
        return time.clock_gettime(~self.pid << 3 | 2)


@contextlib.contextmanager
def server_process(name: str, *, answer_body_bytes: int = 0) -> Iterator[ServerProcess]:
    """Run a server for the length of a block. The bare one's answers may have bodies."""
    command = [sys.executable, "-m", "tests.bench.remoting_server", name, str(OPAQUE), str(answer_body_bytes)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            yield ServerProcess(int(process.stdout.readline()), process.pid)
        finally:
            process.kill()


def request(body_bytes: int) -> bytes:
    """A SEND_MESSAGE_V2 as Java's client sends it."""
    fields = {
        "a": "ProducerGroupName", "b": "TopicTest", "c": "TBW102", "d": "4", "e": "2", "f": "0", "g": "1700000000123",
        "h": "0", "i": "UNIQ_KEY\x017F00000100002A139A5542CA1C6E0000\x02WAIT\x01true\x02TAGS\x01TagA",
        "j": "0", "k": "false", "m": "false", "bname": "broker-a",
    }  # fmt: skip
    command = RemotingCommand(RequestCode.SEND_MESSAGE_V2, fields, opaque=OPAQUE, body=b"x" * body_bytes)
    command.language = "JAVA"
    return encode_command(command)


def measure(server: ServerProcess, shape: Shape) -> Run:
    """Keep a server busy for a while."""
    frame = request(shape.body_bytes)
    answer_bytes = len(encode_command(answer(RemotingCommand(RequestCode.SEND_MESSAGE_V2, opaque=OPAQUE))))
    frames = [frame * count for count in range(shape.in_flight + 1)]
    answered = 0
    with contextlib.ExitStack() as stack, select.epoll() as epoll:
        peers = {}
        for _ in range(shape.connections):
            peer = stack.enter_context(socket.create_connection(("127.0.0.1", server.port)))
            peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            epoll.register(peer, select.EPOLLIN)
            peers[peer.fileno()] = peer
        rests = dict.fromkeys(peers, 0)

        def run_until(end_s: float) -> None:
            nonlocal answered
            while time.perf_counter() < end_s:
                for number, _ in epoll.poll(1.0):
                    data = peers[number].recv(65_536)
                    if not data:
                        raise ConnectionError("the server closed a connection")
                    count, rests[number] = divmod(rests[number] + len(data), answer_bytes)
                    answered += count
                    peers[number].sendall(frames[count])

        for peer in peers.values():
            peer.sendall(frames[-1])
        run_until(time.perf_counter() + _WARM_UP_S)
        answered, began_s, cpu_began_s = 0, time.perf_counter(), server.cpu_s()
        run_until(began_s + _MEASURE_S)
        cpu_s, wall_s = server.cpu_s() - cpu_began_s, time.perf_counter() - began_s
    return Run(cpu_s / answered * 1e6, answered / wall_s)


def take_turns(shapes: Sequence[Shape], rounds: int) -> Mapping[tuple[Shape, str], list[Run]]:
    """Each shape in each round with both servers, one after the other; and once before for nothing."""
    runs: dict[tuple[Shape, str], list[Run]] = {(shape, name): [] for shape in shapes for name in (REMOTING, BARE)}
    with server_process(REMOTING) as remoting, server_process(BARE) as bare:
        servers = {REMOTING: remoting, BARE: bare}
        for server in servers.values():
            measure(server, shapes[-1])
        for _, shape, name in itertools.product(range(rounds), shapes, servers):
            runs[shape, name].append(measure(servers[name], shape))
    return runs


def _spread(values: Sequence[float]) -> list[str]:
    return [f"{value:,.1f}" for value in (min(values), statistics.median(values), max(values))]


def report(shapes: Sequence[Shape], runs: Mapping[tuple[Shape, str], list[Run]], *, as_json: bool) -> None:
    """A row a shape, or all runs as JSON."""
    load = f"load average {', '.join(f'{each:.1f}' for each in os.getloadavg())}"
    if as_json:
        rows = [{**attrs.asdict(shape), "server": name, "runs": [attrs.asdict(run) for run in runs[shape, name]]}
                for shape, name in runs]  # fmt: skip
        sys.stdout.write(json.dumps({"hardware": hardware(), "load": load, "rows": rows}, indent=1) + "\n")
        return
    table = rich.table.Table(title=hardware())
    table.add_column("body, connections x in flight")
    for column in (
        "CPU us a request: min",
        "median",
        "max",
        "requests/s",
        "bare: min",
        "median",
        "max",
        "requests/s",
        "x",
    ):
        table.add_column(column, justify="right")
    for shape in shapes:
        ours, bare = runs[shape, REMOTING], runs[shape, BARE]
        ratio = statistics.median(one.cpu_us / other.cpu_us for one, other in zip(ours, bare, strict=True))
        cells = [str(shape)]
        for each in (ours, bare):
            cells += _spread([run.cpu_us for run in each])
            cells.append(f"{statistics.median(run.per_second for run in each):,.0f}")
        table.add_row(*cells, f"{ratio:.1f}")
    console = rich.console.Console(width=_WIDTH)
    console.print(table)
    console.print(f"x: times the bare loop's CPU time, median of pairs. {load}")


def main() -> None:
    """Measure and print."""
    options = arguments(__doc__, rounds=5)
    shapes = [Shape(*each) for each in itertools.product(BODIES_BYTES, CONNECTIONS, IN_FLIGHT)]
    report(shapes, take_turns(shapes, options.rounds), as_json=options.json)


if __name__ == "__main__":
    main()
