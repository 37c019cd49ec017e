"""One end of a simulated TCP connection: a pure callback machine, driven by its socket and by the kernel.

What it models: the handshake, in-order delivery in segments with latency, bounded buffers with a receive window,
half-close, reset, and links that are cut (segments wait and are sent again after healing), held, stalled (the window is
shut), slow, narrow or lossy (a loss costs a retransmission time-out, unless others follow). A reset is not sent again
after a loss: a peer beyond a cut link stays half-open until it sends, as does the peer of a machine without power.

There are no acknowledgements on the wire. A segment counts as unacknowledged while it, or the way back, is stopped by
a cut link; when that lasts for `LinkConfig.retransmit_timeout_s`, the connection ends with ETIMEDOUT. Shut windows
are probed as `window_probe` says.

Here is what a segment means to the connection. The states, and what an event makes of each, are in `tcp_state`; how it
begins in `handshake`; what the socket sees in `stream`; what was written and has not left in `send_buffer`; what a
segment meets on its way in `lane`.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from sim_net.net.ack_timer import AckTimer
from sim_net.net.handshake import Handshake
from sim_net.net.lane import Lane
from sim_net.net.segment import (
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
from sim_net.net.send_buffer import SendBuffer
from sim_net.net.stream import Stream
from sim_net.net.tcp_state import CLOSED, Event, State

if TYPE_CHECKING:
    from sim_net.net.link import Link
    from sim_net.net.network import Network
    from sim_net.net.stream_socket import StreamSocket
    from sim_net.node import Node


class Endpoint:
    """One end. `link` is the way out of it; `peer` is the other end, once there is one."""

    __slots__ = (
        "_ack_timer",
        "_lane",
        "closed",
        "handshake",
        "link",
        "local",
        "network",
        "node",
        "peer",
        "remote",
        "serial",
        "stream",
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
        kernel, config, cut = network.kernel, network.link_config, node.short_io.cut
        self.network = network
        self.node = node
        self.link = link
        self.local = local
        self.remote = remote
        self.serial = network.next_serial()
        self.peer: Endpoint | None = None
        #: The socket is closed: nobody reads here any more, but what was written still goes out.
        self.closed = False
        lane = self._lane = Lane(network, link, self, self.serial)
        outgoing = SendBuffer(kernel, self, link, lane, cut, size_bytes=send_bytes, segment_bytes=config.segment_bytes)
        self.stream = Stream(kernel, outgoing, receive_bytes, cut, self.record)
        self.handshake = Handshake(kernel, self.stream, lane, self._opened)
        self._ack_timer = AckTimer(kernel, config.retransmit_timeout_s, self._time_out)
        link.endpoints[self.serial] = self

    @property
    def state(self) -> State:
        """The state of the connection at this end."""
        return self.stream.state

    # --- for the socket ---------------------------------------------------------------------------------------------

    def connect_to_itself(self) -> None:
        """Its own request has arrived."""
        self.peer = self
        self.handshake.meet_itself()

    def answer(self, client: Endpoint, listener: StreamSocket) -> None:
        """Answer a request of `client`, as its other end."""
        self.peer, client.peer = client, self
        self.handshake.answer(listener, partial(listener.connection_ready, self))

    def consumed(self, size: int) -> None:
        """`size` received bytes were taken."""
        opens_by = self.stream.incoming.took(size)
        if opens_by and self.state.receives:
            self._lane.transmit(WINDOW, opens_by)

    def shut_down_write(self) -> None:
        """Nothing more is written: the end follows what is in the send buffer."""
        if self.state.may_write:
            self.stream.step(Event.SHUT_WRITE)
            self.stream.outgoing.end()

    def close(self) -> None:
        """The socket was closed: the end follows the data, or a reset if there is something that nobody will read."""
        if self.closed:
            return
        self.closed = True
        if self.state.is_broken:
            self.forget()
        elif self.state.connects:
            self.abort("closed")
        elif self.stream.incoming.data:
            self.abort("unread_data")
        else:
            self.shut_down_write()
            self._forget_if_over()

    def abort(self, status: str) -> None:
        """End without ceremony: the peer sees a reset, unless the link is cut."""
        if self.state.refuses:
            return
        was_broken = self.state.is_broken
        self._stop()
        self._lane.lose_parked()
        if self.peer is not None and not was_broken:
            self._lane.transmit(RESET, status)
        self._forget_if_idle()

    def vanish(self) -> None:
        """The machine lost its power: nobody is told. What is on the wire already arrives."""
        self._stop()
        self._lane.lose_parked()
        self._forget_if_idle()

    def tear(self, status: str) -> None:
        """The connection was reset here: by the peer, or by a fault."""
        if not (self.state.is_broken or self.state.refuses):
            self._break(Event.RESET, status)

    def record(self, kind: str, **attributes: str | float) -> None:
        """A journal entry of this node about its peer."""
        self.network.journal.record(self.node.name, kind, peer=self.link.target_name, **attributes)

    # --- for links and faults ---------------------------------------------------------------------------------------

    def pump(self) -> None:
        """The link is not stalled any more: what was written leaves, as far as the peer's window allows."""
        self.stream.outgoing.pump()

    def link_cut(self) -> None:
        """Nothing gets out any more: what waits to be sent, for a window too, will not be acknowledged."""
        if not self.stream.outgoing.is_empty:
            self.wait_for_acks()

    def resume(self, after_s: float) -> None:
        """The link lets segments pass again: those that waited leave in `after_s` seconds, in order."""
        self._ack_timer.stop()
        if not self._lane.go_on(after_s):
            self.stream.outgoing.ask_for_window(after_s)

    def way_back_healed(self) -> None:
        """Acknowledgements get through again."""
        if not self.link.cuts:
            self._ack_timer.stop()
        self.stream.outgoing.ask_for_window()

    # --- for its lane and its send buffer ---------------------------------------------------------------------------

    @property
    def peer_is_gone(self) -> bool:
        """Whether the other end would answer by a reset."""
        return self.peer is not None and self.peer.state.refuses

    def left(self) -> None:
        """Some of what was written has left: there may be room again."""
        self.stream.wake_writer_if_writable()

    def wait_for_acks(self) -> None:
        """End the connection if nothing is acknowledged for the retransmission time-out."""
        if self.state.is_known and not self.state.is_broken:
            self._ack_timer.wait()

    def stop_waiting_for_acks(self) -> None:
        """Acknowledgements get through, as far as this end can tell."""
        self._ack_timer.stop()

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
        elif peer.state.refuses or (peer.closed and kind == DATA):
            if kind not in (RESET, WINDOW):
                peer.refuse()
        else:
            peer.receive(kind, payload)

    def forget(self) -> None:
        """Nothing more is sent from here."""
        self.link.endpoints.pop(self.serial, None)

    # --- for its peer -----------------------------------------------------------------------------------------------

    def refuse(self) -> None:
        """Answer a segment that nobody wants by a reset, as a system does that knows no such connection."""
        self._stop()
        self._lane.transmit(RESET, NO_CONNECTION)
        self._let_peer_wait_for_answer(self.link.cuts)
        self._forget_if_idle()

    def receive(self, kind: int, payload: Payload) -> None:
        """A segment from the peer; an end that has broken takes no notice."""
        stream = self.stream
        if stream.state.is_broken:
            return
        if kind == DATA:
            assert isinstance(payload, bytes)
            stream.incoming.data += payload
            if self.link.cuts and self.peer is not None:
                self.peer.wait_for_acks()
            stream.wake_reader()
        elif kind == WINDOW:
            assert isinstance(payload, int)
            stream.outgoing.reopened(payload)
        elif kind == FIN:
            stream.incoming.ends = True
            if not stream.state.connects:  # else it counts once the handshake is over
                self._receive_end()
            stream.wake_reader()
            self._forget_if_over()
        elif kind == RESET:
            assert isinstance(payload, str)
            self.tear(payload)
        elif kind == SYN_ACK:
            self.handshake.receive_second()
        else:
            self.handshake.receive_third()

    def end_arrived(self) -> None:
        """The end of what was sent here is at the peer."""
        self.stream.step(Event.FIN_ACKED)

    # --- below ------------------------------------------------------------------------------------------------------

    def _opened(self) -> None:
        """The handshake is over at this end."""
        assert self.peer is not None
        self.stream.outgoing.opened(self.peer.stream.incoming.window_bytes)
        if self.stream.incoming.ends:
            self._receive_end()

    def _receive_end(self) -> None:
        assert self.peer is not None
        self.stream.step(Event.FIN)
        self.peer.end_arrived()

    def _stop(self) -> None:
        """Nothing is sent any more but resets, and nobody reads; a peer that waits for the window may find out."""
        self.closed = True
        self.stream.step(Event.ABORT)
        self._drop()
        self._let_peer_ask()

    def _time_out(self) -> None:
        self._break(Event.TIME_OUT, "timed_out")
        self._let_peer_ask()

    def _break(self, event: Event, status: str) -> None:
        is_noticed = not self.closed and not self.state.connects
        self.stream.step(event)
        self._lane.clear()
        self._drop()
        if is_noticed:
            self.record("net.reset", status=status)
        self.stream.wake()
        self.forget()

    def _drop(self) -> None:
        self.stream.outgoing.drop()
        self._ack_timer.stop()

    def _let_peer_ask(self) -> None:
        if self.peer is not None:
            self.peer.stream.outgoing.peer_has_gone()

    def _let_peer_wait_for_answer(self, is_lost: bool) -> None:
        """What was refused has no answer if the refusal is lost: its sender gives up in the end."""
        if is_lost and self.peer is not None:
            self.peer.wait_for_acks()

    def _forget_if_idle(self) -> None:
        """Forget an aborted end whose last segments are out."""
        if self._lane.is_empty:
            self.forget()

    def _forget_if_over(self) -> None:
        """Both ends were closed: neither has anything to send."""
        if self.closed and self.state is CLOSED:
            assert self.peer is not None
            self.forget()
            self.peer.forget()
