"""Queries by key: the records that have it, and no others."""

from __future__ import annotations

import contextlib
import tempfile
from pathlib import Path

import trio
from hypothesis import given
from hypothesis import strategies as st

from rmq_actors.store.read.query_message import QueryMessageResult, RecordLookup, query_message
from rmq_actors.wire.java_string import java_hash_code
from rmq_actors.wire.record import decode_record, encode_blank
from tests.worlds.log_pairs import FILE_BYTES, log_of
from tests.worlds.read_store import EPOCH_MS, ReadStore, open_read_store

ALWAYS = (0, 1 << 62)


def query(
    store: ReadStore, topic: str, key: str, max_num: int = 32, between: tuple[int, int] = ALWAYS
) -> QueryMessageResult:
    async def main() -> QueryMessageResult:
        return await query_message(store.config, store.index, store.lookup, topic, key, max_num, *between)

    return trio.run(main)


def bodies(result: QueryMessageResult) -> list[bytes]:
    return [decode_record(record, 0, int.from_bytes(record[28:36], "big")).body for record in result.messages]


def test_records_are_found_by_each_of_their_keys_oldest_first(tmp_path: Path) -> None:
    store = open_read_store(tmp_path)
    store.put("T", body=b"0", KEYS="a b", at_ms=1)
    store.put("T", body=b"1", KEYS="b", UNIQ_KEY="u", at_ms=2)
    store.put("U", body=b"2", KEYS="b", at_ms=3)
    place = store.put("T", body=b"3", at_ms=4, KEYS="c")
    assert [bodies(query(store, "T", key)) for key in ("a", "b", "u", "c", "d", "a b")] == [
        [b"0"], [b"0", b"1"], [b"1"], [b"3"], [], [],
    ]  # fmt: skip
    result = query(store, "T", "b")
    assert result.buffer_total_size == sum(map(len, result.messages)) > 0
    assert result.index_last_update_physical_offset == place
    assert result.index_last_update_timestamp_ms == EPOCH_MS + 4


def test_another_key_with_the_same_hash_is_not_found(tmp_path: Path) -> None:
    """RocketMQ answers with every record whose key has the same hash code."""
    assert java_hash_code("T#Aa") == java_hash_code("T#BB")
    store = open_read_store(tmp_path)
    store.put("T", body=b"0", KEYS="Aa")
    store.put("T", body=b"1", KEYS="BB")
    assert (bodies(query(store, "T", "Aa")), bodies(query(store, "T", "BB"))) == ([b"0"], [b"1"])
    # Nor does it take the place of one that has the key.
    assert bodies(query(store, "T", "Aa", 1)) == [b"0"]


def test_the_newest_are_found_at_most_so_many(tmp_path: Path) -> None:
    store = open_read_store(tmp_path, max_msgs_num_batch=4)
    for number in range(6):
        store.put("T", body=b"%d" % number, KEYS="k")
    assert bodies(query(store, "T", "k", 2)) == [b"4", b"5"]
    assert bodies(query(store, "T", "k", 1000)) == [b"2", b"3", b"4", b"5"]
    assert bodies(query(store, "T", "k", 0)) == []


def test_records_that_are_gone_take_no_place(tmp_path: Path) -> None:
    store = open_read_store(tmp_path)
    places = [store.put("T", body=b"%d" % number, KEYS="k") for number in range(30)]
    store.remove_oldest_file()
    left = [b"%d" % number for number, place in enumerate(places) if place >= store.log.min_offset]
    assert 0 < len(left) < 30
    assert bodies(query(store, "T", "k", 64)) == left


def test_records_that_may_not_be_seen_yet_are_not_found(tmp_path: Path) -> None:
    store = open_read_store(tmp_path)
    store.put("T", body=b"0", KEYS="k")
    store.hidden_from = store.put("T", body=b"1", KEYS="k")
    assert bodies(query(store, "T", "k")) == [b"0"]


KEYS = ["Aa", "BB", "k"]


@given(
    st.lists(st.tuples(st.sampled_from("TU"), st.sets(st.sampled_from(KEYS)), st.integers(0, 3)), max_size=30),
    st.sampled_from("TU"),
    st.sampled_from([*KEYS, "x"]),
    st.integers(1, 20),
    st.integers(0, 40),
    st.integers(0, 40),
)
def test_queries_equal_those_of_a_list(
    puts: list[tuple[str, set[str], int]], topic: str, key: str, max_num: int, begin_s: int, length_s: int
) -> None:
    with tempfile.TemporaryDirectory() as root, contextlib.closing(open_read_store(Path(root))) as store:
        at_s, wanted = 0, []
        for number, (put_topic, keys, later_s) in enumerate(puts):
            at_s += later_s
            store.put(put_topic, body=b"%d" % number, at_ms=1000 * at_s, KEYS=" ".join(sorted(keys)))
            if put_topic == topic and key in keys and begin_s <= at_s <= begin_s + length_s:
                wanted.append(b"%d" % number)
        between = EPOCH_MS + 1000 * begin_s, EPOCH_MS + 1000 * (begin_s + length_s)
        assert bodies(query(store, topic, key, max_num, between)) == wanted[-max_num:]


def test_a_blank_is_told_once_all_of_it_may_be_seen_and_is_no_message() -> None:
    log = log_of([(200, "a"), (200, "b")])
    for readable_to in (200, 204, 208, 255):
        assert RecordLookup(log, lambda to=readable_to: to).select_blank_by_offset(200) is None  # type: ignore[misc]
    lookup = RecordLookup(log, lambda: FILE_BYTES)
    assert bytes(lookup.select_blank_by_offset(200) or b"") == encode_blank(FILE_BYTES - 200)
    assert lookup.select_one_message_by_offset(200) is None
    assert lookup.select_blank_by_offset(0) is None
