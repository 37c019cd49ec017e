"""The index may lag after rows: not for long, and nobody sees it."""

from __future__ import annotations

from pathlib import Path

import pytest
import trio
import trio.testing

from rmq_actors.actors.services.channels import Broadcast
from rmq_actors.actors.services.timer import Timer
from rmq_actors.real_io.os_disk import OsDisk
from rmq_actors.store.dispatch.reput_message_service import (
    DISPATCHED,
    LAG_MAX_ROWS,
    LAG_MAX_S,
    RETRY_INTERVAL_S,
    ReputMessageService,
)
from rmq_actors.store.files.store_checkpoint import read_checkpoint
from rmq_actors.store.lifecycle.store_files import StoreFiles
from rmq_actors.store.log.flush_modes import AppendedEnd
from rmq_actors.store.message_store import LOG_END
from rmq_actors.store.running_flags import RunningFlag, RunningFlags
from tests.unit.test_reput import Listener, make_log, reput_of, request_of
from tests.worlds.faulty_disk import FaultyDisk
from tests.worlds.handed_rows import CONFIG, put_rows
from tests.worlds.recording import new_tracer
from tests.worlds.store_on_disk import opened, wrong

ROW = ("T", 0, {"UNIQ_KEY": "u", "KEYS": "k"})


def keys(files: StoreFiles) -> int:
    """How many keys are in the index."""
    return sum(file.index_count - 1 for file in files.index_service.files)


def dispatch(files: StoreFiles) -> None:
    while files.reput.dispatch_some(files.commit_log.max_offset):
        pass


@pytest.mark.trio
async def test_queues_have_rows_at_once_and_the_index_has_them_when_it_is_drained(tmp_path: Path) -> None:
    async with opened(tmp_path, CONFIG) as files:
        put_rows(files, [ROW])
        dispatch(files)
        put_rows(files, [ROW] * 3)
        dispatch(files)
        queue = files.consume_queues.find("T", 0)
        assert queue is not None
        assert queue.max_offset_in_queue == 4
        assert keys(files) == 2, "the first one made the file, and came by itself"
        files.reput.drain()
        assert keys(files) == 8
        assert files.reput.drained == (files.commit_log.max_offset, files.reput.last)


@pytest.mark.trio
async def test_no_more_than_so_many_rows_lag(tmp_path: Path) -> None:
    async with opened(tmp_path, CONFIG) as files:
        for _ in range(LAG_MAX_ROWS + 40):
            put_rows(files, [ROW])
            dispatch(files)
            assert files.reput.lagging <= LAG_MAX_ROWS
        assert keys(files) >= LAG_MAX_ROWS
    assert wrong(tmp_path, CONFIG) == []


@pytest.mark.trio
async def test_the_recovery_point_stays_before_what_the_index_could_not_take(tmp_path: Path) -> None:
    disk = FaultyDisk(tmp_path)
    async with opened(tmp_path, CONFIG, disk=disk, orderly=False) as files:
        put_rows(files, [ROW] * 3)
        dispatch(files)
        files.reput.drain()
        point = files.reput.reput_from_offset
        put_rows(files, [ROW] * 3)
        dispatch(files)
        assert files.reput.drained[0] == point < files.reput.reput_from_offset
        index_file = files.index_service.files[-1]
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(type(index_file), "put_keys", full)
            await files.commit_log.flush()
            assert await files.checkpointing.advance(flushed)
            with pytest.raises(OSError, match="full"):
                await files.shut_down()
    found = read_checkpoint(OsDisk(tmp_path)).recovery_point
    assert found is not None
    assert (found.offset, found.queue_ends, found.index_files) == (point, 0, 0)
    async with opened(tmp_path, CONFIG) as files:
        assert keys(files) == 12
    assert wrong(tmp_path, CONFIG) == []


def full(*_: object) -> None:
    raise OSError(28, "full")


async def flushed(_: int) -> bool:
    return True


@pytest.mark.parametrize("drains", ["the service", "a checkpoint"])
def test_a_service_drains_in_time_and_refuses_puts_while_it_cannot(tmp_path: Path, drains: str) -> None:
    log, begins = make_log(tmp_path, [100] * 4)
    flags, listener, timer, log_end = RunningFlags(), Listener(), Timer(), LOG_END.open()
    reput = reput_of(log, listener)
    dispatched: Broadcast[int] = DISPATCHED.open()
    service = ReputMessageService(reput, AppendedEnd(log, log_end), dispatched, flags, new_tracer(), timer)
    ends = [*begins[1:], log.max_offset]

    async def main() -> None:
        async with trio.open_nursery() as nursery:
            await nursery.start(timer.run)
            reput.rows.put([request_of(log, begin) for begin in begins[:2]], 0)
            await nursery.start(service.run)
            await trio.testing.wait_all_tasks_blocked()
            assert reput.reput_from_offset == ends[-1], "rows, then what is in the log alone"
            assert not listener.lagging
            for place in (2, 3):
                reput.reput_from_offset = begins[place]
                reput.rows.put([request_of(log, begins[place])], 0)
                log_end.put(log.max_offset)
                await trio.testing.wait_all_tasks_blocked()
                if place == 2:
                    assert len(listener.lagging) == 0, "the record after it came from the log"
            assert len(listener.lagging) == 1
            await trio.sleep(2 * LAG_MAX_S + 0.02)
            assert not listener.lagging
            await trio.sleep(1)
            assert not timer._jobs, "it rests where nothing lags"
            for begin in begins[2:]:  # the second one comes soon after the first: it is not taken at once
                reput.reput_from_offset = begin
                reput.rows.put([request_of(log, begin)], 0)
                log_end.put(log.max_offset)
                await trio.testing.wait_all_tasks_blocked()
            assert len(listener.lagging) == 1
            listener.failures = 2
            await trio.sleep(2 * LAG_MAX_S)
            assert flags.bits == RunningFlag.WRITE_LOGICS_QUEUE_ERROR
            if drains == "a checkpoint":
                listener.failures = 0
                reput.drain()
            await trio.sleep(2 * RETRY_INTERVAL_S + 2 * LAG_MAX_S)
            assert flags.is_writeable
            assert not listener.lagging
            service.request_stop()
            timer.request_stop()

    trio.run(main, clock=trio.testing.MockClock(rate=0, autojump_threshold=0))
    assert not timer._jobs
    log.close()
