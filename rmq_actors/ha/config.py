"""Settings of high availability: RocketMQ's keys in Python's spelling, with their unit and 4.9's defaults."""

from __future__ import annotations

import attrs

from rmq_actors.settings.field_types import typed_fields
from rmq_actors.wire.address import IllegalAddress, parse_address
from rmq_actors.wire.ha_frames import MAX_BODY_BYTES, SLAVE_BUFFER_BYTES, TRANSFER_HEADER_BYTES

_BUFFER = [attrs.validators.ge(0), attrs.validators.le(2**31 - 1)]


def _address(_: object, attribute: attrs.Attribute[str | None], value: str | None) -> None:
    if value is not None:
        try:
            parse_address(value)
        except IllegalAddress as error:
            raise IllegalAddress(f"{attribute.name}: {error}") from error


@attrs.frozen(field_transformer=typed_fields)
class HaConfig:
    """Raises `ValueError` naming the field that is out of range.

    `ha_listen_host` is loopback unless told; port 0 lets the system choose, and a broker with a listenPort listens on
    the one above it unless told. `read_buffer_bytes` bounds a frame that a slave takes.

    `in_sync_replicas` copies make a put of a SYNC_MASTER replicated, the master's own among them: 2 is one slave, which
    is all that 4.9 knows. With `enable_auto_in_sync_replicas` as many as are in sync will do, but at least
    `min_in_sync_replicas`. The names are RocketMQ 5's.

    A slave without a log gets all that its master has; with `sync_from_last_file` (RocketMQ 5's name), the master's or
    for a Java master its own, what 4.9 sends: the last file. Buffer sizes of 0 are the system's; 4.9 has system
    properties for them.

    A slave whose log is no part of its master's follows no more, unless `ha_truncate_on_divergence`: then it cuts its
    log where the two part, and keeps what it has cut aside.
    """

    ha_listen_host: str = "127.0.0.1"
    ha_listen_port: int | None = attrs.field(
        default=None,
        validator=attrs.validators.optional([attrs.validators.ge(0), attrs.validators.le(65535)]),
    )
    ha_master_address: str | None = attrs.field(default=None, validator=_address)
    ha_send_heartbeat_interval_ms: int = attrs.field(default=5_000, validator=attrs.validators.ge(1))
    ha_housekeeping_interval_ms: int = attrs.field(default=20_000, validator=attrs.validators.ge(1))
    ha_transfer_batch_size_bytes: int = attrs.field(
        default=32 * 1024, validator=[attrs.validators.ge(1), attrs.validators.le(MAX_BODY_BYTES)]
    )
    ha_socket_snd_buf_size_bytes: int = attrs.field(default=0, validator=_BUFFER)
    ha_socket_rcv_buf_size_bytes: int = attrs.field(default=0, validator=_BUFFER)
    sync_from_last_file: bool = False
    total_replicas: int = attrs.field(default=2, validator=attrs.validators.ge(1))
    in_sync_replicas: int = attrs.field(default=2, validator=attrs.validators.ge(1))
    min_in_sync_replicas: int = attrs.field(default=1, validator=attrs.validators.ge(1))
    enable_auto_in_sync_replicas: bool = False
    ha_truncate_on_divergence: bool = False
    connections_max: int = attrs.field(default=64, validator=attrs.validators.ge(1))
    connect_timeout_ms: int = attrs.field(default=5_000, validator=attrs.validators.ge(1))
    reconnect_pause_min_ms: int = attrs.field(default=100, validator=attrs.validators.ge(1))
    reconnect_pause_max_ms: int = attrs.field(default=5_000, validator=attrs.validators.ge(1))
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
