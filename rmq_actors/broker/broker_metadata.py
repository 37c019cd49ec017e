"""What a broker knows apart from its log, and what a slave copies from its master: topics, groups, offsets."""

from __future__ import annotations

import logging

import attrs

from rmq_actors.actors.services.channels import LatestSender
from rmq_actors.broker.config import BrokerConfig
from rmq_actors.broker.consumer_offsets import ConsumerOffsetManager
from rmq_actors.broker.subscription_groups import SubscriptionGroupManager
from rmq_actors.broker.topics import AUTO_CREATE_TOPIC_KEY_TOPIC, TopicConfigManager, auto_create_key_topic
from rmq_actors.ports.disk import Disk
from rmq_actors.ports.wall_clock import WallClock
from rmq_actors.store.files.delay_offsets import DelayOffsets
from rmq_actors.wire.bodies.topic_configs import DataVersion

_log = logging.getLogger(__name__)


@attrs.frozen(eq=False)
class BrokerMetadata:
    """The managers of one broker. They outlive its store, which a change of role opens again."""

    topics: TopicConfigManager
    consumer_offsets: ConsumerOffsetManager
    delay_offsets: DelayOffsets
    subscription_groups: SubscriptionGroupManager

    @classmethod
    def load(
        cls, config: BrokerConfig, disk: Disk, wall_clock: WallClock, topic_changes: LatestSender[DataVersion]
    ) -> BrokerMetadata:
        """Read the files. Raises `ConfigFileDamaged`."""
        return cls(
            TopicConfigManager.load(config, disk, wall_clock, topic_changes),
            ConsumerOffsetManager.load(disk),
            DelayOffsets.load(disk),
            SubscriptionGroupManager.load(disk, wall_clock),
        )

    async def use_config(self, config: BrokerConfig) -> None:
        """Make the default topic if clients may make topics from now on, and register with their brokerPermission."""
        try:
            await self.topics.use_permission(config.broker_permission, is_slave=config.is_slave)
        except (OSError, ValueError) as error:
            _log.warning("brokerPermission %d: name servers are not told: %s", config.broker_permission, error)
        if config.auto_create_topic_enable and not config.is_slave:
            try:
                await self.topics.make_topic_config(auto_create_key_topic(config))
            except (OSError, ValueError) as error:
                _log.warning("topic %s cannot be made: clients make no topics: %s", AUTO_CREATE_TOPIC_KEY_TOPIC, error)

    async def fence(self, by: str, reason: str, config: BrokerConfig | None = None) -> None:
        """Refuse changes of topics and groups from now on, with `TableFenced`; an empty `reason` ends that.

        Once it returns, the tables are durable and stay as they are; after the end they are as `config` wants them.
        """
        await self.topics.fence(by, reason)
        await self.subscription_groups.fence(by, reason)
        if config is not None and not reason:
            # A brokerPermission that was set meanwhile could make no new version of the topics.
            await self.use_config(config)
