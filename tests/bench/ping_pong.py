"""What no put that waits for a slave can beat: as many bytes there, a report back, between two processes on loopback.

`python -m tests.bench.ping_pong trio` (or `sockets`, which block) prints the median, the 99th percentile, and the CPU
time of either process for each put, as JSON.
Nothing is stored, parsed or awaited but the bytes: in Trio that is one wake-up on either side.
"""

from __future__ import annotations

import json
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence

import trio

from tests.bench.measuring import process_cpu_s

KINDS = ("trio", "sockets")
_PUT_BYTES = 1024 + 91 + 12
_REPORT_BYTES = 8
_WARM_UP = 1_600
_MESSAGES = 6_400


def run(kind: str) -> dict[str, float]:
    """`measure` in a process of its own."""
    command = [sys.executable, "-m", "tests.bench.ping_pong", kind]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    printed: dict[str, float] = json.loads(done.stdout)
    return printed


def measure(kind: str) -> dict[str, float]:
    """Ask as often as puts are measured; times in us, CPU times with those of the first puts, which warm up."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        with subprocess.Popen([sys.executable, "-m", "tests.bench.ping_pong", kind, str(port)]) as answerer:
            try:
                connection, _ = server.accept()
                with connection:
                    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                    began_s, answerer_began_s = time.process_time(), process_cpu_s(answerer.pid)
                    waits = _ask(connection) if kind == "sockets" else trio.run(_ask_in_trio, connection)
                    cpu_s = time.process_time() - began_s
                    answerer_cpu_s = process_cpu_s(answerer.pid) - answerer_began_s
            finally:
                answerer.kill()
    waits.sort()
    return {
        "p50_us": statistics.median(waits) * 1e6,
        "p99_us": waits[len(waits) * 99 // 100] * 1e6,
        "cpu_us": cpu_s / (_WARM_UP + _MESSAGES) * 1e6,
        "answerer_cpu_us": answerer_cpu_s / (_WARM_UP + _MESSAGES) * 1e6,
    }


def _ask(connection: socket.socket) -> list[float]:
    put, waits = bytes(_PUT_BYTES), []
    for number in range(_WARM_UP + _MESSAGES):
        began_s = time.perf_counter()
        connection.sendall(put)
        received = 0
        while received < _REPORT_BYTES:
            received += len(connection.recv(_REPORT_BYTES))
        if number >= _WARM_UP:
            waits.append(time.perf_counter() - began_s)
    return waits


async def _ask_in_trio(connection: socket.socket) -> list[float]:
    connection.setblocking(False)
    stream = trio.socket.from_stdlib_socket(connection)
    put, waits = bytes(_PUT_BYTES), []
    for number in range(_WARM_UP + _MESSAGES):
        began_s = time.perf_counter()
        connection.send(put)  # as a store does: without a checkpoint, and there is room
        received = 0
        while received < _REPORT_BYTES:
            received += len(await stream.recv(_REPORT_BYTES))
        if number >= _WARM_UP:
            waits.append(time.perf_counter() - began_s)
    return waits


def _answer(connection: socket.socket) -> None:
    buffer, report = bytearray(_PUT_BYTES), bytes(_REPORT_BYTES)
    received = 0
    while size := connection.recv_into(memoryview(buffer)[received:]):
        received += size
        if received == _PUT_BYTES:
            received = 0
            connection.sendall(report)


async def _answer_in_trio(connection: socket.socket) -> None:
    connection.setblocking(False)
    stream = trio.socket.from_stdlib_socket(connection)
    buffer, report = bytearray(_PUT_BYTES), bytes(_REPORT_BYTES)
    received = 0
    while size := await stream.recv_into(memoryview(buffer)[received:]):
        received += size
        if received == _PUT_BYTES:
            received = 0
            await stream.send(report)


def main(arguments: Sequence[str]) -> None:
    """Measure, or answer who does."""
    kind, *port = arguments
    if kind not in KINDS:
        raise ValueError(f"{kind!r} is none of {', '.join(KINDS)}")
    if not port:
        sys.stdout.write(json.dumps(measure(kind)) + "\n")
        return
    with socket.create_connection(("127.0.0.1", int(port[0]))) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if kind == "sockets":
            _answer(connection)
        else:
            trio.run(_answer_in_trio, connection)


if __name__ == "__main__":
    main(sys.argv[1:])
