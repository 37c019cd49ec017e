"""What every processor of clients' requests needs: the tables, the present store, and making what is missing.

A change of a table is durable before anybody sees it, which takes a while. So a request that needs a new topic or group
waits for that in a pool; every other one is answered in the step that reads it.
"""

from __future__ import annotations

from collections.abc import Callable

import attrs

from rmq_actors.broker.broker_metadata import BrokerMetadata
from rmq_actors.broker.broker_stats_manager import BrokerStatsManager
from rmq_actors.broker.config import BrokerConfig
from rmq_actors.broker.quotas import QuotaReached
from rmq_actors.broker.topics import AUTO_CREATE_TOPIC_KEY_TOPIC
from rmq_actors.protocols.send_rules import (
    FAQ,
    RETRY_GROUP_TOPIC_PREFIX,
    MissingTopic,
    Refusal,
    check_group_length,
    check_lengths,
    inherited_topic,
    topic_not_exist,
)
from rmq_actors.remoting.hooks import RpcRefused
from rmq_actors.store.message_store import MessageStore
from rmq_actors.store.running_flags import RunningFlag
from rmq_actors.tracing.events.broker import BrokerOffsetBack
from rmq_actors.tracing.recorder import Tracer
from rmq_actors.wire.bodies.subscription_groups import SubscriptionGroupConfig
from rmq_actors.wire.response_code import ResponseCode

_SYSTEM_GROUP_PREFIX = "CID_RMQ_SYS_"
#: How much of a name is shown.
_SHOWN_CHARS = 100


class QuotaRefused(RpcRefused):
    """Something that a client names is not made: there is no room for it."""


@attrs.frozen(eq=False)
class ClientRequests:
    """A change of role renews `config` and `open_store`: ask each time. None: there is no store now."""

    metadata: BrokerMetadata
    config: Callable[[], BrokerConfig]
    open_store: Callable[[], MessageStore | None]
    #: The "ip:port" under which this broker's messages are stored.
    store_host: Callable[[], str]
    stats: BrokerStatsManager
    tracer: Tracer

    @property
    def store(self) -> MessageStore:
        """The store. Raises `RpcRefused` while there is none."""
        store = self.open_store()
        if store is None:
            raise RpcRefused(ResponseCode.SERVICE_NOT_AVAILABLE, "the broker changes its role, try again")
        return store

    @property
    def leads(self) -> bool:
        """Whether it is the master, and no other broker may be by now."""
        store = self.open_store()
        return store is not None and not self.config().is_slave and RunningFlag.FENCED not in store.running_flags.bits

    def check_is_master(self) -> None:
        """Raise `RpcRefused` on a slave, before anything is made for a message."""
        if self.config().is_slave:
            raise refused(
                Refusal(ResponseCode.SERVICE_NOT_AVAILABLE, "service not available now. A slave takes no puts")
            )
        _ = self.store

    def makes_group(self, group: str) -> bool:
        """Whether a missing group is made when a client names it."""
        return self.config().auto_create_subscription_group or group.startswith(_SYSTEM_GROUP_PREFIX)

    async def make_group(self, group: str) -> None:
        """Make a group durably, if it is missing. Raises `RpcRefused` if that is not possible now."""

        def made(found: SubscriptionGroupConfig | None) -> SubscriptionGroupConfig | None:
            return SubscriptionGroupConfig(group_name=group) if found is None else None

        groups = self.metadata.subscription_groups
        if groups.find_subscription_group_config(group) is not None:
            return
        if (too_long := check_group_length(group)) is not None:
            raise refused(too_long)
        self._check_changes_tables()
        room = self.config().quotas.groups(asked_by_operator=False)
        try:
            await groups.change_subscription_group_config(group, made, room)
        except QuotaReached as error:
            remark = f"subscription group [{group}] does not exist, {error}{FAQ}"
            raise QuotaRefused(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, remark) from error
        except (OSError, ValueError) as error:
            raise RpcRefused(ResponseCode.SYSTEM_ERROR, f"group {group} cannot be made: {error}") from error

    async def make_topic(self, missing: MissingTopic, default_topic: str) -> None:
        """Make a topic durably by the settings of another one. Raises `RpcRefused` if that is not possible."""
        topics = self.metadata.topics
        if topics.select_topic_config(missing.topic) is not None:
            return
        # The file of an earlier start may have the default topic, though topics are made by hand now.
        is_off = default_topic == AUTO_CREATE_TOPIC_KEY_TOPIC and not self.config().auto_create_topic_enable
        config = inherited_topic(missing, None if is_off else topics.select_topic_config(default_topic))
        if config is None:
            refusal = topic_not_exist(missing.topic)
            raise RpcRefused(refusal.code, refusal.remark)
        self._check_changes_tables()
        # Topics of retries and dead letters belong to groups, which have a quota of their own.
        room = self.config().quotas.topics(asked_by_operator=not missing.inherits)
        try:
            await topics.make_topic_config(config, room)
        except QuotaReached as error:
            remark = f"topic[{missing.topic}] not exist, {error}{FAQ}"
            raise QuotaRefused(ResponseCode.TOPIC_NOT_EXIST, remark) from error
        except (OSError, ValueError) as error:
            raise RpcRefused(ResponseCode.SYSTEM_ERROR, f"topic {missing.topic} cannot be made: {error}") from error

    async def make_retry_topic(self, group: str, queue_nums: int, sys_flag: int) -> None:
        """Make the topic of a group's retries."""
        await self.make_topic(MissingTopic(RETRY_GROUP_TOPIC_PREFIX + group, False, queue_nums, sys_flag), "")

    def commit_offset(self, client_host: str, group: str, topic: str, queue_id: int, offset: int) -> None:
        """Take a consumer's offset. Raises `QuotaRefused` for a new one without room or with endless names."""
        offsets = self.metadata.consumer_offsets
        before = offsets.query_offset(group, topic, queue_id)
        if before < 0:
            if (too_long := check_lengths(group, topic)) is not None:
                raise QuotaRefused(too_long.code, too_long.remark)
            try:
                offsets.check_room(self.config().quotas.offsets, group, topic, (queue_id,))
            except QuotaReached as error:
                remark = f"the offset of {group[:_SHOWN_CHARS]!r} in {topic[:_SHOWN_CHARS]!r} is not kept: {error}"
                raise QuotaRefused(ResponseCode.SYSTEM_ERROR, remark) from error
        offsets.commit_offset(client_host, group, topic, queue_id, offset)
        if offset < before:
            self.tracer.emit(
                BrokerOffsetBack(
                    group=group, topic=topic, queue_id=queue_id, queue_offset=before, queue_offset_next=offset
                )
            )

    def _check_changes_tables(self) -> None:
        """Raise `RpcRefused` on a slave, whose tables are its master's."""
        if self.config().is_slave:
            raise RpcRefused(ResponseCode.SERVICE_NOT_AVAILABLE, "a slave makes no topics and no groups")


def refused(refusal: Refusal) -> RpcRefused:
    """The exception that answers with a refusal."""
    return RpcRefused(refusal.code, refusal.remark)
