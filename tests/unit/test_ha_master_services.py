"""WriteSocketService and ReadSocketService: what one slave is sent and when, and that no report of it gets lost."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import attrs
import pytest
import trio
import trio.testing

from rmq_actors.ha.read_socket_service import ReadSocketService
from rmq_actors.ha.write_socket_service import FIRST_REPORT, WriteSocketService
from rmq_actors.ports.receive import receive_into
from rmq_actors.ports.try_send import try_sendmsg
from rmq_actors.protocols.ha_master import SlaveReports, SlaveSilent, TransferCursor
from rmq_actors.store.message_store import MessageStore
from rmq_actors.wire.ha_frames import encode_report, encode_transfer_header
from tests.worlds.recording import new_tracer
from tests.worlds.running_store import message, running_store

#: Of an empty log.
HEARTBEAT = encode_transfer_header(0, 0)
HEARTBEAT_S = 5.0
HOUSEKEEPING_S = 20.0


@attrs.define(eq=False)
class Slave:
    """A slave's socket: it takes `step` bytes a call, nothing before its `gate` is open, and gives what it `says`."""

    step: int = 1000
    gate: trio.Event | None = None
    #: How much it takes of each attempt to send at once; then everything. An error is raised.
    at_once: list[int | OSError] = attrs.field(factory=list)
    sent: list[tuple[float, bytes]] = attrs.field(factory=list)
    #: What comes, and how long after what came before.
    says: list[tuple[float, bytes]] = attrs.field(factory=list)

    def try_sendmsg(self, buffers: Sequence[bytes | memoryview]) -> int:
        takes = self.at_once.pop(0) if self.at_once else 2**31
        if isinstance(takes, OSError):
            raise takes
        taken = b"".join(bytes(buffer) for buffer in buffers)[:takes]
        if taken:
            self.sent.append((trio.current_time(), taken))
        return len(taken)

    async def sendmsg(self, buffers: list[bytes | memoryview]) -> int:
        if self.gate is not None:
            await self.gate.wait()
        await trio.lowlevel.checkpoint()
        taken = b"".join(bytes(buffer) for buffer in buffers)[: self.step]
        self.sent.append((trio.current_time(), taken))
        return len(taken)

    async def recv_into(self, buffer: memoryview) -> int:
        if not self.says:
            await trio.sleep_forever()
        after_s, data = self.says.pop(0)
        with trio.CancelScope(shield=True):  # received is received, whatever was cancelled meanwhile
            await trio.sleep(after_s)
        buffer[: len(data)] = data
        return len(data)


@contextlib.asynccontextmanager
async def writing(
    store: MessageStore, slave: Slave, *, at_once: bool = False, **settings: int
) -> AsyncIterator[WriteSocketService]:
    """One whose slave has asked for everything. `at_once`: who puts sends. `settings`: of its cursor."""
    send, receive = FIRST_REPORT.open()
    log, socket = store.commit_log, slave
    service = WriteSocketService(
        1,
        _socket(socket),
        lambda requested, now: TransferCursor(requested, now, log.file_size_bytes, HEARTBEAT_S, **settings),
        log,
        store.visible_end,
        receive,
        new_tracer(),
        try_sendmsg if at_once else None,
    )
    await send.send(0)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(service.run)
        yield service
        nursery.cancel_scope.cancel()


def _socket(slave: Slave) -> Any:
    return slave


def frame(store: MessageStore, offset: int, size: int) -> bytes:
    return encode_transfer_header(offset, size) + bytes(store.commit_log.select(offset, size))


@pytest.mark.trio
async def test_a_frame_at_once_and_heartbeats_every_five_seconds_of_silence(
    tmp_path: Path, autojump_clock: trio.testing.MockClock
) -> None:
    async with running_store(tmp_path) as running:
        await running.store.puts.put_message(message())
        slave = Slave()
        async with writing(running.store, slave):
            await trio.sleep(7)
            await running.store.puts.put_message(message())
            await trio.sleep(11)
        heartbeat = encode_transfer_header(96, 0), encode_transfer_header(192, 0)
        first, second = frame(running.store, 0, 96), frame(running.store, 96, 96)
        assert slave.sent == [(0, first), (5, heartbeat[0]), (7, second), (12, heartbeat[1]), (17, heartbeat[1])]


