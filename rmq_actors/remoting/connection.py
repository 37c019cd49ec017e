"""One remoting connection, the same on both sides: frames in, frames out, and which task waits for which answer.

One receive buffer is one unit of work: all its requests are processed, then all answers go out in one send. For answers
that come later, and requests of this side, a task is started that sends, unless one is sending already. So an idle
connection is one task, and a request costs no task, no event and no time-out; from the first request of this side on,
one more task watches the deadlines of all of these.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable, Sequence
from typing import Protocol

import attrs
import trio

from rmq_actors.remoting.awaited_answers import AwaitedAnswers
from rmq_actors.remoting.config import ConnectionLimits
from rmq_actors.remoting.hooks import RpcHook
from rmq_actors.remoting.row_group import ROWS_MAX, RowGroup
from rmq_actors.remoting.transport import Transport
from rmq_actors.wire.frame_reader import FrameReader
from rmq_actors.wire.remoting_command import (
    ONEWAY_FLAG,
    RESPONSE_FLAG,
    RemotingCommand,
    RemotingCommandError,
    encode_command,
)
from rmq_actors.wire.send_rows import SendRow, decode_row_or_command

_log = logging.getLogger(__name__)

#: How many bytes go to the socket at a time, unless one frame is longer.
_SEND_BYTES = 256 * 1024
_BAD_FRAME = "bad_frame"
#: How long an orderly end waits until the peer has taken the answers that it is owed.
_LAST_SENDS_S = 1.0


class RemotingError(Exception):
    """A request could not be made, or was not answered (RemotingException)."""


class RemotingConnectError(RemotingError):
    """There is no connection to the peer; the message says to which, and why. `timed_out`: the peer was silent."""

    def __init__(self, message: str, *, timed_out: bool = False) -> None:
        super().__init__(message)
        self.timed_out = timed_out


class RemotingSendRequestError(RemotingError):
    """The connection ended before the answer came."""


class RemotingBadFrameError(RemotingSendRequestError):
    """It ended because something came that is not a frame, or too long a frame."""


class RemotingTimeoutError(RemotingError):
    """No answer came in time."""


class RemotingTooMuchRequestError(RemotingError):
    """Too many requests wait for their answers on this connection, or too many bytes to be sent."""


class ConnectionListener(Protocol):
    """Hears of connections that begin and end (ChannelEventListener), at once and in order."""

    def on_connected(self, connection: RemotingConnection) -> None:
        """A peer is connected; nothing was read from it yet."""
        ...

    def on_closed(self, connection: RemotingConnection, reason: str) -> None:
        """It ended: closed_by_peer, closed_within_a_frame, idle, bad_frame, slow_reader, stopped, an error's name."""
        ...


