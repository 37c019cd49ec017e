"""This project's producer and consumer beside RocketMQ's Java client 4.9.7 and a bare one, at one broker, in one run.

`python -m tests.bench.python_clients --rounds 5 [--broker ours]`. They take turns at one broker, RocketMQ 4.9.7 unless
it says otherwise, with the settings of `java_clients`: 32 messages in flight (32 tasks here, and there both 32
threads and callbacks; the faster one counts), and pulls of 32 messages from 1 and 4 queues. This project's client
decodes most of a message when it is read: "and read" has the body, the tags and the id of each one read. A ratio is the
median of the rounds'. CPU time is the client's, a message. Wall time counts what waits: look at CPU time on a shared
machine. The bare client (`bare_client`) is sockets and struct, and takes every record apart: Python can hardly do with
less.

`--profile`: no Java; one case of the producer under cProfile, by its functions' own time.
"""

from __future__ import annotations

import argparse
import contextlib
import cProfile
import os
import pstats
import statistics
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from pathlib import Path

import attrs
import trio

from rmq_actors import (
    ClientError,
    Message,
    Producer,
    ProducerConfig,
    PullConsumer,
    PullConsumerConfig,
    SendStatus,
    open_producer,
    open_pull_consumer,
)
from tests.bench.bare_client import Connection, Done, master_of, pull_all, send_all
from tests.bench.java_clients import Bench, both_sides, java_client, measured, spread, start_brokers
from tests.bench.measuring import bare_checkpoint_us, hardware
from tests.bench.store_runs import OURS, ROCKETMQ

IN_FLIGHT = 32
BODIES = (128, 1024)
PULLS = (1, 4)
_WARM_UP_S, _MEASURE_S = 0.5, 1.5
_JAVA_WARM_UP_MS = 6_000
_FILL_MS = 3_000
SEND_GOAL, BATCH_GOAL, PULL_GOAL = 0.5, 1.0, 0.5
TOPIC = "TopicPython"


@attrs.define
class Phase:
    """Counts what is done after the warm-up and before the end."""

    began_s: float
    messages: int = 0
    failed: int = 0

    def is_over(self) -> bool:
        return time.perf_counter() >= self.began_s + _MEASURE_S

    def done(self, messages: int, *, ok: bool = True) -> None:
        """Some were sent, or came."""
        if time.perf_counter() >= self.began_s:
            self.messages += messages
            self.failed += 0 if ok else messages


#: One of the tasks: does one thing after another until the phase is over.
Work = Callable[[Phase, int], Awaitable[None]]


async def _measure(work: Work, in_flight: int) -> Mapping[str, float]:
    """The figures of `measured`, of this process."""
    phase = Phase(time.perf_counter() + _WARM_UP_S)
    cpu_began_s, took_s = 0.0, 0.0
    async with trio.open_nursery() as nursery:
        for number in range(in_flight):
            nursery.start_soon(work, phase, number)
        await trio.sleep(max(0.0, phase.began_s - time.perf_counter()))
        cpu_began_s, began_s = time.process_time(), time.perf_counter()
        while not phase.is_over():
            await trio.sleep(0.01)
        cpu_s, took_s = time.process_time() - cpu_began_s, time.perf_counter() - began_s
        messages = phase.messages or float("nan")
    return {
        "per_s": messages / took_s,
        "client_us": cpu_s / messages * 1e6,
        "failed": phase.failed,
    }


def send(name_server: str, body_bytes: int, *, auto_batch: bool, in_flight: int = IN_FLIGHT) -> Mapping[str, float]:
    """As many tasks, each of which sends one message after another."""
    config = ProducerConfig("PG_python_bench", send_msg_timeout_ms=10_000, auto_batch=auto_batch)

    async def main() -> Mapping[str, float]:
        async with open_producer(name_server, config) as producer:
            await _until_sent(producer)

            async def work(phase: Phase, _: int) -> None:
                while not phase.is_over():
                    message = Message(TOPIC, bytes(body_bytes), properties={"TAGS": "TagA", "KEYS": "OrderID188"})
                    try:
                        result = await producer.send(message)
                        phase.done(1, ok=result.status is SendStatus.SEND_OK)
                    except ClientError:
                        phase.done(1, ok=False)

            return await _measure(work, in_flight)

    return trio.run(main)


