"""What operators read of replication: who follows, from where, why not; and once, not at every attempt."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
import trio

from rmq_actors.wire.ha_frames import encode_report, encode_transfer_header
from sim_net import Node
from tests.worlds.ha_world import HA_PORT, HaCluster

Serve = Callable[[trio.SocketStream], Awaitable[None]]
Lines = Callable[[str], list[tuple[str, str]]]


@pytest.fixture
def lines(caplog: pytest.LogCaptureFixture) -> Lines:
    """Level and text of each line that one module has logged, INFO and above."""
    caplog.set_level(logging.INFO, "rmq_actors")

    def of(module: str) -> list[tuple[str, str]]:
        return [
            (record.levelname, record.getMessage())
            for record in caplog.records
            if record.name == f"rmq_actors.{module}" and record.levelno >= logging.INFO
        ]

    return of


def listen(cluster: HaCluster, serve: Serve, name: str = "master") -> None:
    """Somebody who is no broker listens where the master should."""

    async def run(node: Node) -> None:
        await trio.serve_tcp(serve, HA_PORT, host=node.address)

    cluster.node(name).boot(run)


def test_a_master_that_is_down_is_warned_of_once(lines: Lines) -> None:
    async def main(cluster: HaCluster) -> None:
        cluster.node("master")
        await cluster.start("slave")
        await trio.sleep(100)

    cluster = HaCluster().run(main)
    assert len(cluster.closed("slave")) > 15
    address = f"{cluster.node('master').address}:{HA_PORT}"
    assert lines("ha.ha_client") == [("WARNING", f"master {address}: connection_lost: Connection refused")]


def test_what_ends_each_attempt_is_warned_of_again_once_the_master_was_followed(lines: Lines) -> None:
    async def main(cluster: HaCluster) -> None:
        for _ in range(2):
            await cluster.start("master")
            if "slave" not in cluster.brokers:
                await cluster.start("slave")
            await trio.sleep(20)
            await cluster.stop("master")
            await trio.sleep(20)

    HaCluster().run(main)
    told = [text.partition(": ")[2] or text.partition(" is ")[2] for _, text in lines("ha.ha_client")]
    once = [
        "followed from offset 0",
        "peer_closed: the master closed the connection",
        "connection_lost: Connection refused",
    ]
    assert told == [*once, *once]


@pytest.mark.parametrize("answer", [b"HTTP/1.1 400 Bad Request\r\n\r\n", b""])
def test_who_answers_as_no_ha_port_does_is_not_followed(lines: Lines, answer: bytes) -> None:
    async def serve(stream: trio.SocketStream) -> None:
        async with stream:
            await stream.receive_some()
            if answer:
                await stream.send_all(answer)
                await trio.sleep(1)

    async def main(cluster: HaCluster) -> None:
        listen(cluster, serve)
        await cluster.start("slave")
        await trio.sleep(30)

    HaCluster().run(main)
    [(level, text)] = lines("ha.ha_client")
    assert level == "WARNING"
    assert ("illegal_frame: " if answer else "peer_closed: ") in text
    assert text.endswith(
        "; no frame came: it refuses this slave, and logs why, or what listens there is no master's HA port"
    )


def test_a_master_that_sends_another_offset_is_one(lines: Lines) -> None:
    async def serve(stream: trio.SocketStream) -> None:
        await stream.receive_some()
        await stream.send_all(encode_transfer_header(-5, 0))
        await trio.sleep(1)

    async def main(cluster: HaCluster) -> None:
        listen(cluster, serve)
        await cluster.start("slave")
        await trio.sleep(30)

    HaCluster().run(main)
    [(_, text)] = lines("ha.ha_client")
    assert text.endswith("offset_mismatch: the master sends offset -5, this slave's log ends at 0")


def test_a_master_says_from_where_a_slave_follows(lines: Lines) -> None:
    async def main(cluster: HaCluster) -> None:
        await cluster.start("master")
        await cluster.put_many(3)
        cluster.visit("near", encode_report(cluster.master_end))
        await trio.sleep(1)
        cluster.visit("ahead", encode_report(1 << 40))
        await trio.sleep(1)
        near = f"slave {cluster.node('near').address}:49152 (connection 1)"
        follows = ("INFO", f"{near} follows from offset {cluster.master_end}")
        assert [line for line in lines("ha.ha_connection") if "follows" in line[1]] == [follows]

    HaCluster().run(main)


@pytest.mark.parametrize(
    ("ha", "alone", "with_one"),
    [
        (
            {},
            [("WARNING", "no slave is connected: 1 of inSyncReplicas=2 copies: puts are answered SLAVE_NOT_AVAILABLE")],
            [],
        ),
        (
            {"total_replicas": 3, "in_sync_replicas": 3},
            [("WARNING", "no slave is connected: 1 of inSyncReplicas=3 copies: puts are answered SLAVE_NOT_AVAILABLE")],
            [("WARNING", "2 of inSyncReplicas=3 copies: puts are answered SLAVE_NOT_AVAILABLE")],
        ),
        ({"enable_auto_in_sync_replicas": True}, [("INFO", "no slave is connected")], []),
    ],
    ids=["one slave", "two slaves", "alone if it must be"],
)
def test_a_master_says_each_minute_that_it_waits_for_slaves_which_are_not_there(
    lines: Lines, ha: dict[str, Any], alone: list[tuple[str, str]], with_one: list[tuple[str, str]]
) -> None:
    def told() -> list[tuple[str, str]]:
        return [line for line in lines("ha.ha_service") if not line[1].startswith("slave ")]

    async def main(cluster: HaCluster) -> None:
        await cluster.start("master")
        await trio.sleep(61)
        assert told() == alone
        await trio.sleep(60)
        # Where puts wait for no slave that is said once.
        before = alone * 2 if alone[0][0] == "WARNING" else alone
        assert told() == before
        await cluster.start("slave")
        await trio.sleep(60)
        assert told() == [*before, *with_one]

    HaCluster(ha=ha).run(main)
