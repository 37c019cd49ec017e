"""The index takes columns as it takes keys one by one: the same bytes, however a log is divided between both ways."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path

import attrs
import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from rmq_actors.real_io import os_disk
from rmq_actors.real_io.os_disk import OsDisk
from rmq_actors.store.config import MessageStoreConfig
from rmq_actors.store.dispatch.index_file import IndexFile, IndexKey, index_file_size_bytes
from rmq_actors.store.dispatch.index_service import IndexService
from rmq_actors.wire.dispatch_request import DispatchRequest
from tests.worlds.dispatch_batches import batch_of
from tests.worlds.index_files import EPOCH_MS, FailingDisk, SteppingClock, contents, message

HASH_MAX = (1 << 31) - 1
LONG_MAX = (1 << 63) - 1

#: Key hash, bytes of the log since the key before, time stamp.
raw_keys = st.tuples(
    st.sampled_from([0, 1, 7, 8, HASH_MAX]) | st.integers(0, HASH_MAX),
    st.sampled_from([0, 0, 1, 100]),
    st.sampled_from([EPOCH_MS, EPOCH_MS + 999, EPOCH_MS + 1000, EPOCH_MS - 1, 0, 1, -1, -LONG_MAX - 1, LONG_MAX])
    | st.integers(EPOCH_MS, EPOCH_MS + 10**9),
)


@attrs.define
class IndexFiles:
    """Index files filled one after the other."""

    root: Path
    hash_slot_num: int
    index_num: int
    files: list[IndexFile] = attrs.field(factory=list)

    def put(self, keys: Sequence[IndexKey], *, as_columns: bool) -> None:
        while keys:
            file = self.files[-1] if self.files and self.files[-1].room else self.make()
            part, keys = keys[: file.room], keys[file.room :]
            if as_columns:
                hashes, offsets, timestamps_ms = zip(*part, strict=True)
                file.put_key_columns(
                    np.array(hashes, np.int32), np.array(offsets, np.int64), np.array(timestamps_ms, np.int64)
                )
            else:
                file.put_keys(part)

    def make(self) -> IndexFile:
        size_bytes = index_file_size_bytes(self.hash_slot_num, self.index_num)
        file = IndexFile(
            OsDisk(self.root).open(str(len(self.files)), allocate_bytes=size_bytes), self.hash_slot_num, self.index_num
        )
        if self.files:
            file.follow(self.files[-1].end_phy_offset, self.files[-1].end_timestamp_ms)
        self.files.append(file)
        return file

    def state(self) -> list[object]:
        fields = ("begin_timestamp_ms", "begin_phy_offset", "hash_slot_count", "index_count", "is_dirty")
        return [(bytes(file.file.map()), *(getattr(file, name) for name in fields)) for file in self.files]


@given(
    hash_slot_num=st.sampled_from([1, 2, 7, 8, 1000, 50_021]),
    index_num=st.sampled_from([2, 3, 10, 1000]),
    keys=st.lists(raw_keys, min_size=1, max_size=60),
    cuts=st.lists(st.tuples(st.integers(1, 30), st.booleans()), max_size=12),
    through_mapping=st.booleans(),
)
@example(8, 1000, [(0, 0, EPOCH_MS)] * 3 + [(8, 100, EPOCH_MS - 5000)], [(2, True), (1, False)], True)
@example(7, 3, [(7, 1, 0), (0, 0, EPOCH_MS), (1, 1, EPOCH_MS + 5000)] * 3, [(1, False), (8, True)], False)
def test_any_division_between_keys_and_columns_gives_the_same_files(
    hash_slot_num: int,
    index_num: int,
    keys: list[tuple[int, int, int]],
    cuts: list[tuple[int, bool]],
    through_mapping: bool,
) -> None:
    offset, log = 0, list[IndexKey]()
    for key_hash, step, timestamp_ms in keys:
        offset += step
        log.append(IndexKey(key_hash, offset, timestamp_ms))
    with (
        tempfile.TemporaryDirectory() as one,
        tempfile.TemporaryDirectory() as other,
        pytest.MonkeyPatch.context() as m,
    ):
        m.setattr(os_disk, "_SCATTERED_MIN", 1 if through_mapping else 1 << 30)
        expected = IndexFiles(Path(one), hash_slot_num, index_num)
        expected.put(log, as_columns=False)
        divided, rest = IndexFiles(Path(other), hash_slot_num, index_num), log
        for count, as_columns in cuts:
            divided.put(rest[:count], as_columns=as_columns)
            rest = rest[count:]
        divided.put(rest, as_columns=True)
        assert divided.state() == expected.state()


keys = st.sampled_from(["a", "b", "c", "AaAa", "BBBB", "AaBB"])  # the last three have one hash
records = st.lists(
    st.tuples(st.lists(keys, max_size=4).map(" ".join), st.none() | keys, st.sampled_from([0, 700, 5000, -3000])),
    min_size=1,
    max_size=40,
)


def log_of(rows: Sequence[tuple[str, str | None, int]]) -> list[DispatchRequest]:
    now_ms, log = EPOCH_MS, list[DispatchRequest]()
    for number, (key, unique_key, step_ms) in enumerate(rows):
        now_ms += step_ms
        log.append(message(number, key, unique_key, store_timestamp_ms=now_ms))
    return log


@given(
    records=records,
    slots=st.sampled_from([1, 5, 100]),
    entries=st.sampled_from([2, 3, 9, 500]),
    steps=st.lists(st.tuples(st.integers(1, 12), st.integers(0, 3), st.booleans()), max_size=12),
)
def test_batches_are_dispatched_as_requests_are_and_repeats_ignored(
    records: list[tuple[str, str | None, int]], slots: int, entries: int, steps: list[tuple[int, int, bool]]
) -> None:
    log, config = log_of(records), MessageStoreConfig(max_hash_slot_num=slots, max_index_num=entries)
    with tempfile.TemporaryDirectory() as one, tempfile.TemporaryDirectory() as other:
        requests = IndexService(OsDisk(Path(one)), config, SteppingClock())
        batches = IndexService(OsDisk(Path(other)), config, SteppingClock())
        at = 0
        for count, again, as_batch in [*steps, (len(log), 1, True)]:
            part = log[max(0, at - again) : at + count]
            at = min(len(log), at + count)
            requests.dispatch(part)
            if as_batch and part:
                batches.dispatch_batch(batch_of(part))
            else:
                batches.dispatch(part)
            assert contents(Path(other)) == contents(Path(one))
            assert (batches._last_offset, batches._last_keys) == (requests._last_offset, requests._last_keys)
        assert [problem for file in batches.files for problem in file.problems()] == []


@pytest.mark.parametrize("index_num", [10, 64])
def test_an_error_anywhere_in_a_batch_adds_no_key_twice_and_loses_none(tmp_path: Path, index_num: int) -> None:
    config = MessageStoreConfig(max_hash_slot_num=7, max_index_num=index_num)
    log = [message(number, "a b c a", f"u{number}") for number in range(12)]
    (tmp_path / "whole").mkdir()
    whole = IndexService(OsDisk(tmp_path / "whole"), config, SteppingClock())
    whole.recover(0)
    whole.dispatch(log)
    for nth in range(1, 100):
        root = tmp_path / str(nth)
        root.mkdir()
        disk = FailingDisk(root)
        service = IndexService(disk, config, SteppingClock())
        service.recover(0)
        service.dispatch_batch(batch_of(log[:1]))
        counted = [(file.index_count, file.hash_slot_count) for file in service.files]
        disk.operations_left = nth
        try:
            service.dispatch_batch(batch_of(log))
            break
        except OSError:
            if index_num > len(log) * 5:
                assert [(file.index_count, file.hash_slot_count) for file in service.files] == counted
            if nth % 3 == 0:  # slots name entries that are not counted yet
                service.dispatch_batch(batch_of(log[: nth % 12 + 1]))
            elif nth % 3 == 1:
                service.dispatch(log[: nth % 12 + 1])
        service.dispatch_batch(batch_of(log))
        assert contents(root) == contents(tmp_path / "whole"), nth
        assert [problem for file in service.files for problem in file.problems()] == []
    assert nth >= 8


def test_with_messageIndexEnable_off_no_batch_is_taken(tmp_path: Path) -> None:  # noqa: N802
    service = IndexService(OsDisk(tmp_path), MessageStoreConfig(message_index_enable=False), SteppingClock())
    service.recover(0)
    service.dispatch_batch(batch_of([message(0, "a")]))
    assert not (tmp_path / "index").exists()


def test_nothing_is_made_for_a_batch_without_keys(tmp_path: Path) -> None:
    service = IndexService(OsDisk(tmp_path), MessageStoreConfig(), SteppingClock())
    service.recover(0)
    service.dispatch_batch(batch_of([message(0), message(1)]))
    assert not (tmp_path / "index").exists()


@pytest.mark.parametrize("damage", [-1, -(1 << 31), 6, 9, 10, HASH_MAX])
def test_a_slot_that_names_no_entry_is_taken_alike(tmp_path: Path, damage: int) -> None:
    states = []
    for as_columns in (False, True):
        files = IndexFiles(tmp_path / str(as_columns), 7, 10)
        files.put([IndexKey(3, 100 * n, EPOCH_MS) for n in range(5)], as_columns=False)
        files.files[0].file.write_at(40 + 4 * 3, damage.to_bytes(4, "big", signed=True))
        files.put([IndexKey(key_hash, 1000, EPOCH_MS) for key_hash in (3, 4, 3)], as_columns=as_columns)
        states.append(files.state())
    assert states[0] == states[1]


@pytest.mark.parametrize("as_batch", [False, True])
def test_a_record_that_comes_again_takes_no_key_of_the_next_and_corrects_its_time(
    tmp_path: Path, as_batch: bool
) -> None:
    service = IndexService(OsDisk(tmp_path), MessageStoreConfig(max_hash_slot_num=7), SteppingClock())
    service.recover(0)
    service.dispatch([message(0, "a b c d")])
    (file,) = service.files
    for again, count in (
        ([message(0, "a", store_timestamp_ms=EPOCH_MS + 500)], 5),
        ([message(0, "a"), message(1, "b"), message(2, "c")], 7),
    ):
        if as_batch:
            service.dispatch_batch(batch_of(again))
        else:
            service.dispatch(again)
        last = again[-1]
        assert (file.index_count, file.end_phy_offset) == (count, last.commit_log_offset)
        assert file.end_timestamp_ms == last.store_timestamp_ms
