"""HAClient's reporting half: the machine decides, and no stalled socket keeps it from noticing a silent master."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import attrs
import pytest
import trio
import trio.testing

from rmq_actors.actors.service import WakeUp
from rmq_actors.ha.config import HaConfig
from rmq_actors.ha.ha_client import HAClient, make_ha_slave
from rmq_actors.protocols.ha_slave import MasterSilent
from rmq_actors.wire.ha_frames import encode_report
from tests.property.recording import new_tracer
from tests.property.running_store import NoEntropy, message, running_store

CONFIG = HaConfig(ha_master_address="127.0.0.1:1")


@attrs.define(eq=False)
class Wire:
    """A socket that takes `room` bytes in all, `step` at a time, and then stalls."""

    room: int
    step: int = 8
    sent: list[tuple[float, bytes]] = attrs.field(factory=list)

    async def send(self, data: bytes) -> int:
        if not self.room:
            await trio.sleep_forever()
        await trio.lowlevel.checkpoint()
        size = min(self.step, self.room, len(data))
        self.room -= size
        self.sent.append((trio.current_time(), data[:size]))
        return size


def client(store: Any) -> HAClient:
    return HAClient(CONFIG, "127.0.0.1:1", store, NoEntropy(), new_tracer())


@pytest.mark.trio
async def test_reports_at_once_then_every_five_seconds_until_the_master_was_silent_for_twenty(
    tmp_path: Path, autojump_clock: trio.testing.MockClock
) -> None:
    async with running_store(tmp_path) as bench:
        await bench.store.put_message(message())
        wire: Any = Wire(room=1000)
        slave = make_ha_slave(96, 0.0, CONFIG)
        with pytest.raises(MasterSilent):
            await client(bench.store)._report(wire, slave, WakeUp())
        assert wire.sent == [(at, encode_report(96)) for at in (0.0, 5.0, 10.0, 15.0)]
        assert trio.current_time() == 20


@pytest.mark.trio
async def test_a_report_goes_out_whole_over_a_socket_that_takes_a_byte(
    tmp_path: Path, autojump_clock: trio.testing.MockClock
) -> None:
    async with running_store(tmp_path) as bench:
        await bench.store.put_message(message())
        wire: Any = Wire(room=1000, step=3)
        with trio.move_on_after(1):
            await client(bench.store)._report(wire, make_ha_slave(96, 0.0, CONFIG), WakeUp())
        assert b"".join(data for _, data in wire.sent) == encode_report(96)


@pytest.mark.trio
async def test_growth_is_reported_when_woken(tmp_path: Path, autojump_clock: trio.testing.MockClock) -> None:
    async with running_store(tmp_path) as bench, trio.open_nursery() as nursery:
        wire: Any = Wire(room=1000)
        wake = WakeUp()
        nursery.start_soon(client(bench.store)._report, wire, make_ha_slave(0, 0.0, CONFIG), wake)
        await trio.sleep(1)
        await bench.store.put_message(message())
        wake.wakeup()
        await trio.sleep(1)
        assert wire.sent == [(0.0, encode_report(0)), (1.0, encode_report(96))]
        nursery.cancel_scope.cancel()


@pytest.mark.trio
async def test_a_socket_that_takes_nothing_does_not_hide_a_silent_master(
    tmp_path: Path, autojump_clock: trio.testing.MockClock
) -> None:
    async with running_store(tmp_path) as bench:
        wire: Any = Wire(room=0)
        with trio.fail_after(100), pytest.raises(MasterSilent):
            await client(bench.store)._report(wire, make_ha_slave(0, 0.0, CONFIG), WakeUp())
        assert trio.current_time() == 20


@pytest.mark.trio
async def test_a_socket_that_takes_nothing_ends_nothing_while_the_master_speaks(
    tmp_path: Path, autojump_clock: trio.testing.MockClock
) -> None:
    async with running_store(tmp_path) as bench, trio.open_nursery() as nursery:
        wire: Any = Wire(room=0)
        slave = make_ha_slave(0, 0.0, CONFIG)
        nursery.start_soon(client(bench.store)._report, wire, slave, WakeUp())
        for _ in range(10):
            await trio.sleep(10)
            slave.free()[:1] = b"\0"
            slave.last_read = trio.current_time()
        nursery.cancel_scope.cancel()


@pytest.mark.trio
async def test_under_sync_flush_only_synced_bytes_are_acknowledged(
    tmp_path: Path, autojump_clock: trio.testing.MockClock
) -> None:
    async with running_store(tmp_path, sync_flush=True) as bench, trio.open_nursery() as nursery:
        wire: Any = Wire(room=1000)
        wake, slave_side = WakeUp(), client(bench.store)
        nursery.start_soon(slave_side._report, wire, make_ha_slave(0, 0.0, CONFIG), wake)
        nursery.start_soon(slave_side._wake_on_flush, wake)
        bench.disk.sync_gate = trio.Event()
        nursery.start_soon(bench.store.put_message, message())
        await trio.sleep(1)
        wake.wakeup()
        await trio.sleep(1)
        assert wire.sent == [(0.0, encode_report(0))]
        bench.disk.sync_gate.set()
        await trio.sleep(1)
        assert wire.sent == [(0.0, encode_report(0)), (2.0, encode_report(96))]
        nursery.cancel_scope.cancel()


@pytest.mark.trio
async def test_under_sync_flush_the_first_report_waits_for_the_sync(
    tmp_path: Path, autojump_clock: trio.testing.MockClock
) -> None:
    """The first report asks for bytes, and acknowledges those before them."""
    async with running_store(tmp_path, sync_flush=True) as bench, trio.open_nursery() as nursery:
        bench.disk.sync_gate = trio.Event()
        nursery.start_soon(bench.store.put_message, message())
        await trio.testing.wait_all_tasks_blocked()
        with trio.move_on_after(1) as waited:
            await client(bench.store)._until_flushed()
        assert waited.cancelled_caught
        nursery.start_soon(client(bench.store)._until_flushed)
        bench.disk.sync_gate.set()
        await trio.sleep(1)
        assert len(nursery.child_tasks) == 0
