"""Delayed messages: how long the levels are, and how far each is delivered."""

from __future__ import annotations

import re
import tempfile
from pathlib import Path

import pytest
import trio
from hypothesis import given, settings
from hypothesis import strategies as st

from rmq_actors.store.files.delay_offsets import MARKS_MAX, DelayOffsets
from rmq_actors.store.files.json_file import ConfigFileDamaged
from rmq_actors.wire.delay_levels import parse_delay_levels
from rmq_actors.wire.dispatch_request import DELAY_LEVELS_MS
from tests.worlds.faulty_disk import FaultyDisk
from tests.worlds.golden_capture import STORE_MASTER_CLEAN, STORE_SLAVE_CLEAN


async def synced(_: int) -> bool:
    return True


def stored(tmp_path: Path, data: bytes) -> FaultyDisk:
    (tmp_path / "config").mkdir()
    (tmp_path / "config/delayOffset.json").write_bytes(data)
    return FaultyDisk(tmp_path)


def test_the_default_levels_are_rocketmqs() -> None:
    assert parse_delay_levels("1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h") == tuple(DELAY_LEVELS_MS)


@given(st.lists(st.tuples(st.integers(0, 3650), st.sampled_from("smhd")), min_size=1, max_size=30))
def test_levels_are_numbers_and_units(levels: list[tuple[int, str]]) -> None:
    units = {"s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
    text = " ".join(f"{number}{unit}" for number, unit in levels)
    assert parse_delay_levels(text) == tuple(number * units[unit] for number, unit in levels)


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("", "has 0 levels"),
        ("1s " * 1025, "has 1025 levels"),
        ("1s 5", "level 2 is '5', not a number"),
        ("1s five 3m", "level 2 is 'five'"),
        ("-1s", "level 1 is '-1s'"),
        ("1S", "level 1 is '1S'"),
        ("٣s", "level 1 is"),
        ("1s 3651d", "level 2 is '3651d', at most 3650d"),
    ],
)
def test_a_level_that_is_wrong_is_named(text: str, what: str) -> None:
    with pytest.raises(ValueError, match=f"messageDelayLevel:? .*{re.escape(what)}|{re.escape(what)}"):
        parse_delay_levels(text)


@pytest.mark.parametrize("store", [STORE_MASTER_CLEAN, STORE_SLAVE_CLEAN])
def test_rocketmqs_file_is_read(tmp_path: Path, store: Path) -> None:
    disk = stored(tmp_path, (store / "config/delayOffset.json").read_bytes())
    offsets = DelayOffsets.load(disk)
    assert offsets.offset_table == {1: 3, 2: 3, 3: 4}
    assert offsets.encode() == b'{"offsetTable":{1:3,2:3,3:4}}'
    trio.run(offsets.persist, synced)
    assert disk.syncs == []  # nothing has changed


def test_what_is_persisted_is_loaded(tmp_path: Path) -> None:
    async def main() -> None:
        disk = FaultyDisk(tmp_path)
        offsets = DelayOffsets.load(disk)
        assert offsets.offset_table == {}
        offsets.offset_table.update({2: 7, 1: 5})
        disk.failing_syncs = 1
        with pytest.raises(OSError, match="Input/output error"):
            await offsets.persist(synced)
        await offsets.persist(synced)
        syncs = len(disk.syncs)
        await offsets.persist(synced)
        assert len(disk.syncs) == syncs
        assert DelayOffsets.load(disk).offset_table == {1: 5, 2: 7}
        offsets.offset_table[2] = 8
        await offsets.persist(synced)
        assert DelayOffsets.load(disk).offset_table == {1: 5, 2: 8}

    trio.run(main)
    # RocketMQ reads its `offsetTable`, and passes over the rest.
    data = (tmp_path / "config/delayOffset.json").read_bytes()
    assert data.replace(b"\n", b"").replace(b"\t", b"") == b'{"offsetTable":{2:8,1:5},"restsOn":[[0,2,8,1,5]]}'


@given(
    st.dictionaries(st.integers(1, 18), st.integers(0, 50)),
    st.lists(st.tuples(st.integers(0, 30), st.integers(0, 30)), min_size=18, max_size=18),
)
def test_offsets_are_corrected_into_their_queues(table: dict[int, int], queues: list[tuple[int, int]]) -> None:
    offsets = DelayOffsets(dict(table), None, None)  # type: ignore[arg-type]  # no file is touched
    bounds = [(first, first + more) for first, more in queues]
    offsets.correct(bounds.__getitem__, 0)
    for level, offset in table.items():
        first, after = bounds[level - 1]
        assert first <= offsets.offset_table[level] <= after
        assert offsets.offset_table[level] == offset or offset not in range(first, after + 1)


