"""A store's files as a whole: what a stop, a kill and a person leave, and what the next start makes of it."""

from __future__ import annotations

import logging
import os
import shutil
import struct
from pathlib import Path

import attrs
import pytest
import trio
import trio.testing

from rmq_actors.ports.environment import Environment
from rmq_actors.real_io.os_disk import OsDisk
from rmq_actors.store.check.repair import plan_repair
from rmq_actors.store.config import BrokerRole
from rmq_actors.store.files.layout import file_name
from rmq_actors.store.files.mapped_file_queue import StoreLayoutError
from rmq_actors.store.files.store_checkpoint import Checkpoint, StoreCheckpoint, read_checkpoint
from rmq_actors.store.lifecycle.store_files import StoreFiles
from rmq_actors.store.log.log_walk import DamagedLog
from rmq_actors.store.log.read_log import MESSAGE_MAGIC_V2
from rmq_actors.store.log.received_records import AppendRefused
from rmq_actors.wire.record import Message, encode_message
from tests.worlds.faulty_disk import FaultyDisk
from tests.worlds.golden_capture import (
    END_OFFSET,
    FILE_SIZE_BYTES,
    STORE_MASTER_CLEAN,
    STORE_MASTER_KILLED,
    STORE_SLAVE_CLEAN,
)
from tests.worlds.recording import new_tracer
from tests.worlds.running_store import NoEntropy, StillClock
from tests.worlds.store_on_disk import CONFIG, opened, wrong

GOLDEN = attrs.evolve(
    CONFIG,
    mapped_file_size_commit_log_bytes=FILE_SIZE_BYTES,
    mapped_file_size_consume_queue_bytes=2000,
    max_hash_slot_num=500,
    max_index_num=2000,
)


def put(files: StoreFiles, number: int, topic: str = "T") -> int:
    """Append one message and dispatch it; where it is."""
    message = Message(topic, b"x" * 300, number % 3, {"KEYS": f"key{number}", "UNIQ_KEY": f"id{number}"})
    result = files.commit_log.append_message(encode_message(message), 1_700_000_000_000 + number)
    while files.reput.dispatch_some(files.commit_log.max_offset):
        pass
    return result.offset


def contents(root: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in root.rglob("*") if path.is_file()}


async def fill(root: Path, count: int = 20, *, orderly: bool = True) -> list[int]:
    """A store with messages; where they are."""
    async with opened(root, orderly=orderly) as files:
        return [put(files, number) for number in range(count)]


async def offsets(root: Path) -> list[int]:
    """Where a new start finds records by its queues, having stopped in order; the store must be right then."""
    async with opened(root) as files:
        entries = [
            entry
            for queue in files.consume_queues
            for index in range(queue.min_offset_in_queue, queue.max_offset_in_queue)
            if (entry := queue.entry(index)) is not None
        ]
    assert wrong(root) == []
    return sorted(entry[0] for entry in entries)


@pytest.mark.trio
async def test_an_orderly_stop_leaves_nothing_to_recover(tmp_path: Path) -> None:
    placed = await fill(tmp_path)
    assert not (tmp_path / "abort").exists()
    assert (tmp_path / "lock").read_bytes() == b"lock"
    assert wrong(tmp_path) == []
    point = read_checkpoint(OsDisk(tmp_path)).recovery_point
    assert point is not None
    async with opened(tmp_path) as files:
        assert point.offset == files.commit_log.max_offset
        assert point.record_offset == placed[-1]
        assert files.commit_log.flushed_where == files.commit_log.max_offset
    assert await offsets(tmp_path) == placed


@pytest.mark.trio
async def test_a_kill_leaves_abort_and_loses_nothing(tmp_path: Path) -> None:
    placed = await fill(tmp_path, orderly=False)
    assert (tmp_path / "abort").exists()
    assert await offsets(tmp_path) == placed
    assert not (tmp_path / "abort").exists()


@pytest.mark.trio
async def test_a_second_start_beside_a_running_one_is_refused(tmp_path: Path) -> None:
    async with opened(tmp_path) as files:
        put(files, 0)
        with pytest.raises(BlockingIOError, match=f"{tmp_path} is in use by this process, "):
            await StoreFiles.open(CONFIG, Environment(OsDisk(tmp_path), StillClock(), NoEntropy()), new_tracer())
        put(files, 1)
    assert len(await offsets(tmp_path)) == 2


