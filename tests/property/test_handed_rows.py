"""Rows that the log's writer hands to the dispatcher: whatever happens, all derived files are those of the log."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

import pytest
import trio
from hypothesis import given, settings
from hypothesis import strategies as st

from rmq_actors.store.dispatch import index_service, reput_message_service
from rmq_actors.store.dispatch.handed_rows import HandedRows
from rmq_actors.store.lifecycle.store_files import StoreFiles
from rmq_actors.wire.dispatch_request import DispatchRequest
from rmq_actors.wire.record import Message, encode_message
from tests.worlds.faulty_disk import FaultyDisk
from tests.worlds.handed_rows import CONFIG, put_rows
from tests.worlds.store_on_disk import opened, wrong

NAMES = st.fixed_dictionaries(
    {},
    optional={
        "UNIQ_KEY": st.sampled_from(["7F00000100002A139A5542CA1C6E0000", "u", "\u00f6"]),
        "KEYS": st.sampled_from(["k", "k l", " a  b ", "k" * 300, "\u00e4 k"]),
        "TAGS": st.sampled_from(["TagA", "\u00fc"]),
    },
)
ROWS = st.lists(st.tuples(st.sampled_from(["T", "U"]), st.integers(0, 2), NAMES), min_size=1, max_size=12)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("rows"), ROWS),
        st.tuples(st.just("rows"), ROWS),
        st.tuples(st.just("general"), st.integers(0, 400)),
        st.tuples(st.just("dispatch"), st.integers(0, 2000)),
        st.tuples(st.just("dispatch"), st.just(0)),
        st.tuples(st.just("drain"), st.none()),
        st.tuples(st.just("full"), st.integers(0, 600)),
        st.tuples(st.just("checkpoint"), st.none()),
    ),
    max_size=20,
)


def dispatch(files: StoreFiles, limit: int) -> None:
    with contextlib.suppress(OSError):
        while files.reput.dispatch_some(limit):
            pass


async def checkpoint(files: StoreFiles) -> None:
    """Nothing after the recovery point may be missing in the index."""

    async def flushed(_: int) -> bool:
        return True

    await files.commit_log.flush()
    await files.checkpointing.advance(flushed)
    offset, last = files.reput.drained
    assert last is None or last.end_offset == offset or offset % 16_384 == 0
    assert offset <= files.reput.reput_from_offset


async def live(root: Path, steps: list[tuple[str, Any]]) -> int:
    """One life of a store, ended in order; how many rows were taken as they were handed over."""
    disk, taken = FaultyDisk(root), 0
    async with opened(root, CONFIG, disk=disk) as files:
        assert files.reput.checks_rows
        take = files.reput._dispatch_rows

        def count(rows: list[DispatchRequest]) -> None:
            nonlocal taken
            taken += len(rows)
            take(rows)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(type(files.reput), "_dispatch_rows", lambda _, rows: count(rows))
            for what, how in steps:
                if what == "rows":
                    put_rows(files, how)
                elif what == "general":
                    message = Message("T", b"x" * how, 0, {"KEYS": "k"})
                    files.commit_log.append_message(encode_message(message), 1_700_000_000_000)
                elif what == "dispatch":
                    dispatch(files, max(files.reput.reput_from_offset, files.commit_log.max_offset - how))
                elif what == "checkpoint":
                    await checkpoint(files)
                else:
                    disk.space_bytes = how
                    dispatch(files, files.commit_log.max_offset)
                    with contextlib.suppress(OSError):
                        files.reput.drain()
                    disk.space_bytes = None
    return taken


@settings(max_examples=25)
@given(steps=STEPS, columns_min=st.sampled_from([1, 64]), lag_max=st.sampled_from([1, 8, 256]))
def test_whatever_happens_to_rows_all_derived_files_are_those_of_the_log(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[str, Any]], columns_min: int, lag_max: int
) -> None:
    root = tmp_path_factory.mktemp("store")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(index_service, "_COLUMNS_ROWS_MIN", columns_min)
        patch.setattr(reput_message_service, "LAG_MAX_ROWS", lag_max)
        trio.run(live, root, steps)
    assert wrong(root, CONFIG) == []


def test_rows_are_taken_as_they_were_handed_over_where_nothing_is_missing(tmp_path: Path) -> None:
    rows = [("T", number % 3, {"UNIQ_KEY": f"u{number}"}) for number in range(9)]
    steps: list[tuple[str, Any]] = [("general", 0), ("rows", rows), ("rows", rows), ("dispatch", 0)]
    assert trio.run(live, tmp_path, [*steps, ("rows", rows), ("dispatch", 100), ("dispatch", 0)]) == 27
    assert wrong(tmp_path, CONFIG) == []


def request(offset: int, size: int = 10) -> DispatchRequest:
    return DispatchRequest("T", 0, offset, size, 0, 0, 0, 0, 0, {})


@given(
    puts=st.lists(st.tuples(st.integers(0, 1), st.integers(1, 5), st.integers(0, 30)), max_size=20),
    takes=st.lists(st.tuples(st.integers(0, 20), st.integers(0, 60)), max_size=20),
)
def test_what_is_taken_has_no_gap_and_never_ends_after_the_limit(
    puts: list[tuple[int, int, int]], takes: list[tuple[int, int]]
) -> None:
    handed = HandedRows(rows_max=8, properties_max_bytes=50)
    end, position = 0, 0
    for number in range(max(len(puts), len(takes))):
        if number < len(puts):
            gap, count, size_bytes = puts[number]
            end += 10 * gap
            handed.put([request(end + 10 * place) for place in range(count)], size_bytes)
            end += 10 * count
            assert len(handed) <= 8
        if number < len(takes):
            back, ahead = takes[number]
            limit = min(end, position + ahead)
            rows = handed.take(position, limit)
            offsets = [row.commit_log_offset for row in rows]
            assert offsets == list(range(position, position + 10 * len(rows), 10))
            if rows:
                position = rows[-1].end_offset
                assert position <= limit
            elif handed.begin_offset is not None and handed.begin_offset > position:
                position = handed.begin_offset  # read from the log
            position = max(0, position - 10 * (back == 0))


def test_too_many_rows_are_dropped_as_a_whole() -> None:
    handed = HandedRows(rows_max=3, properties_max_bytes=100)
    handed.put([request(0), request(10)], 10)
    handed.put([request(20), request(30)], 10)
    assert handed.take(0, 100) == ()
    assert [row.commit_log_offset for row in handed.take(20, 100)] == [20, 30]
    handed.put([request(40)], 60)
    handed.put([request(50)], 60)
    assert handed.begin_offset == 50
    handed.put([request(70)], 10)
    assert handed.begin_offset == 70, "the one at 60 is missing"
    assert handed.take(80, 100) == ()
    assert handed.begin_offset is None, "what was read from the log is not wanted any more"
