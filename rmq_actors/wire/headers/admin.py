"""Headers of what operators ask a broker: configuration, statistics, access control, filter servers."""

from __future__ import annotations

import msgspec

from rmq_actors.wire.headers.codec import CommandHeader
from rmq_actors.wire.java_numbers import Int32, Int64


class GetBrokerConfigResponseHeader(CommandHeader, frozen=True):
    """The version (DataVersion, in JSON) of the configuration in the body."""

    version: str


class UpdateBrokerConfigRequestHeader(CommandHeader, frozen=True):
    """Settings to change. `term`, this project's: with a promotion, the term to which it is to go."""

    term: Int64 | None = None


class ViewBrokerStatsDataRequestHeader(CommandHeader, frozen=True):
    """Asks for a statistic, such as TOPIC_PUT_NUMS, of one key, such as a topic."""

    stats_name: str
    stats_key: str


class QueryConsumeQueueRequestHeader(CommandHeader, frozen=True):
    """Asks for `count` entries of a consume queue from number `index` on, with what a group's filter says of them."""

    topic: str | None = None
    queue_id: Int32 = 0
    index: Int64 = 0
    count: Int32 = 0
    consumer_group: str | None = None


class CreateAccessConfigRequestHeader(CommandHeader, frozen=True):
    """Creates an account, or changes it. Permissions are `name=DENY|PUB|SUB|PUB|SUB`, with commas between."""

    access_key: str
    secret_key: str | None = None
    white_remote_address: str | None = None
    admin: bool = False
    default_topic_perm: str | None = None
    default_group_perm: str | None = None
    topic_perms: str | None = None
    group_perms: str | None = None


class DeleteAccessConfigRequestHeader(CommandHeader, frozen=True):
    """Removes an account."""

    access_key: str


class UpdateGlobalWhiteAddrsConfigRequestHeader(CommandHeader, frozen=True):
    """Sets the addresses that need no account. mqadmin leaves the file out when it is the usual one."""

    global_white_addrs: str
    acl_file_full_path: str | None = None


class GetBrokerAclConfigResponseHeader(CommandHeader, frozen=True):
    """Versions (DataVersion, in JSON) of a broker's accounts: of the usual file, and of each file."""

    version: str
    broker_name: str
    broker_addr: str
    cluster_name: str
    all_acl_file_version: str | None = None


class RegisterFilterServerRequestHeader(CommandHeader, frozen=True):
    """A filter server is there."""

    filter_server_addr: str


class RegisterFilterServerResponseHeader(CommandHeader, frozen=True):
    """The broker that it belongs to."""

    broker_name: str
    broker_id: Int64


class RegisterMessageFilterClassRequestHeader(CommandHeader, frozen=True):
    """A consumer's filter class, its source being the body."""

    consumer_group: str
    topic: str
    class_name: str
    class_crc: Int32 = msgspec.field(name="classCRC")
