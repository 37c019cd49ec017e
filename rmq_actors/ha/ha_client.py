"""The slave's side of high availability (HAClient): follows a master, for as long as it runs."""

from __future__ import annotations

import logging
from collections.abc import Callable

import attrs
import trio

from rmq_actors.actors.restart import first_leaf
from rmq_actors.ha.config import HaConfig
from rmq_actors.ha.ha_connection import close_reason
from rmq_actors.ha.read_socket_service import PeerClosed
from rmq_actors.ports.entropy import Entropy
from rmq_actors.protocols.backoff import Backoff
from rmq_actors.protocols.ha_slave import HaSlave, MasterRefused
from rmq_actors.store.commit_log import AppendRefused
from rmq_actors.store.config import FlushDiskType
from rmq_actors.store.message_store import MessageStore
from rmq_actors.tracing.recorder import Tracer
from rmq_actors.wire.address import parse_address
from rmq_actors.wire.ha_frames import REPORT

_log = logging.getLogger(__name__)

#: Makes the machine of one connection from the log's end and the time.
MakeSlave = Callable[[int, float, HaConfig], HaSlave]


class ConnectTimeout(ConnectionError):
    """The master did not answer within connect_timeout_ms."""

    reason = "connect_timeout"


def make_ha_slave(max_offset: int, now: float, config: HaConfig) -> HaSlave:
    """A fresh machine for a fresh connection."""
    return HaSlave(
        max_offset, now, config.heartbeat_interval_s, config.housekeeping_interval_s, config.read_buffer_bytes
    )


@attrs.define(eq=False)
class HAClient:
    """Connects, follows, and on any end of the connection waits a little and connects again."""

    name = "HAClient"
    config: HaConfig
    master_address: str
    _store: MessageStore
    _entropy: Entropy
    _tracer: Tracer
    _make_slave: MakeSlave = make_ha_slave
    _scope: trio.CancelScope = attrs.field(factory=trio.CancelScope, init=False)

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Follow the master until asked to stop."""
        config = self.config
        backoff = Backoff(config.reconnect_pause_min_ms / 1000, config.reconnect_pause_max_ms / 1000)
        task_status.started()
        with self._scope:
            while True:
                await self._follow(backoff)
                await trio.sleep(backoff.next_pause_s(self._entropy.random()))

    def request_stop(self) -> None:
        """Close the connection and end."""
        self._scope.cancel()

    async def _follow(self, backoff: Backoff) -> None:
        try:
            await self._one_connection(backoff)
        except* (MasterRefused, AppendRefused, OSError) as group:
            cause = first_leaf(group)
            self._tracer.emit("ha.client.close", self.name, status=close_reason(cause))
            _log.warning("master %s: %s: %s", self.master_address, close_reason(cause), cause)

    async def _one_connection(self, backoff: Backoff) -> None:
        host, port = parse_address(self.master_address)
        await self._until_flushed()
        with trio.move_on_after(self.config.connect_timeout_ms / 1000) as connecting:
            stream = await trio.open_tcp_stream(host, port)
        if connecting.cancelled_caught:
            raise ConnectTimeout(f"no answer within {self.config.connect_timeout_ms} ms")
        self._tracer.emit("ha.client.connect", self.name, attributes={"network.peer.address": self.master_address})
        with stream.socket:
            await self._follow_master(stream.socket, backoff)

    async def _follow_master(self, socket: trio.socket.SocketType, backoff: Backoff) -> None:
        slave = self._make_slave(self._store.commit_log.max_offset, trio.current_time(), self.config)
        reporter = Reporter(slave, socket, self._reportable, self._tracer)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(reporter.keep_alive)
            nursery.start_soon(self._watch, slave)
            if self._acks_synced_only:
                nursery.start_soon(self._report_flushed, reporter)
            await reporter.report()
            await self._read(socket, slave, reporter, backoff)

    async def _read(self, socket: trio.socket.SocketType, slave: HaSlave, reporter: Reporter, backoff: Backoff) -> None:
        while True:
            size = await socket.recv_into(slave.free())
            if not size:
                raise PeerClosed("the master closed the connection")
            for append in slave.received(size, trio.current_time()):
                self._store.append_to_commit_log(append.offset, append.data)
                backoff.succeeded()
            await reporter.report()

    async def _watch(self, slave: HaSlave) -> None:
        while True:
            await trio.sleep_until(slave.silent_at)
            slave.check_silence(trio.current_time())

    async def _report_flushed(self, reporter: Reporter) -> None:
        with self._store.flush_outcomes.subscribe() as outcomes:
            await reporter.report()
            async for _ in outcomes:
                await reporter.report()

    def _reportable(self) -> int:
        log = self._store.commit_log
        return log.flushed_where if self._acks_synced_only else log.max_offset

    @property
    def _acks_synced_only(self) -> bool:
        return self._store.config.flush_disk_type is FlushDiskType.SYNC_FLUSH

    async def _until_flushed(self) -> None:
        """The first report asks for bytes and acknowledges them: under SYNC_FLUSH the log must be synced before it."""
        log = self._store.commit_log
        with self._store.flush_outcomes.subscribe() as outcomes:
            while self._acks_synced_only and log.flushed_where < log.max_offset:
                self._store.check_follows()  # a failed sync is the last outcome: nothing would end the wait
                await outcomes.receive()


@attrs.define(eq=False)
class Reporter:
    """Sends the reports of one connection, one at a time, whoever asks: the reader, the flush, the heartbeat.

    `offset` gives what may be reported.
    """

    _slave: HaSlave
    _socket: trio.socket.SocketType
    _offset: Callable[[], int]
    _tracer: Tracer
    _sending: trio.Lock = attrs.field(factory=trio.Lock, init=False)

    async def report(self) -> bool:
        """Send what is due, unless somebody is at it, who looks again after each send; whether it was done here."""
        try:
            self._sending.acquire_nowait()
        except trio.WouldBlock:
            return False
        try:
            await self._send_due()
        finally:
            self._sending.release()
        return True

    async def keep_alive(self) -> None:
        """Report when nothing was for a heartbeat's interval. Never returns."""
        while True:
            await trio.sleep_until(self._slave.wake_at)
            if not await self.report():
                async with self._sending:  # a heartbeat is due for as long as a send is stuck
                    await self._send_due()

    async def _send_due(self) -> None:
        while report := self._slave.report(self._offset(), trio.current_time()):
            # What is sent, not what should be: a machine that lies must show in the trace.
            (reported,) = REPORT.unpack(report)
            self._tracer.emit("ha.client.report", HAClient.name, conn_dir=0, offset=reported)
            while report:
                report = report[await self._socket.send(report) :]
