"""Sent messages wait for a disk or a slave in a bounded number: one more is answered SYSTEM_BUSY, at both doors."""

from __future__ import annotations

from typing import Any

import pytest
import trio

from rmq_actors.broker.processors.send_rows import SendLane
from rmq_actors.broker.waiting_sends import WaitingSends
from rmq_actors.remoting.connection import RemotingConnection
from rmq_actors.store.config import BrokerRole
from rmq_actors.wire.frame_reader import FrameReader
from rmq_actors.wire.remoting_command import RemotingCommand
from rmq_actors.wire.response_code import ResponseCode
from tests.worlds.name_server_world import CLIENT
from tests.worlds.role_world import RoleWorld
from tests.worlds.send_frames import PROPERTIES, frame

OVERLOAD = "[OVERLOAD]system busy, start flow control for a while"


async def answers(stream: trio.SocketStream, count: int) -> list[RemotingCommand]:
    found: list[RemotingCommand] = []
    reader = FrameReader()
    while len(found) < count:
        with reader.free_space() as space:
            received = await stream.socket.recv_into(space)
        assert received
        reader.received(received)
        found += reader.commands()
    return found


@pytest.mark.parametrize("lane", [True, False], ids=["lane", "general"])
@pytest.mark.parametrize(
    ("most", "store"), [(5, {}), (1000, {"waiting_puts_max": 5})], ids=["of a connection", "of all"]
)
def test_one_more_than_may_wait_is_answered_busy(
    lane: bool, most: int, store: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The slave is gone, so that everything waits until it is too late for an answer."""
    servers = RoleWorld.of(1, broker_role=BrokerRole.SYNC_MASTER, slave_timeout_ms=2000, **store)
    room = WaitingSends.room

    def small_room(waiting: WaitingSends, connection: RemotingConnection, configured: int) -> int:
        assert configured == 10_000, "sendThreadPoolQueueCapacity"
        return room(waiting, connection, most)

    monkeypatch.setattr(WaitingSends, "room", small_room)
    if not lane:
        monkeypatch.setattr(SendLane, "register", lambda _, processors: None)

    async def use() -> None:
        host, port = servers.brokers["a-0"].address.rsplit(":", 1)
        stream, other = [await trio.open_tcp_stream(host, int(port)) for _ in range(2)]
        async with stream, other:
            await stream.send_all(frame(0))
            assert [each.code for each in await answers(stream, 1)] == [ResponseCode.SUCCESS]
            servers.nodes["a-1"].pause()
            await stream.send_all(b"".join(frame(number) for number in range(1, 9)))
            busy = await answers(stream, 3)
            assert [(each.opaque, each.code, each.remark) for each in busy] == [
                (number, ResponseCode.SYSTEM_BUSY, OVERLOAD) for number in (6, 7, 8)
            ]
            await other.send_all(frame(9))
            if store:
                assert [each.code for each in await answers(other, 1)] == [ResponseCode.SYSTEM_BUSY]
            late = await answers(stream, 5)
            assert [(each.opaque, each.code) for each in late] == [
                (number, ResponseCode.FLUSH_SLAVE_TIMEOUT) for number in range(1, 6)
            ]
            if not store:
                assert [each.code for each in await answers(other, 1)] == [ResponseCode.FLUSH_SLAVE_TIMEOUT]
            await stream.send_all(frame(10, b"", 0, i=PROPERTIES[4]))
            assert [each.opaque for each in await answers(stream, 1)] == [10], "it waits for nobody, and nobody waits"

    servers.run_well(lambda: servers.on_node(CLIENT, use))
