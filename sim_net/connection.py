"""One end of a simulated TCP connection: a pure callback machine, driven by its socket and by the kernel.

What it models: the handshake, in-order delivery in segments with latency, bounded buffers with a receive window,
half-close, reset, and links that are cut (segments wait and are sent again after healing), stalled (the window is
shut) or slow. A reset is not sent again after a loss, so a peer behind a cut link stays half-open until it sends.

Silly windows are avoided at both ends: a window is reopened by half a buffer at a time, and a waiting sender is woken
when a third of its buffer is free. Without that a run takes a hundred times as many steps.
"""

from __future__ import annotations

import errno
import os
import struct
from collections import deque
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Sequence

    from trio.lowlevel import Task

    from sim_net.network import Link, Network
    from sim_net.node import Node
    from sim_net.socket import SimSocket

Address = tuple[str, int]

DATA: Final = 0
FIN: Final = 1
RESET: Final = 2
WINDOW: Final = 3
SYN: Final = 4
SYN_ACK: Final = 5
ACK: Final = 6

_pack_arrival = struct.Struct("<BII").pack
_SYN_AGAIN_S: Final = 1.0


class Endpoint:
    """One end. `link` is the way out of it; `peer` is the other end, once there is one."""

    __slots__ = (
        "__weakref__",
        "_credit",
        "_fin_sent",
        "_journaled_held",
        "_last_arrival_s",
        "_outbox",
        "_parked",
        "_room",
        "_unannounced",
        "aborted",
        "closed",
        "end_received",
        "error",
        "established",
        "link",
        "listener",
        "local",
        "network",
        "node",
        "peer",
        "reader",
        "received",
        "remote",
        "reset_status",
        "sending",
        "serial",
        "shut_read",
        "shut_write",
        "torn",
        "window_bytes",
        "writer",
    )

    def __init__(
        self,
        network: Network,
        node: Node,
        link: Link,
        local: Address,
        remote: Address,
        *,
        send_bytes: int,
        receive_bytes: int,
    ) -> None:
        self.network = network
        self.node = node
        self.link = link
        self.local = local
        self.remote = remote
        self.serial = network.next_serial()
        self.peer: Endpoint | None = None
        self.listener: SimSocket | None = None
        self.established = False
        #: The socket is closed: nobody reads here any more, but what was written still goes out.
        self.closed = False
        #: Closed without ceremony: nothing goes out any more, and what arrives is answered by a reset.
        self.aborted = False
        #: The connection was reset: reads end, writes break.
        self.torn = False
        self.error: int | None = None
        self.reset_status = ""
        self.received = bytearray()
        self.end_received = False
        self.shut_read = False
        self.shut_write = False
        self.sending = bytearray()
        self.window_bytes = receive_bytes
        self.reader: Task | None = None
        self.writer: Task | None = None
        self._room = send_bytes
        self._credit = 0
        self._unannounced = 0
        self._fin_sent = False
        self._journaled_held = False
        # What is on the wire, in order. `_parked` of them, the oldest, wait for the link to heal; each other one has an
        # arrival event in the kernel, and an arrival takes whatever is oldest, so order holds by construction.
        self._outbox: deque[tuple[int, bytes | int | str]] = deque()
        self._parked = 0
        self._last_arrival_s = 0.0
        link.endpoints[self.serial] = self

    # --- for the socket ---------------------------------------------------------------------------------------------

    def connect(self) -> None:
        """Send the first segment of the handshake."""
        self._transmit(SYN, 0)

    def answer_syn(self) -> None:
        """Send the second segment of the handshake."""
        self._transmit(SYN_ACK, 0)

    def give_up(self) -> None:
        """The connection attempt has taken too long."""
        if not self.established and self.error is None:
            self.error = errno.ETIMEDOUT
            self.wake()

    def take_error(self) -> int:
        """The pending error's number, once; 0 when there is none."""
        error, self.error = self.error, None
        return error or 0

    def write(self, views: Sequence[memoryview]) -> int | None:
        """Take bytes to send: how many, or None when there is no room. Raises OSError as `send` does."""
        self._raise_error()
        if self.torn or self.shut_write:
            raise BrokenPipeError(errno.EPIPE, os.strerror(errno.EPIPE))
        if not self.established:
            raise OSError(errno.ENOTCONN, os.strerror(errno.ENOTCONN))
        offered = sum(map(len, views))
        if not offered:
            return 0
        room = self._room - len(self.sending)
        if room <= 0:
            return None
        taken = self.node.short_io.cut(min(offered, room))
        if taken < offered:
            self.record("net.partial_write", size=taken)
            left = taken
            for view in views:
                self.sending += view[:left]
                left -= min(left, len(view))
                if not left:
                    break
        else:
            for view in views:
                self.sending += view
        self.pump()
        return taken

    @property
    def writable(self) -> bool:
        """Whether a waiting writer may go on: there is room worth waking for, or an error to report."""
        return (
            self.error is not None or self.torn or self.shut_write or (self._room - len(self.sending)) * 3 >= self._room
        )

    def available(self, wanted: int) -> int | None:
        """How many bytes a read of `wanted` takes now: 0 at the end, None to wait. OSErrors are those of `recv`."""
        if self.received:
            most = min(wanted, len(self.received))
            taken = self.node.short_io.cut(most)
            if taken < most:
                self.record("net.partial_read", size=taken)
            return taken
        if self.end_received or self.shut_read or not wanted:
            return 0
        self._raise_error()
        if self.torn:
            return 0
        if not self.established:
            raise OSError(errno.ENOTCONN, os.strerror(errno.ENOTCONN))
        return None

    @property
    def readable(self) -> bool:
        """Whether a read would not wait."""
        return bool(self.received) or self.error is not None or self.end_received or self.torn or self.shut_read

    def consumed(self, size: int) -> None:
        """`size` received bytes were taken: drop them, and reopen the window by half a buffer at a time."""
        del self.received[:size]
        self._unannounced += size
        if self._unannounced * 2 >= self.window_bytes and not self.end_received and not self.torn:
            announced, self._unannounced = self._unannounced, 0
            self._transmit(WINDOW, announced)

    def shut_down_write(self) -> None:
        """Nothing more is written: the end follows what is in the send buffer."""
        if not self.shut_write:
            self.shut_write = True
            self.pump()

    def close(self) -> None:
        """The socket was closed: the end follows the data, or a reset if there is something that nobody will read."""
        if self.closed:
            return
        self.closed = True
        if self.torn:
            self.forget()
        elif not self.established:
            self.abort("closed")
        elif self.received:
            self.abort("unread_data")
        else:
            self.shut_down_write()
            self._forget_if_over()

    def abort(self, status: str) -> None:
        """End without ceremony: the peer sees a reset, unless the link is cut."""
        if self.aborted:
            return
        self.closed = self.aborted = True
        self.sending.clear()
        if self._parked:
            # Lost on the way, and nobody is left to send them again: what is behind them cannot be delivered either.
            self._outbox.clear()
            self._parked = 0
        if self.peer is not None and not self.torn:
            self._transmit(RESET, status)
        self.forget_if_idle()

    def tear(self, status: str) -> None:
        """The connection was reset here: by the peer, or by a fault."""
        if self.torn or self.aborted:
            return
        self.torn = True
        self.reset_status = status
        self.sending.clear()
        self._outbox.clear()
        self._parked = 0
        if not self.established:
            self.error = errno.ECONNREFUSED
        else:  # Linux: after the peer's end has been received, a reset only breaks writes
            self.error = errno.EPIPE if self.end_received else errno.ECONNRESET
        if not self.closed and self.established:
            self.record("net.reset", status=status)
        self.wake()
        self.forget()

    def wake(self) -> None:
        """Let a waiting reader and writer look again."""
        kernel = self.network.kernel
        if self.reader is not None:
            reader, self.reader = self.reader, None
            kernel.wake(reader)
        if self.writer is not None:
            writer, self.writer = self.writer, None
            kernel.wake(writer)

    def record(self, kind: str, **attributes: str | float) -> None:
        """A journal entry of this node about its peer."""
        self.network.journal.record(self.node.name, kind, peer=self.link.target_name, **attributes)

    # --- for links and faults ---------------------------------------------------------------------------------------

    def pump(self) -> None:
        """Put on the wire what the peer's window allows, and let a waiting writer go on."""
        sending = self.sending
        if sending:
            if self.link.stalls:
                if not self._journaled_held:
                    self._journaled_held = True
                    self.record("net.held", size=len(sending))
                return
            self._journaled_held = False
            segment_bytes = self.network.link_config.segment_bytes
            while sending and self._credit:
                size = min(len(sending), segment_bytes, self._credit)
                segment = bytes(sending) if size == len(sending) else bytes(memoryview(sending)[:size])
                del sending[:size]
                self._credit -= size
                self._transmit(DATA, segment)
        if self.shut_write and not sending and not self._fin_sent and not self.torn:
            self._fin_sent = True
            self._transmit(FIN, 0)
        if self.writer is not None and self.writable:
            writer, self.writer = self.writer, None
            self.network.kernel.wake(writer)

    def healed(self) -> None:
        """The link carries again: send what it held, in order, as a retransmission timer would."""
        parked, self._parked = self._parked, 0
        if not parked:
            return
        network = self.network
        sent_again_s = network.kernel.now_s + network.draw() * network.link_config.retransmit_max_s
        for _ in range(parked):
            self._last_arrival_s = max(self._last_arrival_s, sent_again_s + self.link.delay_s())
            network.kernel.call_at(self._last_arrival_s, self._arrive)

    def forget(self) -> None:
        """Nothing more is sent from here."""
        self.link.endpoints.pop(self.serial, None)

    def forget_if_idle(self) -> None:
        """Forget an aborted end whose last segments are out."""
        if not self._outbox:
            self.forget()

    # --- the wire ---------------------------------------------------------------------------------------------------

    def _transmit(self, kind: int, payload: bytes | int | str) -> None:
        link = self.link
        if link.cuts:
            if kind == RESET:
                return
            self._outbox.append((kind, payload))
            self._hold(kind, payload)
            return
        self._outbox.append((kind, payload))
        kernel = self.network.kernel
        at = kernel.now_s + link.delay_s()
        if at < self._last_arrival_s:
            at = self._last_arrival_s
        else:
            self._last_arrival_s = at
        kernel.call_at(at, self._arrive)

    def _hold(self, kind: int, payload: bytes | int | str) -> None:
        self._parked += 1
        if kind == DATA:
            assert isinstance(payload, bytes)
            self.record("net.held", size=len(payload))

    def _arrive(self) -> None:
        """The arrival event of one segment: it takes whatever is oldest on the wire."""
        outbox = self._outbox
        if len(outbox) <= self._parked:
            return
        if self.link.cuts:
            if self.aborted:
                outbox.clear()
                self._parked = 0
                self.forget()
            else:
                self._hold(*outbox[self._parked])
            return
        kind, payload = outbox.popleft()
        network = self.network
        network.kernel.digest.add(_pack_arrival(kind, self.serial, len(payload) if type(payload) is bytes else 0))
        peer = self.peer
        if kind == SYN:
            if not self.closed and not network.accept_syn(self):
                outbox.append((SYN, 0))
                network.kernel.call_at(network.kernel.now_s + _SYN_AGAIN_S, self._arrive)
        elif peer is None:
            assert kind == RESET, "only a handshake makes a peer"
        elif peer.aborted or (peer.closed and kind in (DATA, SYN_ACK)):
            if kind not in (RESET, WINDOW):
                peer.refuse()
        else:
            peer.receive(kind, payload)
        if self.aborted and not outbox:
            self.forget()

    def refuse(self) -> None:
        """Answer a segment that nobody wants by a reset, as a system does that knows no such connection."""
        self.closed = self.aborted = True
        self.sending.clear()
        if not self.torn:
            self._transmit(RESET, "no_connection")
        self.forget_if_idle()

    def receive(self, kind: int, payload: bytes | int | str) -> None:
        """A segment from the peer."""
        if self.torn:
            return
        kernel = self.network.kernel
        if kind == DATA:
            assert isinstance(payload, bytes)
            self.received += payload
            if self.reader is not None:
                reader, self.reader = self.reader, None
                kernel.wake(reader)
        elif kind == WINDOW:
            assert isinstance(payload, int)
            self._credit += payload
            self.pump()
        elif kind == FIN:
            self.end_received = True
            if self.reader is not None:
                reader, self.reader = self.reader, None
                kernel.wake(reader)
            self._forget_if_over()
        elif kind == RESET:
            assert isinstance(payload, str)
            self.tear(payload)
        elif kind == SYN_ACK:
            self._open()
            self._transmit(ACK, 0)
            self.wake()
        else:
            self._open()
            if self.listener is not None:
                self.listener.connection_ready(self)

    def _open(self) -> None:
        assert self.peer is not None
        self.established = True
        self._credit = self.peer.window_bytes

    def _forget_if_over(self) -> None:
        """Both ends were closed: neither has anything to send."""
        peer = self.peer
        if self.closed and self.end_received and self._fin_sent and peer is not None and peer.end_received:
            self.forget()
            peer.forget()

    def _raise_error(self) -> None:
        if self.error is not None:
            error, self.error = self.error, None
            raise OSError(error, os.strerror(error))
