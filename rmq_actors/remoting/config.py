"""Settings of remoting servers and clients (NettyServerConfig, NettyClientConfig): RocketMQ's keys with their unit."""

from __future__ import annotations

import attrs

from rmq_actors.settings.field_types import typed_fields
from rmq_actors.wire.remoting_command import FRAME_MAX_LENGTH_BYTES

_AT_LEAST_1 = attrs.validators.ge(1)
_PORT = [attrs.validators.ge(0), attrs.validators.le(65535)]


@attrs.frozen(field_transformer=typed_fields)
class ConnectionLimits:
    """What one connection may hold, on either side. Raises `ValueError` naming the field that is out of range.

    `frame_max_length_bytes` is com.rocketmq.remoting.frameMaxLength. A peer that does not read is not read from either
    above `write_buffer_high_water_mark_bytes`, unless requests of this side wait for their answers; it is cut off when
    answers that were promised before reach `write_buffer_max_bytes`, above which no request of this side is taken.
    `in_flight_requests_max` bounds requests of this side that wait for their answer (clientAsyncSemaphoreValue,
    serverAsyncSemaphoreValue).
    """

    frame_max_length_bytes: int = attrs.field(
        default=FRAME_MAX_LENGTH_BYTES, validator=[attrs.validators.ge(64), attrs.validators.le(FRAME_MAX_LENGTH_BYTES)]
    )
    channel_max_idle_time_ms: int = attrs.field(default=120_000, validator=_AT_LEAST_1)
    write_buffer_high_water_mark_bytes: int = attrs.field(default=1024 * 1024, validator=_AT_LEAST_1)
    write_buffer_max_bytes: int = attrs.field(default=64 * 1024 * 1024, validator=_AT_LEAST_1)
    in_flight_requests_max: int = attrs.field(default=65_535, validator=_AT_LEAST_1)

    def __attrs_post_init__(self) -> None:
        if self.write_buffer_max_bytes < self.write_buffer_high_water_mark_bytes:
            raise ValueError(
                f"write_buffer_max_bytes ({self.write_buffer_max_bytes}) is below "
                f"write_buffer_high_water_mark_bytes ({self.write_buffer_high_water_mark_bytes})"
            )

    @property
    def idle_s(self) -> float:
        """A connection without a byte in either direction for this long is closed."""
        return self.channel_max_idle_time_ms / 1000


@attrs.frozen(field_transformer=typed_fields)
class RemotingServerConfig:
    """Raises `ValueError` naming the field that is out of range.

    `listen_host` is loopback unless told; port 0 lets the system choose.
    """

    listen_host: str = "127.0.0.1"
    listen_port: int = attrs.field(default=8888, validator=_PORT)
    connections_max: int = attrs.field(default=4096, validator=_AT_LEAST_1)
    backlog: int = attrs.field(default=1024, validator=_AT_LEAST_1)
    limits: ConnectionLimits = attrs.field(factory=ConnectionLimits)


@attrs.frozen(field_transformer=typed_fields)
class RemotingClientConfig:
    """Raises `ValueError` naming the field that is out of range."""

    connect_timeout_ms: int = attrs.field(default=3_000, validator=_AT_LEAST_1)
    reconnect_pause_min_ms: int = attrs.field(default=100, validator=_AT_LEAST_1)
    reconnect_pause_max_ms: int = attrs.field(default=5_000, validator=_AT_LEAST_1)
    limits: ConnectionLimits = attrs.field(factory=ConnectionLimits)
