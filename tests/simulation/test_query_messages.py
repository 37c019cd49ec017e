"""What tools ask a broker for: messages by key and by unique key, and how many of them one answer has."""

from __future__ import annotations

import trio

from rmq_actors.broker.processors.query import UNIQUE_MSG_QUERY_FLAG
from rmq_actors.testing.thin_client import ThinClient
from rmq_actors.wire.headers import decode_header, encode_header
from rmq_actors.wire.headers.messages import QueryMessageRequestHeader, QueryMessageResponseHeader
from rmq_actors.wire.record import StoredMessage, decode_message
from rmq_actors.wire.remoting_command import FRAME_MAX_LENGTH_BYTES, RemotingCommand
from rmq_actors.wire.request_code import RequestCode
from rmq_actors.wire.response_code import ResponseCode
from tests.simulation.test_send_and_pull import Clients, placed, run

TOPIC = "TopicQueried"
FOR_EVER = 2**62


def query(key: str, max_num: int = 32, *, end_ms: int = FOR_EVER, unique: str | None = None) -> RemotingCommand:
    fields = encode_header(QueryMessageRequestHeader(TOPIC, key, max_num, 0, end_ms))
    if unique is not None:
        fields[UNIQUE_MSG_QUERY_FLAG] = unique
    return RemotingCommand(RequestCode.QUERY_MESSAGE, fields)


def messages(answer: RemotingCommand) -> list[StoredMessage]:
    body, found = answer.body, []
    while body:
        size = int.from_bytes(body[:4], "big")
        found.append(decode_message(memoryview(body[:size])))
        body = body[size:]
    return found


async def send_keyed(client: ThinClient, count: int, body: bytes = b"%d") -> None:
    """Messages that all have the key "same"."""
    for number in range(count):
        properties = {"KEYS": f"same k{number}", "UNIQ_KEY": f"U{number}"}
        text = body % number if b"%" in body else body
        placed(await client.send(TOPIC, text, number % 4, properties))
    await trio.sleep(0.1)


def test_a_message_is_found_by_each_of_its_keys() -> None:
    async def use(clients: Clients) -> None:
        async with clients.client() as client:
            await send_keyed(client, 3)
            for key in ("k1", "U1"):
                answer = await client.ask(query(key))
                assert answer.code == ResponseCode.SUCCESS
                (message,) = messages(answer)
                assert (message.body, message.properties["UNIQ_KEY"]) == (b"1", "U1")
                header = decode_header(QueryMessageResponseHeader, answer)
                (last,) = messages(await client.ask(query("k2")))
                assert header.index_last_update_phyoffset == last.physical_offset
                assert header.index_last_update_timestamp == last.store_timestamp_ms
            assert [each.body for each in messages(await client.ask(query("same")))] == [b"0", b"1", b"2"]
            assert [each.body for each in messages(await client.ask(query("same", 2)))] == [b"1", b"2"]

    run(use)


def test_an_answer_without_messages_says_how_far_the_index_is() -> None:
    async def use(clients: Clients) -> None:
        async with clients.client() as client:
            await send_keyed(client, 1)
            (message,) = messages(await client.ask(query("same")))
            too_early = query("same", end_ms=message.store_timestamp_ms - 10_000)
            for asked in (query("other"), query("same", 0), query("same", -1), too_early):
                answer = await client.ask(asked)
                assert answer.code == ResponseCode.QUERY_NOT_FOUND
                assert answer.remark == "can not find message, maybe time range not correct"
                header = decode_header(QueryMessageResponseHeader, answer)
                assert header.index_last_update_phyoffset == message.physical_offset

    run(use)


def test_an_answer_has_as_many_as_the_broker_s_limits_allow() -> None:
    async def use(clients: Clients) -> None:
        async with clients.client() as client:
            await send_keyed(client, 12)
            assert len(messages(await client.ask(query("same", 1000)))) == 10
            # A query by unique key counts by defaultQueryMaxNum, whatever it asks for.
            assert len(messages(await client.ask(query("same", 1000, unique="true")))) == 5
            assert len(messages(await client.ask(query("same", 7, unique="false")))) == 7

    run(use, max_msgs_num_batch=10, default_query_max_num=5)


def test_an_answer_has_the_newest_messages_that_one_frame_holds() -> None:
    async def use(clients: Clients) -> None:
        async with clients.client() as client:
            await send_keyed(client, 6, bytes(3_000_000))
            found = messages(await client.ask(query("same")))
            assert [each.properties["UNIQ_KEY"] for each in found] == ["U1", "U2", "U3", "U4", "U5"]
            assert sum(len(each.body) for each in found) < FRAME_MAX_LENGTH_BYTES

    run(use, mapped_file_size_commit_log_bytes=8_000_000)
