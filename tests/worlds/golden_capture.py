"""The captures of RocketMQ 4.9.7 as values: the log's bytes, the HA streams, the decoded messages."""

from __future__ import annotations

import ast
import functools
import importlib.resources
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import attrs

from rmq_actors.store.files.layout import COMMIT_LOG_DIRECTORY
from rmq_actors.wire.ha_frames import TRANSFER_HEADER, TRANSFER_HEADER_BYTES

GOLDEN = Path(__file__).parents[1] / "golden"
STORE_MASTER_CLEAN = Path(str(importlib.resources.files("rmq_actors.testing"))) / "golden" / "store_master_clean"
STORE_SLAVE_CLEAN = GOLDEN / "store_slave_clean"
STORE_MASTER_KILLED = GOLDEN / "store_master_killed"

FILE_SIZE_BYTES = 262144
END_OFFSET = 380417
BLANK_OFFSET = 234867


@attrs.frozen
class Frame:
    """One frame of a captured stream: `position` is where its header stands in the stream."""

    position: int
    offset: int
    body: bytes


@functools.cache
def golden_log() -> bytes:
    """The log of the clean stores, from offset 0 to its end."""
    files = sorted((STORE_MASTER_CLEAN / COMMIT_LOG_DIRECTORY).iterdir())
    return b"".join(file.read_bytes() for file in files)[:END_OFFSET]


@functools.cache
def capture(name: str) -> bytes:
    """The bytes of one direction of one connection, as `conn0.master_to_slave`."""
    return (GOLDEN / "ha" / f"{name}.bin").read_bytes()


def frames(stream: bytes) -> Iterator[Frame]:
    """Cut a whole captured stream into its frames."""
    position = 0
    while position < len(stream):
        offset, size = TRANSFER_HEADER.unpack_from(stream, position)
        body_at = position + TRANSFER_HEADER_BYTES
        assert body_at + size <= len(stream)
        yield Frame(position, offset, stream[body_at : body_at + size])
        position = body_at + size


@functools.cache
def golden_messages() -> tuple[dict[str, Any], ...]:
    """The 215 messages that another decoder found."""
    lines = (GOLDEN / "messages.jsonl").read_text().splitlines()
    return tuple(row for row in map(json.loads, lines) if not row.get("blank"))


def stored_bytes(text: str) -> bytes:
    """The bytes that a column of messages.jsonl shows as Python source."""
    value = ast.literal_eval(text)
    assert isinstance(value, bytes)
    return value
