"""The reading half of a slave's connection (HAConnection.ReadSocketService): its reports, and its silence."""

from __future__ import annotations

from collections.abc import Callable
from typing import NoReturn

import attrs
import trio

from rmq_actors.ha.connection_end import PeerClosed
from rmq_actors.ports.receive import Receive
from rmq_actors.protocols.ha_master import SlaveReports
from rmq_actors.store.log.commit_log import CommitLog
from rmq_actors.tracing.events.ha import HaReport
from rmq_actors.tracing.recorder import Tracer

_RECEIVE_BYTES = 4096


@attrs.define(eq=False, repr=False)
class ReadSocketService:
    """Drives `protocols.ha_master.SlaveReports` on one socket.

    `reported` takes each new offset. `check_taken` raises when the slave, which may be heard all the time, takes
    nothing of what it is sent.
    """

    name = "ReadSocketService"
    conn_id: int
    _socket: trio.socket.SocketType
    _reports: SlaveReports
    _commit_log: CommitLog
    _reported: Callable[[int], None]
    _first_report: trio.MemorySendChannel[int]
    _check_taken: Callable[[float], None]
    _tracer: Tracer
    _receive: Receive
    #: The newest report.
    reported: int | None = attrs.field(default=None, init=False)

    @property
    def last_read_s(self) -> float:
        """When something was heard from the slave last."""
        return self._reports.last_read

    async def run(self) -> None:
        """Read until the connection ends. Raises `SlaveRefused`, `PeerClosed`, `OSError`: never returns."""
        while True:
            # Most deadlines are pushed on long before they pass: one scope a deadline that passes, not one a report.
            with trio.CancelScope(deadline=self._reports.silent_at):
                await self._read()
            self._reports.check_silence(trio.current_time())

    async def _read(self) -> NoReturn:
        """Hand over what is new, in the step that has received it."""
        buffer = memoryview(bytearray(_RECEIVE_BYTES))
        while True:
            size = await self._receive(self._socket, buffer)
            if not size:
                raise PeerClosed("the slave closed the connection")
            now = trio.current_time()
            self._check_taken(now)
            offset = self._reports.receive(
                buffer[:size],
                now,
                min_offset=self._commit_log.min_offset,
                max_offset=self._commit_log.max_offset,
            )
            if offset is None:
                continue
            self._tracer.emit(HaReport(conn_id=self.conn_id, offset=offset))
            if self.reported is None:
                self._first_report.send_nowait(offset)  # there is room for this one, and no other comes
            self.reported = offset
            self._reported(offset)
