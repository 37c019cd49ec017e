"""FlushService: what it tells, how often it syncs, and that it ends with everything on the disk."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import trio
import trio.testing

from rmq_actors.store.log.commit_log import CommitLog
from rmq_actors.store.log.flush_services import FLUSH_OUTCOMES, FlushFailed, FlushOutcome, FlushService
from rmq_actors.wire.record import Message, encode_message
from tests.worlds.faulty_disk import FaultyDisk
from tests.worlds.recording import new_tracer


class FlushedLog:
    """A flush service alone, and what it tells."""

    def __init__(self, root: Path, interval_s: float, least_pages: int, thorough_interval_s: float) -> None:
        self.disk = FaultyDisk(root)
        self.log = CommitLog.open(self.disk, 1000 if least_pages == 0 else 100_000, new_tracer())
        self.outcomes = FLUSH_OUTCOMES.open()
        self.service = FlushService(
            "GroupCommitService", interval_s, self.log, self.outcomes, new_tracer(), least_pages, thorough_interval_s
        )
        self.told: list[tuple[float, FlushOutcome]] = []

    def append(self, body: bytes = b"body") -> None:
        self.log.append_message(encode_message(Message("T", body)), 0)
        self.service.request(self.log.max_offset)

    async def listen(self, *, task_status: trio.TaskStatus[None]) -> None:
        with self.outcomes.subscribe() as outcomes:
            task_status.started()
            async for outcome in outcomes:
                self.told.append((trio.current_time(), outcome))


@contextlib.asynccontextmanager
async def running(
    root: Path, interval_s: float = 0.0, least_pages: int = 0, thorough_interval_s: float = 0.0
) -> AsyncIterator[FlushedLog]:
    flushed = FlushedLog(root, interval_s, least_pages, thorough_interval_s)
    async with trio.open_nursery() as nursery:
        await nursery.start(flushed.listen)
        async with trio.open_nursery() as services:
            await services.start(flushed.service.run)
            yield flushed
            flushed.service.request_stop()
        await trio.testing.wait_all_tasks_blocked()
        nursery.cancel_scope.cancel()
    flushed.log.close()


@pytest.mark.trio
async def test_one_sync_serves_all_that_was_asked_before_it(
    tmp_path: Path, autojump_clock: trio.testing.MockClock
) -> None:
    async with running(tmp_path) as flushed:
        for _ in range(5):
            flushed.append()
        await trio.sleep(1)
        assert flushed.told == [(0.0, 480)]
        flushed.append()
        await trio.sleep(1)
        assert flushed.told == [(0.0, 480), (1.0, 576)]


@pytest.mark.trio
async def test_what_comes_during_a_sync_is_not_flushed_by_it(
    tmp_path: Path, autojump_clock: trio.testing.MockClock
) -> None:
    async with running(tmp_path) as flushed:
        flushed.disk.sync_gate = trio.Event()
        flushed.append()
        await trio.sleep(1)
        flushed.append()
        assert flushed.log.flushed_where == 0
        flushed.disk.sync_gate.set()
        await trio.testing.wait_all_tasks_blocked()
        assert [offset for _, offset in flushed.told][-1] == 192
        assert next(offset for _, offset in flushed.told) in {96, 192}
        assert [path for path in flushed.disk.syncs if not path.endswith("/")] == ["commitlog/" + "0" * 20] * 2


@pytest.mark.trio
async def test_an_interval_stands_between_two_syncs(tmp_path: Path, autojump_clock: trio.testing.MockClock) -> None:
    async with running(tmp_path, interval_s=10.0) as flushed:
        for _ in range(4):
            flushed.append()
            await trio.sleep(4)
        await trio.sleep(20)
        assert [at for at, _ in flushed.told] == [0.0, 10.0, 20.0]


@pytest.mark.trio
async def test_the_last_thing_is_a_sync(tmp_path: Path, autojump_clock: trio.testing.MockClock) -> None:
    async with running(tmp_path, interval_s=1000.0) as flushed:
        flushed.append()
        await trio.sleep(1)
        flushed.append()
        assert flushed.log.flushed_where == 96
    assert flushed.log.flushed_where == 192
    assert [offset for _, offset in flushed.told] == [96, 192]


@pytest.mark.trio
async def test_a_failure_is_told_once_and_nothing_is_synced_after_it(
    tmp_path: Path, autojump_clock: trio.testing.MockClock
) -> None:
    async with running(tmp_path) as flushed:
        flushed.disk.failing_syncs = 1
        flushed.append()
        await trio.sleep(1)
        flushed.append()
        await trio.sleep(1)
    assert [type(outcome) for _, outcome in flushed.told] == [FlushFailed]
    assert (flushed.disk.syncs, flushed.log.flushed_where) == ([], 0)


@pytest.mark.trio
async def test_an_idle_service_syncs_nothing(tmp_path: Path, autojump_clock: trio.testing.MockClock) -> None:
    async with running(tmp_path) as flushed:
        flushed.service.requests.put(0)
        await trio.sleep(10)
    assert (flushed.disk.syncs, flushed.told) == ([], [])


@pytest.mark.trio
async def test_less_than_the_least_pages_waits_but_not_for_ever(
    tmp_path: Path, autojump_clock: trio.testing.MockClock
) -> None:
    async with running(tmp_path, interval_s=0.5, least_pages=4, thorough_interval_s=10.0) as flushed:
        flushed.append()
        await trio.sleep(1)
        assert flushed.told == [(0.0, 96)], "nothing was flushed before"
        flushed.append()
        await trio.sleep(2)
        flushed.append()
        await trio.sleep(20)
        assert flushed.told[1:] == [(10.0, 288)], "all of it, ten seconds after the flush before"
        flushed.append()
        await trio.sleep(1)
        assert flushed.told[2:] == [(23.0, 384)], "at once, after a long silence"
        flushed.append(bytes(3 * 4096))
        await trio.sleep(1)
        assert len(flushed.told) == 3, "three pages"
        flushed.append(bytes(4096))
        await trio.sleep(1)
        assert [offset for _, offset in flushed.told[3:]] == [flushed.log.max_offset]


@pytest.mark.trio
async def test_bytes_in_a_row_are_never_unsynced_for_longer_than_both_intervals(
    tmp_path: Path, autojump_clock: trio.testing.MockClock
) -> None:
    async with running(tmp_path, interval_s=0.5, least_pages=4, thorough_interval_s=10.0) as flushed:
        appended: list[tuple[float, int]] = []
        for _ in range(200):
            flushed.append()
            appended.append((trio.current_time(), flushed.log.max_offset))
            await trio.sleep(0.3)
        await trio.sleep(11)
        for at, end in appended:
            assert next(when for when, offset in flushed.told if isinstance(offset, int) and offset >= end) - at <= 10.5


@pytest.mark.trio
async def test_many_requests_are_one_wake_up(tmp_path: Path, autojump_clock: trio.testing.MockClock) -> None:
    async with running(tmp_path) as flushed:
        flushed.disk.sync_gate = trio.Event()
        for _ in range(3):
            for _ in range(10):
                flushed.append()
            await trio.sleep(1)
        flushed.disk.sync_gate.set()
        await trio.sleep(1)
        assert [path for path in flushed.disk.syncs if not path.endswith("/")].count("commitlog/" + "0" * 20) <= 2
        assert flushed.told[-1][1] == flushed.log.max_offset


@pytest.mark.trio
async def test_what_is_wanted_on_the_disk_waits_for_no_pages(
    tmp_path: Path, autojump_clock: trio.testing.MockClock
) -> None:
    async with running(tmp_path, interval_s=0.5, least_pages=4, thorough_interval_s=10.0) as flushed:
        flushed.append()
        await trio.sleep(1)
        flushed.append()
        await trio.sleep(1)
        [first] = flushed.told  # the first append found that nothing had been synced for long
        flushed.service.sync_to(flushed.log.max_offset)
        await trio.sleep(1)
        assert flushed.told == [first, (2.0, flushed.log.max_offset)]
        flushed.append()
        await trio.sleep(5)
        assert len(flushed.told) == 2
