"""What people pass: directories as text, and bodies as text."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Sequence
from pathlib import Path
from typing import cast

import pytest

from rmq_actors.client.message_ext import MessageExt
from rmq_actors.client.message_listener import Concurrently, ConsumeConcurrentlyContext
from rmq_actors.embedding.asyncio_clients import open_asyncio_client
from rmq_actors.embedding.broker import load_broker_config, open_configured_broker
from rmq_actors.embedding.cluster import open_cluster
from rmq_actors.embedding.cluster_protocol import BrokerDown
from rmq_actors.embedding.consumers import open_pull_consumer, open_push_consumer
from rmq_actors.embedding.local_store import open_message_store
from rmq_actors.embedding.name_server import open_local_name_server
from rmq_actors.protocols.put_completion import PutStatus
from rmq_actors.store.config import BrokerRole, MessageStoreConfig
from rmq_actors.testing.fixtures import open_store_fixture
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


@pytest.mark.trio
async def test_slaves_and_follows_contradict_each_other() -> None:
    told = "^open_cluster: slaves=1 and follows contradict: follows names all brokers, slaves too$"
    with pytest.raises(ValueError, match=told):
        async with open_cluster(None, slaves=1, follows={"a": None}):
            pass
    async with open_cluster(None, follows={"a": None}, store=SMALL) as cluster:
        assert cluster.running == ["a"]


@pytest.mark.trio
async def test_a_put_takes_a_message() -> None:
    """Its body alone names no topic."""
    async with open_cluster(None, slaves=0, store=SMALL) as cluster:
        for given in (b"x", "x", None, ("T", b"x")):
            with pytest.raises(
                TypeError, match=rf"^Brokers\.put: message must be Message, not {re.escape(repr(given))}$"
            ):
                await cluster.put(cast("Message", given))
        with pytest.raises(TypeError, match=r"^Brokers\.put: to must be text or None, not 5$"):
            await cluster.put(Message("T", b"x"), to=cast("str", 5))
        assert (await cluster.put(Message("T", b"x"))).status is PutStatus.PUT_OK


def test_a_put_of_a_test_takes_a_message(tmp_path: Path) -> None:
    with open_store_fixture(tmp_path) as store, pytest.raises(TypeError, match=r"^StoreFixture\.put: message must be "):
        store.put(cast("Message", b"x"))


async def _ignore(messages: Sequence[MessageExt], context: ConsumeConcurrentlyContext) -> None:
    pass


@pytest.mark.trio
async def test_an_address_that_is_not_this_machines_is_named_with_its_setting(tmp_path: Path) -> None:
    conf = tmp_path / "broker.conf"
    conf.write_text(f"storePathRootDir={tmp_path}/store\nlistenPort=0\nhaListenPort=0\nbindAddress=192.0.2.1\n")
    told = r"192\.0\.2\.1:0: .* \(haListenHost or bindAddress, haListenPort\)$"
    with pytest.raises(OSError, match=told):
        async with open_configured_broker(load_broker_config(conf)):
            pass


@pytest.mark.trio
async def test_a_cluster_whose_block_is_over_says_so(tmp_path: Path) -> None:
    async with open_cluster(tmp_path, slaves=0, store=SMALL, name_server=True) as cluster:
        pass
    over = "the block of open_cluster is over"
    with pytest.raises(BrokerDown, match=over):
        await cluster.start("master")
    with pytest.raises(BrokerDown, match=over):
        async with cluster.producer():
            pass
    with pytest.raises(BrokerDown):
        await cluster.stop("master")


@pytest.mark.parametrize("subscriptions", ["Orders", ["Orders"], {"Orders": 5}, {5: "*"}], ids=repr)
def test_subscriptions_that_are_no_mapping_are_named(subscriptions: object) -> None:
    given = cast("dict[str, str]", subscriptions)
    with pytest.raises(TypeError, match=r"^open_pull_consumer: subscriptions must be an expression for each topic"):
        open_pull_consumer("127.0.0.1:1", "group", given)
    with pytest.raises(TypeError, match=r"^open_push_consumer: subscriptions must be an expression for each topic"):
        open_push_consumer("127.0.0.1:1", "group", given, Concurrently(_ignore))


@pytest.mark.parametrize("listener", [_ignore, None, "bill"], ids=["function", "None", "text"])
def test_a_listener_of_no_kind_is_named(listener: object) -> None:
    takes = r"listener must be Concurrently\(async function\) or Orderly"
    with pytest.raises(TypeError, match=f"^open_push_consumer: {takes}"):
        open_push_consumer("127.0.0.1:1", "group", {"Orders": "*"}, cast("Concurrently", listener))

    async def main() -> None:
        async with open_asyncio_client("127.0.0.1:1") as client:
            client.push_consumer("group", {"Orders": "*"}, cast("Concurrently", listener))

    with pytest.raises(TypeError, match=f"^AsyncioClient.push_consumer: {takes}"):
        asyncio.run(main())


@pytest.mark.parametrize("body", ["text", 5, None, ["x"]], ids=repr)
def test_a_body_that_is_no_bytes_is_refused_where_it_is_written(body: object) -> None:
    """The error named a length or a checksum, at the put."""
    kind = type(body).__name__
    for made in (Message, MessageBatch):
        with pytest.raises(TypeError, match=rf"^{made.__name__}\.body must be bytes, not {kind}") as raised:
            made("T", cast("bytes", body))
        assert ("encode it" in str(raised.value)) == isinstance(body, str)


@pytest.mark.parametrize("made", [Message, MessageBatch])
def test_a_topic_and_properties_of_another_type_are_refused_where_they_are_written(made: type[Message]) -> None:
    with pytest.raises(TypeError, match=rf"^{made.__name__}\.topic must be text, not 5$"):
        made(cast("str", 5), b"x")
    with pytest.raises(TypeError, match=rf"^{made.__name__}\.properties must be a mapping, not None$"):
        made("T", b"x", properties=cast("dict[str, str]", None))
    with pytest.raises(TypeError, match=rf"^{made.__name__}\.properties must be a mapping, not \['KEYS'\]$"):
        made("T", b"x", properties=cast("dict[str, str]", ["KEYS"]))


@pytest.mark.parametrize("body", [b"x", bytearray(b"x"), memoryview(b"x")], ids=lambda body: type(body).__name__)
def test_whatever_holds_bytes_is_a_body(body: bytes) -> None:
    assert bytes(Message("T", body).body) == b"x"
