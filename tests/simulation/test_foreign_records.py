"""A slave whose master has records that only RocketMQ's master takes: it follows, stops in order, and takes over."""

from __future__ import annotations

import pytest
import trio

from rmq_actors.protocols.put_completion import PutStatus
from rmq_actors.store.config import BrokerRole
from rmq_actors.store.files.layout import ABORT_FILE
from rmq_actors.tracing.events.ha import HaClientHalt
from rmq_actors.wire.record import EncodedMessage, decode_message
from tests.simulation.test_role_changes import bytes_of
from tests.worlds.foreign_records import LONG_PROPERTIES, NO_UTF8_PROPERTIES, encode_foreign
from tests.worlds.role_world import TOPIC, RoleWorld

FOREIGN = {
    "not UTF-8": encode_foreign(TOPIC.encode(), NO_UTF8_PROPERTIES, b"foreign"),
    "too long": encode_foreign(TOPIC.encode(), LONG_PROPERTIES, b"foreign"),
}


async def put_foreign(servers: RoleWorld, record: EncodedMessage) -> None:
    """Into the master's log, as RocketMQ's master does."""
    store = servers.controller("a-0").store

    async def append() -> None:
        store.commit_log.append_message(record, 1)
        store.puts.log_grew()

    await servers.on_node("a-0", append)


def read(servers: RoleWorld, node: str) -> list[bytes]:
    """What a consumer gets of the queue, whose numbers may have gaps."""
    store, bodies, at = servers.controller(node).store, list[bytes](), 0
    while at < store.offsets.get_max_offset_in_queue(TOPIC, 0):
        found = store.reads.get_message(TOPIC, 0, at, 32)
        bodies += [decode_message(message).body for message in found.messages]
        assert found.next_begin_offset > at
        at = found.next_begin_offset
    return bodies


@pytest.mark.parametrize("kind", FOREIGN)
def test_a_slave_follows_stops_in_order_and_takes_over(kind: str) -> None:
    servers = RoleWorld.of(mapped_file_size_commit_log_bytes=1 << 20)
    foreign = [b"foreign"] if kind == "not UTF-8" else []
    expected = [b"before", *foreign, b"after", *foreign]

    async def use() -> None:
        await servers.put("a-0", b"before")
        await put_foreign(servers, FOREIGN[kind])
        assert (await servers.put("a-0", b"after")).status is PutStatus.PUT_OK
        # The last one too, which the recovery point names, and by which the slave compares logs.
        await put_foreign(servers, FOREIGN[kind])
        await servers.wait_replicated("a-1")
        await trio.sleep(3)
        bodies = {name: read(servers, name) for name in ("a-0", "a-1")}
        assert bodies == {"a-0": expected, "a-1": expected}
        assert bytes_of(servers, "a-0") == bytes_of(servers, "a-1")
        await servers.stop_broker("a-1")
        assert not servers.nodes["a-1"].disk.exists(ABORT_FILE)
        servers.boot("a-1")
        await servers.settle()
        assert read(servers, "a-1") == expected
        assert not servers.events(HaClientHalt)
        servers.nodes["a-0"].kill()
        assert await servers.change_role("a-1", BrokerRole.ASYNC_MASTER) is None
        assert (await servers.put("a-1", b"of the new master")).status is PutStatus.PUT_OK
        await trio.sleep(1)
        assert read(servers, "a-1") == [*expected, b"of the new master"]

    servers.run_well(use)
