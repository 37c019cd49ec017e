"""The send lane and the general door: the same bytes in, the same answers out, the same log."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import attrs
import pytest
import trio
from hypothesis import given, settings

from rmq_actors.broker.processors.send_rows import SendLane
from rmq_actors.remoting import row_group
from rmq_actors.remoting.connection import RemotingConnection
from rmq_actors.remoting.processor import ProcessorTable
from rmq_actors.remoting.row_group import ReceivedRows
from rmq_actors.store.config import BrokerRole, FlushDiskType
from rmq_actors.wire.frame_reader import FrameReader
from rmq_actors.wire.remoting_command import RemotingCommand
from sim_net.kernel.wall_clock import SimWallClock
from tests.worlds.name_server_world import CLIENT, SMALL_STORE
from tests.worlds.role_world import RoleWorld
from tests.worlds.send_frames import FRAMES, TOPIC, frame

_NOW_MS = 1_700_000_000_000


@attrs.define(eq=False)
class Door:
    """What came out of a broker: answers as they came, its log, and how many messages went through the lane."""

    use_lane: bool = True
    answers: bytes = b""
    log: bytes = b""
    rows: int = 0
    bad_requests: list[str] = attrs.field(factory=list)
    #: Whether rows are held until the connection has received more.
    holds_rows: bool = False

    def take(self, frames: list[bytes], **store: Any) -> Door:
        """Make two topics, then send all frames at once."""
        servers = RoleWorld.of(0, **{"broker_role": BrokerRole.ASYNC_MASTER, **store})
        process = SendLane.process

        def count(lane: SendLane, received: Sequence[ReceivedRows[RemotingConnection]]) -> Sequence[int]:
            served = process(lane, received)
            self.rows += sum(served)
            return served

        def no_lane(lane: SendLane, processors: ProcessorTable) -> None:
            del lane, processors

        async def use() -> None:
            host, port = servers.brokers["a-0"].address.rsplit(":", 1)
            stream = await trio.open_tcp_stream(host, int(port))
            async with stream:
                for topic in (TOPIC, "OtherTopic"):
                    await stream.send_all(frame(0, b=topic))
                    assert await stream.receive_some()
                await stream.send_all(b"".join(frames))
                with trio.move_on_after(5):
                    while data := await stream.receive_some():
                        self.answers += data
            log = servers.brokers["a-0"].log
            self.log = b"".join(map(bytes, log.ranges(log.min_offset, log.max_offset)))
            self.bad_requests = list(servers.crashes)
            servers.crashes.clear()

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(SendLane, "process", count)
            if self.holds_rows:
                patch.setattr(row_group, "let_others_run", wait_in_vain)
            # Records have it, and the lane stores some of them a round of Trio's loop later.
            patch.setattr(SimWallClock, "now_ms", lambda _: _NOW_MS)
            if not self.use_lane:
                patch.setattr(SendLane, "register", no_lane)
            servers.run_well(lambda: servers.on_node(CLIENT, use))
        assert all("bad_request" in crash for crash in self.bad_requests), self.bad_requests
        return self


def check_both(frames: list[bytes], **store: Any) -> Door:
    lane, general = Door().take(frames, **store), Door(use_lane=False).take(frames, **store)
    assert general.rows == 0
    assert lane.answers == general.answers
    assert lane.log == general.log
    assert lane.bad_requests == general.bad_requests
    return lane


@settings(max_examples=25)
@given(FRAMES)
def test_both_doors_give_the_same_answers_and_the_same_log(frames: list[bytes]) -> None:
    check_both(frames)


@settings(max_examples=10)
@given(FRAMES)
def test_rows_that_are_held_while_more_arrives_keep_their_order(frames: list[bytes]) -> None:
    held, general = Door(holds_rows=True).take(frames), Door(use_lane=False).take(frames)
    assert held.answers == general.answers
    assert held.log == general.log


def test_plain_messages_go_through_the_lane_and_fill_several_files() -> None:
    frames = [frame(number, b"x" * 300, e=str(number % 4)) for number in range(300)]
    lane = check_both(frames)
    assert lane.rows > 200


@pytest.mark.parametrize(
    "store",
    [
        {"flush_disk_type": FlushDiskType.SYNC_FLUSH},
        {"broker_role": BrokerRole.SYNC_MASTER},
        {"flush_disk_type": FlushDiskType.SYNC_FLUSH, "waiting_puts_max": 7},
    ],
    ids=str,
)
def test_answers_to_rows_wait_for_what_was_promised(store: dict[str, Any]) -> None:
    frames = [frame(number, b"", 2 if number % 5 == 0 else 0) for number in range(20)]
    assert check_both(frames, **store).rows > 0


def test_rows_do_not_go_into_the_transient_store_pool() -> None:
    assert check_both([frame(number) for number in range(20)], transient_store_pool_enable=True).rows == 0


def test_special_messages_keep_their_place_among_rows() -> None:
    frames = [frame(1), frame(2, i="WAIT\x01false"), frame(3), frame(4, b="a/b"), frame(5), frame(6)]
    lane = check_both(frames)
    assert lane.rows > 0


@pytest.mark.parametrize("left_bytes", [0, 7, 8, 9])
def test_rows_leave_room_for_the_blank_that_ends_a_file(left_bytes: int) -> None:
    file_bytes = SMALL_STORE.mapped_file_size_commit_log_bytes
    empty = check_both([frame(1, b"")])
    body_bytes = file_bytes - left_bytes - len(empty.log)
    check_both([frame(1, b"x" * body_bytes), frame(2)])


def test_rows_of_several_connections_are_stored_together_and_each_is_answered_in_order() -> None:
    """Connection i sends to queue i: its answers tell places in that queue, one after the other."""
    servers = RoleWorld.of(0, broker_role=BrokerRole.ASYNC_MASTER)
    groups: list[int] = []
    process = SendLane.process

    def note(lane: SendLane, received: Sequence[ReceivedRows[RemotingConnection]]) -> Sequence[int]:
        groups.append(len(received))
        return process(lane, received)

    async def produce(queue: int) -> None:
        host, port = servers.brokers["a-0"].address.rsplit(":", 1)
        async with await trio.open_tcp_stream(host, int(port)) as stream:
            reader = FrameReader()
            for number in range(10):
                await stream.send_all(frame(number, e=str(queue)) + frame(100 + number, b"", 2, e=str(queue)))
                answers: list[RemotingCommand] = []
                while not answers:
                    data = await stream.receive_some()
                    assert data
                    with reader.free_space() as space:
                        space[: len(data)] = data
                    reader.received(len(data))
                    answers = reader.commands()
                (answer,) = answers
                fields = answer.ext_fields or {}
                assert (answer.opaque, fields["queueId"]) == (number, str(queue))
                assert fields["queueOffset"] == str(2 * number + (1 if queue == 0 else 0))

    async def use() -> None:
        await connect_and_make_topic(servers)
        async with trio.open_nursery() as nursery:
            for queue in range(4):
                nursery.start_soon(produce, queue)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(SendLane, "process", note)
        patch.setattr(row_group, "let_others_run", wait_in_vain)
        servers.run_well(lambda: servers.on_node(CLIENT, use))
    assert max(groups) > 1


async def wait_in_vain() -> None:
    """Simulated segments arrive one by one: for that long those of several connections do."""
    with trio.CancelScope(shield=True):
        await trio.sleep(0.005)


async def connect_and_make_topic(servers: RoleWorld) -> None:
    """Its first message is in queue 0."""
    host, port = servers.brokers["a-0"].address.rsplit(":", 1)
    async with await trio.open_tcp_stream(host, int(port)) as stream:
        await stream.send_all(frame(0, e="0"))
        assert await stream.receive_some()


def test_a_queue_number_below_0_leaves_the_choice_to_the_broker_and_one_that_is_too_great_is_refused() -> None:
    """As RocketMQ's sendMessage and msgCheck do it, whichever door a message comes by."""
    numbers = ["-1", "-7", str(-(2**31)), "4", "1"]
    door = check_both([frame(number, b"x", e=numbers[number % 5]) for number in range(30)])
    assert door.rows > 0
    assert door.answers.count(b"request queueId[4] is illegal") == 6
    queues = re.findall(rb'"queueId":"(-?\d+)"', door.answers)
    assert len(queues) == 24
    assert {*queues} == {b"0", b"1", b"2", b"3"}
