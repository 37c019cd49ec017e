"""A consume queue against a list, and against a power loss that takes any sectors of what nobody synced."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

import attrs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from rmq_actors.real_io.os_disk import OsDisk
from rmq_actors.store.dispatch.consume_queue import ConsumeQueue, QueueEntry
from rmq_actors.store.files.deleted_topics import QueueBeginsAgain
from rmq_actors.store.files.formats import CQ_STORE_UNIT_SIZE
from rmq_actors.store.files.mapped_file_queue import MappedFileQueue
from tests.worlds.queue_files import held

SECTOR_BYTES = 512


def open_queue(root: Path, units: int, durable_to: int = 0) -> ConsumeQueue:
    files = MappedFileQueue(OsDisk(root), "q", units * CQ_STORE_UNIT_SIZE)
    queue = ConsumeQueue("T", 0, files)
    queue.recover(durable_to)
    return queue


class QueueModel(RuleBasedStateMachine):
    """`entries`: those that the files hold, by index. They begin with index `base`, and `end` is the next one."""

    @initialize(units=st.integers(1, 6))
    def create(self, units: int) -> None:
        self.root = Path(tempfile.mkdtemp())
        self.units = units
        self.entries: dict[int, QueueEntry] = {}
        self.base = self.end = self.log_end = self.log_min = self.refused = 0
        self.queue = open_queue(self.root, units)

    def teardown(self) -> None:
        if hasattr(self, "queue"):
            self.queue.close()
            shutil.rmtree(self.root)

    def record(self, index: int, size: int) -> QueueEntry:
        entry = QueueEntry(index, self.log_end, size, -self.log_end)
        self.log_end += size
        return entry

    @rule(gaps=st.lists(st.sampled_from([0, 0, 0, 0, 1, 2, 9]), min_size=1, max_size=8), size=st.integers(1, 50))
    def put(self, gaps: list[int], size: int) -> None:
        batch = []
        for gap in gaps:
            index = self.end + gap
            if self.end == self.base:
                self.base = index - index % self.units
            batch.append(self.record(index, size))
            self.entries[index] = batch[-1]
            self.end = index + 1
        self.queue.put_message_position_info(batch)

    @rule(index=st.integers(0, 30), size=st.integers(1, 50))
    def put_anywhere(self, index: int, size: int) -> None:
        """Only into a queue without entries, or where no entry is; else it is refused. Number 0 begins it again."""
        entry = self.record(index, size)
        try:
            self.queue.put_message_position_info([entry])
        except QueueBeginsAgain:  # which is for others to do
            assert index == 0
            assert self.end > 0
            return
        if self.end == self.base:
            self.base = index - index % self.units
        elif index < self.end:
            self.refused += 1
            return
        self.entries[index] = entry
        self.end = index + 1

    @rule(count=st.integers(1, 30))
    def repeat(self, count: int) -> None:
        self.queue.put_message_position_info(list(self.entries.values())[-count:])

    def cut(self, log_end: int) -> None:
        self.log_end = log_end
        self.entries = {index: each for index, each in self.entries.items() if each.physical_offset < log_end}
        self.end = max(self.entries, default=self.base - 1) + 1

    def cut_offset(self, part: float) -> int:
        offsets = [each.physical_offset for each in self.entries.values() if each.physical_offset >= self.log_min]
        offsets.append(self.log_end)
        return offsets[int(part * (len(offsets) - 1))]

    @rule(part=st.floats(0, 1))
    def truncate(self, part: float) -> None:
        offset = self.cut_offset(part)
        self.queue.truncate_dirty_logic_files(offset)
        self.cut(offset)

    @rule(part=st.floats(0, 1))
    def recover(self, part: float) -> None:
        offset = self.cut_offset(part)
        self.queue.close()
        self.queue = open_queue(self.root, self.units, offset)
        self.refused = 0
        self.cut(offset)

    @precondition(lambda self: self.log_end > self.log_min)
    @rule(part=st.floats(0, 1))
    def expire(self, part: float) -> None:
        self.log_min += int(part * (self.log_end - self.log_min))
        self.queue.queue.dirty_directories.clear()  # as after a flush
        first = [self.entries[index] for index in range(self.base, self.base + self.units) if index in self.entries]
        removable = len(self.queue.queue.files) > 1 and not (first and first[-1].physical_offset >= self.log_min)
        assert self.queue.delete_expired_file(self.log_min) == removable
        if removable:
            self.base += self.units
            self.entries = {index: each for index, each in self.entries.items() if index >= self.base}

    @invariant()
    def is_the_model(self) -> None:
        if not hasattr(self, "queue"):
            return
        queue = self.queue
        queue.correct_min_offset(self.log_min)
        live = [index for index, each in self.entries.items() if each.physical_offset >= self.log_min]
        assert (queue.min_offset_in_queue, queue.max_offset_in_queue) == (min(live, default=self.end), self.end)
        stored = [self.entries.get(index) for index in range(self.base, self.end)]
        assert held(queue) == [each and each[1:4] for each in stored]
        last = self.entries[max(self.entries)] if self.entries else None
        assert queue.max_physic_offset == (last.physical_offset + last.size if last else -1)
        assert queue.refused == self.refused
        for index in range(-1, self.end + 2):
            expected = self.entries.get(index) if index >= queue.min_offset_in_queue else None
            assert queue.entry(index) == (expected and expected[1:4])
        for mapped_file in queue.queue.files:
            assert not any(mapped_file.whole()[mapped_file.wrote_position :])


TestQueueModel = QueueModel.TestCase
TestQueueModel.settings = settings(max_examples=60, stateful_step_count=25)


@attrs.frozen
class Loss:
    """What a power loss took: which sectors of each file, its length, its name."""

    sectors: frozenset[int]
    length: int | None
    name: bool


losses = st.builds(
    Loss,
    st.one_of(st.frozensets(st.integers(0, 3)), st.just(frozenset(range(4)))),
    st.one_of(st.none(), st.integers(0, 2000)),
    st.booleans(),
)


def lose(path: Path, begin: int, loss: Loss) -> None:
    """Take un-synced bytes, those from `begin` on, of a file; one without synced bytes may lose all."""
    data = bytearray(path.read_bytes())
    for sector in loss.sectors:
        at = max(begin, sector * SECTOR_BYTES)
        end = max(at, min(len(data), (sector + 1) * SECTOR_BYTES))
        data[at:end] = bytes(end - at)
    if begin == 0 and loss.name:
        path.unlink()
    else:
        path.write_bytes(data[: loss.length] if begin == 0 and loss.length is not None else data)


@settings(max_examples=150)
@given(
    log_begin=st.sampled_from([0, 100, (1 << 24) - 2000, (1 << 32) - 3000, 1 << 40]),
    gaps=st.lists(st.sampled_from([0] * 30 + [1, 60]), min_size=1, max_size=250),
    sizes=st.lists(st.sampled_from([1, 91, 256]), min_size=5, max_size=5),
    cut=st.floats(0, 1),
    lost=st.lists(losses, min_size=6, max_size=6),
)
def test_whatever_a_power_loss_takes_after_the_cut_comes_back(
    tmp_path_factory: pytest.TempPathFactory,
    log_begin: int,
    gaps: list[int],
    sizes: list[int],
    cut: float,
    lost: list[Loss],
) -> None:
    root, units = tmp_path_factory.mktemp("store"), 60
    entries, index, offset = [], 0, log_begin
    for number, gap in enumerate(gaps):
        index += gap
        entries.append(QueueEntry(index, offset, sizes[number % 5], -1))
        index, offset = index + 1, offset + entries[-1].size
    queue = open_queue(root, units)
    queue.put_message_position_info(entries)
    queue.close()
    paths = sorted((root / "q").iterdir())
    before = {path.name: path.read_bytes() for path in paths}
    durable = entries[: int(cut * len(entries))]
    durable_to = durable[-1].physical_offset + durable[-1].size if durable else log_begin
    durable_bytes = CQ_STORE_UNIT_SIZE * (durable[-1].consume_queue_offset + 1) if durable else 0
    for number, path in enumerate(paths):
        begin = max(0, durable_bytes - int(path.name))
        if begin < CQ_STORE_UNIT_SIZE * units:
            lose(path, begin, lost[number % 6])
    again = open_queue(root, units, durable_to)
    assert [each for each in held(again) if each is not None] == [each[1:4] for each in durable]
    assert again.max_offset_in_queue * CQ_STORE_UNIT_SIZE == max(durable_bytes, again.queue.min_offset)
    again.put_message_position_info(entries)
    assert {path.name: path.read_bytes() for path in (root / "q").iterdir()} == before
    again.close()
    shutil.rmtree(root)
