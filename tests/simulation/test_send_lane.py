"""The send lane and the general door: the same bytes in, the same answers out, the same log."""

from __future__ import annotations

from typing import Any

import attrs
import pytest
import trio
from hypothesis import given, settings

from rmq_actors.broker.processors.send_rows import SendLane
from rmq_actors.remoting.connection import RemotingConnection
from rmq_actors.remoting.processor import ProcessorTable
from rmq_actors.store.config import BrokerRole, FlushDiskType
from tests.worlds.name_server_world import CLIENT, SMALL_STORE
from tests.worlds.role_world import RoleWorld
from tests.worlds.send_frames import FRAMES, TOPIC, frame


@attrs.define(eq=False)
class Door:
    """What came out of a broker: answers as they came, its log, and how many messages went through the lane."""

    use_lane: bool = True
    answers: bytes = b""
    log: bytes = b""
    rows: int = 0
    bad_requests: list[str] = attrs.field(factory=list)

    def take(self, frames: list[bytes], **store: Any) -> Door:
        """Make two topics, then send all frames at once."""
        servers = RoleWorld.of(0, **{"broker_role": BrokerRole.ASYNC_MASTER, **store})
        process = SendLane.process

        def count(lane: SendLane, connection: RemotingConnection, rows: Any) -> int:
            served = process(lane, connection, rows)
            self.rows += served
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
