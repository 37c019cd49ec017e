"""A row that comes alone is dispatched by the task that puts it, after it was sent; many are left to another task."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import attrs
import pytest
import trio
import trio.testing

from rmq_actors.actors.services.channels import Broadcast
from rmq_actors.actors.services.timer import Timer
from rmq_actors.store.dispatch.reput_message_service import (
    AT_ONCE_AFTER_S,
    AT_ONCE_ROWS_MAX,
    DISPATCHED,
    LAG_MAX_S,
    Reput,
    ReputMessageService,
)
from rmq_actors.store.log.commit_log import CommitLog
from rmq_actors.store.log.flush_modes import AppendedEnd
from rmq_actors.store.message_store import LOG_END
from rmq_actors.store.running_flags import RunningFlag, RunningFlags
from rmq_actors.wire.record import Message, encode_message
from tests.unit.test_reput import Listener, make_log, reput_of, request_of
from tests.worlds.recording import new_tracer


@attrs.define(eq=False)
class Growing:
    """The service over a log that grows by rows."""

    log: CommitLog
    listener: Listener = attrs.field(factory=Listener)
    log_end: Broadcast[int] = attrs.field(factory=LOG_END.open)
    dispatched: Broadcast[int] = attrs.field(factory=DISPATCHED.open)
    flags: RunningFlags = attrs.field(factory=RunningFlags)
    timer: Timer = attrs.field(factory=Timer)
    reput: Reput = attrs.field(init=False)
    service: ReputMessageService = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self.reput = reput_of(self.log, self.listener)
        end = AppendedEnd(self.log, self.log_end)
        self.service = ReputMessageService(self.reput, end, self.dispatched, self.flags, new_tracer(), self.timer)

    def put(self, rows: int = 1) -> None:
        begins = [self.log.append_message(encode_message(Message("T", b"")), 1).offset for _ in range(rows)]
        self.reput.rows.put([request_of(self.log, begin) for begin in begins], 0)
        self.log_end.put(self.log.max_offset)

    @property
    def behind(self) -> int:
        return self.log.max_offset - self.reput.reput_from_offset

    def run(self, main: Callable[[Growing], Awaitable[None]]) -> None:
        async def run() -> None:
            async with trio.open_nursery() as nursery:
                await nursery.start(self.timer.run)
                await nursery.start(self.service.run)
                await trio.testing.wait_all_tasks_blocked()
                await main(self)
                nursery.cancel_scope.cancel()

        trio.run(run, clock=trio.testing.MockClock(autojump_threshold=0))


@pytest.fixture
def growing(tmp_path: Path) -> Iterator[Growing]:
    log, _ = make_log(tmp_path, [])
    yield Growing(log)
    log.close()


async def be_alone(growing: Growing) -> None:
    """Let this task be the one that made the log grow last."""
    growing.put()
    await trio.testing.wait_all_tasks_blocked()
    await trio.sleep(1)
    assert not growing.behind


def test_a_row_that_is_alone_is_dispatched_in_the_step_that_puts_it(growing: Growing) -> None:
    async def main(growing: Growing) -> None:
        await be_alone(growing)
        with growing.dispatched.subscribe() as dispatched:
            growing.put()
            assert not growing.behind
            assert dispatched.receive_nowait() == growing.log.max_offset
        assert not growing.listener.lagging, "nor does the index lag after a put now and then"
        await trio.sleep(2 * AT_ONCE_AFTER_S)
        growing.put(AT_ONCE_ROWS_MAX)
        assert not growing.behind
        assert len(growing.listener.lagging) == AT_ONCE_ROWS_MAX
        await trio.sleep(2 * LAG_MAX_S)
        assert not growing.listener.lagging

    growing.run(main)


def test_a_slave_is_sent_a_put_before_it_is_dispatched(growing: Growing) -> None:
    behind: list[int] = []

    def send(_: int) -> bool:
        behind.append(growing.behind)
        return True

    async def main(growing: Growing) -> None:
        await be_alone(growing)
        with growing.log_end.subscribe(send):
            growing.put()
        assert not growing.behind
        assert len(behind) == 1
        assert behind[0] > 0

    growing.run(main)


def test_many_rows_are_left_to_the_task_that_is_woken_once(growing: Growing) -> None:
    async def main(growing: Growing) -> None:
        await be_alone(growing)
        growing.put(AT_ONCE_ROWS_MAX + 1)
        assert growing.behind
        await trio.testing.wait_all_tasks_blocked()
        assert not growing.behind
        await trio.sleep(1)
        seen = len(growing.listener.seen)
        for _ in range(10):
            growing.put()
        assert len(growing.listener.seen) == seen + 1, "those that follow at once come together"
        await trio.testing.wait_all_tasks_blocked()
        assert not growing.behind

    growing.run(main)


def test_rows_of_several_tasks_are_left_to_the_task_that_is_woken(growing: Growing) -> None:
    behind: list[int] = []

    async def put() -> None:
        await trio.sleep(1)
        growing.put()
        behind.append(growing.behind)

    async def main(growing: Growing) -> None:
        for _ in range(3):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(put)
        assert all(behind)
        await trio.testing.wait_all_tasks_blocked()
        assert not growing.behind

    growing.run(main)


def test_what_cannot_be_dispatched_at_once_is_read_from_the_log_and_fails_there(growing: Growing) -> None:
    async def main(growing: Growing) -> None:
        await be_alone(growing)
        growing.listener.failures = 2
        growing.put()
        assert growing.behind
        assert growing.flags.is_writeable
        await trio.testing.wait_all_tasks_blocked()
        assert growing.flags.bits == RunningFlag.WRITE_LOGICS_QUEUE_ERROR
        growing.put()
        assert len(growing.listener.seen) == 1, "while it fails, its task alone tries"
        await trio.sleep(5)
        assert growing.flags.is_writeable
        assert not growing.behind
        assert len({request.commit_log_offset for request in growing.listener.seen}) == 3

    growing.run(main)


def test_an_index_that_cannot_take_what_is_alone_makes_puts_refused(growing: Growing) -> None:
    async def main(growing: Growing) -> None:
        await be_alone(growing)

        def full() -> None:
            raise OSError(28, "full")

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Listener, "drain", lambda _: full())
            growing.put()
            await trio.testing.wait_all_tasks_blocked()
            await trio.sleep(2 * LAG_MAX_S)
            assert growing.flags.bits == RunningFlag.WRITE_LOGICS_QUEUE_ERROR
        await trio.sleep(3)
        assert growing.flags.is_writeable
        assert not growing.listener.lagging

    growing.run(main)


def test_a_crash_ends_the_service_and_not_the_put(growing: Growing) -> None:
    ended: list[str] = []

    def crash(*_: object) -> int:
        raise RuntimeError("a defect")

    async def main() -> None:
        async with trio.open_nursery() as nursery:
            await nursery.start(growing.timer.run)

            async def serve(*, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
                with pytest.raises(RuntimeError, match="a defect"):
                    await growing.service.run(task_status=task_status)
                ended.append("crashed")

            await nursery.start(serve)
            await be_alone(growing)
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(Listener, "dispatch_rows", crash)
                growing.put()
            await trio.testing.wait_all_tasks_blocked()
            assert ended == ["crashed"]
            growing.put()
            nursery.cancel_scope.cancel()

    trio.run(main, clock=trio.testing.MockClock(autojump_threshold=0))
    assert ended == ["crashed"]


@pytest.mark.parametrize("is_stopped", [True, False])
def test_after_the_service_has_ended_nothing_is_dispatched(growing: Growing, is_stopped: bool) -> None:
    """The next role's service has the store then, or its files are closed."""

    async def main() -> None:
        async with trio.open_nursery() as nursery:
            await nursery.start(growing.timer.run)
            async with trio.open_nursery() as services:
                await services.start(growing.service.run)
                await be_alone(growing)
                if is_stopped:
                    growing.service.request_stop()
                else:
                    services.cancel_scope.cancel()
            growing.put()
            await trio.sleep(1)
            assert growing.behind
            assert len(growing.listener.seen) == 1
            nursery.cancel_scope.cancel()

    trio.run(main, clock=trio.testing.MockClock(autojump_threshold=0))
