"""Opens remoting connections on demand, one per peer, and makes requests on them (NettyRemotingClient)."""

from __future__ import annotations

import contextvars
import logging
from collections.abc import Sequence

import attrs
import trio

from rmq_actors.actors.services.service import ServiceThread
from rmq_actors.ports.entropy import Entropy
from rmq_actors.protocols.backoff import Backoff
from rmq_actors.remoting.config import RemotingClientConfig
from rmq_actors.remoting.connection import ConnectionListener, RemotingConnectError, RemotingConnection
from rmq_actors.remoting.hooks import RpcHook
from rmq_actors.remoting.idle import close_idle_connections
from rmq_actors.remoting.processor import ProcessorTable
from rmq_actors.remoting.tls import TlsClient
from rmq_actors.remoting.transport import SocketTransport, Transport
from rmq_actors.sockets.network_failure import network_failure
from rmq_actors.tracing.events.remoting import RemotingClientClose, RemotingClientConnect, RemotingClientConnectFailed
from rmq_actors.tracing.recorder import Tracer
from rmq_actors.wire.address import parse_address
from rmq_actors.wire.remoting_command import RemotingCommand

_log = logging.getLogger(__name__)

#: With more addresses than this, those about which nothing is known any more are forgotten.
_PEERS_KEPT = 1000


@attrs.define(eq=False, repr=False)
class _Peer:
    """What is known about one address."""

    address: str
    host: str
    port: int
    backoff: Backoff
    connection: RemotingConnection | None = None
    #: Set when the present attempt has ended in any way.
    attempt: trio.Event | None = None
    #: The cancel scope of the last attempt, even if its task has not run yet.
    connecting: trio.CancelScope = attrs.field(factory=trio.CancelScope)
    #: Why the last attempt failed.
    failure: str = ""
    timed_out: bool = False
    retry_at_s: float = 0.0


