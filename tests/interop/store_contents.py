"""All that can be found in a store: asked from a real broker over its port, or from ours; and what the log holds.

What is found is compared with the log's own records, decoded from the files: the log is what counts, and queues and
index are ways into it.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import attrs

from rmq_actors.broker.broker_controller import open_broker
from rmq_actors.broker.config import BrokerConfig
from rmq_actors.embedding.real_recorder import real_recorder
from rmq_actors.ha.config import HaConfig
from rmq_actors.real_io.environment import real_environment
from rmq_actors.real_io.os_disk import OsDisk
from rmq_actors.store.check.dump import read_commit_log
from rmq_actors.store.config import MessageStoreConfig
from rmq_actors.store.message_store import MessageStore
from rmq_actors.store.read.get_message import DefaultMessageFilter, MessageFilter
from rmq_actors.tracing.event import RunInfo
from rmq_actors.wire.dispatch_request import SCHEDULE_TOPIC
from rmq_actors.wire.java_string import java_hash_code
from rmq_actors.wire.record import StoredMessage
from tests.worlds.java_client import JavaClient, decode_records

_MAX_NUM = 64
_END_OF_TIME_MS = 2**62


@attrs.frozen
class Queue:
    """A queue's offsets, and its messages as a consumer gets them."""

    min_offset: int
    max_offset: int
    messages: Sequence[StoredMessage]


@attrs.frozen
class Log:
    """The records of a log, in its order."""

    records: Sequence[StoredMessage]

    @classmethod
    def read(cls, store: Path) -> Log:
        """From the files, which must be whole."""
        found = list(read_commit_log(OsDisk(store)))
        records = [record for record in found if isinstance(record, StoredMessage)]
        assert records == found
        return cls(records)

    @property
    def queues(self) -> dict[tuple[str, int], Queue]:
        """The queues that these records fill."""
        records: dict[tuple[str, int], list[StoredMessage]] = {}
        for record in self.records:
            if record.takes_queue_offset:
                records.setdefault((record.topic, record.queue_id), []).append(record)
        return {name: Queue(0, len(messages), messages) for name, messages in records.items()}

    @property
    def by_key(self) -> dict[tuple[str, str], set[int]]:
        """Where the records of a key are: of their UNIQ_KEY, and of the first and last of their KEYS."""
        offsets: dict[tuple[str, str], set[int]] = {}
        for record in self.records:
            keys = record.properties.get("KEYS", "").split()
            for key in {record.properties.get("UNIQ_KEY", ""), *keys[:1], *keys[-1:]} - {""}:
                offsets.setdefault((record.topic, key), set()).add(record.physical_offset)
        return offsets

    @property
    def by_tag(self) -> dict[tuple[str, int, str], list[StoredMessage]]:
        """The messages of a queue with a tag."""
        messages: dict[tuple[str, int, str], list[StoredMessage]] = {}
        for record in self.records:
            # Of a delayed message, the queue holds the time of its delivery instead.
            if "TAGS" in record.properties and record.takes_queue_offset and record.topic != SCHEDULE_TOPIC:
                name = record.topic, record.queue_id, record.properties["TAGS"]
                messages.setdefault(name, []).append(record)
        return messages

    @property
    def by_time(self) -> dict[tuple[str, int], int]:
        """The store time of each queue's first message."""
        return {name: queue.messages[0].store_timestamp_ms for name, queue in self.queues.items()}


