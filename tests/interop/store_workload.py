"""What is put into a store directory by both implementations in turn, and a program that puts it into ours.

A message is known by its number, whoever puts it: plain, with tags, keys, UTF-8 properties, delayed, in a batch, big.
`python -m tests.interop.store_workload DIRECTORY SETTINGS CLOCK_STEP_MS` reads a `Workload` a line, prints a `Stored` a
line when its put is answered, and "done" after the last. At the end of its input it stops in order.
"""

from __future__ import annotations

import json
import random
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import attrs
import trio

from rmq_actors.broker.broker_controller import open_broker
from rmq_actors.broker.config import BrokerConfig
from rmq_actors.embedding.real_recorder import real_recorder
from rmq_actors.ha.config import HaConfig
from rmq_actors.protocols.put_completion import PutStatus
from rmq_actors.real_io.environment import real_environment
from rmq_actors.store.config import MessageStoreConfig
from rmq_actors.store.message_store import MessageStore
from rmq_actors.tracing.event import RunInfo
from rmq_actors.wire.batch import MessageBatch, encode_batch
from rmq_actors.wire.record import Message
from tests.worlds.java_client import JavaClient

TOPIC = "TopicStore"
BIG_TOPIC = "TopicBig"
BATCH_TOPIC = "TopicBatch"
SCHEDULE_TOPIC = "SCHEDULE_TOPIC_XXXX"
HALF_TOPIC = "RMQ_SYS_TRANS_HALF_TOPIC"
OP_TOPIC = "RMQ_SYS_TRANS_OP_HALF_TOPIC"
#: Every topic and how many queues it has; the last two are made by transactions.
TOPICS = {TOPIC: 2, BIG_TOPIC: 1, BATCH_TOPIC: 1, HALF_TOPIC: 1, OP_TOPIC: 1}
TAGS = ("TagA", "TagB", "ÄTag")
BATCH_SIZE = 6
#: The line after a workload's last message.
DONE = "done\n"
#: Where a stepping clock begins: what is delayed by two hours is not due yet.
_CLOCK_BEHIND_MS = 90 * 60_000
#: Two hours, the longest: no broker delivers it while a test runs.
DELAY_LEVEL = 18


@attrs.frozen
class Put:
    """A message as a producer has it."""

    topic: str
    queue_id: int
    body: bytes
    properties: Mapping[str, str]

    @property
    def stored_topic(self) -> str:
        """Where it goes first."""
        return SCHEDULE_TOPIC if "DELAY" in self.properties else self.topic


@attrs.frozen
class Stored:
    """A message that was acknowledged, and where it is. `item`: its place in its batch."""

    number: int
    item: int
    physical_offset: int
    queue_offset: int


@attrs.frozen
class Workload:
    """Messages `first` to `first` + `count` - 1; every 60th has a body of `big_body_bytes`."""

    first: int
    count: int
    big_body_bytes: int = 100_000

    def __iter__(self) -> Iterator[tuple[int, Sequence[Put]]]:
        return ((number, self.puts(number)) for number in range(self.first, self.first + self.count))

    def puts(self, number: int) -> Sequence[Put]:
        """One message, or the items of a batch."""
        body = f"message {number} ".encode() + random.Random(number).randbytes(500 + number % 7 * 90)
        keys = " ".join(f"key{number}-{place}" for place in range(9))
        properties = {"UNIQ_KEY": f"{number:032X}", "KEYS": keys, "TAGS": TAGS[number % 3]}
        if number % 20 == 7:
            own = [{**properties, "UNIQ_KEY": f"B{number:028X}{item:03X}"} for item in range(BATCH_SIZE)]
            return [Put(BATCH_TOPIC, 0, body + bytes([item]), own[item]) for item in range(BATCH_SIZE)]
        if number % 20 == 13:
            return [Put(TOPIC, 1, body, {**properties, "DELAY": str(DELAY_LEVEL)})]
        if number % 60 == 20:
            return [Put(BIG_TOPIC, 0, random.Random(number).randbytes(self.big_body_bytes), properties)]
        if number % 5 == 0:
            properties = {**properties, "grüße": f"Ωμέγα {number} \N{GRINNING FACE}"}
        if number % 11 == 0:
            properties = {"UNIQ_KEY": properties["UNIQ_KEY"]}
        return [Put(TOPIC, number % 2, body, properties)]


def put_into_java(client: JavaClient, workload: Workload) -> list[Stored]:
    """Put a workload into a running broker."""
    stored = []
    for number, puts in workload:
        first = puts[0]
        if len(puts) > 1:
            items = [(put.body, put.properties) for put in puts]
            sent = client.put_batch(first.topic, items, queue_id=first.queue_id)
        else:
            sent = [client.put(first.topic, first.body, queue_id=first.queue_id, properties=first.properties)]
        stored += [Stored(number, item, one.physical_offset, one.queue_offset) for item, one in enumerate(sent)]
    return stored


async def put_into_ours(store: MessageStore, workload: Workload) -> None:
    """Put a workload, one message after the other, and print what was acknowledged."""
    for number, puts in workload:
        first = puts[0]
        if len(puts) > 1:
            body = encode_batch((put.body, 0, put.properties) for put in puts)
            batch = MessageBatch(first.topic, body, first.queue_id, {"WAIT": "true"})
            result = await store.puts.put_messages(batch)
        else:
            result = await store.puts.put_message(Message(first.topic, first.body, first.queue_id, first.properties))
        if result.status is not PutStatus.PUT_OK or result.append is None:
            raise RuntimeError(f"message {number}: {result}")
        for item, start in enumerate(result.append.starts):
            stored = Stored(number, item, result.append.offset + start, result.append.queue_offset + item)
            sys.stdout.write(json.dumps(attrs.astuple(stored)) + "\n")
        sys.stdout.flush()


@attrs.define
class SteppingClock:
    """A wall clock that goes on by a step at each look."""

    _now_ms: int
    _step_ms: int

    def now_ms(self) -> int:
        """The next time."""
        self._now_ms += self._step_ms
        return self._now_ms

    def utc_offset_s(self, at_ms: int) -> int:
        """UTC."""
        return 0


async def serve(directory: Path, settings: Mapping[str, int], clock_step_ms: int) -> None:
    """Open the store in a directory and put what the input says; stop in order when it ends."""
    environment = real_environment(directory)
    if clock_step_ms:
        now_ms = environment.wall_clock.now_ms()
        environment = attrs.evolve(environment, wall_clock=SteppingClock(now_ms - _CLOCK_BEHIND_MS, clock_step_ms))
    config = BrokerConfig(store=MessageStoreConfig(**settings), ha=HaConfig(ha_listen_port=0))  # type: ignore[arg-type]
    tracer = real_recorder(RunInfo("interop", "store_workload", 0, source="broker")).tracer("store")
    async with open_broker(config, environment, tracer) as broker:
        while line := await trio.to_thread.run_sync(sys.stdin.readline):
            await put_into_ours(broker.store, Workload(*json.loads(line)))
            sys.stdout.write(DONE)
            sys.stdout.flush()


def main(arguments: Sequence[str]) -> None:
    """The program."""
    directory, settings, clock_step_ms = arguments
    trio.run(serve, Path(directory), json.loads(settings), int(clock_step_ms))


if __name__ == "__main__":
    main(sys.argv[1:])
