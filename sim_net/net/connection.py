"""One end of a simulated TCP connection: a pure callback machine, driven by its socket and by the kernel.

What it models: the handshake, in-order delivery in segments with latency, bounded buffers with a receive window,
half-close, reset, and links that are cut (segments wait and are sent again after healing), held, stalled (the window is
shut), slow, narrow or lossy (a loss costs a retransmission time-out, unless others follow). A reset is not sent again
after a loss: a peer behind a cut link stays half-open until it sends, as does the peer of a machine without power.

There are no acknowledgements on the wire. A segment counts as unacknowledged while it, or the way back, is stopped by
a cut link; when that lasts for `LinkConfig.retransmit_timeout_s`, the connection ends with ETIMEDOUT. Shut windows
are probed as `window_probe` says.

Silly windows are avoided at both ends: a window is reopened by half a buffer at a time, and a waiting sender is woken
when a third of its buffer is free. Without that a run takes a hundred times as many steps.

Longer than 600 lines because it is one machine: what a segment does on its way depends on all that its end knows.
"""

from __future__ import annotations

import errno
import os
from collections import deque
from typing import TYPE_CHECKING, Final
from zlib import crc32

from trio.lowlevel import Abort, RaiseCancelT

from sim_net.net.segment import ACK, DATA, FIN, RESET, SYN, SYN_ACK, WINDOW, Address, pack_arrival
from sim_net.net.window_probe import WindowProbe

if TYPE_CHECKING:
    from collections.abc import Sequence

    from trio.lowlevel import Task

    from sim_net.kernel.kernel import Timer
    from sim_net.net.link import Link
    from sim_net.net.network import Network
    from sim_net.net.stream_socket import StreamSocket
    from sim_net.node import Node

# Retransmission time-outs, each twice the last: RFC 6298's first one in a handshake; Linux's first and longest
# otherwise (TCP_RTO_MIN, TCP_RTO_MAX).
_SYN_AGAIN_S: Final = 1.0
_SEND_AGAIN_S: Final = 0.2
_AGAIN_MAX_S: Final = 120.0
#: The status of a reset that answers a segment, and so is sent again whenever the segment is.
_NO_CONNECTION: Final = "no_connection"