@attrs.frozen
class Contents:
    """What was found of a log, asked in every way. `by_time`: the queue offsets of what was stored first."""

    queues: Mapping[tuple[str, int], Queue]
    by_key: Mapping[tuple[str, str], set[int]]
    by_tag: Mapping[tuple[str, int, str], Sequence[StoredMessage]]
    by_time: Mapping[tuple[str, int], int]
    by_offset: Sequence[StoredMessage]

    def misses(self, log: Log) -> Iterator[str]:
        """What of the log was not found, or was found otherwise, in words."""
        for queue_name, queue in log.queues.items():
            found = self.queues[queue_name]
            if found != queue:
                yield f"queue {queue_name}: {_summary(found)} instead of {_summary(queue)}"
        # The index knows hashes of keys: a broker may give out more.
        for key_name, offsets in log.by_key.items():
            if not offsets <= self.by_key[key_name]:
                yield f"key {key_name}: {sorted(self.by_key[key_name])} instead of {sorted(offsets)}"
        for tag, messages in log.by_tag.items():
            if self.by_tag[tag] != messages:
                yield f"tag {tag}: {_places(self.by_tag[tag])} instead of {_places(messages)}"
        for queue_name, time_ms in log.by_time.items():
            found_offset = self.by_time[queue_name]
            if log.queues[queue_name].messages[found_offset].store_timestamp_ms != time_ms:
                yield f"time {time_ms} of queue {queue_name}: found at {found_offset}"
        for found_at, record in zip(self.by_offset, log.records, strict=True):
            if found_at != record:
                yield f"offset {record.physical_offset}: {found_at} instead of {record}"


def contents_of_java(client: JavaClient, log: Log) -> Contents:
    """Ask a real broker for everything that a log holds."""
    return Contents(
        {
            (topic, queue): Queue(
                client.min_offset(topic, queue), client.max_offset(topic, queue), client.pull_queue(topic, queue)
            )
            for topic, queue in log.queues
        },
        {(topic, key): {message.physical_offset for message in client.query(topic, key)} for topic, key in log.by_key},
        {(topic, queue, tag): client.pull_queue(topic, queue, tag) for topic, queue, tag in log.by_tag},
        {(topic, queue): client.offset_at(topic, queue, time_ms) for (topic, queue), time_ms in log.by_time.items()},
        [client.view(record.physical_offset) for record in log.records],
    )


async def open_here(directory: Path, config: MessageStoreConfig) -> Contents:
    """Open a store here, ask it for everything that its log holds, and stop in order."""
    tracer = real_recorder(RunInfo("interop", "store_contents", 0, source="broker")).tracer("store")
    broker_config = BrokerConfig(store=config, ha=HaConfig(ha_listen_port=0))
    async with open_broker(broker_config, real_environment(directory), tracer) as broker:
        return await _contents_of_ours(broker.store, Log.read(directory))


async def _contents_of_ours(store: MessageStore, log: Log) -> Contents:
    by_key = {}
    for topic, key in log.by_key:
        found = await store.query_message(topic, key, _MAX_NUM, 0, _END_OF_TIME_MS)
        by_key[topic, key] = {message.physical_offset for message in decode_records(b"".join(found.messages))}
    by_offset = [store.records.look_message_by_offset(record.physical_offset) for record in log.records]
    return Contents(
        {(topic, queue): _queue_of_ours(store, topic, queue) for topic, queue in log.queues},
        by_key,
        {
            (topic, queue, tag): _queue_of_ours(
                store, topic, queue, DefaultMessageFilter(frozenset({java_hash_code(tag)}))
            ).messages
            for topic, queue, tag in log.by_tag
        },
        {
            (topic, queue): store.offsets.get_offset_in_queue_by_time(topic, queue, time_ms)
            for (topic, queue), time_ms in log.by_time.items()
        },
        [message for message in by_offset if message is not None],
    )


def _queue_of_ours(
    store: MessageStore, topic: str, queue_id: int, message_filter: MessageFilter | None = None
) -> Queue:
    first = store.offsets.get_min_offset_in_queue(topic, queue_id)
    end = store.offsets.get_max_offset_in_queue(topic, queue_id)
    messages: list[StoredMessage] = []
    at = first
    while at < end:
        result = store.reads.get_message(topic, queue_id, at, 32, message_filter)
        messages += itertools.chain.from_iterable(decode_records(bytes(view)) for view in result.messages)
        if result.next_begin_offset == at:
            raise RuntimeError(f"queue {topic}-{queue_id} gives nothing at {at}: {result.status}")
        at = result.next_begin_offset
    return Queue(first, end, messages)


def _summary(queue: Queue) -> str:
    return f"{queue.min_offset} to {queue.max_offset}, {_places(queue.messages)}"


def _places(messages: Sequence[StoredMessage]) -> str:
    places = [(message.queue_offset, message.physical_offset) for message in messages]
    return f"{len(places)} messages {places[:2]} ... {places[-2:]}"
