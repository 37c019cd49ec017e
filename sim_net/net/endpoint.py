"""One end of a simulated TCP connection: a pure callback machine, driven by its socket and by the kernel.

What it models: the handshake, in-order delivery in segments with latency, bounded buffers with a receive window,
half-close, reset, and links that are cut (segments wait and are sent again after healing), held, stalled (the window is
shut), slow, narrow or lossy (a loss costs a retransmission time-out, unless others follow). A reset is not sent again
after a loss: a peer beyond a cut link stays half-open until it sends, as does the peer of a machine without power.

There are no acknowledgements on the wire. A segment counts as unacknowledged while it, or the way back, is stopped by
a cut link; when that lasts for `LinkConfig.retransmit_timeout_s`, the connection ends with ETIMEDOUT. Shut windows
are probed as `window_probe` says.

Silly windows are avoided at both ends: a window is reopened by half a buffer at a time, and a waiting sender is woken
when a third of its buffer is free. Without that a run takes a hundred times as many steps.

What a segment meets on its way is in `lane`; here is what it means to the connection, and what the socket sees of it.
"""

from __future__ import annotations

import errno
import os
from typing import TYPE_CHECKING

from trio.lowlevel import Abort, RaiseCancelT

from sim_net.net.lane import Lane
from sim_net.net.segment import (
    ACK,
    DATA,
    FIN,
    NO_CONNECTION,
    RESET,
    SYN,
    SYN_ACK,
    SYN_AGAIN_S,
    WINDOW,
    Address,
    Payload,
)
from sim_net.net.window_probe import WindowProbe

if TYPE_CHECKING:
    from collections.abc import Sequence

    from trio.lowlevel import Task

    from sim_net.kernel.kernel import Timer
    from sim_net.net.link import Link
    from sim_net.net.network import Network
    from sim_net.net.stream_socket import StreamSocket
    from sim_net.node import Node


class Endpoint:
    """One end. `link` is the way out of it; `peer` is the other end, once there is one."""

    __slots__ = (
        "_ack_timer",
        "_answers",
        "_credit",
        "_fin_sent",
        "_journaled_held",
        "_lane",
        "_probe",
        "_room",
        "_segment_bytes",
        "_transmit",
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
        self._probe = WindowProbe(network.kernel, self._ask_for_window)
        self._lane = Lane(network, link, self, self.serial)
        self._transmit = self._lane.transmit
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
        self._lane.lose_parked()
        if self.peer is not None and not self.torn:
            self._transmit(RESET, status)
        self.forget_if_idle()

    def vanish(self) -> None:
        """The machine lost its power: nobody is told. What is on the wire already arrives."""
        self._stop()
        self._lane.lose_parked()
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
        self._lane.clear()
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
                    self.wait_for_acks()
        if self.shut_write and not sending and not self._fin_sent and not self.torn:
            self._fin_sent = True
            self._transmit(FIN, 0)
        if self.writer is not None and self.writable:
            writer, self.writer = self.writer, None
            self.network.kernel.wake(writer)

    def link_cut(self) -> None:
        """Nothing gets out any more: what waits to be sent, for a window too, will not be acknowledged."""
        if self.sending:
            self.wait_for_acks()

    def resume(self, after_s: float) -> None:
        """The link lets segments pass again: those that waited leave in `after_s` seconds, in order."""
        self.stop_waiting_for_acks()
        if not self._lane.go_on(after_s):
            self._ask_for_window(after_s)

    def way_back_healed(self) -> None:
        """Acknowledgements get through again."""
        if not self.link.cuts:
            self.stop_waiting_for_acks()
        self._ask_for_window()

    def _ask_for_window(self, after_s: float = 0.0) -> None:
        """Probe the window, if data waits for one: a peer that is no more answers by a reset."""
        if self.sending and self.peer is not None and self.peer.aborted and not self.link.blocked:
            self._lane.transmit_in(after_s, ACK, 0)

    def wait_for_acks(self) -> None:
        """End the connection if nothing is acknowledged for the retransmission time-out."""
        if self._ack_timer is None and self.established and not self.aborted and not self.torn:
            network = self.network
            self._ack_timer = network.kernel.timer_at(
                network.kernel.now_s + network.link_config.retransmit_timeout_s, self._time_out
            )

    def stop_waiting_for_acks(self) -> None:
        """Acknowledgements get through, as far as this end can tell."""
        if self._ack_timer is not None:
            self._ack_timer.cancel()
            self._ack_timer = None

    def _stop_waiting(self) -> None:
        self.stop_waiting_for_acks()
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
        if self._lane.is_empty:
            self.forget()

    # --- for its lane -----------------------------------------------------------------------------------------------

    def held(self, kind: int, payload: Payload) -> None:
        """The segment waits until the link lets it pass: the link has to know of this end."""
        self.link.endpoints[self.serial] = self
        if self.link.cuts and kind in (DATA, FIN):
            self.wait_for_acks()
        if kind == DATA:
            assert isinstance(payload, bytes)
            self.record("net.held", size=len(payload))

    def queued(self, size: int, wait_s: float) -> None:
        """The segment waits for its turn on a link whose bandwidth a fault limits."""
        self.record("net.queued", size=size, wait_s=wait_s)

    def lost(self, kind: int, payload: Payload, count: int) -> None:
        """The segment was lost. If it was a refusal, what it refused stays unanswered."""
        self._let_peer_wait_for_answer(kind == RESET and payload == NO_CONNECTION)
        self.record("net.lost", size=len(payload) if type(payload) is bytes else 0, count=count)

    def arrived(self, kind: int, payload: Payload) -> None:
        """The segment is at the other end now."""
        peer = self.peer
        if kind == SYN:
            if not self.closed and not self.network.accept_syn(self):
                assert isinstance(payload, int)
                self._lane.send_again(SYN_AGAIN_S * 2**payload, SYN, payload + 1)
        elif peer is None:
            assert kind == RESET, "only a handshake makes a peer"
        elif peer.aborted or (peer.closed and (kind == DATA or (kind == SYN_ACK and not peer.established))):
            if kind not in (RESET, WINDOW):
                peer.refuse()
        else:
            peer.receive(kind, payload)

    # --- for its peer -----------------------------------------------------------------------------------------------

    def refuse(self) -> None:
        """Answer a segment that nobody wants by a reset, as a system does that knows no such connection."""
        self._stop()
        self._transmit(RESET, NO_CONNECTION)
        self._let_peer_wait_for_answer(self.link.cuts)
        self.forget_if_idle()

    def _let_peer_wait_for_answer(self, is_lost: bool) -> None:
        """What was refused has no answer if the refusal is lost: its sender gives up in the end."""
        if is_lost and self.peer is not None:
            self.peer.wait_for_acks()

    def receive(self, kind: int, payload: Payload) -> None:
        """A segment from the peer."""
        if self.torn:
            return
        if kind == DATA:
            assert isinstance(payload, bytes)
            self.received += payload
            if self.link.cuts and self.peer is not None:
                self.peer.wait_for_acks()
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
            kernel.call_at(kernel.now_s + SYN_AGAIN_S * 2 ** (self._answers - 1), self._answer_syn_again)
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
