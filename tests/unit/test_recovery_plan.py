"""Where recovery begins to read, what it believes, and what a crash's torn sectors look like to it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import attrs
import pytest
import trio

from rmq_actors.real_io.os_disk import OsDisk
from rmq_actors.store.files.layout import COMMIT_LOG_DIRECTORY, CUT_DIRECTORY, file_name
from rmq_actors.store.files.mapped_file_queue import MappedFileQueue
from rmq_actors.store.files.store_checkpoint import Checkpoint, RecoveryPoint
from rmq_actors.store.lifecycle.recovery import RecoveryPlan, keep_aside, plan_recovery, redo
from rmq_actors.store.log.commit_log import CommitLog
from rmq_actors.store.log.log_walk import DamagedLog, LogEnd, LogWalk
from rmq_actors.store.log.read_log import must_be_there
from rmq_actors.wire.dispatch_request import DispatchRequest
from rmq_actors.wire.record import Message, encode_message
from tests.worlds.recording import new_tracer

SIZE = 2048
#: The store time of record number k is this plus 1000 k.
FIRST_MS = 1_700_000_000_000


@attrs.define
class Log:
    """A log of `ends` records below `root`; record k ends at `ends[k]`."""

    root: Path
    ends: list[int]
    queue: MappedFileQueue

    def point(self, record: int) -> RecoveryPoint:
        begin = self.begin(record)
        return RecoveryPoint(SIZE, self.ends[record], begin, self.ends[record] - begin, FIRST_MS + 1000 * record)

    def begin(self, record: int) -> int:
        before = self.ends[record - 1] if record else 0
        return before if before // SIZE == (self.ends[record] - 1) // SIZE else (self.ends[record] - 1) // SIZE * SIZE

    def overwrite(self, offset: int, data: bytes) -> None:
        file = self.queue.find(offset)
        assert file is not None
        file.file.write_at(offset - file.from_offset, data)


#: `make_log(body_sizes, properties)`
MakeLog = Callable[..., Log]


@pytest.fixture
def make_log(tmp_path: Path) -> Iterator[MakeLog]:
    queues: list[MappedFileQueue] = []

    def make(bodies: Sequence[int], properties: dict[str, str] | None = None) -> Log:
        log = CommitLog.open(OsDisk(tmp_path), SIZE, new_tracer())
        ends = [
            log.append_message(
                encode_message(Message("T", b"b" * size, properties=properties or {})), FIRST_MS + 1000 * number
            ).end_offset
            for number, size in enumerate(bodies)
        ]
        log.close()
        queue = MappedFileQueue(OsDisk(tmp_path), COMMIT_LOG_DIRECTORY, SIZE)
        queue.load()
        queues.append(queue)
        return Log(tmp_path, ends, queue)

    yield make
    for queue in queues:
        queue.close()


def walk(log: Log, plan: RecoveryPlan) -> tuple[list[DispatchRequest], LogEnd]:
    """What a walk by this plan meets, and where it ends."""
    steps = LogWalk(log.queue, plan.read_from, plan.durable_to or plan.read_from, plan.after_crash)
    met = [request for batch in steps.batches() for request in batch]
    return met, steps.found_end


def test_what_stands_before_the_recovery_point_is_not_read(make_log: MakeLog) -> None:
    log = make_log([400] * 12)
    log.overwrite(log.begin(2) + 100, b"rot")
    plan = plan_recovery(log.queue, Checkpoint(recovery_point=log.point(7)), after_crash=True)
    assert (plan.read_from, plan.durable_to) == (log.ends[7], log.ends[7])
    met, end = walk(log, plan)
    assert [request.end_offset for request in met] == log.ends[8:]
    assert end.end_offset == log.ends[-1]
    log.overwrite(log.begin(9) + 100, b"rot")
    met, end = walk(log, plan)
    assert (len(met), end.end_offset, end.survivor) == (1, log.ends[8], log.begin(10))


@pytest.mark.parametrize("change", ["record_store_timestamp_ms", "record_size"])
def test_a_recovery_point_of_another_log_is_not_believed(make_log: MakeLog, change: str) -> None:
    log = make_log([400] * 12)
    point = log.point(7)
    wrong = attrs.evolve(point, **{change: getattr(point, change) + 1})
    for after_crash in (True, False):
        plan = plan_recovery(log.queue, Checkpoint(recovery_point=wrong), after_crash=after_crash)
        assert (plan.read_from, plan.durable_to, plan.after_crash, plan.is_trusted) == (0, 0, after_crash, False)
        assert "is not of this log" in plan.reason


@pytest.mark.parametrize(
    ("left", "missing"),
    [
        (2, f"{COMMIT_LOG_DIRECTORY}/{file_name(2 * SIZE)}: missing.* the log ends at offset {2 * SIZE}"),
        (1, f"{COMMIT_LOG_DIRECTORY}/{file_name(SIZE)} to {file_name(2 * SIZE)}: missing.* ends at offset {SIZE}"),
        (0, f"{COMMIT_LOG_DIRECTORY}/{file_name(2 * SIZE)}: missing.* the log has no file"),
    ],
)
def test_an_orderly_stop_loses_no_file_at_the_logs_end(make_log: MakeLog, left: int, missing: str) -> None:
    log = make_log([400] * 12)  # four a file
    while len(log.queue.files) > left:
        log.queue.remove_last_file()
    point = log.point(11)
    stamp = point.record_store_timestamp_ms
    with pytest.raises(DamagedLog, match=missing):
        plan_recovery(log.queue, Checkpoint(stamp, stamp, stamp, point), after_crash=False)
    # A power cut may leave less than that, but for no file at all, and RocketMQ knows of no recovery point.
    if not left:
        with pytest.raises(DamagedLog, match=missing):
            plan_recovery(log.queue, Checkpoint(stamp, stamp, stamp, point), after_crash=True)
    for now, after_crash in ((stamp, True), (stamp + 1, False))[not left :]:
        plan = plan_recovery(log.queue, Checkpoint(now, now, now, point), after_crash=after_crash)
        assert "is not of this log" in plan.reason


@pytest.mark.parametrize("after_crash", [True, False])
def test_a_log_that_began_late_and_held_nothing_lacks_no_file(make_log: MakeLog, *, after_crash: bool) -> None:
    """A slave's start has removed its one file, to begin where the master does, and was interrupted."""
    checkpoint = Checkpoint(recovery_point=RecoveryPoint(SIZE, 3 * SIZE))
    plan = plan_recovery(make_log([]).queue, checkpoint, after_crash=after_crash)
    assert plan.read_from == 0


