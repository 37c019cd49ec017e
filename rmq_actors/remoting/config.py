"""Settings of remoting servers and clients (NettyServerConfig, NettyClientConfig): RocketMQ's keys with their unit."""

from __future__ import annotations

import attrs

from rmq_actors.settings.field_types import typed_fields
from rmq_actors.wire.address import IllegalAddress, check_host
from rmq_actors.wire.frame_reader import buffer_bytes_for
from rmq_actors.wire.remoting_command import FRAME_MAX_LENGTH_BYTES

_AT_LEAST_1 = attrs.validators.ge(1)
_PORT = [attrs.validators.ge(0), attrs.validators.le(65535)]


def _host(_: object, attribute: attrs.Attribute[str], value: str) -> None:
    try:
        check_host(value)
    except IllegalAddress as error:
        raise IllegalAddress(f"{attribute.name}: {error}") from error


@attrs.frozen(field_transformer=typed_fields)
class ConnectionLimits:
    """What one connection may hold, on either side. Raises `ValueError` naming the field that is out of range."""

    #: The longest frame that is read; a longer one ends the connection. Each connection may hold that much memory.
    #: Messages and tables of topics must fit (com.rocketmq.remoting.frameMaxLength).
    frame_max_length_bytes: int = attrs.field(
        default=FRAME_MAX_LENGTH_BYTES, validator=[attrs.validators.ge(64), attrs.validators.le(FRAME_MAX_LENGTH_BYTES)]
    )
    #: How long a connection may have no byte in either direction before it is closed. It must be longer than a peer's
    #: heartbeats and registrations, or these connect each time.
    channel_max_idle_time_ms: int = attrs.field(default=120_000, validator=_AT_LEAST_1)
    #: While so many bytes wait to be sent, the peer is not read from either, unless requests of this side wait for
    #: their answers: a peer that does not read slows down itself alone.
    write_buffer_high_water_mark_bytes: int = attrs.field(default=1024 * 1024, validator=_AT_LEAST_1)
    #: When so many bytes wait, no request of this side is taken any more, and a peer for which promised answers reach
    #: it is cut off. It bounds the memory for each connection.
    write_buffer_max_bytes: int = attrs.field(default=64 * 1024 * 1024, validator=_AT_LEAST_1)
    #: How many requests of this side may wait for their answers; one more fails at once (clientAsyncSemaphoreValue,
    #: serverAsyncSemaphoreValue).
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
    """Raises `ValueError` naming the field that is out of range."""

    #: Where it listens. Loopback, the default, serves no other machine; "0.0.0.0" serves all: then protect the port by
    #: access control, TLS or a firewall.
    listen_host: str = attrs.field(default="127.0.0.1", validator=_host)
    #: 0 lets the system choose a free one, which is another one after each start.
    listen_port: int = attrs.field(default=8888, validator=_PORT)
    #: How many connections may be open; one more is closed at once. Each may hold what `limits` say.
    connections_max: int = attrs.field(default=4096, validator=_AT_LEAST_1)
    #: How many connections the kernel keeps that are not accepted yet: more than that at once, after a restart say, are
    #: delayed or refused.
    backlog: int = attrs.field(default=1024, validator=_AT_LEAST_1)
    #: What frames that are still on their way may take in memory in all, of both ports of a broker together. Beyond it
    #: the connection that holds most is closed. Counted are buffers of connections with a frame of more than 64 KiB.
    received_bytes_max: int = attrs.field(default=1024 * 1024 * 1024, validator=_AT_LEAST_1)
    #: The same of one address: then its connection that holds most is closed.
    received_bytes_per_address_max: int = attrs.field(default=512 * 1024 * 1024, validator=_AT_LEAST_1)
    #: For each connection.
    limits: ConnectionLimits = attrs.field(factory=ConnectionLimits)

    def __attrs_post_init__(self) -> None:
        frame = self.limits.frame_max_length_bytes
        least = buffer_bytes_for(frame)
        for name in ("received_bytes_max", "received_bytes_per_address_max"):
            if (most := getattr(self, name)) < least:
                raise ValueError(
                    f"{name} ({most}) leaves no room for a frame of frame_max_length_bytes ({frame}): at least {least}"
                )


@attrs.frozen(field_transformer=typed_fields)
class RemotingClientConfig:
    """Raises `ValueError` naming the field that is out of range."""

    #: How long a peer may take to accept a connection; a request never waits longer than its own time-out.
    connect_timeout_ms: int = attrs.field(default=3_000, validator=_AT_LEAST_1)
    #: After a failure a peer is not tried again within this pause. A request whose time-out ends before the next
    #: attempt fails at once. The pause doubles with each failure, up to the next one.
    reconnect_pause_min_ms: int = attrs.field(default=100, validator=_AT_LEAST_1)
    #: How long requests may go on failing after the peer is back.
    reconnect_pause_max_ms: int = attrs.field(default=5_000, validator=_AT_LEAST_1)
    #: For each connection.
    limits: ConnectionLimits = attrs.field(factory=ConnectionLimits)
