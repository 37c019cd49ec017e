"""High availability: the connections of slaves, and the slave's client."""

from __future__ import annotations

from rmq_actors.tracing.event import Event, attribute


class HaConnectionOpen(Event, kind="ha.connection.open", emitter="ha.ha_connection", actor="HAConnection"):
    """A slave connected."""

    conn_id: int
    peer_address: str = attribute("network.peer.address")


class HaConnectionClose(Event, kind="ha.connection.close", emitter="ha.ha_connection", actor="HAConnection"):
    """A slave's connection ended; status says why."""

    conn_id: int
    status: str


class HaReport(Event, kind="ha.report", emitter="ha.read_socket_service", actor="ReadSocketService"):
    """A slave reported its offset."""

    conn_id: int
    offset: int
    conn_dir: int = 0


class HaTransfer(Event, kind="ha.transfer", emitter="ha.write_socket_service", actor="WriteSocketService"):
    """Log bytes were handed to the socket."""

    conn_id: int
    offset: int
    size: int
    conn_dir: int = 1


class HaHeartbeat(Event, kind="ha.heartbeat", emitter="ha.write_socket_service", actor="WriteSocketService"):
    """An empty frame was sent."""

    conn_id: int
    offset: int
    conn_dir: int = 1


class HaReplicated(Event, kind="ha.replicated", emitter="ha.group_transfer_service", actor="GroupTransferService"):
    """Enough live slaves have everything before offset."""

    offset: int


class HaClientConnect(Event, kind="ha.client.connect", emitter="ha.ha_client", actor="HAClient"):
    """Connected to the master."""

    peer_address: str = attribute("network.peer.address")


class HaClientClose(Event, kind="ha.client.close", emitter="ha.ha_client", actor="HAClient"):
    """The connection to the master ended; status says why."""

    status: str


class HaClientReport(Event, kind="ha.client.report", emitter="ha.reporter", actor="HAClient"):
    """The slave reported its offset."""

    offset: int
    conn_dir: int = 0


class HaClientRedirect(Event, kind="ha.client.redirect", emitter="ha.ha_client", actor="HAClient"):
    """The slave is told where its master serves the log, for the first time or again."""

    peer_address: str = attribute("network.peer.address")


class HaClientCompare(Event, kind="ha.client.compare", emitter="ha.master_check", actor="HAClient"):
    """The slave asked the master about its log's end, at offset.

    status: same, slave_ahead, diverged, no_master, role_changed, old_term, other_name, lookup_failed or no_answer.
    """

    offset: int
    status: str
    questions: int


class HaClientHalt(Event, kind="ha.client.halt", emitter="ha.ha_client", actor="HAClient"):
    """The slave follows no more, its log ends at offset; status says why."""

    offset: int
    status: str
    peer_address: str = attribute("network.peer.address")
    detail: str