@attrs.define(eq=False, repr=False)
class RemotingConnection:
    """One connection. The server or client that makes it must `run` it.

    Longer than 300 lines, and with more than 20 fields, because the reader, the senders and the end of one socket
    share what they know of it: limits, requests that wait for answers, figures.
    """

    conn_id: int
    remote_address: str
    _transport: Transport
    _limits: ConnectionLimits
    #: Has a request processed. Raises nothing.
    _process: Callable[[RemotingRequest], None]
    #: What made it, for the log: "RemotingServer" or "RemotingClient".
    _owner: str
    #: Called around requests that arrive.
    hooks: Sequence[RpcHook] = ()
    #: Called around requests of this side.
    request_hooks: Sequence[RpcHook] = ()
    #: Where plain messages that arrive are served, many at a time; None: `_process` does it, one by one.
    row_group: RowGroup[RemotingConnection] | None = attrs.field(default=None, init=False)
    #: Told how large the receive buffer is, when that is much: see `FrameReader`.
    holds_large: Callable[[RemotingConnection, int], None] | None = attrs.field(default=None, kw_only=True)
    close_reason: str | None = attrs.field(default=None, init=False)
    opened_s: float = attrs.field(factory=trio.current_time, init=False)
    frames_received: int = attrs.field(default=0, init=False)
    _last_active_s: float = attrs.field(factory=trio.current_time, init=False)
    _reader: FrameReader = attrs.field(init=False)
    _pending: AwaitedAnswers = attrs.field(init=False)
    _outgoing: list[bytes] = attrs.field(factory=list, init=False)
    _outgoing_bytes: int = attrs.field(default=0, init=False)
    #: The bytes of answers among the frames that wait, and whether requests of this side are among them, too.
    _owed_bytes: int = attrs.field(default=0, init=False)
    _carries_requests: bool = attrs.field(default=False, init=False)
    #: Whether the reader is within a batch, at whose end it sends.
    _in_batch: bool = attrs.field(default=False, init=False)
    #: Whether answers are among the frames that wait which are to be sent without a checkpoint.
    _sends_at_once: bool = attrs.field(default=False, init=False)
    #: Whether a task is sending; it goes on until nothing is left.
    _sending: bool = attrs.field(default=False, init=False)
    #: Set when no task sends any more, and when a reader that waits for that must go on.
    _drained: trio.Event | None = attrs.field(default=None, init=False)
    _reading: trio.CancelScope = attrs.field(factory=trio.CancelScope, init=False)
    _nursery: trio.Nursery | None = attrs.field(default=None, init=False)

    def __attrs_post_init__(self) -> None:
        tell = self.holds_large
        holds_large = None if tell is None else functools.partial(tell, self)
        self._reader = FrameReader(self._limits.frame_max_length_bytes, holds_large)
        self._pending = AwaitedAnswers.at_most(self._limits.in_flight_requests_max)

    @property
    def outgoing_bytes(self) -> int:
        """Bytes of frames that wait to be sent."""
        return self._outgoing_bytes

    @property
    def is_congested(self) -> bool:
        """Whether the peer takes its answers so slowly that nothing more is read from it."""
        return self._outgoing_bytes > self._limits.write_buffer_high_water_mark_bytes

    @property
    def idle_at_s(self) -> float:
        """When the connection will have been idle for too long, if no byte moves until then."""
        return self._last_active_s + self._limits.idle_s

    async def run(self, listener: ConnectionListener) -> None:
        """Serve the connection until it ends in any way. Then all tasks that wait for an answer get an error."""
        try:
            async with trio.open_nursery() as nursery:
                self._nursery = nursery
                self._pending.open(nursery)
                try:
                    listener.on_connected(self)
                    await self._read_until_end()
                    if self.close_reason == "stopped":
                        await self._send_last()
                finally:
                    # Before the nursery ends: answers still come, and it takes no new task any more.
                    self._pending.close()
                    self._nursery = None
                    self._note_end("cancelled")
                nursery.cancel_scope.cancel()
        finally:
            self._transport.close()
            self._pending.end_all()
            assert self.close_reason is not None
            listener.on_closed(self, self.close_reason)

    def close(self, reason: str) -> None:
        """End the connection; unsent frames are lost. Of several reasons the first one counts."""
        self._note_end(reason)
        if self._nursery is not None:
            self._nursery.cancel_scope.cancel()

    def stop(self) -> None:
        """End the connection in order: read nothing more, and send what waits, within a short time."""
        self._note_end("stopped")
        self._reading.cancel()

    def send(self, command: RemotingCommand) -> None:
        """Send a frame after those that wait already; do nothing once the connection has ended.

        An answer leaves as those of `send_answers`. A peer for which more than `write_buffer_max_bytes` wait is cut
        off. Raises `ValueError` for a frame that is too long.
        """
        if not self._takes_frames():
            return
        frame = encode_command(command)
        if command.flag & RESPONSE_FLAG:
            self.send_answers(frame)
            return
        self._carries_requests = True
        self._wake_drained()
        self._enqueue(frame, owed_bytes=0)

    def send_answers(self, frames: bytes) -> None:
        """Send encoded answers under the same conditions: at once, as far as the socket takes them."""
        if not self._takes_frames():
            return
        self._sends_at_once = True
        if self._in_batch or self._sending or self._outgoing:
            self._enqueue(frames, owed_bytes=len(frames))
            return
        self._outgoing.append(frames)
        self._outgoing_bytes += len(frames)
        self._owed_bytes += len(frames)
        try:
            self._send_at_once()
        except OSError as error:
            _log.info("%s: %s: %s", self._owner, self.remote_address, error)
            self.close(type(error).__name__)
        if self._outgoing and self._nursery is not None:
            self._start_sending(self._nursery)

    def _send_at_once(self) -> None:
        """Send what the socket takes, without a checkpoint. No task may be sending. Raises `OSError`."""
        self._sends_at_once = False
        data = self._next_piece()
        sent = self._transport.try_send(data)
        self._outgoing_bytes -= sent
        self._last_active_s = trio.current_time()
        if sent < len(data):
            self._outgoing.insert(0, data[sent:])
        elif not self._outgoing:
            self._owed_bytes, self._carries_requests = 0, False

    def _takes_frames(self) -> bool:
        if self._nursery is None:
            return False
        if self._outgoing_bytes <= self._limits.write_buffer_max_bytes:
            return True
        if self.close_reason is None:
            _log.warning("%s: %s reads too slowly: cut off", self._owner, self.remote_address)
        self.close("slow_reader")
        return False

    def _enqueue(self, frames: bytes, *, owed_bytes: int) -> None:
        self._outgoing.append(frames)
        self._outgoing_bytes += len(frames)
        self._owed_bytes += owed_bytes
        if not self._sending and not self._in_batch and self._nursery is not None:
            self._start_sending(self._nursery)

    async def invoke(
        self, command: RemotingCommand, timeout_ms: int, *, deadline_s: float | None = None
    ) -> RemotingCommand:
        """Send a request and wait for its answer, whatever its code. Sets the request's opaque.

        `deadline_s`: when the time-out ends, if a part of it has passed already.

        Raises `RemotingTimeoutError`, `RemotingSendRequestError`, `RemotingTooMuchRequestError`, `ValueError` for a
        frame that is too long, and what hooks raise.
        """
        awaited = self._pending.begin(trio.current_time() + timeout_ms / 1000 if deadline_s is None else deadline_s)
        if awaited is None:
            raise RemotingTooMuchRequestError(
                f"{self.remote_address}: {len(self._pending)} requests are waiting for answers already"
            )
        try:
            command.opaque = awaited.opaque
            command.flag &= ~(RESPONSE_FLAG | ONEWAY_FLAG)
            self._send_request(command)
            response = await awaited.answer()
        finally:
            self._pending.forget(awaited)
        if response is None:
            if awaited.is_lost:
                self._check_open(command)
            raise RemotingTimeoutError(
                f"{self.remote_address}: no answer to request {command.code} within {timeout_ms} ms"
            )
        for hook in self.request_hooks:
            hook.after_response(self.remote_address, command, response)
        return response

    def invoke_oneway(self, command: RemotingCommand) -> None:
        """Send a one-way request.

        Raises `RemotingSendRequestError` on a connection that ended, `RemotingTooMuchRequestError`, `ValueError` for a
        frame that is too long, and what a hook raises.
        """
        command.opaque = self._pending.next_opaque()
        command.flag = command.flag & ~RESPONSE_FLAG | ONEWAY_FLAG
        self._send_request(command)

    def _send_request(self, command: RemotingCommand) -> None:
        for hook in self.request_hooks:
            hook.before_request(self.remote_address, command)
        self._check_open(command)
        if self._outgoing_bytes > self._limits.write_buffer_max_bytes:
            raise RemotingTooMuchRequestError(
                f"{self.remote_address}: {self._outgoing_bytes} bytes are waiting to be sent already"
            )
        self.send(command)

    def _check_open(self, command: RemotingCommand) -> None:
        if self._nursery is None or self.close_reason is not None:
            failure = RemotingBadFrameError if self.close_reason == _BAD_FRAME else RemotingSendRequestError
            raise failure(
                f"{self.remote_address}: request {command.code} has no answer, the connection ended: "
                f"{self.close_reason or 'it is not open yet'}"
            )

    def _note_end(self, reason: str) -> None:
        if self.close_reason is None:
            self.close_reason = reason

    async def _read_until_end(self) -> None:
        try:
            with self._reading:
                self._note_end(await (self._read() if self.row_group is None else self._read_rows(self.row_group)))
        except OSError as error:
            _log.info("%s: %s: %s", self._owner, self.remote_address, error)
            self._note_end(type(error).__name__)
        except RemotingCommandError as error:
            _log.warning("%s: %s sent something that is not a frame: %s", self._owner, self.remote_address, error)
            self._note_end(_BAD_FRAME)
        finally:
            # The objects of a connection know each other: the collector may come much later.
            self._reader.close()

    async def _read(self) -> str:
        reader = self._reader
        while await self._receive():
            while commands := reader.commands():
                self.frames_received += len(commands)
                await self._take_batch(commands)
                if not reader.pending_bytes:
                    break
        return "closed_within_a_frame" if reader.pending_bytes else "closed_by_peer"

    async def _read_rows(self, group: RowGroup[RemotingConnection]) -> str:
        """`_read`, with plain messages as rows."""
        reader = self._reader
        try:
            while await self._receive():
                group.finish(self)
                while frames := reader.copied_frames(decode_row_or_command):
                    self.frames_received += len(frames)
                    rows = [frame for frame in frames if isinstance(frame, SendRow)]
                    if len(rows) < len(frames) or len(rows) > ROWS_MAX or self._outgoing_bytes:
                        await self._take_batch(frames)
                    else:
                        await group.add(self, rows)
                    if not reader.pending_bytes:
                        break
            return "closed_within_a_frame" if reader.pending_bytes else "closed_by_peer"
        finally:
            group.finish(self)

    async def _receive(self) -> bool:
        """Receive something; whether there was anything before the end."""
        with self._reader.free_space() as space:
            count = await self._transport.receive_into(space)
        if count:
            self._reader.received(count)
            self._last_active_s = trio.current_time()
        return count > 0

    async def _take_batch(self, frames: Sequence[RemotingCommand | SendRow]) -> None:
        """Handle what has arrived. Answers wait for the end of the batch, unless they become too many."""
        self._in_batch = True
        arrived_s, rows = self._last_active_s, list[SendRow]()
        owed_max_bytes = self._limits.write_buffer_high_water_mark_bytes
        try:
            for frame in frames:
                if isinstance(frame, SendRow):
                    rows.append(frame)
                    if len(rows) < ROWS_MAX:
                        continue
                if rows:
                    self._take_rows(rows)
                    rows = []
                if isinstance(frame, RemotingCommand):
                    self._take(frame, arrived_s)
                if self._owed_bytes > owed_max_bytes:
                    await self._relieve()
            if rows:
                self._take_rows(rows)
        finally:
            self._in_batch = False
        if self._outgoing and not self._sending:
            if self._sends_at_once:
                self._send_at_once()
            if self._outgoing:
                await self._send_as_reader()

    def _take(self, command: RemotingCommand, arrived_s: float) -> None:
        if command.unknown_fields:
            self._name_unknown_fields(command)
        if command.flag & RESPONSE_FLAG:
            self._take_response(command)
        else:
            self._process(RemotingRequest(self, command, arrived_s))

    def _take_rows(self, rows: Sequence[SendRow]) -> None:
        assert self.row_group is not None
        self.row_group.serve_at_once(self, rows)

    def take_row_as_request(self, row: SendRow) -> None:
        """Have a row processed as the request that it was."""
        self._take(row.command(), self._last_active_s)

    def _name_unknown_fields(self, command: RemotingCommand) -> None:
        _log.info("%s: %s sends unknown header fields %s", self._owner, self.remote_address, command.unknown_fields)

    def _take_response(self, command: RemotingCommand) -> None:
        if not self._pending.take(command):
            _log.info(
                "%s: %s answers request %d, which nobody waits for", self._owner, self.remote_address, command.opaque
            )

    async def _relieve(self) -> None:
        """The peer does not take its answers: read nothing more from it until everything is sent."""
        if not self._sending:
            await self._send_as_reader()
        elif not self._must_read:
            self._drained = self._drained or trio.Event()
            await self._drained.wait()

    @property
    def _must_read(self) -> bool:
        """Whether to keep reading: if each peer waited for the other one to read, they would deadlock."""
        return self._carries_requests or len(self._pending) > 0

    async def _send_as_reader(self) -> None:
        """Send until nothing is left. If the reader must go on, a task of its own sends the rest."""
        if not self._must_read:
            await self._send_outgoing(only_answers=True)
        if self._outgoing and self._nursery is not None:
            self._start_sending(self._nursery)

    def _wake_drained(self) -> None:
        if self._drained is not None:
            self._drained.set()
            self._drained = None

    def _start_sending(self, nursery: trio.Nursery) -> None:
        self._sending = True
        nursery.start_soon(self._send_in_background)

    async def _send_in_background(self) -> None:
        try:
            await self._send_outgoing()
        except OSError as error:
            _log.info("%s: %s: %s", self._owner, self.remote_address, error)
            self.close(type(error).__name__)

    async def _send_outgoing(self, *, only_answers: bool = False) -> None:
        """Send until nothing is left; with `only_answers`, until requests are among it. One task at a time may send."""
        self._sending = True
        try:
            while self._outgoing and not (only_answers and self._carries_requests):
                await self._send_piece(self._next_piece())
            if not self._outgoing:
                self._owed_bytes, self._carries_requests = 0, False
        finally:
            self._sending = False
            self._wake_drained()

    async def _send_piece(self, data: bytes) -> None:
        sent = 0
        try:
            while sent < len(data):
                count = await self._transport.send_some(memoryview(data)[sent:] if sent else data)
                sent += count
                self._outgoing_bytes -= count
                self._last_active_s = trio.current_time()
        finally:
            if sent < len(data):
                # A stop cancels the reader: the task that sends the rest begins in the middle of a frame.
                self._outgoing.insert(0, data[sent:])

    def _next_piece(self) -> bytes:
        """Frames to send together: all that wait, up to a number of bytes."""
        if self._outgoing_bytes <= _SEND_BYTES or len(self._outgoing) == 1:
            data = self._outgoing[0] if len(self._outgoing) == 1 else b"".join(self._outgoing)
            self._outgoing.clear()
            return data
        size = count = 0
        for frame in self._outgoing:
            if count and size + len(frame) > _SEND_BYTES:
                break
            size += len(frame)
            count += 1
        data = b"".join(self._outgoing[:count])
        del self._outgoing[:count]
        return data

    async def _send_last(self) -> None:
        try:
            with trio.move_on_after(_LAST_SENDS_S):
                while self._sending:
                    self._drained = self._drained or trio.Event()
                    await self._drained.wait()
                if self._outgoing:
                    await self._send_outgoing()
        except OSError as error:
            _log.info("%s: %s: while it was stopped: %s", self._owner, self.remote_address, error)


@attrs.define(eq=False, repr=False)
class RemotingRequest:
    """A request that arrived, at `arrived_s` of Trio's clock."""

    connection: RemotingConnection
    command: RemotingCommand
    arrived_s: float
    is_answered: bool = attrs.field(default=False, init=False)

    def respond(self, response: RemotingCommand) -> None:
        """Answer, now or later, but only once. Does nothing for a one-way request, or once the connection has ended.

        Raises what a hook raises, and `ValueError` for an answer that is too long: the request can still be refused.
        """
        for hook in self.connection.hooks:
            hook.after_response(self.connection.remote_address, self.command, response)
        self._answer(response)

    def refuse(self, code: int, remark: str) -> None:
        """Answer with just a code and a text. As in RocketMQ, no hook sees it."""
        self._answer(self.command.response(code, remark))

    def _answer(self, response: RemotingCommand) -> None:
        command = self.command
        assert not self.is_answered, f"request {command.code} was answered already"
        response.opaque = command.opaque
        response.flag |= RESPONSE_FLAG
        if not command.is_oneway:
            self.connection.send(response)
        self.is_answered = True
