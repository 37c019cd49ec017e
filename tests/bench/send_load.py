"""The load of `send_lane`: by `send_load.c` where there is a C compiler, so that it limits nothing; else in Python.

Every request has keys of its own, as real ones have: an index whose entries all hang in one chain would be too cheap.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import itertools
import select
import shutil
import socket
import struct
import subprocess
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from tests.bench.remoting_requests import Run, ServerProcess, Shape

#: Eight characters that become the number of the request.
NUMBER_MARK = b"########"
_WARM_UP_S, _MEASURE_S = 0.3, 1.5
_SOURCE = Path(__file__).with_suffix(".c")
_LENGTH = struct.Struct(">i")
_SUCCESS = b'"code":0'


class Refused(Exception):
    """The server has answered a request with something else than success: its figures would mean nothing."""


def measure(server: ServerProcess, shape: Shape, frames: Sequence[bytes]) -> Run:
    """Keep a server busy for a while: each connection sends as many new requests as answers have come."""
    program = _program()
    if program is None:
        return _measure_in_python(server, shape, frames)
    numbers = (server.port, server.pid, shape.connections, shape.in_flight, _WARM_UP_S * 1000, _MEASURE_S * 1000)
    command = [str(program), *(f"{number:.0f}" for number in numbers)]
    done = subprocess.run(command, input=b"".join(frames), capture_output=True, check=False)
    if done.returncode:
        raise Refused(done.stderr.decode(errors="replace"))
    answered, wall_s, cpu_s = map(float, done.stdout.split())
    return Run(cpu_s / answered * 1e6, answered / wall_s)


def made_by() -> str:
    """What makes the load here."""
    return "Python" if _program() is None else "C"


@functools.cache
def _program() -> Path | None:
    """The compiled program; None without a compiler."""
    compiler = shutil.which("cc")
    if compiler is None:
        return None
    directory = tempfile.mkdtemp(prefix="send_load-")
    atexit.register(shutil.rmtree, directory, ignore_errors=True)
    program = Path(directory, "send_load")
    subprocess.run([compiler, "-O2", "-o", str(program), str(_SOURCE)], check=True)
    return program


def _measure_in_python(server: ServerProcess, shape: Shape, frames: Sequence[bytes]) -> Run:
    numbers = itertools.count(time.time_ns() >> 20)
    with contextlib.ExitStack() as stack, select.epoll() as epoll:
        peers: dict[int, tuple[socket.socket, bytes]] = {}
        for number in range(shape.connections):
            peer = stack.enter_context(socket.create_connection(("127.0.0.1", server.port)))
            peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            epoll.register(peer, select.EPOLLIN)
            peers[peer.fileno()] = peer, frames[number % len(frames)]
        rests = dict.fromkeys(peers, b"")

        def send(number: int, count: int) -> None:
            peer, frame = peers[number]
            peer.sendall(
                b"".join(
                    frame.replace(NUMBER_MARK, b"%08X" % (request & 0xFFFF_FFFF))
                    for request in itertools.islice(numbers, count)
                )
            )

        def run_until(end_s: float) -> int:
            answered = 0
            while time.perf_counter() < end_s:
                for number, _ in epoll.poll(1.0):
                    count, rests[number] = _count_answers(rests[number] + peers[number][0].recv(65_536))
                    answered += count
                    send(number, count)
            return answered

        for number in peers:
            send(number, shape.in_flight)
        run_until(time.perf_counter() + _WARM_UP_S)
        began_s, cpu_began_s = time.perf_counter(), server.cpu_s()
        answered = run_until(began_s + _MEASURE_S)
        cpu_s, wall_s = server.cpu_s() - cpu_began_s, time.perf_counter() - began_s
    return Run(cpu_s / answered * 1e6, answered / wall_s)


def _count_answers(data: bytes) -> tuple[int, bytes]:
    """How many whole answers there are, and what comes after them."""
    count = begin = 0
    while len(data) - begin >= 4:
        end = begin + 4 + _LENGTH.unpack_from(data, begin)[0]
        if end > len(data):
            break
        if data.find(_SUCCESS, begin, end) < 0:
            raise Refused(data[begin + 8 : end].decode(errors="replace"))
        count, begin = count + 1, end
    return count, data[begin:]
