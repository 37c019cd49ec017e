"""Consume queues on a directory, for tests: requests to dispatch, and the bytes that come of them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rmq_actors.ports.disk import Disk
from rmq_actors.real_io.os_disk import OsDisk
from rmq_actors.store.config import MessageStoreConfig
from rmq_actors.store.dispatch.consume_queue import ConsumeQueue
from rmq_actors.store.dispatch.consume_queues import ConsumeQueues
from rmq_actors.store.files.formats import BLANK_SIZE
from rmq_actors.store.files.mapped_file_queue import MappedFileQueue
from rmq_actors.wire.dispatch_request import DispatchRequest, read_dispatch_request

STORE_TIMESTAMP_MS = 1_700_000_000_000


def request(
    index: int,
    offset: int,
    size: int = 100,
    tags_code: int = 0,
    *,
    topic: str = "T",
    queue_id: int = 0,
    sys_flag: int = 0,
    properties: Mapping[str, str] | None = None,
) -> DispatchRequest:
    """A record at `offset` of the log whose place in its queue is `index`."""
    time_ms = STORE_TIMESTAMP_MS + offset
    return DispatchRequest(topic, queue_id, offset, size, tags_code, time_ms, index, sys_flag, 0, properties or {})


def new_queues(root: Path | Disk, *, units: int = 5, **settings: Any) -> ConsumeQueues:
    """Queues with files of `units` entries, not yet recovered."""
    disk = OsDisk(root) if isinstance(root, Path) else root
    config = MessageStoreConfig(mapped_file_size_consume_queue_bytes=20 * units, **settings)
    return ConsumeQueues(disk, config)


def open_queues(root: Path | Disk, durable_to: int = 0, *, units: int = 5, **settings: Any) -> ConsumeQueues:
    """The same, recovered."""
    queues = new_queues(root, units=units, **settings)
    queues.recover(durable_to)
    return queues


def held(queue: ConsumeQueue) -> list[tuple[int, int, int] | None]:
    """Every entry from the first of its files on, as stored; None for a blank."""
    found: list[tuple[int, int, int] | None] = []
    for mapped_file in queue.queue.files:
        data = bytes(mapped_file.whole()[: mapped_file.wrote_position])
        for at in range(0, len(data), 20):
            offset, size, tags_code = (
                int.from_bytes(data[at + begin : at + end], "big", signed=True)
                for begin, end in ((0, 8), (8, 12), (12, 20))
            )
            found.append(None if (offset, size, tags_code) == (0, BLANK_SIZE, 0) else (offset, size, tags_code))
    return found


def tree(root: Path, directory: str = "consumequeue") -> dict[str, bytes]:
    """Path and bytes of every file below a directory."""
    return {str(path.relative_to(root)): path.read_bytes() for path in (root / directory).rglob("*") if path.is_file()}


def requests_of(root: Path, file_size_bytes: int) -> list[DispatchRequest]:
    """What the log of a store gives its dispatchers."""
    queue = MappedFileQueue(OsDisk(root), "commitlog", file_size_bytes)
    queue.load(read_only=True)
    found = []
    for mapped_file in queue.files:
        view, position = mapped_file.whole(), 0
        while position < len(view):
            read = read_dispatch_request(view, position, mapped_file.from_offset + position)
            if isinstance(read, DispatchRequest):
                found.append(read)
                position += read.msg_size
            elif read.what == "blank":
                position += read.size
            else:
                break
    queue.close()
    return found
