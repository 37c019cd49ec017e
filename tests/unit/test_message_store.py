"""MessageStore: what a put promises, what it is answered, and when."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import trio
import trio.lowlevel
import trio.testing

from rmq_actors.actors.restart import first_leaf
from rmq_actors.protocols.group_transfer import GroupTransfer, ReplicationState
from rmq_actors.protocols.put_completion import PutStatus
from rmq_actors.store.config import BrokerRole, MessageStoreConfig
from rmq_actors.store.dispatch.consume_queues import ConsumeQueues
from rmq_actors.store.log.received_records import AppendRefused
from rmq_actors.store.puts.message_puts import PutResult
from rmq_actors.wire.record import BODY_MAX_BYTES, decode_record
from tests.worlds.running_store import RunningStore, message, running_store


async def put(running: RunningStore, results: list[PutResult], body: bytes = b"body", **fields: object) -> None:
    results.append(await running.store.puts.put_message(message(body, **fields)))


def emitted(running: RunningStore, kind: str) -> list[str | None]:
    return [event.status for event in running.recorder.events if event.kind == kind]


@pytest.mark.trio
async def test_an_async_put_is_answered_at_once(tmp_path: Path, autojump_clock: trio.testing.MockClock) -> None:
    async with running_store(tmp_path) as running:
        results = [await running.store.puts.put_message(message()) for _ in range(3)]
        assert trio.current_time() == 0
        assert [result.status for result in results] == [PutStatus.PUT_OK] * 3
        appends = [result.append for result in results]
        assert [(append.offset, append.queue_offset) for append in appends if append] == [(0, 0), (96, 1), (192, 2)]
        assert emitted(running, "put.end") == ["PUT_OK"] * 3
        stored = decode_record(running.store.commit_log.select(96, 96), 0, 96)
        assert (stored.body, stored.store_timestamp_ms) == (b"body", 1_700_000_000_000)


@pytest.mark.trio
async def test_async_flush_syncs_once_an_interval_and_at_the_stop(
    tmp_path: Path, autojump_clock: trio.testing.MockClock
) -> None:
    async with running_store(tmp_path, flush_interval_commit_log_ms=500, flush_commit_log_least_pages=0) as running:
        log = running.store.commit_log
        for _ in range(10):
            await running.store.puts.put_message(message(bytes(10)))
            await trio.sleep(0.1)
        assert [at for at in running.disk.syncs if at.startswith("commitlog/0")] == ["commitlog/" + 20 * "0"] * 2
        await trio.sleep(1)
        assert log.flushed_where == log.max_offset
        await running.store.puts.put_message(message())
        end = log.max_offset
        assert log.flushed_where < end
    assert log.flushed_where == end


@pytest.mark.trio
async def test_a_sync_put_is_answered_when_its_bytes_are_synced(
    tmp_path: Path, autojump_clock: trio.testing.MockClock
) -> None:
    async with running_store(tmp_path, sync_flush=True) as running, trio.open_nursery() as nursery:
        results: list[PutResult] = []
        running.disk.sync_gate = trio.Event()
        nursery.start_soon(put, running, results)
        await trio.sleep(1)
        assert results == []
        running.disk.sync_gate.set()
        await trio.lowlevel.checkpoint()
        await trio.testing.wait_all_tasks_blocked()
        assert [result.status for result in results] == [PutStatus.PUT_OK]
        assert trio.current_time() == 1
        assert running.store.commit_log.flushed_where == 96


@pytest.mark.trio
async def test_many_puts_are_under_way_without_a_task_each(
    tmp_path: Path, autojump_clock: trio.testing.MockClock
) -> None:
    async with running_store(tmp_path, sync_flush=True) as running:
        running.disk.sync_gate = trio.Event()
        pending = [running.store.puts.async_put_message(message()) for _ in range(3)]
        refused = running.store.puts.async_put_message(message(properties={"a\x01": ""}))
        await trio.sleep(1)
        assert [put.result for put in pending] == [None] * 3
        assert refused.result is not None
        assert refused.result.status is PutStatus.MESSAGE_ILLEGAL
        running.disk.sync_gate.set()
        results = [await put.wait() for put in reversed(pending)]
        assert [(result.status, result.append and result.append.offset) for result in results] == [
            (PutStatus.PUT_OK, offset) for offset in (192, 96, 0)
        ]
        assert emitted(running, "put.end") == ["PUT_OK"] * 3


@pytest.mark.trio
async def test_a_stuck_disk_times_out_and_its_late_success_is_no_answer(
    tmp_path: Path, autojump_clock: trio.testing.MockClock
) -> None:
    async with running_store(tmp_path, sync_flush=True) as running:
        running.disk.sync_gate = trio.Event()
        result = await running.store.puts.put_message(message())
        assert (result.status, trio.current_time()) == (PutStatus.FLUSH_DISK_TIMEOUT, 2.0)
        assert result.append is not None
        running.disk.sync_gate.set()
        # The disk is slow, not broken: the next put is fine.
        assert (await running.store.puts.put_message(message())).status is PutStatus.PUT_OK


@pytest.mark.trio
async def test_deadlines_count_from_each_puts_arrival(tmp_path: Path, autojump_clock: trio.testing.MockClock) -> None:
    async with running_store(tmp_path, sync_flush=True) as running, trio.open_nursery() as nursery:
        running.disk.sync_gate = trio.Event()
        ended: list[float] = []

        async def one(delay: float) -> None:
            await trio.sleep(delay)
            await running.store.puts.put_message(message())
            ended.append(trio.current_time())

        for delay in (0.0, 0.5, 1.25):
            nursery.start_soon(one, delay)
        await trio.sleep(5)
        assert ended == [2.0, 2.5, 3.25]
        running.disk.sync_gate.set()


@pytest.mark.trio
async def test_a_failed_sync_refuses_writes_and_never_says_ok(
    tmp_path: Path, autojump_clock: trio.testing.MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    async with running_store(tmp_path, sync_flush=True) as running, trio.open_nursery() as nursery:
        results: list[PutResult] = []
        running.disk.failing_syncs = 1
        for _ in range(3):
            nursery.start_soon(put, running, results)
        await trio.sleep(0.5)
        # Those that waited: stored, not confirmed. At once, not when their time is over.
        assert [result.status for result in results] == [PutStatus.FLUSH_DISK_TIMEOUT] * 3
        # The next sync would pretend success: nobody asks it.
        refused = await running.store.puts.put_message(message())
        assert (refused.status, refused.append) == (PutStatus.SERVICE_NOT_AVAILABLE, None)
        assert refused.reason.startswith("a sync failed: [Errno 5] Input/output error")
        with pytest.raises(AppendRefused, match=r"a sync failed: .*Input/output error"):
            running.store.append_to_commit_log(running.store.commit_log.max_offset, b"x")
        end = running.store.commit_log.max_offset
    assert running.store.commit_log.flushed_where == 0
    assert not [at for at in running.disk.syncs if at.startswith("commitlog/")]
    assert end == 3 * 96
    assert "GroupCommitService: a sync failed, the store refuses writes from now on" in caplog.text
    assert emitted(running, "log.flush_failed") == ["OSError"]


@pytest.mark.trio
async def test_an_async_store_refuses_writes_after_a_failed_sync_too(
    tmp_path: Path, autojump_clock: trio.testing.MockClock
) -> None:
    async with running_store(tmp_path) as running:
        await trio.sleep(1)
        running.disk.failing_syncs = 1
        assert (await running.store.puts.put_message(message())).status is PutStatus.PUT_OK
        await trio.sleep(1)
        refused = await running.store.puts.put_message(message())
        assert refused.status is PutStatus.SERVICE_NOT_AVAILABLE
        assert "Input/output error" in refused.reason
    assert running.store.commit_log.flushed_where == 0


@pytest.mark.trio
async def test_no_space_is_a_status_and_passes(tmp_path: Path, autojump_clock: trio.testing.MockClock) -> None:
    async with running_store(tmp_path) as running:
        assert (await running.store.puts.put_message(message())).status is PutStatus.PUT_OK
        await trio.testing.wait_all_tasks_blocked()
        running.disk.space_bytes = 95
        statuses = [(await running.store.puts.put_message(message())).status for _ in range(2)]
        assert statuses == [PutStatus.CREATE_MAPPED_FILE_FAILED] * 2
        full = await running.store.puts.put_message(message())
        assert (full.append, full.reason) == (None, "[Errno 28] No space left on device")
        running.disk.space_bytes = None
        again = await running.store.puts.put_message(message())
        assert again.status is PutStatus.PUT_OK
        assert again.append is not None
        assert (again.append.offset, again.append.queue_offset) == (96, 1)


@pytest.mark.trio
async def test_without_a_slave_a_sync_master_says_so_at_once(
    tmp_path: Path, autojump_clock: trio.testing.MockClock
) -> None:
    async with running_store(tmp_path, sync_master=True) as running:
        result = await running.store.puts.put_message(message())
        assert (result.status, trio.current_time()) == (PutStatus.SLAVE_NOT_AVAILABLE, 0)
        assert result.append is not None


@pytest.mark.trio
async def test_a_sync_put_waits_for_a_slave(tmp_path: Path, autojump_clock: trio.testing.MockClock) -> None:
    async with running_store(tmp_path, sync_master=True) as running, trio.open_nursery() as nursery:
        results: list[PutResult] = []
        running.store.replicated(ReplicationState(1, 0))
        await trio.testing.wait_all_tasks_blocked()
        nursery.start_soon(put, running, results)
        await trio.sleep(1)
        running.store.replicated(ReplicationState(1, 95))
        await trio.sleep(1)
        assert results == []
        running.store.replicated(ReplicationState(1, 96))
        await trio.testing.wait_all_tasks_blocked()
        assert [result.status for result in results] == [PutStatus.PUT_OK]


@pytest.mark.trio
async def test_a_put_is_answered_in_the_step_that_brings_the_report(tmp_path: Path) -> None:
    async with running_store(tmp_path, sync_master=True) as running:
        running.store.replicated(ReplicationState(1, 0))
        pending = [running.store.puts.async_put_message(message()) for _ in range(3)]
        running.store.replicated(ReplicationState(1, 192))
        assert [None if one.result is None else one.result.status for one in pending] == [PutStatus.PUT_OK] * 2 + [None]


@pytest.mark.trio
async def test_a_silent_slave_times_out(tmp_path: Path, autojump_clock: trio.testing.MockClock) -> None:
    async with running_store(tmp_path, sync_master=True) as running:
        running.store.replicated(ReplicationState(1, 0))
        await trio.testing.wait_all_tasks_blocked()
        result = await running.store.puts.put_message(message())
        assert (result.status, trio.current_time()) == (PutStatus.FLUSH_SLAVE_TIMEOUT, 3.0)


@pytest.mark.trio
async def test_a_slave_too_far_behind_is_no_slave(tmp_path: Path, autojump_clock: trio.testing.MockClock) -> None:
    async with running_store(tmp_path, sync_master=True, ha_slave_fallbehind_max_bytes=96) as running:
        running.store.replicated(ReplicationState(1, 0))
        await trio.testing.wait_all_tasks_blocked()
        assert (await running.store.puts.put_message(message())).status is PutStatus.SLAVE_NOT_AVAILABLE
        assert trio.current_time() == 0


@pytest.mark.trio
async def test_a_master_that_may_go_on_alone_waits_for_slaves_that_are_near(
    tmp_path: Path, autojump_clock: trio.testing.MockClock
) -> None:
    slaves = GroupTransfer(acks_required=1, acks_min=0)
    async with running_store(tmp_path, sync_master=True, ha_slave_fallbehind_max_bytes=3 * 96) as running:
        store = running.store
        store.replicated(slaves.connected(1))
        for _ in range(3):
            assert (await store.puts.put_message(message())).status is PutStatus.PUT_OK  # it has said nothing
        store.replicated(slaves.reported(1, 0))
        assert (await store.puts.put_message(message())).status is PutStatus.PUT_OK  # it is far behind
        store.replicated(slaves.reported(1, 4 * 96))
        waiting = [store.puts.async_put_message(message()) for _ in range(3)]
        assert [put.result and put.result.status for put in waiting] == [None, None, PutStatus.PUT_OK]
        store.replicated(slaves.reported(1, 5 * 96))
        assert [put.result and put.result.status for put in waiting] == [PutStatus.PUT_OK, None, PutStatus.PUT_OK]
        assert trio.current_time() == 0


@pytest.mark.trio
async def test_a_waiting_put_does_not_wait_for_a_slave_that_comes_from_far_behind(tmp_path: Path) -> None:
    slaves = GroupTransfer(acks_required=2, acks_min=0)
    async with running_store(tmp_path, sync_master=True, ha_slave_fallbehind_max_bytes=2 * 96) as running:
        store = running.store
        store.replicated(slaves.connected(1))
        await store.puts.put_message(message())
        await store.puts.put_message(message())
        store.replicated(slaves.reported(1, 2 * 96))
        put = store.puts.async_put_message(message())
        store.replicated(slaves.connected(2))
        store.replicated(slaves.reported(2, 0))
        assert put.result is None
        store.replicated(slaves.reported(1, 3 * 96))
        assert put.result is not None


@pytest.mark.trio
async def test_wait_false_waits_for_nothing_and_is_not_stored(
    tmp_path: Path, autojump_clock: trio.testing.MockClock
) -> None:
    async with running_store(tmp_path, sync_master=True, sync_flush=True) as running:
        running.disk.sync_gate = trio.Event()
        result = await running.store.puts.put_message(message(properties={"KEYS": "k", "WAIT": "false"}))
        assert (result.status, trio.current_time()) == (PutStatus.PUT_OK, 0)
        assert result.append is not None
        stored = decode_record(running.store.commit_log.select(0, result.append.size), 0, 0)
        assert stored.properties == {"KEYS": "k"}
        running.disk.sync_gate.set()


@pytest.mark.trio
async def test_messages_that_the_log_must_not_take(tmp_path: Path, autojump_clock: trio.testing.MockClock) -> None:
    async with running_store(tmp_path, max_message_size_bytes=2000) as running:
        for fields, status in (
            ({"body": bytes(2001)}, PutStatus.MESSAGE_ILLEGAL),
            ({"body": bytes(1000)}, PutStatus.MESSAGE_ILLEGAL),
            ({"properties": {"a": "\x01"}}, PutStatus.MESSAGE_ILLEGAL),
            ({"properties": {"a": "\ud800"}}, PutStatus.MESSAGE_ILLEGAL),
            ({"properties": {"a": "v" * 40_000}}, PutStatus.PROPERTIES_SIZE_EXCEEDED),
        ):
            result = await running.store.puts.put_message(message(**fields))
            assert (result.status, result.append) == (status, None)
            assert result.reason
        assert running.store.commit_log.max_offset == 0
        assert (await running.store.puts.put_message(message())).status is PutStatus.PUT_OK


@pytest.mark.trio
async def test_the_number_of_waiting_puts_is_bounded(tmp_path: Path, autojump_clock: trio.testing.MockClock) -> None:
    async with running_store(tmp_path, sync_flush=True, waiting_puts_max=2) as running, trio.open_nursery() as nursery:
        results: list[PutResult] = []
        running.disk.sync_gate = trio.Event()
        for _ in range(2):
            nursery.start_soon(put, running, results)
        await trio.testing.wait_all_tasks_blocked()
        refused = await running.store.puts.put_message(message())
        assert (refused.status, refused.reason) == (PutStatus.SERVICE_NOT_AVAILABLE, "2 puts wait already")
        running.disk.sync_gate.set()
    assert [result.status for result in results] == [PutStatus.PUT_OK] * 2


@pytest.mark.trio
async def test_a_slave_takes_no_puts(tmp_path: Path, autojump_clock: trio.testing.MockClock) -> None:
    async with running_store(tmp_path, broker_role=BrokerRole.SLAVE) as running:
        refused = await running.store.puts.put_message(message())
        assert (refused.status, refused.reason) == (PutStatus.SERVICE_NOT_AVAILABLE, "a slave takes no puts")


@pytest.mark.trio
async def test_what_waits_at_the_stop_is_answered(tmp_path: Path, autojump_clock: trio.testing.MockClock) -> None:
    results: list[PutResult] = []
    async with trio.open_nursery() as nursery:
        async with running_store(tmp_path, sync_master=True) as running:
            running.store.replicated(ReplicationState(1, 0))
            await trio.testing.wait_all_tasks_blocked()
            nursery.start_soon(put, running, results)
            await trio.testing.wait_all_tasks_blocked()
        await trio.testing.wait_all_tasks_blocked()
        assert [result.status for result in results] == [PutStatus.FLUSH_SLAVE_TIMEOUT]
        assert trio.current_time() < 1


@pytest.mark.trio
async def test_a_stuck_disk_holds_up_the_stop_for_its_budget_only(
    tmp_path: Path, autojump_clock: trio.testing.MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    async with running_store(tmp_path) as running:
        running.disk.sync_gate = trio.Event()
        await running.store.puts.put_message(message())
    assert trio.current_time() == pytest.approx(5.0)
    assert "FlushRealTimeService did not stop within 5 s" in caplog.text


class BodyFailed(Exception):
    pass


@pytest.mark.trio
async def test_what_waits_when_the_system_dies_is_answered(
    tmp_path: Path, autojump_clock: trio.testing.MockClock
) -> None:
    """The put's task lives outside of the system: nothing cancels it, and nobody else will answer it."""
    results: list[PutResult] = []
    with trio.fail_after(100):
        async with trio.open_nursery() as nursery:
            with pytest.RaisesGroup(BodyFailed):
                async with running_store(tmp_path, sync_master=True) as running:
                    running.store.replicated(ReplicationState(1, 0))
                    await trio.testing.wait_all_tasks_blocked()
                    nursery.start_soon(put, running, results)
                    await trio.testing.wait_all_tasks_blocked()
                    raise BodyFailed
        assert [result.status for result in results] == [PutStatus.FLUSH_SLAVE_TIMEOUT]
        refused = await running.store.puts.put_message(message())
    assert (refused.status, refused.reason) == (PutStatus.SERVICE_NOT_AVAILABLE, "the store has stopped")


