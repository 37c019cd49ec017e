"""Rows in a store without services, as its writer puts them and hands them to the dispatcher."""

from __future__ import annotations

from rmq_actors.store.config import MessageStoreConfig
from rmq_actors.store.lifecycle.store_files import StoreFiles
from rmq_actors.wire.message_rows import MessageRow, encode_rows
from rmq_actors.wire.properties import encode_properties
from rmq_actors.wire.record import Message, encode_host, encode_message

CONFIG = MessageStoreConfig(
    mapped_file_size_commit_log_bytes=16_384,
    mapped_file_size_consume_queue_bytes=200,
    max_hash_slot_num=64,
    max_index_num=50,
)
HOST = encode_host("127.0.0.1:10911")


def put_rows(files: StoreFiles, rows: list[tuple[str, int, dict[str, str]]]) -> None:
    """As `MessagePuts.put_rows`: those that fit the last file; the first by itself where none does."""
    log = files.commit_log
    messages = [
        MessageRow(topic, queue_id, 0, 0, 1, 0, memoryview(b"body"), encode_properties(names), names, HOST)
        for topic, queue_id, names in rows
    ]
    while messages:
        encoded = encode_rows(
            messages,
            store_host=HOST,
            begin_offset=log.append_offset,
            room_bytes=log.room_for_rows_bytes,
            store_timestamp_ms=1_700_000_000_000 + log.append_offset,
            max_message_size_bytes=4096,
            next_queue_offset=log.next_queue_offset,
        )
        if not encoded:
            row = messages.pop(0)
            message = Message(row.topic, b"body", row.queue_id, dict(row.names), born_timestamp_ms=1)
            log.append_message(encode_message(message), 1_700_000_000_000 + log.append_offset)
            continue
        log.append_rows(encoded)
        files.reput.rows.put(encoded.requests, encoded.properties_bytes)
        del messages[: len(encoded)]
