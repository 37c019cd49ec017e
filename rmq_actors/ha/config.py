"""Settings of high availability: RocketMQ's keys in Python's spelling, with their unit and 4.9's defaults."""

from __future__ import annotations

import attrs

from rmq_actors.protocols.allowed_addresses import parse_networks
from rmq_actors.settings.field_types import typed_fields
from rmq_actors.wire.address import IllegalAddress, check_host, parse_address
from rmq_actors.wire.ha_frames import MAX_BODY_BYTES, SLAVE_BUFFER_BYTES, TRANSFER_HEADER_BYTES

_BUFFER = [attrs.validators.ge(0), attrs.validators.le(2**31 - 1)]


def _address(_: object, attribute: attrs.Attribute[str | None], value: str | None) -> None:
    if value is not None:
        try:
            parse_address(value)
        except IllegalAddress as error:
            raise IllegalAddress(f"{attribute.name}: {error}") from error


def _host(_: object, attribute: attrs.Attribute[str], value: str) -> None:
    try:
        check_host(value)
    except IllegalAddress as error:
        raise IllegalAddress(f"{attribute.name}: {error}") from error


def _networks(_: object, attribute: attrs.Attribute[str], value: str) -> None:
    try:
        parse_networks(value)
    except ValueError as error:
        raise ValueError(f"{attribute.name}: {error}") from error


