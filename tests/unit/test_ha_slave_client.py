"""HAClient on one connection: when it reports, and how no socket keeps it from noticing a silent master."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

import attrs
import pytest
import trio
import trio.testing

from rmq_actors.actors.restart import first_leaf
from rmq_actors.broker.ha_tls import RECORD_BYTES, BrokerTls
from rmq_actors.ha.config import HaConfig
from rmq_actors.ha.followed_master import HA_MASTERS, FollowedMaster
from rmq_actors.ha.ha_client import HAClient
from rmq_actors.protocols.backoff import Backoff
from rmq_actors.protocols.following import Halt
from rmq_actors.protocols.ha_slave import RECEIVE_BYTES, IllegalFrame, MasterSilent, ReportStuck
from rmq_actors.remoting.tls import Tls
from rmq_actors.store.dispatch.receiving import BUSY_S
from rmq_actors.store.message_store import MessageStore
from rmq_actors.wire.ha_frames import encode_report, encode_transfer_header
from tests.worlds.recording import new_tracer
from tests.worlds.running_store import NoEntropy, message, running_store

CONFIG = HaConfig(ha_master_address="127.0.0.1:1")
NO_CERTIFICATES: Any = object()


@attrs.define(eq=False)
class Wire:
    """A socket that takes `room` bytes in all, `step` at a time, then stalls; what is `fed` can be received.

    With a `gate` it takes nothing before that is open.
    """

    room: int
    step: int = 8
    gate: trio.Event | None = None
    sent: list[tuple[float, bytes]] = attrs.field(factory=list)
    fed: list[bytes] = attrs.field(factory=list)
    _more: trio.Event = attrs.field(factory=trio.Event)

    async def send(self, data: bytes) -> int:
        if self.gate is not None:
            await self.gate.wait()
        if not self.room:
            await trio.sleep_forever()
        await trio.lowlevel.checkpoint()
        size = min(self.step, self.room, len(data))
        self.room -= size
        self.sent.append((trio.current_time(), data[:size]))
        return size

    async def recv_into(self, buffer: memoryview) -> int:
        while not self.fed:
            self._more = trio.Event()
            await self._more.wait()
        data = self.fed.pop(0)
        buffer[: len(data)] = data
        return len(data)

    def feed(self, data: bytes) -> None:
        self.fed.append(data)
        self._more.set()


@attrs.define(eq=False)
class QuickWire(Wire):
    """One that takes as many bytes of the first report without a wait, and all of later ones."""

    takes: int = 0

    def try_sendmsg(self, buffers: list[bytes]) -> int:
        taken = b"".join(buffers)[: self.takes]
        if taken:
            self.sent.append((trio.current_time(), taken))
        self.takes = 8
        return len(taken)


async def follow(store: MessageStore, wire: Wire, backoff: Backoff | None = None, tls: BrokerTls | None = None) -> None:
    """One connection of a client, to its end; raises what ended it."""
    socket: Any = wire
    client = HAClient(CONFIG, FollowedMaster("127.0.0.1:1"), store, NoEntropy(), new_tracer(), tls=tls)
    try:
        await client._follow_master(socket, backoff or Backoff(0.1, 1.0))
    except ExceptionGroup as group:
        raise first_leaf(group) from group


@pytest.mark.trio
async def test_reports_at_once_then_every_five_seconds_until_the_master_was_silent_for_twenty(
    tmp_path: Path, autojump_clock: trio.testing.MockClock
) -> None:
    async with running_store(tmp_path) as running:
        await running.store.puts.put_message(message())
        wire = Wire(room=1000)
        with pytest.raises(MasterSilent, match="nothing was heard from the master for 20 s"):
            await follow(running.store, wire)
        assert wire.sent == [(at, encode_report(96)) for at in (0.0, 5.0, 10.0, 15.0)]
        assert trio.current_time() == 20


@pytest.mark.trio
async def test_every_frame_puts_the_end_of_patience_off(tmp_path: Path, autojump_clock: trio.testing.MockClock) -> None:
    async with running_store(tmp_path) as running, trio.open_nursery() as nursery:
        wire = Wire(room=1000)

        async def speak() -> None:
            for _ in range(3):
                await trio.sleep(15)
                wire.feed(encode_transfer_header(0, 0))

        nursery.start_soon(speak)
        with pytest.raises(MasterSilent):
            await follow(running.store, wire)
        assert trio.current_time() == 65


@pytest.mark.trio
async def test_a_report_goes_out_whole_over_a_socket_that_takes_a_few_bytes(
    tmp_path: Path, autojump_clock: trio.testing.MockClock
) -> None:
    async with running_store(tmp_path) as running:
        await running.store.puts.put_message(message())
        wire = Wire(room=1000, step=3)
        with trio.move_on_after(1):
            await follow(running.store, wire)
        assert b"".join(data for _, data in wire.sent) == encode_report(96)


@pytest.mark.trio
@pytest.mark.parametrize("takes", [0, 1, 7, 8])
async def test_of_a_report_what_does_not_go_at_once_goes_later(
    tmp_path: Path, autojump_clock: trio.testing.MockClock, takes: int
) -> None:
    async with running_store(tmp_path) as running:
        await running.store.puts.put_message(message())
        wire, report = QuickWire(room=8 - takes, takes=takes), encode_report(96)
        with trio.move_on_after(11):
            await follow(running.store, wire)
        parts = [part for part in ((0.0, report[:takes]), (0.0, report[takes:])) if part[1]]
        assert wire.sent == [*parts, (5.0, report), (10.0, report)]


@pytest.mark.trio
async def test_what_was_appended_is_reported_at_once_and_puts_the_heartbeat_off(
    tmp_path: Path, autojump_clock: trio.testing.MockClock
) -> None:
    async with running_store(tmp_path / "master") as master, running_store(tmp_path / "slave") as slave:
        await master.store.puts.put_message(message())
        record = bytes(master.store.commit_log.select(0, 96))
        wire = Wire(room=1000)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(follow, slave.store, wire)
            await trio.sleep(2)
            wire.feed(encode_transfer_header(0, 96) + record)
            await trio.sleep(9)
            nursery.cancel_scope.cancel()
        assert wire.sent == [(0.0, encode_report(0)), (2.0, encode_report(96)), (7.0, encode_report(96))]


@pytest.mark.trio
async def test_a_part_of_a_record_is_neither_appended_nor_reported_and_goes_with_its_connection(
    tmp_path: Path, autojump_clock: trio.testing.MockClock
) -> None:
    """In RocketMQ it is in the slave's log, where the next master has another record, or none."""
    async with running_store(tmp_path / "master") as master, running_store(tmp_path / "slave") as slave:
        for _ in range(2):
            await master.store.puts.put_message(message())
        log, ours = bytes(master.store.commit_log.select(0, 192)), slave.store.commit_log
        for _ in range(2):
            wire = Wire(room=1000)
            async with trio.open_nursery() as nursery:
                nursery.start_soon(follow, slave.store, wire)
                for begin, end in ((0, 3), (3, 50), (50, 95)) if not ours.max_offset else ((96, 191),):
                    wire.feed(encode_transfer_header(begin, end - begin) + log[begin:end])
                    await trio.sleep(0.1)
                    assert ours.max_offset == begin - begin % 96
                assert [data for _, data in wire.sent] == [encode_report(ours.max_offset)]
                nursery.cancel_scope.cancel()
            if not ours.max_offset:
                wire = Wire(room=1000)
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(follow, slave.store, wire)
                    wire.feed(encode_transfer_header(0, 100) + log[:100])
                    await trio.sleep(0.1)
                    assert [data for _, data in wire.sent] == [encode_report(0), encode_report(96)]
                    nursery.cancel_scope.cancel()
            assert ours.max_offset == 96
        assert bytes(ours.select(0, 96)) == log[:96]


