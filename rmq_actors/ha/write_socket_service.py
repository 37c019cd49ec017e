"""The writing half of a slave's connection (HAConnection.WriteSocketService): log bytes, and heartbeats between."""

from __future__ import annotations

from collections.abc import Callable

import attrs
import trio

from rmq_actors.actors.channels import BoundedChannel, Broadcast
from rmq_actors.protocols.ha_master import Transfer, TransferCursor
from rmq_actors.store.commit_log import CommitLog
from rmq_actors.store.flush_services import FlushOutcome
from rmq_actors.tracing.recorder import Tracer
from rmq_actors.wire.ha_frames import encode_transfer_header

FIRST_REPORT = BoundedChannel[int].declare(
    "ha.first_report",
    1,
    carries="the offset that the slave wants to start from",
    sender="ReadSocketService",
    receiver="WriteSocketService",
)


@attrs.define(eq=False)
class WriteSocketService:
    """Drives `protocols.ha_master.TransferCursor` on one socket.

    `limit` gives the offset up to which may be sent; `growth` wakes when it may have moved.
    """

    name = "WriteSocketService"
    conn_id: int
    _socket: trio.socket.SocketType
    _make_cursor: Callable[[int, float], TransferCursor]
    _commit_log: CommitLog
    _limit: Callable[[], int]
    _growth: Broadcast[int] | Broadcast[FlushOutcome]
    _first_report: trio.MemoryReceiveChannel[int]
    _tracer: Tracer
    #: Log bytes that the socket took, and will take.
    sent_bytes: int = attrs.field(default=0, init=False)
    _sending: trio.Lock = attrs.field(factory=trio.Lock, init=False)
    _cursor: TransferCursor | None = attrs.field(default=None, init=False)

    def check_taken(self, now: float) -> None:
        """Raise `SlaveStuck` when the slave takes nothing of what it is sent."""
        if self._cursor is not None:
            self._cursor.check_taken(now)

    async def run(self) -> None:
        """Send until the connection ends. Raises `OSError`: never returns."""
        with self._growth.subscribe() as growth:
            requested = await self._first_report.receive()
            cursor = self._cursor = self._make_cursor(requested, trio.current_time())
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._keep_alive, cursor)
                await self._transfer(cursor)
                async for _ in growth:
                    await self._transfer(cursor)

    async def _keep_alive(self, cursor: TransferCursor) -> None:
        while True:
            await trio.sleep_until(cursor.wake_at)
            if not await self._transfer(cursor):
                async with self._sending:  # a heartbeat is due for as long as a send is stuck
                    await self._send_due(cursor)

    async def _transfer(self, cursor: TransferCursor) -> bool:
        """Send what is due, unless somebody is at it, who looks again after each send; whether it was done here."""
        try:
            self._sending.acquire_nowait()
        except trio.WouldBlock:
            return False
        try:
            await self._send_due(cursor)
        finally:
            self._sending.release()
        return True

    async def _send_due(self, cursor: TransferCursor) -> None:
        while frames := cursor.plan(self._limit(), trio.current_time(), min_offset=self._commit_log.min_offset):
            await self._send(frames, cursor)
            cursor.sent(trio.current_time())

    async def _send(self, frames: list[Transfer], cursor: TransferCursor) -> None:
        buffers: list[bytes | memoryview] = []
        for frame in frames:
            buffers.append(encode_transfer_header(frame.offset, frame.size))
            if frame.size:
                buffers.append(self._commit_log.select(frame.offset, frame.size))
        first, size = frames[0].offset, sum(frame.size for frame in frames)
        if size:
            self._tracer.emit("ha.transfer", self.name, conn_id=self.conn_id, conn_dir=1, offset=first, size=size)
        else:
            self._tracer.emit("ha.heartbeat", self.name, conn_id=self.conn_id, conn_dir=1, offset=first)
        self.sent_bytes += size
        while buffers:
            sent = await self._socket.sendmsg(buffers)
            buffers = _after(buffers, sent)
            if buffers:
                cursor.taken(trio.current_time())


def _after(buffers: list[bytes | memoryview], sent: int) -> list[bytes | memoryview]:
    """What remains of `buffers` when their first `sent` bytes are gone."""
    for number, buffer in enumerate(buffers):
        if sent < len(buffer):
            return [memoryview(buffer)[sent:], *buffers[number + 1 :]]
        sent -= len(buffer)
    return []
