"""Every record is dispatched once, in order, and never before it may be seen."""

from __future__ import annotations

import errno
from collections.abc import Sequence
from pathlib import Path

import attrs
import pytest
import trio
import trio.testing
from hypothesis import given
from hypothesis import strategies as st

from rmq_actors.actors.services.channels import Broadcast, ChannelSpec
from rmq_actors.actors.services.timer import Timer
from rmq_actors.real_io.os_disk import OsDisk
from rmq_actors.store.dispatch import reput_message_service
from rmq_actors.store.dispatch.reput_message_service import DISPATCHED, RETRY_INTERVAL_S, Reput, ReputMessageService
from rmq_actors.store.log.commit_log import CommitLog
from rmq_actors.store.log.flush_modes import AppendedEnd
from rmq_actors.store.log.log_walk import BATCH_RECORDS, DamagedLog
from rmq_actors.store.running_flags import RunningFlag, RunningFlags
from rmq_actors.wire.dispatch_batch import DispatchBatch
from rmq_actors.wire.dispatch_request import DELAY_LEVELS_MS, DispatchRequest, read_dispatch_request
from rmq_actors.wire.record import Message, encode_message
from tests.worlds.foreign_records import LONG_PROPERTIES, encode_foreign
from tests.worlds.recording import new_recorder, new_tracer

SIZE = 2048
#: Not declared: that list is of the real ones.
WAKE_UPS = ChannelSpec[int]("test.reput", "broadcast", 1, "the end", "a test", "ReputMessageService")


@attrs.define
class Listener:
    """A dispatcher that remembers, and fails as often as it is told."""

    name: str = "Listener"
    seen: list[DispatchRequest] = attrs.field(factory=list)
    failures: int = 0
    lagging: list[DispatchRequest] = attrs.field(factory=list)

    def recover(self, durable_to: int) -> int:
        return durable_to

    def dispatch(self, requests: Sequence[DispatchRequest]) -> None:
        if self.failures:
            self.failures -= 1
            raise OSError(errno.ENOSPC, "full")
        self.seen += requests

    def dispatch_batch(self, batch: DispatchBatch) -> None:
        columns = (batch.commit_log_offsets, batch.msg_sizes)
        self.dispatch(
            [
                batch.last._replace(commit_log_offset=offset, msg_size=size)
                for offset, size in zip(*columns, strict=True)
            ]
        )

    def dispatch_rows(self, requests: Sequence[DispatchRequest]) -> None:
        self.dispatch(requests)
        self.lagging += requests

    def drain(self) -> None:
        if self.lagging and self.failures:
            self.failures -= 1
            raise OSError(errno.ENOSPC, "full")
        self.lagging.clear()

    async def flush(self) -> None: ...

    def delete_expired(self, log_min_offset: int) -> int:
        return 0

    def close(self) -> None: ...


def make_log(root: Path, sizes: Sequence[int]) -> tuple[CommitLog, list[int]]:
    """A log of records with bodies of these sizes, and where each begins."""
    log = CommitLog.open(OsDisk(root), SIZE, new_tracer())
    return log, [log.append_message(encode_message(Message("T", b"b" * size)), 1).offset for size in sizes]


def request_of(log: CommitLog, offset: int) -> DispatchRequest:
    """The record there, as the log's writer would hand it over."""
    view, begin = log.file_at(offset)
    request = read_dispatch_request(view, offset - begin, offset)
    assert isinstance(request, DispatchRequest)
    return request


def reput_of(log: CommitLog, listener: Listener, begin: int = 0) -> Reput:
    return Reput(log, [listener], DELAY_LEVELS_MS, begin, None)


