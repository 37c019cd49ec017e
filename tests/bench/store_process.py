"""This project's store in a process of its own; the commands and what they print are described in `store_runs.py`."""

from __future__ import annotations

import contextlib
import json
import os
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from pathlib import Path

import trio

from rmq_actors.broker.broker_controller import open_broker
from rmq_actors.broker.config import BrokerConfig
from rmq_actors.embedding.cluster import real_recorder
from rmq_actors.ha.config import HaConfig
from rmq_actors.real_io.environment import real_environment
from rmq_actors.store.message_puts import PendingPut
from rmq_actors.store.message_store import MessageStore
from rmq_actors.tracing.event import RunInfo
from rmq_actors.wire.batch import MessageBatch, encode_batch
from rmq_actors.wire.record import Message

TOPIC = "TopicBench"
QUEUES = 4
#: Messages that are put before other tasks run: about what a broker reads from its connections at a time.
_PUTS_A_STEP = 32


class Bench:
    """An open store whose services run, and what is measured of it."""

    def __init__(self, store: MessageStore) -> None:
        self._store = store
        self._next_key = 0

    def put(self, body: bytes, batch: int) -> None:
        """About `_PUTS_A_STEP` messages, one by one or in batches."""
        if batch == 1:
            pending = [self._store.async_put_message(self._message(body)) for _ in range(_PUTS_A_STEP)]
        else:
            pending = [self._store.puts.async_put_messages(self._batch(body, batch))]
        for one in pending:
            check(one)

    async def put_all(self, body: bytes, batch: int, messages: int) -> float:
        """Put so many messages; CPU seconds of the puts alone."""
        put_s = 0.0
        for _ in range(0, messages, max(batch, _PUTS_A_STEP)):
            began = time.thread_time()
            self.put(body, batch)
            put_s += time.thread_time() - began
            await trio.lowlevel.checkpoint()
        return put_s

    async def wait_until_dispatched(self) -> None:
        """Return when queues and index hold everything."""
        store = self._store
        while store.files.reput.reput_from_offset < store.commit_log.max_offset:
            await trio.sleep(0.01)

    def _message(self, body: bytes) -> Message:
        return Message(
            TOPIC,
            body,
            self._next_key % QUEUES,
            {"UNIQ_KEY": self._key()},
            born_timestamp_ms=time.time_ns() // 1_000_000,
        )

    def _batch(self, body: bytes, size: int) -> MessageBatch:
        queue_id = self._next_key // size % QUEUES
        items = encode_batch((body, 0, {"UNIQ_KEY": self._key()}) for _ in range(size))
        return MessageBatch(TOPIC, items, queue_id, born_timestamp_ms=time.time_ns() // 1_000_000)

    def _key(self) -> str:
        self._next_key += 1
        return f"7F00000100002A9F{self._next_key:016X}"


def check(pending: PendingPut) -> None:
    """Raise RuntimeError unless the put was answered OK at once, as ASYNC_FLUSH without slaves does."""
    result = pending.result
    if result is None or result.append is None:
        raise RuntimeError(f"a put was answered {result}")


async def open_store(directory: Path) -> None:
    """Command `open`."""
    interpreter_s = _since_process_start_s()
    began, cpu_began = time.perf_counter(), time.process_time()
    async with running_store(directory) as store:
        say(
            interpreter_s=interpreter_s,
            started_s=time.perf_counter() - began,
            cpu_s=time.process_time() - cpu_began,
            end_offset=store.commit_log.max_offset,
            private_kb=private_kb(),
        )
        end()


async def fill(directory: Path, body_bytes: int, end_offset: int) -> None:
    """Command `fill`."""
    body, messages = bytes(body_bytes), 0
    async with running_store(directory) as store:
        bench = Bench(store)
        while store.commit_log.max_offset < end_offset:
            bench.put(body, 1)
            messages += _PUTS_A_STEP
            await trio.lowlevel.checkpoint()
        await bench.wait_until_dispatched()
        say(messages=messages, end_offset=store.commit_log.max_offset)
        await trio.sleep_forever()


async def append(directory: Path, body_bytes: int, batch: int, messages: int, warm_up: int) -> None:
    """Command `append`."""
    body = bytes(body_bytes)
    async with running_store(directory) as store:
        bench = Bench(store)
        await bench.put_all(body, batch, warm_up)
        await bench.wait_until_dispatched()
        process_s, thread_s = time.process_time(), time.thread_time()
        put_s = await bench.put_all(body, batch, messages)
        await bench.wait_until_dispatched()
        # What this thread did beside the puts is dispatching, and scheduling both.
        say(
            put_cpu_s=put_s,
            dispatch_cpu_s=time.thread_time() - thread_s - put_s,
            cpu_s=time.process_time() - process_s,
        )
        end()


@contextlib.asynccontextmanager
async def running_store(directory: Path) -> AsyncIterator[MessageStore]:
    """A master's store with default settings and its services, which in RocketMQ include HA."""
    tracer = real_recorder(RunInfo("bench", "store", 0, source="broker")).tracer("store")
    config = BrokerConfig(ha=HaConfig(ha_listen_port=0))
    async with open_broker(config, real_environment(directory), tracer) as broker:
        yield broker.store


def private_kb() -> int:
    """What this process shares with no other, mapped files that it alone has touched included."""
    lines = Path("/proc/self/smaps_rollup").read_text(encoding="ascii").splitlines()
    return sum(int(line.split()[1]) for line in lines if line.startswith("Private_"))


def say(**numbers: float) -> None:
    """Print the numbers as JSON."""
    sys.stdout.write(json.dumps(numbers) + "\n")
    sys.stdout.flush()


def end() -> None:
    """End without an orderly stop, as the Java program does."""
    os._exit(0)


def _since_process_start_s() -> float:
    """Seconds since the process was made, by the kernel's clock of 100 ticks a second."""
    fields = Path("/proc/self/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    return time.clock_gettime(time.CLOCK_BOOTTIME) - int(fields[19]) / os.sysconf("SC_CLK_TCK")


def main(arguments: Sequence[str]) -> None:
    """Run one command."""
    command, directory, *numbers = arguments
    commands: dict[str, Callable[..., Awaitable[None]]] = {"append": append, "fill": fill, "open": open_store}
    trio.run(commands[command], Path(directory), *map(int, numbers))


if __name__ == "__main__":
    main(sys.argv[1:])
