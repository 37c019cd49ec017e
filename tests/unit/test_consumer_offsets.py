"""Consumer offsets: what a slave takes over from its master, and what it keeps."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st

from rmq_actors.broker.consumer_offsets import ConsumerOffsetManager
from rmq_actors.broker.quotas import QuotaReached, Room
from rmq_actors.real_io.os_disk import OsDisk
from rmq_actors.store.files.json_file import ConfigFile
from rmq_actors.wire.bodies.decoding import decode_body
from rmq_actors.wire.bodies.encoding import encode_body
from rmq_actors.wire.bodies.offsets import ConsumerOffsetSerializeWrapper
from rmq_actors.wire.fastjson import write_fastjson
from sim_net import World
from tests.worlds.faulty_disk import FaultyDisk
from tests.worlds.golden_capture import STORE_MASTER_CLEAN

CLIENT = "10.0.0.9:4000"


def manager(tmp_path: Path) -> ConsumerOffsetManager:
    return ConsumerOffsetManager.load(OsDisk(tmp_path))


def table(offsets: ConsumerOffsetManager) -> dict[str, dict[int, int]]:
    return {key: dict(value) for key, value in offsets.wrapper().offset_table.items()}


def follow(offsets: ConsumerOffsetManager, master: dict[str, dict[int, int]]) -> bool:
    return offsets.follow(encode_body(ConsumerOffsetSerializeWrapper(offset_table=master)))


def test_an_offset_is_as_it_was_committed_last(tmp_path: Path) -> None:
    offsets = manager(tmp_path)
    assert offsets.query_offset("G", "T", 0) == -1
    for offset in (5, 9, 3):
        offsets.commit_offset(CLIENT, "G", "T", 0, offset)
        assert offsets.query_offset("G", "T", 0) == offset
    assert offsets.query_offset("G", "T", 1) == offsets.query_offset("H", "T", 0) == -1


def test_what_is_past_the_end_of_a_queue_is_corrected_and_written(tmp_path: Path) -> None:
    ends = {("T", 0): 5, ("%RETRY%G", 0): 7}
    offsets = manager(tmp_path)
    offsets.commit_offset(CLIENT, "G", "T", 0, 6)
    offsets.commit_offset(CLIENT, "G", "T", 1, 1)
    offsets.commit_offset(CLIENT, "G", "%RETRY%G", 0, 7)
    offsets.commit_offset(CLIENT, "H", "T", 0, 4)
    trio.run(offsets.persist)
    offsets.correct(lambda topic, queue_id: ends.get((topic, queue_id), 0))
    expected = {"T@G": {0: 5, 1: 0}, "%RETRY%G@G": {0: 7}, "T@H": {0: 4}}
    assert table(offsets) == expected
    assert decode_body(ConsumerOffsetSerializeWrapper, offsets.encode()).offset_table == expected
    trio.run(offsets.persist)
    assert table(manager(tmp_path)) == expected


def test_what_was_persisted_is_loaded(tmp_path: Path) -> None:
    offsets = manager(tmp_path)
    offsets.commit_offset(CLIENT, "G", "T", 0, 5)
    offsets.commit_offset(CLIENT, "G", "T", 11, 7)
    trio.run(offsets.persist)
    assert table(manager(tmp_path)) == {"T@G": {0: 5, 11: 7}}


def test_nothing_is_written_when_nothing_has_changed(tmp_path: Path) -> None:
    offsets = manager(tmp_path)
    trio.run(offsets.persist)
    assert not (tmp_path / "config").exists()
    offsets.commit_offset(CLIENT, "G", "T", 0, 5)
    trio.run(offsets.persist)
    file = tmp_path / "config" / "consumerOffset.json"
    file.unlink()
    offsets.commit_offset(CLIENT, "G", "T", 0, 5)
    follow(offsets, {"T@G": {0: 5}})
    trio.run(offsets.persist)
    assert not file.exists()


def test_a_failed_persist_is_done_again(tmp_path: Path) -> None:
    disk = FaultyDisk(tmp_path)
    offsets = ConsumerOffsetManager.load(disk)
    offsets.commit_offset(CLIENT, "G", "T", 0, 5)
    disk.failing_syncs = 1
    with pytest.raises(OSError, match=r".+"):
        trio.run(offsets.persist)
    trio.run(offsets.persist)
    assert json.loads((tmp_path / "config" / "consumerOffset.json").read_text().replace("0:", '"0":')) == {
        "offsetTable": {"T@G": {"0": 5}}
    }


def test_known_bug_s13_what_the_master_deleted_goes(tmp_path: Path) -> None:
    offsets = manager(tmp_path)
    assert follow(offsets, {"T@G": {0: 5}, "T@H": {0: 6}})
    assert follow(offsets, {"T@H": {0: 6}})
    assert table(offsets) == {"T@H": {0: 6}}
    assert not follow(offsets, {"T@H": {0: 6}})


def test_known_bug_s13_also_after_a_restart(tmp_path: Path) -> None:
    offsets = manager(tmp_path)
    follow(offsets, {"T@G": {0: 5}})
    trio.run(offsets.persist)
    offsets = manager(tmp_path)
    assert follow(offsets, {})
    assert table(offsets) == {}


def test_what_was_committed_here_alone_stays_until_the_master_has_shown_it(tmp_path: Path) -> None:
    offsets = manager(tmp_path)
    offsets.commit_offset(CLIENT, "G", "T", 0, 5)
    follow(offsets, {})
    assert table(offsets) == {"T@G": {0: 5}}
    follow(offsets, {"T@G": {0: 4}})
    follow(offsets, {})
    assert table(offsets) == {}


def test_known_bug_1094_an_offset_never_goes_back_by_a_sync(tmp_path: Path) -> None:
    offsets = manager(tmp_path)
    follow(offsets, {"T@G": {0: 5, 1: 5}})
    offsets.commit_offset(CLIENT, "G", "T", 0, 9)  # the slave served this group while the master was away
    follow(offsets, {"T@G": {0: 6, 1: 6, 2: 0}})
    assert table(offsets) == {"T@G": {0: 9, 1: 6, 2: 0}}


tables = st.dictionaries(
    st.sampled_from(["T@G", "T@H", "U@G"]), st.dictionaries(st.integers(0, 2), st.integers(0, 9), min_size=1)
)


@given(st.lists(tables, max_size=5))
def test_after_any_syncs_the_keys_are_the_masters_and_no_offset_is_behind_it(
    masters: list[dict[str, dict[int, int]]],
) -> None:
    offsets = ConsumerOffsetManager({}, ConfigFile(World(1).node("a").disk, "unused"))
    for master in masters:
        before = table(offsets)
        changed = follow(offsets, master)
        after = table(offsets)
        assert changed == (before != after)
        assert after.keys() == master.keys()
        for key, queues in master.items():
            for queue_id, offset in queues.items():
                assert after[key][queue_id] == max(offset, before.get(key, {}).get(queue_id, -1))


def test_a_group_is_removed_from_all_topics_also_at_slaves(tmp_path: Path) -> None:
    offsets, slave = manager(tmp_path / "master"), manager(tmp_path / "slave")
    for topic, group in (("T", "G"), ("U", "G"), ("T", "GG"), ("%RETRY%G", "G"), ("G", "H")):
        offsets.commit_offset(CLIENT, group, topic, 0, 5)
    slave.follow(offsets.encode())
    offsets.remove_offset("G")
    assert list(table(offsets)) == ["T@GG", "G@H"]
    slave.follow(offsets.encode())
    assert table(slave) == table(offsets)


@pytest.mark.parametrize(
    "answer",
    [b"", b"{}", b"null", b"[]", b'{"offsetTable":null}', b'{"offsetTable":{', b'{"offsetTable":{"T@G":{0:"x"}}}'],
)
def test_an_answer_that_is_no_table_deletes_nothing(tmp_path: Path, answer: bytes) -> None:
    offsets = manager(tmp_path)
    follow(offsets, {"T@G": {0: 5}})
    with pytest.raises(ValueError, match=r"no offsetTable in|ConsumerOffsetSerializeWrapper"):
        offsets.follow(answer)
    assert table(offsets) == {"T@G": {0: 5}}


operations = st.one_of(
    st.tuples(
        st.just("commit"),
        st.sampled_from(["G", "H"]),
        st.sampled_from(["T", 'Ü"\n']),
        st.integers(0, 2),
        st.integers(0, 9),
    ),
    st.tuples(st.just("remove"), st.sampled_from(["G", "H"])),
    st.tuples(
        st.just("follow"),
        st.dictionaries(st.sampled_from(["T@G", "T@H"]), st.dictionaries(st.integers(0, 2), st.integers(0, 9))),
    ),
    st.tuples(st.just("persist")),
)


@given(st.lists(operations, max_size=12))
def test_what_is_sent_and_written_is_the_table_whatever_happened_before(
    tmp_path_factory: pytest.TempPathFactory, done: list[tuple[Any, ...]]
) -> None:
    directory = tmp_path_factory.mktemp("offsets")
    offsets = manager(directory)
    offsets.commit_offset(CLIENT, "G", "T", 0, 5)
    for name, *arguments in [*done, ("persist",)]:
        if name == "commit":
            offsets.commit_offset(CLIENT, *arguments)
        elif name == "remove":
            offsets.remove_offset(*arguments)
        elif name == "follow":
            follow(offsets, *arguments)
        else:
            trio.run(offsets.persist)
            assert table(manager(directory)) == table(offsets)
            written = write_fastjson({"offsetTable": table(offsets)}, pretty=True)
            assert (directory / "config" / "consumerOffset.json").read_bytes() == written
        assert offsets.encode() == encode_body(offsets.wrapper())


def test_rocketmqs_file_is_read_and_written_alike(tmp_path: Path) -> None:
    golden = (STORE_MASTER_CLEAN / "config" / "consumerOffset.json").read_bytes()
    (tmp_path / "config").mkdir()
    (tmp_path / "config" / "consumerOffset.json").write_bytes(golden)
    offsets = manager(tmp_path)
    offsets.commit_offset(CLIENT, "G", "T", 0, 5)
    offsets.remove_offset("G")
    trio.run(offsets.persist)
    assert (tmp_path / "config" / "consumerOffset.json").read_bytes() == golden


def test_an_answer_that_was_taken_over_already_counts_again_once_something_has_changed_here(tmp_path: Path) -> None:
    offsets = manager(tmp_path)
    answer = encode_body(ConsumerOffsetSerializeWrapper(offset_table={"T@G": {0: 5}}))
    assert offsets.follow(answer)
    assert not offsets.follow(answer)
    offsets.commit_offset(CLIENT, "G", "T", 0, 3)
    assert offsets.follow(answer)
    assert table(offsets) == {"T@G": {0: 5}}
    assert not offsets.follow(answer)
    assert offsets.follow(b'{"offsetTable":{}}')
    assert table(offsets) == {}


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["commit", "clone", "remove", "follow"]),
            st.sampled_from(["T", "\1", 'U"']),
            st.sampled_from(["G", "H"]),
            st.integers(-(2**31), 2**31 - 1),
            st.integers(-(2**63), 2**63 - 1),
        ),
        max_size=20,
    )
)
def test_the_table_takes_no_more_bytes_than_are_counted(steps: list[tuple[str, str, str, int, int]]) -> None:
    world = World(seed=1)
    offsets = ConsumerOffsetManager.load(world.node("n").disk)
    for step, topic, group, queue_id, offset in steps:
        if step == "commit":
            offsets.commit_offset(CLIENT, group, topic, queue_id, offset)
        elif step == "clone":
            offsets.clone_offset(group, "H", topic)
        elif step == "remove":
            offsets.remove_offset(group)
        else:
            follow(offsets, {f"{topic}@{group}": {queue_id: offset}})
        kept = table(offsets)
        assert offsets._entries == sum(map(len, kept.values()))
        assert offsets._json_bytes + 1024 >= len(offsets._pretty()) >= len(offsets.encode())
        new = Room("most", offsets._entries)
        with pytest.raises(QuotaReached, match=f"most={offsets._entries}"):
            offsets.check_room(new, "another", topic, (queue_id,))
        if queue_id in kept.get(f"{topic}@{group}", {}):
            offsets.check_room(new, group, topic, (queue_id,))
