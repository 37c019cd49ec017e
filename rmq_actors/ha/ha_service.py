"""The master's side of high availability (HAService): listens, and runs one HAConnection a slave."""

from __future__ import annotations

import contextlib
import logging

import attrs
import trio

from rmq_actors.actors.services.service import ServiceThread
from rmq_actors.ha.accept_socket_service import ACCEPTED, AcceptSocketService
from rmq_actors.ha.config import HaConfig
from rmq_actors.ha.group_transfer_service import GroupTransferService
from rmq_actors.ha.ha_connection import HAConnection
from rmq_actors.ha.slave_status import HaCounters, Replicas, SlaveStatus
from rmq_actors.ha.socket_options import set_buffer_sizes
from rmq_actors.ha.tls import HaTls
from rmq_actors.ports.receive import Receive, receive_into
from rmq_actors.ports.try_send import TrySend, try_sendmsg
from rmq_actors.protocols.allowed_addresses import parse_networks
from rmq_actors.protocols.slave_admission import SlaveAdmission
from rmq_actors.sockets.network_failure import network_failure
from rmq_actors.sockets.tcp_listeners import open_tcp_listeners
from rmq_actors.store.config import BrokerRole
from rmq_actors.store.message_store import MessageStore
from rmq_actors.tracing.recorder import Tracer
from rmq_actors.wire.address import address_text

_log = logging.getLogger(__name__)

_PRINT_INTERVAL_S = 60.0


