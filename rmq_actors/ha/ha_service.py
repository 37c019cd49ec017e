"""The master's side of high availability (HAService): listens, and runs one HAConnection a slave."""

from __future__ import annotations

import contextlib
import logging

import attrs
import trio

from rmq_actors.ha.accept_socket_service import ACCEPTED, AcceptSocketService
from rmq_actors.ha.config import HaConfig
from rmq_actors.ha.group_transfer_service import SlaveEvent
from rmq_actors.ha.ha_connection import HAConnection
from rmq_actors.store.message_store import MessageStore
from rmq_actors.tracing.recorder import Tracer
from rmq_actors.wire.address import address_text

_log = logging.getLogger(__name__)


@attrs.define(eq=False)
class HAService:
    """Supervises the acceptor and the connections. A connection's end concerns nobody else."""

    name = "HAService"
    config: HaConfig
    _store: MessageStore
    _events: trio.MemorySendChannel[SlaveEvent]
    _tracer: Tracer
    connections: dict[int, HAConnection] = attrs.field(factory=dict, init=False)
    #: "host:port" once listening; the first one if the host's name has several addresses.
    address: str = attrs.field(default="", init=False)
    _next_conn_id: int = attrs.field(default=1, init=False)
    _scope: trio.CancelScope = attrs.field(factory=trio.CancelScope, init=False)

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Listen and serve until asked to stop. Raises `OSError` if the address cannot be bound."""
        # A name such as localhost may stand for several addresses.
        listeners = await trio.open_tcp_listeners(self.config.ha_listen_port, host=self.config.ha_listen_host)
        send, receive = ACCEPTED.open()
        with self._scope:
            async with contextlib.AsyncExitStack() as stack, trio.open_nursery() as nursery:
                for listener in listeners:
                    await stack.enter_async_context(listener)
                    nursery.start_soon(AcceptSocketService(listener, send).run)
                self.address = address_text(listeners[0].socket.getsockname())
                task_status.started()
                async for stream in receive:
                    await self._admit(stream, nursery)

    def request_stop(self) -> None:
        """Close every connection and the listener."""
        self._scope.cancel()

    async def _admit(self, stream: trio.SocketStream, nursery: trio.Nursery) -> None:
        try:
            peer = address_text(stream.socket.getpeername())
        except OSError as error:
            _log.info("a connection ended before it was served: %s", error)
            await stream.aclose()
            return
        if len(self.connections) >= self.config.connections_max:
            _log.warning("slave %s refused: %d connections are open already", peer, self.config.connections_max)
            await stream.aclose()
            return
        conn_id, self._next_conn_id = self._next_conn_id, self._next_conn_id + 1
        connection = HAConnection(conn_id, peer, stream, self.config, self._store, self._events, self._tracer)
        self.connections[conn_id] = connection
        nursery.start_soon(self._serve, connection)

    async def _serve(self, connection: HAConnection) -> None:
        try:
            await self._events.send(SlaveEvent(connection.conn_id, "connected"))
            await connection.run()
        finally:
            del self.connections[connection.conn_id]
        await self._events.send(SlaveEvent(connection.conn_id, "disconnected"))
