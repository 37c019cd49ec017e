"""Takes brokers out of the routes that are silent, or whose connection ends (BrokerHousekeepingService)."""

from __future__ import annotations

import logging

import attrs
import trio

from rmq_actors.actors.services.service import ServiceThread
from rmq_actors.namesrv.route_table import Broker, RouteInfoManager
from rmq_actors.remoting.connection import RemotingConnection
from rmq_actors.tracing.events.namesrv import NamesrvRemove
from rmq_actors.tracing.recorder import Tracer

_log = logging.getLogger(__name__)

#: If the task wakes later than this, the whole process stood still. Then what arrived meanwhile is read for a second
#: before any broker counts as silent.
_STOOD_STILL_S = 0.1
_CATCH_UP_S = 1.0


@attrs.define(eq=False, repr=False)
class BrokerHousekeepingService(ServiceThread):
    """A Service, and the listener of the name server's connections.

    RocketMQ looks every 10 s which brokers have expired; this service sleeps until the next one expires.
    """

    name = "BrokerHousekeepingService"
    _routes: RouteInfoManager
    _tracer: Tracer
    _connections: dict[int, RemotingConnection] = attrs.field(factory=dict, init=False)

    async def work(self, task_status: trio.TaskStatus[None]) -> None:
        """Forget brokers as they expire."""
        task_status.started()
        while True:
            # A broker that registers from now on expires no sooner than `expired_s` from now.
            latest_s = trio.current_time() + self._routes.expired_s
            wake_s = min(self._routes.next_expiry_s(), latest_s)
            await trio.sleep_until(wake_s)
            stood_still = trio.current_time() - wake_s > _STOOD_STILL_S
            await trio.sleep(_CATCH_UP_S if stood_still else 0)
            self._expire()

    def on_connected(self, connection: RemotingConnection) -> None:
        """See `ConnectionListener`."""
        self._connections[connection.conn_id] = connection

    def on_closed(self, connection: RemotingConnection, reason: str) -> None:
        """See `ConnectionListener`: the brokers that were heard by it are gone."""
        del self._connections[connection.conn_id]
        for broker in self._routes.connection_closed(connection.conn_id):
            self._note_removal(broker, connection.conn_id, f"connection {reason}")

    def _expire(self) -> None:
        for info in self._routes.expire(trio.current_time()):
            self._note_removal(info.broker, info.conn_id, "expired")
            connection = self._connections.get(info.conn_id)
            if connection is not None and not self._routes.is_used(info.conn_id):
                connection.close("broker_expired")

    def _note_removal(self, broker: Broker, conn_id: int, why: str) -> None:
        _log.warning("%s is out of the routes: %s", broker, why)
        status = "expired" if why == "expired" else "closed"
        self._tracer.emit(NamesrvRemove(conn_id=conn_id, status=status, **broker.identity), self.name)