@pytest.mark.trio
@pytest.mark.parametrize("at_once", [False, True])
async def test_what_grows_while_a_heartbeat_is_stuck_is_sent_after_it(
    tmp_path: Path, autojump_clock: trio.testing.MockClock, at_once: bool
) -> None:
    async with running_store(tmp_path) as running:
        slave = Slave(gate=trio.Event(), at_once=[0])
        async with writing(running.store, slave, at_once=at_once) as service:
            service.reported(0)
            await trio.sleep(6)
            await running.store.puts.put_message(message())
            await trio.sleep(1)
            assert slave.sent == []
            assert slave.gate is not None
            slave.gate.set()
            await trio.sleep(1)
        assert slave.sent == [(7, encode_transfer_header(0, 0)), (7, frame(running.store, 0, 96))]


@pytest.mark.trio
async def test_no_heartbeat_cuts_into_a_frame_that_is_stuck(
    tmp_path: Path, autojump_clock: trio.testing.MockClock
) -> None:
    async with running_store(tmp_path) as running:
        await running.store.puts.put_message(message())
        slave = Slave(step=7)
        async with writing(running.store, slave):
            await trio.testing.wait_all_tasks_blocked()
            whole = frame(running.store, 0, 96)
            assert b"".join(data for _, data in slave.sent) == whole
            slave.gate = trio.Event()
            await running.store.puts.put_message(message())
            await trio.sleep(12)
            slave.gate.set()
            await trio.sleep(1)
        assert b"".join(data for _, data in slave.sent) == whole + frame(running.store, 96, 96)


@pytest.mark.trio
@pytest.mark.parametrize("takes", [0, 1, 11, 12])
async def test_of_a_heartbeat_what_does_not_go_at_once_goes_later(
    tmp_path: Path, autojump_clock: trio.testing.MockClock, takes: int
) -> None:
    async with running_store(tmp_path) as running:
        slave = Slave(at_once=[takes])
        async with writing(running.store, slave, at_once=True):
            await trio.sleep(11)
        parts = [part for part in ((5.0, HEARTBEAT[:takes]), (5.0, HEARTBEAT[takes:])) if part[1]]
        assert slave.sent == [*parts, (10.0, HEARTBEAT)]


@pytest.mark.trio
async def test_who_puts_sends_to_a_slave_that_has_everything(tmp_path: Path) -> None:
    async with running_store(tmp_path) as running:
        slave = Slave()
        async with writing(running.store, slave, at_once=True) as service:
            await trio.testing.wait_all_tasks_blocked()
            service.reported(0)
            running.store.puts.async_put_message(message())
            assert [data for _, data in slave.sent] == [frame(running.store, 0, 96)]
            service.check_taken(trio.current_time() + HOUSEKEEPING_S)  # nothing is under way
            running.store.puts.async_put_message(message())  # the slave has not confirmed the first
            assert len(slave.sent) == 1
            await trio.testing.wait_all_tasks_blocked()
            assert [data for _, data in slave.sent] == [frame(running.store, 0, 96), frame(running.store, 96, 96)]


@pytest.mark.trio
async def test_what_grows_at_once_goes_in_several_frames(tmp_path: Path) -> None:
    """Of a batch, or of what a receive has brought. More frames than a group has are left to the task that sends."""
    async with running_store(tmp_path) as running:
        slave = Slave()
        small_frames = writing(running.store, slave, at_once=True, batch_size_bytes=32, group_frames_max=4)
        async with small_frames as service:
            await trio.testing.wait_all_tasks_blocked()
            service.reported(0)
            running.store.puts.async_put_message(message())
            parts = [frame(running.store, begin, 32) for begin in range(0, 96, 32)]
            assert [data for _, data in slave.sent] == [b"".join(parts)]
            service.reported(96)
            slave.sent.clear()
            running.store.puts.async_put_message(message(b"a" * 90))
            end = running.store.commit_log.max_offset
            assert b"".join(data for _, data in slave.sent) == b"".join(
                frame(running.store, begin, 32) for begin in range(96, 224, 32)
            )
            await trio.testing.wait_all_tasks_blocked()
            assert service.next_offset == end > 224


@pytest.mark.trio
async def test_puts_that_come_in_bursts_are_sent_together(tmp_path: Path) -> None:
    async with running_store(tmp_path) as running:
        slave = Slave()
        async with writing(running.store, slave, at_once=True) as service:
            await trio.testing.wait_all_tasks_blocked()
            service.reported(0)
            for begin in (0, 3 * 96, 6 * 96):
                for _ in range(3):
                    running.store.puts.async_put_message(message())
                await trio.testing.wait_all_tasks_blocked()
                service.reported(begin + 3 * 96)
            bursts = [frame(running.store, begin, 3 * 96) for begin in (3 * 96, 6 * 96)]
            sent = [frame(running.store, 0, 96), frame(running.store, 96, 2 * 96), *bursts]
            assert [data for _, data in slave.sent] == sent
            # With a put that is alone the bursts are over.
            running.store.puts.async_put_message(message())
            await trio.testing.wait_all_tasks_blocked()
            service.reported(running.store.commit_log.max_offset)
            slave.sent.clear()
            running.store.puts.async_put_message(message())
            assert len(slave.sent) == 1


