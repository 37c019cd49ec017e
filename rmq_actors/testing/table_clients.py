"""Clients that change tables in a run: topics and groups are made at the master, and offsets of consumers committed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import attrs
import trio

from rmq_actors.broker.broker_controller import BrokerController
from rmq_actors.broker.broker_metadata import BrokerMetadata
from rmq_actors.broker.consumer_offsets import OffsetTable
from rmq_actors.protocols.exchange import Step
from rmq_actors.testing.brokers import BrokersUnderTest
from rmq_actors.testing.sim_brokers import Beside
from rmq_actors.tracing.events.run import ClientTable
from rmq_actors.wire.bodies.subscription_groups import SubscriptionGroupConfig
from rmq_actors.wire.bodies.topic_configs import TopicConfig
from sim_net import Node

_LOOK_EVERY_S = 0.1
#: The longest pause between two changes, and that after one that was refused.
_PAUSE_S = 0.6
_AGAIN_S = 0.5
#: The same while roles are exchanged, and how often clients look whether they are, if they change tables just then.
_AT_ONCE_S, _LOOK_FOR_EXCHANGES_S = 0.002, 0.01
#: The queues of the topic that is put to.
_QUEUES = 2


@attrs.define(eq=False, repr=False)
class TableClients:
    """One client per node, of which the one at the master makes what is left of `changes_left` changes.

    A third of them makes topics, one groups, and one commits offsets of groups. What is refused is asked for again.
    """

    brokers: BrokersUnderTest
    changes_left: int = attrs.field(init=False)
    _asked: int = attrs.field(default=0, init=False)

    def __attrs_post_init__(self) -> None:
        self.changes_left = self.brokers.workload.table_changes

    def beside(self, _: str) -> Iterable[Beside]:
        """The client at a node."""
        if self.brokers.workload.table_changes:
            yield self._change_tables

    @property
    def agree(self) -> bool:
        """Whether all changes are made, and every slave has taken them over that has not halted."""
        if not self.brokers.workload.table_changes:
            return True
        brokers = self.brokers
        master = _metadata(brokers.broker(brokers.master))
        slaves = [name for name in brokers.running if name != brokers.master and name not in brokers.view.halted]
        return self.changes_left <= 0 and all(_have(_metadata(brokers.broker(name)), master) for name in slaves)

    async def _change_tables(self, broker: BrokerController, node: Node) -> None:
        while True:
            is_master = self.brokers.is_configured_master(node.name) and not broker.config.is_slave
            if not is_master or self.changes_left <= 0:
                await trio.sleep(_LOOK_EVERY_S)
                continue
            self.changes_left -= 1
            self._asked += 1
            # Where many are refused, what is refused is not asked for again and again, but something else is.
            number = self._asked if self.brokers.workload.changes_in_exchanges else self.changes_left
            is_made = await self._change(number, broker, node)
            self.changes_left += not is_made
            await self._pause(node.entropy.random() * _PAUSE_S if is_made else _AGAIN_S, broker)

    async def _pause(self, pause_s: float, broker: BrokerController) -> None:
        """Rest for `pause_s`, or until roles are exchanged, if `changes_in_exchanges` is set."""
        over_at_s = trio.current_time() + pause_s
        while self.brokers.workload.changes_in_exchanges and trio.current_time() < over_at_s:
            if _exchanges_roles(broker):
                await trio.sleep(_AT_ONCE_S)
                return
            await trio.sleep(_LOOK_FOR_EXCHANGES_S)
        await trio.sleep_until(over_at_s)

    async def _change(self, number: int, broker: BrokerController, node: Node) -> bool:
        """One change; whether it was acknowledged."""
        metadata, status = _metadata(broker), "ok"
        part, entry = (("topics", f"Topic-{number}"), ("subscription_groups", f"Group-{number}"))[number % 2]
        try:
            if number % 3 == 0:
                part, entry = "consumer_offsets", self._commit(broker, node)
            elif part == "topics":
                await metadata.topics.update_topic_config(TopicConfig(topic_name=entry))
            else:
                config = SubscriptionGroupConfig(group_name=entry)
                await metadata.subscription_groups.update_subscription_group_config(config)
        except OSError as error:  # the disk, or an exchange of roles
            status = type(error).__name__
        self.brokers.recorder.record(ClientTable(status=status, part=part, entry=entry), node.name)
        return status == "ok"

    def _commit(self, broker: BrokerController, node: Node) -> str:
        """A group reads on in a queue."""
        group, queue = f"Group-{int(node.entropy.random() * 3)}", int(node.entropy.random() * _QUEUES)
        offsets, end = _metadata(broker).consumer_offsets, broker.store.offsets.get_max_offset_in_queue("Chaos", queue)
        before = offsets.query_offset(group, "Chaos", queue)
        offset = max(before, int(node.entropy.random() * (end + 1)))
        offsets.commit_offset(node.address, group, "Chaos", queue, offset)
        return f"Chaos@{group}"


def _exchanges_roles(broker: BrokerController) -> bool:
    machine = None if broker.exchange is None else broker.exchange.machine
    return machine is not None and machine.step is not Step.ENDED


def _metadata(broker: BrokerController) -> BrokerMetadata:
    assert broker.remoting is not None
    return broker.remoting.metadata


def _have(slave: BrokerMetadata, master: BrokerMetadata) -> bool:
    return (
        slave.topics.wrapper().topic_config_table == master.topics.wrapper().topic_config_table
        and slave.subscription_groups.wrapper().subscription_group_table
        == master.subscription_groups.wrapper().subscription_group_table
        and _are_reached(slave.consumer_offsets.wrapper().offset_table, master.consumer_offsets.wrapper().offset_table)
    )


def _are_reached(own: Mapping[str, Mapping[int, int]], master: OffsetTable) -> bool:
    return all(
        own.get(key, {}).get(queue, -1) >= offset
        for key, offsets in master.items()
        for queue, offset in offsets.items()
    )