def test_a_slave_has_its_masters_table_until_it_delivers_itself(tmp_path: Path) -> None:
    """#7077: what a slave's log does not have yet is not lowered; who is going to deliver corrects it."""

    async def main() -> None:
        disk = FaultyDisk(tmp_path)
        offsets = DelayOffsets.load(disk)
        assert offsets.replace(b'{"offsetTable":{1:3,"2":9,3:0}}')
        assert not offsets.replace(b'{"offsetTable":{1:3,2:9,3:0}}')
        assert await offsets.persist(synced)
        assert not await offsets.persist(synced)
        offsets = DelayOffsets.load(disk)
        assert offsets.offset_table == {1: 3, 2: 9, 3: 0}
        offsets.correct(lambda _: (2, 4), 0)
        assert offsets.offset_table == {1: 3, 2: 4, 3: 2}

    trio.run(main)


@pytest.mark.parametrize(
    "data", [b"", b"{}", b"[]", b"null", b'{"offsetTable":null}', b'{"offsetTable":{1:"x"}}', b'{"offsetTable":{1:3}']
)
def test_a_masters_table_that_is_none_changes_nothing(tmp_path: Path, data: bytes) -> None:
    offsets = DelayOffsets.load(stored(tmp_path, b'{"offsetTable":{1:7}}'))
    with pytest.raises(ValueError, match=r"no offsetTable in|level 1 has offset 'x'|line 1"):
        offsets.replace(data)
    assert offsets.offset_table == {1: 7}


def test_an_offset_past_the_queue_is_corrected_and_written(tmp_path: Path) -> None:
    """#1869: the file was newer than the log that a recovery had cut; the level was never delivered again."""

    async def main() -> None:
        disk = stored(tmp_path, b'{"offsetTable":{1:100}}')
        offsets = DelayOffsets.load(disk)
        offsets.correct(lambda _: (0, 7), 0)
        assert offsets.offset_table == {1: 7}
        await offsets.persist(synced)
        assert DelayOffsets.load(disk).offset_table == {1: 7}

    trio.run(main)


def test_a_table_is_written_after_the_log_that_it_rests_on(tmp_path: Path) -> None:
    async def main() -> None:
        offsets, asked = DelayOffsets.load(FaultyDisk(tmp_path)), list[int]()

        async def synced_at_last(log_offset: int) -> bool:
            assert not (tmp_path / "config/delayOffset.json").exists()
            asked.append(log_offset)
            return len(asked) == 2

        offsets.delivered(3, 1, 70)
        assert [await offsets.persist(synced_at_last) for _ in range(3)] == [False, True, False]
        assert asked == [70, 70]

    trio.run(main)


async def table_with_history(disk: FaultyDisk) -> DelayOffsets:
    """Level 3 is delivered up to 90 in a log up to 9000, then to 100 up to 10000."""
    offsets = DelayOffsets.load(disk)
    for next_offset in (90, 100):
        offsets.delivered(3, next_offset, next_offset * 100)
        assert await offsets.persist(synced)
    return offsets


@pytest.mark.parametrize("is_loaded", [False, True])
@pytest.mark.parametrize(
    ("log_end", "left"), [(10_000, 100), (9_999, 90), (9_000, 90), (8_999, 0), (0, 0)], ids=lambda value: f"{value}"
)
def test_a_log_that_is_cut_takes_back_what_it_had_delivered(
    tmp_path: Path, log_end: int, left: int, is_loaded: bool
) -> None:
    """The table counted on, and what was delivered after the cut was lost: others bytes took the place of it."""

    async def main() -> None:
        disk = FaultyDisk(tmp_path)
        offsets = await table_with_history(disk)
        if is_loaded:
            offsets = DelayOffsets.load(disk)
        await offsets.cut_log(log_end)
        for found in (offsets, DelayOffsets.load(disk)):
            assert found.offset_table == {3: left}
            assert found.rests_on is not None
            assert found.rests_on <= log_end
            await found.cut_log(1 << 40)  # the log has other bytes there now
            assert found.offset_table == {3: left}

    trio.run(main)


def test_a_log_that_has_lost_its_end_takes_back_what_it_had_delivered(tmp_path: Path) -> None:
    async def main() -> None:
        disk = FaultyDisk(tmp_path)
        await table_with_history(disk)
        offsets = DelayOffsets.load(disk)
        await offsets.log_ends_at(10_000)
        assert offsets.offset_table == {3: 100}
        await offsets.log_ends_at(9_500)
        assert DelayOffsets.load(disk).offset_table == offsets.offset_table == {3: 90}

    trio.run(main)


def test_nobody_knows_what_rocketmqs_table_rests_on(tmp_path: Path) -> None:
    """A cut takes it back as a whole; who opens the log counts on it."""

    async def main() -> None:
        disk = stored(tmp_path, b'{"offsetTable":{3:100}}')
        offsets = DelayOffsets.load(disk)
        await offsets.log_ends_at(0)
        offsets.correct(lambda _: (0, 200), 5_000)
        assert (offsets.offset_table, offsets.rests_on) == ({3: 100}, 5_000)
        offsets = DelayOffsets.load(disk)
        await offsets.cut_log(5_000)
        assert DelayOffsets.load(disk).offset_table == offsets.offset_table == {3: 0}

    trio.run(main)


