"""Offsets and times of queues; records by offset and by id."""

from __future__ import annotations

import contextlib
import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmq_actors.store.read.queue_offsets import NO_TIME
from rmq_actors.wire.message_id import create_message_id
from rmq_actors.wire.record import Message, encode_message
from tests.worlds.read_store import EPOCH_MS, ReadStore, open_read_store

HOST = "127.0.0.1:10911"


def test_a_queue_that_is_not_there_has_nothing(tmp_path: Path) -> None:
    offsets = open_read_store(tmp_path).offsets
    assert offsets.get_min_offset_in_queue("T", 0) == offsets.get_max_offset_in_queue("T", 0) == 0
    assert offsets.get_message_total_in_queue("T", 0) == 0
    assert offsets.get_commit_log_offset_in_queue("T", 0, 0) == 0
    assert offsets.get_offset_in_queue_by_time("T", 0, EPOCH_MS) == 0
    assert offsets.get_earliest_message_time("T", 0) == NO_TIME
    assert offsets.get_message_store_timestamp("T", 0, 0) == NO_TIME
    assert offsets.get_earliest_message_time_of_store() == NO_TIME


def test_places_and_times_of_a_queue(tmp_path: Path) -> None:
    store = open_read_store(tmp_path)
    places = [store.put("T", at_ms=number * 10) for number in range(30)]
    offsets = store.offsets
    assert [offsets.get_commit_log_offset_in_queue("T", 0, number) for number in range(30)] == places
    times = [offsets.get_message_store_timestamp("T", 0, number) for number in range(-1, 31)]
    assert times == [NO_TIME, *(EPOCH_MS + number * 10 for number in range(30)), NO_TIME]
    assert offsets.get_earliest_message_time_of_store() == offsets.get_earliest_message_time("T", 0) == EPOCH_MS
    store.remove_oldest_file()
    store.queues.correct_min_offset(store.log.min_offset)
    first = next(number for number, place in enumerate(places) if place >= store.log.min_offset)
    assert offsets.get_min_offset_in_queue("T", 0) == first > 0
    assert (offsets.get_max_offset_in_queue("T", 0), offsets.get_message_total_in_queue("T", 0)) == (30, 30 - first)
    assert offsets.get_earliest_message_time("T", 0) == EPOCH_MS + first * 10
    assert offsets.get_earliest_message_time_of_store() == EPOCH_MS + first * 10
    assert offsets.pickup_store_timestamp(places[0], 92) == NO_TIME


def test_the_time_of_a_record_with_ipv6_hosts(tmp_path: Path) -> None:
    store = open_read_store(tmp_path)
    message = Message("T", b"", born_host="[::1]:1", store_host="[::2]:2")
    store.log.append_message(encode_message(message), EPOCH_MS + 7)
    assert store.offsets.get_earliest_message_time_of_store() == EPOCH_MS + 7


@given(st.lists(st.integers(0, 50), max_size=40).map(sorted), st.integers(-5, 60))
def test_the_nearest_message_is_found_by_time(times: list[int], asked: int) -> None:
    with tempfile.TemporaryDirectory() as root, contextlib.closing(open_read_store(Path(root))) as store:
        for at_ms in times:
            store.put("T", at_ms=at_ms)
        found = store.offsets.get_offset_in_queue_by_time("T", 0, EPOCH_MS + asked)
        if not times:
            assert found == 0
        else:
            assert abs(times[found] - asked) == min(abs(time - asked) for time in times)


@given(st.integers(-(2**63), 2**63 - 1) | st.integers(-10, 3000), st.none() | st.integers(-(2**31), 2**31 - 1))
def test_no_offset_and_no_size_is_an_error(offset: int, size: int | None) -> None:
    with tempfile.TemporaryDirectory() as root, contextlib.closing(open_read_store(Path(root))) as store:
        places = [store.put("T", body=b"%d" % number) for number in range(25)]
        message = store.lookup.look_message_by_offset(offset, size)
        record = store.lookup.select_one_message_by_offset(offset, size)
        assert (message is None) == (record is None)
        if offset in places and size in {None, 93, 94}:
            number = places.index(offset)
            expected = 93 if number < 10 else 94
            assert (message is not None) == (size in {None, expected})
        else:
            assert message is None


def place_and_size(store: ReadStore, keys: str = "k") -> tuple[int, int]:
    place = store.put("T", body=b"body", KEYS=keys)
    return place, store.log.max_offset - place


def test_a_message_is_found_by_offset_and_by_id(tmp_path: Path) -> None:
    store = open_read_store(tmp_path)
    store.put("U")
    place, size = place_and_size(store)
    for found in (
        store.lookup.look_message_by_offset(place),
        store.lookup.look_message_by_offset(place, size),
        store.lookup.look_message_by_id(create_message_id(HOST, place)),
    ):
        assert found is not None
        assert (found.physical_offset, found.body, found.properties) == (place, b"body", {"KEYS": "k"})
    record = store.lookup.select_one_message_by_offset(place)
    assert record is not None
    assert len(record) == size
    request = store.lookup.dispatch_request(place)
    assert request is not None
    assert (request.commit_log_offset, request.properties) == (place, {"KEYS": "k"})


def test_ids_of_nothing(tmp_path: Path) -> None:
    store = open_read_store(tmp_path)
    place, _ = place_and_size(store)
    for text in ("", "zz", "7F00000100002A9F", create_message_id("127.0.0.2:10911", place), create_message_id(HOST, 1)):
        assert store.lookup.look_message_by_id(text) is None


@pytest.mark.parametrize("position", [0, 4, 8, 28, 40, 88, 90])
def test_damage_is_not_found(tmp_path: Path, position: int) -> None:
    store = open_read_store(tmp_path)
    place, _ = place_and_size(store)
    assert store.lookup.look_message_by_offset(place) is not None
    file = store.log._queue.files[0].file
    file.write_at(place + position, bytes([file.map()[place + position] ^ 0x55]))
    found = store.lookup.look_message_by_offset(place)
    # No checksum covers the time of birth.
    assert (found is None) == (position != 40)


def test_what_a_power_cut_can_take_back_is_not_found(tmp_path: Path) -> None:
    store = open_read_store(tmp_path)
    first, size = place_and_size(store)
    second, _ = place_and_size(store)
    store.hidden_from = second
    assert store.lookup.look_message_by_offset(first) is not None
    assert store.lookup.look_message_by_offset(second) is None
    store.hidden_from = first + size - 1
    assert store.lookup.look_message_by_offset(first) is None
    assert store.lookup.select_one_message_by_offset(first) is None