@attrs.frozen(field_transformer=typed_fields)
class HaConfig:
    """How brokers replicate: what a master serves, and how a slave follows. A broker of either role has all of these.

    More than 20 fields because they are the settings of replication. Raises `ValueError` naming the field that is out
    of range.
    """

    #: Where slaves connect. Loopback, the default, lets no other machine follow; "0.0.0.0" lets any, and slaves are not
    #: asked who they are: keep the port behind a firewall.
    ha_listen_host: str = attrs.field(default="127.0.0.1", validator=_host)
    #: None: the port above listenPort, where RocketMQ's slaves expect it, or 10912 without one. 0: one that the system
    #: chooses, which others learn from name servers alone.
    ha_listen_port: int | None = attrs.field(
        default=None,
        validator=attrs.validators.optional([attrs.validators.ge(0), attrs.validators.le(65535)]),
    )
    #: Which master a slave follows, "host:port" of its HA port. None: the one that name servers name, so the slave
    #: finds the next master by itself.
    ha_master_address: str | None = attrs.field(default=None, validator=_address)
    #: How long either side sends nothing before it sends a heartbeat. It must be well below the peer's
    #: haHousekeepingInterval, or idle connections are dropped again and again.
    ha_send_heartbeat_interval_ms: int = attrs.field(default=5_000, validator=attrs.validators.ge(1))
    #: How long a peer may be silent before its connection is dropped. Longer: after a slave has died,
    #: a SYNC_MASTER's puts run into slaveTimeout for that long. Shorter: a stall of some seconds costs a connection.
    ha_housekeeping_interval_ms: int = attrs.field(default=20_000, validator=attrs.validators.ge(1))
    #: The most log bytes in one frame. Larger frames cost less per byte; a slave appends nothing of a frame before it
    #: has all of it. RocketMQ's slaves have a buffer of 4 MiB.
    ha_transfer_batch_size_bytes: int = attrs.field(
        default=32 * 1024, validator=[attrs.validators.ge(1), attrs.validators.le(MAX_BODY_BYTES)]
    )
    #: The sockets' send buffer. 0, the system's own, grows by itself; a fixed size bounds what a slow slave pins in the
    #: kernel, and the speed over long distances. (A system property in 4.9.)
    ha_socket_snd_buf_size_bytes: int = attrs.field(default=0, validator=_BUFFER)
    #: The same for their receive buffer.
    ha_socket_rcv_buf_size_bytes: int = attrs.field(default=0, validator=_BUFFER)
    #: A slave with an empty log gets the master's last file alone, as in RocketMQ 4.9: it is in sync soon, and never
    #: has the history. False: it gets everything. At a slave it counts for a Java master. (A name of RocketMQ 5.)
    sync_from_last_file: bool = False
    #: How many copies of the log there are, the master's own among them: the upper bound of `in_sync_replicas`.
    total_replicas: int = attrs.field(default=2, validator=attrs.validators.ge(1))
    #: How many copies a put of a SYNC_MASTER waits for, the master's own among them. 2 is one slave, as in 4.9. 1 waits
    #: for none; more survive the loss of more machines, and wait for the slowest of them. (RocketMQ 5.)
    in_sync_replicas: int = attrs.field(default=2, validator=attrs.validators.ge(1))
    #: With `enable_auto_in_sync_replicas`, the fewest copies that will do. 1: a master without slaves goes on alone,
    #: and what it confirms then is lost with its disk. (RocketMQ 5.)
    min_in_sync_replicas: int = attrs.field(default=1, validator=attrs.validators.ge(1))
    #: Puts wait for no more slaves than keep up. False: with too few slaves puts are answered SLAVE_NOT_AVAILABLE.
    #: True: puts go on being confirmed while slaves are away, with fewer copies. (RocketMQ 5.)
    enable_auto_in_sync_replicas: bool = False
    #: A slave whose log has diverged from its master's cuts it by itself, keeps what it cuts in cut/, and follows
    #: again. False: it halts until an operator decides, and is no copy of anything meanwhile.
    ha_truncate_on_divergence: bool = False
    #: How many slaves, or peers that claim to be slaves, may be connected; one more is closed at once.
    connections_max: int = attrs.field(default=64, validator=attrs.validators.ge(1))
    #: Who may be a slave: addresses and networks, "10.0.0.7;10.1.0.0/16". Others are closed at once, and neither read
    #: the log nor count as replicas. Empty: whoever reaches the port. RocketMQ has no such key.
    ha_allowed_addresses: str = attrs.field(default="", validator=_networks)
    #: How many of them may have the same address, so that one machine takes no places from slaves on others; those over
    #: loopback are not counted. Slaves that share an address, such as that of an address translation, need more.
    connections_max_per_address: int = attrs.field(default=16, validator=attrs.validators.ge(1))
    #: Speak TLS with slaves and with the master, by the certificates of the `tls.` keys; whoever speaks plain text,
    #: RocketMQ's brokers too, is refused. So all brokers of one name need the same. RocketMQ has no such key.
    ha_tls_enable: bool = False
    #: With `ha_tls_enable`: how many peers may shake hands at a time; one more is closed at once. Too few: peers that
    #: never end their handshakes keep slaves out until they are cut off. Each costs memory and a file descriptor.
    handshakes_max: int = attrs.field(default=256, validator=attrs.validators.ge(1))
    #: How long a slave waits for a master to accept. Too short: a far or busy master is never followed.
    connect_timeout_ms: int = attrs.field(default=5_000, validator=attrs.validators.ge(1))
    #: The pause before a slave connects again after its first failure. It doubles with each failure, up to the next
    #: one.
    reconnect_pause_min_ms: int = attrs.field(default=100, validator=attrs.validators.ge(1))
    #: How late a slave may notice that its master is back.
    reconnect_pause_max_ms: int = attrs.field(default=5_000, validator=attrs.validators.ge(1))
    #: The largest frame that a slave takes, with its header, and memory that it holds. A master that sends larger ones
    #: (its haTransferBatchSize) is refused.
    read_buffer_bytes: int = attrs.field(
        default=SLAVE_BUFFER_BYTES, validator=attrs.validators.ge(TRANSFER_HEADER_BYTES + 1)
    )

    def __attrs_post_init__(self) -> None:
        if not self.min_in_sync_replicas <= self.in_sync_replicas <= self.total_replicas:
            raise ValueError(
                f"min_in_sync_replicas {self.min_in_sync_replicas}, in_sync_replicas {self.in_sync_replicas} and "
                f"total_replicas {self.total_replicas} are not in this order: set total_replicas (2 by default) to how "
                "many copies there are, with the master's own"
            )

    @property
    def acks_required(self) -> int:
        """How many slaves must have a put."""
        return self.in_sync_replicas - 1

    @property
    def acks_min(self) -> int | None:
        """How few slaves will do when no more are in sync; None: `acks_required` always."""
        return self.min_in_sync_replicas - 1 if self.enable_auto_in_sync_replicas else None

    @property
    def listen_port(self) -> int:
        """haListenPort, or RocketMQ's default."""
        return 10912 if self.ha_listen_port is None else self.ha_listen_port

    @property
    def heartbeat_interval_s(self) -> float:
        """haSendHeartbeatInterval in seconds."""
        return self.ha_send_heartbeat_interval_ms / 1000

    @property
    def housekeeping_interval_s(self) -> float:
        """haHousekeepingInterval in seconds."""
        return self.ha_housekeeping_interval_ms / 1000