def test_a_table_that_rocketmq_has_written_is_of_no_mark(tmp_path: Path) -> None:
    """RocketMQ drops the key, or keeps one that is of another table."""

    async def main() -> None:
        disk = stored(tmp_path, b'{"offsetTable":{3:100},"restsOn":[[7,3,90]]}')
        assert DelayOffsets.load(disk).rests_on is None

    trio.run(main)


def test_a_cut_that_could_not_lower_the_table_lowers_it_when_it_is_tried_again(tmp_path: Path) -> None:
    async def main() -> None:
        disk = FaultyDisk(tmp_path)
        offsets = await table_with_history(disk)
        disk.failing_syncs = 1
        with pytest.raises(OSError, match="Input/output error"):
            await offsets.cut_log(9_500)
        assert DelayOffsets.load(disk).offset_table == {3: 100}
        await offsets.cut_log(9_500)
        assert DelayOffsets.load(disk).offset_table == {3: 90}

    trio.run(main)


def test_a_table_that_is_not_written_yet_does_not_hide_that_the_file_counts_what_is_cut(tmp_path: Path) -> None:
    async def main() -> None:
        disk = FaultyDisk(tmp_path)
        offsets = await table_with_history(disk)
        offsets.replace(b'{"offsetTable":{3:80}}', 8_000)
        await offsets.cut_log(9_500)
        assert DelayOffsets.load(disk).offset_table == {3: 80}

    trio.run(main)


def test_what_was_to_be_written_before_a_cut_is_not_written_after_it(tmp_path: Path) -> None:
    async def main() -> None:
        disk = FaultyDisk(tmp_path)
        offsets = await table_with_history(disk)
        offsets.delivered(3, 110, 11_000)

        async def cut_meanwhile(_: int) -> bool:
            await offsets.cut_log(9_500)
            return True

        assert not await offsets.persist(cut_meanwhile)
        assert DelayOffsets.load(disk).offset_table == offsets.offset_table == {3: 90}

    trio.run(main)


@settings(max_examples=40)
@given(st.lists(st.tuples(st.integers(1, 3), st.integers(1, 500)), min_size=1, max_size=60), st.data())
def test_what_is_left_of_the_table_is_in_what_is_left_of_the_log(
    deliveries: list[tuple[int, int]], data: st.DataObject
) -> None:
    """Whatever is delivered, written and cut: each message before an offset ends in the log, before the cut."""

    async def main(root: Path) -> None:
        disk = FaultyDisk(root)
        offsets, log_end = DelayOffsets.load(disk), 0
        ends: dict[int, list[int]] = {1: [], 2: [], 3: []}
        for level, size in deliveries:
            log_end += size
            del ends[level][offsets.offset_table.get(level, 0) :]
            ends[level].append(log_end)
            offsets.delivered(level, len(ends[level]), log_end)
            what = data.draw(st.sampled_from(["", "persist", "persist", "load", "cut"]))
            if what == "persist":
                await offsets.persist(synced)
                marks = len((root / "config/delayOffset.json").read_bytes().split(b"[")) - 2
                assert 0 < marks <= MARKS_MAX
            elif what == "load":
                offsets = DelayOffsets.load(disk)
            elif what == "cut":
                log_end = data.draw(st.integers(0, log_end))
                await offsets.cut_log(log_end)
            for each in (offsets, DelayOffsets.load(disk)) if what == "cut" else (offsets,):
                for number, offset in each.offset_table.items():
                    assert all(end <= log_end for end in ends[number][:offset])

    with tempfile.TemporaryDirectory() as directory:
        trio.run(main, Path(directory))


@pytest.mark.parametrize(
    "data",
    [
        b"[]",
        b'{"offsetTable":{1:1},"restsOn":{}}',
        b'{"offsetTable":{1:1},"restsOn":[1]}',
        b'{"offsetTable":{1:1},"restsOn":[[]]}',
        b'{"offsetTable":{1:1},"restsOn":[[9,1]]}',
        b'{"offsetTable":{1:1},"restsOn":[[-9,1,1]]}',
        b'{"offsetTable":[]}',
        b'{"offsetTable":{1:-1}}',
        b'{"offsetTable":{0:1}}',
        b'{"offsetTable":{1:true}}',
        b'{"offsetTable":{1:9223372036854775808}}',
        b'{"offsetTable":{"a":1}}',
    ],
)
def test_a_table_that_is_none_is_refused(tmp_path: Path, data: bytes) -> None:
    with pytest.raises(ConfigFileDamaged, match=r"config/delayOffset.json cannot be read .*bak is missing"):
        DelayOffsets.load(stored(tmp_path, data))