@pytest.mark.parametrize("after_crash", [True, False])
def test_a_log_of_which_queues_know_was_not_empty(make_log: MakeLog, *, after_crash: bool) -> None:
    """The newest file was empty, and all others had been removed: the recovery point names no record."""
    checkpoint = Checkpoint(recovery_point=RecoveryPoint(SIZE, 3 * SIZE, queues=1, queue_ends=86))
    with pytest.raises(DamagedLog, match="the log has no file"):
        plan_recovery(make_log([]).queue, checkpoint, after_crash=after_crash)


def test_a_log_that_ends_with_a_file_lacks_none(make_log: MakeLog) -> None:
    """The next file is made with its first record, or was made ahead and holds nothing."""
    log = make_log([400] * 12)
    point = attrs.evolve(log.point(7), offset=2 * SIZE)
    log.queue.remove_last_file()
    assert plan_recovery(log.queue, Checkpoint(recovery_point=point), after_crash=False).is_trusted


def test_a_log_whose_first_file_a_power_loss_took_is_dropped(make_log: MakeLog) -> None:
    log = make_log([400] * 12)
    first = log.queue.files.pop(0)
    first.file.close()
    plan = plan_recovery(log.queue, Checkpoint(recovery_point=RecoveryPoint(SIZE, 0)), after_crash=True)
    assert (plan.read_from, plan.durable_to, plan.drops_log) == (0, 0, True)


@pytest.mark.parametrize("after_crash", [True, False])
@pytest.mark.parametrize("record", [None, 1])
def test_a_log_that_rocketmq_has_cleaned_beyond_the_recovery_point_is_not_dropped(
    make_log: MakeLog, record: int | None, after_crash: bool
) -> None:
    """RocketMQ moves its stamps and leaves our recovery point alone, however long it uses the store."""
    log = make_log([400] * 12)
    first = log.queue.files.pop(0)
    first.file.close()
    stamp = FIRST_MS + 8000 + 3000
    checkpoint = Checkpoint(stamp, stamp, stamp, RecoveryPoint(SIZE, 0) if record is None else log.point(record))
    plan = plan_recovery(log.queue, checkpoint, after_crash=after_crash)
    assert not plan.drops_log
    assert (plan.read_from, plan.durable_to, plan.is_trusted) == (2 * SIZE, 2 * SIZE, False)
    assert plan.after_crash is after_crash


def test_damage_past_an_old_recovery_point_is_no_torn_tail_if_rocketmq_stopped_in_order(make_log: MakeLog) -> None:
    log = make_log([400] * 12)
    plan = plan_recovery(log.queue, Checkpoint(recovery_point=log.point(2)), after_crash=False)
    log.overwrite(log.begin(6) + 100, b"rot")
    with pytest.raises(DamagedLog, match=f"no valid record at offset {log.begin(6)} .*follows at offset"):
        walk(log, plan)


def test_after_a_crash_of_rocketmq_its_stamps_lead_to_a_file(make_log: MakeLog) -> None:
    log = make_log([400] * 12)  # four a file: files begin with records 0, 4, 8
    newest = FIRST_MS + 8000 + 3000
    for stamps, begin in (
        ((newest, newest, newest), 2 * SIZE),
        ((newest, newest - 1, newest), SIZE),
        ((newest - 1, newest, newest), SIZE),
        ((newest, newest, FIRST_MS + 7999), SIZE),
        ((newest, newest, 0), 0),
        ((0, 0, 0), 0),
    ):
        plan = plan_recovery(log.queue, Checkpoint(*stamps), after_crash=True)
        assert (plan.read_from, plan.durable_to, plan.after_crash) == (begin, begin, True), stamps


