"""Files of queues and of the index that somebody has removed: what they held is found missing, and dispatched again."""

from __future__ import annotations

import errno
import logging
import re
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import cast

import attrs
import pytest
import trio
from hypothesis import given, settings
from hypothesis import strategies as st

from rmq_actors.real_io.os_disk import OsDisk
from rmq_actors.store.dispatch.commit_log_dispatcher import CommitLogDispatcher
from rmq_actors.store.dispatch.index_service import IndexService
from rmq_actors.store.files.layout import file_name
from rmq_actors.store.files.store_checkpoint import read_checkpoint
from rmq_actors.wire.dispatch_request import DispatchRequest
from tests.unit.test_store_files import fill, offsets, put
from tests.worlds.store_on_disk import opened, wrong

#: Entries in a file of a queue.
ENTRIES = 10
#: The first records are of queues that nobody writes to later.
IDLE = "Idle"


def left(root: Path, by: str) -> None:
    """What else tells who used the store last."""
    if by == "killed":
        (root / "abort").touch()
    elif by == "RocketMQ":
        (root / "checkpoint").unlink()


async def fill_idle_and_busy(root: Path) -> list[int]:
    """Three queues of 14 messages, and then three others of as many, which fill the log's last files alone."""
    async with opened(root) as files:
        return [put(files, number, IDLE if number < 42 else "T") for number in range(84)]


async def next_offsets(root: Path) -> dict[tuple[str, int], int]:
    async with opened(root) as files:
        return {
            (queue.topic, queue.queue_id): files.commit_log.next_queue_offset(queue.topic, queue.queue_id)
            for queue in files.consume_queues
        }


def dispatched_from(caplog: pytest.LogCaptureFixture) -> int:
    """The lowest offset that the newest start dispatched from."""
    found = [re.search(r"dispatched (?:again )?from (?:offset )?(\d+)", message) for message in caplog.messages]
    return min(int(match[1]) for match in found if match is not None)


def warnings(caplog: pytest.LogCaptureFixture) -> str:
    return "\n".join(record.getMessage() for record in caplog.records if record.levelno == logging.WARNING)


QUEUE_FILES = [f"consumequeue/{topic}/{queue}/{file_name(200)}" for topic in (IDLE, "T") for queue in range(3)]
QUEUES = [f"consumequeue/{topic}/{queue}" for topic in (IDLE, "T") for queue in range(3)]
#: RocketMQ's files say nothing of a queue that is gone as a whole, and that the log's last three files do not name.
FOUND_IN_ROCKETMQS = [*QUEUE_FILES, *(name for name in QUEUES if IDLE not in name)]


def remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink()


@pytest.mark.parametrize(
    ("by", "gone"),
    [
        *[(by, gone) for by in ("stopped", "killed") for gone in QUEUE_FILES + QUEUES],
        *[("RocketMQ", gone) for gone in FOUND_IN_ROCKETMQS],
    ],
)
@pytest.mark.trio
async def test_a_queues_lost_tail_is_dispatched_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, by: str, gone: str
) -> None:
    placed = await fill_idle_and_busy(tmp_path)
    expected = await next_offsets(tmp_path)
    assert set(expected.values()) == {14}
    left(tmp_path, by)
    remove(tmp_path / gone)
    caplog.clear()
    assert await next_offsets(tmp_path) == expected, "an offset would be given twice"
    queue = "/".join(gone.split("/")[:3])
    first, name = (10, file_name(200)) if gone in QUEUE_FILES else (0, file_name(0))
    assert f"{queue} lacked its entries {first} to 13 (from {queue}/{name} on)" in warnings(caplog)
    assert await offsets(tmp_path) == placed


@pytest.mark.parametrize("by", ["stopped", "killed", "RocketMQ"])
@pytest.mark.trio
async def test_dispatching_again_begins_where_the_queue_ends(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, by: str
) -> None:
    """Not at the log's beginning, which may be hours away."""
    caplog.set_level(logging.INFO)
    placed = await fill_idle_and_busy(tmp_path)
    left(tmp_path, by)
    remove(tmp_path / f"consumequeue/T/1/{file_name(200)}")
    caplog.clear()
    async with opened(tmp_path):
        pass
    assert dispatched_from(caplog) >= placed[42 + 3 * 9], "the record of entry 9 is still known"
    assert await offsets(tmp_path) == placed


@pytest.mark.parametrize("by", ["stopped", "killed", "RocketMQ"])
@pytest.mark.trio
async def test_where_nothing_is_missing_nothing_is_dispatched_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, by: str
) -> None:
    caplog.set_level(logging.INFO)
    placed = await fill_idle_and_busy(tmp_path)
    left(tmp_path, by)
    caplog.clear()
    async with opened(tmp_path):
        pass
    assert dispatched_from(caplog) >= placed[-1], "RocketMQ's index may lack keys of its last record"
    assert warnings(caplog) == ""


@pytest.mark.trio
async def test_a_queue_is_missed_beside_one_that_began_past_the_recovery_point(tmp_path: Path) -> None:
    """The number of queues with files was the same: 30 messages vanished, and their offsets were given again."""
    placed = await fill(tmp_path, 30)
    async with opened(tmp_path, orderly=False) as files:
        placed.append(put(files, 0, "New"))
    shutil.rmtree(tmp_path / "consumequeue/T/1")
    assert await offsets(tmp_path) == placed


