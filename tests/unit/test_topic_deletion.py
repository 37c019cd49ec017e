"""TopicDeletion: what a store does when a topic is deleted, on a master and on a slave, and after a kill."""

from __future__ import annotations

import contextlib
import json
import shutil
from collections.abc import AsyncIterator, Awaitable, Callable, Collection
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing
from hypothesis import given
from hypothesis import strategies as st

from rmq_actors.real_io.os_disk import OsDisk
from rmq_actors.store.check.check_store import check_store
from rmq_actors.store.config import BrokerRole
from rmq_actors.store.dispatch.consume_queues import ConsumeQueues
from rmq_actors.store.files.deleted_topics import DeletedTopics, Points
from rmq_actors.store.files.json_file import ConfigFileDamaged
from rmq_actors.store.lifecycle.topic_deletion import TopicDeletion
from rmq_actors.store.log.commit_log import CommitLog, TopicQueueTable
from rmq_actors.store.message_store import MessageStore
from rmq_actors.wire.record import Message, decode_message
from tests.worlds.running_store import RunningStore, running_store

Use = Callable[[RunningStore], Awaitable[None]]
#: Files are small: a queue of this length has three of them.
SETTINGS: dict[str, Any] = {"mapped_file_size_consume_queue_bytes": 40, "max_hash_slot_num": 8, "max_index_num": 16}


def live(root: Path, *uses: Use, **settings: Any) -> None:
    """Lives of a store, each of which ends by a kill."""

    async def main() -> None:
        for use in uses:
            async with running_store(root, **{**SETTINGS, **settings}) as running:
                await use(running)

    trio.run(main, clock=trio.testing.MockClock(autojump_threshold=0))


def put(store: MessageStore, body: bytes, topic: str = "T") -> tuple[int, int]:
    """The queue offset and the log offset of a message."""
    result = store.puts.async_put_message(Message(topic, body)).result
    assert result is not None
    assert result.append is not None, result.reason
    return result.append.queue_offset, result.append.offset


async def bodies(store: MessageStore, topic: str = "T") -> list[bytes]:
    """What a consumer gets who begins at the queue's first message; each must be where it says."""
    await trio.sleep(1)
    offsets = store.offsets
    first, end = offsets.get_min_offset_in_queue(topic, 0), offsets.get_max_offset_in_queue(topic, 0)
    found: list[bytes] = []
    while first + len(found) < end:
        for record in store.reads.get_message(topic, 0, first + len(found), 32).messages:
            decoded = decode_message(record)
            assert decoded.queue_offset == first + len(found)
            found.append(decoded.body)
    return found


def told(text: str, count: int) -> list[bytes]:
    return [f"{text}{number}".encode() for number in range(count)]


def checked(root: Path) -> list[str]:
    return [str(each) for each in check_store(OsDisk(root), max_hash_slot_num=8) if each.severity == "error"]


def test_what_comes_after_a_deletion_begins_at_0_and_a_kill_brings_nothing_back(tmp_path: Path) -> None:
    async def first(running: RunningStore) -> None:
        store = running.store
        for body in told("a", 5):
            put(store, body)
            put(store, body, "Other")
        await trio.sleep(2)
        await store.topic_deletion.delete(["T"])
        assert not (tmp_path / "consumequeue/T").exists()
        assert [put(store, body)[0] for body in told("b", 2)] == [0, 1]
        assert await bodies(store) == told("b", 2)

    async def second(running: RunningStore) -> None:
        store = running.store
        assert await bodies(store) == told("b", 2)
        assert await bodies(store, "Other") == told("a", 5)
        assert put(store, b"b2")[0] == 2
        assert store.topic_deletion.unfinished == {"T"}
        await store.topic_deletion.finish({"T"})

    async def third(running: RunningStore) -> None:
        assert await bodies(running.store) == told("b", 3)
        assert not running.store.topic_deletion.unfinished

    live(tmp_path, first, second, third)
    assert checked(tmp_path) == []