class Endpoint:
    """One end. `link` is the way out of it; `peer` is the other end, once there is one."""

    __slots__ = (
        "_ack_timer",
        "_answers",
        "_credit",
        "_fin_sent",
        "_journaled_held",
        "_last_arrival_s",
        "_losses",
        "_outbox",
        "_parked",
        "_probe",
        "_room",
        "_segment_bytes",
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
        self.listener: StreamSocket | None = None
        self.established = False
        #: The socket is closed: nobody reads here any more, but what was written still goes out.
        self.closed = False
        #: Closed without ceremony: nothing goes out any more, and what arrives is answered by a reset.
        self.aborted = False
        #: The connection was reset: reads end, writes break.
        self.torn = False
        self.error: int | None = None
        self.received = bytearray()
        self.end_received = False
        self.shut_read = False
        self.shut_write = False
        self.sending = bytearray()
        self.window_bytes = receive_bytes
        self.reader: Task | None = None
        self.writer: Task | None = None
        self._room = send_bytes
        self._segment_bytes = network.link_config.segment_bytes
        self._credit = 0
        self._unannounced = 0
        self._fin_sent = False
        self._journaled_held = False
        self._ack_timer: Timer | None = None
        self._answers = 0
        self._losses = 0
        self._probe = WindowProbe(network.kernel, self._ask_for_window)
        # What is on the wire, in order. `_parked` of them, the oldest, wait until the link lets them pass; each other
        # one has an arrival event in the kernel, and an arrival takes whatever is oldest: order holds by construction.
        self._outbox: deque[tuple[int, bytes | int | str]] = deque()
        self._parked = 0
        self._last_arrival_s = 0.0
        link.endpoints[self.serial] = self

    # --- for the socket ---------------------------------------------------------------------------------------------

    def connect(self) -> None:
        """Send the first segment of the handshake."""
        self._transmit(SYN, 0)

    def connect_to_itself(self) -> None:
        """Its own request has arrived: a simultaneous open of one socket (RFC 9293, 3.5)."""
        self.peer = self
        self._open()
        self.wake()

    def answer_syn(self) -> None:
        """Send the second segment of the handshake."""
        self._answers += 1
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
        in_one_segment = taken == offered <= self._credit and offered <= self._segment_bytes
        if in_one_segment and not self.sending and not self.link.stalls:
            self._credit -= offered
            self._transmit(DATA, bytes(views[0]) if len(views) == 1 else b"".join(views))
            return taken
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
        if self.end_received or self.shut_read:
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

    @property
    def over(self) -> bool:
        """Whether the connection is no more: it was reset or given up, or both ends have got each other's end."""
        if self.torn or self.aborted:
            return True
        peer = self.peer
        return self.end_received and self._fin_sent and peer is not None and peer.end_received

    def shut_down_read(self) -> None:
        """Reads do not wait any more; what arrives is read all the same."""
        self.shut_read = True
        self.wake()

    def forget_reader(self, _: RaiseCancelT) -> Abort:
        """The task that waited to read was cancelled."""
        self.reader = None
        return Abort.SUCCEEDED

    def forget_writer(self, _: RaiseCancelT) -> Abort:
        """The task that waited to write was cancelled."""
        self.writer = None
        return Abort.SUCCEEDED

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
        self._stop()
        self._lose_parked()
        if self.peer is not None and not self.torn:
            self._transmit(RESET, status)
        self.forget_if_idle()

    def vanish(self) -> None:
        """The machine lost its power: nobody is told. What is on the wire already arrives."""
        self._stop()
        self._lose_parked()
        self.forget_if_idle()

    def _stop(self) -> None:
        """Nothing is sent any more but resets, and nobody reads; a peer that waits for the window may find out."""
        self.closed = self.aborted = True
        self.sending.clear()
        self._stop_waiting()
        self._let_peer_ask()

    def _let_peer_ask(self) -> None:
        if self.peer is not None and self.peer.sending:
            self.peer._probe.wait(peer_is_gone=True)  # noqa: SLF001 - the other end of this very connection

    def _lose_parked(self) -> None:
        """Nobody is left to send again what was lost, and what follows it on the wire cannot be delivered either."""
        if self._parked and self.link.cuts:
            self._outbox.clear()
            self._parked = 0

    def tear(self, status: str) -> None:
        """The connection was reset here: by the peer, or by a fault."""
        if self.torn or self.aborted:
            return
        if not self.established:
            self.error = errno.ECONNREFUSED
        else:  # Linux: after the peer's end has been received, a reset only breaks writes
            self.error = errno.EPIPE if self.end_received else errno.ECONNRESET
        self._end(status)

    def _end(self, status: str) -> None:
        self.torn = True
        self.sending.clear()
        self._outbox.clear()
        self._parked = 0
        self._stop_waiting()
        if not self.closed and self.established:
            self.record("net.reset", status=status)
        self.wake()
        self.forget()

    def wake(self) -> None:
        """Let a waiting reader and writer look again."""
        self._wake_reader()
        if self.writer is not None:
            writer, self.writer = self.writer, None
            self.network.kernel.wake(writer)

    def _wake_reader(self) -> None:
        if self.reader is not None:
            reader, self.reader = self.reader, None
            self.network.kernel.wake(reader)

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
                self._probe.wait(peer_is_gone=self.peer is not None and self.peer.aborted)
                return
            self._journaled_held = False
            segment_bytes = self._segment_bytes
            while sending and self._credit:
                size = min(len(sending), segment_bytes, self._credit)
                segment = bytes(sending) if size == len(sending) else bytes(memoryview(sending)[:size])
                del sending[:size]
                self._credit -= size
                self._transmit(DATA, segment)
            if not sending:
                self._probe.stop()
            else:
                self._probe.wait(peer_is_gone=self.peer is not None and self.peer.aborted)
                if self.link.cuts:
                    self._wait_for_acks()
        if self.shut_write and not sending and not self._fin_sent and not self.torn:
            self._fin_sent = True
            self._transmit(FIN, 0)
        if self.writer is not None and self.writable:
            writer, self.writer = self.writer, None
            self.network.kernel.wake(writer)

    def link_cut(self) -> None:
        """Nothing gets out any more: what waits to be sent, for a window too, will not be acknowledged."""
        if self.sending:
            self._wait_for_acks()

    def resume(self, after_s: float) -> None:
        """The link lets segments pass again: those that waited leave in `after_s` seconds, in order."""
        self._stop_waiting_for_acks()
        parked, self._parked = self._parked, 0
        if not parked:
            self._ask_for_window(after_s)
            return
        for _ in range(parked):
            self._arrive_in(after_s + self.link.latency_s())

    def way_back_healed(self) -> None:
        """Acknowledgements get through again."""
        if not self.link.cuts:
            self._stop_waiting_for_acks()
        self._ask_for_window()

    def _ask_for_window(self, after_s: float = 0.0) -> None:
        """Probe the window, if data waits for one: a peer that is no more answers by a reset."""
        if self.sending and self.peer is not None and self.peer.aborted and not self.link.blocked:
            self._outbox.append((ACK, 0))
            self._arrive_in(after_s + self.link.latency_s())

    def _wait_for_acks(self) -> None:
        """End the connection if nothing is acknowledged for the retransmission time-out."""
        if self._ack_timer is None and self.established and not self.aborted and not self.torn:
            network = self.network
            self._ack_timer = network.kernel.timer_at(
                network.kernel.now_s + network.link_config.retransmit_timeout_s, self._time_out
            )

    def _stop_waiting_for_acks(self) -> None:
        if self._ack_timer is not None:
            self._ack_timer.cancel()
            self._ack_timer = None

    def _stop_waiting(self) -> None:
        self._stop_waiting_for_acks()
        self._probe.stop()

    def _time_out(self) -> None:
        self._ack_timer = None
        if not self.torn and not self.aborted:
            self.error = errno.ETIMEDOUT
            self.aborted = True
            self._end("timed_out")
            self._let_peer_ask()

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
        if link.impeded:
            self._transmit_impeded(kind, payload)
            return
        self._outbox.append((kind, payload))
        network = self.network
        kernel = network.kernel
        at = kernel.now_s + link.least_s + link.span_s * network.draw()
        if at < self._last_arrival_s:
            at = self._last_arrival_s
        else:
            self._last_arrival_s = at
        kernel.call_at(at, self._arrive)

    def _transmit_impeded(self, kind: int, payload: bytes | int | str) -> None:
        """Like `_transmit`, on a link that a fault is at work on or whose bandwidth is limited."""
        link = self.link
        if link.cuts and kind == RESET and payload != _NO_CONNECTION:
            return
        self._outbox.append((kind, payload))
        if link.blocked:
            self._hold(kind, payload)
            return
        size = len(payload) if type(payload) is bytes else 0
        wait_s = link.queueing_s(size)
        if size and wait_s and link.throttled:
            self.record("net.queued", size=size, wait_s=wait_s)
        self._arrive_in(wait_s + link.latency_s())

    def _arrive_in(self, after_s: float) -> None:
        """Let a segment arrive in `after_s` seconds, or later, in its turn."""
        kernel = self.network.kernel
        self._last_arrival_s = max(self._last_arrival_s, kernel.now_s + after_s)
        kernel.call_at(self._last_arrival_s, self._arrive)

    def _hold(self, kind: int, payload: bytes | int | str) -> None:
        """Keep the segment after those that wait already: it passes once the link lets it."""
        self._parked += 1
        self.link.endpoints[self.serial] = self
        if self.link.cuts and kind in (DATA, FIN):
            self._wait_for_acks()
        if kind == DATA:
            assert isinstance(payload, bytes)
            self.record("net.held", size=len(payload))

    def _arrive(self) -> None:
        """The arrival event of one segment: it takes whatever is oldest on the wire."""
        outbox = self._outbox
        if len(outbox) <= self._parked:
            return
        if self.link.impeded and not self._gets_through():
            return
        kind, payload = outbox.popleft()
        if self._losses:
            self._end_losses()
        network = self.network
        if type(payload) is bytes:
            network.kernel.digest.add(pack_arrival(kind, self.serial, len(payload), crc32(payload)))
        else:
            network.kernel.digest.add(pack_arrival(kind, self.serial, 0, 0))
        peer = self.peer
        if kind == SYN:
            if not self.closed and not network.accept_syn(self):
                assert isinstance(payload, int)
                outbox.append((SYN, payload + 1))
                network.kernel.call_at(network.kernel.now_s + _SYN_AGAIN_S * 2**payload, self._arrive)
        elif peer is None:
            assert kind == RESET, "only a handshake makes a peer"
        elif peer.aborted or (peer.closed and (kind == DATA or (kind == SYN_ACK and not peer.established))):
            if kind not in (RESET, WINDOW):
                peer.refuse()
        else:
            peer.receive(kind, payload)
        if self.aborted and not outbox:
            self.forget()

    def _end_losses(self) -> None:
        """A segment got through: what comes after it does not wait for the time-outs that the losses have set."""
        self._losses = 0
        self._stop_waiting_for_acks()
        if self._outbox:
            kernel = self.network.kernel
            kernel.call_at(kernel.now_s + self.link.latency_s(), self._after_losses)

    def _after_losses(self) -> None:
        """Let arrive what is on the wire, up to the first segment that is lost again."""
        outbox = self._outbox
        for _ in range(len(outbox) - self._parked):
            waiting = len(outbox)
            self._arrive()
            if len(outbox) >= waiting:
                return

    def _gets_through(self) -> bool:
        """Whether the oldest segment on the wire arrives. The link may have been cut or held meanwhile, or lose it."""
        link = self.link
        kind, payload = self._outbox[self._parked]
        if link.blocked:
            if self.aborted and link.cuts and payload != _NO_CONNECTION:
                self._outbox.clear()
                self._parked = 0
                self.forget()
            else:
                self._hold(kind, payload)
            return False
        if not link.loses():
            return True
        self._losses += 1
        self._let_peer_wait_for_answer(payload == _NO_CONNECTION)
        self.record("net.lost", size=len(payload) if type(payload) is bytes else 0, count=self._losses)
        if kind == RESET and payload != _NO_CONNECTION:
            self._outbox.popleft()
            self.forget_if_idle()
            return False
        # What comes after it may arrive first: that is its turn then, as with TCP's fast retransmission.
        again_s = _SYN_AGAIN_S if kind in (SYN, SYN_ACK) else _SEND_AGAIN_S
        kernel = self.network.kernel
        kernel.call_at(kernel.now_s + min(again_s * 2 ** (self._losses - 1), _AGAIN_MAX_S), self._arrive)
        self._wait_for_acks()
        return False

    def refuse(self) -> None:
        """Answer a segment that nobody wants by a reset, as a system does that knows no such connection."""
        self._stop()
        self._transmit(RESET, _NO_CONNECTION)
        self._let_peer_wait_for_answer(self.link.cuts)
        self.forget_if_idle()

    def _let_peer_wait_for_answer(self, is_lost: bool) -> None:
        """What was refused has no answer if the refusal is lost: its sender gives up in the end."""
        if is_lost and self.peer is not None:
            self.peer._wait_for_acks()  # noqa: SLF001 - the other end of this very connection

    def receive(self, kind: int, payload: bytes | int | str) -> None:
        """A segment from the peer."""
        if self.torn:
            return
        if kind == DATA:
            assert isinstance(payload, bytes)
            self.received += payload
            if self.link.cuts and self.peer is not None:
                self.peer._wait_for_acks()  # noqa: SLF001 - the other end of this very connection
            self._wake_reader()
        elif kind == WINDOW:
            assert isinstance(payload, int)
            self._credit += payload
            self._probe.stop()
            self.pump()
        elif kind == FIN:
            self.end_received = True
            self._wake_reader()
            self._forget_if_over()
        elif kind == RESET:
            assert isinstance(payload, str)
            self.tear(payload)
        elif kind == SYN_ACK:
            if not self.established:
                self._open()
                self.wake()
            self._transmit(ACK, 0)
        elif not self.established:
            self._receive_first_ack()

    def _receive_first_ack(self) -> None:
        """The third segment of the handshake; with a full backlog it counts as lost, and the second is sent again."""
        listener = self.listener
        assert listener is not None, "only a listener answers a handshake"
        if listener.backlog_full:
            kernel = self.network.kernel
            kernel.call_at(kernel.now_s + _SYN_AGAIN_S * 2 ** (self._answers - 1), self._answer_syn_again)
            return
        self._open()
        listener.connection_ready(self)

    def _answer_syn_again(self) -> None:
        if not self.aborted and not self.torn:
            self.answer_syn()

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
