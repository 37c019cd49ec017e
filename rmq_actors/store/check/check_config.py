"""Checking what stands beside the log: each file below `config/` as a start reads it, and the names of the root."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import NamedTuple

from rmq_actors.ports.disk import Disk
from rmq_actors.store.check.finding import CANNOT_BE_OPENED, CheckSummary, Finding
from rmq_actors.store.files.delay_offsets import decode_delay_offsets
from rmq_actors.store.files.deleted_topics import decode_deleted_topics
from rmq_actors.store.files.exchange_file import MAX_BYTES as NOTE_MAX_BYTES
from rmq_actors.store.files.exchange_file import decode_note
from rmq_actors.store.files.json_file import IS_EMPTY, ConfigFileDamaged, JsonFile
from rmq_actors.store.files.layout import (
    ABORT_FILE,
    CHECKPOINT_FILE,
    COMMIT_LOG_DIRECTORY,
    CONFIG_DIRECTORY,
    CONSUME_QUEUE_DIRECTORY,
    CONSUME_QUEUE_EXT_DIRECTORY,
    CONSUMER_OFFSET_FILE,
    CUT_DIRECTORY,
    DELAY_OFFSET_FILE,
    DELETED_TOPICS_FILE,
    EXCHANGE_FILE,
    INDEX_DIRECTORY,
    LOCK_FILE,
    SUBSCRIPTION_GROUP_FILE,
    TERM_FILE,
    TOPICS_FILE,
    TRAN_STATE_TABLE_DIRECTORY,
)
from rmq_actors.store.files.term_file import MAX_BYTES as TERM_MAX_BYTES
from rmq_actors.store.files.term_file import decode_term, load_term
from rmq_actors.wire.bodies.decoding import decode_file
from rmq_actors.wire.bodies.offsets import ConsumerOffsetSerializeWrapper
from rmq_actors.wire.bodies.subscription_groups import SubscriptionGroupWrapper
from rmq_actors.wire.bodies.topic_configs import TopicConfigSerializeWrapper
from rmq_actors.wire.fastjson import MAX_SIZE_BYTES, JsonValue, parse_fastjson
from rmq_actors.wire.remoting_command import FRAME_MAX_LENGTH_BYTES

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


#: What a broker has a use for in the root of a store.
ROOT_NAMES = (*_FILES, *_DIRECTORIES)


def _of_json(decode: Callable[[JsonValue], object]) -> Callable[[memoryview], object]:
    return lambda data: decode(parse_fastjson(data))


class _Table(NamedTuple):
    """How a start reads a file; `decode` raises `ValueError` for what it cannot take."""

    decode: Callable[[memoryview], object]
    max_bytes: int = MAX_SIZE_BYTES


_TABLES: Mapping[str, _Table] = {
    TOPICS_FILE: _Table(partial(decode_file, TopicConfigSerializeWrapper)),
    SUBSCRIPTION_GROUP_FILE: _Table(partial(decode_file, SubscriptionGroupWrapper)),
    CONSUMER_OFFSET_FILE: _Table(partial(decode_file, ConsumerOffsetSerializeWrapper), FRAME_MAX_LENGTH_BYTES),
    DELAY_OFFSET_FILE: _Table(_of_json(decode_delay_offsets)),
    DELETED_TOPICS_FILE: _Table(decode_deleted_topics),
    EXCHANGE_FILE: _Table(_of_json(decode_note), NOTE_MAX_BYTES),
    TERM_FILE: _Table(_of_json(decode_term), TERM_MAX_BYTES),
}


def check_config(disk: Disk, summary: CheckSummary) -> Iterator[Finding]:
    """Each file below `config/`: what a start reads and cannot take is an error."""
    for name in disk.list(CONFIG_DIRECTORY):
        path = f"{CONFIG_DIRECTORY}/{name}"
        summary.files += 1
        if name.endswith(".tmp"):
            yield Finding(path, 0, "note", "a file that was being replaced when the broker stopped")
        elif path.removesuffix(".bak") in _TABLES:
            reason = why_unreadable(disk, path)
            if reason == IS_EMPTY and path != TERM_FILE:
                yield Finding(path, 0, "note", "empty: a start takes it as if it were not there")
            elif reason:
                yield Finding(path, 0, "error", reason)
        elif not name.removesuffix(".bak").endswith(".json"):
            yield Finding(path, 0, "note", "unknown: not read")
        elif reason := JsonFile(disk, path).look_at(path, parse_fastjson)[1]:
            yield Finding(path, 0, "note", f"{reason}; this broker has no use for it")


def why_unreadable(disk: Disk, path: str) -> str:
    """Why a start cannot take a file, or a `.bak`, as it is alone; "" if it can."""
    table = _TABLES[path.removesuffix(".bak")]
    return JsonFile(disk, path, table.max_bytes).look_at(path, table.decode)[1]


def is_table(path: str) -> bool:
    """Whether a start reads the file, or its main file if it is a `.bak`."""
    return path.removesuffix(".bak") in _TABLES


def known_topics(disk: Disk) -> frozenset[str]:
    """The topics that have a line in topics.json; none where that cannot be read."""
    decode = partial(decode_file, TopicConfigSerializeWrapper)
    topics, _ = JsonFile(disk, TOPICS_FILE).look_at(TOPICS_FILE, decode)
    return frozenset() if topics is None else frozenset(topics.topic_config_table)


def refused_tables(disk: Disk) -> Iterator[tuple[str, str]]:
    """The files below `config/` that keep a broker from starting, their `.bak` considered, and why."""
    for path, table in _TABLES.items():
        try:
            if path == TERM_FILE:
                load_term(disk, quietly=True)
            else:
                JsonFile(disk, path, table.max_bytes).load_text(table.decode, quietly=True)
        except ConfigFileDamaged as error:
            yield path, str(error)


def check_names(disk: Disk) -> Iterator[Finding]:
    """What stands in the root: names that nobody knows, and what is of the wrong kind."""
    for name in disk.list(""):
        if name not in ROOT_NAMES:
            yield Finding(name, 0, "note", "unknown: not read")
        elif reason := why_of_wrong_kind(disk, name):
            yield Finding(name, 0, "error", reason)


def why_of_wrong_kind(disk: Disk, name: str) -> str:
    """Why nobody can use what has this name in the root; "" if it is what it should be, or is not there."""
    if name not in disk.list(""):
        return ""
    try:
        disk.open(name, read_only=True).close()
    except FileNotFoundError:
        return "" if name == LOCK_FILE else "a link that leads nowhere"  # a start makes the lock where it leads
    except IsADirectoryError:
        return "a directory: a file has this name" if name in _FILES else ""
    except OSError as error:
        return f"{CANNOT_BE_OPENED}: {error.strerror}"
    return "a file: a directory has this name" if name in _DIRECTORIES else ""
