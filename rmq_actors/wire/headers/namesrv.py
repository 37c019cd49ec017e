"""Headers between brokers, operators and name servers."""

from __future__ import annotations

from rmq_actors.wire.headers.codec import CommandHeader
from rmq_actors.wire.java_numbers import Int32, Int64


class RegisterBrokerRequestHeader(CommandHeader, frozen=True):
    """A broker is there, with the topics of the body. `body_crc32` 0: not to be checked."""

    broker_name: str
    broker_addr: str
    cluster_name: str
    ha_server_addr: str
    broker_id: Int64
    compressed: bool = False
    body_crc32: Int32 = 0


class RegisterBrokerResponseHeader(CommandHeader, frozen=True):
    """What a slave needs of its master, when it is there: its address, and where it serves its log."""

    ha_server_addr: str | None = None
    master_addr: str | None = None


class UnRegisterBrokerRequestHeader(CommandHeader, frozen=True):
    """A broker goes."""

    broker_name: str
    broker_addr: str
    cluster_name: str
    broker_id: Int64


class QueryDataVersionRequestHeader(CommandHeader, frozen=True):
    """Asks whether the name server has other topics of this broker than those of the body's DataVersion."""

    broker_name: str
    broker_addr: str
    cluster_name: str
    broker_id: Int64


class QueryDataVersionResponseHeader(CommandHeader, frozen=True):
    """Whether they differ, so that the broker should register."""

    changed: bool


class WipeWritePermOfBrokerRequestHeader(CommandHeader, frozen=True):
    """From now on no message may be sent to this broker."""

    broker_name: str


class WipeWritePermOfBrokerResponseHeader(CommandHeader, frozen=True):
    """How many topics that concerns."""

    wipe_topic_count: Int32


class AddWritePermOfBrokerRequestHeader(CommandHeader, frozen=True):
    """Messages may be sent to this broker again."""

    broker_name: str


class AddWritePermOfBrokerResponseHeader(CommandHeader, frozen=True):
    """How many topics that concerns."""

    add_topic_count: Int32


class PutKVConfigRequestHeader(CommandHeader, frozen=True):
    """Sets a value of the KV configuration."""

    namespace: str
    key: str
    value: str


class GetKVConfigRequestHeader(CommandHeader, frozen=True):
    """Asks for a value of the KV configuration."""

    namespace: str
    key: str


class GetKVConfigResponseHeader(CommandHeader, frozen=True):
    """The value, when there is one."""

    value: str | None = None


class DeleteKVConfigRequestHeader(CommandHeader, frozen=True):
    """Removes a value of the KV configuration."""

    namespace: str
    key: str


class GetKVListByNamespaceRequestHeader(CommandHeader, frozen=True):
    """Asks for all values of a namespace."""

    namespace: str
