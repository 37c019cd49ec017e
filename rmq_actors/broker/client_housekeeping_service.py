"""Takes silent and lost clients out of their groups (ClientHousekeepingService, Broker2Client)."""

from __future__ import annotations

import itertools
import logging
from collections.abc import Iterable
from typing import Final

import attrs
import trio

from rmq_actors.actors.services.service import ServiceThread, WakeUp
from rmq_actors.broker.pull_request_hold_service import PullRequestHoldService
from rmq_actors.protocols.consumer_groups import ConsumerGroups, ProducerGroups, expired
from rmq_actors.protocols.queue_locks import QueueLocks
from rmq_actors.remoting.connection import RemotingConnection, RemotingError
from rmq_actors.wire.headers import encode_header
from rmq_actors.wire.headers.clients import NotifyConsumerIdsChangedRequestHeader
from rmq_actors.wire.remoting_command import RemotingCommand
from rmq_actors.wire.request_code import RequestCode

_log = logging.getLogger(__name__)

SCAN_INTERVAL_S: Final = 10.0


@attrs.define(eq=False, repr=False)
class ClientHousekeepingService(ServiceThread):
    """A `ConnectionListener` of both servers. It looks every 10 s for silent clients, while there are any."""

    _hold_service: PullRequestHoldService
    name = "ClientHousekeepingService"
    consumers: ConsumerGroups[RemotingConnection] = attrs.field(factory=ConsumerGroups, init=False)
    producers: ProducerGroups[RemotingConnection] = attrs.field(factory=ProducerGroups, init=False)
    locks: QueueLocks = attrs.field(factory=QueueLocks, init=False)
    _has_clients: WakeUp = attrs.field(factory=WakeUp, init=False)

    def heard_of_clients(self) -> None:
        """A client has come: look for silent ones from now on."""
        self._has_clients.wakeup()

    def on_connected(self, connection: RemotingConnection) -> None:
        """Does nothing: a connection becomes a client with its first heartbeat."""

    def on_closed(self, connection: RemotingConnection, reason: str) -> None:
        """Take the client out of its groups, and tell their other members."""
        self._hold_service.closed(connection)
        self.producers.closed(connection)
        for group in self.consumers.closed(connection):
            _log.info("consumer %s has left group %s: %s", connection.remote_address, group, reason)
            self.notify_consumer_ids_changed(group)

    def notify_consumer_ids_changed(self, group: str) -> None:
        """Tell a group that its members have changed: they share out the queues again."""
        self._notify(group, self.consumers.members(group))

    def _notify(self, group: str, members: Iterable[RemotingConnection]) -> None:
        ext_fields = encode_header(NotifyConsumerIdsChangedRequestHeader(group))
        for connection in members:
            request = RemotingCommand(RequestCode.NOTIFY_CONSUMER_IDS_CHANGED, ext_fields=dict(ext_fields))
            try:
                connection.invoke_oneway(request)
            except RemotingError as error:
                # It is about to leave, or will share out the queues by itself within 20 s.
                _log.info("%s was not told that group %s has changed: %s", connection.remote_address, group, error)

    async def work(self, task_status: trio.TaskStatus[None]) -> None:
        """Close the connections of silent clients."""
        task_status.started()
        while True:
            await self._has_clients.wait_for_running(float("inf"))
            while self.consumers.groups or self.producers.groups or self.locks.count:
                await trio.sleep(SCAN_INTERVAL_S)
                self._scan(trio.current_time())

    def _scan(self, now_s: float) -> None:
        self.locks.forget_expired(now_s)
        for connection in expired(itertools.chain(self.consumers.clients(), self.producers.clients()), now_s):
            _log.warning("client %s has not been heard of for too long", connection.remote_address)
            connection.close("no_heartbeat")
