"""A broker's accounts as operators are shown them (PlainAccessConfig)."""

from __future__ import annotations

from msgspec import field

from rmq_actors.wire.bodies.remoting_serializable import RemotingSerializable


class PlainAccessConfig(RemotingSerializable, frozen=True, kw_only=True):
    """One account. Permissions are written `name=PUB|SUB`."""

    access_key: str | None = None
    admin: bool = False
    default_group_perm: str | None = None
    default_topic_perm: str | None = None
    group_perms: list[str] | None = None
    secret_key: str | None = None
    topic_perms: list[str] | None = None
    white_remote_address: str | None = None


class GetBrokerClusterAclConfigResponseBody(RemotingSerializable, frozen=True, kw_only=True):
    """All accounts, and the addresses that need none."""

    global_white_addrs: list[str] = field(default_factory=list)
    plain_access_configs: list[PlainAccessConfig] = field(default_factory=list)