@pytest.mark.trio
@pytest.mark.parametrize("sync", [False, True])
async def test_a_put_after_the_stop_is_refused(
    tmp_path: Path, autojump_clock: trio.testing.MockClock, sync: bool
) -> None:
    async with running_store(tmp_path, sync_flush=sync, sync_master=sync) as running:
        await running.store.puts.put_message(message())
    before = (tmp_path / "commitlog" / ("0" * 20)).read_bytes()
    with trio.fail_after(100):
        refused = await running.store.puts.put_message(message(b"other"))
    assert (refused.status, refused.reason) == (PutStatus.SERVICE_NOT_AVAILABLE, "the store has stopped")
    assert (tmp_path / "commitlog" / ("0" * 20)).read_bytes() == before


@pytest.mark.trio
async def test_a_put_that_is_cancelled_leaves_the_others_alone(
    tmp_path: Path, autojump_clock: trio.testing.MockClock
) -> None:
    async with running_store(tmp_path, sync_flush=True) as running, trio.open_nursery() as nursery:
        results: list[PutResult] = []
        running.disk.sync_gate = trio.Event()
        with trio.move_on_after(0.5) as gave_up:
            await running.store.puts.put_message(message())
        assert gave_up.cancelled_caught
        nursery.start_soon(put, running, results)
        await trio.testing.wait_all_tasks_blocked()
        running.disk.sync_gate.set()
        await trio.sleep(0.1)
        assert [result.status for result in results] == [PutStatus.PUT_OK]


