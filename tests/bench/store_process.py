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

from rmq_actors.broker.broker_controller import BrokerController, open_broker
from rmq_actors.broker.config import BrokerConfig
from rmq_actors.embedding.real_recorder import real_recorder
from rmq_actors.ha.config import HaConfig
from rmq_actors.protocols.put_completion import PutStatus
from rmq_actors.real_io.environment import real_environment
from rmq_actors.store.config import BrokerRole, MessageStoreConfig
from rmq_actors.store.message_store import MessageStore
from rmq_actors.store.puts.message_puts import PendingPut
from rmq_actors.tracing.event import RunInfo
from rmq_actors.wire.batch import MessageBatch, encode_batch
from rmq_actors.wire.record import Message

TOPIC = "TopicBench"
QUEUES = 4
#: Messages that are put before other tasks run: about what a broker reads from its connections at a time.
_PUTS_A_STEP = 32
#: How often a slave's log is looked at.
_LOOK_EVERY_S = 0.002


class Bench:
    """An open store whose services run, and what is measured of it."""

    def __init__(self, store: MessageStore) -> None:
        self._store = store
        self._next_key = 0

    def put(self, body: bytes, batch: int) -> None:
        """About `_PUTS_A_STEP` messages, one by one or in batches."""
        if batch == 1:
            pending = [self._store.puts.async_put_message(self._message(body)) for _ in range(_PUTS_A_STEP)]
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

    async def latencies(self, body: bytes, in_flight: int, messages: int) -> list[float]:
        """Keep so many puts under way; seconds that each took."""
        latencies: list[float] = []

        async def put_one_after_another(count: int) -> None:
            for _ in range(count):
                began = time.perf_counter()
                result = await self._store.puts.put_message(self._message(body))
                latencies.append(time.perf_counter() - began)
                if result.status is not PutStatus.PUT_OK:
                    raise RuntimeError(f"a put was answered {result}")

        async with trio.open_nursery() as nursery:
            for _ in range(in_flight):
                nursery.start_soon(put_one_after_another, messages // in_flight)
        return latencies

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


async def fill(directory: Path, body_bytes: int, end_offset: int, file_bytes: int = 1024**3) -> None:
    """Command `fill`."""
    body, messages = bytes(body_bytes), 0
    # The disk may be busy with what it was given before: that is not measured.
    ha = HaConfig(ha_listen_port=0)
    async with running_broker(directory, ha, file_bytes=file_bytes, page_cache_busy_ms=600_000) as broker:
        store = broker.store
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


async def serve(directory: Path, file_bytes: int, ha_port: int) -> None:
    """Command `serve`."""
    async with running_broker(directory, HaConfig(ha_listen_port=ha_port), file_bytes=file_bytes) as broker:
        say(end_offset=broker.store.commit_log.max_offset)
        await trio.sleep_forever()


async def follow(directory: Path, file_bytes: int, master: str, end_offset: int) -> None:
    """Command `follow`."""
    ha = HaConfig(ha_listen_port=0, ha_master_address=master)
    async with running_broker(directory, ha, BrokerRole.SLAVE, file_bytes) as broker:
        store = broker.store
        with store.log_end.subscribe() as growth:
            await growth.receive()
        began, cpu_began = time.perf_counter(), time.process_time()
        # To be woken by each growth would be work of its own.
        while store.commit_log.max_offset < end_offset:
            await trio.sleep(_LOOK_EVERY_S)
        log_s = time.perf_counter() - began
        await Bench(store).wait_until_dispatched()
        say(log_s=log_s, derived_s=time.perf_counter() - began, cpu_s=time.process_time() - cpu_began)
        await trio.sleep_forever()


async def puts(directory: Path, ha_port: int, body_bytes: int, in_flight: int, messages: int, warm_up: int) -> None:
    """Command `puts`."""
    role = BrokerRole.SYNC_MASTER if ha_port else BrokerRole.ASYNC_MASTER
    async with running_broker(directory, HaConfig(ha_listen_port=ha_port), role) as broker:
        bench, body = Bench(broker.store), bytes(body_bytes)
        if ha_port:
            with trio.fail_after(60):
                await broker.store.wait_for_slaves(1)
        await bench.latencies(body, in_flight, warm_up)
        say(end_offset=broker.store.commit_log.max_offset)
        began, cpu_began = time.perf_counter(), time.process_time()
        latencies = sorted(await bench.latencies(body, in_flight, messages))
        say(
            p50_us=latencies[messages // 2] * 1e6,
            p99_us=latencies[messages * 99 // 100] * 1e6,
            wall_s=time.perf_counter() - began,
            cpu_s=time.process_time() - cpu_began,
        )
        end()


@contextlib.asynccontextmanager
async def running_store(directory: Path) -> AsyncIterator[MessageStore]:
    """A master's store with default settings and its services, which in RocketMQ include HA."""
    async with running_broker(directory, HaConfig(ha_listen_port=0)) as broker:
        yield broker.store


@contextlib.asynccontextmanager
async def running_broker(
    directory: Path,
    ha: HaConfig,
    role: BrokerRole = BrokerRole.ASYNC_MASTER,
    file_bytes: int = 1024**3,
    page_cache_busy_ms: int = 1_000,
) -> AsyncIterator[BrokerController]:
    """A broker with default settings but for these."""
    tracer = real_recorder(RunInfo("bench", "store", 0, source="broker")).tracer("store")
    store = MessageStoreConfig(
        broker_role=role,
        mapped_file_size_commit_log_bytes=file_bytes,
        os_page_cache_busy_time_out_ms=page_cache_busy_ms,
    )
    async with open_broker(BrokerConfig("bench", store, ha), real_environment(directory), tracer) as broker:
        yield broker


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
    commands: dict[str, Callable[..., Awaitable[None]]] = {
        "append": append,
        "fill": fill,
        "follow": follow,
        "open": open_store,
        "puts": puts,
        "serve": serve,
    }
    trio.run(commands[command], Path(directory), *(int(text) if text.isdecimal() else text for text in numbers))


if __name__ == "__main__":
    main(sys.argv[1:])
