"""Checking what stands beside the log: each file below `config/` as a start reads it, and the names of the root."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import TypeVar

from rmq_actors.ports.disk import Disk
from rmq_actors.store.check.finding import CheckSummary, Finding
from rmq_actors.store.files.delay_offsets import decode_delay_offsets
from rmq_actors.store.files.deleted_topics import decode_deleted_topics
from rmq_actors.store.files.exchange_file import decode_note
from rmq_actors.store.files.json_file import ConfigFileDamaged, JsonFile
from rmq_actors.store.files.layout import (
    ABORT_FILE,
    CHECKPOINT_FILE,
    COMMIT_LOG_DIRECTORY,
    CONFIG_DIRECTORY,
    CONSUME_QUEUE_DIRECTORY,
    CONSUME_QUEUE_EXT_DIRECTORY,
    CUT_DIRECTORY,
    DELAY_OFFSET_FILE,
    DELETED_TOPICS_FILE,
    EXCHANGE_FILE,
    INDEX_DIRECTORY,
    LOCK_FILE,
    TERM_FILE,
    TRAN_STATE_TABLE_DIRECTORY,
)
from rmq_actors.store.files.term_file import decode_term, load_term
from rmq_actors.wire.bodies.decoding import decode_file
from rmq_actors.wire.bodies.offsets import ConsumerOffsetSerializeWrapper
from rmq_actors.wire.bodies.subscription_groups import SubscriptionGroupWrapper
from rmq_actors.wire.bodies.topic_configs import TopicConfigSerializeWrapper
from rmq_actors.wire.fastjson import JsonValue, parse_fastjson

T = TypeVar("T")

_FILES = (ABORT_FILE, CHECKPOINT_FILE, LOCK_FILE)
_DIRECTORIES = (
    COMMIT_LOG_DIRECTORY,
    CONFIG_DIRECTORY,
    CONSUME_QUEUE_DIRECTORY,
    CONSUME_QUEUE_EXT_DIRECTORY,
    CUT_DIRECTORY,
    INDEX_DIRECTORY,
    TRAN_STATE_TABLE_DIRECTORY.split("/", maxsplit=1)[0],
)
TOPICS_FILE = f"{CONFIG_DIRECTORY}/topics.json"


def _of_json(decode: Callable[[JsonValue], object]) -> Callable[[memoryview], object]:
    return lambda data: decode(parse_fastjson(data))


#: What a start, or a broker's first request, makes of a file; it raises `ValueError` for what it cannot take.
_DECODERS: Mapping[str, Callable[[memoryview], object]] = {
    TOPICS_FILE: partial(decode_file, TopicConfigSerializeWrapper),
    f"{CONFIG_DIRECTORY}/subscriptionGroup.json": partial(decode_file, SubscriptionGroupWrapper),
    f"{CONFIG_DIRECTORY}/consumerOffset.json": partial(decode_file, ConsumerOffsetSerializeWrapper),
    DELAY_OFFSET_FILE: _of_json(decode_delay_offsets),
    DELETED_TOPICS_FILE: decode_deleted_topics,
    EXCHANGE_FILE: _of_json(decode_note),
    TERM_FILE: _of_json(decode_term),
}


def check_config(disk: Disk, summary: CheckSummary) -> Iterator[Finding]:
    """Each file below `config/`: what no start takes is an error, what none reads a note."""
    for name in disk.list(CONFIG_DIRECTORY):
        path = f"{CONFIG_DIRECTORY}/{name}"
        summary.files += 1
        if name.endswith(".tmp"):
            yield Finding(path, 0, "note", "a file that was being replaced when the broker stopped")
        elif not name.removesuffix(".bak").endswith(".json"):
            yield Finding(path, 0, "note", "unknown: not read")
        else:
            try:
                _read(disk, path, _DECODERS.get(path.removesuffix(".bak"), parse_fastjson))
            except (ValueError, OSError) as error:
                text = error.strerror if isinstance(error, OSError) else str(error)
                yield Finding(path, 0, "error", f"cannot be read: {text}")


def known_topics(disk: Disk) -> frozenset[str]:
    """The topics that have a line in topics.json; none where that cannot be read."""
    if not disk.exists(TOPICS_FILE):
        return frozenset()
    try:
        return frozenset(_read(disk, TOPICS_FILE, partial(decode_file, TopicConfigSerializeWrapper)).topic_config_table)
    except (ValueError, OSError):
        return frozenset()


def _read(disk: Disk, path: str, decode: Callable[[memoryview], T]) -> T:
    file = disk.open(path, read_only=True)
    try:
        return decode(file.map())
    finally:
        file.close()


def why_no_start(disk: Disk) -> Iterator[tuple[str, str]]:
    """The files below `config/` that keep a broker from starting, its `.bak` considered, and why."""
    for path, decode in _DECODERS.items():
        try:
            if path == TERM_FILE:
                load_term(disk)
            else:
                JsonFile(disk, path).load_text(decode)
        except ConfigFileDamaged as error:
            yield path, str(error)


def check_names(disk: Disk) -> Iterator[Finding]:
    """What stands in the root: names that nobody knows, and files where directories belong, or the other way round."""
    for name in disk.list(""):
        if name not in _FILES and name not in _DIRECTORIES:
            yield Finding(name, 0, "note", "unknown: not read")
            continue
        try:
            disk.open(name, read_only=True).close()
        except IsADirectoryError:
            if name in _FILES:
                yield Finding(name, 0, "error", "a directory: a file has this name")
        except OSError as error:
            yield Finding(name, 0, "error", f"cannot be opened: {error.strerror}")
        else:
            if name in _DIRECTORIES:
                yield Finding(name, 0, "error", "a file: a directory has this name")