@given(
    sizes=st.lists(st.integers(0, 1500) | st.just(10), max_size=12),
    limits=st.lists(st.integers(0, 20_000), max_size=8),
    records_min=st.sampled_from([1, 3, 1 << 30]),
)
def test_any_limits_give_the_same_records(
    tmp_path_factory: pytest.TempPathFactory, sizes: list[int], limits: list[int], records_min: int
) -> None:
    """Also where as few as `records_min` are read as columns."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(reput_message_service, "COLUMNS_RECORDS_FIRST", records_min)
        patch.setattr(reput_message_service, "COLUMNS_RECORDS_MIN", records_min)
        check_limits(tmp_path_factory, sizes, limits)


def check_limits(tmp_path_factory: pytest.TempPathFactory, sizes: list[int], limits: list[int]) -> None:
    log, begins = make_log(tmp_path_factory.mktemp("log"), sizes)
    listener = Listener()
    reput = reput_of(log, listener)
    for limit in [*limits, log.max_offset]:
        while reput.dispatch_some(min(limit, log.max_offset)):
            pass
        seen_to = max([request.end_offset for request in listener.seen], default=0)
        assert seen_to <= max([min(each, log.max_offset) for each in [*limits, log.max_offset]])
    assert [request.commit_log_offset for request in listener.seen] == begins
    assert reput.reput_from_offset == log.max_offset
    log.close()


def test_nothing_after_the_limit_is_dispatched(tmp_path: Path) -> None:
    log, begins = make_log(tmp_path, [100] * 4)
    listener = Listener()
    reput = reput_of(log, listener)
    for limit in range(log.max_offset + 1):
        reput.dispatch_some(limit)
        assert all(request.end_offset <= limit for request in listener.seen)
        assert reput.reput_from_offset <= limit
    assert len(listener.seen) == len(begins)
    log.close()


def test_a_record_that_a_slave_has_half_of_waits(tmp_path: Path) -> None:
    master, begins = make_log(tmp_path / "master", [100] * 3)
    data = b"".join(master.ranges(0, master.max_offset))
    slave = CommitLog.open(OsDisk(tmp_path / "slave"), SIZE, new_tracer())
    listener = Listener()
    reput = reput_of(slave, listener)
    for offset in range(len(data)):
        slave.append_data(offset, data[offset : offset + 1])
        reput.dispatch_some(slave.max_offset)
        assert len(listener.seen) == sum(begin <= offset + 1 for begin in [*begins[1:], len(data)])
    master.close()
    slave.close()


def test_the_blank_end_of_a_file_that_a_slave_has_half_of_waits(tmp_path: Path) -> None:
    """What comes after it is past the slave's log: no recovery point may stand there."""
    master, begins = make_log(tmp_path / "master", [900, 1500])
    data = b"".join(master.ranges(0, master.max_offset))
    slave = CommitLog.open(OsDisk(tmp_path / "slave"), SIZE, new_tracer())
    reput = reput_of(slave, Listener())
    assert begins[1] == SIZE
    for size in range(1, SIZE + 1):
        slave.append_data(size - 1, data[size - 1 : size])
        reput.dispatch_some(slave.max_offset)
        assert reput.reput_from_offset <= slave.max_offset
    assert reput.reput_from_offset == SIZE
    master.close()
    slave.close()


def test_what_failed_comes_again_and_nothing_is_left_out(tmp_path: Path) -> None:
    log, begins = make_log(tmp_path, [100] * 30)
    first, second = Listener(), Listener(failures=2)
    reput = Reput(log, [first, second], DELAY_LEVELS_MS, 0, None)
    for _ in range(2):
        with pytest.raises(OSError, match="full"):
            reput.dispatch_some(log.max_offset)
        assert reput.reput_from_offset == 0
    while reput.dispatch_some(log.max_offset):
        pass
    assert [request.commit_log_offset for request in second.seen] == begins
    assert {request.commit_log_offset for request in first.seen} == set(begins)
    log.close()


@pytest.mark.parametrize(("records_min", "steps"), [(1 << 30, [BATCH_RECORDS, 1, 0]), (60, [300, 213, 0])])
def test_a_batch_is_bounded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, records_min: int, steps: list[int]
) -> None:
    monkeypatch.setattr(reput_message_service, "COLUMNS_RECORDS_FIRST", records_min)
    monkeypatch.setattr(reput_message_service, "COLUMNS_RECORDS_MIN", records_min)
    monkeypatch.setattr(reput_message_service, "COLUMNS_RECORDS_MAX", 300)
    log = CommitLog.open(OsDisk(tmp_path), 1 << 20, new_tracer())
    for _ in range(BATCH_RECORDS + 1):
        log.append_message(encode_message(Message("T", b"")), 1)
    reput = reput_of(log, Listener())
    assert [reput.dispatch_some(log.max_offset) for _ in range(3)] == steps
    log.close()


@pytest.mark.parametrize(("numpy_is_loaded", "columns"), [(False, [200, 64]), (True, [199, 200, 64])])
def test_few_records_are_read_as_columns_once_many_were(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, numpy_is_loaded: bool, columns: list[int]
) -> None:
    """The first time starts numpy: that must pay, unless it is there."""
    log = CommitLog.open(OsDisk(tmp_path), 1 << 20, new_tracer())
    counts: list[int] = []
    listener = Listener()
    monkeypatch.setattr(Listener, "dispatch_batch", lambda _, batch: counts.append(len(batch)))
    monkeypatch.setattr(reput_message_service, "COLUMNS_RECORDS_FIRST", 200)
    reput = Reput(log, [listener], DELAY_LEVELS_MS, 0, None, numpy_is_loaded=numpy_is_loaded)
    for waiting in (1, 199, 200, 63, 64):
        for _ in range(waiting):
            log.append_message(encode_message(Message("T", b"")), 1)
        assert reput.dispatch_some(log.max_offset) == waiting
    assert counts == columns
    assert len(listener.seen) + sum(columns) == 1 + 199 + 200 + 63 + 64
    log.close()


