"""The checkpoint moves when it is due, after syncs of all that it speaks of, and never again after one that failed."""

from __future__ import annotations

from pathlib import Path

import attrs
import pytest
import trio
import trio.testing

from rmq_actors.protocols.put_completion import PutStatus
from rmq_actors.store.files.store_checkpoint import RecoveryPoint, read_checkpoint
from tests.worlds.running_store import RunningStore, message, running_store

RECORD = 96


def point(running: RunningStore) -> RecoveryPoint:
    found = read_checkpoint(running.disk).recovery_point
    assert found is not None
    return found


@pytest.mark.trio
@pytest.mark.parametrize(("bytes_max", "due_s"), [(1 << 20, 5.0), (2 * RECORD, 1.0), (3 * RECORD, 5.0)])
async def test_it_moves_after_the_interval_or_when_much_was_dispatched(
    tmp_path: Path, autojump_clock: trio.testing.MockClock, bytes_max: int, due_s: float
) -> None:
    async with running_store(tmp_path, sync_flush=True, checkpoint_log_bytes_max=bytes_max) as running:
        began = trio.current_time()
        for _ in range(2):
            assert (await running.store.puts.put_message(message())).status is PutStatus.PUT_OK
        await trio.sleep_until(began + due_s - 0.5)
        assert point(running).offset == 0
        await trio.sleep_until(began + due_s + 0.1)
        assert (point(running).offset, point(running).record_offset) == (2 * RECORD, RECORD)
        before = len(running.disk.syncs)
        await trio.sleep(60)
        assert len(running.disk.syncs) == before, "an idle store syncs nothing"


@pytest.mark.trio
async def test_much_moves_it_at_once_but_not_twice_in_a_second(
    tmp_path: Path, autojump_clock: trio.testing.MockClock
) -> None:
    async with running_store(tmp_path, sync_flush=True, checkpoint_log_bytes_max=2 * RECORD) as running:

        async def put_at(at_s: float) -> None:
            await trio.sleep_until(at_s)
            assert (await running.store.puts.put_message(message())).status is PutStatus.PUT_OK

        began = trio.current_time()
        await put_at(began)
        await put_at(began + 3)
        await trio.sleep(0.1)
        assert point(running).offset == 2 * RECORD
        await put_at(began + 3.2)
        await put_at(began + 3.3)
        await trio.sleep_until(began + 4.1)
        assert point(running).offset == 2 * RECORD
        await trio.sleep_until(began + 4.3)
        assert point(running).offset == 4 * RECORD


@pytest.mark.trio
async def test_it_moves_only_when_queues_and_index_are_synced(
    tmp_path: Path, autojump_clock: trio.testing.MockClock
) -> None:
    async with running_store(tmp_path, sync_flush=True) as running:
        await running.store.puts.put_message(message(properties={"KEYS": "k"}))
        del running.disk.syncs[:]
        await trio.sleep(6)
        *others, last = running.disk.syncs
        assert last == "checkpoint"
        assert {"consumequeue/T/0/" + 20 * "0", "consumequeue/T/0/", "index/"} <= set(others)
        assert any(path.startswith("index/2") for path in others)


@pytest.mark.trio
@pytest.mark.parametrize(("to", "named"), [(2 * RECORD, RECORD), (1000, 9 * RECORD), (1000 + RECORD, 1000)])
async def test_where_dispatching_goes_back_it_names_the_record_before_that(
    tmp_path: Path, autojump_clock: trio.testing.MockClock, to: int, named: int
) -> None:
    """A start would read all of the log if it named none. Files of 1,000 bytes end with a blank of 40."""
    async with running_store(tmp_path, sync_flush=True) as running:
        for _ in range(12):
            await running.store.puts.put_message(message())
        await trio.sleep(6)
        checkpointing, reput = running.store.files.checkpointing, running.store.files.reput
        assert (point(running).offset, point(running).record_offset) == (1000 + 2 * RECORD, 1000 + RECORD)
        reput.rewind(to)
        assert await checkpointing.advance(durable, force=True)
        stamp = read_checkpoint(running.disk).physic_msg_timestamp_ms
        found = point(running)
        assert (found.offset, found.record_offset, found.record_size) == (to, named, RECORD)
        assert found.record_store_timestamp_ms == stamp == 1_700_000_000_000


@pytest.mark.trio
async def test_a_record_of_another_log_is_not_named_any_more(
    tmp_path: Path, autojump_clock: trio.testing.MockClock
) -> None:
    async with running_store(tmp_path, sync_flush=True) as running:
        for _ in range(2):
            await running.store.puts.put_message(message())
        await trio.sleep(6)
        checkpointing, reput = running.store.files.checkpointing, running.store.files.reput
        foreign = attrs.evolve(point(running), record_offset=RECORD - 1)
        checkpoint = attrs.evolve(read_checkpoint(running.disk), recovery_point=foreign)
        await checkpointing._store_checkpoint.write(checkpoint)
        reput.last = None
        assert await checkpointing.advance(durable, force=True)
        assert point(running).record_offset == RECORD


async def durable(_: int) -> bool:
    return True


@pytest.mark.trio
async def test_after_a_failed_sync_it_stays_and_puts_go_on(
    tmp_path: Path, autojump_clock: trio.testing.MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    async def run() -> None:
        async with running_store(tmp_path, sync_flush=True) as running:
            await running.store.puts.put_message(message())
            running.disk.failing_syncs = 1
            await trio.sleep(6)
            assert running.store.failure == "a sync of what is derived from the log failed"
            for _ in range(3):
                assert (await running.store.puts.put_message(message())).status is PutStatus.PUT_OK
                await trio.sleep(6)
                assert point(running).offset == 0, "a later sync proves nothing"
            assert running.store.reads.get_message("T", 0, 0, 32).messages
            with pytest.raises(OSError, match="not stopped in order"):
                await running.store.shut_down()

    await run()
    assert "the checkpoint stays where it is until the next start" in caplog.text
    async with running_store(tmp_path, sync_flush=True) as running:
        assert running.store.offsets.get_max_offset_in_queue("T", 0) == 4
