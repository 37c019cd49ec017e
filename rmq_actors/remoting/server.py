"""Listens and serves remoting connections (NettyRemotingServer)."""

from __future__ import annotations

import errno
import logging
from collections.abc import Sequence

import attrs
import trio

from rmq_actors.ports.receive import Receive, receive_into
from rmq_actors.ports.try_send import TrySend
from rmq_actors.protocols.received_bytes import ReceivedBytes
from rmq_actors.remoting.config import RemotingServerConfig
from rmq_actors.remoting.connection import ConnectionListener, RemotingConnection
from rmq_actors.remoting.hooks import RpcHook
from rmq_actors.remoting.idle import close_idle_connections
from rmq_actors.remoting.processor import ProcessorTable
from rmq_actors.remoting.tls import TlsServer
from rmq_actors.remoting.transport import SocketTransport, Transport
from rmq_actors.sockets.tcp_listeners import open_tcp_listeners
from rmq_actors.tracing.events.remoting import RemotingClose, RemotingOpen, RemotingRefused
from rmq_actors.tracing.recorder import Tracer
from rmq_actors.wire.address import address_text

_log = logging.getLogger(__name__)

#: Errors of a passing shortage: wait and accept again, as trio.serve_listeners does.
_SHORTAGES = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ENOBUFS})
_SHORTAGE_PAUSE_S = 0.1


def received_bytes_of(config: RemotingServerConfig) -> ReceivedBytes[RemotingConnection]:
    """The limits of one server, or of several that share them."""
    return ReceivedBytes(config.received_bytes_max, config.received_bytes_per_address_max)


@attrs.define(eq=False, repr=False)
class RemotingServer:
    """A Service: listens on one address, with one task per connection. A connection's end affects no other."""

    config: RemotingServerConfig
    _processors: ProcessorTable
    _tracer: Tracer
    hooks: Sequence[RpcHook] = ()
    _listener: ConnectionListener | None = None
    name: str = "RemotingServer"
    _tls: TlsServer | None = attrs.field(default=None, kw_only=True)
    _try_send: TrySend | None = attrs.field(default=None, kw_only=True)
    _receive: Receive = attrs.field(default=receive_into, kw_only=True)
    #: What connections hold; servers that are given the same one share its limits.
    _received: ReceivedBytes[RemotingConnection] = attrs.field(
        default=attrs.Factory(lambda self: received_bytes_of(self.config), takes_self=True), kw_only=True
    )
    connections: dict[int, RemotingConnection] = attrs.field(factory=dict, init=False)
    #: "host:port" once it listens; the first one if the host's name has several addresses.
    address: str = attrs.field(default="", init=False)
    port: int = attrs.field(default=0, init=False)
    _next_conn_id: int = attrs.field(default=1, init=False)
    _accepting: trio.CancelScope = attrs.field(factory=trio.CancelScope, init=False)

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Listen and serve until asked to stop. Raises `OSError` naming an address that cannot be bound."""
        listeners = await open_tcp_listeners(
            self.config.listen_host,
            self.config.listen_port,
            settings="bindAddress, listenPort",
            backlog=self.config.backlog,
        )
        async with trio.open_nursery() as connections:
            with self._accepting:
                async with trio.open_nursery() as nursery:
                    self.address = address_text(listeners[0].socket.getsockname())
                    self.port = listeners[0].socket.getsockname()[1]
                    for listener in listeners:
                        nursery.start_soon(self._accept, listener, connections)
                    nursery.start_soon(close_idle_connections, self.connections, self.config.limits.idle_s)
                    task_status.started()
            for connection in list(self.connections.values()):
                connection.stop()

    def request_stop(self) -> None:
        """Accept nothing more; each connection sends the answers that it owes, and ends."""
        self._accepting.cancel()

    async def _accept(self, listener: trio.SocketListener, connections: trio.Nursery) -> None:
        async with listener:
            while True:
                try:
                    stream = await listener.accept()
                except OSError as error:
                    if error.errno not in _SHORTAGES:
                        raise
                    _log.warning("%s: cannot accept a connection now: %s", self.name, error)
                    await trio.sleep(_SHORTAGE_PAUSE_S)
                else:
                    connections.start_soon(self._serve, stream)

    async def _serve(self, stream: trio.SocketStream) -> None:
        try:
            peer = address_text(stream.socket.getpeername())
        except OSError as error:
            _log.info("%s: a connection ended before it was served: %s", self.name, error)
            stream.socket.close()
            return
        if len(self.connections) >= self.config.connections_max:
            _log.warning("%s: %s refused: %d connections are open", self.name, peer, len(self.connections))
            self._tracer.emit(RemotingRefused(peer_address=peer), self.name)
            stream.socket.close()
            return
        conn_id, self._next_conn_id = self._next_conn_id, self._next_conn_id + 1
        transport: Transport = (
            SocketTransport(stream, self._try_send, self._receive) if self._tls is None else self._tls.transport(stream)
        )
        connection = RemotingConnection(
            conn_id,
            peer,
            transport,
            self.config.limits,
            self._processors.process,
            self.name,
            self.hooks,
            holds_large=self._holds_large,
        )
        if not self.hooks:  # they look at each request
            connection.row_group = self._processors.row_group
        self.connections[conn_id] = connection
        await connection.run(self)

    def _holds_large(self, connection: RemotingConnection, size_bytes: int) -> None:
        host = connection.remote_address.rpartition(":")[0]
        closed = self._received.holds(connection, host, size_bytes)
        if closed is not None:
            _log.warning(
                "%s: %s is closed: it holds most of what has been received, which is too much",
                self.name,
                closed.remote_address,
            )
            closed.close("received_too_much")

    def on_connected(self, connection: RemotingConnection) -> None:
        """A `ConnectionListener`: trace, and tell the server's own listener."""
        self._tracer.emit(RemotingOpen(conn_id=connection.conn_id, peer_address=connection.remote_address), self.name)
        if self._listener is not None:
            self._listener.on_connected(connection)

    def on_closed(self, connection: RemotingConnection, reason: str) -> None:
        """A `ConnectionListener`: trace, and tell the server's own listener."""
        del self.connections[connection.conn_id]
        self._received.closed(connection)
        self._tracer.emit(RemotingClose(conn_id=connection.conn_id, status=reason), self.name)
        if self._listener is not None:
            self._listener.on_closed(connection, reason)
