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
    """Raises `ValueError` naming the field that is out of range. The two paths begin at the root of the disk port."""

    #: Where the KV table is kept: what administrators have put there, such as the order of queues. Without its file a
    #: name server starts with an empty table.
    kv_config_path: str = attrs.field(default="namesrv/kvConfig.json", validator=_PATH)
    #: Where UPDATE_NAMESRV_CONFIG writes the settings. Give the next start this file, or it begins without them.
    config_store_path: str = attrs.field(default="namesrv/namesrv.properties", validator=_PATH)
    #: Answer routes with the order of queues that the KV table has for a topic. False: ordered topics look like others.
    order_message_enable: bool = False
    #: Keys, separated by ";", that no request may change. Without the paths in it, a request could have any file
    #: written.
    config_black_list: str = "configBlackList;configStorePath;kvConfigPath"
    #: How long a broker may be silent before it leaves the routes. Shorter than twice a broker's registration period
    #: (30 s), one lost request takes a healthy broker out. Fixed in RocketMQ.
    broker_channel_expired_time_ms: int = attrs.field(default=120_000, validator=_POSITIVE)
    #: A topic that a master does not register any more leaves the routes; else deleted topics stay until the broker
    #: goes. It must be off for brokers with enableSplitRegistration. (A key of RocketMQ 5, off there.)
    delete_topic_with_broker_registration: bool = True
    #: How long the KV table's file may be; a change that would make it longer is refused.
    kv_config_max_bytes: int = attrs.field(default=16 * 1024 * 1024, validator=_POSITIVE)
    #: How many requests may wait for the disk: those that change the KV table or the settings. One more is answered
    #: SYSTEM_BUSY.
    config_queue_capacity: int = attrs.field(default=10_000, validator=_POSITIVE)
    #: How much brokers may register: what bounds the name server's memory.
    routes: RouteTableLimits = attrs.field(factory=RouteTableLimits)
    #: The port for brokers, clients and mqadmin.
    remoting: RemotingServerConfig = attrs.field(factory=lambda: RemotingServerConfig(listen_port=9876))
