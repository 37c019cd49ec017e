"""Which broker a consumer asks: each rule of RocketMQ's on reading."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from rmq_actors.protocols.broker_choice import FindBrokerResult, PullFromWhichNode, find_broker_address_in_subscribe
from rmq_actors.wire.bodies.message_queues import MessageQueue

QUEUE = MessageQueue(topic="T", broker_name="b", queue_id=0)
OTHER = MessageQueue(topic="T", broker_name="b", queue_id=1)


def find(addrs: dict[int, str], broker_id: int, *, only: bool = False) -> FindBrokerResult | None:
    return find_broker_address_in_subscribe(addrs, broker_id, only_this_broker=only)


def test_the_broker_with_the_id_is_asked() -> None:
    addrs = {0: "m:1", 1: "s:1", 2: "t:1"}
    assert find(addrs, 0) == FindBrokerResult("m:1", slave=False)
    assert find(addrs, 2) == FindBrokerResult("t:1", slave=True)


def test_in_place_of_an_absent_slave_the_next_id_is_asked() -> None:
    assert find({0: "m:1", 2: "t:1"}, 1) == FindBrokerResult("t:1", slave=True)
    assert find({0: "m:1", 2: "t:1"}, 1, only=True) == FindBrokerResult("t:1", slave=True)


def test_in_place_of_an_absent_master_no_next_id_is_asked_if_only_it_will_do() -> None:
    assert find({1: "s:1"}, 0, only=True) is None


def test_without_either_the_first_of_the_map_is_asked() -> None:
    assert find({0: "m:1", 1: "s:1"}, 7) == FindBrokerResult("m:1", slave=False)
    assert find({2: "t:1", 1: "s:1"}, 0) == FindBrokerResult(
        "s:1", slave=True
    )  # a slave serves while the master is down


def test_the_first_of_the_map_is_that_of_a_hash_map_of_java() -> None:
    assert find({18: "x:1", 3: "y:1"}, 0) == FindBrokerResult("x:1", slave=True)  # bucket 2 is before bucket 3


def test_only_this_broker_takes_no_other() -> None:
    assert find({0: "m:1"}, 7, only=True) is None


def test_no_address_at_all_is_none() -> None:
    assert find({}, 0) is None
    assert find({}, 1) is None


def test_the_version_is_the_one_that_the_broker_has_said() -> None:
    found = find_broker_address_in_subscribe({0: "m:1"}, 0, only_this_broker=False, versions={"m:1": 407})
    assert found == FindBrokerResult("m:1", slave=False, broker_version=407)


def test_the_master_is_asked_until_a_broker_is_suggested() -> None:
    nodes = PullFromWhichNode()
    assert nodes.recalculate_pull_from_which_node(QUEUE) == 0
    nodes.update_pull_from_which_node(QUEUE, 1)
    assert nodes.recalculate_pull_from_which_node(QUEUE) == 1
    assert nodes.recalculate_pull_from_which_node(OTHER) == 0  # each queue has its own
    nodes.update_pull_from_which_node(QUEUE, 0)
    assert nodes.recalculate_pull_from_which_node(QUEUE) == 0


def test_connect_broker_by_user_asks_the_default_broker_whatever_is_suggested() -> None:
    nodes = PullFromWhichNode(connect_broker_by_user=True, default_broker_id=2)
    nodes.update_pull_from_which_node(QUEUE, 1)
    assert nodes.recalculate_pull_from_which_node(QUEUE) == 2


def test_a_queue_that_is_given_up_begins_at_the_master_again() -> None:
    nodes = PullFromWhichNode()
    nodes.update_pull_from_which_node(QUEUE, 1)
    nodes.forget(QUEUE)
    assert nodes.recalculate_pull_from_which_node(QUEUE) == 0


@given(st.dictionaries(st.integers(0, 40), st.just("h:1")), st.integers(0, 40))
def test_somebody_is_found_whenever_anybody_is_there(ids: dict[int, str], wanted: int) -> None:
    addrs = {number: f"h{number}:1" for number in ids}
    found = find(addrs, wanted)
    assert (found is None) == (not addrs)
    if found is not None:
        assert found.broker_addr in addrs.values()
        assert found.slave == (found.broker_addr != addrs.get(0))
    strict = find(addrs, wanted, only=True)
    assert strict is None or strict == found
