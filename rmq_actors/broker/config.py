"""The settings of one broker (BrokerConfig): its name and role, store, replication, ports and name servers."""

from __future__ import annotations

import ipaddress
import logging

import attrs

from rmq_actors.broker.quotas import Quotas
from rmq_actors.ha.config import HaConfig
from rmq_actors.protocols.broker_registration import register_period_s
from rmq_actors.remoting.config import RemotingClientConfig, RemotingServerConfig
from rmq_actors.settings.configure import Key, Keys
from rmq_actors.settings.field_types import typed_fields
from rmq_actors.store.config import BrokerRole, MessageStoreConfig
from rmq_actors.wire.address import IllegalAddress, check_host, parse_address

_log = logging.getLogger(__name__)

#: brokerId of a master; slaves have higher ones.
MASTER_ID = 0
#: How far the second ("fast", VIP) port is below listenPort, and the HA port above it.
_FAST_PORT_BELOW = 2
_HA_PORT_ABOVE = 1
#: Other addresses of 127.0.0.0/8 are not the same one: two brokers of a machine may each have one.
_LOCALHOST = {"localhost": "127.0.0.1"}
_WILDCARDS = ("", "0.0.0.0", "::")  # noqa: S104 - to refuse them

#: Properties of a broker that are not spelt by the rule. RocketMQ has one name space for all of them.
BROKER_KEYS: Keys = {
    "ha.connections_max": Key("haConnectionsMax"),
    "ha.connections_max_per_address": Key("haConnectionsMaxPerAddress"),
    "ha.handshakes_max": Key("haHandshakesMax"),
    "ha.connect_timeout_ms": Key("haConnectTimeout"),
    "ha.reconnect_pause_min_ms": Key("haReconnectPauseMin"),
    "ha.reconnect_pause_max_ms": Key("haReconnectPauseMax"),
    "ha.read_buffer_bytes": Key("haReadBuffer"),
    "remoting.listen_host": Key("bindAddress"),  # of RocketMQ 5
    "remoting.backlog": Key("serverSocketBacklog"),
    "remoting.limits.channel_max_idle_time_ms": Key("serverChannelMaxIdleTimeSeconds", 1000),
    "remoting_client.connect_timeout_ms": Key("connectTimeoutMillis"),
    "remoting_client.limits.channel_max_idle_time_ms": Key("clientChannelMaxIdleTimeSeconds", 1000),
    "remoting_client.limits.frame_max_length_bytes": Key("clientFrameMaxLength"),
    "remoting_client.limits.in_flight_requests_max": Key("clientAsyncSemaphoreValue"),
    "remoting_client.limits.write_buffer_high_water_mark_bytes": Key("clientWriteBufferHighWaterMark"),
    "remoting_client.limits.write_buffer_max_bytes": Key("clientWriteBufferMax"),
}

#: As long as the name of the topic that is named so.
_NAME_CHARS_MAX = 127
#: They part the names of actors, and those of brokers in an ordered topic's setting ("broker-a:4;broker-b:4").
_NOT_IN_NAMES = "/:;"
_AT_LEAST_1 = attrs.validators.ge(1)
_PERM = [attrs.validators.ge(0), attrs.validators.le(7)]


def _name(_: object, attribute: attrs.Attribute[str], value: str) -> None:
    """RocketMQ checks nothing, and takes a host's name, dots included, for a broker's."""
    if not value:
        raise ValueError(f"{attribute.name}: it is empty; name servers and a topic know it by that name")
    if len(value) > _NAME_CHARS_MAX:
        raise ValueError(f"{attribute.name}: it has {len(value)} characters, at most {_NAME_CHARS_MAX} are taken")
    if bad := sorted({char for char in value if char in _NOT_IN_NAMES or char.isspace() or not char.isprintable()}):
        shown = " ".join(map(repr, bad))
        raise ValueError(f"{attribute.name}: {value!r} has {shown}: no space, control character or {_NOT_IN_NAMES}")


