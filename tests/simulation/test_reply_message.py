"""A request message and its reply: the broker hands the reply to the client that asked, and stores it."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator

import pytest
import trio

from rmq_actors.actors.system import open_actor_system
from rmq_actors.remoting.client import RemotingClient
from rmq_actors.remoting.config import RemotingClientConfig
from rmq_actors.remoting.connection import RemotingRequest
from rmq_actors.remoting.processor import ProcessorTable
from rmq_actors.testing.thin_client import ThinClient, send_request
from rmq_actors.wire.headers import decode_header
from rmq_actors.wire.headers.clients import UnregisterClientRequestHeader
from rmq_actors.wire.headers.messages import ReplyMessageRequestHeader, SendMessageResponseHeader
from rmq_actors.wire.properties import decode_properties
from rmq_actors.wire.remoting_command import RemotingCommand
from rmq_actors.wire.request_code import RequestCode
from rmq_actors.wire.response_code import ResponseCode
from tests.simulation.test_send_and_pull import TIMEOUT_MS, Clients, run
from tests.worlds.name_server_world import CLIENT

REPLY_TOPIC = "DefaultCluster_REPLY_TOPIC"
ASKER = "asker@1"
OK = ResponseCode.SUCCESS


@contextlib.asynccontextmanager
async def asker(
    clients: Clients, code: int | None = OK, client_id: str = ASKER
) -> AsyncIterator[tuple[ThinClient, list[RemotingCommand]]]:
    """A client that has asked with a message, the replies that it is handed, and how it answers them: None, never."""
    own, tracer = clients.servers.nodes[CLIENT], clients.servers.recorder.tracer(CLIENT)
    address, processors = clients.servers.brokers["a-0"].address, ProcessorTable(tracer)
    handed: list[RemotingCommand] = []

    def take(request: RemotingRequest) -> RemotingCommand | None:
        handed.append(request.command)
        return None if code is None else request.command.response(code, "as the test says")

    processors.register([RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT], take)
    async with open_actor_system(client_id, tracer, entropy=own.entropy) as system:
        remoting = RemotingClient(RemotingClientConfig(), own.entropy, tracer, processors)
        await system.start(remoting)
        client = ThinClient(lambda request: remoting.invoke(address, request, TIMEOUT_MS), client_id)
        assert (await client.heartbeat(producers=["PG"])).code == OK
        yield client, handed


def reply_request(to: str | None = ASKER, body: bytes = b"the reply", topic: str = REPLY_TOPIC) -> RemotingCommand:
    properties = {"CORRELATION_ID": "c-1"} if to is None else {"REPLY_TO_CLIENT": to, "CORRELATION_ID": "c-1"}
    command = send_request(topic, body, 0, properties, flag=5)
    command.code = RequestCode.SEND_REPLY_MESSAGE_V2
    return command


async def stored(client: ThinClient) -> list[bytes]:
    await trio.sleep(0.1)
    return (await client.pull(REPLY_TOPIC, 0, 0)).bodies


def test_the_client_that_asked_is_handed_the_reply_and_it_is_stored() -> None:
    async def use(clients: Clients) -> None:
        async with asker(clients) as (_, handed), clients.client() as consumer:
            answer = await consumer.ask(reply_request())
            assert answer.code == OK
            placed = decode_header(SendMessageResponseHeader, answer)
            assert (placed.queue_id, placed.queue_offset, len(placed.msg_id)) == (0, 0, 32)
            (pushed,) = handed
            header = decode_header(ReplyMessageRequestHeader, pushed)
            assert (header.topic, header.producer_group, header.flag, header.queue_id) == (REPLY_TOPIC, "PG", 5, 0)
            assert header.born_host.startswith(clients.servers.nodes[CLIENT].address)
            properties = decode_properties((header.properties or "").encode())
            assert properties.pop("PUSH_REPLY_TIME").isdigit()
            assert properties == {"REPLY_TO_CLIENT": ASKER, "CORRELATION_ID": "c-1"}
            assert pushed.body == b"the reply"
            assert await stored(consumer) == [b"the reply"]

    assert run(use).crashes == []


def test_without_storing_a_reply_is_only_handed_on() -> None:
    async def use(clients: Clients) -> None:
        async with asker(clients) as (_, handed), clients.client() as consumer:
            answer = await consumer.ask(reply_request())
            placed = decode_header(SendMessageResponseHeader, answer)
            assert (answer.code, placed) == (OK, SendMessageResponseHeader("0", 0, 0))
            assert len(handed) == 1
            assert await stored(consumer) == []

    assert run(use, settings={"store_reply_message_enable": False}).crashes == []


@pytest.mark.parametrize(
    ("to", "remark"),
    [
        (None, "reply message properties[REPLY_TO_CLIENT] is null"),
        ("gone@2", "push reply message fail, channel of <gone@2> not found."),
    ],
)
def test_a_reply_to_nobody_is_stored_and_the_consumer_told(to: str | None, remark: str) -> None:
    async def use(clients: Clients) -> None:
        async with asker(clients) as (_, handed), clients.client() as consumer:
            answer = await consumer.ask(reply_request(to))
            assert (answer.code, answer.remark) == (ResponseCode.SYSTEM_ERROR, remark)
            assert handed == []
            assert await stored(consumer) == [b"the reply"]

    assert run(use).crashes == []


@pytest.mark.parametrize("code", [ResponseCode.SYSTEM_ERROR, None])
def test_a_client_that_does_not_take_its_reply_is_told_of(code: int | None) -> None:
    async def use(clients: Clients) -> None:
        async with asker(clients, code) as (_, handed), clients.client() as consumer:
            answer = await consumer.ask(reply_request())
            assert (answer.code, answer.remark) == (
                ResponseCode.SYSTEM_ERROR,
                f"push reply message to {ASKER}fail.",
            )
            assert len(handed) == 1

    assert run(use).crashes == []


def test_a_client_that_has_left_its_group_is_not_found() -> None:
    async def use(clients: Clients) -> None:
        async with asker(clients) as (client, _), clients.client() as consumer:
            assert (await consumer.ask(reply_request())).code == OK
            header = UnregisterClientRequestHeader(ASKER, producer_group="PG")
            assert (await client.request(RequestCode.UNREGISTER_CLIENT, header)).code == OK
            assert "not found" in ((await consumer.ask(reply_request())).remark or "")

    assert run(use).crashes == []


def test_a_reply_is_checked_as_a_message_that_is_sent() -> None:
    async def use(clients: Clients) -> None:
        async with asker(clients) as (_, handed), clients.client() as consumer:
            answer = await consumer.ask(reply_request(topic="SELF_TEST_TOPIC"))
            assert answer.code == ResponseCode.NO_PERMISSION
            assert handed == []

    assert run(use).crashes == []
