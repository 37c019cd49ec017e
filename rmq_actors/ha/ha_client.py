"""The slave's side of high availability (HAClient): follows a master, for as long as it runs."""

from __future__ import annotations

import logging
from collections.abc import Callable

import attrs
import trio

from rmq_actors.actors.service import WakeUp
from rmq_actors.actors.supervisor import first_leaf
from rmq_actors.ha.config import HaConfig, parse_address
from rmq_actors.ha.ha_connection import close_reason
from rmq_actors.ha.read_socket_service import PeerClosed
from rmq_actors.ports.entropy import Entropy
from rmq_actors.protocols.backoff import Backoff
from rmq_actors.protocols.ha_slave import HaSlave, MasterRefused
from rmq_actors.store.commit_log import AppendRefused
from rmq_actors.store.config import FlushDiskType
from rmq_actors.store.message_store import MessageStore
from rmq_actors.tracing.recorder import Tracer
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
        slave = self._make_slave(self._store.commit_log.max_offset, trio.current_time(), self.config)
        wake = WakeUp()
        with stream.socket:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._report, stream.socket, slave, wake)
                if self._acks_synced_only:
                    nursery.start_soon(self._wake_on_flush, wake)
                await self._read(stream.socket, slave, wake, backoff)

    async def _read(self, socket: trio.socket.SocketType, slave: HaSlave, wake: WakeUp, backoff: Backoff) -> None:
        while True:
            size = await socket.recv_into(slave.free())
            if not size:
                raise PeerClosed("the master closed the connection")
            for append in slave.received(size, trio.current_time()):
                self._store.append_to_commit_log(append.offset, append.data)
                backoff.succeeded()
            wake.wakeup()

    async def _report(self, socket: trio.socket.SocketType, slave: HaSlave, wake: WakeUp) -> None:
        log = self._store.commit_log
        while True:
            offset = log.flushed_where if self._acks_synced_only else log.max_offset
            report = slave.report(offset, trio.current_time())
            if report is not None:
                # What is sent, not what should be: a machine that lies must show in the trace.
                (reported,) = REPORT.unpack(report)
                self._tracer.emit("ha.client.report", self.name, conn_dir=0, offset=reported)
                await _send_unless_silent(socket, report, slave)
            await wake.wait_for_running(min(slave.wake_at, slave.silent_at))
            slave.check_silence(trio.current_time())

    @property
    def _acks_synced_only(self) -> bool:
        return self._store.config.flush_disk_type is FlushDiskType.SYNC_FLUSH

    async def _wake_on_flush(self, wake: WakeUp) -> None:
        with self._store.flush_outcomes.subscribe() as outcomes:
            wake.wakeup()
            async for _ in outcomes:
                wake.wakeup()

    async def _until_flushed(self) -> None:
        """The first report asks for bytes and acknowledges them: under SYNC_FLUSH the log must be synced before it."""
        log = self._store.commit_log
        with self._store.flush_outcomes.subscribe() as outcomes:
            while self._acks_synced_only and log.flushed_where < log.max_offset:
                self._store.check_follows()  # a failed sync is the last outcome: nothing would end the wait
                await outcomes.receive()


async def _send_unless_silent(socket: trio.socket.SocketType, data: bytes, slave: HaSlave) -> None:
    """Send all of `data`; raises `MasterSilent` where a master that neither reads nor speaks would hold it for ever."""
    while data:
        with trio.move_on_at(slave.silent_at):
            data = data[await socket.send(data) :]
        slave.check_silence(trio.current_time())
