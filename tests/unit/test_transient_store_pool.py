"""The transient store pool: what is appended but not committed is nobody's to read, and is committed in time."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import attrs
import pytest
import trio
import trio.testing
from hypothesis import given
from hypothesis import strategies as st

from rmq_actors.protocols.put_completion import PutStatus
from rmq_actors.store.config import BrokerRole
from rmq_actors.store.log.commit_log import CommitLog
from rmq_actors.store.log.flush_services import CommitRealTimeService
from rmq_actors.store.log.received_records import AppendRefused
from rmq_actors.wire.batch import MessageBatch, encode_batch
from rmq_actors.wire.record import Message
from tests.worlds.log_puts import LogPuts, read_messages
from tests.worlds.recording import new_tracer
from tests.worlds.running_store import RunningStore, message, running_store

POOL: dict[str, Any] = {"transient_store_pool_enable": True}


def put(running: LogPuts, body: bytes = b"body") -> PutStatus:
    pending = running.puts.async_put_message(Message("T", body))
    assert pending.result is not None
    return pending.result.status


@given(
    st.lists(
        st.one_of(
            st.integers(0, 600),  # a put of so many bytes
            st.tuples(st.integers(0, 150), st.integers(1, 4)),  # a batch
            st.sampled_from(["commit", "full disk", "enough space", "slave", "master"]),
        ),
        max_size=40,
    )
)
def test_readers_see_a_growing_prefix_of_what_was_put(
    tmp_path_factory: pytest.TempPathFactory, steps: list[int | tuple[int, int] | str]
) -> None:
    root = tmp_path_factory.mktemp("store")
    running = LogPuts.open(root, **POOL)
    log, accepted, seen = running.log, list[bytes](), 0

    def step(what: int | tuple[int, int] | str, number: int) -> None:
        if isinstance(what, int):
            body = bytes([number]) * what
            if put(running, body) is PutStatus.PUT_OK:
                accepted.append(body)
        elif isinstance(what, tuple):
            bodies = [bytes([number]) * what[0]] * what[1]
            pending = running.puts.async_put_messages(MessageBatch("T", encode_batch((each, 0, {}) for each in bodies)))
            if pending.result is not None and pending.result.status is PutStatus.PUT_OK:
                accepted.extend(bodies)
        elif what == "commit" and running.disk.space_bytes is not None and log.append_offset != log.max_offset:
            with pytest.raises(OSError, match="No space"):
                log.commit()
        elif what == "commit":
            log.commit()
            assert log.max_offset == log.append_offset
        elif what in {"slave", "master"}:
            role = BrokerRole.SLAVE if what == "slave" else BrokerRole.ASYNC_MASTER
            running.puts.config = attrs.evolve(running.puts.config, broker_role=role)
        else:
            running.disk.space_bytes = 0 if what == "full disk" else None

    async def main() -> None:
        nonlocal seen
        for number, what in enumerate(steps, 1):
            step(what, number)
            readable = [each.body for each in running.messages()]
            assert readable == accepted[: len(readable)]
            assert len(readable) >= seen
            seen = len(readable)
            assert log.max_offset <= log.append_offset
        running.disk.space_bytes = None
        log.commit()

    trio.run(main)
    assert [(each.body, each.queue_offset) for each in running.messages()] == [
        (body, number) for number, body in enumerate(accepted)
    ]
    log.close()
    again = CommitLog.open(running.disk, 1000, new_tracer())
    assert [each.body for each in read_messages(again)] == accepted
    again.close()


@pytest.mark.trio
async def test_while_the_disk_is_full_the_pool_does_not_grow(tmp_path: Path) -> None:
    running = LogPuts.open(tmp_path, **POOL)
    assert put(running) is PutStatus.PUT_OK
    end = running.log.append_offset
    running.disk.space_bytes = 0
    # Nobody knows yet: what is taken now is in memory alone, as under ASYNC_FLUSH anyway.
    assert put(running) is PutStatus.PUT_OK
    with pytest.raises(OSError, match="No space"):
        running.log.commit()
    assert [put(running) for _ in range(3)] == [PutStatus.CREATE_MAPPED_FILE_FAILED] * 3
    assert (running.log.append_offset, running.log.max_offset) == (2 * end, 0)
    running.disk.space_bytes = None
    assert put(running) is PutStatus.PUT_OK
    assert (running.log.append_offset, running.log.max_offset) == (3 * end, 2 * end)


@pytest.mark.trio
async def test_a_master_that_becomes_a_slave_commits_before_it_follows(tmp_path: Path) -> None:
    master, slave = LogPuts.open(tmp_path / "a"), LogPuts.open(tmp_path / "b", **POOL)
    for running in (master, slave):
        for _ in range(3):
            assert put(running) is PutStatus.PUT_OK
    assert slave.log.max_offset == 0
    with pytest.raises(AppendRefused, match="bytes for offset 0, this log ends at 288"):
        slave.log.append_data(0, bytes(master.log.select(0, 96)))
    assert put(master) is PutStatus.PUT_OK
    slave.log.append_data(288, bytes(master.log.select(288, 96)))
    assert len(slave.messages()) == 4


@pytest.mark.trio
async def test_when_the_pool_is_not_used_any_more_it_is_committed_first(tmp_path: Path) -> None:
    running = LogPuts.open(tmp_path, **POOL)
    assert put(running, b"in the pool") is PutStatus.PUT_OK
    running.puts.config = attrs.evolve(running.puts.config, transient_store_pool_enable=False)
    assert put(running, b"in the file") is PutStatus.PUT_OK
    assert [each.body for each in running.messages()] == [b"in the pool", b"in the file"]
    assert running.log.max_offset == running.log.append_offset


# --- CommitRealTimeService --------------------------------------------------------------------------------------------


async def visible_after(running: RunningStore, offset: int) -> float:
    began = trio.current_time()
    while running.store.commit_log.max_offset < offset:
        await trio.sleep(0.001)
    return trio.current_time() - began


@pytest.mark.trio
async def test_known_bug_3099_a_few_bytes_are_committed_within_the_thorough_interval(
    tmp_path: Path, autojump_clock: trio.testing.MockClock
) -> None:
    """There, bytes were compared with commitCommitLogLeastPages: a small rest stayed in memory."""
    async with running_store(tmp_path, **POOL) as running:
        for _ in range(5):
            result = await running.store.puts.put_message(message())
            assert result.status is PutStatus.PUT_OK
            assert result.append is not None
            assert await visible_after(running, result.append.end_offset) <= 0.201
            await trio.sleep(1)


@pytest.mark.trio
async def test_less_than_the_least_pages_waits_for_the_thorough_interval(
    tmp_path: Path, autojump_clock: trio.testing.MockClock
) -> None:
    settings: dict[str, Any] = {
        "mapped_file_size_commit_log_bytes": 100_000,
        "commit_commit_log_least_pages": 2,
        "commit_commit_log_thorough_interval_ms": 10_000,
    }
    async with running_store(tmp_path, **POOL, **settings) as running:
        log = running.store.commit_log
        await running.store.puts.put_message(message())
        await trio.sleep(1)
        assert log.max_offset == log.append_offset, "the first commit is thorough"
        await running.store.puts.put_message(message())
        await trio.sleep(5)
        assert log.max_offset < log.append_offset
        await running.store.puts.put_message(message(bytes(8192)))
        await trio.sleep(0.25)
        assert log.max_offset == log.append_offset, "two pages are new"
        await running.store.puts.put_message(message())
        await trio.sleep(9)
        assert log.max_offset < log.append_offset
        await trio.sleep(1.5)
        assert log.max_offset == log.append_offset


@pytest.mark.trio
async def test_followers_are_told_what_was_committed_and_nothing_else(
    tmp_path: Path, autojump_clock: trio.testing.MockClock
) -> None:
    async with running_store(tmp_path, **POOL) as running:
        log = running.store.commit_log
        await trio.testing.wait_all_tasks_blocked()
        with running.store.log_end.subscribe() as log_end:
            await running.store.puts.put_message(message())
            with pytest.raises(trio.WouldBlock):
                log_end.receive_nowait()
            await trio.sleep(0.5)
            assert log_end.receive_nowait() == log.max_offset == 96
        await trio.sleep(20)
        assert log.flushed_where == 96


@pytest.mark.trio
async def test_a_commit_that_fails_is_tried_again(
    tmp_path: Path, autojump_clock: trio.testing.MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    running = LogPuts.open(tmp_path, **POOL)
    service = CommitRealTimeService(running.puts.config, running.log, running.puts.log_grew, running.told_commits)
    async with trio.open_nursery() as nursery:
        await nursery.start(service.run)
        running.disk.space_bytes = 0
        assert put(running) is PutStatus.PUT_OK
        await trio.sleep(1)
        assert running.log.max_offset == 0
        running.disk.space_bytes = None
        await trio.sleep(0.25)
        assert running.log.max_offset == 96
        service.request_stop()
    assert caplog.text.count("a commit failed") == 1


@pytest.mark.trio
async def test_the_stop_commits_and_syncs_the_rest(tmp_path: Path, autojump_clock: trio.testing.MockClock) -> None:
    async with running_store(tmp_path, **POOL, commit_interval_commit_log_ms=60_000) as running:
        for _ in range(3):
            assert (await running.store.puts.put_message(message())).status is PutStatus.PUT_OK
        assert running.store.commit_log.max_offset == 0
    assert running.store.commit_log.flushed_where == 288


@pytest.mark.trio
async def test_both_services_commit_at_their_stop(tmp_path: Path, autojump_clock: trio.testing.MockClock) -> None:
    """Commits stop before flushes do; what is put between the two is not left behind."""
    running = LogPuts.open(tmp_path, commit_interval_commit_log_ms=60_000, **POOL)
    config, log, puts = running.puts.config, running.log, running.puts
    commit_service = CommitRealTimeService(config, log, puts.log_grew, running.told_commits)
    flush_service = running.puts._flush_service  # pyright: ignore[reportPrivateUsage]
    async with trio.open_nursery() as nursery:
        await nursery.start(commit_service.run)
        await nursery.start(flush_service.run)
        assert put(running) is PutStatus.PUT_OK
        await trio.sleep(1)
        commit_service.request_stop()
        await trio.sleep(1)
        assert running.log.max_offset == 96
        assert put(running) is PutStatus.PUT_OK
        flush_service.request_stop()
        assert put(running) is PutStatus.SERVICE_NOT_AVAILABLE
    assert running.log.flushed_where == running.log.append_offset == 192


@pytest.mark.trio
@pytest.mark.parametrize("role", [BrokerRole.SLAVE, BrokerRole.ASYNC_MASTER])
async def test_known_bugs_2457_5714_a_promoted_slave_takes_puts_through_the_pool(
    tmp_path: Path, role: BrokerRole
) -> None:
    """There, the pool was sized by the role at the start: after a promotion it was empty, and all puts "busy"."""
    running = LogPuts.open(tmp_path, broker_role=role, **POOL)
    running.puts.config = attrs.evolve(running.puts.config, broker_role=BrokerRole.ASYNC_MASTER)
    assert [put(running) for _ in range(30)] == [PutStatus.PUT_OK] * 30
    assert running.log.append_offset > running.log.max_offset
    assert running.told_commits.receive_nowait() == running.log.append_offset


@pytest.mark.trio
async def test_known_bug_7523_with_sync_flush_the_pool_is_not_used(
    tmp_path: Path, autojump_clock: trio.testing.MockClock
) -> None:
    async with running_store(tmp_path, sync_flush=True, **POOL) as running:
        assert (await running.store.puts.put_message(message())).status is PutStatus.PUT_OK
        assert trio.current_time() < 1
