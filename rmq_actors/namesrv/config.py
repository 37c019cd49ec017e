"""Settings of a name server: RocketMQ's keys in Python's spelling, with 4.9's defaults."""

from __future__ import annotations

from collections.abc import Callable

import attrs

from rmq_actors.namesrv.route_table import RouteTableLimits
from rmq_actors.remoting.config import RemotingServerConfig
from rmq_actors.settings.configure import Key, Keys
from rmq_actors.settings.field_types import typed_fields

_POSITIVE = attrs.validators.ge(1)
_PATH: Callable[[object, attrs.Attribute[str], str], None] = attrs.validators.min_len(1)

#: Properties of a name server that are not spelt by the rule.
NAMESRV_KEYS: Keys = {
    "remoting.listen_host": Key("bindAddress"),  # of RocketMQ 5
    "remoting.backlog": Key("serverSocketBacklog"),
    "remoting.limits.channel_max_idle_time_ms": Key("serverChannelMaxIdleTimeSeconds", 1000),
}


@attrs.frozen(field_transformer=typed_fields)
class NamesrvConfig:
    """Raises `ValueError` naming the field that is out of range. The two paths begin at the root of the disk port.

    `config_store_path` is where UPDATE_NAMESRV_CONFIG writes the settings. `broker_channel_expired_time_ms` is fixed in
    RocketMQ. `delete_topic_with_broker_registration` is a key of RocketMQ 5, and off there: a master's topics that are
    no longer among those which it registers leave the routes. It must be off for brokers with enableSplitRegistration.
    """

    kv_config_path: str = attrs.field(default="namesrv/kvConfig.json", validator=_PATH)
    config_store_path: str = attrs.field(default="namesrv/namesrv.properties", validator=_PATH)
    order_message_enable: bool = False
    config_black_list: str = "configBlackList;configStorePath;kvConfigPath"
    broker_channel_expired_time_ms: int = attrs.field(default=120_000, validator=_POSITIVE)
    delete_topic_with_broker_registration: bool = True
    kv_config_max_bytes: int = attrs.field(default=16 * 1024 * 1024, validator=_POSITIVE)
    #: Requests that wait for the disk: those that change the KV table or the settings.
    config_queue_capacity: int = attrs.field(default=10_000, validator=_POSITIVE)
    routes: RouteTableLimits = attrs.field(factory=RouteTableLimits)
    remoting: RemotingServerConfig = attrs.field(factory=lambda: RemotingServerConfig(listen_port=9876))
