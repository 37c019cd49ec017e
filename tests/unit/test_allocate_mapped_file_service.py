"""AllocateMappedFileService: the next file is there when the log needs it, and nothing depends on that."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing

from rmq_actors.protocols.put_completion import PutStatus
from rmq_actors.store.config import FlushDiskType
from rmq_actors.store.files.layout import file_name
from rmq_actors.store.log.allocate_mapped_file_service import AllocateMappedFileService
from rmq_actors.store.log.commit_log import CommitLog
from rmq_actors.wire.record import Message
from tests.worlds.faulty_disk import FaultyDisk, FaultyFile
from tests.worlds.log_puts import LogPuts, read_messages
from tests.worlds.recording import new_tracer

SIZE = 1000
WARM: dict[str, Any] = {"warm_maped_file_enable": True, "flush_least_pages_when_warm_maped_file": 1}
SYNC: dict[str, Any] = {"flush_disk_type": FlushDiskType.SYNC_FLUSH}


def put(appended: LogPuts, size: int = 600) -> PutStatus | None:
    """None: it waits for a sync, which nobody does here."""
    pending = appended.puts.async_put_message(Message("T", b"b" * size))
    return None if pending.result is None else pending.result.status


def names(appended: LogPuts) -> list[str]:
    return appended.disk.list("commitlog")


@contextlib.asynccontextmanager
async def running(root: Path, file_size_bytes: int = SIZE, **settings: Any) -> AsyncIterator[LogPuts]:
    appended = LogPuts.open(root, file_size_bytes, **settings)
    service = AllocateMappedFileService(
        appended.puts.config, appended.log, appended.disk, appended.recorder.tracer("node"), appended.told_files
    )
    async with trio.open_nursery() as nursery:
        await nursery.start(service.run)
        yield appended
        service.request_stop()
    appended.log.close()


@pytest.mark.trio
async def test_a_roll_takes_the_file_that_was_prepared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with running(tmp_path) as appended:
        await trio.testing.wait_all_tasks_blocked()
        assert names(appended) == []
        for number in range(4):
            with monkeypatch.context() as patch:
                if number:  # nothing is created by the put itself
                    patch.setattr(FaultyDisk, "open", None)
                assert put(appended) is PutStatus.PUT_OK
            await trio.testing.wait_all_tasks_blocked()
            assert names(appended) == [file_name(SIZE * each) for each in range(number + 2)]
        assert appended.emitted("log.allocate") == [(SIZE * each, None) for each in range(1, 5)]
        assert [each.queue_offset for each in appended.messages()] == [0, 1, 2, 3]
    # What was not needed is removed.
    assert sorted(path.name for path in (tmp_path / "commitlog").iterdir()) == [
        file_name(SIZE * each) for each in range(4)
    ]


@pytest.mark.trio
async def test_a_kill_leaves_an_empty_last_file_which_is_no_harm(tmp_path: Path) -> None:
    async with running(tmp_path) as appended:
        assert put(appended) is PutStatus.PUT_OK
        await trio.testing.wait_all_tasks_blocked()
        assert len(names(appended)) == 2
        copy = FaultyDisk(tmp_path / "copy")
        for name in names(appended):
            file = copy.open(f"commitlog/{name}", allocate_bytes=SIZE)
            file.write_at(0, (tmp_path / "commitlog" / name).read_bytes())
            file.close()
    again = CommitLog.open(copy, SIZE, new_tracer())
    assert (len(read_messages(again)), again.max_offset) == (1, 692)
    again.close()


@pytest.mark.trio
async def test_what_cannot_be_prepared_is_refused_when_it_is_needed_and_heals(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    async with running(tmp_path) as appended:
        with monkeypatch.context() as patch:
            assert put(appended) is PutStatus.PUT_OK
            patch.setattr(FaultyDisk, "open", full)
            await trio.testing.wait_all_tasks_blocked()
            assert put(appended, 100) is PutStatus.PUT_OK, "this file has room"
            assert [put(appended) for _ in range(2)] == [PutStatus.CREATE_MAPPED_FILE_FAILED] * 2
        assert put(appended) is PutStatus.PUT_OK
        await trio.testing.wait_all_tasks_blocked()
        assert names(appended) == [file_name(SIZE * each) for each in range(3)]
        assert [each.queue_offset for each in appended.messages()] == [0, 1, 2]
    assert "no file prepared for offset 1000" in caplog.text
    assert [event.status for event in appended.recorder.events if event.kind == "log.allocate"] == ["OSError", "ok"]


@pytest.mark.trio
async def test_a_request_that_is_behind_the_log_prepares_nothing(tmp_path: Path) -> None:
    async with running(tmp_path) as appended:
        for _ in range(5):  # without a step of the service in between
            assert put(appended) is PutStatus.PUT_OK
        await trio.testing.wait_all_tasks_blocked()
        assert appended.emitted("log.allocate") == [(5 * SIZE, None)]


@pytest.mark.trio
async def test_a_file_is_warmed_up_with_zeros_in_steps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written: list[tuple[str, int, int]] = []
    write_at = FaultyFile.write_at

    def noting(file: FaultyFile, offset: int, data: bytes) -> None:
        if not any(data):
            written.append((file.path[-5:], offset, len(data)))
        write_at(file, offset, data)

    monkeypatch.setattr(FaultyFile, "write_at", noting)
    async with running(tmp_path, 10_000, **WARM) as appended:
        assert put(appended) is PutStatus.PUT_OK
        await trio.testing.wait_all_tasks_blocked()
        assert written == [("10000", 0, 4096), ("10000", 4096, 4096), ("10000", 8192, 1808)]
        assert appended.disk.syncs == []


@pytest.mark.trio
async def test_others_run_while_a_file_is_warmed_up(tmp_path: Path) -> None:
    async with running(tmp_path, 10_000, **WARM) as appended:
        assert put(appended) is PutStatus.PUT_OK
        appended.disk.space_bytes = 10_000
        left = [appended.disk.space_bytes]
        for _ in range(8):
            await trio.lowlevel.checkpoint()
            left.append(appended.disk.space_bytes)
        # Trio may run either task first in each of its rounds: one of two steps may be missed.
        assert len(set(left)) >= 3
        assert set(left) <= {0, 1808, 5904, 10_000}


@pytest.mark.trio
async def test_under_sync_flush_it_is_synced_on_the_way(tmp_path: Path) -> None:
    async with running(tmp_path, 10_000, **WARM, **SYNC) as appended:
        put(appended)
        await trio.testing.wait_all_tasks_blocked()
        assert appended.disk.syncs == [f"commitlog/{file_name(10_000)}"] * 3


@pytest.mark.trio
async def test_warming_up_never_writes_over_what_the_log_has_written(tmp_path: Path) -> None:
    """The log may need the file at any step of it."""
    for steps in range(8):
        async with running(tmp_path / str(steps), 10_000, **WARM) as appended:
            assert put(appended) is PutStatus.PUT_OK
            for _ in range(steps):
                await trio.lowlevel.checkpoint()
            assert put(appended, 9000) is PutStatus.PUT_OK
            assert put(appended, 9000) is PutStatus.PUT_OK
            await trio.testing.wait_all_tasks_blocked()
            assert [len(each.body) for each in appended.messages()] == [600, 9000, 9000]


@pytest.mark.trio
async def test_a_warm_up_without_space_gives_it_back(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async with running(tmp_path, 10_000, **WARM) as appended:
        assert put(appended) is PutStatus.PUT_OK
        appended.disk.space_bytes = 5000
        await trio.testing.wait_all_tasks_blocked()
        assert names(appended) == [file_name(0)]
        assert "no file prepared for offset 10000: [Errno 28]" in caplog.text
        appended.disk.space_bytes = None
        assert put(appended, 9500) is PutStatus.PUT_OK


@pytest.mark.trio
async def test_a_failed_sync_of_a_file_that_was_taken_meanwhile_is_a_failure_of_the_log(tmp_path: Path) -> None:
    """Linux tells of a lost page once an open file: the log's own sync of it would pretend success."""
    async with running(tmp_path, 10_000, **WARM, **SYNC) as appended:
        appended.disk.sync_gate = trio.Event()
        put(appended)
        await trio.testing.wait_all_tasks_blocked()
        put(appended, 9500)
        appended.disk.failing_syncs = 1
        appended.disk.sync_gate.set()
        await trio.testing.wait_all_tasks_blocked()
        assert appended.disk.failing_syncs == 0
        with pytest.raises(OSError, match="Input/output error"):
            await appended.log.flush()
        assert appended.log.flushed_where == 0