@pytest.mark.parametrize("orderly", [True, False], ids=["stopped", "killed"])
@pytest.mark.parametrize("gone", ["consumequeue", "consumequeue/T/1", "index", "consumequeue/T/2 index"])
@pytest.mark.trio
async def test_what_somebody_removes_is_built_again(tmp_path: Path, gone: str, orderly: bool) -> None:
    """RocketMQ's operators remove consumequeue/ to have it built again."""
    placed = await fill(tmp_path, 40)
    if not orderly:
        (tmp_path / "abort").touch()
    for name in gone.split():
        shutil.rmtree(tmp_path / name)
    assert await offsets(tmp_path) == placed


@pytest.mark.trio
async def test_another_file_size_is_named_and_nothing_is_changed(tmp_path: Path) -> None:
    placed = await fill(tmp_path)
    with pytest.raises(StoreLayoutError, match="files of 2048 bytes, mappedFileSizeCommitLog is 4096: set it to 2048"):
        async with opened(tmp_path, attrs.evolve(CONFIG, mapped_file_size_commit_log_bytes=4096)):
            pass
    assert await offsets(tmp_path) == placed


@pytest.mark.parametrize("orderly", [True, False], ids=["stopped", "killed"])
@pytest.mark.trio
async def test_what_recovery_reads_is_told_before_it_does(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, orderly: bool
) -> None:
    caplog.set_level(logging.INFO)
    async with opened(tmp_path):
        assert caplog.messages[0] == "recovery reads 0 bytes of log from offset 0 on: there is no log yet"
    async with opened(tmp_path, orderly=orderly) as files:
        for number in range(20):
            put(files, number)
        end = files.commit_log.max_offset
    begin = end if orderly else 0
    caplog.clear()
    async with opened(tmp_path):
        told = f"recovery reads {end - begin} bytes of log from offset {begin} on: the checkpoint's recovery point"
        assert caplog.messages[0] == told
        assert caplog.messages[1].startswith(f"the log ends at {end}; dispatched from {begin}: ")


@pytest.mark.trio
async def test_a_stopped_store_whose_newest_log_file_is_gone_is_not_opened(tmp_path: Path) -> None:
    """The start went on, without messages that were acknowledged, and gave their queue offsets again."""
    placed = await fill(tmp_path)
    newest = max((tmp_path / "commitlog").iterdir())
    data = newest.read_bytes()
    newest.unlink()
    before = contents(tmp_path)
    with pytest.raises(DamagedLog, match=f"^commitlog/{newest.name}: missing.*Put back .* at a slave, move the store"):
        await StoreFiles.open(CONFIG, Environment(OsDisk(tmp_path), StillClock(), NoEntropy()), new_tracer())
    assert contents(tmp_path) == before
    assert f"commitlog/{newest.name}: missing" in next(
        step.text for step in plan_repair(OsDisk(tmp_path), []) if step.who == "refusal"
    )
    newest.write_bytes(data)
    assert await offsets(tmp_path) == placed
    newest.unlink()
    (tmp_path / "checkpoint").unlink()  # whoever gives the messages up
    assert await offsets(tmp_path) == [offset for offset in placed if offset < int(newest.name)]


@pytest.mark.trio
async def test_a_log_whose_first_file_was_lost_with_its_name_begins_again(tmp_path: Path) -> None:
    """A power cut before the first sync may keep the second file, prepared ahead, and not the first."""
    await fill(tmp_path, 8, orderly=False)
    first, *others = sorted((tmp_path / "commitlog").iterdir())
    first.unlink()
    assert others
    async with opened(tmp_path) as files:
        assert (files.commit_log.min_offset, files.commit_log.max_offset) == (0, 0)
        assert len(files.consume_queues) == 0 or all(not q.max_offset_in_queue for q in files.consume_queues)
        assert put(files, 0) == 0
    assert await offsets(tmp_path) == [0]


@pytest.mark.parametrize("role", [BrokerRole.SLAVE, BrokerRole.ASYNC_MASTER])
@pytest.mark.trio
async def test_what_cannot_be_kept_is_not_cut(tmp_path: Path, role: BrokerRole) -> None:
    """All but the first record of RocketMQ's log were lost to a full disk, of a slave their files too."""
    await fill(tmp_path, orderly=False)
    (tmp_path / "checkpoint").unlink()
    first, *others = sorted((tmp_path / "commitlog").iterdir())
    first.write_bytes(bytes(8) + first.read_bytes()[8:])
    before = [file.read_bytes() for file in (first, *others)]
    (tmp_path / "cut").write_bytes(b"in the way")
    config = attrs.evolve(CONFIG, broker_role=role)
    with pytest.raises(OSError, match="cut"):
        async with opened(tmp_path, config):
            pass
    assert [file.read_bytes() for file in (first, *others)] == before
    (tmp_path / "cut").unlink()
    async with opened(tmp_path, config) as files:
        assert files.commit_log.max_offset == 0
    kept = [(tmp_path / "cut" / file.name).read_bytes() for file in (first, *others[:-1])]
    assert [data.ljust(2048, b"\0") for data in kept] == before[:-1]
    assert wrong(tmp_path) == []


