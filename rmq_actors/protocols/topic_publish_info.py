"""What a client makes of a topic's route: the queues that it sends to, and those that it reads (MQClientInstance).

Pure. Routes are a peer's word: what makes no sense in them is refused, and so is a number of queues beyond all reason.
"""

from __future__ import annotations

from collections.abc import Mapping

import attrs
import msgspec

from rmq_actors.protocols.send_rules import PERM_READ, PERM_WRITE
from rmq_actors.wire.bodies.message_queues import MessageQueue
from rmq_actors.wire.bodies.routes import QueueData, TopicRouteData

MASTER_ID = 0
#: A route with more queues than this is refused: each takes memory here.
QUEUES_MAX = 65_536


class IllegalRoute(ValueError):
    """A route that cannot be used; says which topic's, and why."""


@attrs.frozen
class TopicPublishInfo:
    """The queues of a topic that messages may be sent to, in a fixed order: by broker, then by number."""

    topic: str
    queues: tuple[MessageQueue, ...]
    #: How many queues each broker has among them, by brokerName.
    write_queue_nums: Mapping[str, int]
    is_ordered: bool = False


def topic_publish_info(topic: str, route: TopicRouteData) -> TopicPublishInfo:
    """Where to send: queues that may be written, of brokers whose master is there; a slave takes no message.

    An ordered topic has the queues that its configuration says ("broker-a:4;broker-b:4"), whether the brokers are there
    or not: a message of an order goes to its queue, or nowhere. Raises `IllegalRoute`.
    """
    if route.order_topic_conf:
        nums = _ordered_queue_nums(topic, route.order_topic_conf)
    else:
        masters = {data.broker_name for data in route.broker_datas if MASTER_ID in data.broker_addrs}
        nums = {
            data.broker_name: data.write_queue_nums
            for data in sorted(route.queue_datas, key=_broker_name)
            if data.perm & PERM_WRITE and data.broker_name in masters
        }
    return TopicPublishInfo(topic, _queues(topic, nums), nums, bool(route.order_topic_conf))


def subscribe_queues(topic: str, route: TopicRouteData) -> tuple[MessageQueue, ...]:
    """The queues that may be read, by broker and number, on brokers that may have a slave alone. IllegalRoute."""
    nums = {
        data.broker_name: data.read_queue_nums
        for data in sorted(route.queue_datas, key=_broker_name)
        if data.perm & PERM_READ
    }
    return _queues(topic, nums)


def default_topic_route(route: TopicRouteData, default_topic_queue_nums: int) -> TopicRouteData:
    """The route that a topic will probably have which a broker makes at its first message: the default topic's.

    With as many queues as the producer asks for, but not more than the default topic has.
    """
    queue_datas = [
        msgspec.structs.replace(data, read_queue_nums=nums, write_queue_nums=nums)
        for data in route.queue_datas
        for nums in [min(default_topic_queue_nums, data.read_queue_nums)]
    ]
    return msgspec.structs.replace(route, queue_datas=queue_datas)


def _broker_name(data: QueueData) -> str:
    return data.broker_name


def _queues(topic: str, nums: Mapping[str, int]) -> tuple[MessageQueue, ...]:
    count = sum(max(0, each) for each in nums.values())
    if count > QUEUES_MAX:
        raise IllegalRoute(f"topic {topic}: its route has {count} queues, at most {QUEUES_MAX} are taken")
    return tuple(
        MessageQueue(topic=topic, broker_name=name, queue_id=number)
        for name, many in nums.items()
        for number in range(many)
    )


def _ordered_queue_nums(topic: str, text: str) -> dict[str, int]:
    nums = dict[str, int]()
    for entry in filter(None, text.split(";")):
        name, _, number = entry.partition(":")
        if not name or not number.isascii() or not number.isdigit() or len(number) > 9:
            raise IllegalRoute(f"topic {topic}: {entry[:80]!r} of its orderTopicConf is not broker:queues")
        nums[name] = int(number)
    return nums
