"""A slave that is behind receives first and dispatches later, but not for ever; nobody else waits."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import attrs
import pytest
import trio
import trio.testing

from rmq_actors.actors.services.channels import Broadcast
from rmq_actors.actors.services.timer import Timer
from rmq_actors.real_io.os_disk import OsDisk
from rmq_actors.store.dispatch import reput_message_service
from rmq_actors.store.dispatch.receiving import BUSY_S, OFTEN_BYTES, OFTEN_RECEIVES, OFTEN_S, Receiving
from rmq_actors.store.dispatch.reput_message_service import (
    DISPATCHED,
    GIVE_WAY_MAX_S,
    LAG_MAX_S,
    Reput,
    ReputMessageService,
)
from rmq_actors.store.log.commit_log import CommitLog
from rmq_actors.store.log.flush_modes import AppendedEnd
from rmq_actors.store.message_store import LOG_END
from rmq_actors.store.running_flags import RunningFlags
from rmq_actors.wire.record import Message, encode_message
from tests.worlds.recording import new_tracer


@attrs.define(eq=False)
class ReceivingLog:
    """The service over a log of a few records, without dispatchers."""

    log: CommitLog
    receiving: Receiving = attrs.field(factory=Receiving)
    log_end: Broadcast[int] = attrs.field(factory=LOG_END.open)
    reput: Reput = attrs.field(init=False)
    service: ReputMessageService = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self.reput = Reput(self.log, [], (), 0, None)
        self.service = ReputMessageService(
            self.reput,
            AppendedEnd(self.log, self.log_end),
            DISPATCHED.open(),
            RunningFlags(),
            new_tracer(),
            Timer(),
            self.receiving,
        )

    def append(self) -> None:
        self.log.append_message(encode_message(Message("T", b"")), 1)
        self.log_end.put(self.log.max_offset)

    @property
    def behind(self) -> int:
        return self.log.max_offset - self.reput.reput_from_offset

    def run(self, main: Callable[[ReceivingLog], Awaitable[None]]) -> None:
        async def run() -> None:
            async with trio.open_nursery() as nursery:
                await nursery.start(self.service.run)
                await main(self)
                nursery.cancel_scope.cancel()

        trio.run(run, clock=trio.testing.MockClock(autojump_threshold=0))


@pytest.fixture
def receiver(tmp_path: Path) -> Iterator[ReceivingLog]:
    log = CommitLog.open(OsDisk(tmp_path), 1 << 20, new_tracer())
    yield ReceivingLog(log)
    log.close()


async def receive_for(receiver: ReceivingLog, seconds: float) -> None:
    """A full receive every millisecond."""
    end = trio.current_time() + seconds
    while trio.current_time() < end:
        receiver.receiving.received(0, trio.current_time(), more_waits=True)
        receiver.append()
        await trio.sleep(0.001)


def test_a_master_dispatches_at_once(receiver: ReceivingLog) -> None:
    async def main(receiver: ReceivingLog) -> None:
        began = trio.current_time()
        for _ in range(5):
            receiver.append()
            await trio.testing.wait_all_tasks_blocked()
            assert not receiver.behind
        assert trio.current_time() == began

    receiver.run(main)


def test_receiving_comes_first_and_what_it_left_is_dispatched_soon_after(receiver: ReceivingLog) -> None:
    async def main(receiver: ReceivingLog) -> None:
        await trio.testing.wait_all_tasks_blocked()
        await receive_for(receiver, GIVE_WAY_MAX_S / 2)
        assert receiver.reput.reput_from_offset == 0
        await trio.sleep(2 * BUSY_S)
        assert not receiver.behind

    receiver.run(main)


def test_dispatching_goes_on_after_a_while_however_much_is_received(receiver: ReceivingLog) -> None:
    async def main(receiver: ReceivingLog) -> None:
        await trio.testing.wait_all_tasks_blocked()
        await receive_for(receiver, GIVE_WAY_MAX_S - 0.1)
        assert receiver.reput.reput_from_offset == 0
        await receive_for(receiver, 0.2)
        assert receiver.reput.reput_from_offset > 0

    receiver.run(main)


def test_no_more_than_so_much_is_left_undispatched(receiver: ReceivingLog, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reput_message_service, "GIVE_WAY_MAX_BYTES", 1000)

    async def main(receiver: ReceivingLog) -> None:
        most = 0
        end = trio.current_time() + 1
        while trio.current_time() < end:
            await receive_for(receiver, 0.001)
            await trio.sleep(BUSY_S / 2)
            most = max(most, receiver.behind)
        assert 500 < most < 2000

    receiver.run(main)


async def receive_often(receiver: ReceivingLog, seconds: float, every_s: float, size_bytes: int = 100) -> float:
    """Small receives; for how long something waited to be dispatched at most."""
    end, empty_at, longest_s = trio.current_time() + seconds, trio.current_time(), 0.0
    while trio.current_time() < end:
        if not receiver.behind:
            empty_at = trio.current_time()
        receiver.receiving.received(size_bytes, trio.current_time(), more_waits=False)
        receiver.append()
        longest_s = max(longest_s, trio.current_time() - empty_at)
        await trio.sleep(every_s)
    return longest_s


def test_where_small_receives_come_often_they_are_dispatched_together_and_soon(receiver: ReceivingLog) -> None:
    async def main(receiver: ReceivingLog) -> None:
        await trio.testing.wait_all_tasks_blocked()
        await receive_often(receiver, OFTEN_S / 4, 0.001)
        assert not receiver.behind, "these are few"
        await receive_often(receiver, 2 * OFTEN_S, 0.001)
        longest_s = await receive_often(receiver, 1.0, 0.001)
        assert LAG_MAX_S / 2 < longest_s <= LAG_MAX_S + 0.002
        receiver.receiving.received(100, trio.current_time(), more_waits=False)
        receiver.append()
        await trio.sleep(OFTEN_S + 0.001)
        assert not receiver.behind, "a quiet moment"

    receiver.run(main)


def test_receives_now_and_then_are_dispatched_at_once(receiver: ReceivingLog) -> None:
    async def main(receiver: ReceivingLog) -> None:
        await trio.testing.wait_all_tasks_blocked()
        assert await receive_often(receiver, 1.0, OFTEN_S / (OFTEN_RECEIVES - 4)) == 0

    receiver.run(main)


def test_a_large_receive_is_not_the_last_one(receiver: ReceivingLog) -> None:
    async def main(receiver: ReceivingLog) -> None:
        await trio.testing.wait_all_tasks_blocked()
        longest_s = await receive_often(receiver, 1.0, OFTEN_S / 2, OFTEN_BYTES)
        assert LAG_MAX_S / 2 < longest_s <= LAG_MAX_S + OFTEN_S / 2

    receiver.run(main)


@pytest.mark.parametrize("pieces", [1, 4, OFTEN_RECEIVES])
def test_what_comes_in_pieces_is_as_much(pieces: int) -> None:
    """Over TLS a receive brings one record, of 16 KiB at most, and leaves the next one."""
    receiving = Receiving()
    for number in range(pieces):
        assert receiving.often_until == float("-inf")
        receiving.received(OFTEN_BYTES // pieces, number * 0.0001, more_waits=number < pieces - 1)
    assert receiving.often_until == (pieces - 1) * 0.0001 + OFTEN_S


def test_what_comes_one_after_another_is_little() -> None:
    """Puts that wait for a slave come so: it dispatches between them."""
    receiving = Receiving()
    for number in range(OFTEN_RECEIVES):
        receiving.received(OFTEN_BYTES - 1, number * 0.0001, more_waits=False)
    assert receiving.often_until == float("-inf")


def test_a_service_that_gives_way_ends_at_once(receiver: ReceivingLog) -> None:
    async def main(receiver: ReceivingLog) -> None:
        await trio.testing.wait_all_tasks_blocked()
        await receive_for(receiver, 0.1)
        receiver.receiving.received(0, trio.current_time(), more_waits=True)
        began = trio.current_time()
        receiver.service.request_stop()
        await trio.testing.wait_all_tasks_blocked()
        assert trio.current_time() == began
        assert receiver.behind

    receiver.run(main)
