"""Which broker a consumer asks: a broker name stands for a master and its slaves, each with an id and an address.

The broker suggests in each answer to a pull who is to be asked next (`PullFromWhichNode`); `find_broker_address_in_
subscribe` turns that id into an address (PullAPIWrapper, MQClientInstance). Producers and everything that writes ask
the master alone.
"""

from __future__ import annotations

from collections.abc import Mapping

import attrs

from rmq_actors.protocols.topic_publish_info import MASTER_ID
from rmq_actors.wire.bodies.message_queues import MessageQueue

#: As many buckets has the HashMap that a Java client keeps addresses in, until it holds more than 12.
_JAVA_BUCKETS = 16


@attrs.frozen
class FindBrokerResult:
    """A broker that can be asked; `slave` may be asked for messages, not to commit. `broker_version` 0 is not known."""

    broker_addr: str
    slave: bool
    broker_version: int = 0


def find_broker_address_in_subscribe(
    broker_addrs: Mapping[int, str],
    broker_id: int,
    *,
    only_this_broker: bool,
    versions: Mapping[str, int] | None = None,
) -> FindBrokerResult | None:
    """The broker with that id; a slave that is absent: the next id; then, unless `only_this_broker`, the first one.

    `broker_addrs` are one broker name's addresses by id, `versions` what brokers said in answers to heartbeats, by
    address. None: refresh the route and try once more, then give up. Which one is the first is as in a Java client:
    the lowest id, of ids below 16.
    """
    address, slave = broker_addrs.get(broker_id), broker_id != MASTER_ID
    if address is None and slave:
        address = broker_addrs.get(broker_id + 1)
    if address is None and broker_addrs and not only_this_broker:
        first_id = min(broker_addrs, key=lambda each: (each % _JAVA_BUCKETS, each))
        address, slave = broker_addrs[first_id], first_id != MASTER_ID
    if address is None:
        return None
    return FindBrokerResult(address, slave, (versions or {}).get(address, 0))


@attrs.define(eq=False, repr=False)
class PullFromWhichNode:
    """By queue, the id of the broker that the last answer suggested.

    `connect_broker_by_user`: the suggestions count for nothing, `default_broker_id` is asked.
    """

    connect_broker_by_user: bool = False
    default_broker_id: int = MASTER_ID
    _suggested: dict[MessageQueue, int] = attrs.field(factory=dict, init=False)

    def update_pull_from_which_node(self, queue: MessageQueue, broker_id: int) -> None:
        """An answer has suggested a broker."""
        self._suggested[queue] = broker_id

    def recalculate_pull_from_which_node(self, queue: MessageQueue) -> int:
        """The id to ask next: the master's if nothing was suggested yet."""
        if self.connect_broker_by_user:
            return self.default_broker_id
        return self._suggested.get(queue, MASTER_ID)

    def forget(self, queue: MessageQueue) -> None:
        """The queue is another consumer's now."""
        self._suggested.pop(queue, None)