def test_damage_is_named_and_not_passed_over(tmp_path: Path) -> None:
    log, begins = make_log(tmp_path, [100] * 3)
    path = next((tmp_path / "commitlog").iterdir())
    with path.open("r+b") as file:
        file.seek(begins[1] + 4)
        file.write(b"xxxx")
    reput = reput_of(log, Listener())
    with pytest.raises(DamagedLog, match=f"no valid record at offset {begins[1]}: magic"):
        reput.dispatch_some(log.max_offset)
    log.close()


@pytest.mark.parametrize("records_min", [1, 1 << 30])
def test_what_is_passed_over_is_given_to_nobody_counted_and_named_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, records_min: int
) -> None:
    """However often its batch comes again; and a log that ends with such records is dispatched to its end."""
    monkeypatch.setattr(reput_message_service, "COLUMNS_RECORDS_FIRST", records_min)
    monkeypatch.setattr(reput_message_service, "COLUMNS_RECORDS_MIN", records_min)
    log = CommitLog.open(OsDisk(tmp_path), 1 << 20, new_tracer())
    begins = []
    for properties in (b"", LONG_PROPERTIES, LONG_PROPERTIES, b"", LONG_PROPERTIES):
        appended = log.append_message(encode_foreign(b"T", properties), 1)
        begins += [] if properties else [appended.offset]
    last = appended.offset
    listener = Listener(failures=2)
    reput = reput_of(log, listener)
    steps = []
    while reput.reput_from_offset < log.max_offset:
        try:
            steps.append(reput.dispatch_some(log.max_offset))
        except OSError:
            steps.append(0)
    assert [request.commit_log_offset for request in listener.seen] == begins
    assert sum(steps) == 5
    assert reput.passed_over.count == 3
    assert reput.last is not None
    assert (reput.last.commit_log_offset, reput.last.is_passed_over) == (last, True)
    log.append_message(encode_foreign(b"T", LONG_PROPERTIES), 1)
    assert reput.dispatch_some(log.max_offset) == 1
    assert reput.passed_over.count == 4
    [told] = caplog.messages
    assert told.startswith(f"the record at {begins[0] + 92} of T-0 has more than 32767 bytes of properties")
    log.close()


@pytest.mark.parametrize("error", [RuntimeError("a bug"), ValueError("a bug"), KeyError("a bug")], ids=repr)
def test_an_error_that_nobody_expects_ends_the_service_and_is_seen(tmp_path: Path, error: Exception) -> None:
    """Nothing would be dispatched from then on, and nobody be told: puts go on, and consumers get nothing."""
    log, _ = make_log(tmp_path, [100] * 3)

    class Broken(Listener):
        def dispatch(self, requests: Sequence[DispatchRequest]) -> None:
            raise error

    service = ReputMessageService(
        reput_of(log, Broken()),
        AppendedEnd(log, Broadcast(WAKE_UPS)),
        DISPATCHED.open(),
        RunningFlags(),
        new_tracer(),
        Timer(),
    )

    async def main() -> None:
        with trio.fail_after(60):
            await service.run()

    with pytest.raises(type(error), match="a bug"):
        trio.run(main, clock=trio.testing.MockClock(autojump_threshold=0))
    log.close()


def test_the_service_refuses_puts_while_it_cannot_dispatch(tmp_path: Path) -> None:
    log, begins = make_log(tmp_path, [100] * 3)
    flags, listener, recorder = RunningFlags(), Listener(failures=2), new_recorder()
    wake_ups = Broadcast(WAKE_UPS)
    dispatched: Broadcast[int] = DISPATCHED.open()
    service = ReputMessageService(
        reput_of(log, listener), AppendedEnd(log, wake_ups), dispatched, flags, recorder.tracer("a"), Timer()
    )

    async def main() -> None:
        async with trio.open_nursery() as nursery:
            await nursery.start(service.run)
            await trio.testing.wait_all_tasks_blocked()
            assert flags.bits == RunningFlag.WRITE_LOGICS_QUEUE_ERROR
            assert "full" in flags.why_not_writeable
            with dispatched.subscribe() as offsets:
                assert await offsets.receive() == log.max_offset
            assert trio.current_time() == pytest.approx(2 * RETRY_INTERVAL_S)
            assert flags.is_writeable
            log.append_message(encode_message(Message("T", b"more")), 1)
            with dispatched.subscribe() as offsets:
                wake_ups.put(log.max_offset)
                assert await offsets.receive() == log.max_offset
            service.request_stop()

    trio.run(main, clock=trio.testing.MockClock(rate=0, autojump_threshold=0))
    assert len(listener.seen) == len(begins) + 1
    kinds = [event.kind for event in recorder.events]
    assert kinds == ["store.dispatch_failed"] * 2 + ["store.dispatch"] * 2
    log.close()