@attrs.define(eq=False, repr=False)
class HAService(ServiceThread):
    """Supervises the acceptor and the connections. A connection's end concerns nobody else."""

    name = "HAService"
    config: HaConfig
    _store: MessageStore
    _group_transfer: GroupTransferService
    _tracer: Tracer
    _try_send: TrySend = try_sendmsg
    _receive: Receive = receive_into
    _tls: HaTls | None = None
    connections: dict[int, HAConnection] = attrs.field(factory=dict, init=False)
    #: "host:port" once listening; the first one if the host's name has several addresses.
    address: str = attrs.field(default="", init=False)
    _admission: SlaveAdmission = attrs.field(init=False)
    #: The addresses of peers that shake hands, which are no slaves yet: "host:port".
    _in_handshake: set[str] = attrs.field(factory=set, init=False)
    _next_conn_id: int = attrs.field(default=1, init=False)
    _refused_connections: int = attrs.field(default=0, init=False)
    #: Of connections that are over.
    _sent_bytes: int = attrs.field(default=0, init=False)
    _ends: dict[str, int] = attrs.field(factory=dict, init=False)
    #: Of slaves that are missing, the last time.
    _said: str = attrs.field(default="", init=False)

    def __attrs_post_init__(self) -> None:
        config = self.config
        self._admission = SlaveAdmission(
            parse_networks(config.ha_allowed_addresses),
            config.connections_max,
            config.connections_max_per_address,
            config.handshakes_max,
        )

    async def work(self, task_status: trio.TaskStatus[None]) -> None:
        """Listen and serve; a stop closes every connection and the listeners.

        Raises `OSError` naming an address that cannot be bound.
        """
        # A name such as localhost may stand for several addresses.
        listeners = await open_tcp_listeners(
            self.config.ha_listen_host, self.config.listen_port, settings="haListenHost or bindAddress, haListenPort"
        )
        send, receive = ACCEPTED.open()
        async with contextlib.AsyncExitStack() as stack, trio.open_nursery() as nursery:
            stack.callback(_close_accepted, receive)
            for listener in listeners:
                await stack.enter_async_context(listener)
                nursery.start_soon(AcceptSocketService(listener, send).run)
            self.address = address_text(listeners[0].socket.getsockname())
            stack.enter_context(self._store.timer.every(_PRINT_INTERVAL_S, self._print_master_and_slave_diff, self))
            task_status.started()
            async for stream in receive:
                await self._admit(stream, nursery)

    def slave_statuses(self) -> list[SlaveStatus]:
        """How every connected slave is doing."""
        return [connection.status() for connection in self.connections.values()]

    @property
    def in_handshake(self) -> int:
        """How many peers shake hands now."""
        return len(self._in_handshake)

    def counters(self) -> HaCounters:
        """What has happened since the start."""
        sent_bytes = self._sent_bytes + sum(connection.sent_bytes for connection in self.connections.values())
        return HaCounters(self._next_conn_id - 1, self._refused_connections, sent_bytes, dict(self._ends))

    def replicas(self) -> Replicas:
        """How many copies of the log there are, and how many a put needs."""
        there, machine = 1 + len(self.connections), self._group_transfer.machine
        if self._store.config.broker_role is not BrokerRole.SYNC_MASTER:
            return Replicas(there, 1)
        if machine.acks_min is None:
            return Replicas(there, 1 + machine.acks_required, "inSyncReplicas")
        return Replicas(there, 1 + machine.acks_min, "minInSyncReplicas")

    def _print_master_and_slave_diff(self) -> None:
        """RocketMQ's BrokerController prints it each minute, too. A master tells too where a slave is missing."""
        for status in self.slave_statuses():
            _log.info("%s", status)
        is_slave, replicas = self._store.config.broker_role is BrokerRole.SLAVE, self.replicas()
        missing = "" if is_slave or self.connections else "no slave is connected"
        if replicas.are_too_few:
            _log.warning("%s", f"{missing}: {replicas}" if missing else replicas)
        elif missing != self._said and missing:
            _log.info("%s", missing)
        self._said = missing

    async def _admit(self, stream: trio.SocketStream, nursery: trio.Nursery) -> None:
        try:
            peer = address_text(stream.socket.getpeername())
            set_buffer_sizes(stream.socket, self.config)
        except OSError as error:
            _log.info("a connection ended before it was served: %s", error)
            await stream.aclose()
            return
        connected = [_host(connection.peer) for connection in self.connections.values()]
        refusal = self._admission.why_not(_host(peer), connected, [_host(each) for each in self._in_handshake])
        if refusal is not None:
            self._refuse(peer, stream.socket, refusal)
        elif self._tls is None:
            self._open(peer, stream.socket, nursery)
        else:
            self._in_handshake.add(peer)
            nursery.start_soon(self._shake_hands, peer, stream, self._tls, nursery)

    def _refuse(self, peer: str, socket: trio.socket.SocketType, why: str) -> None:
        self._refused_connections += 1
        _log.warning("slave %s refused: %s", peer, why)
        socket.close()

    async def _shake_hands(self, peer: str, stream: trio.SocketStream, tls: HaTls, nursery: trio.Nursery) -> None:
        """Not before it has ended well does the peer take a place, or count as a slave."""
        try:
            socket = await tls.accept(stream)
        except OSError as error:
            self._refuse(peer, stream.socket, network_failure(error))
        except BaseException:
            stream.socket.close()
            raise
        else:
            refusal = self._admission.why_no_more(len(self.connections))
            if refusal is None:
                self._open(peer, socket, nursery)
            else:
                self._refuse(peer, socket, refusal)
        finally:
            self._in_handshake.discard(peer)

    def _open(self, peer: str, socket: trio.socket.SocketType, nursery: trio.Nursery) -> None:
        conn_id, self._next_conn_id = self._next_conn_id, self._next_conn_id + 1
        connection = HAConnection(
            conn_id,
            peer,
            socket,
            self.config,
            self._store,
            self._group_transfer,
            self._tracer,
            self._try_send,
            self._receive,
        )
        self.connections[conn_id] = connection
        nursery.start_soon(self._serve, connection)

    async def _serve(self, connection: HAConnection) -> None:
        reason = "stopped"
        self._group_transfer.connected(connection.conn_id, _host(connection.peer))
        try:
            reason = await connection.run()
        finally:
            del self.connections[connection.conn_id]
            self._sent_bytes += connection.sent_bytes
            self._ends[reason] = self._ends.get(reason, 0) + 1
            self._group_transfer.disconnected(connection.conn_id)


def _host(address: str) -> str:
    return address.rpartition(":")[0]


def _close_accepted(receive: trio.MemoryReceiveChannel[trio.SocketStream]) -> None:
    """Close what was accepted and came too late to be served."""
    with contextlib.suppress(trio.WouldBlock):
        while True:
            receive.receive_nowait().socket.close()
