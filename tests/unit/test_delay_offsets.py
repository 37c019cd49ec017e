"""Delayed messages: how long the levels are, and how far each is delivered."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st

from rmq_actors.store.files.delay_offsets import DelayOffsets
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
    assert (tmp_path / "config/delayOffset.json").read_bytes() == b'{\n\t"offsetTable":{2:8,1:5\n\t}\n}'


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


@pytest.mark.parametrize(
    "data",
    [
        b"[]",
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
