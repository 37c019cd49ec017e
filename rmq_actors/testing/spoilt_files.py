"""What an operator may do to files of a broker that is down, as a table: which files then have what.

Each change is a function of what there is, and changes nothing itself. It raises ValueError where there is nothing to
do it to.
"""

from __future__ import annotations

import contextlib
import random
import struct
from collections.abc import Callable, Iterator, Mapping
from typing import Final

import attrs
import trio

from rmq_actors.ports.disk import Disk
from rmq_actors.store.files.json_file import ConfigFileDamaged
from rmq_actors.store.files.layout import (
    CHECKPOINT_FILE,
    COMMIT_LOG_DIRECTORY,
    CONSUME_QUEUE_DIRECTORY,
    CONSUMER_OFFSET_FILE,
    INDEX_DIRECTORY,
    SUBSCRIPTION_GROUP_FILE,
    TERM_FILE,
    TOPICS_FILE,
    file_name,
)
from rmq_actors.store.log.log_walk import DamagedLog
from rmq_actors.store.log.read_log import MESSAGE_MAGIC_V2
from rmq_actors.wire.record import BLANK, END_FILE_MIN_BLANK_LENGTH, MESSAGE_MAGIC, Message, encode_message

#: What files are to have, by path; None: they are not there.
Contents = Mapping[str, bytes | None]

_ENTRY_BYTES: Final = 20
#: A start without a checkpoint reads as many files of the log again.
_READ_AGAIN: Final = 3
#: How often the checkpoint is lost with files of queues, as where RocketMQ ran meanwhile; and how often a queue is put
#: back from an older copy, or loses the newest of its files.
_WITHOUT_CHECKPOINT: Final = 0.5
_OLDER_COPY: Final = 0.3
_OF_A_QUEUE: Final = 0.5
#: The topic of records that no broker of a run has stored.
_TOPIC: Final = "Elsewhere"
_LONG_TOPIC_BYTES: Final = (128, 255)
_TOPIC_AT_END: Final = b"\x09Elsewhere\0\0"
#: More of them than RocketMQ can read; some that are not UTF-8; and usual ones.
_LONG_PROPERTIES: Final = b"TAGS\1a\2KEYS\1long\2X\1" + b"x" * 33_000
_NO_UTF8: Final = b"TAGS\1\xff\xc3\2KEYS\1k\xed\xa0\x80x k2\2UNIQ_KEY\1u\xe2\x82"
_PROPERTIES: Final = b"TAGS\1a\2KEYS\1k"
_UNSIGNED_SHORT: Final = struct.Struct(">H")
_STORED_MS: Final = 1_700_000_000_000


@attrs.frozen
class Files:
    """Those of a broker that is down, where its log ends, and a generator that chooses."""

    disk: Disk
    end: int
    rng: random.Random


Change = Callable[[Files], Contents]


@attrs.frozen
class Spoiling:
    """What is done to files, and when.

    `refused_as`: the broker must not open its store then, and its start fails with this error. `in_order`: it must have
    been stopped in order before. `goes_on`: what stands at the log's end belongs to it then, and the broker must be
    the master.
    """

    change: Change
    refused_as: type[Exception] | None = None
    in_order: bool = False
    goes_on: bool = False


def read_file(disk: Disk, path: str) -> bytes | None:
    """All of a file; None if it is not there. Raises `OSError`."""
    if not disk.exists(path):
        return None
    file = disk.open(path, read_only=True)
    try:
        return bytes(file.map()) if file.size_bytes else b""
    finally:
        file.close()


async def make_so(disk: Disk, contents: Contents) -> None:
    """Let files have these contents, durably, also where the power is lost meanwhile."""
    while any(read_file(disk, path) != data for path, data in contents.items()):
        with contextlib.suppress(OSError):  # a sync fails that the power was lost in
            await _write_all(disk, contents)
        await trio.lowlevel.checkpoint()


async def _write_all(disk: Disk, contents: Contents) -> None:
    for path, data in contents.items():
        if disk.exists(path):
            disk.remove(path)
        if data is not None:
            file = disk.open(path, allocate_bytes=len(data))
            try:
                file.write_at(0, data)
                await file.sync()
            finally:
                file.close()
    await disk.sync_directories(sorted({path.rpartition("/")[0] for path in contents}))


# --- files that are lost ----------------------------------------------------------------------------------------------


