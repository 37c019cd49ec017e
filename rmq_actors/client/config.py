"""Settings of clients (ClientConfig): RocketMQ's keys, with their unit in the name."""

from __future__ import annotations

import attrs

from rmq_actors.protocols.message_checks import check_producer_group
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


def _producer_group(_: object, attribute: attrs.Attribute[str], value: str) -> None:
    why = check_producer_group(value)
    if why is not None:
        raise ValueError(f"{attribute.name} is {value[:80]!r}: {why}")


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

    def send_address(self, address: str) -> str:
        """Where messages go of a broker at `address` (MixAll.brokerVIPChannel)."""
        if not self.vip_channel_enabled:
            return address
        host, _, port = address.rpartition(":")
        return f"{host}:{int(port) - 2}"


@attrs.frozen(field_transformer=typed_fields)
class ProducerConfig:
    """Settings of a producer (DefaultMQProducer). Raises `ValueError` naming the field that is out of range."""

    #: Brokers ask any producer of the group how a transaction ended: programs that share a group share the answers.
    producer_group: str = attrs.field(validator=_producer_group)
    #: How long a send may take, with its retries and with finding out where to send.
    send_msg_timeout_ms: int = attrs.field(default=3_000, validator=_AT_LEAST_1)
    #: How long one attempt may take: a silent broker then leaves time for another one. -1: all that is left.
    send_msg_max_timeout_per_request_ms: int = attrs.field(default=-1, validator=attrs.validators.ge(-1))
    #: How often a message is sent again that failed; it may be stored twice then. 0: never.
    retry_times_when_send_failed: int = attrs.field(default=2, validator=attrs.validators.ge(0))
    #: A message that was stored, but not as safely as the broker's settings ask, is sent again to another broker: it is
    #: stored twice then.
    retry_another_broker_when_not_store_ok: bool = False
    #: Longer bodies are refused here. Brokers have a limit of their own.
    max_message_size_bytes: int = attrs.field(default=4 * 1024 * 1024, validator=_AT_LEAST_1)
    #: Messages of concurrent tasks leave together, in batches of what waits while the last batch is under way: more
    #: messages a second for less CPU time, here and at the broker. Messages to the next queue go to one queue by batch.
    auto_batch: bool = False
    #: With `auto_batch`: what the messages of a batch may take together. A longer one goes alone.
    batch_max_bytes: int = attrs.field(default=32 * 1024, validator=_AT_LEAST_1)
    #: With `auto_batch`: how many messages a batch may have.
    batch_max_messages: int = attrs.field(default=256, validator=_AT_LEAST_1)
    #: Bodies of this length or more are compressed: shorter frames and logs for more CPU time here and at consumers.
    compress_msg_body_over_howmuch_bytes: int = attrs.field(default=4096, validator=_AT_LEAST_1)
    #: zlib's level, from 1, fast, to 9, short.
    compress_level: int = attrs.field(default=5, validator=[attrs.validators.ge(1), attrs.validators.le(9)])
    #: Brokers that were slow or failed are avoided for a time. It helps with several masters only.
    send_latency_fault_enable: bool = False
    #: The topic whose settings a broker gives to one that it makes at its first message.
    create_topic_key: str = "TBW102"
    #: How many queues such a topic gets, if the broker lets it have so many.
    default_topic_queue_nums: int = attrs.field(default=4, validator=_AT_LEAST_1)
    #: How many of brokers' questions about transactions may wait for the listener; more are dropped, and asked again.
    check_request_hold_max: int = attrs.field(default=2_000, validator=_AT_LEAST_1)
