"""The checkpoint file: RocketMQ's stamps as RocketMQ reads them, and a recovery point that is whole or missing."""

from __future__ import annotations

import struct
from pathlib import Path

import attrs
import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st

from rmq_actors.real_io.os_disk import OsDisk
from rmq_actors.store.files.store_checkpoint import (
    CHECKPOINT_BYTES,
    RECOVERY_POINT_POSITION,
    Checkpoint,
    RecoveryPoint,
    StoreCheckpoint,
    read_checkpoint,
)
from tests.worlds.golden_capture import STORE_MASTER_CLEAN

LONGS = st.integers(0, 2**63 - 1)
INTS = st.integers(0, 2**31 - 1)
POINTS = st.builds(RecoveryPoint, LONGS, LONGS, LONGS, INTS, LONGS, INTS, INTS)
CHECKPOINTS = st.builds(Checkpoint, LONGS, LONGS, LONGS, st.none() | POINTS)
POINT = RecoveryPoint(4096, 1000, 900, 100, 1_700_000_000_000, 3, 1)


@given(CHECKPOINTS)
def test_what_is_written_is_read(checkpoint: Checkpoint) -> None:
    data = checkpoint.encode()
    assert Checkpoint.decode(data) == checkpoint
    assert Checkpoint.decode(data.ljust(CHECKPOINT_BYTES, b"\0")) == checkpoint


@given(CHECKPOINTS)
def test_rocketmq_finds_its_stamps_where_it_looks(checkpoint: Checkpoint) -> None:
    assert struct.unpack_from(">qqq", checkpoint.encode()) == (
        checkpoint.physic_msg_timestamp_ms,
        checkpoint.logics_msg_timestamp_ms,
        checkpoint.index_msg_timestamp_ms,
    )


def test_a_sector_that_is_torn_away_leaves_the_other() -> None:
    checkpoint = Checkpoint(1, 2, 3, POINT)
    data = checkpoint.encode().ljust(CHECKPOINT_BYTES, b"\0")
    assert RECOVERY_POINT_POSITION % 512 == 0
    assert len(checkpoint.encode()) <= RECOVERY_POINT_POSITION + 512, "one sector: it cannot tear"
    assert Checkpoint.decode(data[:512] + bytes(CHECKPOINT_BYTES - 512)) == Checkpoint(1, 2, 3, None)
    assert Checkpoint.decode(bytes(512) + data[512:]) == Checkpoint(0, 0, 0, POINT)


@pytest.mark.parametrize("position", range(RECOVERY_POINT_POSITION, RECOVERY_POINT_POSITION + 60))
def test_a_recovery_point_with_a_wrong_byte_counts_as_missing(position: int) -> None:
    data = bytearray(Checkpoint(1, 2, 3, POINT).encode())
    data[position] ^= 1
    assert Checkpoint.decode(data).recovery_point is None


def test_a_golden_checkpoint_is_read() -> None:
    checkpoint = read_checkpoint(OsDisk(STORE_MASTER_CLEAN))
    data = (STORE_MASTER_CLEAN / "checkpoint").read_bytes()
    assert (checkpoint.physic_msg_timestamp_ms, checkpoint.logics_msg_timestamp_ms) == struct.unpack_from(">qq", data)
    assert checkpoint.physic_msg_timestamp_ms > 1_700_000_000_000
    assert checkpoint.index_msg_timestamp_ms == 0
    assert checkpoint.recovery_point is None


def test_the_minimum_stamps_are_rocketmqs() -> None:
    checkpoint = Checkpoint(10_000, 9_000, 4_000)
    assert checkpoint.min_timestamp_ms == 6_000
    assert checkpoint.min_timestamp_index_ms == 4_000
    assert Checkpoint(100, 9_000, 4_000).min_timestamp_ms == 0


def test_the_file_is_as_long_as_rocketmqs_and_keeps_what_it_was_told(tmp_path: Path) -> None:
    async def main() -> None:
        store_checkpoint = StoreCheckpoint.open(OsDisk(tmp_path))
        assert store_checkpoint.checkpoint == Checkpoint()
        await store_checkpoint.write(Checkpoint(1, 2, 3, POINT))
        await store_checkpoint.write(attrs.evolve(Checkpoint(4, 5, 6, POINT)))
        store_checkpoint.close()

    trio.run(main)
    assert (tmp_path / "checkpoint").stat().st_size == CHECKPOINT_BYTES
    assert read_checkpoint(OsDisk(tmp_path)) == Checkpoint(4, 5, 6, POINT)


@pytest.mark.parametrize("length", [0, 10, 511, 600, 4095])
def test_a_file_that_a_crash_left_short_is_mended(tmp_path: Path, length: int) -> None:
    whole = Checkpoint(1, 2, 3, POINT).encode().ljust(CHECKPOINT_BYTES, b"\0")
    (tmp_path / "checkpoint").write_bytes(whole[:length])
    store_checkpoint = StoreCheckpoint.open(OsDisk(tmp_path))
    assert store_checkpoint.checkpoint.recovery_point == (POINT if length >= 600 else None)
    store_checkpoint.close()
    assert (tmp_path / "checkpoint").stat().st_size == CHECKPOINT_BYTES