def test_a_kill_brings_nothing_back_to_a_topic_that_nobody_makes_again(tmp_path: Path) -> None:
    async def first(running: RunningStore) -> None:
        for body in told("a", 5):
            put(running.store, body)
        await trio.sleep(0.1)
        await running.store.topic_deletion.delete(["T"])

    async def second(running: RunningStore) -> None:
        assert await bodies(running.store) == []
        assert put(running.store, b"b0")[0] == 0

    live(tmp_path, first, second)
    (tmp_path / "checkpoint").unlink()  # all of the log is dispatched again
    live(tmp_path, second_has_b0)


def test_files_that_a_crash_has_left_are_removed(tmp_path: Path) -> None:
    """A power loss brings back any of them: here the first and the last of three."""
    kept = tmp_path / "kept"

    async def first(running: RunningStore) -> None:
        for body in told("a", 5):
            put(running.store, body)
        await trio.sleep(2)
        shutil.copytree(tmp_path / "consumequeue", kept)
        await running.store.topic_deletion.delete(["T"])

    live(tmp_path, first)
    shutil.copytree(kept, tmp_path / "consumequeue", dirs_exist_ok=True)
    files = sorted((tmp_path / "consumequeue/T/0").iterdir())
    assert len(files) == 3
    files[1].unlink()
    live(tmp_path, second_is_empty)


async def second_is_empty(running: RunningStore) -> None:
    assert await bodies(running.store) == []
    assert put(running.store, b"b0")[0] == 0
    assert await bodies(running.store) == [b"b0"]


async def second_has_b0(running: RunningStore) -> None:
    assert await bodies(running.store) == [b"b0"]


def test_a_key_finds_no_message_of_a_life_that_is_over(tmp_path: Path) -> None:
    async def use(running: RunningStore) -> None:
        store = running.store
        for topic in ("T", "Other"):
            store.puts.async_put_message(Message(topic, b"old", properties={"KEYS": "k"}))
        await trio.sleep(1)
        await store.topic_deletion.delete(["T"])
        store.puts.async_put_message(Message("T", b"new", properties={"KEYS": "k"}))
        await trio.sleep(1)
        for topic, expected in (("T", [b"new"]), ("Other", [b"old"])):
            found = await store.query_message(topic, "k", 10, 0, 1 << 60)
            assert [decode_message(record).body for record in found.messages] == expected

    live(tmp_path, use)


@contextlib.asynccontextmanager
async def a_slave_s(root: Path, count: int = 6) -> AsyncIterator[tuple[RunningStore, list[int]]]:
    """A store with messages of T, and where they are. What a slave is told counts; who has written does not."""
    async with running_store(root, **SETTINGS) as running:
        offsets = [put(running.store, body)[1] for body in told("a", count)]
        await trio.sleep(2)
        yield running, offsets


Case = Callable[[list[int]], Points]
NOTHING: Points = {}


@pytest.mark.parametrize(
    ("points", "left"),
    [
        pytest.param(lambda at: {"T": {None: at[-1] + 1}}, 6, id="all of it is over"),
        pytest.param(lambda at: {"T": {None: at[4]}}, 4, id="a part of it is over"),
        pytest.param(lambda at: {"T": {0: at[4]}}, 4, id="of one queue"),
        pytest.param(lambda at: {"T": {1: at[4]}}, 0, id="of another queue"),
        pytest.param(lambda at: {"Other": {None: at[4]}}, 0, id="of another topic"),
    ],
)
def test_a_slave_takes_over_what_it_is_told_also_that_it_was_not_so(tmp_path: Path, points: Case, left: int) -> None:
    """`left`: how many messages are out of the queue then."""

    async def main() -> None:
        async with a_slave_s(tmp_path) as (running, offsets):
            deletion = running.store.topic_deletion
            assert await deletion.follow(points(offsets), 0)
            assert not await deletion.follow(points(offsets), 0)
            assert await bodies(running.store) == told("a", 6)[left:]
        async with running_store(tmp_path, **SETTINGS, broker_role=BrokerRole.SLAVE) as running:
            assert await bodies(running.store) == told("a", 6)[left:]
            deletion = running.store.topic_deletion
            is_kept = 0 in points(offsets).get("T", {})
            await deletion.follow(NOTHING, 0)  # another master, which knows of no deletion
            assert await bodies(running.store) == told("a", 6)[left if is_kept else 0 :]

    trio.run(main, clock=trio.testing.MockClock(autojump_threshold=0))
    assert checked(tmp_path) == []


