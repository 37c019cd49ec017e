"""A connection as its socket sees it: the bytes of both directions, an error to come, and the tasks that wait.

Nothing here sends a segment: the endpoint says what the peer has done, and the send buffer lets bytes leave.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from trio.lowlevel import Abort, RaiseCancelT

from sim_net.net import tcp_state
from sim_net.net.receive_buffer import ReceiveBuffer
from sim_net.net.tcp_state import Event, State, Step

if TYPE_CHECKING:
    from trio.lowlevel import Task

    from sim_net.kernel.kernel import Kernel
    from sim_net.net.send_buffer import SendBuffer


class Stream:
    """The state of one end, and what a read or a write gives in it. `reader` and `writer` wait, if there are any."""

    __slots__ = ("_cut", "_kernel", "_record", "error", "incoming", "outgoing", "reader", "state", "writer")

    def __init__(
        self,
        kernel: Kernel,
        outgoing: SendBuffer,
        receive_bytes: int,
        cut: Callable[[int], int],
        record: Callable[..., object],
    ) -> None:
        self._kernel = kernel
        #: How many of so many bytes a call moves now.
        self._cut = cut
        self._record = record
        self.state: State = tcp_state.SYN_SENT
        #: The errno that the next call raises.
        self.error: int | None = None
        self.incoming = ReceiveBuffer(receive_bytes)
        self.outgoing = outgoing
        self.reader: Task | None = None
        self.writer: Task | None = None

    def step(self, event: Event) -> Step:
        """Go where an event leads. Its error is for the socket's next call, and replaces one that nobody has seen."""
        step = tcp_state.step(self.state, event)
        self.state = step.state
        if step.error:
            self.error = step.error
        return step

    def take_error(self) -> int:
        """The pending error's number, once; 0 when there is none."""
        error, self.error = self.error, None
        return error or 0

    # --- reading and writing ----------------------------------------------------------------------------------------

    def write(self, views: Sequence[memoryview]) -> int | None:
        """Take bytes to send: how many, or None when there is no room. Raises OSError as `send` does."""
        if self.error is not None:
            self._raise_error()
        if not self.state.may_write:
            number = errno.EPIPE if self.state.is_known else errno.ENOTCONN
            raise OSError(number, os.strerror(number))
        offered = sum(map(len, views))
        return self.outgoing.put(views, offered) if offered else 0

    @property
    def writable(self) -> bool:
        """Whether a waiting writer may go on: there is room worth waking for, or an error to report."""
        state = self.state
        return self.error is not None or (state.is_known and not state.may_write) or self.outgoing.has_room

    def available(self, wanted: int) -> int | None:
        """How many bytes a read of `wanted` takes now: 0 at the end, None to wait. OSErrors are those of `recv`."""
        incoming = self.incoming
        if incoming.data:
            most = min(wanted, len(incoming.data))
            taken = self._cut(most)
            if taken < most:
                self._record("net.partial_read", size=taken)
            return taken
        if incoming.ends:
            return 0
        if self.error is not None:
            self._raise_error()
        if self.state.is_open:
            return None
        if self.state.is_broken:
            return 0
        raise OSError(errno.ENOTCONN, os.strerror(errno.ENOTCONN))

    @property
    def readable(self) -> bool:
        """Whether a read would not wait."""
        incoming = self.incoming
        return bool(incoming.data) or self.error is not None or incoming.ends or self.state.is_broken

    def shut_down_read(self) -> None:
        """Reads do not wait any more; what arrives is read all the same."""
        self.incoming.ends = True
        self.wake()

    def _raise_error(self) -> None:
        number = self.take_error()
        raise OSError(number, os.strerror(number))

    # --- the tasks that wait ----------------------------------------------------------------------------------------

    def wake(self) -> None:
        """Let a waiting reader and writer look again."""
        self.wake_reader()
        if self.writer is not None:
            writer, self.writer = self.writer, None
            self._kernel.wake(writer)

    def wake_reader(self) -> None:
        """Let a waiting reader look again."""
        if self.reader is not None:
            reader, self.reader = self.reader, None
            self._kernel.wake(reader)

    def wake_writer_if_writable(self) -> None:
        """Let a waiting writer go on, if there is room now."""
        if self.writer is not None and self.writable:
            writer, self.writer = self.writer, None
            self._kernel.wake(writer)

    def forget_reader(self, _: RaiseCancelT) -> Abort:
        """The task that waited to read was cancelled."""
        self.reader = None
        return Abort.SUCCEEDED

    def forget_writer(self, _: RaiseCancelT) -> Abort:
        """The task that waited to write was cancelled."""
        self.writer = None
        return Abort.SUCCEEDED
