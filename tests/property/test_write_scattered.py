"""Scattered integers are as many writes, on both disks, wherever they go and whichever of them fails."""

from __future__ import annotations

import errno
import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmq_actors.ports.disk import Disk, DiskFile
from rmq_actors.real_io import os_disk
from rmq_actors.real_io.os_disk import OsDisk
from sim_net import Node, World

FILE_BYTES = 3 * 4096 + 6

places = st.integers(0, FILE_BYTES + 8)
offsets = st.one_of(
    st.lists(places, max_size=40),
    st.lists(st.integers(0, FILE_BYTES // 4 - 1), max_size=40).map(lambda each: [4 * place for place in each]),
    st.sets(st.integers(0, FILE_BYTES // 4 - 1), max_size=40).map(lambda each: [4 * place for place in sorted(each)]),
)
#: What is written by one call each.
calls = st.lists(st.tuples(offsets, st.integers(-(1 << 31), (1 << 31) - 1), st.booleans()), min_size=1, max_size=5)


def values_from(first: int, count: int) -> list[int]:
    return [(first + 77 * n + (1 << 31)) % (1 << 32) - (1 << 31) for n in range(count)]


def scatter(file: DiskFile, places: Sequence[int], values: Sequence[int]) -> None:
    file.write_scattered(np.array(places, np.int64), np.array(values, np.int32))


def write_each(file: DiskFile, places: Sequence[int], values: Sequence[int]) -> None:
    for place, value in zip(places, values, strict=True):
        file.write_at(place, value.to_bytes(4, "big", signed=True))


def check(disk: Disk, calls: Sequence[tuple[Sequence[int], int, bool]]) -> None:
    scattered, one_by_one = (disk.open(name, allocate_bytes=FILE_BYTES) for name in ("scattered", "one by one"))
    view = scattered.map()
    for places, first, is_cut in calls:
        values = values_from(first, len(places))
        scatter(scattered, places, values)
        write_each(one_by_one, places, values)
        assert scattered.size_bytes == one_by_one.size_bytes
        assert bytes(scattered.map()) == bytes(one_by_one.map())
        if len(view) == scattered.size_bytes:  # stale once the file grows
            assert view == one_by_one.map()
        if is_cut:
            for each in (scattered, one_by_one):
                each.truncate(4096 + 2)
                each.truncate(FILE_BYTES)
            view = scattered.map()
    for each in (scattered, one_by_one):
        each.close()


@given(calls=calls, scattered_min=st.sampled_from([1, 3]))
def test_on_a_real_disk(calls: list[tuple[list[int], int, bool]], scattered_min: int) -> None:
    with tempfile.TemporaryDirectory() as root, pytest.MonkeyPatch.context() as patch:
        patch.setattr(os_disk, "_SCATTERED_MIN", scattered_min)
        check(OsDisk(Path(root)), calls)


@given(calls=calls)
def test_on_a_simulated_disk(calls: list[tuple[list[int], int, bool]]) -> None:
    check(World(1).node("a").disk, calls)


@given(places=offsets, nth=st.integers(1, 50))
def test_on_a_simulated_disk_each_is_an_operation_that_may_fail(places: list[int], nth: int) -> None:
    outcomes: list[tuple[bool, int, bytes]] = []

    async def program(node: Node) -> None:
        for number, write in enumerate((scatter, write_each)):
            file = node.disk.open(str(number), allocate_bytes=FILE_BYTES)
            begun = node.disk.operations
            node.disk.fail(errno.EIO, operation="write", path=str(number), nth=nth)
            try:
                write(file, places, values_from(1, len(places)))
                failed = False
            except OSError as error:
                failed = error.errno == errno.EIO
            node.disk.end_faults()
            outcomes.append((failed, node.disk.operations - begun, bytes(file.map())))

    async def main(world: World) -> None:
        world.node("a").boot(program)
        await world.nodes["a"].wait_down()

    World(1).run(main)
    assert outcomes[0] == outcomes[1]
    assert outcomes[0][:2] == (nth <= len(places), min(nth, len(places)))