@pytest.mark.parametrize("orderly", [True, False])
@pytest.mark.parametrize("role", [BrokerRole.SLAVE, BrokerRole.ASYNC_MASTER])
@pytest.mark.trio
async def test_a_last_record_that_only_rocketmq_5_reads_is_not_cut(
    tmp_path: Path, role: BrokerRole, orderly: bool
) -> None:
    """It was taken for a torn tail, and nothing of it was kept; of a slave with nothing else the file was removed."""
    await fill(tmp_path, 1, orderly=orderly)
    (tmp_path / "checkpoint").unlink()
    (log,) = (file for file in (tmp_path / "commitlog").iterdir() if int(file.name) == 0)
    data = bytearray(log.read_bytes())
    topic_at = 88 + 300
    data.insert(topic_at, 0)  # its length takes two bytes
    struct.pack_into(">iI", data, 0, int.from_bytes(data[:4], "big") + 1, MESSAGE_MAGIC_V2)
    log.write_bytes(data[:2048])
    with pytest.raises(DamagedLog, match=r"offset 0 .*RocketMQ 5"):
        async with opened(tmp_path, attrs.evolve(CONFIG, broker_role=role)):
            pass
    assert log.read_bytes() == data[:2048]


@pytest.mark.trio
async def test_a_slaves_log_that_begins_late_survives_a_kill(tmp_path: Path) -> None:
    await fill(tmp_path / "master", 20)
    slave = attrs.evolve(CONFIG, broker_role=BrokerRole.SLAVE)
    async with opened(tmp_path / "master") as master:
        views = master.commit_log.ranges(2048, master.commit_log.max_offset)
        async with opened(tmp_path / "slave", slave, orderly=False) as files:
            offset = 2048
            for view in views:
                files.commit_log.append_data(offset, view)
                offset += len(view)
        async with opened(tmp_path / "slave", slave) as files:
            assert files.commit_log.min_offset == 2048
            assert files.commit_log.max_offset == master.commit_log.max_offset
    assert wrong(tmp_path / "slave") == []


@pytest.mark.trio
async def test_a_checkpoint_under_way_as_a_slaves_log_begins_does_not_take_it_back(tmp_path: Path) -> None:
    """The recovery point before the log's first byte would say, after a kill, that a first file is lost."""
    await fill(tmp_path / "master", 20)
    slave = attrs.evolve(CONFIG, broker_role=BrokerRole.SLAVE)
    async with opened(tmp_path / "master") as master:
        data = bytes(master.commit_log.select(2048, 1500))
    async with opened(tmp_path / "slave", slave, orderly=False) as files:

        async def until_flushed(_: int) -> bool:
            files.commit_log.append_data(2048, data)
            await files.commit_log.flush()
            return True

        await files.checkpointing.advance(until_flushed, force=True)
    async with opened(tmp_path / "slave", slave) as files:
        assert files.commit_log.min_offset == 2048
        assert files.commit_log.max_offset > 3000


@pytest.mark.trio
async def test_a_first_file_that_could_not_be_written_promises_nothing_of_another(tmp_path: Path) -> None:
    """The recovery point stayed where that one was to begin: the start was refused, for less than it spoke of."""
    await fill(tmp_path / "master", 20)
    slave, disk = attrs.evolve(CONFIG, broker_role=BrokerRole.SLAVE), FaultyDisk(tmp_path / "slave")
    async with opened(tmp_path / "master") as master:
        late, early = (bytes(master.commit_log.select(offset, 1000)) for offset in (2048, 0))
    async with opened(tmp_path / "slave", slave, disk=disk, orderly=False) as files:
        disk.space_bytes = 1000  # the recovery point's, and a part of the log's
        with pytest.raises(AppendRefused):
            files.commit_log.append_data(2048, late)
        disk.space_bytes = None
        await files.commit_log.remove_unwritten_file()
        files.commit_log.append_data(0, early)
        assert files.commit_log.min_offset == 0
    os.truncate(tmp_path / "slave" / "commitlog" / file_name(0), 100)  # a power loss before the first sync
    async with opened(tmp_path / "slave", slave) as files:
        assert files.commit_log.max_offset == 0
    assert wrong(tmp_path / "slave") == []


