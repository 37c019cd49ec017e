"""Reads of RocketMQ's own store: what its queues and its index lead to is what another decoder found in its log."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import trio

from rmq_actors.store.read.get_message import DefaultMessageFilter, GetMessageStatus
from rmq_actors.store.read.query_message import query_message
from rmq_actors.wire.java_string import java_hash_code
from tests.worlds.golden_capture import END_OFFSET, FILE_SIZE_BYTES, STORE_MASTER_CLEAN, golden_messages
from tests.worlds.read_store import ReadStore, open_read_store


@pytest.fixture
def store(tmp_path: Path) -> Iterator[ReadStore]:
    root = tmp_path / "store"
    shutil.copytree(STORE_MASTER_CLEAN, root)
    for path in (root, *root.rglob("*")):
        path.chmod(0o755)
    opened = open_read_store(
        root,
        dispatched_to=END_OFFSET,
        mapped_file_size_commit_log_bytes=FILE_SIZE_BYTES,
        mapped_file_size_consume_queue_bytes=2000,
        max_hash_slot_num=500,
        max_index_num=2000,
    )
    with contextlib.closing(opened):
        yield opened


def queues() -> dict[tuple[str, int], list[dict[str, Any]]]:
    by_queue: dict[tuple[str, int], list[dict[str, Any]]] = {}
    for row in golden_messages():
        by_queue.setdefault((row["topic"], row["queueId"]), []).append(row)
    return by_queue


def test_every_message_is_read_from_its_queue(store: ReadStore) -> None:
    found = 0
    for (topic, queue_id), rows in queues().items():
        offset = 0
        places: list[int] = []
        while True:
            result = store.reads.get_message(topic, queue_id, offset, 5)
            if result.status is not GetMessageStatus.FOUND:
                break
            assert (result.min_offset, result.max_offset) == (0, len(rows))
            places += [int.from_bytes(record[28:36], "big") for record in result.messages]
            offset = result.next_begin_offset
        assert result.status is GetMessageStatus.OFFSET_OVERFLOW_ONE
        assert places == [row["phyOffset"] for row in rows]
        assert store.offsets.get_earliest_message_time(topic, queue_id) == rows[0]["store"]
        for row in rows:
            nearest = store.offsets.get_offset_in_queue_by_time(topic, queue_id, row["store"])
            assert rows[nearest]["store"] == row["store"]
        found += len(places)
    assert found == 215
    assert store.stats.get_message_transferred_msg_count == 215


def test_tags_select_what_has_them(store: ReadStore) -> None:
    selected = 0
    for (topic, queue_id), rows in queues().items():
        if topic == "SCHEDULE_TOPIC_XXXX":
            continue  # there, the entry says when to deliver
        for tags in sorted({row["props"]["TAGS"] for row in rows if "TAGS" in row["props"]}):
            result = store.reads.get_message(topic, queue_id, 0, 32, DefaultMessageFilter({java_hash_code(tags)}))
            places = [int.from_bytes(record[28:36], "big") for record in result.messages]
            assert places == [row["phyOffset"] for row in rows if row["props"].get("TAGS") == tags]
            selected += len(places)
    assert selected > 50


def test_every_message_is_found_by_its_keys_and_its_offset(store: ReadStore) -> None:
    async def main() -> None:
        for row in golden_messages():
            message = store.lookup.look_message_by_offset(row["phyOffset"], row["total"])
            assert message is not None
            assert (message.topic, message.properties) == (row["topic"], row["props"])
            keys = [row["props"].get("UNIQ_KEY"), *row["props"].get("KEYS", "").split(" ")]
            for key in filter(None, keys):
                found = await query_message(store.config, store.index, store.lookup, row["topic"], key, 64, 0, 1 << 60)
                places = [int.from_bytes(record[28:36], "big") for record in found.messages]
                assert row["phyOffset"] in places
                assert places == sorted(
                    other["phyOffset"]
                    for other in golden_messages()
                    if other["topic"] == row["topic"]
                    and key in (other["props"].get("UNIQ_KEY"), *other["props"].get("KEYS", "").split(" "))
                )

    trio.run(main)
