"""What people pass: directories as text, and bodies as text."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import cast

import pytest

from rmq_actors.client.message_ext import MessageExt
from rmq_actors.client.message_listener import Concurrently, ConsumeConcurrentlyContext
from rmq_actors.embedding.asyncio_clients import open_asyncio_client
from rmq_actors.embedding.clients import open_admin, open_producer
from rmq_actors.embedding.cluster import open_cluster
from rmq_actors.embedding.consumers import open_pull_consumer, open_push_consumer
from rmq_actors.embedding.local_store import open_message_store
from rmq_actors.embedding.name_server import open_local_name_server
from rmq_actors.protocols.put_completion import PutStatus
from rmq_actors.store.config import BrokerRole, MessageStoreConfig
from rmq_actors.wire.batch import MessageBatch
from rmq_actors.wire.record import Message

SMALL = MessageStoreConfig(
    broker_role=BrokerRole.ASYNC_MASTER,
    mapped_file_size_commit_log_bytes=4096,
    mapped_file_size_consume_queue_bytes=200,
    max_hash_slot_num=8,
    max_index_num=16,
)


@pytest.mark.trio
async def test_directories_may_be_text(tmp_path: Path) -> None:
    async with open_message_store(str(tmp_path / "store"), SMALL) as store:
        assert (await store.puts.put_message(Message("T", b"x"))).status is PutStatus.PUT_OK
    async with open_cluster(str(tmp_path / "cluster"), slaves=0, store=SMALL) as cluster:
        assert (await cluster.master.put_message(Message("T", b"x"))).status is PutStatus.PUT_OK
    async with open_local_name_server(str(tmp_path / "namesrv")) as name_server:
        assert name_server.address
    assert (tmp_path / "store" / "commitlog").is_dir()
    assert (tmp_path / "cluster" / "master" / "commitlog").is_dir()


async def _ignore(messages: Sequence[MessageExt], context: ConsumeConcurrentlyContext) -> None:
    pass


@pytest.mark.parametrize(
    "opened",
    [
        lambda: open_producer("127.0.0.1:1", "group"),
        lambda: open_admin("127.0.0.1:1"),
        lambda: open_pull_consumer("127.0.0.1:1", "group"),
        lambda: open_push_consumer("127.0.0.1:1", "group", {}, Concurrently(_ignore)),
    ],
    ids=["producer", "admin", "pull consumer", "push consumer"],
)
def test_a_trio_client_that_asyncio_opens_says_what_to_use_instead(
    opened: Callable[[], AbstractAsyncContextManager[object]],
) -> None:
    async def main() -> None:
        async with opened():
            pass

    with pytest.raises(RuntimeError, match=r"clients are for Trio's tasks.* open_asyncio_client"):
        asyncio.run(main())


@pytest.mark.trio
@pytest.mark.parametrize("subscriptions", ["Orders", ["Orders"], {"Orders": 5}, {5: "*"}], ids=repr)
async def test_subscriptions_that_are_no_mapping_are_named(subscriptions: object) -> None:
    given = cast("dict[str, str]", subscriptions)
    for opened in (
        open_pull_consumer("127.0.0.1:1", "group", given),
        open_push_consumer("127.0.0.1:1", "group", given, Concurrently(_ignore)),
    ):
        with pytest.raises(TypeError, match=r"^subscriptions is .*: it takes an expression for each topic, such as"):
            async with opened:
                pass


@pytest.mark.trio
@pytest.mark.parametrize("listener", [_ignore, None, "bill"], ids=["function", "None", "text"])
async def test_a_listener_of_no_kind_is_named(listener: object) -> None:
    with pytest.raises(TypeError, match=r"^listener is .*: it takes Concurrently\(async function\) or Orderly"):
        async with open_push_consumer("127.0.0.1:1", "group", {"Orders": "*"}, cast("Concurrently", listener)):
            pass


def test_a_listener_of_no_kind_is_named_in_asyncio() -> None:
    async def main() -> None:
        async with (
            open_asyncio_client("127.0.0.1:1") as client,
            client.push_consumer("group", {"Orders": "*"}, cast("Concurrently", _ignore)),
        ):
            pass

    with pytest.raises(TypeError, match=r"^listener is .*: it takes Concurrently\(async function\) or Orderly"):
        asyncio.run(main())


@pytest.mark.parametrize("body", ["text", 5, None, ["x"]], ids=repr)
def test_a_body_that_is_no_bytes_is_refused_where_it_is_written(body: object) -> None:
    """The error named a length or a checksum, at the put."""
    kind = type(body).__name__
    for made in (Message, MessageBatch):
        with pytest.raises(TypeError, match=rf"^{made.__name__}\.body must be bytes, not {kind}") as raised:
            made("T", cast("bytes", body))
        assert ("encode it" in str(raised.value)) == isinstance(body, str)


@pytest.mark.parametrize("body", [b"x", bytearray(b"x"), memoryview(b"x")], ids=lambda body: type(body).__name__)
def test_whatever_holds_bytes_is_a_body(body: bytes) -> None:
    assert bytes(Message("T", body).body) == b"x"
