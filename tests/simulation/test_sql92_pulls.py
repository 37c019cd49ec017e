"""Consumers that subscribe with expressions of SQL92: what they are given, and when they are refused."""

from __future__ import annotations

import pytest

from rmq_actors.broker import sql92
from rmq_actors.testing.thin_client import ThinClient
from rmq_actors.wire.bodies.encoding import encode_body
from rmq_actors.wire.bodies.heartbeat import CheckClientRequestBody, SubscriptionData
from rmq_actors.wire.headers import decode_header
from rmq_actors.wire.headers.offsets import PullMessageRequestHeader, PullMessageResponseHeader
from rmq_actors.wire.record import decode_message
from rmq_actors.wire.remoting_command import RemotingCommand
from rmq_actors.wire.request_code import RequestCode
from rmq_actors.wire.response_code import ResponseCode
from tests.simulation.test_send_and_pull import Clients, placed, run

TOPIC = "TopicOfExpressions"
ON = {"enable_property_filter": True}
OK = ResponseCode.SUCCESS
_SUSPEND, _SUBSCRIPTION = 2, 4


async def fill(client: ThinClient, count: int = 10) -> None:
    for number in range(count):
        placed(await client.send(TOPIC, b"%d" % number, 0, {"number": str(number)}))


async def pull(
    client: ThinClient, expression: str | None, offset: int = 0, kind: str = "SQL92", hold_ms: int = 0
) -> RemotingCommand:
    """Pull with an expression, or with that of the group's heartbeats."""
    flags = (0 if expression is None else _SUBSCRIPTION) | (_SUSPEND if hold_ms else 0)
    header = PullMessageRequestHeader(
        client.group, TOPIC, 0, offset, 32, flags, 0, hold_ms, 0, expression, None if expression is None else kind
    )
    return await client.request(RequestCode.PULL_MESSAGE, header)


def bodies(answer: RemotingCommand) -> list[bytes]:
    found, at = [], 0
    while at < len(answer.body):
        size = int.from_bytes(answer.body[at : at + 4], "big")
        found.append(decode_message(memoryview(answer.body)[at : at + size]).body)
        at += size
    return found


def subscribed(expression: str, kind: str = "SQL92") -> SubscriptionData:
    return SubscriptionData(topic=TOPIC, sub_string=expression, expression_type=kind, sub_version=1)


def test_a_pull_is_given_what_meets_its_expression_and_goes_on_after_what_does_not() -> None:
    async def use(clients: Clients) -> None:
        async with clients.client() as client:
            await fill(client)
            answer = await pull(client, "number BETWEEN 3 AND 5")
            assert (answer.code, bodies(answer)) == (OK, [b"3", b"4", b"5"])
            assert decode_header(PullMessageResponseHeader, answer).next_begin_offset == 10
            answer = await pull(client, "number > 100")
            assert answer.code == ResponseCode.PULL_RETRY_IMMEDIATELY
            assert decode_header(PullMessageResponseHeader, answer).next_begin_offset == 10

    assert run(use, settings=ON).crashes == []


def test_the_expression_of_heartbeats_counts_where_a_pull_has_none() -> None:
    async def use(clients: Clients) -> None:
        async with clients.client() as client:
            await fill(client)
            assert (await client.heartbeat(subscribed("number = 7"))).code == OK
            assert bodies(await pull(client, None)) == [b"7"]

    assert run(use, settings=ON).crashes == []


def test_what_is_no_expression_is_refused_at_each_door_with_the_reason() -> None:
    async def use(clients: Clients) -> None:
        async with clients.client() as client:
            await fill(client, 1)
            answer = await pull(client, "number >")
            assert answer.code == ResponseCode.SUBSCRIPTION_PARSE_FAILED
            assert "parse the consumer's subscription failed the expression 'number >' is wrong" in (
                answer.remark or ""
            )
            answer = await pull(client, "x", kind="XPATH")
            assert answer.code == ResponseCode.SUBSCRIPTION_PARSE_FAILED
            assert "not 'XPATH'" in (answer.remark or "")
            assert (await client.heartbeat(subscribed("number >"))).code == OK
            answer = await pull(client, None)
            assert answer.code == ResponseCode.FILTER_DATA_NOT_EXIST
            for expression, code in (("number >", ResponseCode.SUBSCRIPTION_PARSE_FAILED), ("number > 1", OK)):
                body = CheckClientRequestBody(
                    client_id=client.client_id, group=client.group, subscription_data=subscribed(expression)
                )
                assert (await client.request(RequestCode.CHECK_CLIENT_CONFIG, body=encode_body(body))).code == code

    assert run(use, settings=ON).crashes == []


def test_without_the_setting_they_are_refused() -> None:
    async def use(clients: Clients) -> None:
        async with clients.client() as client:
            await fill(client, 1)
            answer = await pull(client, "number = 0")
            assert answer.code == ResponseCode.SYSTEM_ERROR
            assert "does not support consumer to filter message by SQL92" in (answer.remark or "")

    assert run(use).crashes == []


def test_an_expression_that_costs_much_looks_at_fewer_messages_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody else is served while a pull is filtered: 800 messages by the longest expression took 0.4 s."""
    monkeypatch.setattr(sql92, "WORK_MAX", 5_000)

    async def use(clients: Clients) -> None:
        async with clients.client() as client:
            await fill(client)
            long = " OR ".join(["number = 9"] * 150)
            begins, given = [0], list[bytes]()
            while begins[-1] < 10:
                answer = await pull(client, long, begins[-1])
                given += bodies(answer)
                begins.append(decode_header(PullMessageResponseHeader, answer).next_begin_offset)
            assert given == [b"9"]
            assert begins == [0, 3, 6, 9, 10]

    assert run(use, settings=ON).crashes == []
