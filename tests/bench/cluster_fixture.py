"""What a test waits for before its cluster works: a pair up, and the first SEND_OK; and for the cluster to stop.

`python -m tests.bench.cluster_fixture --rounds 30`. Wall time and CPU time of the process, in ms. Start, imports
and a first round, which is not counted, come before. Each round has new directories.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import trio

from rmq_actors import Message, SendStatus, open_cluster, open_producer
from rmq_actors.embedding.trio_thread import open_in_thread
from rmq_actors.testing.fixtures import open_cluster_fixture
from tests.bench.measuring import Figure, arguments, bare_checkpoint_us, report

PAIR_UP_MS, SEND_OK_MS = 50.0, 150.0


def pair_up(directory: Path, up: Callable[[], None]) -> None:
    """A master that serves a connected slave, in a thread's Trio, as fixtures have it."""
    with open_in_thread(lambda: open_cluster(directory, slaves=1)):
        up()


def first_send_ok(directory: Path, up: Callable[[], None]) -> None:
    """The fixture `rmq_cluster`, and a producer of the test's own that sends one message."""

    async def send(name_server: str) -> None:
        async with open_producer(name_server, "PG_bench") as producer:
            assert (await producer.send(Message("Orders", b"one"))).status is SendStatus.SEND_OK
            up()

    with open_cluster_fixture(directory) as cluster:
        trio.run(send, cluster.name_server_address)


def rounds_of(name: str, use: Callable[[Path, Callable[[], None]], None], rounds: int, goal_ms: float) -> list[Figure]:
    """Wall and CPU time until it is up, and the wall time of its end."""
    up_ms, cpu_ms, end_ms, checkpoints_ms = list[float](), list[float](), list[float](), list[float]()
    for number in range(rounds + 1):
        bare_us = bare_checkpoint_us()
        with tempfile.TemporaryDirectory(prefix="cluster-fixture-") as directory:
            was_up: list[tuple[float, float]] = []
            began_s, cpu_began_s = time.perf_counter(), time.process_time()
            use(Path(directory) / "cluster", lambda: was_up.append((time.perf_counter(), time.process_time())))  # noqa: B023
            ended_s = time.perf_counter()
        if number:
            up_s, cpu_s = was_up[0]
            up_ms.append((up_s - began_s) * 1000)
            cpu_ms.append((cpu_s - cpu_began_s) * 1000)
            end_ms.append((ended_s - up_s) * 1000)
            checkpoints_ms.append(bare_us / 1000)  # in ms, as the values are
    return [
        Figure(name, "ms", up_ms, checkpoints_ms, goal=f"<= {goal_ms:g}"),
        Figure(f"{name}: CPU", "ms", cpu_ms, checkpoints_ms),
        Figure(f"{name}: its end", "ms", end_ms, checkpoints_ms),
    ]


def main() -> None:
    """Measure and print."""
    given = arguments(sys.modules[__name__].__doc__, rounds=30)
    figures = rounds_of("a pair up", pair_up, given.rounds, PAIR_UP_MS)
    figures += rounds_of("name server, pair, first SEND_OK", first_send_ok, given.rounds, SEND_OK_MS)
    report(figures, notes=["wall time, but for CPU"], as_json=given.json)


if __name__ == "__main__":
    main()