def test_what_the_broker_itself_puts_while_it_deletes_is_in_the_life_that_its_number_is_of(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A delay is over, or a transaction is committed, and that is dispatched before the deletion is written down."""
    write_down, queue_offsets = TopicDeletion._write_down, CommitLog.queue_offsets

    def put_and_ask(log: CommitLog, topics: Collection[str]) -> TopicQueueTable:
        asked.append(topics)
        if len(asked) == 2:  # no checkpoint comes between this one and the end of the queue that has those before it
            put(stores[0], b"counts on")
        return queue_offsets(log, topics)

    async def put_beside(deletion: TopicDeletion, topics: list[str], begin: int) -> None:
        begins.append(begin)
        if len(begins) == 2:
            put(stores[0], b"begins again")
            await trio.sleep(1)
        await write_down(deletion, topics, begin)

    begins: list[int] = []
    asked: list[Collection[str]] = []
    stores: list[MessageStore] = []
    monkeypatch.setattr(CommitLog, "queue_offsets", put_and_ask)
    monkeypatch.setattr(TopicDeletion, "_write_down", put_beside)

    async def main() -> None:
        async with a_slave_s(tmp_path) as (running, _):
            stores.append(running.store)
            await running.store.topic_deletion.delete(["T"])
            assert await bodies(running.store) == [b"begins again"]
            put(running.store, b"and goes on")
            assert await bodies(running.store) == [b"begins again", b"and goes on"]

    trio.run(main, clock=trio.testing.MockClock(autojump_threshold=0))
    assert len(begins) == 2
    assert checked(tmp_path) == []


@pytest.mark.parametrize("within", [1, 8, 60])
def test_a_point_of_a_log_that_has_diverged_may_be_within_a_record(tmp_path: Path, within: int) -> None:
    """A chaos run found it: dispatching began there, and failed for as long as the slave ran."""

    async def main() -> None:
        async with a_slave_s(tmp_path) as (running, offsets):
            await running.store.topic_deletion.follow({"T": {None: offsets[3] + within}}, 0)
            put(running.store, b"a6")
            assert await bodies(running.store) == told("a", 7)[4:]
            assert running.store.running_flags.is_writeable

    trio.run(main, clock=trio.testing.MockClock(autojump_threshold=0))
    assert checked(tmp_path) == []


def test_a_queue_that_a_slave_could_not_remove_is_removed_when_it_is_told_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A chaos run found it: the points were durable, and nobody looked at the queue again before the next start."""
    forget = ConsumeQueues.forget

    def forgets_one(queues: ConsumeQueues, topic: str, queue_id: int) -> None:
        if topic == "U":
            raise OSError(5, "Input/output error")
        forget(queues, topic, queue_id)

    async def main() -> None:
        async with a_slave_s(tmp_path) as (running, offsets):
            store = running.store
            begin = [put(store, body, "U")[1] for body in told("u", 3)][1]
            await trio.sleep(1)
            points: Points = {"T": {None: offsets[4]}, "U": {None: begin}}
            with monkeypatch.context() as patch:
                patch.setattr(ConsumeQueues, "forget", forgets_one)
                with pytest.raises(OSError, match="Input/output"):
                    await store.topic_deletion.follow(points, 0)
            put(store, b"a6")
            await store.topic_deletion.follow(points, 0)
            assert [await bodies(store), await bodies(store, "U")] == [told("a", 7)[4:], told("u", 3)[1:]]
            assert not await store.topic_deletion.follow(points, 0)

    trio.run(main, clock=trio.testing.MockClock(autojump_threshold=0))
    assert checked(tmp_path) == []


def test_a_point_that_the_master_has_forgotten_with_its_log_stays(tmp_path: Path) -> None:
    async def main() -> None:
        async with a_slave_s(tmp_path) as (running, offsets):
            deletion = running.store.topic_deletion
            await deletion.follow({"T": {None: offsets[3]}}, 0)
            assert not await deletion.follow(NOTHING, offsets[4])
            assert await bodies(running.store) == told("a", 6)[3:]

    trio.run(main, clock=trio.testing.MockClock(autojump_threshold=0))


def test_a_topic_that_is_gone_from_rocketmqs_master_is_gone_as_far_as_the_log_had_come(tmp_path: Path) -> None:
    async def main() -> None:
        async with a_slave_s(tmp_path) as (running, _):
            deletion, log = running.store.topic_deletion, running.store.commit_log
            assert await deletion.begin_at({"T", "NeverThere"}, log.max_offset)
            assert not await deletion.begin_at({"T", "NeverThere"}, log.max_offset)
            assert await bodies(running.store) == []
            assert deletion.points == {"T": {None: log.max_offset}}

    trio.run(main, clock=trio.testing.MockClock(autojump_threshold=0))


def test_a_master_whose_log_ends_before_a_point_begins_there(tmp_path: Path) -> None:
    """A slave was told more than it has, and is promoted: its next messages count."""

    async def main() -> None:
        async with a_slave_s(tmp_path) as (running, offsets):
            await running.store.topic_deletion.follow({"T": {None: offsets[-1] + 5000}}, 0)
            assert await bodies(running.store) == []
        async with running_store(tmp_path, **SETTINGS) as running:
            assert put(running.store, b"b0")[0] == 0
            assert await bodies(running.store) == [b"b0"]

    trio.run(main, clock=trio.testing.MockClock(autojump_threshold=0))


def test_a_deletion_that_cannot_be_written_down_changes_nothing(tmp_path: Path) -> None:
    async def use(running: RunningStore) -> None:
        store = running.store
        for body in told("a", 3):
            put(store, body)
        await trio.sleep(2)
        running.disk.space_bytes = 0
        with pytest.raises(OSError, match="No space left"):
            await store.topic_deletion.delete(["T"])
        running.disk.space_bytes = None
        assert put(store, b"a3")[0] == 3
        assert await bodies(store) == told("a", 4)
        assert not store.topic_deletion.unfinished

    live(tmp_path, use)


@pytest.mark.parametrize("ends_by", ["no space", "kill"])
def test_a_message_that_comes_during_a_deletion_that_fails_is_one_more(tmp_path: Path, ends_by: str) -> None:
    """The broker itself puts messages into a topic that is hidden: a delay is over, a transaction is committed."""

    async def first(running: RunningStore) -> None:
        store, disk = running.store, running.disk
        for body in told("a", 5):
            put(store, body)
        disk.sync_gate = trio.Event()

        async def delete() -> None:
            with pytest.raises(OSError, match="No space left"):
                await store.topic_deletion.delete(["T"])

        async with trio.open_nursery() as nursery:
            nursery.start_soon(delete)
            await trio.sleep(0.1)
            late = put(store, b"a5")[0]
            await trio.sleep(1)
            if ends_by == "kill":
                nursery.cancel_scope.cancel()
            else:
                disk.space_bytes = 0
            disk.sync_gate.set()
        disk.space_bytes = None
        assert late == 5
        assert put(store, b"a6")[0] == 6
        assert await bodies(store) == told("a", 7)

    async def second(running: RunningStore) -> None:
        assert not running.store.topic_deletion.unfinished
        assert await bodies(running.store) == told("a", 7)

    live(tmp_path, first, second)
    assert checked(tmp_path) == []


@pytest.mark.parametrize("is_killed", [False, True])
def test_a_message_that_comes_while_a_deletion_is_written_down_is_of_the_old_life(
    tmp_path: Path, *, is_killed: bool
) -> None:
    async def first(running: RunningStore) -> None:
        store, disk = running.store, running.disk
        for body in told("a", 5):
            put(store, body)
        await trio.sleep(2)
        gate = disk.sync_gate = trio.Event()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(store.topic_deletion.delete, ["T"])
            await trio.sleep(0.1)
            late = [put(store, b"a5")[0]]
            gate.set()
            for _ in range(200):
                if store.topic_deletion.unfinished:
                    break
                await trio.lowlevel.checkpoint()
            if is_killed:
                nursery.cancel_scope.cancel()
                return
        assert late == [5]
        assert put(store, b"b0")[0] == 0
        assert await bodies(store) == [b"b0"]
        assert put(store, b"b1")[0] == 1

    async def second(running: RunningStore) -> None:
        store = running.store
        if is_killed:
            assert store.topic_deletion.unfinished == {"T"}
            await store.topic_deletion.delete(["T"])
            put(store, b"b0")
            put(store, b"b1")
        assert await bodies(store) == told("b", 2)

    live(tmp_path, first, second, second_has_b0_and_b1)
    assert checked(tmp_path) == []


async def second_has_b0_and_b1(running: RunningStore) -> None:
    assert await bodies(running.store) == told("b", 2)


def test_a_point_goes_once_the_log_begins_after_it(tmp_path: Path) -> None:
    async def main() -> None:
        deleted = DeletedTopics.load(OsDisk(tmp_path))
        await deleted.begin({"T", "U"}, 100, 0)
        await deleted.begin({"V"}, 200, 150)
        assert deleted.points == {"V": {None: 200}}
        assert (deleted.hides("V", 7, 199), deleted.hides("V", 7, 200), deleted.hides("T", 0, 5)) == (
            True,
            False,
            False,
        )
        assert json.loads((tmp_path / "config/deletedTopics.json").read_text()) == {
            "deleting": ["T", "U", "V"],
            "points": {"V": {"*": 200}},
        }
        assert DeletedTopics.load(OsDisk(tmp_path)).points == deleted.points

    trio.run(main)


@pytest.mark.parametrize(
    "text",
    ["[]", '{"points":{}}', '{"points":{"T":5},"deleting":[]}', '{"points":{"T":{"x":5}},"deleting":[]}',
     '{"points":{"T":{"*":0}},"deleting":[]}', '{"points":{"T":{"*":true}},"deleting":[]}'],
)  # fmt: skip
def test_a_file_that_says_something_else_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "config").mkdir()
    (tmp_path / "config/deletedTopics.json").write_text(text)
    with pytest.raises(ConfigFileDamaged, match="deletedTopics"):
        DeletedTopics.load(OsDisk(tmp_path))


@given(st.lists(st.sampled_from(["put", "put", "put", "delete", "kill"]), max_size=30))
def test_the_queue_is_what_came_since_the_last_deletion(
    tmp_path_factory: pytest.TempPathFactory, steps: list[str]
) -> None:
    """A model: a list that a deletion empties."""
    root, expected = tmp_path_factory.mktemp("store"), list[bytes]()
    lives: list[list[str]] = [[]]
    for step in steps:
        if step == "kill":
            lives.append([])
        else:
            lives[-1].append(step)

    def life(steps: list[str]) -> Use:
        async def use(running: RunningStore) -> None:
            store = running.store
            assert await bodies(store) == expected
            for step in steps:
                if step == "delete":
                    await store.topic_deletion.delete(["T"])
                    expected.clear()
                else:
                    body = f"{len(expected)}".encode()
                    assert put(store, body)[0] == len(expected)
                    expected.append(body)
            assert await bodies(store) == expected

        return use

    live(root, *(life(each) for each in lives))
    assert checked(root) == []