@pytest.mark.trio
async def test_an_older_copy_of_a_queues_file_is_noticed(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Nothing of the files' names tells, and no file ends where the queue does: all of the log is read."""
    path = tmp_path / "consumequeue/T/1" / file_name(0)
    placed = await fill(tmp_path, 12)
    old = path.read_bytes()
    async with opened(tmp_path) as files:
        placed += [put(files, number) for number in range(12)]
    path.write_bytes(old)
    caplog.clear()
    assert set((await next_offsets(tmp_path)).values()) == {8}
    assert f"consumequeue/T/1 lacked its entries 4 to 7 (from consumequeue/T/1/{file_name(0)} on)" in warnings(caplog)
    assert await offsets(tmp_path) == placed


@pytest.mark.trio
async def test_a_full_file_beside_an_older_copy_of_another_is_not_enough(tmp_path: Path) -> None:
    """A queue that ends with a file is suspected first; what is missing elsewhere is found missing still."""
    path = tmp_path / "consumequeue/T/1" / file_name(0)
    placed = await fill(tmp_path, 6)
    old = path.read_bytes()
    async with opened(tmp_path) as files:
        placed += [put(files, number) for number in range(9)]
        placed += [put(files, 0, "Full") for _ in range(ENTRIES)]
    path.write_bytes(old)
    assert await next_offsets(tmp_path) == {("T", 0): 5, ("T", 1): 5, ("T", 2): 5, ("Full", 0): ENTRIES}
    assert await offsets(tmp_path) == placed


@pytest.mark.parametrize("number", range(3))
@pytest.mark.parametrize("by", ["stopped", "killed"])
@pytest.mark.trio
async def test_a_file_of_the_index_is_missed(tmp_path: Path, by: str, number: int) -> None:
    await fill(tmp_path, 20)
    names = sorted(path.name for path in (tmp_path / "index").iterdir())
    assert len(names) == 3
    left(tmp_path, by)
    remove(tmp_path / "index" / names[number])
    async with opened(tmp_path):
        pass
    assert wrong(tmp_path) == []
    assert len(list((tmp_path / "index").iterdir())) == 3


@pytest.mark.trio
async def test_entries_whose_records_were_cleaned_are_not_waited_for(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """All of the log was read once, in vain; the next start does not do so again."""
    placed = await fill_idle_and_busy(tmp_path)
    async with opened(tmp_path) as files:
        while files.commit_log.min_offset < placed[42]:
            assert files.commit_log.remove_oldest_file()
            await files.commit_log.sync_names()
        log_min = files.commit_log.min_offset
    shutil.rmtree(tmp_path / "consumequeue" / IDLE / "1")
    caplog.clear()
    assert (IDLE, 1) not in await next_offsets(tmp_path)
    assert "14 entries of the queues stay missing" in warnings(caplog)
    caplog.clear()
    assert (await offsets(tmp_path))[-40:] == [offset for offset in placed if offset >= log_min][-40:]
    assert warnings(caplog) == ""


@attrs.define
class Full:
    """The index, on a disk that is full."""

    index: IndexService

    def __getattr__(self, name: str) -> object:
        return getattr(self.index, name)

    def dispatch(self, requests: Sequence[DispatchRequest]) -> None:
        raise OSError(errno.ENOSPC, "full")


@pytest.mark.trio
async def test_a_checkpoint_amid_a_failed_dispatch_promises_no_entries(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A part of a batch may be in the queues already, past the recovery point: a start would miss it."""
    caplog.set_level(logging.INFO)
    async with opened(tmp_path, orderly=False) as files:
        placed = [put(files, number) for number in range(6)]
        point = files.reput.reput_from_offset
        queues, index, transactions = files.reput.dispatchers
        assert isinstance(index, IndexService)
        files.reput.dispatchers = [queues, cast("CommitLogDispatcher", Full(index)), transactions]
        with pytest.raises(OSError, match="full"):
            put(files, 6)
        await files.commit_log.flush()
        assert await files.checkpointing.advance(_flushed, force=True)
        assert not files.checkpointing.is_behind, "else it would be written every few seconds"
    found = read_checkpoint(OsDisk(tmp_path)).recovery_point
    assert found is not None
    assert (found.offset, found.queue_ends, found.queues) == (point, 0, 0)
    caplog.clear()
    async with opened(tmp_path):
        pass
    assert dispatched_from(caplog) == placed[-1], "the index may lack keys of its last record"
    assert warnings(caplog) == ""


async def _flushed(_: int) -> bool:
    return True


@settings(max_examples=12, deadline=None)
@given(data=st.data())
def test_whatever_is_removed_of_the_ends_of_queues_and_of_the_index_is_there_again(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    """Several queues at once, of any length, of which any have lost their newest files, or all of them."""
    root = tmp_path_factory.mktemp("store")
    topics = data.draw(st.lists(st.sampled_from([IDLE, "T", "U"]), min_size=1, max_size=60).map(sorted))
    by = data.draw(st.sampled_from(["stopped", "killed", "RocketMQ"]))

    async def main() -> None:
        async with opened(root) as files:
            placed = [put(files, number, topic) for number, topic in enumerate(topics)]
        expected = await next_offsets(root)
        left(root, by)
        for queue in sorted((root / "consumequeue").glob("*/*")):
            names = sorted(queue.iterdir())
            for path in names[data.draw(st.integers(0, len(names))) :]:
                path.unlink()
        if by != "RocketMQ":  # of its index only the newest file is missed
            for path in sorted((root / "index").iterdir()):
                if data.draw(st.booleans()):
                    path.unlink()
        assert await next_offsets(root) == expected
        assert await offsets(root) == placed

    trio.run(main)