async def _until_sent(producer: Producer) -> None:
    while True:
        with contextlib.suppress(ClientError):
            await producer.send(Message(TOPIC, b"first"))
            return
        await trio.sleep(0.1)


@contextlib.asynccontextmanager
async def _consumer(name_server: str) -> AsyncIterator[PullConsumer]:
    async with open_pull_consumer(name_server, PullConsumerConfig("CG_python_bench")) as consumer:
        yield consumer


def pull(name_server: str, topic: str, in_flight: int, *, reads: bool = False) -> Mapping[str, float]:
    """Pulls of 32 messages, one after the other for each queue, from its first message and from there again.

    `reads`: each message's body, tags and id are read.
    """

    async def main() -> Mapping[str, float]:
        async with _consumer(name_server) as consumer:
            queues = await consumer.fetch_message_queues(topic)

            async def work(phase: Phase, number: int) -> None:
                queue = queues[number % len(queues)]
                first = at = await consumer.min_offset(queue)
                while not phase.is_over():
                    result = await consumer.pull(queue, at)
                    read = sum(1 for each in result.messages if reads and each.body and each.tags and each.msg_id)
                    assert read == (len(result.messages) if reads else 0)
                    phase.done(len(result.messages))
                    at = result.next_begin_offset if result.messages else first

            return await _measure(work, in_flight)

    return trio.run(main)


def _measure_bare(work: Callable[[Done], None]) -> Mapping[str, float]:
    """The figures of `measured`, of a loop without tasks."""
    phase = Phase(time.perf_counter() + _WARM_UP_S)
    cpu_began_s = 0.0

    def done(messages: int, failed: int) -> bool:
        nonlocal cpu_began_s
        if not cpu_began_s and time.perf_counter() >= phase.began_s:
            cpu_began_s, phase.began_s = time.process_time(), time.perf_counter()
            return True
        phase.done(messages - failed)
        phase.done(failed, ok=False)
        return not phase.is_over()

    work(done)
    messages = phase.messages or float("nan")
    return {
        "per_s": messages / (time.perf_counter() - phase.began_s),
        "client_us": (time.process_time() - cpu_began_s) / messages * 1e6,
        "failed": phase.failed,
    }


def send_bare(name_server: str, body_bytes: int) -> Mapping[str, float]:
    """So many frames under way on one connection."""
    connection = Connection(*master_of(name_server, TOPIC))
    with contextlib.closing(connection):
        return _measure_bare(lambda done: send_all(connection, TOPIC, bytes(body_bytes), IN_FLIGHT, done))


def pull_bare(name_server: str, topic: str, in_flight: int) -> Mapping[str, float]:
    """A pull of each queue under way."""
    connection = Connection(*master_of(name_server, topic))
    with contextlib.closing(connection):
        return _measure_bare(lambda done: pull_all(connection, topic, in_flight, done))


@attrs.frozen
class Line:
    """A case: the values of the rounds of Java, this project and the bare client."""

    case: str
    java: list[Mapping[str, float]]
    ours: list[Mapping[str, float]]
    bare: list[Mapping[str, float]]
    goal: float

    def text(self) -> str:
        """A row in Markdown."""
        ratio = statistics.median(
            ours["per_s"] / java["per_s"] for ours, java in zip(self.ours, self.java, strict=True)
        )
        verdict = "met" if ratio >= self.goal else "missed"
        cells = (
            self.case,
            *(spread([run["per_s"] for run in side]) for side in (self.java, self.ours)),
            f"{ratio:.2f}",
            f">= {self.goal:g}: {verdict}",
            *(spread([run["client_us"] for run in side]) for side in (self.java, self.ours, self.bare)),
            f"{sum(run['failed'] for run in self.ours):.0f}",
        )
        return f"| {' | '.join(cells)} |"


