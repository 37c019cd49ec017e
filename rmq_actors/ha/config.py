"""Settings of high availability: RocketMQ's keys in Python's spelling, with their unit and 4.9's defaults."""

from __future__ import annotations

import attrs

from rmq_actors.wire.address import IllegalAddress, parse_address
from rmq_actors.wire.ha_frames import MAX_BODY_BYTES, SLAVE_BUFFER_BYTES, TRANSFER_HEADER_BYTES


def _address(_: object, attribute: attrs.Attribute[str | None], value: str | None) -> None:
    if value is not None:
        try:
            parse_address(value)
        except IllegalAddress as error:
            raise IllegalAddress(f"{attribute.name}: {error}") from error


@attrs.frozen
class HaConfig:
    """Raises `ValueError` naming the field that is out of range.

    `ha_listen_host` is loopback unless told; port 0 lets the system choose. `read_buffer_bytes` bounds a frame that a
    slave takes.
    """

    ha_listen_host: str = "127.0.0.1"
    ha_listen_port: int = attrs.field(default=10912, validator=[attrs.validators.ge(0), attrs.validators.le(65535)])
    ha_master_address: str | None = attrs.field(default=None, validator=_address)
    ha_send_heartbeat_interval_ms: int = attrs.field(default=5_000, validator=attrs.validators.ge(1))
    ha_housekeeping_interval_ms: int = attrs.field(default=20_000, validator=attrs.validators.ge(1))
    ha_transfer_batch_size_bytes: int = attrs.field(
        default=32 * 1024, validator=[attrs.validators.ge(1), attrs.validators.le(MAX_BODY_BYTES)]
    )
    acks_required: int = attrs.field(default=1, validator=attrs.validators.ge(1))
    connections_max: int = attrs.field(default=64, validator=attrs.validators.ge(1))
    connect_timeout_ms: int = attrs.field(default=5_000, validator=attrs.validators.ge(1))
    reconnect_pause_min_ms: int = attrs.field(default=100, validator=attrs.validators.ge(1))
    reconnect_pause_max_ms: int = attrs.field(default=5_000, validator=attrs.validators.ge(1))
    read_buffer_bytes: int = attrs.field(
        default=SLAVE_BUFFER_BYTES, validator=attrs.validators.ge(TRANSFER_HEADER_BYTES + 1)
    )

    @property
    def heartbeat_interval_s(self) -> float:
        """haSendHeartbeatInterval in seconds."""
        return self.ha_send_heartbeat_interval_ms / 1000

    @property
    def housekeeping_interval_s(self) -> float:
        """haHousekeepingInterval in seconds."""
        return self.ha_housekeeping_interval_ms / 1000
