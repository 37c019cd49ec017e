"""Copies of stores for tests to damage, and a store with everything that RocketMQ's captures do not have."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from rmq_actors.real_io.os_disk import OsDisk
from rmq_actors.store.check.check_store import check_store
from rmq_actors.store.check.finding import Finding
from rmq_actors.store.config import MessageStoreConfig
from rmq_actors.store.dispatch.consume_queues import ConsumeQueues
from rmq_actors.store.dispatch.index_service import IndexService
from rmq_actors.store.dispatch.transaction_state_service import TransactionStateService, record_reader
from rmq_actors.store.files.layout import COMMIT_LOG_DIRECTORY
from rmq_actors.store.files.mapped_file_queue import MappedFileQueue
from rmq_actors.store.log.commit_log import CommitLog
from rmq_actors.store.log.log_walk import LogWalk
from rmq_actors.wire.dispatch_request import HALF_TOPIC
from rmq_actors.wire.record import Message, encode_message
from tests.worlds.recording import new_tracer
from tests.worlds.running_store import StillClock

CONFIG = MessageStoreConfig(
    mapped_file_size_commit_log_bytes=2000,
    mapped_file_size_consume_queue_bytes=100,
    enable_consume_queue_ext=True,
    enable_multi_dispatch=True,
    enable_lmq=True,
    max_hash_slot_num=7,
    max_index_num=30,
)


def copy_store(source: Path, target: Path) -> Path:
    """A copy that may be written to, though its source may not."""
    shutil.copytree(source, target)
    for directory, _, names in os.walk(target):
        Path(directory).chmod(0o755)
        for name in names:
            (Path(directory) / name).chmod(0o644)
    return target


def findings_of(root: Path) -> list[Finding]:
    """Everything that a check finds."""
    return list(check_store(OsDisk(root)))


def put(path: Path, position: int, data: bytes) -> None:
    """Write over a part of a file."""
    with path.open("r+b") as file:
        file.seek(position)
        file.write(data)


def flip(path: Path, position: int, bit: int = 0) -> None:
    """Change one bit of a file."""
    put(path, position, bytes((path.read_bytes()[position] ^ 1 << bit,)))


def messages() -> list[Message]:
    """Two topics, keys, tags, IPv6 hosts, further queues, and transactions that are open, committed, rolled back."""
    result = []
    for number in range(30):
        properties = {"UNIQ_KEY": f"unique{number}", "KEYS": f"a{number} b{number % 3}", "TAGS": f"tag{number % 4}"}
        if number % 5 == 0:
            offsets = f"{number // 5},{number // 5}"
            properties |= {"INNER_MULTI_DISPATCH": "%LMQ%x,%LMQ%y", "INNER_MULTI_QUEUE_OFFSET": offsets}
        store_host = "[2001:db8::1]:10911" if number % 7 == 0 else "127.0.0.1:10911"
        result.append(Message(f"T{number % 2}", bytes([number]) * 40, number % 3, properties, store_host=store_host))
    for number in range(3):
        half = {"PGROUP": "group", "UNIQ_KEY": f"half{number}", "TRAN_MSG": "true"}
        result.append(Message(HALF_TOPIC, b"half", 0, half))
    result.append(Message("RMQ_SYS_TRANS_OP_HALF_TOPIC", b"1", 0, {"TAGS": "d"}))
    return result


def make_store(root: Path, config: MessageStoreConfig = CONFIG, count: int | None = None) -> Path:
    """A store of ours with the first `count` messages, as an orderly stop leaves it, but for the checkpoint."""
    disk, tracer = OsDisk(root), new_tracer()
    log = CommitLog.open(disk, config.mapped_file_size_commit_log_bytes, tracer)
    for number, message in enumerate(messages()[:count]):
        log.append_message(encode_message(message), 1_700_000_000_000 + 700 * number)
    log.close()
    queue = MappedFileQueue(disk, COMMIT_LOG_DIRECTORY, config.mapped_file_size_commit_log_bytes)
    queue.load(read_only=True)
    dispatchers = (
        ConsumeQueues(disk, config),
        IndexService(disk, config, StillClock()),
        TransactionStateService(disk, record_reader(queue), table_file_size_bytes=240, redo_log_file_size_bytes=200),
    )
    for dispatcher in dispatchers:
        dispatcher.recover(0)
    for batch in LogWalk(queue, 0, 0, after_crash=False).batches():
        for dispatcher in dispatchers:
            dispatcher.dispatch(batch)
    for dispatcher in dispatchers:
        dispatcher.close()
    queue.close()
    return root
