"""Which broker a consumer's request goes to, and what it says: without a network."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import attrs
import pytest

from rmq_actors.client.client_error import BrokerUnreachable
from rmq_actors.client.consumer_requests import ConsumerRequests
from rmq_actors.protocols.broker_choice import PullFromWhichNode
from rmq_actors.protocols.filter_api import build_subscription
from rmq_actors.protocols.pull_results import PullStatus
from rmq_actors.wire.bodies.message_queues import MessageQueue
from rmq_actors.wire.headers.offsets import PullMessageRequestHeader
from rmq_actors.wire.pull_sys_flag import PullSysFlag
from rmq_actors.wire.remoting_command import RemotingCommand

pytestmark = pytest.mark.trio

QUEUE = MessageQueue(topic="T", broker_name="b", queue_id=0)
ALL = build_subscription("T", "*", None)


@attrs.define
class Routes:
    """Knows brokers, others after each refresh."""

    known: dict[int, str]
    after_refresh: list[dict[int, str]] = attrs.field(factory=list)
    refreshed: int = 0

    def broker_addresses(self, _: str) -> Mapping[int, str]:
        return self.known

    def master_address(self, _: str) -> str | None:
        return self.known.get(0)

    async def update(self, _: str, __: float) -> None:
        self.refreshed += 1
        if self.after_refresh:
            self.known = self.after_refresh.pop(0)


@attrs.define
class Brokers:
    """Answers every request with PULL_NOT_FOUND, and suggests a broker; notes what was asked."""

    suggests: int = 0
    asked: list[tuple[str, Any]] = attrs.field(factory=list)

    async def request(self, address: str, _: int, header: object = None, body: bytes = b"", **__: object) -> object:
        self.asked.append((address, header))
        fields = {
            "suggestWhichBrokerId": str(self.suggests),
            "nextBeginOffset": "7",
            "minOffset": "0",
            "maxOffset": "9",
            "offset": "3",
        }
        return RemotingCommand(19, fields)

    @property
    def addresses(self) -> list[str]:
        return [address for address, _ in self.asked]


@attrs.define
class Heartbeats:
    versions: dict[str, int] = attrs.field(factory=dict)


@attrs.define
class Client:
    routes: Routes
    requests: Brokers = attrs.field(factory=Brokers)
    heartbeats: Heartbeats = attrs.field(factory=Heartbeats)


def consumer(client: Client, **nodes: Any) -> ConsumerRequests:
    return ConsumerRequests(client, "G", PullFromWhichNode(**nodes))  # type: ignore[arg-type]


async def pull(requests: ConsumerRequests, commit: int | None = 5) -> PullStatus:
    found = await requests.pull(QUEUE, 7, ALL, max_msg_nums=32, suspend_ms=15_000, deadline_s=1.0, commit_offset=commit)
    return found.status


async def test_the_next_pull_goes_where_the_last_answer_suggested() -> None:
    client = Client(Routes({0: "m:1", 1: "s:1"}))
    requests = consumer(client)
    client.requests.suggests = 1
    assert await pull(requests) is PullStatus.NO_NEW_MSG
    client.requests.suggests = 0
    await pull(requests)
    await pull(requests)
    assert client.requests.addresses == ["m:1", "s:1", "m:1"]


async def test_a_slave_is_not_told_what_to_commit() -> None:
    client = Client(Routes({1: "s:1"}))
    await pull(consumer(client))
    client.routes.known = {0: "m:1"}
    await pull(consumer(client))
    await pull(consumer(client), commit=None)
    headers = [header for _, header in client.requests.asked]
    assert all(isinstance(header, PullMessageRequestHeader) for header in headers)
    flags = [PullSysFlag(header.sys_flag) for header in headers]
    both = PullSysFlag.SUSPEND | PullSysFlag.SUBSCRIPTION
    assert flags == [both, both | PullSysFlag.COMMIT_OFFSET, both]


async def test_connect_broker_by_user_pulls_from_the_default_broker() -> None:
    client = Client(Routes({0: "m:1", 2: "t:1"}))
    requests = consumer(client, connect_broker_by_user=True, default_broker_id=2)
    await pull(requests)
    await pull(requests)
    assert client.requests.addresses == ["t:1", "t:1"]


async def test_without_an_address_the_route_is_refreshed_and_the_pull_tried_once_more() -> None:
    client = Client(Routes({}, [{0: "m:1"}]))
    await pull(consumer(client))
    assert (client.routes.refreshed, client.requests.addresses) == (1, ["m:1"])


async def test_without_an_address_after_a_refresh_the_pull_fails() -> None:
    client = Client(Routes({}, [{}, {0: "m:1"}]))
    with pytest.raises(BrokerUnreachable, match="b is on no route of T") as caught:
        await pull(consumer(client))
    assert caught.value.retriable
    assert (client.routes.refreshed, client.requests.addresses) == (1, [])


async def test_offsets_go_to_the_master_and_only_after_a_refresh_to_a_slave() -> None:
    client = Client(Routes({1: "s:1"}, [{1: "s:1"}]))
    await consumer(client).update_consumer_offset(QUEUE, 3, 1.0)
    assert (client.routes.refreshed, client.requests.addresses) == (1, ["s:1"])
    client.routes.known = {0: "m:1", 1: "s:1"}
    await consumer(client).update_consumer_offset(QUEUE, 3, 1.0)
    assert (client.routes.refreshed, client.requests.addresses) == (1, ["s:1", "m:1"])


async def test_what_only_a_master_does_is_asked_of_no_slave() -> None:
    client = Client(Routes({1: "s:1"}, [{1: "s:1"}]))
    with pytest.raises(BrokerUnreachable, match="no master"):
        await consumer(client).lock_batch_mq("b", [QUEUE], 1.0)
    assert client.requests.addresses == []