def _split(addresses: str) -> list[str]:
    """As Java splits: separators at the end begin no part."""
    return addresses.rstrip(";").split(";")


def _is_addresses(_: object, attribute: attrs.Attribute[str | None], value: str | None) -> None:
    for text in () if value is None else _split(value):
        _is_address(_, attribute, text)


def _is_address(_: object, attribute: attrs.Attribute[str | None], value: str | None) -> None:
    if value is not None:
        try:
            parse_address(value)
        except IllegalAddress as error:
            raise IllegalAddress(f"{attribute.name}: {error}") from error


def _is_host(_: object, attribute: attrs.Attribute[str], value: str) -> None:
    try:
        check_host(value)
    except IllegalAddress as error:
        raise IllegalAddress(f"{attribute.name}: {error}") from error


def _is_loopback(host: str) -> bool:
    """Whether an address leads only to this machine."""
    try:
        return host.lower() == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False  # a name, which is not looked up for this


def _is_reached(listen_host: str, host: str) -> bool:
    """Whether a port of `listen_host` is certainly one of `host`."""
    if listen_host in _WILDCARDS:
        return _is_loopback(host)
    return _LOCALHOST.get(listen_host.lower(), listen_host) == _LOCALHOST.get(host.lower(), host)


@attrs.frozen(field_transformer=typed_fields)
class BrokerConfig:
    """Raises `ValueError` naming the field that is out of range, or when a slave could find no master to follow.

    More than 20 fields because they are RocketMQ's settings of a broker.
    """

    #: The name that a master and its slaves share. Peers of another name are not believed: a slave with a wrong one
    #: follows nobody. Up to 127 characters, with no space, "/", ":" or ";" among them.
    broker_name: str = attrs.field(default="broker-a", validator=_name)
    #: The message store; its `broker_role` makes the broker a master or a slave.
    store: MessageStoreConfig = attrs.field(factory=MessageStoreConfig)
    #: Replication, in both roles.
    ha: HaConfig = attrs.field(factory=HaConfig)

    # Remoting (NettyServerConfig, NettyClientConfig).

    #: The port for requests. None: there is no port but the HA port, and there are no name servers, topics and
    #: administrators. With its port 0 the system chooses, and there is no fast port, which others find by the number of
    #: the first.
    remoting: RemotingServerConfig | None = None
    #: Whether there is the fast port, listenPort - 2. Without it a RocketMQ slave finds no topics here.
    has_fast_port: bool = True
    #: How it asks name servers and its master.
    remoting_client: RemotingClientConfig = attrs.field(factory=RemotingClientConfig)

    # What it says of itself.

    #: Which cluster it registers with. mqadmin and clients see brokers by cluster, and a topic of this name is made.
    broker_cluster_name: str = attrs.field(default="DefaultCluster", validator=_name)
    #: Tells the brokers of one name apart: two with the same one take each other's place in the routes. A master's is
    #: 0, whatever is set; a slave's is greater.
    broker_id: int = MASTER_ID
    #: What clients may do with its topics: 4 reads, 2 writes, 6 both. Less than 6 is registered for every topic; so a
    #: broker is taken out of service without being stopped.
    broker_permission: int = attrs.field(default=6, validator=_PERM)
    #: The address that name servers give to clients; by default where it listens. With 127.0.0.1 nobody on another
    #: machine finds the broker.
    broker_ip1: str = attrs.field()
    #: The address that name servers give to slaves, for the HA port; by default `broker_ip1`.
    broker_ip2: str = attrs.field()

    # Name servers.

    #: "host:port;host:port". Each is told of the broker by itself. None: it registers nowhere, or asks an address
    #: server.
    namesrv_addr: str | None = attrs.field(default=None, validator=_is_addresses)
    #: Without `namesrv_addr`, ask a web server which name servers there are; then they may move. Needs the extra
    #: [server].
    fetch_namesrv_addr_by_address_server: bool = False
    #: The web server's host, with a port if that is not 8080.
    rmq_address_server_domain: str = "jmenv.tbsite.net"
    #: The last part of the path that is asked for.
    rmq_address_server_sub_group: str = "nsaddr"

    # Registration.

    #: How often name servers are told that the broker lives; taken as 10 s to 60 s. Name servers drop one after 120 s
    #: of silence, so a longer period leaves fewer attempts.
    register_name_server_period_ms: int = attrs.field(default=30_000, validator=_AT_LEAST_1)
    #: How long a name server's answer is waited for. Longer delays no other name server.
    register_broker_timeout_ms: int = attrs.field(default=6_000, validator=_AT_LEAST_1)
    #: Compress the topics in registrations: smaller requests for thousands of topics, for some CPU time.
    compressed_register: bool = False
    #: Send the topics with every registration. False: ask first, and send them where the name server lacks them, which
    #: costs a request more and saves the body.
    force_register: bool = True

    #: Where a slave's master answers requests, "host:port". Without it, and without name servers that tell it, the
    #: slave can compare no logs and copy no metadata: it follows unasked. RocketMQ has no such key.
    master_addr: str | None = attrs.field(default=None, validator=_is_address)
    #: How often consumer offsets are written to the disk. After a crash consumers read again what they have consumed
    #: since.
    flush_consumer_offset_interval_ms: int = attrs.field(default=5_000, validator=_AT_LEAST_1)

    # Access control.

    #: Check the signature and the rights of every request, by conf/plain_acl.yml and conf/acl. False: whoever reaches
    #: the port may do everything.
    acl_enable: bool = False
    #: Where conf/ is: a directory below the root of the disk.
    rocketmq_home: str = ""
    #: Keys, separated by ";", that no request may change. Leave these two in it.
    config_black_list: str = "configBlackList;brokerConfigPath"

    # Topics that it has from its start.

    #: The topic TBW102, whose routes producers use for topics that do not exist yet. False: topics are made by hand.
    auto_create_topic_enable: bool = True
    #: How many queues TBW102 has, and so a topic that is made after it at most.
    default_topic_queue_nums: int = attrs.field(default=8, validator=_AT_LEAST_1)
    #: Clients may read and write the topic that is named as the cluster.
    cluster_topic_enable: bool = True
    #: The same for the topic that is named as the broker.
    broker_topic_enable: bool = True
    #: Make a consumer group when a client names it first. False: an operator makes groups, and consumers of any other
    #: name are refused.
    auto_create_subscription_group: bool = True
    #: Make the topic to which clients send their message traces.
    trace_topic_enable: bool = False
    #: Its name. Clients must be given the same one.
    msg_trace_topic_name: str = "RMQ_SYS_TRACE_TOPIC"

    # Clients.

    #: How much clients may have it keep for them. RocketMQ has no such keys.
    quotas: Quotas = attrs.field(factory=Quotas)
    #: Send consumers that lag far behind to a slave, which takes the reads of old messages off the master's disk; and
    #: those that have caught up back to the broker that their group names. False: the master is always suggested; a
    #: slave serves whoever asks it all the same, as in RocketMQ, or nobody could read while the master is down.
    slave_read_enable: bool = False
    #: Turn groups off that are far behind the end of the log (`consumer_fallbehind_threshold_bytes`), looked at every 3
    #: minutes: they read from the disk, which slows everybody else down. Such a group gets nothing any more until an
    #: operator turns it on again.
    disable_consume_if_consumer_read_slowly: bool = False
    #: How far behind that is. Less turns groups off that would have caught up.
    consumer_fallbehind_threshold_bytes: int = attrs.field(default=16 * 1024 * 1024 * 1024, validator=_AT_LEAST_1)
    #: Let consumers subscribe with expressions of SQL92 on properties. The broker then reads each message that such a
    #: consumer comes to, 10 us and more. False: such consumers are refused. Needs the extra [server].
    enable_property_filter: bool = False
    #: Hold a pull that finds nothing for as long as its consumer wants. False: for `short_polling_time_ms` alone, so
    #: that consumers ask more often.
    long_polling_enable: bool = True
    #: How long pulls are held without long polling. Shorter costs requests of idle consumers, longer holds no message
    #: up: a held pull is answered when one comes.
    short_polling_time_ms: int = attrs.field(default=1_000, validator=_AT_LEAST_1)
    #: How many messages of one connection may be stored and wait for a disk or a slave; one more is answered
    #: SYSTEM_BUSY. Fewer keep a sync producer with many in flight waiting, more cost memory while nothing is confirmed.
    send_thread_pool_queue_capacity: int = attrs.field(default=10_000, validator=_AT_LEAST_1)
    #: Store replies to request messages in the cluster's reply topic, too. False: they are only handed to the client
    #: that asked, and are lost if it is gone.
    store_reply_message_enable: bool = True
    #: Refuse transactional messages. RocketMQ's switch for brokers that are not to have them.
    reject_transaction_message: bool = False
    #: How often the broker looks for transactions that have not ended, and asks their producers. Less asks sooner, and
    #: each time a message is stored again.
    transaction_check_interval_ms: int = attrs.field(default=60_000, validator=_AT_LEAST_1)
    #: How long a producer has to end a transaction before it is asked; a message may say otherwise
    #: (CHECK_IMMUNITY_TIME_IN_SECONDS).
    transaction_time_out_ms: int = attrs.field(default=6_000, validator=_AT_LEAST_1)
    #: How often producers are asked about a message; then it goes to TRANS_CHECK_MAX_TIME_TOPIC, for an operator.
    transaction_check_max: int = attrs.field(default=15, validator=_AT_LEAST_1)
    #: Where a Prometheus scrapes this broker: `GET /metrics`. None: nowhere. 0 lets the system choose a port. Needs the
    #: extra [server]. (A key of RocketMQ 5, where `metricsExporterType` turns it on.)
    metrics_prom_exporter_port: int | None = attrs.field(
        default=None, validator=attrs.validators.optional([attrs.validators.ge(0), attrs.validators.le(65535)])
    )
    #: The address of that port. Loopback, the default, lets no other machine scrape; nobody is asked who he is, and
    #: the answer names topics and groups.
    metrics_prom_exporter_host: str = attrs.field(default="127.0.0.1", validator=_is_host)
    #: How many topics, and how many groups of a topic, have series of their own; what comes after that is summed as
    #: "other". Each is kept by every Prometheus that scrapes, for as long as that keeps anything. RocketMQ has no such
    #: key.
    metrics_topics_max: int = attrs.field(default=200, validator=_AT_LEAST_1)
    #: What producers are told of where their messages are; message traces carry it.
    region_id: str = "DefaultRegion"
    #: Whether producers are to write message traces, if their program has these turned on.
    trace_on: bool = True

    @broker_ip1.default
    def _listen_host(self) -> str:
        return self.remoting.listen_host if self.remoting is not None else "127.0.0.1"

    @broker_ip2.default
    def _broker_ip1(self) -> str:
        return self.broker_ip1

    def __attrs_post_init__(self) -> None:
        if self.remoting is not None:
            self._check_remoting(self.remoting)
        elif self.uses_name_servers:
            raise ValueError(f"broker {self.broker_name}: without listenPort there is nothing to register")
        if not self.is_slave and self.broker_id != MASTER_ID:
            _log.warning("broker %s: a master's brokerId is 0, not %d", self.broker_name, self.broker_id)
            object.__setattr__(self, "broker_id", MASTER_ID)
        if self.is_slave and self.ha.ha_master_address is None and not self.uses_name_servers:
            raise ValueError(
                f"broker {self.broker_name}: brokerRole=SLAVE needs haMasterAddress, or name servers that know it"
            )
        if self.is_slave:
            self._check_master()

    def _check_master(self) -> None:
        """A slave that names itself as its master would follow itself for ever: the two logs are always the same."""
        ha, remoting = self.ha_config, self.remoting or RemotingServerConfig(listen_port=0)
        for key, address, registered_host, listen_host, port in (
            ("haMasterAddress", ha.ha_master_address, self.broker_ip2, ha.ha_listen_host, ha.listen_port),
            ("masterAddr", self.master_addr, self.broker_ip1, remoting.listen_host, remoting.listen_port),
        ):
            if not port or address is None:
                continue
            host, master_port = parse_address(address)
            if master_port == port and (host == registered_host or _is_reached(listen_host, host)):
                raise ValueError(f"broker {self.broker_name}: {key} {address} is this slave's own")

    def _check_remoting(self, remoting: RemotingServerConfig) -> None:
        if self.is_slave and self.broker_id <= MASTER_ID:
            raise ValueError(f"broker {self.broker_name}: a slave's brokerId must be > 0, not {self.broker_id}")
        for key, host in (("brokerIP1", self.broker_ip1), ("brokerIP2", self.broker_ip2)):
            if host in _WILDCARDS:
                raise ValueError(
                    f"broker {self.broker_name}: {key} {host!r} is not an address at which others reach it"
                )
            try:
                check_host(host)
            except IllegalAddress as error:
                raise IllegalAddress(f"broker {self.broker_name}: {key}: {error}") from error
        if 0 < remoting.listen_port <= _FAST_PORT_BELOW or remoting.listen_port + _HA_PORT_ABOVE > 65535:
            raise ValueError(
                f"broker {self.broker_name}: listenPort {remoting.listen_port} leaves no room for the fast port "
                f"(listenPort - {_FAST_PORT_BELOW}) and the HA port (listenPort + {_HA_PORT_ABOVE})"
            )
        if self.ha.ha_listen_port not in {None, 0, remoting.listen_port + _HA_PORT_ABOVE}:
            _log.warning(
                "broker %s: haListenPort %d is used; RocketMQ 4.9 would ignore it and use listenPort + 1",
                self.broker_name,
                self.ha.ha_listen_port,
            )

    @property
    def is_slave(self) -> bool:
        """Whether brokerRole is SLAVE."""
        return self.store.broker_role is BrokerRole.SLAVE

    @property
    def uses_name_servers(self) -> bool:
        """Whether it registers anywhere."""
        return self.namesrv_addr is not None or self.fetch_namesrv_addr_by_address_server

    @property
    def name_servers(self) -> tuple[str, ...]:
        """namesrvAddr as a list, each once."""
        return () if self.namesrv_addr is None else tuple(dict.fromkeys(_split(self.namesrv_addr)))

    @property
    def warnings(self) -> list[str]:
        """Settings that are hardly meant so; a start logs them."""
        far = [server for server in self.name_servers if not _is_loopback(parse_address(server)[0])]
        if not (far and _is_loopback(self.broker_ip1)):
            return []
        told = f"the name server {far[0]} is told that it is reached at {self.broker_ip1}"
        mend = "set brokerIP1 to this machine's address, and bindAddress to 0.0.0.0"
        return [f"broker {self.broker_name}: {told}, where other machines do not find it: {mend}"]

    @property
    def register_period_s(self) -> float:
        """registerNameServerPeriod in seconds, within its bounds."""
        return register_period_s(self.register_name_server_period_ms)

    @property
    def fast_server(self) -> RemotingServerConfig | None:
        """The second server, on listenPort - 2; None where there can be none."""
        if self.remoting is None or not self.remoting.listen_port or not self.has_fast_port:
            return None
        return attrs.evolve(self.remoting, listen_port=self.remoting.listen_port - _FAST_PORT_BELOW)

    @property
    def ha_config(self) -> HaConfig:
        """`ha` with its port: haListenPort, and unset, listenPort + 1 (RocketMQ ignores what is set: #6537)."""
        if self.remoting is None or self.ha.ha_listen_port is not None:
            return self.ha
        port = self.remoting.listen_port
        return attrs.evolve(self.ha, ha_listen_port=port + _HA_PORT_ABOVE if port else 0)