@pytest.mark.trio
async def test_a_first_file_that_could_not_be_written_is_gone_durably(tmp_path: Path) -> None:
    """Else a power loss may bring it back, before one where the log has begun since."""
    await fill(tmp_path / "master", 20)
    slave, disk = attrs.evolve(CONFIG, broker_role=BrokerRole.SLAVE), FaultyDisk(tmp_path / "slave")
    async with opened(tmp_path / "master") as master:
        early = bytes(master.commit_log.select(0, 1000))
    async with opened(tmp_path / "slave", slave, disk=disk, orderly=False) as files:
        disk.space_bytes = 500
        with pytest.raises(AppendRefused):
            files.commit_log.append_data(0, early)
        disk.space_bytes = None
        disk.syncs.clear()
        await files.commit_log.remove_unwritten_file()
        assert "commitlog/" in disk.syncs


@pytest.mark.trio
async def test_a_first_file_that_goes_during_a_flush_is_not_said_to_be_durable(tmp_path: Path) -> None:
    await fill(tmp_path / "master", 20)
    slave, disk = attrs.evolve(CONFIG, broker_role=BrokerRole.SLAVE), FaultyDisk(tmp_path / "slave")
    async with opened(tmp_path / "master") as master:
        late = bytes(master.commit_log.select(2048, 1000))
    async with opened(tmp_path / "slave", slave, disk=disk, orderly=False) as files:
        disk.space_bytes = 1000  # the recovery point's, and a part of the log's
        with pytest.raises(AppendRefused):
            files.commit_log.append_data(2048, late)
        disk.space_bytes, disk.sync_gate = None, trio.Event()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(files.commit_log.flush)
            await trio.testing.wait_all_tasks_blocked()
            nursery.start_soon(files.commit_log.remove_unwritten_file)
            await trio.testing.wait_all_tasks_blocked()
            disk.sync_gate.set()
        assert files.commit_log.flushed_where <= files.commit_log.max_offset


@pytest.mark.parametrize("has", [1, 7, 8, 100, 380])
@pytest.mark.parametrize("orderly", [True, False], ids=["stopped", "killed"])
@pytest.mark.trio
async def test_a_part_of_a_record_that_ends_a_slaves_log_is_cut_at_its_start(
    tmp_path: Path, has: int, orderly: bool
) -> None:
    """RocketMQ leaves it there, as this project once did. It is nobody's promise: nothing of it is kept."""
    await fill(tmp_path / "master", 4)
    slave = attrs.evolve(CONFIG, broker_role=BrokerRole.SLAVE)
    async with opened(tmp_path / "master") as master:
        data = bytes(master.commit_log.select(0, master.commit_log.max_offset))
    record_bytes = len(data) // 4
    async with opened(tmp_path / "slave", slave, orderly=orderly) as files:
        files.commit_log.append_data(0, data[: 3 * record_bytes + has])
    async with opened(tmp_path / "slave", slave) as files:
        assert files.commit_log.max_offset == 3 * record_bytes
        files.commit_log.append_data(3 * record_bytes, data[3 * record_bytes :], whole_records=True)
        assert bytes(files.commit_log.select(0, len(data))) == data
    assert not (tmp_path / "slave" / "cut").exists()
    assert wrong(tmp_path / "slave") == []


@pytest.mark.trio
async def test_a_slave_stops_in_order_inside_of_a_files_blank_end(tmp_path: Path) -> None:
    await fill(tmp_path / "master", 20)
    slave = attrs.evolve(CONFIG, broker_role=BrokerRole.SLAVE)
    async with opened(tmp_path / "master") as master:
        data = bytes(master.commit_log.select(0, 2048))
    blank_end = len(data.rstrip(b"\0"))
    async with opened(tmp_path / "slave", slave) as files:
        files.commit_log.append_data(0, data[: blank_end + 4])
    assert not (tmp_path / "slave" / "abort").exists()
    assert wrong(tmp_path / "slave") == []
    async with opened(tmp_path / "slave", slave) as files:
        assert files.commit_log.max_offset == 2048


@pytest.mark.parametrize("orderly", [True, False], ids=["stopped", "killed"])
@pytest.mark.trio
async def test_a_log_that_rocketmq_has_used_and_cleaned_since_is_kept(tmp_path: Path, orderly: bool) -> None:
    """It moves the stamps, removes old files of the log, and leaves our recovery point as it was."""
    await fill(tmp_path, 2)
    old = read_checkpoint(OsDisk(tmp_path)).recovery_point
    placed = await fill(tmp_path, 30)
    now = read_checkpoint(OsDisk(tmp_path))
    (tmp_path / "checkpoint").write_bytes(attrs.evolve(now, recovery_point=old).encode().ljust(4096, b"\0"))
    for path in sorted((tmp_path / "commitlog").iterdir())[:2]:
        path.unlink()
    if not orderly:
        (tmp_path / "abort").touch()
    assert await offsets(tmp_path) == [offset for offset in placed if offset >= 4096]


