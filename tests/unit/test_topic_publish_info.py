"""What a client makes of a route."""

from __future__ import annotations

import pytest

from rmq_actors.protocols.topic_publish_info import (
    IllegalRoute,
    default_topic_route,
    subscribe_queues,
    topic_publish_info,
)
from rmq_actors.wire.bodies.routes import BrokerData, QueueData, TopicRouteData


def route(*queues: QueueData, masters: str = "ab", slaves: str = "", order: str | None = None) -> TopicRouteData:
    addresses = [
        BrokerData(broker_name=name, broker_addrs={0: f"{name}:1"} if name in masters else {1: f"{name}:2"})
        for name in masters + slaves
    ]
    return TopicRouteData(broker_datas=addresses, queue_datas=list(queues), order_topic_conf=order)


def queues(name: str, read: int = 2, write: int = 2, perm: int = 6) -> QueueData:
    return QueueData(broker_name=name, perm=perm, read_queue_nums=read, write_queue_nums=write)


def test_producers_write_to_broker_id_0_only() -> None:
    info = topic_publish_info("T", route(queues("b"), queues("a"), queues("c"), slaves="c"))
    assert [(each.broker_name, each.queue_id) for each in info.queues] == [("a", 0), ("a", 1), ("b", 0), ("b", 1)]
    assert info.write_queue_nums == {"a": 2, "b": 2}


def test_consumers_read_where_there_is_a_slave_alone() -> None:
    found = subscribe_queues("T", route(queues("a", read=1), queues("c", read=1), slaves="c"))
    assert [each.broker_name for each in found] == ["a", "c"]


def test_permissions_count() -> None:
    one = route(queues("a", perm=4, read=1), queues("b", perm=2, write=1))
    assert [each.broker_name for each in topic_publish_info("T", one).queues] == ["b"]
    assert [each.broker_name for each in subscribe_queues("T", one)] == ["a"]


def test_an_ordered_topic_has_the_queues_of_its_configuration_whoever_is_there() -> None:
    info = topic_publish_info("T", route(queues("a"), order="a:1;z:2"))
    assert [(each.broker_name, each.queue_id) for each in info.queues] == [("a", 0), ("z", 0), ("z", 1)]
    assert info.is_ordered


@pytest.mark.parametrize("text", ["a", ":3", "a:", "a:-1", "a:x", "a:1234567890"])
def test_an_order_that_makes_no_sense_is_refused(text: str) -> None:
    with pytest.raises(IllegalRoute, match="of its orderTopicConf is not broker:queues"):
        topic_publish_info("T", route(order=text))


def test_queues_beyond_all_reason_are_refused() -> None:
    with pytest.raises(IllegalRoute, match="topic T: its route has 2147483647 queues"):
        subscribe_queues("T", route(queues("a", read=2**31 - 1)))


def test_a_topic_that_is_made_has_no_more_queues_than_the_default_topic() -> None:
    made = default_topic_route(route(queues("a", read=8), queues("b", read=2)), 4)
    assert [(each.read_queue_nums, each.write_queue_nums) for each in made.queue_datas] == [(4, 4), (2, 2)]
