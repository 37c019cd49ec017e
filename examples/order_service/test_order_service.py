"""The tests of the order service; the fixture `rmq_cluster` gives each a name server, a master and a slave."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
from order_service import TOPIC, make_app
from starlette.testclient import TestClient

from rmq_actors.testing import ClusterFixture


@pytest.fixture
def service(rmq_cluster: ClusterFixture) -> Iterator[TestClient]:
    """The service, which runs; Starlette's client calls it."""
    with TestClient(make_app(rmq_cluster.name_server_address, timeout_ms=10_000)) as client:
        yield client


def published(cluster: ClusterFixture, broker: str) -> list[tuple[str, str]]:
    """The id and the customer of each order that a broker has, in the order of its log."""
    orders = [json.loads(message.body) for message in cluster.messages(broker) if message.topic == TOPIC]
    return [(order["id"], order["customer"]) for order in orders]


def test_an_order_that_is_accepted_is_at_the_slave(service: TestClient, rmq_cluster: ClusterFixture) -> None:
    """202 means that the loss of one broker loses no order."""
    answer = service.post("/orders", json={"id": "1", "customer": "ann"})
    assert (answer.status_code, answer.json()["stored"]) == (202, "SEND_OK")
    rmq_cluster.kill("master")
    assert published(rmq_cluster, "slave-1") == [("1", "ann")]


def test_orders_of_one_customer_are_in_one_queue(service: TestClient, rmq_cluster: ClusterFixture) -> None:
    """So consumers get them in the order in which they came."""
    for number in range(8):
        service.post("/orders", json={"id": f"{number}", "customer": f"c{number % 2}"})
    queues = dict[str, list[tuple[int, int, str]]]()
    for message in rmq_cluster.messages():
        if message.topic == TOPIC:
            order = json.loads(message.body)
            queues.setdefault(order["customer"], []).append((message.queue_id, message.queue_offset, order["id"]))
    for orders in queues.values():
        assert len({queue for queue, _, _ in orders}) == 1
        assert [order for _, _, order in sorted(orders)] == sorted(order for _, _, order in orders)
    assert {*queues} == {"c0", "c1"}


@pytest.mark.parametrize("body", [b"tea", b"[]", b'{"id": "1"}'])
def test_what_is_no_order_is_refused(service: TestClient, rmq_cluster: ClusterFixture, body: bytes) -> None:
    """Nothing of it is published."""
    assert service.post("/orders", content=body).status_code == 400
    assert published(rmq_cluster, "master") == []


def test_without_a_master_the_caller_may_try_again(service: TestClient, rmq_cluster: ClusterFixture) -> None:
    """The order that failed is taken once the master is back."""
    order = {"id": "1", "customer": "ann"}
    assert service.get("/health").json()["queues"] > 0
    rmq_cluster.kill("master")
    answer = service.post("/orders", json=order)
    assert (answer.status_code, answer.headers["Retry-After"]) == (503, "1")
    rmq_cluster.start("master")
    rmq_cluster.thread.run(rmq_cluster.cluster.wait_until_registered)
    answers = (service.post("/orders", json=order).status_code for _ in range(20))
    assert 202 in answers
    assert ("1", "ann") in published(rmq_cluster, "master")