@pytest.mark.trio
async def test_an_orderly_stop_of_rocketmq_loses_no_file_past_an_old_recovery_point(tmp_path: Path) -> None:
    await fill(tmp_path, 2)
    old = read_checkpoint(OsDisk(tmp_path)).recovery_point
    await fill(tmp_path, 30)
    (tmp_path / "checkpoint").write_bytes(Checkpoint(1, 1, 1, old).encode().ljust(4096, b"\0"))
    names = sorted((tmp_path / "commitlog").iterdir())
    names[2].unlink()
    with pytest.raises(StoreLayoutError, match=f"{names[3].name} follows a gap"):
        await StoreFiles.open(CONFIG, Environment(OsDisk(tmp_path), StillClock(), NoEntropy()), new_tracer())
    assert all(path.exists() for path in names if path != names[2])


@pytest.mark.parametrize("orderly", [True, False])
@pytest.mark.trio
async def test_a_start_changes_nothing_before_its_checkpoint_is_durable(tmp_path: Path, orderly: bool) -> None:
    """A start that was killed while it said so may have left it in memory alone, also before there was an `abort`."""
    await fill(tmp_path, orderly=orderly)
    shutil.rmtree(tmp_path / "consumequeue" / "T" / "0")
    killed = StoreCheckpoint.open(OsDisk(tmp_path))
    assert killed.checkpoint.recovery_point is not None
    await killed.begin_rebuilding(killed.checkpoint.recovery_point)
    killed.close()
    before = contents(tmp_path)
    with pytest.raises(OSError, match="checkpoint"):
        async with opened(tmp_path, disk=FaultyDisk(tmp_path, path_that_cannot_be_synced="checkpoint")):
            pass
    assert contents(tmp_path) == before


@pytest.mark.trio
async def test_what_a_failed_sync_left_in_memory_alone_is_written_again(tmp_path: Path) -> None:
    """The system calls such pages clean: without a new write no later sync would bring them to the disk."""
    disk = FaultyDisk(tmp_path)
    async with opened(tmp_path, disk=disk, orderly=False) as files:
        placed = [put(files, number) for number in range(8)]
        disk.failing_syncs = 1
        with pytest.raises(OSError, match="Input/output error"):
            await files.commit_log.flush()
    assert (tmp_path / "abort").read_bytes() == b""
    again = FaultyDisk(tmp_path)
    async with opened(tmp_path, disk=again) as files:
        end = files.commit_log.max_offset
        assert sum(size for path, size in again.written_bytes.items() if path.startswith("commitlog/")) >= end
    assert await offsets(tmp_path) == placed


@pytest.mark.parametrize(
    ("store", "end"),
    [(STORE_MASTER_CLEAN, END_OFFSET), (STORE_SLAVE_CLEAN, END_OFFSET), (STORE_MASTER_KILLED, 379106)],
    ids=lambda value: value.name if isinstance(value, Path) else None,
)
@pytest.mark.trio
async def test_rocketmqs_stores_are_opened_continued_and_opened_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, store: Path, end: int
) -> None:
    root = tmp_path / "store"
    shutil.copytree(store, root)
    before = b"".join(path.read_bytes() for path in sorted((root / "commitlog").iterdir()))
    async with opened(root, GOLDEN) as files:
        assert files.commit_log.max_offset == end
        assert len(files.consume_queues) == len(list(root.glob("consumequeue/*/*")))
        assert files.index_service.file_count == 1
    assert "lacked" not in caplog.text, "nothing was missing of its queues"
    # Files that were only prepared go.
    after = b"".join(path.read_bytes() for path in sorted((root / "commitlog").iterdir()))
    assert after == before[: len(after)]
    assert len(after) >= end
    assert wrong(root, GOLDEN) == []
    async with opened(root, GOLDEN, orderly=False) as files:
        assert put(files, 0, "TopicPlain") == end
    async with opened(root, GOLDEN) as files:
        assert files.commit_log.max_offset > end
    assert wrong(root, GOLDEN) == []


def test_nothing_is_left_open(tmp_path: Path) -> None:
    before = len(list(Path("/proc/self/fd").iterdir()))
    trio.run(fill, tmp_path)
    assert len(list(Path("/proc/self/fd").iterdir())) == before