@pytest.mark.trio
@pytest.mark.parametrize("takes", [[0], [1], [11], [12], [107], [OSError("reset")], [50, 50, 0]])
async def test_what_does_not_go_at_once_goes_later_and_nothing_before_it(
    tmp_path: Path, autojump_clock: trio.testing.MockClock, takes: list[int | OSError]
) -> None:
    async with running_store(tmp_path) as running:
        slave = Slave(at_once=takes, gate=trio.Event())
        async with writing(running.store, slave, at_once=True) as service:
            await trio.testing.wait_all_tasks_blocked()
            service.reported(0)
            for _ in range(3):
                running.store.puts.async_put_message(message())
                await trio.sleep(2 * HEARTBEAT_S)
            assert slave.gate is not None
            slave.gate.set()
            await trio.testing.wait_all_tasks_blocked()
        first = frame(running.store, 0, 96)
        assert b"".join(data for _, data in slave.sent) == first + frame(running.store, 96, 192)


@pytest.mark.trio
async def test_a_file_that_cannot_be_mapped_is_not_the_trouble_of_who_puts(tmp_path: Path) -> None:
    async with running_store(tmp_path) as running:
        slave = Slave()
        async with writing(running.store, slave, at_once=True) as service:
            await trio.testing.wait_all_tasks_blocked()
            service.reported(0)
            running.disk.failing_maps = 1
            running.store.puts.async_put_message(message())
            assert slave.sent == []
            assert service.next_offset == service.sent_bytes == 0
            service.check_taken(trio.current_time() + HOUSEKEEPING_S)  # nothing is under way
            await trio.testing.wait_all_tasks_blocked()
            assert [data for _, data in slave.sent] == [frame(running.store, 0, 96)]


@attrs.frozen
class Reading:
    """What a ReadSocketService tells."""

    offsets: list[int]
    first: trio.MemoryReceiveChannel[int]


@contextlib.asynccontextmanager
async def reading(store: MessageStore, slave: Slave) -> AsyncIterator[Reading]:
    """A ReadSocketService that runs until its slave is silent."""
    offsets: list[int] = []
    first, first_told = FIRST_REPORT.open()
    reports = SlaveReports(trio.current_time(), HOUSEKEEPING_S)
    service = ReadSocketService(
        1, _socket(slave), reports, store.commit_log, offsets.append, first, lambda _: None, new_tracer(), receive_into
    )

    async def run() -> None:
        with pytest.raises(SlaveSilent):
            await service.run()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(run)
        yield Reading(offsets, first_told)


@pytest.mark.trio
async def test_each_report_puts_the_end_of_patience_off_and_is_told(
    tmp_path: Path, autojump_clock: trio.testing.MockClock
) -> None:
    async with running_store(tmp_path) as running:
        await running.store.puts.put_message(message())
        slave = Slave(says=[(15, encode_report(offset)) for offset in (0, 0, 96)])
        async with reading(running.store, slave) as reader:
            assert await reader.first.receive() == 0
        assert trio.current_time() == 3 * 15 + HOUSEKEEPING_S
        assert reader.offsets == [0, 0, 96]  # the same again: it is the slave, and it is there
        assert not reader.first.statistics().current_buffer_used


@pytest.mark.trio
async def test_a_first_report_that_comes_with_the_end_of_patience_starts_the_transfer(
    tmp_path: Path, autojump_clock: trio.testing.MockClock
) -> None:
    async with running_store(tmp_path) as running:
        slave = Slave(says=[(HOUSEKEEPING_S, encode_report(0))])
        async with reading(running.store, slave) as reader:
            with trio.fail_after(HOUSEKEEPING_S + 1):
                assert await reader.first.receive() == 0


@pytest.mark.trio
async def test_a_report_that_comes_with_the_end_of_patience_counts(
    tmp_path: Path, autojump_clock: trio.testing.MockClock
) -> None:
    async with running_store(tmp_path) as running:
        await running.store.puts.put_message(message())
        async with reading(running.store, Slave(says=[(HOUSEKEEPING_S, encode_report(96))])) as reader:
            await trio.sleep(2 * HOUSEKEEPING_S)
            assert reader.offsets == [96]
