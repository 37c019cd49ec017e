"""The writing half of a slave's connection (HAConnection.WriteSocketService): log bytes, and heartbeats between."""

from __future__ import annotations

import functools
from collections.abc import Callable

import attrs
import trio

from rmq_actors.actors.services.channels import BoundedChannel
from rmq_actors.ha.sole_sender import SoleSender
from rmq_actors.ports.try_send import TrySend
from rmq_actors.protocols.ha_master import SlavePace, Transfer, TransferCursor
from rmq_actors.store.log.commit_log import CommitLog
from rmq_actors.store.log.flush_modes import VisibleEnd
from rmq_actors.tracing.events.ha import HaHeartbeat, HaTransfer
from rmq_actors.tracing.recorder import Tracer
from rmq_actors.wire.ha_frames import encode_transfer_header

FIRST_REPORT = BoundedChannel[int].declare(
    "ha.first_report",
    1,
    carries="the offset that the slave wants to start from",
    sender="ReadSocketService",
    receiver="WriteSocketService",
)


@attrs.define(eq=False, repr=False)
class WriteSocketService:
    """Drives `protocols.ha_master.TransferCursor` on one socket: it sends the log up to its visible end."""

    name = "WriteSocketService"
    conn_id: int
    _socket: trio.socket.SocketType
    _make_cursor: Callable[[int, float], TransferCursor]
    _commit_log: CommitLog
    _visible_end: VisibleEnd
    _first_report: trio.MemoryReceiveChannel[int]
    _tracer: Tracer
    #: Lets the appending task, and heartbeats, send without a checkpoint; None: nothing is sent so.
    _try_send: TrySend | None = None
    #: Log bytes that the socket took, and will take.
    sent_bytes: int = attrs.field(default=0, init=False)
    _cursor: TransferCursor | None = attrs.field(default=None, init=False)
    #: Of what the cursor has planned: what the socket has not taken.
    _rest: list[bytes | memoryview] = attrs.field(factory=list, init=False)
    #: Whether growth has woken the task that sends, which has not looked yet.
    _is_woken: bool = attrs.field(default=False, init=False)
    _pace: SlavePace = attrs.field(factory=SlavePace, init=False)

    @property
    def next_offset(self) -> int | None:
        """Where the log goes on for this slave; None before its first report."""
        return None if self._cursor is None else self._cursor.next_offset

    def check_taken(self, now: float) -> None:
        """Raise `SlaveStuck` when the slave takes nothing of what it is sent."""
        if self._cursor is not None:
            self._cursor.check_taken(now)

    def reported(self, offset: int) -> None:
        """The slave has everything before `offset`."""
        self._pace.reported(offset)

    async def run(self) -> None:
        """Send until the connection ends. Raises `OSError`: never returns."""
        with self._visible_end.growth.subscribe(self._take_growth) as growth:
            requested = await self._first_report.receive()
            cursor = self._cursor = self._make_cursor(requested, trio.current_time())
            sender = SoleSender(functools.partial(self._send_due, cursor), lambda: cursor.wake_at)
            async with trio.open_nursery() as nursery:
                nursery.start_soon(sender.keep_alive)
                await sender.send()
                async for _ in growth:
                    self._is_woken = False
                    await sender.send()

    def _take_growth(self, _: object) -> bool:
        """Whether growth needs nobody to be woken for it: it is sent, or somebody is awake who will send it."""
        self._pace.grew()
        if not self._is_woken and not self._send_at_once():
            self._is_woken = True
            return False
        return True

    def _send_at_once(self) -> bool:
        """Send what is new, if that takes no waiting; return whether the socket has taken all of it."""
        cursor = self._cursor
        if self._try_send is None or cursor is None or self._rest:
            return False
        now, log, end = trio.current_time(), self._commit_log, self._visible_end.offset()
        frames = cursor.plan_at_once(end, self._pace, now, min_offset=log.min_offset)
        if not frames:
            return False
        # A failure is the connection's, not the put's: the task that is woken meets it, too.
        try:
            self._rest = self._buffers(frames)
        except OSError:
            cursor.take_back(frames)
            return False
        try:
            sent = self._try_send(self._socket, self._rest)
        except OSError:
            return False
        self._rest = _after(self._rest, sent)
        if self._rest:
            return False
        cursor.sent(now)
        return cursor.next_offset == end  # small frames are too many for one group

    async def _send_due(self, cursor: TransferCursor) -> None:
        if self._rest:
            await self._send_rest(cursor)
        log, end = self._commit_log, self._visible_end
        while frames := cursor.plan(end.offset(), trio.current_time(), min_offset=log.min_offset):
            self._rest = self._buffers(frames)
            if self._try_send is not None and not frames[0].size:  # a heartbeat hardly ever has to wait
                self._rest = _after(self._rest, self._try_send(self._socket, self._rest))
            await self._send_rest(cursor)

    async def _send_rest(self, cursor: TransferCursor) -> None:
        while self._rest:
            sent = await self._socket.sendmsg(self._rest)
            self._rest = _after(self._rest, sent)
            if self._rest:
                cursor.taken(trio.current_time())
        cursor.sent(trio.current_time())

    def _buffers(self, frames: list[Transfer]) -> list[bytes | memoryview]:
        """The bytes of frames that are sent now."""
        buffers: list[bytes | memoryview] = []
        for frame in frames:
            buffers.append(encode_transfer_header(frame.offset, frame.size))
            if frame.size:
                buffers.append(self._commit_log.select(frame.offset, frame.size))
        first, size = frames[0].offset, sum(frame.size for frame in frames)
        if size:
            self._tracer.emit(HaTransfer(conn_id=self.conn_id, offset=first, size=size))
        else:
            self._tracer.emit(HaHeartbeat(conn_id=self.conn_id, offset=first))
        self.sent_bytes += size
        return buffers


def _after(buffers: list[bytes | memoryview], sent: int) -> list[bytes | memoryview]:
    """What remains of `buffers` when their first `sent` bytes are gone."""
    for number, buffer in enumerate(buffers):
        if sent < len(buffer):
            return [memoryview(buffer)[sent:], *buffers[number + 1 :]]
        sent -= len(buffer)
    return []