def test_a_new_store_is_called_one(make_log: MakeLog) -> None:
    plan = plan_recovery(make_log([]).queue, Checkpoint(), after_crash=False)
    assert (plan.read_from, plan.reason) == (0, "there is no log yet")


def test_after_an_orderly_stop_of_rocketmq_the_last_three_files_are_read(make_log: MakeLog) -> None:
    log = make_log([400] * 20)
    plan = plan_recovery(log.queue, Checkpoint(1, 2, 3), after_crash=False)
    assert (plan.read_from, plan.durable_to, plan.after_crash) == (2 * SIZE, None, False)
    log.overwrite(log.begin(14) + 100, b"rot")
    with pytest.raises(DamagedLog, match=f"no valid record at offset {log.begin(14)} .*follows at offset"):
        walk(log, plan)


def test_damage_before_the_recovery_point_is_no_torn_tail(make_log: MakeLog) -> None:
    log = make_log([400] * 12)
    log.overwrite(log.begin(3) + 4, bytes(4))
    plan = RecoveryPlan(0, log.ends[7], after_crash=True, is_trusted=True, reason="a queue is missing")
    with pytest.raises(DamagedLog, match=f"offset {log.begin(3)} .*known to be valid to {log.ends[7]}"):
        walk(log, plan)


@pytest.mark.parametrize("sector", [1, 2])
def test_a_record_that_lacks_a_sector_of_its_properties_is_cut(make_log: MakeLog, sector: int) -> None:
    """No checksum covers them, and the record's length fields stand elsewhere."""
    log = make_log([10, 10], {"A": "x" * 1200})
    plan = RecoveryPlan(0, 0, after_crash=True, is_trusted=True, reason="")
    assert walk(log, plan)[1].end_offset == log.ends[-1]
    log.overwrite(sector * 512, bytes(512))
    met, end = walk(log, plan)
    assert (met, end.end_offset, end.reason) == ([], 0, "a part of its topic or properties is missing")


def test_zero_bytes_in_a_property_are_no_lost_sector(make_log: MakeLog) -> None:
    log = make_log([10, 10], {"A": "x" * 20 + "\0" * 400 + "y"})
    assert walk(log, RecoveryPlan(0, 0, after_crash=True, is_trusted=True, reason=""))[1].end_offset == log.ends[-1]


def test_whole_records_past_the_end_are_kept_aside(make_log: MakeLog) -> None:
    log = make_log([400] * 12)
    hole, whole = log.begin(6), (log.root / COMMIT_LOG_DIRECTORY / file_name(SIZE)).read_bytes()
    log.overwrite(hole, bytes(200))

    async def main() -> None:
        found = LogWalk(log.queue, log.ends[4], log.ends[4], after_crash=True)
        end = await redo(found, ())
        assert (end.end_offset, end.survivor) == (hole, log.begin(7))
        await keep_aside(OsDisk(log.root), log.queue, end)

    trio.run(main)
    kept = {path.name: path.read_bytes() for path in (log.root / CUT_DIRECTORY).iterdir()}
    assert sorted(kept) == [file_name(hole), file_name(2 * SIZE)]
    behind = whole[hole - SIZE :].rstrip(b"\0")
    assert kept[file_name(hole)] == bytes(200) + behind[200:]
    assert kept[file_name(2 * SIZE)].startswith((log.ends[8] - log.begin(8)).to_bytes(4, "big"))


def test_zeros_at_the_end_of_the_last_record_are_kept_too(make_log: MakeLog) -> None:
    """A record without properties ends with the two bytes of their length."""
    log = make_log([400] * 3)
    whole = (log.root / COMMIT_LOG_DIRECTORY / file_name(0)).read_bytes()[: log.ends[-1]]
    assert whole.endswith(b"\0\0")
    trio.run(keep_aside, OsDisk(log.root), log.queue, LogEnd(log.ends[0]), log.ends[-1])
    assert (log.root / CUT_DIRECTORY / file_name(log.ends[0])).read_bytes() == whole[log.ends[0] :]


@pytest.mark.parametrize(
    ("size_bytes", "data", "after_an_orderly_stop"),
    [(0, b"", False), (SIZE, b"", False), (100, b"", False), (SIZE, b"x", True), (100, b"x", True)],
)
def test_a_file_after_the_recovery_point_that_took_nothing_may_be_gone_after_an_orderly_stop(
    tmp_path: Path, size_bytes: int, data: bytes, after_an_orderly_stop: bool
) -> None:
    """Its length was never synced: a power cut after the stop may take it. After a crash any may be gone."""
    file = OsDisk(tmp_path).open("commitlog", allocate_bytes=size_bytes)
    file.write_at(0, data)
    orderly, crashed = (must_be_there(RecoveryPoint(SIZE, SIZE), after_crash=each) for each in (False, True))
    assert (orderly(SIZE, file), crashed(SIZE, file)) == (after_an_orderly_stop, False)
    assert (orderly(0, file), crashed(0, file)) == (True, True)
    file.close()
