"""ConsumeQueueExt: RocketMQ's units and addresses, and that they go where their queue goes."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmq_actors.real_io.os_disk import OsDisk
from rmq_actors.store.dispatch.consume_queue_ext import MAX_ADDR, MAX_EXT_UNIT_SIZE, ConsumeQueueExt, CqExtUnit
from rmq_actors.store.files.layout import file_name
from rmq_actors.store.files.mapped_file_queue import MappedFileQueue
from tests.worlds.faulty_disk import FaultyDisk
from tests.worlds.queue_files import STORE_TIMESTAMP_MS, held, new_queues, open_queues, request, tree

LONG_MIN = -(1 << 63)
LONG_MAX = (1 << 63) - 1
EXT_SIZE = 100
SETTINGS = {"enable_consume_queue_ext": True, "mapped_file_size_consume_queue_ext_bytes": EXT_SIZE}


def open_ext(root: Path, size: int = EXT_SIZE) -> ConsumeQueueExt:
    return ConsumeQueueExt(MappedFileQueue(OsDisk(root), "ext", size, "mappedFileSizeConsumeQueueExt"))


def put(ext: ConsumeQueueExt, unit: CqExtUnit) -> int:
    address = ext.put(unit)
    assert address is not None
    return address


def test_a_unit_is_as_rocketmq_writes_it(tmp_path: Path) -> None:
    ext = open_ext(tmp_path)
    assert put(ext, CqExtUnit(-2, 0x0102030405060708, b"")) == LONG_MIN
    assert put(ext, CqExtUnit(3, 4, b"\xaa\xbb")) == LONG_MIN + 20
    assert (tmp_path / "ext" / file_name(0)).read_bytes() == bytes.fromhex(
        "0014 fffffffffffffffe 0102030405060708 0000"
        "0016 0000000000000003 0000000000000004 0002 aabb"
    ) + bytes(EXT_SIZE - 42)  # fmt: skip
    ext.queue.close()


def test_addresses_are_told_from_tags_codes_and_times() -> None:
    assert MAX_ADDR == -(1 << 31) - 1
    expected = {LONG_MIN: True, MAX_ADDR: True, MAX_ADDR + 1: False, -1: False, 0: False, STORE_TIMESTAMP_MS: False}
    assert {address: ConsumeQueueExt.is_ext_addr(address) for address in expected} == expected


@given(
    units=st.lists(
        st.builds(
            CqExtUnit,
            st.integers(LONG_MIN, LONG_MAX),
            st.integers(LONG_MIN, LONG_MAX),
            st.one_of(st.just(b""), st.binary(max_size=76)),
        ),
        min_size=1,
        max_size=30,
    )
)
def test_every_unit_comes_back_by_its_address(tmp_path_factory: pytest.TempPathFactory, units: list[CqExtUnit]) -> None:
    ext = open_ext(tmp_path_factory.mktemp("store"))
    addresses = [put(ext, unit) for unit in units]
    assert addresses == sorted(set(addresses))
    assert [ext.get(address) for address in addresses] == units
    assert ext.get(addresses[-1] + units[-1].size) is None
    ext.queue.close()


@pytest.mark.parametrize(("size", "marked"), [(76, False), (77, True)])
def test_the_end_of_a_file_has_room_for_its_mark(tmp_path: Path, size: int, marked: bool) -> None:
    """Four bytes stay free after a unit; where one does not fit, -1 stands, and the next file is begun."""
    ext = open_ext(tmp_path)
    put(ext, CqExtUnit(1, 2, b""))
    assert put(ext, CqExtUnit(3, 4, bytes(size - 20))) == LONG_MIN + (EXT_SIZE if marked else 20)
    assert ((tmp_path / "ext" / file_name(0)).read_bytes()[20:22] == b"\xff\xff") is marked
    ext.queue.close()


def test_a_unit_that_is_too_large_gets_no_address(tmp_path: Path) -> None:
    ext = open_ext(tmp_path)
    assert ext.put(CqExtUnit(1, 2, bytes(77))) is None
    assert ext.put(CqExtUnit(1, 2, bytes(76))) is not None
    large = open_ext(tmp_path / "large", 1 << 16)
    assert large.put(CqExtUnit(1, 2, bytes(MAX_EXT_UNIT_SIZE - 19))) is None
    assert large.put(CqExtUnit(1, 2, bytes(MAX_EXT_UNIT_SIZE - 20))) is not None
    ext.queue.close()
    large.queue.close()


def test_what_is_no_unit_is_none(tmp_path: Path) -> None:
    ext = open_ext(tmp_path)
    put(ext, CqExtUnit(1, 2, b"xyz"))
    for address in (0, MAX_ADDR, LONG_MIN + 1, LONG_MIN + 10, LONG_MIN + 23, LONG_MIN + 90, LONG_MIN + 500):
        assert ext.get(address) is None
    ext.queue.close()


def addresses(number: int) -> list[int]:
    """Of units without a bit map: four in a file of 100 bytes."""
    return [LONG_MIN + EXT_SIZE * (each // 4) + 20 * (each % 4) for each in range(number)]


def test_entries_have_addresses_in_place_of_tags_codes(tmp_path: Path) -> None:
    queues = open_queues(tmp_path, units=50, **SETTINGS)
    queues.dispatch([request(each, 100 * each, tags_code=-each) for each in range(10)])
    queue = queues.find("T", 0)
    assert queue is not None
    assert queue.ext is not None
    assert held(queue) == [(100 * each, 100, address) for each, address in enumerate(addresses(10))]
    for each, address in enumerate(addresses(10)):
        assert queue.ext.get(address) == CqExtUnit(-each, STORE_TIMESTAMP_MS + 100 * each, b"")
    assert sorted(tree(tmp_path, "consumequeue_ext")) == [
        f"consumequeue_ext/T/0/{file_name(at)}" for at in (0, 100, 200)
    ]
    queues.close()


def test_further_queues_of_a_record_keep_the_tags_code(tmp_path: Path) -> None:
    """4.9 writes no extension unit for them."""
    queues = open_queues(tmp_path, enable_multi_dispatch=True, **SETTINGS)
    properties = {"INNER_MULTI_DISPATCH": "other", "INNER_MULTI_QUEUE_OFFSET": "0"}
    queues.dispatch([request(0, 0, tags_code=7, properties=properties)])
    other = queues.find("other", 0)
    assert other is not None
    assert held(other) == [(0, 100, 7)]
    queues.close()


@pytest.mark.parametrize("kept", range(11))
@pytest.mark.parametrize("reopen", [True, False])
def test_the_extension_is_cut_with_its_queue(tmp_path: Path, kept: int, reopen: bool) -> None:
    """4.9 leaves it as it was in the common case, and gives new units addresses behind old ones."""
    log = [request(each, 100 * each, tags_code=-each) for each in range(10)]
    queues = open_queues(tmp_path, units=50, **SETTINGS)
    queues.dispatch(log)
    before = tree(tmp_path, ".")
    if reopen:
        queues.close()
        queues = open_queues(tmp_path, 100 * kept, units=50, **SETTINGS)
    queue = queues.find("T", 0)
    assert queue is not None
    if not reopen:
        queue.truncate_dirty_logic_files(100 * kept)
    assert queue.ext is not None
    assert queue.ext.queue.max_offset == (EXT_SIZE * ((kept - 1) // 4) + 20 * ((kept - 1) % 4 + 1) if kept else 0)
    queues.dispatch(log)
    assert tree(tmp_path, ".") == before
    queues.close()


@pytest.mark.parametrize("length", [0, 50])
def test_files_that_a_power_loss_took_are_after_the_cut(tmp_path: Path, length: int) -> None:
    log = [request(each, 100 * each) for each in range(20)]
    queues = open_queues(tmp_path, units=50, **SETTINGS)
    queues.dispatch(log)
    queues.close()
    before = tree(tmp_path, ".")
    directory = tmp_path / "consumequeue_ext/T/0"
    (directory / file_name(200)).unlink()
    (directory / file_name(300)).write_bytes(bytes(length))
    queues = new_queues(tmp_path, units=50, **SETTINGS)
    assert queues.recover(700) == 700
    queues.dispatch(log)
    assert tree(tmp_path, ".") == before
    queues.close()


def test_extension_files_whose_queue_is_gone_are_made_again_with_it(tmp_path: Path) -> None:
    """A power loss may take the one's name and leave the other's; and a person may move `consumequeue/` away."""
    log = [request(each, 100 * each, queue_id=each % 2) for each in range(20)]
    log = [each._replace(consume_queue_offset=each.consume_queue_offset // 2) for each in log]
    queues = open_queues(tmp_path, units=50, **SETTINGS)
    queues.dispatch(log)
    queues.close()
    before = tree(tmp_path, ".")
    shutil.rmtree(tmp_path / "consumequeue/T/1")
    queues = open_queues(tmp_path, units=50, **SETTINGS)
    queues.dispatch(log)
    assert tree(tmp_path, ".") == before
    queues.close()


@pytest.mark.parametrize("kept", [0, 2])
def test_files_that_somebody_removed_are_not_begun_again(tmp_path: Path, kept: int) -> None:
    """Old entries would name the units of new ones; without a unit, a filter lets the message pass."""
    log = [request(each, 100 * each, tags_code=each) for each in range(22)]
    queues = open_queues(tmp_path, units=50, **SETTINGS)
    queues.dispatch(log[:20])
    queues.close()
    for path in sorted((tmp_path / "consumequeue_ext/T/0").iterdir())[kept:]:
        path.unlink()
    for count in (20, 21, 22):
        queues = open_queues(tmp_path, 100 * (count - 1), units=50, **SETTINGS)
        queues.dispatch(log[:count])
        queue = queues.find("T", 0)
        assert queue is not None
        assert queue.ext is not None
        units = [queue.ext.get(entry[2]) for entry in held(queue) if entry is not None]
        assert [unit and unit.tags_code for unit in units][-3:] == [None, None, *range(19, count)][-3:]
        assert {path.stat().st_size for path in (tmp_path / "consumequeue_ext/T/0").iterdir()} == {EXT_SIZE}
        queues.close()


def test_a_queue_may_be_extended_late_and_no_more(tmp_path: Path) -> None:
    log = [request(each, 100 * each, tags_code=-each) for each in range(9)]
    for end, settings in ((3, {}), (6, SETTINGS), (9, {})):
        queues = open_queues(tmp_path, 100 * (end - 3), units=50, **settings)
        queues.dispatch(log[:end])
        queues.close()
    queues = open_queues(tmp_path, 900, units=50, **SETTINGS)
    queue = queues.find("T", 0)
    assert queue is not None
    assert queue.ext is not None
    codes = [entry[2] for entry in held(queue) if entry is not None]
    assert codes == [0, -1, -2, *addresses(3), -6, -7, -8]
    assert queue.ext.queue.max_offset == 60
    queues.close()


@pytest.mark.trio
async def test_the_oldest_files_go_with_the_entries(tmp_path: Path) -> None:
    disk = FaultyDisk(tmp_path)
    queues = open_queues(disk, units=50, **SETTINGS)
    queues.dispatch([request(each, 100 * each) for each in range(20)])
    await queues.flush()
    assert {name for name in disk.syncs if not name.endswith("/")} == set(tree(tmp_path, "."))
    left = []
    for log_min_offset in (400, 499, 501, 1500, 1500, 1500):
        queues.delete_expired(log_min_offset)
        await queues.flush()
        left.append(min(int(Path(name).name) for name in tree(tmp_path, "consumequeue_ext")))
    assert left == [0, 100, 100, 200, 300, 300]
    queues.close()


@pytest.mark.trio
async def test_destroying_a_topic_takes_its_extension(tmp_path: Path) -> None:
    queues = open_queues(FaultyDisk(tmp_path), **SETTINGS)
    queues.dispatch([request(each, 100 * each) for each in range(20)])
    await queues.destroy("T")
    assert tree(tmp_path, ".") == {}
    queues.close()
