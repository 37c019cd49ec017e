"""ConsumeQueues: dispatch to many queues, what RocketMQ wrote, topics that are no directory names, durability."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import trio
import trio.testing

from rmq_actors.real_io.os_disk import OsDisk
from rmq_actors.store.config import MessageStoreConfig
from rmq_actors.store.dispatch.consume_queues import ConsumeQueues
from rmq_actors.store.files.deleted_topics import QueueBeginsAgain
from rmq_actors.store.files.layout import file_name
from rmq_actors.store.files.topic_names import IllegalTopic, check_topic
from rmq_actors.wire.dispatch_request import DispatchRequest
from rmq_actors.wire.record import TRANSACTION_COMMIT_TYPE, TRANSACTION_PREPARED_TYPE, TRANSACTION_ROLLBACK_TYPE
from tests.worlds.dispatch_batches import batch_of
from tests.worlds.faulty_disk import FaultyDisk
from tests.worlds.golden_capture import (
    END_OFFSET,
    FILE_SIZE_BYTES,
    STORE_MASTER_CLEAN,
    STORE_MASTER_KILLED,
    STORE_SLAVE_CLEAN,
)
from tests.worlds.queue_files import held, new_queues, open_queues, request, requests_of, tree

GOLDEN_UNITS = 2000 // 20
GOLDEN_STORES = pytest.mark.parametrize(
    "store", [STORE_MASTER_CLEAN, STORE_SLAVE_CLEAN, STORE_MASTER_KILLED], ids=lambda store: store.name
)


@GOLDEN_STORES
def test_dispatching_a_golden_log_gives_rocketmqs_files(store: Path, tmp_path: Path) -> None:
    queues = open_queues(tmp_path, units=GOLDEN_UNITS)
    queues.dispatch(requests_of(store, FILE_SIZE_BYTES))
    assert tree(tmp_path) == tree(store)
    assert tree(store)
    queues.close()


@GOLDEN_STORES
def test_dispatching_again_over_golden_queues_changes_nothing(store: Path, tmp_path: Path) -> None:
    shutil.copytree(store / "consumequeue", tmp_path / "consumequeue")
    requests = requests_of(store, FILE_SIZE_BYTES)
    queues = open_queues(tmp_path, END_OFFSET, units=GOLDEN_UNITS)
    queues.dispatch(requests)
    assert tree(tmp_path) == tree(store)
    assert sum(queue.repeats for queue in queues) == sum(each.takes_queue_offset for each in requests)
    assert queues.topic_queue_table() == {
        (each.topic, each.queue_id): each.consume_queue_offset + 1 for each in requests if each.takes_queue_offset
    }
    queues.close()


def test_recovering_to_any_record_and_dispatching_again_gives_rocketmqs_files(tmp_path: Path) -> None:
    requests = requests_of(STORE_MASTER_CLEAN, FILE_SIZE_BYTES)
    shutil.copytree(STORE_MASTER_CLEAN / "consumequeue", tmp_path / "consumequeue")
    for durable_to in [each.commit_log_offset for each in requests[::7]] + [END_OFFSET]:
        queues = new_queues(tmp_path, units=GOLDEN_UNITS)
        redo_from = queues.recover(durable_to)
        assert redo_from <= durable_to
        assert all(entry is None or entry[0] < durable_to for queue in queues for entry in held(queue))
        queues.dispatch([each for each in requests if each.commit_log_offset >= redo_from])
        assert tree(tmp_path) == tree(STORE_MASTER_CLEAN)
        queues.close()


def test_where_to_dispatch_from_again(tmp_path: Path) -> None:
    queues = new_queues(tmp_path)
    assert queues.recover(5000) == 0, "there is no queue, whatever was durable"
    queues.dispatch([request(0, 0), request(1, 100), request(0, 200, topic="U")])
    queues.close()
    assert [new_queues(tmp_path).recover(durable_to) for durable_to in (300, 200, 100)] == [300, 200, 100]
    # One entry is left. RocketMQ may have stopped in good order with a log that ends at 700: the rest is missing.
    assert new_queues(tmp_path).recover(700) == 100


def test_known_bugs_467_and_1434_what_a_crash_took_from_the_queues_is_dispatched_again(tmp_path: Path) -> None:
    """Queues are cut to what is durable, and dispatch begins there: not at the log's end, not in its last file."""
    log = [request(number // 3, 100 * number, queue_id=number % 3) for number in range(60)]
    queues = open_queues(tmp_path)
    queues.dispatch(log)
    queues.close()
    whole = tree(tmp_path)
    for name in list(whole)[1::2]:
        path = tmp_path / name
        path.write_bytes(path.read_bytes()[:20] + bytes(80))
    queues = new_queues(tmp_path)
    redo_from = queues.recover(0)
    queues.dispatch([each for each in log if each.commit_log_offset >= redo_from])
    assert tree(tmp_path) == whole
    queues.close()


def test_prepared_and_rolled_back_messages_get_no_entry(tmp_path: Path) -> None:
    queues = open_queues(tmp_path)
    types = [TRANSACTION_PREPARED_TYPE, TRANSACTION_COMMIT_TYPE, TRANSACTION_ROLLBACK_TYPE, 0]
    queues.dispatch([request(int(not kind), 100 * number, sys_flag=kind) for number, kind in enumerate(types)])
    queue = queues.find("T", 0)
    assert queue is not None
    assert held(queue) == [(100, 100, 0), (300, 100, 0)]
    queues.close()


@pytest.mark.parametrize("topic", ["", ".", "..", "a/b", "/etc", "../../x", "a\0b", "x" * 256, "é" * 128, "\ud800"])
def test_a_topic_that_is_no_directory_name_gets_no_queue_and_holds_up_nobody(
    tmp_path: Path, topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    with pytest.raises(IllegalTopic, match="topic '"):
        check_topic(topic)
    queues = open_queues(tmp_path / "store")
    queues.dispatch([request(0, 0), request(0, 100, topic=topic), request(1, 200), request(1, 300, topic=topic)])
    assert list(tree(tmp_path / "store")) == [f"consumequeue/T/0/{file_name(0)}"]
    assert [path.name for path in tmp_path.iterdir()] == ["store"]
    assert (queues.refused, len(queues), len(caplog.records)) == (2, 1, 1)
    assert caplog.records[0].message.endswith("its records get no queue")
    queues.close()


@pytest.mark.parametrize("topic", ["%RETRY%group", "%LMQ%a|b", "...", "a b", "\\", "x" * 255, "é" * 127, "-1"])
def test_every_name_that_a_directory_can_have_is_kept(tmp_path: Path, topic: str) -> None:
    queues = open_queues(tmp_path)
    queues.dispatch([request(0, 0, topic=topic), request(0, 100, topic=topic, queue_id=-3)])
    queues.close()
    again = open_queues(tmp_path, 200)
    assert again.topic_queue_table() == {(topic, -3): 1, (topic, 0): 1}
    again.close()


def test_what_is_no_queue_is_named_and_left_alone(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    for name in ("T/00", "T/+1", "T/x", "T/2147483648", "T/1/.."):
        (tmp_path / "consumequeue" / name).mkdir(parents=True, exist_ok=True)
    (tmp_path / "consumequeue" / "notes.txt").write_text("mine")
    queues = open_queues(tmp_path)
    expected = [f"consumequeue/{name}" for name in ("T/+1", "T/00", "T/2147483648", "T/x", "notes.txt")]
    assert queues.strays == expected
    assert [record.message.partition(" ")[0] for record in caplog.records] == expected
    assert [(queue.topic, queue.queue_id) for queue in queues] == [("T", 1)]
    assert (tmp_path / "consumequeue" / "notes.txt").read_text() == "mine"
    queues.close()


def test_look_up_and_order(tmp_path: Path) -> None:
    queues = open_queues(tmp_path)
    made = queues.find_or_create("B", 1)
    assert queues.find_or_create("B", 1) is made is queues.find("B", 1)
    assert queues.find("B", 0) is None
    queues.dispatch([request(0, 0, topic="%LMQ%q"), request(0, 100, topic="A", queue_id=10)])
    queues.dispatch([request(3, 200, topic="A")])
    assert [(queue.topic, queue.queue_id) for queue in queues] == [("%LMQ%q", 0), ("A", 0), ("A", 10), ("B", 1)]
    assert queues.topic_queue_table() == {("%LMQ%q", 0): 1, ("A", 0): 4, ("A", 10): 1, ("B", 1): 0}
    assert (len(queues), queues.add_up_ends()) == (4, (3, 6))
    queues.close()


def multi(queues: str, offsets: str, *, queue_id: int = 2, offset: int = 0) -> DispatchRequest:
    properties = {"INNER_MULTI_DISPATCH": queues, "INNER_MULTI_QUEUE_OFFSET": offsets}
    return request(0, offset, tags_code=7, queue_id=queue_id, properties=properties)


@pytest.mark.parametrize(
    ("names", "offsets", "enable_lmq", "expected"),
    [
        ("%LMQ%a,%LMQ%b", "0,3", True, {("%LMQ%a", 0): 1, ("%LMQ%b", 0): 4}),
        ("%LMQ%a,other", "0,3", False, {("%LMQ%a", 2): 1, ("other", 2): 4}),
        ("%LMQ%a,other,", "0,3,,", True, {("%LMQ%a", 0): 1, ("other", 2): 4}),
        ("a,b", "0", True, {}),
        ("a", "0,1", True, {}),
        ("a,b", "0,x", True, {}),
        ("a,b", "0," + "9" * 5000, True, {}),
        ("a,..", "0,0", True, {("a", 2): 1}),
        ("a", " ", True, {}),
        (",", "0", True, {}),
        (" ,", "3", True, {(" ", 2): 4}),
    ],
)
def test_a_record_may_name_further_queues(
    tmp_path: Path, names: str, offsets: str, enable_lmq: bool, expected: dict[tuple[str, int], int]
) -> None:
    queues = open_queues(tmp_path, enable_multi_dispatch=True, enable_lmq=enable_lmq)
    queues.dispatch([multi(names, offsets)])
    assert queues.topic_queue_table() == {("T", 2): 1, **expected}
    for topic, queue_id in expected:
        queue = queues.find(topic, queue_id)
        assert queue is not None
        assert held(queue)[-1] == (0, 100, 7)
    queues.close()


def test_no_record_says_of_a_queue_that_is_not_its_own_that_it_begins_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Its index there is a property: a log that RocketMQ wrote may have it from any client."""
    queues = open_queues(tmp_path, enable_multi_dispatch=True)
    queues.dispatch([request(number, 100 * number, topic="Victim", queue_id=2) for number in range(5)])
    queues.dispatch([multi("Victim", "0", offset=500), request(5, 600, topic="Victim", queue_id=2)])
    victim = queues.find("Victim", 2)
    assert victim is not None
    assert (victim.refused, held(victim)) == (1, [(offset, 100, 0) for offset in (0, 100, 200, 300, 400, 600)])
    assert "the record at 500 is number 0 of its queue, which ends at 5: it gets no entry" in caplog.text
    queues.close()


def test_a_further_queue_that_was_deleted_gets_no_entry_from_before(tmp_path: Path) -> None:
    """A start, or a slave that hears of a deletion, dispatches records again that name it in its old life."""
    queues = open_queues(tmp_path, enable_multi_dispatch=True, enable_lmq=True)
    trio.run(queues.deleted.begin, ["%LMQ%gone"], 200, 0)
    names = "%LMQ%gone,%LMQ%stays"
    queues.dispatch(
        [multi(names, f"{number % 2},{number}", queue_id=number, offset=100 * number) for number in range(4)]
    )
    gone, stays = queues.find("%LMQ%gone", 0), queues.find("%LMQ%stays", 0)
    assert gone is not None
    assert stays is not None
    assert [entry and entry[0] for entry in held(gone)] == [200, 300]
    assert [entry and entry[0] for entry in held(stays)] == [0, 100, 200, 300]
    queues.close()


def test_further_queues_need_the_setting(tmp_path: Path) -> None:
    queues = open_queues(tmp_path, enable_lmq=True)
    queues.dispatch([multi("%LMQ%a", "0")])
    assert queues.topic_queue_table() == {("T", 2): 1}
    queues.close()


def test_counts_that_differ_are_named(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    queues = open_queues(tmp_path, enable_multi_dispatch=True)
    queues.dispatch([multi("a,b", "0", offset=4711), multi("a", "0", offset=5000, queue_id=1)])
    assert "the record at 4711 names 2 further queues and the offsets ['0']" in caplog.text
    assert (queues.refused, sorted(queues.topic_queue_table())) == (1, [("T", 1), ("T", 2), ("a", 1)])
    queues.close()


@pytest.mark.trio
async def test_a_flush_syncs_what_was_written_and_every_new_name_once(tmp_path: Path) -> None:
    disk = FaultyDisk(tmp_path)
    queues = open_queues(disk)
    queues.dispatch([request(0, 0), request(0, 100, queue_id=1)])
    await queues.flush()
    assert sorted(disk.syncs) == sorted([
        *(f"consumequeue/T/{each}/{file_name(0)}" for each in (0, 1)),
        *("consumequeue/T/0/", "consumequeue/T/1/", "consumequeue/T/", "consumequeue/", "/"),
    ])  # fmt: skip
    disk.syncs.clear()
    await queues.flush()
    assert disk.syncs == []
    queues.dispatch([request(index, 100 + 100 * index) for index in range(1, 6)])
    await queues.flush()
    assert disk.syncs == [f"consumequeue/T/0/{file_name(at)}" for at in (0, 100)] + ["consumequeue/T/0/"]
    queues.close()


@pytest.mark.trio
async def test_many_queues_are_synced_together(tmp_path: Path) -> None:
    """One sync after another takes milliseconds each: seconds for ten thousand."""
    disk = FaultyDisk(tmp_path)
    queues = open_queues(disk)
    queues.dispatch([request(0, 100 * number, queue_id=number) for number in range(100)])
    disk.failing_syncs = 1
    with pytest.raises(OSError, match="Input/output error"):
        await queues.flush()
    assert disk.sync_sizes == [100]
    await queues.flush()
    assert disk.sync_sizes == [100, 100, 103], "the files, and the directories"
    assert {name for name in disk.syncs if not name.endswith("/")} == set(tree(tmp_path))
    assert len([name for name in disk.syncs if name.endswith("/")]) == 103
    synced = len(disk.syncs)
    await queues.flush()
    assert len(disk.syncs) == synced
    queues.close()


@pytest.mark.trio
async def test_what_is_written_or_removed_while_many_are_synced_is_seen(tmp_path: Path) -> None:
    disk = FaultyDisk(tmp_path)
    queues = open_queues(disk)
    queues.dispatch([request(0, 100 * number, queue_id=number) for number in range(100)])
    disk.sync_gate = trio.Event()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(queues.flush)
        await trio.testing.wait_all_tasks_blocked()
        queues.dispatch([request(1, 10_000, queue_id=5)])
        disk.sync_gate.set()
    five = f"consumequeue/T/5/{file_name(0)}"
    assert disk.syncs.count(five) == 2, "what came meanwhile is synced, too"
    queues.dispatch([request(2, 10_100 + 100 * number, queue_id=number) for number in range(100)])
    disk.sync_gate = trio.Event()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(queues.flush)
        await trio.testing.wait_all_tasks_blocked()
        nursery.start_soon(queues.destroy, "T")
        await trio.testing.wait_all_tasks_blocked()
        disk.sync_gate.set()
    await queues.flush()
    assert tree(tmp_path) == {}
    queues.close()


@pytest.mark.trio
async def test_a_failed_flush_is_not_forgotten(tmp_path: Path) -> None:
    disk = FaultyDisk(tmp_path)
    queues = open_queues(disk)
    queues.dispatch([request(0, 0), request(0, 100, queue_id=1)])
    disk.failing_syncs = 1
    with pytest.raises(OSError, match="Input/output error"):
        await queues.flush()
    assert disk.syncs == []
    await queues.flush()
    assert {name for name in disk.syncs if not name.endswith("/")} == set(tree(tmp_path))
    queues.close()


@pytest.mark.trio
async def test_what_a_flush_of_least_pages_leaves_is_flushed_later(tmp_path: Path) -> None:
    disk = FaultyDisk(tmp_path)
    queues = open_queues(disk, units=1000)
    queues.dispatch([request(0, 0), *(request(number, 100 + 100 * number, queue_id=1) for number in range(500))])
    await queues.flush(2)
    assert disk.syncs == [f"consumequeue/T/1/{file_name(0)}"]
    await queues.flush()
    assert disk.syncs[1] == f"consumequeue/T/0/{file_name(0)}"
    assert "/" in disk.syncs
    queues.close()


@pytest.mark.trio
async def test_what_recovery_zeroed_is_synced_by_the_next_flush(tmp_path: Path) -> None:
    """Also where it found zeros: a process that was killed may have written them, and synced them not."""
    disk = FaultyDisk(tmp_path)
    queues = open_queues(disk)
    queues.dispatch([request(index, 100 * index) for index in range(8)])
    await queues.flush()
    queues.close()
    for durable_to in (700, 700, 300):
        disk.syncs.clear()
        queues = open_queues(disk, durable_to)
        await queues.flush()
        last = file_name(100 if durable_to > 500 else 0)
        assert disk.syncs[0] == f"consumequeue/T/0/{last}"
        assert "consumequeue/T/0/" in disk.syncs
        queues.close()


@pytest.mark.trio
async def test_a_store_of_unknown_durability_is_synced_whole(tmp_path: Path) -> None:
    shutil.copytree(STORE_MASTER_CLEAN / "consumequeue", tmp_path / "consumequeue")
    disk = FaultyDisk(tmp_path)
    queues = open_queues(disk, END_OFFSET, units=GOLDEN_UNITS)
    queues.mark_dirty()
    await queues.flush()
    assert {name for name in disk.syncs if not name.endswith("/")} == set(tree(tmp_path))
    queues.close()


@pytest.mark.trio
async def test_a_file_of_each_queue_expires_a_round(tmp_path: Path) -> None:
    queues = open_queues(FaultyDisk(tmp_path))
    queues.dispatch([request(number // 2, 100 * number, queue_id=number % 2) for number in range(30)])
    await queues.flush()
    removed = []
    for log_min_offset in (800, 801, 901, 901, 9999, 9999, 9999):
        removed.append(queues.delete_expired(log_min_offset))
        await queues.flush()
    assert removed == [0, 1, 1, 0, 2, 0, 0]
    assert [queue.min_offset_in_queue for queue in queues] == [15, 15]
    queues.close()


@pytest.mark.trio
@pytest.mark.parametrize("stray", [False, True])
async def test_destroying_a_topic(tmp_path: Path, stray: bool) -> None:
    queues = open_queues(FaultyDisk(tmp_path))
    queues.dispatch([request(number, 100 * number) for number in range(12)])
    queues.dispatch([request(0, 1200, queue_id=1), request(0, 1300, topic="U")])
    queues.find_or_create("T", 9)
    if stray:
        (tmp_path / "consumequeue/T/notes.txt").write_text("mine")
    assert await queues.destroy("T") == 3
    left = {path.relative_to(tmp_path / "consumequeue") for path in (tmp_path / "consumequeue").rglob("*")}
    expected = {"U", "U/0", f"U/0/{file_name(0)}"} | ({"T", "T/notes.txt"} if stray else set())
    assert left == {Path(name) for name in expected}
    assert queues.topic_queue_table() == {("U", 0): 1}
    await queues.flush()
    queues.dispatch([request(0, 1400)])
    queue = queues.find("T", 0)
    assert queue is not None
    assert held(queue) == [(1400, 100, 0)]
    await queues.flush()
    queues.close()


def test_sizes_are_rounded_up_to_whole_entries(tmp_path: Path) -> None:
    config = MessageStoreConfig(mapped_file_size_consume_queue_bytes=1981)
    assert ConsumeQueues(OsDisk(tmp_path), config).find_or_create("T", 0).queue.file_size_bytes == 2000


def test_many_queues_hold_few_descriptors(tmp_path: Path) -> None:
    """A mapped file holds two. A queue with un-synced writes keeps its file open; a recovered store has none."""
    before = open_descriptors()
    queues = open_queues(tmp_path)
    queues.dispatch([request(0, 100 * number, queue_id=number) for number in range(400)])
    queues.close()
    queues = open_queues(tmp_path, 40_000)
    assert len(queues) == 400
    for _ in range(2):
        assert all(queue.entry(0) is not None for queue in queues)
        assert open_descriptors() - before <= 2 * 256
    queues.close()
    assert open_descriptors() == before


def open_descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def take(queues: ConsumeQueues, dispatch: Callable[[], None]) -> None:
    """As ReputMessageService does."""
    while True:
        try:
            return dispatch()
        except QueueBeginsAgain as found:
            trio.run(queues.begin_again, found)


@pytest.mark.parametrize(
    "indexes", [[0, 1, 0, 1, 2], [0, 1, 2], [0, 2, 3], [3, 4], [0, 1, 1, 2], [1, 0], [0, 1, 1_500_000, 2]]
)
@pytest.mark.parametrize("known", [0, 1, 2])
def test_columns_get_the_entries_that_single_records_get(tmp_path: Path, indexes: list[int], known: int) -> None:
    """With gaps, indexes that are taken, and records that came before: `known` of them."""
    log = [request(index, 100 * number, tags_code=-number) for number, index in enumerate(indexes)]
    counts = []
    for name in ("single", "columns"):
        queues = open_queues(tmp_path / name)
        if known:
            take(queues, lambda queues=queues: queues.dispatch(log[:known]))  # type: ignore[misc]
        if name == "single":
            take(queues, lambda queues=queues: queues.dispatch(log))  # type: ignore[misc]
        else:
            take(queues, lambda queues=queues: queues.dispatch_batch(batch_of(log)))  # type: ignore[misc]
        counts.append([(queue.max_physic_offset, queue.refused) for queue in queues])
        queues.close()
    assert tree(tmp_path / "columns") == tree(tmp_path / "single")
    assert counts[0] == counts[1]


def test_columns_of_records_before_the_last_one_are_ignored(tmp_path: Path) -> None:
    """Whatever their indexes say: the queue knows them, or has refused them."""
    queues = open_queues(tmp_path)
    queues.dispatch([request(0, 400), request(1, 500)])
    before = tree(tmp_path)
    queues.dispatch_batch(batch_of([request(2, 100), request(3, 200)]))
    assert tree(tmp_path) == before
    assert queues.topic_queue_table() == {("T", 0): 2}
    queues.close()


def test_who_waits_for_entries_is_told_of_queues_that_may_have_grown(tmp_path: Path) -> None:
    queues = new_queues(tmp_path, units=GOLDEN_UNITS)
    queues.dispatch([request(0, 0)])
    with queues.growth() as take_grown:
        assert take_grown() == []
        queues.dispatch([request(1, 100), request(0, 200, topic="U", queue_id=3)])
        queues.dispatch_rows([request(0, 300, queue_id=1)])
        assert take_grown() == [("T", 0), ("U", 3), ("T", 1)]
        assert take_grown() == []
    queues.dispatch([request(2, 400)])
    with queues.growth() as take_grown:
        assert take_grown() == []
    queues.close()