@pytest.mark.trio
async def test_a_socket_that_takes_nothing_does_not_hide_a_silent_master(
    tmp_path: Path, autojump_clock: trio.testing.MockClock
) -> None:
    async with running_store(tmp_path) as running:
        with trio.fail_after(100), pytest.raises(ReportStuck, match="takes no report, and nothing was read for 20 s"):
            await follow(running.store, Wire(room=0))
        assert trio.current_time() == 20


@pytest.mark.trio
async def test_a_heartbeat_that_is_stuck_neither_spins_nor_hides_a_silent_master(
    tmp_path: Path, autojump_clock: trio.testing.MockClock
) -> None:
    async with running_store(tmp_path) as running:
        wire = Wire(room=12)
        with trio.fail_after(100), pytest.raises(MasterSilent):
            await follow(running.store, wire)
        assert wire.sent == [(0.0, encode_report(0)), (5.0, encode_report(0)[:4])]
        assert trio.current_time() == 20


@pytest.mark.trio
async def test_under_sync_flush_only_synced_bytes_are_acknowledged(
    tmp_path: Path, autojump_clock: trio.testing.MockClock
) -> None:
    async with (
        running_store(tmp_path / "master") as master,
        running_store(tmp_path / "slave", sync_flush=True) as slave,
    ):
        await master.store.puts.put_message(message())
        record = bytes(master.store.commit_log.select(0, 96))
        wire = Wire(room=1000)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(follow, slave.store, wire)
            slave.disk.sync_gate = trio.Event()
            await trio.sleep(1)
            wire.feed(encode_transfer_header(0, 96) + record)
            await trio.sleep(1)
            assert slave.store.commit_log.max_offset == 96
            assert wire.sent == [(0.0, encode_report(0))]
            slave.disk.sync_gate.set()
            await trio.sleep(1)
            assert wire.sent == [(0.0, encode_report(0)), (2.0, encode_report(96))]
            nursery.cancel_scope.cancel()