def lose_queue_files(files: Files) -> Contents:
    """The newest files of some queues, or all, or what has come to a file since a copy of it was made."""
    without_checkpoint = files.rng.random() < _WITHOUT_CHECKPOINT
    contents: dict[str, bytes | None] = {}
    for directory in _queues(files.disk):
        paths = [f"{directory}/{name}" for name in files.disk.list(directory)]
        if not paths or files.rng.random() >= _OF_A_QUEUE:
            continue
        if not without_checkpoint and files.rng.random() < _OLDER_COPY:
            contents |= _older_copy(files.disk, paths, files.rng)
            continue
        # Without a checkpoint nothing tells of a queue that the log's last files do not name.
        kept = files.rng.randrange(1 if without_checkpoint else 0, len(paths) + 1)
        contents |= dict.fromkeys(paths[kept:])
    if not contents:
        raise ValueError("no file of a queue is lost")
    return {**contents, CHECKPOINT_FILE: None} if without_checkpoint else contents


def _queues(disk: Disk) -> Iterator[str]:
    for topic in disk.list(CONSUME_QUEUE_DIRECTORY):
        for queue in disk.list(f"{CONSUME_QUEUE_DIRECTORY}/{topic}"):
            yield f"{CONSUME_QUEUE_DIRECTORY}/{topic}/{queue}"


