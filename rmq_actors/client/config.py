"""Settings of clients (ClientConfig): RocketMQ's keys, with their unit in the name."""

from __future__ import annotations

import attrs

from rmq_actors.remoting.config import RemotingClientConfig
from rmq_actors.settings.field_types import typed_fields
from rmq_actors.wire.address import parse_address

_AT_LEAST_1 = attrs.validators.ge(1)
#: With this instanceName, as in RocketMQ, each client gets a name of its own.
DEFAULT_INSTANCE_NAME = "DEFAULT"


def _name_servers(_: object, attribute: attrs.Attribute[str], value: str) -> None:
    if not [text for text in value.split(";") if text.strip()]:
        raise ValueError(f"{attribute.name} is {value!r}: it names no name server, as host:port;host:port would")
    for text in value.split(";"):
        if text.strip():
            parse_address(text.strip())


@attrs.frozen(field_transformer=typed_fields)
class ClientConfig:
    """What producers, consumers and administrators share. Raises `ValueError` naming the field that is out of range."""

    #: The name servers, as "host:port;host:port". Any one of them suffices; the next one is asked if one is silent.
    namesrv_addr: str = attrs.field(validator=_name_servers)
    #: How brokers name this client, with `instance_name`: operators see it. It need not be reachable.
    client_ip: str = "127.0.0.1"
    #: Two clients of a consumer group with the same address and name count as one, and share what one should get. By
    #: default each client gets a name of its own.
    instance_name: str = DEFAULT_INSTANCE_NAME
    #: A part of the client's name for programs that serve several units; empty for none.
    unit_name: str = ""
    #: How old routes may be. A shorter time notices new queues and masters sooner, and asks the name servers more.
    poll_name_server_interval_ms: int = attrs.field(default=30_000, validator=_AT_LEAST_1)
    #: How often brokers are told that this client is there; they forget it after 120 s of silence.
    heartbeat_broker_interval_ms: int = attrs.field(default=30_000, validator=_AT_LEAST_1)
    #: How often offsets of consumers are told to brokers or written: so much may be consumed again after a crash.
    persist_consumer_offset_interval_ms: int = attrs.field(default=5_000, validator=_AT_LEAST_1)
    #: Sends go to the broker's port minus 2, which brokers serve beside the other: so that sends do not wait for what
    #: else a client asks. A broker on a port that the system chose has no such port.
    vip_channel_enabled: bool = False
    #: How long a name server or broker may take to answer anything but sends and pulls, which have their own time-outs.
    mq_client_api_timeout_ms: int = attrs.field(default=3_000, validator=_AT_LEAST_1)
    #: Connections of this client.
    remoting: RemotingClientConfig = attrs.field(factory=RemotingClientConfig)

    @property
    def name_servers(self) -> tuple[str, ...]:
        """The addresses of the name servers, each once."""
        return tuple(dict.fromkeys(text.strip() for text in self.namesrv_addr.split(";") if text.strip()))