@attrs.define(eq=False, repr=False)
class RemotingClient(ServiceThread):
    """A Service. Requests that peers make on its connections go to `processors`.

    After a failed attempt, or a connection that soon ended without a frame, the next attempt waits: a pause that
    doubles, with jitter.
    """

    config: RemotingClientConfig
    _entropy: Entropy
    _tracer: Tracer
    _processors: ProcessorTable
    hooks: Sequence[RpcHook] = ()
    name: str = "RemotingClient"
    _tls: TlsClient | None = attrs.field(default=None, kw_only=True)
    #: Hears of connections that begin and end.
    listener: ConnectionListener | None = attrs.field(default=None, init=False)
    connections: dict[int, RemotingConnection] = attrs.field(factory=dict, init=False)
    _peers: dict[str, _Peer] = attrs.field(factory=dict, init=False)
    _next_conn_id: int = attrs.field(default=1, init=False)
    _nursery: trio.Nursery | None = attrs.field(default=None, init=False)
    #: That of the client: a connection outlives the task whose request opens it.
    _context: contextvars.Context = attrs.field(factory=contextvars.Context, init=False)

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Keep the connections until asked to stop. Then each sends what was requested before, and ends."""
        try:
            async with trio.open_nursery() as nursery:
                self._nursery, self._context = nursery, contextvars.copy_context()
                try:
                    await super().run(task_status=task_status)
                finally:
                    # Before the nursery ends: other tasks still make requests, and it takes no new task any more.
                    self._nursery = None
                for peer in self._peers.values():
                    peer.connecting.cancel()
                for connection in list(self.connections.values()):
                    connection.stop()
        finally:
            for peer in self._peers.values():
                if peer.attempt is not None:
                    peer.failure = "not connected before the client was cancelled"
                    self._end_attempt(peer)

    async def work(self, task_status: trio.TaskStatus[None]) -> None:
        """Close connections that nobody uses."""
        task_status.started()
        await close_idle_connections(self.connections, self.config.limits.idle_s)

    async def invoke(
        self, address: str, command: RemotingCommand, timeout_ms: int, *, deadline_s: float | None = None
    ) -> RemotingCommand:
        """Send a request to "host:port" and wait for its answer, whatever its code; connect first if need be.

        `deadline_s`: when the time-out ends, if a part of it has passed already.

        Raises `RemotingConnectError`, `RemotingSendRequestError`, `RemotingTimeoutError`,
        `RemotingTooMuchRequestError`, `IllegalAddress`, and what a hook raises.
        """
        if deadline_s is None:
            deadline_s = trio.current_time() + timeout_ms / 1000
        connection = self._open_connection(address) or await self._connection(address, deadline_s)
        return await connection.invoke(command, timeout_ms, deadline_s=deadline_s)

    async def invoke_oneway(self, address: str, command: RemotingCommand, timeout_ms: int) -> None:
        """Send a one-way request; `timeout_ms` is for connecting. Raises as `invoke`."""
        connection = await self._connection(address, trio.current_time() + timeout_ms / 1000)
        connection.invoke_oneway(command)

    def _open_connection(self, address: str) -> RemotingConnection | None:
        peer = self._peers.get(address)
        if peer is None or peer.connection is None or peer.connection.close_reason is not None:
            return None
        return peer.connection

    async def _connection(self, address: str, deadline_s: float) -> RemotingConnection:
        """An open connection. Tasks share one attempt to connect, and hear of its failure at once."""
        while True:
            peer = self._peer(address)
            if peer.connection is not None and peer.connection.close_reason is None:
                return peer.connection
            if self._nursery is None:
                raise RemotingConnectError(f"{address}: the client is not running")
            if peer.attempt is None and trio.current_time() < peer.retry_at_s:
                if peer.retry_at_s >= deadline_s:
                    why = f"{address}: {peer.failure}; the next attempt would come too late"
                    raise RemotingConnectError(why, timed_out=peer.timed_out)
                await trio.sleep_until(peer.retry_at_s)
            else:
                await self._await_attempt(peer, deadline_s)

    async def _await_attempt(self, peer: _Peer, deadline_s: float) -> None:
        if peer.attempt is None:
            assert self._nursery is not None
            peer.attempt, peer.connecting = trio.Event(), trio.CancelScope()
            self._context.run(self._nursery.start_soon, self._attempt, peer)
        with trio.move_on_at(deadline_s) as waiting:
            await peer.attempt.wait()
        if waiting.cancelled_caught:
            raise RemotingConnectError(f"{peer.address}: not connected in time", timed_out=True)
        if peer.connection is None:
            raise RemotingConnectError(f"{peer.address}: {peer.failure}", timed_out=peer.timed_out)

    def _peer(self, address: str) -> _Peer:
        peer = self._peers.get(address)
        if peer is None:
            host, port = parse_address(address)
            if len(self._peers) >= _PEERS_KEPT:
                self._forget_peers()
            pauses = self.config.reconnect_pause_min_ms / 1000, self.config.reconnect_pause_max_ms / 1000
            peer = self._peers[address] = _Peer(address, host, port, Backoff(*pauses))
        return peer

    def _forget_peers(self) -> None:
        now_s = trio.current_time()
        for peer in list(self._peers.values()):
            if peer.connection is None and peer.attempt is None and peer.retry_at_s <= now_s:
                del self._peers[peer.address]

    async def _attempt(self, peer: _Peer) -> None:
        """Connect, and serve the connection until it ends."""
        transport: Transport | None = None
        peer.connecting.deadline = trio.current_time() + self.config.connect_timeout_ms / 1000
        try:
            with peer.connecting:
                stream = await trio.open_tcp_stream(peer.host, peer.port)
                transport = SocketTransport(stream) if self._tls is None else await self._tls.connect(stream, peer.host)
        except OSError as error:
            self._attempt_failed(peer, network_failure(error), timed_out=isinstance(error, TimeoutError))
            return
        if transport is None:
            within = f"within {self.config.connect_timeout_ms} ms" if self._nursery else "before the client stopped"
            self._attempt_failed(peer, f"not connected {within}", timed_out=True)
            return
        if self._nursery is None:
            transport.close()
            self._attempt_failed(peer, "connected when the client stopped")
            return
        conn_id, self._next_conn_id = self._next_conn_id, self._next_conn_id + 1
        connection = RemotingConnection(
            conn_id,
            peer.address,
            transport,
            self.config.limits,
            self._processors.process,
            self.name,
            request_hooks=self.hooks,
        )
        await connection.run(self)

    def on_connected(self, connection: RemotingConnection) -> None:
        """A `ConnectionListener`: wake the tasks that wait for the connection."""
        peer = self._peers[connection.remote_address]
        self.connections[connection.conn_id] = connection
        peer.connection = connection
        self._end_attempt(peer)
        self._tracer.emit(RemotingClientConnect(conn_id=connection.conn_id, peer_address=peer.address), self.name)
        if self.listener is not None:
            self.listener.on_connected(connection)

    def on_closed(self, connection: RemotingConnection, reason: str) -> None:
        """A `ConnectionListener`: the next request connects again, without a pause if this one lasted or had frames."""
        del self.connections[connection.conn_id]
        peer = self._peers[connection.remote_address]
        if peer.connection is connection:
            peer.connection = None
        lasted_s = trio.current_time() - connection.opened_s
        if connection.frames_received or lasted_s >= self.config.reconnect_pause_max_ms / 1000:
            peer.backoff.succeeded()
        else:
            self._pause(peer, f"the last connection ended ({reason}) without an answer")
        self._tracer.emit(RemotingClientClose(conn_id=connection.conn_id, status=reason), self.name)
        if self.listener is not None:
            self.listener.on_closed(connection, reason)

    def _attempt_failed(self, peer: _Peer, failure: str, *, timed_out: bool = False) -> None:
        # Debug only: the caller gets the error, and knows better what it means.
        _log.debug("%s: %s", peer.address, failure)
        self._tracer.emit(RemotingClientConnectFailed(peer_address=peer.address, detail=failure[:200]), self.name)
        self._pause(peer, failure)
        peer.timed_out = timed_out
        self._end_attempt(peer)

    def _pause(self, peer: _Peer, failure: str) -> None:
        peer.failure = failure
        peer.retry_at_s = trio.current_time() + peer.backoff.next_pause_s(self._entropy.random())

    def _end_attempt(self, peer: _Peer) -> None:
        if peer.attempt is not None:
            peer.attempt.set()
            peer.attempt = None
