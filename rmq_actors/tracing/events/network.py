"""The simulated network: the journal of sim_net tells of it."""

from __future__ import annotations

from rmq_actors.tracing.event import Event


class NetConnect(Event, kind="net.connect", emitter="sim_net.net.stream_socket", actor="sim_net"):
    """A connection attempt ended: ok, refused or timed_out."""

    status: str
    peer: str


class NetReset(Event, kind="net.reset", emitter="sim_net.net.endpoint", actor="sim_net"):
    """A connection was reset."""

    status: str
    peer: str


class NetPartialWrite(Event, kind="net.partial_write", emitter="sim_net.net.endpoint", actor="sim_net"):
    """A send took fewer bytes than offered."""

    size: int
    peer: str


class NetPartialRead(Event, kind="net.partial_read", emitter="sim_net.net.endpoint", actor="sim_net"):
    """A receive gave fewer bytes than there were."""

    size: int
    peer: str


class NetStall(Event, kind="net.stall", emitter="sim_net.net.stream_socket", actor="sim_net"):
    """A sender waits: no room in the send buffer."""

    peer: str


class NetHeld(Event, kind="net.held", emitter="sim_net.net.endpoint", actor="sim_net"):
    """A packet could not pass a partitioned, held or stalled link."""

    size: int
    peer: str


class NetLost(Event, kind="net.lost", emitter="sim_net.net.endpoint", actor="sim_net"):
    """A packet was lost, count times until it passed."""

    size: int
    peer: str
    count: int


class NetQueued(Event, kind="net.queued", emitter="sim_net.net.endpoint", actor="sim_net"):
    """A segment leaves wait_s late: a throttled link."""

    size: int
    peer: str
    wait_s: float


class NetDuplicated(Event, kind="net.duplicated", emitter="sim_net.net.datagram_socket", actor="sim_net"):
    """A datagram arrives twice."""

    size: int
    peer: str


class NetReordered(Event, kind="net.reordered", emitter="sim_net.net.datagram_socket", actor="sim_net"):
    """A datagram is overtaken by later ones."""

    size: int
    peer: str


class NetDropped(Event, kind="net.dropped", emitter="sim_net.net.datagram_socket", actor="sim_net"):
    """A datagram found a full receive buffer."""

    size: int
    peer: str
