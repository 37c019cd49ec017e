"""The reading half of a slave's connection (HAConnection.ReadSocketService): its reports, and its silence."""

from __future__ import annotations

import attrs
import trio

from rmq_actors.ha.group_transfer_service import SlaveEvent
from rmq_actors.protocols.ha_master import SlaveReports
from rmq_actors.store.commit_log import CommitLog
from rmq_actors.tracing.recorder import Tracer

_RECEIVE_BYTES = 4096


class PeerClosed(ConnectionError):
    """The other side ended the connection in order."""


@attrs.define(eq=False)
class ReadSocketService:
    """Drives `protocols.ha_master.SlaveReports` on one socket."""

    name = "ReadSocketService"
    conn_id: int
    _socket: trio.socket.SocketType
    _reports: SlaveReports
    _commit_log: CommitLog
    _events: trio.MemorySendChannel[SlaveEvent]
    _first_report: trio.MemorySendChannel[int]
    _tracer: Tracer

    async def run(self) -> None:
        """Read until the connection ends. Raises `SlaveRefused`, `PeerClosed`, `OSError`: never returns."""
        started = False
        while True:
            offset = await self._next_report()
            self._tracer.emit("ha.report", self.name, conn_id=self.conn_id, conn_dir=0, offset=offset)
            await self._events.send(SlaveEvent(self.conn_id, "reported", offset))
            if not started:
                started = True
                await self._first_report.send(offset)

    async def _next_report(self) -> int:
        while True:
            data = b""
            with trio.move_on_at(self._reports.silent_at) as silence:
                data = await self._socket.recv(_RECEIVE_BYTES)
            if silence.cancelled_caught:
                self._reports.check_silence(trio.current_time())
                continue
            if not data:
                raise PeerClosed("the slave closed the connection")
            offset = self._reports.receive(
                data,
                trio.current_time(),
                min_offset=self._commit_log.min_offset,
                max_offset=self._commit_log.max_offset,
            )
            if offset is not None:
                return offset