@pytest.mark.trio
async def test_what_was_appended_while_a_heartbeat_is_stuck_is_reported_after_it(
    tmp_path: Path, autojump_clock: trio.testing.MockClock
) -> None:
    async with running_store(tmp_path / "master") as master, running_store(tmp_path / "slave") as slave:
        await master.store.puts.put_message(message())
        record = bytes(master.store.commit_log.select(0, 96))
        wire = Wire(room=1000, step=5)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(follow, slave.store, wire)
            await trio.sleep(4)
            wire.gate = trio.Event()
            await trio.sleep(2)
            wire.feed(encode_transfer_header(0, 96) + record)
            await trio.sleep(1)
            wire.gate.set()
            await trio.sleep(1)
            nursery.cancel_scope.cancel()
        reports = encode_report(0), encode_report(0), encode_report(96)
        assert b"".join(data for _, data in wire.sent) == b"".join(reports)
        assert [at for at, _ in wire.sent] == [0.0] * 2 + [7.0] * 4


@pytest.mark.trio
async def test_under_sync_flush_the_first_report_waits_for_the_sync(
    tmp_path: Path, autojump_clock: trio.testing.MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first report asks for bytes, and acknowledges those before them."""
    attempts: list[float] = []

    async def refuse(*_: object) -> None:
        attempts.append(trio.current_time())
        raise ConnectionRefusedError

    monkeypatch.setattr(trio, "open_tcp_stream", refuse)
    async with running_store(tmp_path, sync_flush=True) as running, trio.open_nursery() as nursery:
        client = HAClient(CONFIG, FollowedMaster("127.0.0.1:1"), running.store, NoEntropy(), new_tracer())
        running.disk.sync_gate = trio.Event()
        nursery.start_soon(running.store.puts.put_message, message())
        await trio.testing.wait_all_tasks_blocked()
        nursery.start_soon(client._follow, "127.0.0.1:1", Backoff(0.1, 1.0))
        await trio.sleep(1)
        assert attempts == []
        running.disk.sync_gate.set()
        await trio.sleep(1)
        assert attempts == [1.0]


@pytest.mark.trio
@pytest.mark.parametrize(
    ("frame", "error", "pause_s"),
    [
        (encode_transfer_header(0, 0), MasterSilent, 0.05),
        (encode_transfer_header(0, -1), IllegalFrame, 0.4),
        (encode_transfer_header(0, 0)[:8], MasterSilent, 0.4),
    ],
    ids=["heartbeat", "bad frame", "a part of a frame"],
)
async def test_a_whole_frame_is_a_success_an_idle_master_sends_heartbeats(
    tmp_path: Path,
    autojump_clock: trio.testing.MockClock,
    frame: bytes,
    error: type[Exception],
    pause_s: float,
) -> None:
    """Otherwise a pair without puts would connect later and later."""
    backoff = Backoff(0.1, 1.0)
    for _ in range(3):
        backoff.next_pause_s(0.0)
    async with running_store(tmp_path) as running:
        wire = Wire(room=1000)
        wire.feed(frame)
        with pytest.raises(error):
            await follow(running.store, wire, backoff)
    assert backoff.next_pause_s(0.0) == pause_s


@pytest.mark.trio
async def test_a_receive_that_fills_its_buffer_says_that_more_waits(
    tmp_path: Path, autojump_clock: trio.testing.MockClock
) -> None:
    heartbeat = encode_transfer_header(0, 0)
    full = heartbeat * (CONFIG.read_buffer_bytes // len(heartbeat))
    async with running_store(tmp_path) as running:
        receiving = running.store.receiving
        wire = Wire(room=1000)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(follow, running.store, wire)
            wire.feed(heartbeat)
            await trio.sleep(1)
            assert receiving.busy_until == float("-inf")
            wire.feed((full + heartbeat)[:RECEIVE_BYTES])
            await trio.testing.wait_all_tasks_blocked()
            assert receiving.busy_until == trio.current_time() + BUSY_S
            nursery.cancel_scope.cancel()


@pytest.mark.trio
@pytest.mark.parametrize(
    ("over_tls", "size_bytes", "more_waits"),
    [
        pytest.param(True, RECORD_BYTES, True, id="a full record of TLS"),
        pytest.param(True, RECORD_BYTES // 2, False, id="a smaller record"),
        pytest.param(False, RECORD_BYTES, False, id="as much in plain text"),
    ],
)
async def test_a_full_record_of_tls_says_that_more_waits(
    tmp_path: Path, autojump_clock: trio.testing.MockClock, over_tls: bool, size_bytes: int, more_waits: bool
) -> None:
    """A receive over TLS never fills the buffer: one record is all that it brings."""
    tls = BrokerTls.of(Tls(ha_server=NO_CERTIFICATES, ha_client=NO_CERTIFICATES)) if over_tls else None
    heartbeats = encode_transfer_header(0, 0) * RECORD_BYTES
    async with running_store(tmp_path) as running:
        wire = Wire(room=1000)
        wire.feed(heartbeats[:size_bytes])
        async with trio.open_nursery() as nursery:
            nursery.start_soon(follow, running.store, wire, None, tls)
            await trio.testing.wait_all_tasks_blocked()
            busy_until = trio.current_time() + BUSY_S if more_waits else float("-inf")
            assert running.store.receiving.busy_until == busy_until
            nursery.cancel_scope.cancel()


@pytest.mark.trio
async def test_a_slave_that_has_halted_follows_another_master(
    tmp_path: Path, autojump_clock: trio.testing.MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    followed: list[str] = []

    async def diverge(_: HAClient, address: str, backoff: Backoff) -> Halt:
        followed.append(address)
        return Halt("diverged", "another log", address, 0, 0)

    monkeypatch.setattr(HAClient, "_follow", diverge)
    masters, told = HA_MASTERS.open()
    master = FollowedMaster("127.0.0.1:1", told)
    async with contextlib.AsyncExitStack() as stack:
        running = await stack.enter_async_context(running_store(tmp_path))
        halted = stack.enter_context(master.halts.subscribe())
        nursery = await stack.enter_async_context(trio.open_nursery())
        client = HAClient(CONFIG, master, running.store, NoEntropy(), new_tracer())
        nursery.start_soon(client.run)
        for address in ("127.0.0.1:1", "127.0.0.1:2"):
            await trio.sleep(1000)
            assert followed[-1] == address
            assert master.halted == await halted.receive() == Halt("diverged", "another log", address, 0, 0)
            masters.put("127.0.0.1:2")
        await trio.sleep(1)
        assert followed == ["127.0.0.1:1", "127.0.0.1:2", "127.0.0.1:2"]
        client.request_stop()
    assert master.halted is None


@pytest.mark.trio
@pytest.mark.parametrize(
    ("reason", "common_end", "said"),
    [
        ("diverged", 77, "; `rmq-actors broker-admin truncate` cuts this log where the two part"),
        ("diverged", None, "; where the two part is not known, so nothing cuts this log. The master is asked again"),
        ("offset_gone", None, "; where the two part is not known, so nothing cuts this log. The master is asked again"),
        ("file_size_mismatch", None, ""),
    ],
)
async def test_a_halt_says_what_can_be_done(
    tmp_path: Path,
    autojump_clock: trio.testing.MockClock,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    reason: str,
    common_end: int | None,
    said: str,
) -> None:
    async def halt(_: HAClient, address: str, backoff: Backoff) -> Halt:
        return Halt(reason, "another log", address, 0, common_end)

    monkeypatch.setattr(HAClient, "_follow", halt)
    async with running_store(tmp_path) as running:
        client = HAClient(CONFIG, FollowedMaster("127.0.0.1:1"), running.store, NoEntropy(), new_tracer())
        with trio.move_on_after(1):
            await client.run()
    [line] = caplog.messages
    text = f"master 127.0.0.1:1 is not followed any more: {reason}: another log{said}"
    assert line.startswith(text) if said else line == text
