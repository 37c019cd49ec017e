"""Keeps a broker registered with its name servers, and a slave informed of its master (the timer of registerBrokerAll).

Drives `protocols.broker_registration`.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Awaitable, Callable, Sequence

import attrs
import trio

from rmq_actors.actors.services.channels import LatestReceiver, LatestSender
from rmq_actors.actors.services.service import ServiceThread, WakeUp
from rmq_actors.broker.broker_outer_api import (
    BrokerIdentity,
    BrokerOuterAPI,
    MQBrokerError,
    RegisterBrokerResult,
    TopicTableTooLong,
    register_broker_body,
)
from rmq_actors.broker.config import BrokerConfig
from rmq_actors.broker.topics import TopicConfigManager
from rmq_actors.ports.entropy import Entropy
from rmq_actors.protocols.broker_registration import BrokerRegistration, MasterAddresses, NameServerRequest
from rmq_actors.remoting.connection import (
    RemotingConnectError,
    RemotingConnection,
    RemotingError,
    RemotingSendRequestError,
)
from rmq_actors.tracing.events.broker import BrokerMaster, BrokerRegister, BrokerUnregister
from rmq_actors.tracing.recorder import Tracer
from rmq_actors.wire.address import IllegalAddress, parse_address
from rmq_actors.wire.bodies.topic_configs import DataVersion
from rmq_actors.wire.remoting_command import RemotingCommandError

_log = logging.getLogger(__name__)

#: Asks the address server for the name servers. Raises `OSError` when it does not tell.
FetchNameServers = Callable[[], Awaitable[Sequence[str]]]

#: When the address server is asked first, and the pause before it is asked again.
FETCH_FIRST_S = 10.0
FETCH_PERIOD_S = 120.0

#: How long a change of a topic is held up, at most, by name servers that do not answer: clients wait for 3 s.
TELL_TOPICS_MAX_S = 2.0

#: How often, at most, a slave logs that a name server knows no master for it.
_NO_MASTER_PAUSE_S = 60.0

#: What a request can fail by.
_FAILURES = (RemotingError, MQBrokerError, RemotingCommandError, TopicTableTooLong)


@attrs.define(eq=False, repr=False)
class BrokerRegistrationService(ServiceThread):
    """Registers from its start to its orderly stop, which unregisters.

    It has to be the `ConnectionListener` of the client, to notice name servers that die.
    """

    name = "BrokerRegistrationService"
    _config: BrokerConfig
    _api: BrokerOuterAPI
    _topics: TopicConfigManager
    _topic_changes: LatestReceiver[DataVersion]
    _ha_masters: LatestSender[str]
    _masters: LatestSender[str]
    _entropy: Entropy
    _tracer: Tracer
    _fetch_name_servers: FetchNameServers | None = None
    _machine: BrokerRegistration = attrs.field(init=False)
    _known: MasterAddresses = attrs.field(factory=MasterAddresses, init=False)
    #: When it was logged last that there is no master.
    _no_master_s: float = attrs.field(default=-math.inf, init=False)
    #: The last version of the topics that the machine was told of.
    _noted: DataVersion | None = attrs.field(default=None, init=False)
    _body: tuple[tuple[DataVersion, int], bytes] | None = attrs.field(default=None, init=False)
    _wake: WakeUp = attrs.field(factory=WakeUp, init=False)
    _progress: trio.Event = attrs.field(factory=trio.Event, init=False)

    def __attrs_post_init__(self) -> None:
        config = self._config
        self._machine = BrokerRegistration(config.is_slave, config.force_register, config.register_period_s)

    @property
    def master(self) -> MasterAddresses:
        """Where this slave's master is, as far as its name servers have told."""
        return self._machine.master

    def change_role(
        self,
        identity: BrokerIdentity,
        ha_masters: LatestSender[str],
        masters: LatestSender[str],
        *,
        is_slave: bool,
    ) -> None:
        """Register at once with the new role and address; a slave tells these two where its next master is."""
        self._api = attrs.evolve(self._api, identity=identity)
        self._ha_masters, self._masters, self._known = ha_masters, masters, MasterAddresses()
        self._no_master_s = -math.inf
        self._machine.identity_changed(trio.current_time(), is_slave=is_slave)
        self._wake.wakeup("role")

    async def register_topics(self) -> None:
        """Return when the name servers have the topics as they are now (registerIncrementBrokerData).

        One that is silent is waited for `TELL_TOPICS_MAX_S`, and no more after registerBrokerTimeoutMills.
        """
        self._noted = self._topics.data_version
        number = self._machine.want_topics_told()
        self._wake.wakeup("topics")
        with trio.move_on_after(min(TELL_TOPICS_MAX_S, self._config.register_broker_timeout_ms / 1000)) as scope:
            while not self._machine.are_told(number):
                await self._progress.wait()
        if scope.cancelled_caught:
            _log.warning("%s: not every name server has answered to the change of a topic", self.name)

    async def wait_until_registered(self) -> None:
        """Return when every name server has this broker. Without any it does not return."""
        while not self._machine.is_registered_everywhere:
            await self._progress.wait()

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Register until asked to stop, then unregister."""
        self._machine.name_servers_changed(self._config.name_servers, trio.current_time())
        await super().run(task_status=task_status)
        async with trio.open_nursery() as nursery:
            for address in self._machine.may_know_broker:
                nursery.start_soon(self._unregister, address)

    async def work(self, task_status: trio.TaskStatus[None]) -> None:
        """Register when the machine says so; a stop cancels the requests that are under way."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._watch_topics)
            if self._fetch_name_servers is not None:
                nursery.start_soon(self._watch_name_servers, self._fetch_name_servers)
            task_status.started()
            while True:
                for request in self._machine.requests(trio.current_time()):
                    nursery.start_soon(self._execute, request)
                await self._wake.wait_for_running(self._machine.wake_at)

    def on_connected(self, connection: RemotingConnection) -> None:
        """A `ConnectionListener`."""

    def on_closed(self, connection: RemotingConnection, reason: str) -> None:
        """A `ConnectionListener`: a name server that loses a connection forgets the broker that used it."""
        self._machine.disconnected(connection.remote_address, trio.current_time(), self._entropy.random())
        self._wake.wakeup("disconnected")

    # --- what happens -------------------------------------------------------------------------------------------------

    async def _watch_topics(self) -> None:
        async for version in self._topic_changes:
            if version != self._noted:
                self._noted = version
                self._machine.topics_changed()
                self._wake.wakeup("topics")

    async def _watch_name_servers(self, fetch: FetchNameServers) -> None:
        await trio.sleep(FETCH_FIRST_S)
        while True:
            try:
                addresses = await fetch()
            except OSError as error:
                _log.warning("%s: the name servers stay as they are: %s", self.name, error)
            else:
                self._machine.name_servers_changed(addresses, trio.current_time())
                self._tell_progress()
                self._wake.wakeup("name_servers")
            await trio.sleep(FETCH_PERIOD_S)

    # --- requests -----------------------------------------------------------------------------------------------------

    async def _execute(self, request: NameServerRequest) -> None:
        """Make one request with the topics as they are now, and tell the machine how it ended."""
        address, api, machine = request.namesrv_addr, self._api, self._machine
        timeout_ms, compressed = self._config.register_broker_timeout_ms, self._config.compressed_register
        status = "ok"
        try:
            if request.kind == "query_data_version":
                has_changed = await api.need_register(address, self._topics.data_version, timeout_ms)
                machine.compared(address, trio.current_time(), has_changed=has_changed)
            elif request.kind == "register_oneway":
                await api.register_broker_oneway(address, self._encode(), timeout_ms, compressed=compressed)
                machine.sent(address)
            else:
                result = await api.register_broker(address, self._encode(), timeout_ms, compressed=compressed)
                await self._registered(address, result)
        except _FAILURES as error:
            status = type(error).__name__
            _log.warning("cannot register with name server %s: %s", address, _without(address, error))
            # If the connection ended, nobody refused: the name server is gone, or is back and knows no broker.
            was_reached = not isinstance(error, RemotingConnectError | RemotingSendRequestError)
            machine.failed(address, trio.current_time(), self._entropy.random(), was_reached=was_reached)
        self._tell_progress()
        self._tracer.emit(BrokerRegister(status=status, peer_address=address, request=request.kind))
        self._wake.wakeup("request")

    def _encode(self) -> bytes:
        # At a slave the permission changes without the version.
        of = self._topics.data_version, self._topics.broker_permission
        if self._body is None or self._body[0] != of:
            topics = self._topics.topic_config_serialize_wrapper()
            self._body = of, register_broker_body(topics, compressed=self._config.compressed_register)
        return self._body[1]

    async def _registered(self, address: str, result: RegisterBrokerResult) -> None:
        """A name server has answered: tell the machine, the HAClient and waiting tasks; take its settings of topics."""
        own = self._api.identity
        said = MasterAddresses(
            self._checked(address, result.master_addr, own.broker_addr),
            self._checked(address, result.ha_server_addr, own.ha_server_addr),
        )
        self._machine.answered(address, said, trio.current_time(), self._entropy.random())
        self._learn(address, said)
        if self._machine.is_slave and result.master_addr is None:
            self._warn_of_no_master(address)
        self._tell_progress()
        if result.order_topics is not None and self._machine.is_first_registered(address):
            try:
                await self._topics.update_order_topic_config(result.order_topics)
            except OSError as error:
                _log.error("%s: ordered topics are not persisted: %s", self.name, error)

    def _warn_of_no_master(self, address: str) -> None:
        now, own = trio.current_time(), self._api.identity
        if now - self._no_master_s < _NO_MASTER_PAUSE_S:
            return
        self._no_master_s = now
        _log.warning(
            "name server %s knows no master of brokerName %s in brokerClusterName %s: it is asked again",
            address,
            own.broker_name,
            own.cluster_name,
        )

    def _tell_progress(self) -> None:
        progress, self._progress = self._progress, trio.Event()
        progress.set()

    def _checked(self, namesrv_addr: str, address: str | None, own: str) -> str | None:
        """The master's address as a name server gave it; None if it is not an address, or this broker's own."""
        if address is None:
            return None
        try:
            parse_address(address)
        except IllegalAddress as error:
            _log.warning("%s: name server %s gives a bad address of the master: %s", self.name, namesrv_addr, error)
            return None
        if address == own:
            _log.warning("%s: name server %s takes %s, this slave, for its master", self.name, namesrv_addr, own)
            return None
        return address

    def _learn(self, address: str, said: MasterAddresses) -> None:
        master, known = self._machine.master, self._known
        if not said.agrees_with(master):
            _log.warning("%s: name server %s names %s, %s is kept", self.name, address, said, master)
        if master == known:
            return
        self._known = master
        _log.info("%s: the master is %s", self.name, master)
        self._tracer.emit(
            BrokerMaster(master_addr=master.master_addr or "", ha_server_addr=master.ha_server_addr or "")
        )
        if master.ha_server_addr is not None and master.ha_server_addr != known.ha_server_addr:
            self._ha_masters.put(master.ha_server_addr)
        if master.master_addr is not None and master.master_addr != known.master_addr:
            self._masters.put(master.master_addr)

    async def _unregister(self, address: str) -> None:
        status = "ok"
        try:
            await self._api.unregister_broker(address)
        except _FAILURES as error:
            status = type(error).__name__
            _log.warning("cannot unregister from name server %s: %s", address, _without(address, error))
        self._tracer.emit(BrokerUnregister(status=status, peer_address=address))


def _without(address: str, error: Exception) -> str:
    """What an error says; the line names the address already."""
    return str(error).removeprefix(f"{address}: ")