def _older_copy(disk: Disk, paths: list[str], rng: random.Random) -> Contents:
    """The newest file that holds anything, without its last entries."""
    for path in reversed(paths):
        data = read_file(disk, path) or b""
        used = len(data.rstrip(b"\0"))
        if used:
            kept = rng.randrange(-(-used // _ENTRY_BYTES)) * _ENTRY_BYTES
            return {path: data[:kept].ljust(len(data), b"\0")}
    return {}


def lose_index_files(files: Files) -> Contents:
    """Any of them, or all."""
    names = files.disk.list(INDEX_DIRECTORY)
    if not names:
        raise ValueError("there is no index")
    return {f"{INDEX_DIRECTORY}/{name}": None for name in files.rng.sample(names, files.rng.randint(1, len(names)))}


def lose_log_file(files: Files) -> Contents:
    """The newest that holds anything, and those after it."""
    names = files.disk.list(COMMIT_LOG_DIRECTORY)
    newest = max((name for name in names if int(name) < files.end), default=None)
    if newest is None:
        raise ValueError("no file of the log holds anything")
    return {f"{COMMIT_LOG_DIRECTORY}/{name}": None for name in names if name >= newest}


def tables_to_backups(files: Files) -> Contents:
    """Moved to the names of their own backups, as by a crash between two renames."""
    tables = [path for path in (TOPICS_FILE, SUBSCRIPTION_GROUP_FILE, CONSUMER_OFFSET_FILE) if files.disk.exists(path)]
    if not tables:
        raise ValueError("there is no table")
    contents: dict[str, bytes | None] = {}
    for path in files.rng.sample(tables, files.rng.randint(1, len(tables))):
        contents |= {path: None, f"{path}.bak": read_file(files.disk, path)}
    return contents


# --- files that are spoilt --------------------------------------------------------------------------------------------


def spoil_term(files: Files) -> Contents:
    """It is cut short, empty, or all zeros, as file systems leave a file that was being written."""
    data = read_file(files.disk, TERM_FILE)
    if not data:
        raise ValueError("there is no term")
    return {TERM_FILE: files.rng.choice((b"", data[: len(data) // 2], bytes(len(data))))}


def spoil_record(files: Files) -> Contents:
    """A bit flips in the size of a record that others follow. The checkpoint, which trusts the log, is lost."""
    names = files.disk.list(COMMIT_LOG_DIRECTORY)[-_READ_AGAIN:]
    paths = [f"{COMMIT_LOG_DIRECTORY}/{name}" for name in names if int(name) < files.end]
    records = [(path, at) for path in paths for at in _records(read_file(files.disk, path) or b"")]
    if len(records) < 2:
        raise ValueError("no record is followed by another")
    path, at = files.rng.choice(records[:-1])
    data = bytearray(read_file(files.disk, path) or b"")
    data[at + files.rng.choice((2, 3))] ^= 1 << files.rng.randrange(8)
    return {path: bytes(data), CHECKPOINT_FILE: None}


def _records(data: bytes) -> Iterator[int]:
    """Where the messages begin in a file of the log."""
    at = 0
    while at + BLANK.size <= len(data):
        size, magic = BLANK.unpack_from(data, at)
        if magic != MESSAGE_MAGIC:
            return
        yield at
        at += size


# --- records that no broker of the run has stored ---------------------------------------------------------------------


def part_of_a_record(files: Files) -> Contents:
    """As a slave of RocketMQ stops. The body holds what looks like a whole record, at its very place."""
    body_at = len(_image(0, b"")) - len(_TOPIC_AT_END)
    forged = _image(files.end + body_at, b"forged")
    whole = _image(files.end, forged + bytes(range(1, 100)))
    cut = files.rng.randrange(body_at + len(forged), len(whole) - len(_TOPIC_AT_END))
    return _at_the_end(files, whole, cut)


def record_of_long_topic(files: Files) -> Contents:
    """RocketMQ reads the length of its topic as a negative one."""
    data = bytearray(_image(files.end, b"body").removesuffix(_TOPIC_AT_END))
    length = files.rng.choice(_LONG_TOPIC_BYTES)
    data += bytes((length,)) + b"t" * length + _UNSIGNED_SHORT.pack(0)
    BLANK.pack_into(data, 0, len(data), MESSAGE_MAGIC)
    return _at_the_end(files, bytes(data))


def record_of_rocketmq_5(files: Files) -> Contents:
    """The length of its topic has two bytes."""
    data = bytearray(_image(files.end, b"body").removesuffix(_TOPIC_AT_END))
    data += b"\0" + _TOPIC_AT_END
    BLANK.pack_into(data, 0, len(data), MESSAGE_MAGIC_V2)
    return _at_the_end(files, bytes(data))


def records_of_rocketmq(files: Files) -> Contents:
    """What RocketMQ takes, and no put here: text that is no UTF-8, and more properties than any program can read."""
    topic = b"Foreign-%d" % files.rng.randrange(1_000_000)  # nobody has used it: its queue begins
    data = b""
    for number in range(files.rng.randint(1, 3)):
        properties = files.rng.choice((_NO_UTF8, _NO_UTF8, _LONG_PROPERTIES, _PROPERTIES))
        record = bytearray(_image(files.end + len(data), b"body", number).removesuffix(_TOPIC_AT_END))
        record += bytes((len(topic),)) + topic + _UNSIGNED_SHORT.pack(len(properties)) + properties
        BLANK.pack_into(record, 0, len(record), MESSAGE_MAGIC)
        data += record
    return _at_the_end(files, data)


def appended(files: Files, contents: Contents) -> Iterator[tuple[int, int]]:
    """Where the records begin that `contents` have at the end of a log, and their sizes."""
    (data,) = contents.values()
    ((path, _),) = contents.items()
    first = int(path.rpartition("/")[2])
    at = files.end - first
    while data is not None and BLANK.unpack_from(data, at)[1] == MESSAGE_MAGIC:
        size = BLANK.unpack_from(data, at)[0]
        yield first + at, size
        at += size


def _image(physical_offset: int, body: bytes, queue_offset: int = 0) -> bytes:
    """A whole record for an offset of the log."""
    encoded = encode_message(Message(_TOPIC, body))
    encoded.place(queue_offset=queue_offset, physical_offset=physical_offset, store_timestamp_ms=_STORED_MS)
    return bytes(encoded.data)


def _at_the_end(files: Files, record: bytes, cut: int | None = None) -> Contents:
    """The log's last file with this record after its end, or a part of it. There is room for all of it."""
    for name in reversed(files.disk.list(COMMIT_LOG_DIRECTORY)):
        path = f"{COMMIT_LOG_DIRECTORY}/{name}"
        data, at = bytearray(read_file(files.disk, path) or b""), files.end - int(name)
        if at >= 0 and at + len(record) + END_FILE_MIN_BLANK_LENGTH <= len(data) and not any(data[at:]):
            data[at : at + len(record[:cut])] = record[:cut]
            return {path: bytes(data)}
    raise ValueError(f"no file of the log has room for {len(record)} bytes at {file_name(files.end)}")


#: By the name of the operation.
SPOILINGS: Final[Mapping[str, Spoiling]] = {
    "lose_queue_files": Spoiling(lose_queue_files),
    "lose_index_files": Spoiling(lose_index_files),
    "lose_log_file": Spoiling(lose_log_file, refused_as=DamagedLog, in_order=True),
    "spoil_record": Spoiling(spoil_record, refused_as=DamagedLog, in_order=True),
    "spoil_term": Spoiling(spoil_term, refused_as=ConfigFileDamaged),
    "part_of_a_record": Spoiling(part_of_a_record),
    "record_of_long_topic": Spoiling(record_of_long_topic),
    "record_of_rocketmq_5": Spoiling(record_of_rocketmq_5, refused_as=DamagedLog),
    "records_of_rocketmq": Spoiling(records_of_rocketmq, goes_on=True),
    "tables_to_backups": Spoiling(tables_to_backups),
}