@pytest.mark.parametrize(
    "field",
    ["mapped_file_size_commit_log_bytes", "max_message_size_bytes", "flush_interval_commit_log_ms", "slave_timeout_ms"],
)
def test_a_setting_out_of_range_is_named(field: str) -> None:
    settings: dict[str, Any] = {field: 0}
    with pytest.raises(ValueError, match=field):
        MessageStoreConfig(**settings)


def test_a_message_that_no_slave_would_take_is_not_allowed() -> None:
    assert MessageStoreConfig(max_message_size_bytes=BODY_MAX_BYTES).max_message_size_bytes == BODY_MAX_BYTES
    with pytest.raises(ValueError, match=f"max_message_size_bytes' must be <= {BODY_MAX_BYTES}: {BODY_MAX_BYTES + 1}"):
        MessageStoreConfig(max_message_size_bytes=BODY_MAX_BYTES + 1)


def test_both_time_outs_stay_below_a_clients_three_seconds() -> None:
    config = MessageStoreConfig()
    assert max(config.sync_flush_timeout_ms, config.slave_timeout_ms) < 3000


@pytest.mark.parametrize("lone", [False, True], ids=["by_its_own_task", "by_the_task_that_puts"])
@pytest.mark.trio
async def test_a_dispatch_that_crashes_ends_the_store(
    tmp_path: Path, autojump_clock: trio.testing.MockClock, monkeypatch: pytest.MonkeyPatch, lone: bool
) -> None:
    """Puts would go on, and no consumer ever see them. The put itself is in the log, and its answer says so."""
    statuses: list[PutStatus] = []

    def crash(queues: ConsumeQueues, requests: object) -> None:
        raise RuntimeError("a bug in dispatch")

    async def run() -> None:
        async with running_store(tmp_path) as running:
            for _ in range(2 if lone else 0):
                await running.store.puts.put_message(message())
                await trio.sleep(1)
            monkeypatch.setattr(ConsumeQueues, "dispatch", crash)
            monkeypatch.setattr(ConsumeQueues, "dispatch_rows", crash)
            before, dispatched_to = running.store.commit_log.max_offset, running.store.dispatched_to
            pending = running.store.puts.async_put_message(message())
            assert running.store.commit_log.max_offset > before
            assert running.store.dispatched_to == dispatched_to
            statuses.append((await pending.wait()).status)
            await trio.sleep(3600)

    with pytest.raises(BaseExceptionGroup) as raised:
        await run()
    assert statuses == [PutStatus.PUT_OK]
    error = first_leaf(raised.value)
    assert "a bug in dispatch" in str(error.__cause__ or error)