def compare(bench: Bench, broker: str) -> list[Line]:
    """All cases at one broker, round by round."""
    side = next(side for side in bench.sides if side.name == broker)
    lines = list[Line]()
    with contextlib.ExitStack() as running:
        brokers = start_brokers(bench, side, "alone", running)
        for body in BODIES:
            bench.client.ask("send", side.name_server, TOPIC, "async", IN_FLIGHT, body, 0, _JAVA_WARM_UP_MS // 2)
            bench.client.ask("send", side.name_server, TOPIC, "sync", IN_FLIGHT, body, 0, _JAVA_WARM_UP_MS // 2)
        for body in BODIES:
            java, plain, together, bare = (list[Mapping[str, float]]() for _ in range(4))
            for _ in range(bench.rounds):
                words = (side.name_server, TOPIC)
                modes = [
                    measured(bench.client, brokers, "send", *words, mode, IN_FLIGHT, body) for mode in ("async", "sync")
                ]
                java.append(max(modes, key=lambda run: run["per_s"]))
                plain.append(send(side.name_server, body, auto_batch=False))
                together.append(send(side.name_server, body, auto_batch=True))
                bare.append(send_bare(side.name_server, body))
            lines.append(Line(f"send, {IN_FLIGHT} in flight, {body} B", java, plain, bare, SEND_GOAL))
            batched = f"send with auto_batch, {IN_FLIGHT} in flight, {body} B"
            lines.append(Line(batched, java, together, bare, BATCH_GOAL))
        for body in BODIES:
            topic = f"TopicPull{body}"
            bench.client.ask("send", side.name_server, topic, "async", IN_FLIGHT, body, 0, _FILL_MS)
            for in_flight in PULLS:
                bench.client.ask("pull", side.name_server, topic, in_flight, 32, 0, _JAVA_WARM_UP_MS // 2)
                java, ours, read, bare = (list[Mapping[str, float]]() for _ in range(4))
                for _ in range(bench.rounds):
                    java.append(measured(bench.client, brokers, "pull", side.name_server, topic, in_flight, 32))
                    ours.append(pull(side.name_server, topic, in_flight))
                    read.append(pull(side.name_server, topic, in_flight, reads=True))
                    bare.append(pull_bare(side.name_server, topic, in_flight))
                case = f"pulls of 32, {in_flight} in flight, {body} B"
                lines.append(Line(case, java, ours, bare, PULL_GOAL))
                lines.append(Line(f"{case}, and read", java, read, bare, PULL_GOAL))
    return lines


def profile(bench: Bench, broker: str) -> None:
    """One case of the producer, by the functions' own time."""
    side = next(side for side in bench.sides if side.name == broker)
    with contextlib.ExitStack() as running:
        start_brokers(bench, side, "alone", running)
        for auto_batch in (False, True):
            profiler = cProfile.Profile()
            profiler.enable()
            run = send(side.name_server, BODIES[0], auto_batch=auto_batch)
            profiler.disable()
            sys.stdout.write(f"auto_batch={auto_batch}: {run}\n")
            pstats.Stats(profiler, stream=sys.stdout).sort_stats("tottime").print_stats(28)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=5, help="rounds a figure (default 5)")
    parser.add_argument("--broker", choices=("ours", "rocketmq"), default="rocketmq", help="whose broker it is")
    parser.add_argument("--profile", action="store_true", help="profile the producer instead")
    options = parser.parse_args()
    broker = OURS if options.broker == "ours" else ROCKETMQ
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    checkpoint_us = bare_checkpoint_us()
    with (
        tempfile.TemporaryDirectory(prefix="python-clients-") as directory,
        java_client() as client,
        both_sides(Path(directory)) as sides,
    ):
        bench = Bench(client, sides, Path(directory), options.rounds)
        if options.profile:
            profile(bench, broker)
            return
        lines = compare(bench, broker)
    rates = ("Java, messages/s", "Python, messages/s", "ratio", "goal")
    heads = ("", *rates, "Java, CPU us", "Python, CPU us", "bare, CPU us", "failed")
    sys.stdout.write(f"| {' | '.join(heads)} |\n|{'--|' * len(heads)}\n")
    sys.stdout.write("\n".join(line.text() for line in lines))
    sys.stdout.write(f"\n\n{broker}'s broker; {hardware()}; a bare Trio checkpoint takes {checkpoint_us:.1f} us\n")


if __name__ == "__main__":
    main()