@pytest.mark.trio
async def test_a_failed_sync_of_a_file_nobody_uses_is_none(tmp_path: Path) -> None:
    async with running(tmp_path, 10_000, **WARM, **SYNC) as appended:
        appended.disk.failing_syncs = 1
        put(appended)
        await trio.testing.wait_all_tasks_blocked()
        assert names(appended) == [file_name(0)]
        assert await appended.log.flush() == appended.log.max_offset


@pytest.mark.trio
async def test_a_warm_up_takes_no_error_away_from_the_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Linux tells each open file once of a lost page: two syncs of one could end with the log's own as a success."""
    synced: list[FaultyFile] = []

    async def noting(file: FaultyFile) -> None:
        synced.append(file)

    monkeypatch.setattr(FaultyFile, "sync", noting)
    async with running(tmp_path, 10_000, **WARM, **SYNC) as appended:
        put(appended)
        await trio.testing.wait_all_tasks_blocked()
        assert len(synced) == 3
        assert appended.log.prepared is not None
        assert appended.log.prepared.file not in synced
    assert all(file.inner._fd < 0 for file in synced)


@pytest.mark.trio
async def test_a_file_that_cannot_be_removed_is_taken_as_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(_: FaultyDisk, path: str) -> None:
        raise OSError(5, "Input/output error", path)

    monkeypatch.setattr(FaultyDisk, "remove", failing)
    async with running(tmp_path, 10_000, **WARM) as appended:
        assert put(appended) is PutStatus.PUT_OK
        appended.disk.space_bytes = 5000
        await trio.testing.wait_all_tasks_blocked()
        appended.disk.space_bytes = None
        assert put(appended, 9500) is PutStatus.PUT_OK
        await trio.testing.wait_all_tasks_blocked()
        prepared = appended.log.prepared
    # It stays at the end, too, and is closed with the log.
    assert names(appended) == [file_name(0), file_name(10_000), file_name(20_000)]
    assert prepared is not None
    with pytest.raises(OSError, match="Bad file descriptor"):
        prepared.file.map()
