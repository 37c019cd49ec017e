"""Turns off consumer groups that read too slowly, where an operator wants that (BrokerController.protectBroker)."""

from __future__ import annotations

import logging
from typing import Final

import attrs
import msgspec
import trio

from rmq_actors.actors.services.service import ServiceThread
from rmq_actors.broker.client_requests import ClientRequests
from rmq_actors.protocols.slow_consumers import QUEUES_MAX, Lag, SlowConsumers
from rmq_actors.wire.bodies.subscription_groups import SubscriptionGroupConfig

_log = logging.getLogger(__name__)

PROTECT_INTERVAL_S: Final = 180.0


@attrs.define(eq=False, repr=False)
class BrokerProtectionService(ServiceThread):
    """A Service of masters: a slave's groups are its master's.

    A group that is turned off (`consumeEnable` false, as by `mqadmin updateSubGroup -s false`) stays so until an
    operator turns it on again; its pulls are answered NO_PERMISSION meanwhile. What was noted of it is forgotten then:
    after it is on again it has until the next round to pull, and is judged by that. RocketMQ turns it off again at the
    next round, by the lag that it had when it was turned off; and its change is not written to the disk.
    """

    name = "BrokerProtectionService"
    _clients: ClientRequests
    #: Topics and groups that are deleted, and what was noted in another role, are to be forgotten.
    lags: SlowConsumers = attrs.field(factory=SlowConsumers, init=False)
    _has_told_full: bool = attrs.field(default=False, init=False)

    def pulled(self, group: str, topic: str, queue_id: int, behind_bytes: int) -> None:
        """A pull has looked at messages; the lag is noted if anybody asks for it."""
        config = self._clients.config()
        if (
            config.disable_consume_if_consumer_read_slowly
            and config.store.disk_fall_recorded
            and not self.lags.pulled(group, topic, queue_id, behind_bytes)
            and not self._has_told_full
        ):
            self._has_told_full = True
            _log.warning(
                "the lag of group %s in %s, queue %d, is not noted: there are those of %d queues, and no more are; by "
                "such ones no group is turned off, whatever consumerFallbehindThreshold is",
                group,
                topic,
                queue_id,
                QUEUES_MAX,
            )

    async def work(self, task_status: trio.TaskStatus[None]) -> None:
        """Look every 3 minutes."""
        task_status.started()
        while True:
            await trio.sleep(PROTECT_INTERVAL_S)
            config = self._clients.config()
            if config.disable_consume_if_consumer_read_slowly and not config.is_slave:
                for group, lag in self.lags.slower_than(config.consumer_fallbehind_threshold_bytes).items():
                    await self._disable_consume(group, lag)

    async def _disable_consume(self, group: str, lag: Lag) -> None:
        groups = self._clients.metadata.subscription_groups

        def turned_off(found: SubscriptionGroupConfig | None) -> SubscriptionGroupConfig | None:
            # Looked at again, after other changes: the topic may be deleted since, or this broker a slave.
            behind_bytes = self.lags.behind_bytes(group, lag.topic, lag.queue_id)
            is_slow = behind_bytes > self._clients.config().consumer_fallbehind_threshold_bytes
            if found is None or not found.consume_enable or not is_slow:
                return None
            return msgspec.structs.replace(found, consume_enable=False)

        try:
            is_turned_off = await groups.change_subscription_group_config(group, turned_off)
        except (OSError, ValueError) as error:  # the next round tries again
            _log.error("%s: group %s reads too slowly, and cannot be turned off: %s", self.name, group, error)
            return
        if is_turned_off:
            _log.warning(
                "group %s is turned off: it is %d bytes behind in %s, queue %d, which is more than "
                "consumerFallbehindThreshold; mqadmin updateSubGroup -s true turns it on again",
                group,
                lag.behind_bytes,
                lag.topic,
                lag.queue_id,
            )
        self.lags.forget(group)
