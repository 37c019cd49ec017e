"""Cleaning in virtual days: what goes when, that the log has no gap, and that queues and index follow it."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import attrs
import pytest
import trio

from rmq_actors.actors.system import open_actor_system
from rmq_actors.ports.environment import Environment
from rmq_actors.protocols.put_completion import PutStatus
from rmq_actors.store.config import MessageStoreConfig
from rmq_actors.store.files.layout import COMMIT_LOG_DIRECTORY, CONSUME_QUEUE_DIRECTORY, INDEX_DIRECTORY
from rmq_actors.store.message_store import MessageStore
from rmq_actors.store.running_flags import RunningFlag
from rmq_actors.testing.sim_trace import open_sim_recorder
from rmq_actors.tracing.event import RunInfo, of_kind
from rmq_actors.tracing.events.store import LogDelete
from rmq_actors.tracing.recorder import Recorder
from rmq_actors.wire.record import Message
from sim_net import DiskConfig, Kill, Node, On, PowerLoss, World, WorldConfig

FILE_BYTES = 65_536
HOUR_S = 3600.0
DAY_S = 24 * HOUR_S
#: A record of this body fills a fourth of a file.
BODY = bytes(FILE_BYTES // 4 - 200)

Program = Callable[[Node, MessageStore], Awaitable[None]]


@contextlib.asynccontextmanager
async def open_store(node: Node, recorder: Recorder, **settings: Any) -> AsyncIterator[MessageStore]:
    config = MessageStoreConfig(
        **{
            "mapped_file_size_commit_log_bytes": FILE_BYTES,
            "mapped_file_size_consume_queue_bytes": 200,
            "max_hash_slot_num": 10,
            "max_index_num": 11,
            "store_stats_sampling": False,
            **settings,
        }
    )
    tracer = recorder.tracer(node.name)
    environment = Environment(node.disk, node.wall_clock, node.entropy)
    store = await MessageStore.open(config, environment, tracer)
    async with open_actor_system("store", tracer) as system:
        await store.start(system)
        yield store


@attrs.define(eq=False)
class Run:
    """One node with one store, and what it traced."""

    world: World
    recorder: Recorder

    def deletions(self) -> list[tuple[float, int, str]]:
        """When the log lost a file, where it began then, and why."""
        return [
            ((event.sim_time_ns or 0) / 1e9, event.offset, event.status)
            for event in of_kind(self.recorder.events, LogDelete)
        ]


def run(program: Program, *, capacity_bytes: int | None = None, **settings: Any) -> Run:
    config = WorldConfig(disk=DiskConfig(capacity_bytes=capacity_bytes), virtual_time_max_s=30 * DAY_S)
    world = World(1, config, guard_packages=("rmq_actors",))
    recorder = open_sim_recorder(world, RunInfo("test", "cleaning", 1))

    async def serve(node: Node) -> None:
        async with open_store(node, recorder, **settings) as store:
            await program(node, store)

    async def main(world: World) -> None:
        node = world.node("a")
        node.boot(serve)
        await node.wait_down()

    world.run(main)
    return Run(world, recorder)


async def put(store: MessageStore, body: bytes = BODY, **properties: str) -> PutStatus:
    return (await store.puts.put_message(Message("T", body, properties=properties))).status


def check_follows(store: MessageStore) -> None:
    """Queue and log begin with the same record, and every entry is of a record that is there."""
    first, end = store.offsets.get_min_offset_in_queue("T", 0), store.offsets.get_max_offset_in_queue("T", 0)
    places = [store.offsets.get_commit_log_offset_in_queue("T", 0, number) for number in range(first, end)]
    assert places[0] == store.commit_log.min_offset
    for number, place in enumerate(places, first):
        message = store.records.look_message_by_offset(place)
        assert message is not None
        assert message.queue_offset == number


def file_names(node: Node, directory: str) -> list[int]:
    return [int(name) for name in node.disk.list(directory)]


def test_files_go_at_the_hour_when_their_last_record_is_three_days_old() -> None:
    stored_s: dict[int, float] = {}

    async def program(node: Node, store: MessageStore) -> None:
        # A file's worth of messages each six hours.
        for number in range(32):
            for _ in range(4):
                assert await put(store, KEYS=f"key{number}") is PutStatus.PUT_OK
                stored_s[(store.commit_log.max_offset - 1) // FILE_BYTES] = trio.current_time()
            await trio.sleep(6 * HOUR_S)
            # Without a gap, and perhaps with the next file made ready.
            offsets = file_names(node, COMMIT_LOG_DIRECTORY)
            assert offsets == list(range(store.commit_log.min_offset, offsets[-1] + 1, FILE_BYTES))
            check_follows(store)
        first = store.offsets.get_min_offset_in_queue("T", 0)
        # Ten entries a file of the queue, and of the index.
        assert file_names(node, f"{CONSUME_QUEUE_DIRECTORY}/T/0")[0] // 200 in {first // 10, first // 10 - 1}
        assert len(file_names(node, INDEX_DIRECTORY)) <= (128 - first) // 10 + 2
        assert not (await store.query_message("T", "key0", 32, 0, 1 << 60)).messages
        assert len((await store.query_message("T", "key31", 32, 0, 1 << 60)).messages) == 4

    ran = run(program, clean_resource_interval_ms=600_000)
    epoch_s = ran.world.nodes["a"].wall_clock.now_ms() / 1000 - ran.world.kernel.now_s
    deletions = ran.deletions()
    assert [begin // FILE_BYTES for _, begin, _ in deletions] == list(range(1, len(deletions) + 1))
    assert len(deletions) >= 12
    for at_s, begin, why in deletions:
        age_s = at_s - stored_s[begin // FILE_BYTES - 1]
        assert 3 * DAY_S <= age_s <= 4 * DAY_S + 700
        assert why == "deleteWhen"
        assert int((epoch_s + at_s) // HOUR_S % 24) == 4


def test_by_hand_what_is_expired_goes_at_any_hour() -> None:
    async def program(node: Node, store: MessageStore) -> None:
        for _ in range(12):
            await put(store)
        await trio.sleep(3 * DAY_S - HOUR_S)
        assert store.commit_log.min_offset == 0
        store.clean_commit_log_service.execute_delete_files_manually()
        await trio.sleep(HOUR_S / 2)
        assert store.clean_commit_log_service.manual_delete_file_several_times == 0
        assert store.commit_log.min_offset == 0  # not yet expired
        await trio.sleep(HOUR_S)
        assert store.commit_log.min_offset == 0  # twenty rounds are over
        store.clean_commit_log_service.execute_delete_files_manually()
        await trio.sleep(61)
        # Three files are full: the last one stays, though it is expired too.
        assert store.commit_log.min_offset == 2 * FILE_BYTES
        check_follows(store)

    ran = run(program, delete_when="23", clean_resource_interval_ms=60_000)
    assert {why for _, _, why in ran.deletions()} == {"by hand"}


def test_a_full_disk_loses_the_oldest_whatever_their_age_and_no_put_is_refused() -> None:
    capacity = 40 * FILE_BYTES
    used: list[int] = []

    async def program(node: Node, store: MessageStore) -> None:
        await trio.sleep(61)
        for _ in range(200):
            for _ in range(4):
                assert await put(store) is PutStatus.PUT_OK
            await trio.sleep(5)
            used.append(node.disk.usage().used_bytes)
        check_follows(store)
        assert file_names(node, COMMIT_LOG_DIRECTORY)[0] == store.commit_log.min_offset > 150 * FILE_BYTES

    ran = run(program, capacity_bytes=capacity)
    assert max(used) <= 0.92 * capacity
    # It keeps what it can: no more goes than must.
    assert min(used[60:]) >= 0.75 * capacity
    assert all(why.startswith(("disk used 8", "disk used 9")) for _, _, why in ran.deletions())


def test_for_want_of_space_a_round_goes_on_without_a_pause() -> None:
    """#1137: ten files in ten seconds, with pauses between, are too few for a disk that fills quickly."""

    async def program(node: Node, store: MessageStore) -> None:
        for _ in range(4 * 50):
            assert await put(store) is PutStatus.PUT_OK
        await trio.sleep(65)
        node.disk.open("other", allocate_bytes=0).write_at(0, bytes(48 * FILE_BYTES))
        await trio.sleep(11)
        assert node.disk.usage().used_bytes <= 85 * FILE_BYTES
        check_follows(store)

    times = [at_s for at_s, _, _ in run(program, capacity_bytes=100 * FILE_BYTES).deletions()]
    assert len(times) > 12
    assert times[-1] - times[0] < 1


def test_a_disk_that_others_fill_refuses_puts_until_there_is_room() -> None:
    async def program(node: Node, store: MessageStore) -> None:
        for _ in range(12):
            assert await put(store) is PutStatus.PUT_OK
        await trio.sleep(61)
        assert not store.running_flags.bits
        other = node.disk.open("other", allocate_bytes=0)
        other.write_at(0, bytes(85 * FILE_BYTES))
        await trio.sleep(11)
        # Above the ratio at which files go, below that at which puts are refused.
        assert store.commit_log.min_offset > 0
        assert await put(store) is PutStatus.PUT_OK
        other.write_at(85 * FILE_BYTES, bytes(8 * FILE_BYTES))
        await trio.sleep(11)
        assert store.running_flags.bits is RunningFlag.DISK_FULL
        result = await store.puts.put_message(Message("T", b""))
        assert result.append is None
        assert "full" in result.reason
        # What is there can still be read.
        assert store.reads.get_message("T", 0, store.offsets.get_min_offset_in_queue("T", 0), 32).messages
        other.truncate(0)
        await trio.sleep(11)
        assert not store.running_flags.bits
        assert await put(store) is PutStatus.PUT_OK

    ran = run(program, capacity_bytes=100 * FILE_BYTES)
    full = [event.status for event in ran.recorder.events if event.kind == "store.disk_full"]
    assert full == ["refused", "accepted"]


def test_after_a_crash_a_store_opens_on_a_disk_without_room() -> None:
    """The log is written again then: the holes at the ends of its files, which no record fits into, are to stay."""
    world = World(1, WorldConfig(disk=DiskConfig(capacity_bytes=100 * FILE_BYTES)), guard_packages=("rmq_actors",))
    recorder = open_sim_recorder(world, RunInfo("test", "cleaning", 1))
    found: list[int] = []

    async def fill(node: Node) -> None:
        async with open_store(node, recorder) as store:
            for _ in range(8):
                assert await put(store, b"x" * (FILE_BYTES // 3)) is PutStatus.PUT_OK
            node.disk.open("other", allocate_bytes=0).write_at(0, bytes(node.disk.usage().available_bytes))
            await trio.sleep_forever()

    async def look(node: Node) -> None:
        async with open_store(node, recorder) as store:
            found.append(store.offsets.get_max_offset_in_queue("T", 0))

    async def main(world: World) -> None:
        node = world.node("a")
        node.boot(fill)
        await trio.sleep(1)
        node.kill()
        node.boot(look)
        await node.wait_down()

    world.run(main)
    assert found == [8]


def test_ten_files_go_at_once_after_a_long_pause_and_views_stay_readable() -> None:
    async def program(node: Node, store: MessageStore) -> None:
        for _ in range(4 * 25):
            await put(store)
        view = store.reads.get_message("T", 0, 0, 1).messages[0]
        content = bytes(view)
        await trio.sleep(4 * DAY_S)
        assert store.commit_log.min_offset == 24 * FILE_BYTES
        assert bytes(view) == content

    times = [at_s for at_s, _, _ in run(program, clean_resource_interval_ms=600_000).deletions()]
    rounds: list[int] = []
    for before, at_s in zip([0.0, *times], times, strict=False):
        if at_s - before > 5:
            rounds.append(1)
        else:
            assert 0.1 <= at_s - before < 0.2
            rounds[-1] += 1
    assert rounds == [10, 10, 4]


def test_a_removal_that_cannot_be_made_durable_is_the_last() -> None:
    async def program(node: Node, store: MessageStore) -> None:
        for _ in range(16):
            await put(store)
        await trio.sleep(1)
        node.disk.fail(5, operation="sync_directory", path=COMMIT_LOG_DIRECTORY)
        await trio.sleep(4 * DAY_S)
        assert store.clean_commit_log_service.failed
        assert store.commit_log.min_offset == FILE_BYTES

    run(program, clean_resource_interval_ms=600_000)


def test_a_removal_that_fails_is_tried_again() -> None:
    async def program(node: Node, store: MessageStore) -> None:
        for _ in range(16):
            await put(store)
        node.disk.fail(5, operation="remove", path=COMMIT_LOG_DIRECTORY, count=3)
        await trio.sleep(4 * DAY_S)
        assert store.commit_log.min_offset == 3 * FILE_BYTES
        check_follows(store)

    run(program, clean_resource_interval_ms=600_000)


def test_a_queue_file_that_cannot_be_removed_goes_in_a_later_round() -> None:
    async def program(node: Node, store: MessageStore) -> None:
        for _ in range(4 * 8):
            await put(store)
        await trio.sleep(1)
        node.disk.fail(5, operation="remove", path=CONSUME_QUEUE_DIRECTORY, count=2)
        await trio.sleep(4 * DAY_S)
        assert store.commit_log.min_offset == 7 * FILE_BYTES
        assert file_names(node, f"{CONSUME_QUEUE_DIRECTORY}/T/0") == [400, 600]

    run(program, clean_resource_interval_ms=600_000)


def test_rounds_that_remove_nothing_wake_nobody_else() -> None:
    def steps(hours: int) -> int:
        async def program(_: Node, store: MessageStore) -> None:
            await put(store)
            await trio.sleep(hours * HOUR_S + 5)

        return run(program, store_stats_sampling=False).world.steps

    assert steps(3) - steps(2) == HOUR_S / 10  # one for each look


@pytest.mark.parametrize("seed", range(4))
def test_power_is_cut_at_every_operation_of_a_cleaning(seed: int) -> None:
    """However the cut falls, the log has no gap and what is left of it is read."""
    reached = 0

    def cut_at(nth: int) -> bool:
        world = World(seed, guard_packages=("rmq_actors",))
        recorder = open_sim_recorder(world, RunInfo("test", "cleaning", seed))
        begins: list[int] = []

        async def serve(node: Node) -> None:
            async with open_store(
                node, recorder, file_reserved_time_hours=1, clean_resource_interval_ms=600_000
            ) as store:
                if node.incarnation == 1:
                    for _ in range(4 * 8):
                        assert await put(store) is PutStatus.PUT_OK
                    await trio.sleep(1.5 * HOUR_S)
                    store.clean_commit_log_service.execute_delete_files_manually()
                    world.apply(PowerLoss(0.0, "a", 1.0, on=On("disk.*", "a", nth)), 0)
                else:
                    begins.append(store.commit_log.min_offset)
                    assert store.commit_log.max_offset >= 8 * (FILE_BYTES - 400)
                    check_follows(store)
                await trio.sleep_forever()

        async def main(world: World) -> None:
            world.node("a").boot(serve)
            await trio.sleep(2 * HOUR_S)

        world.run(main)
        return bool(begins)

    for nth in range(1, 40):
        reached += cut_at(nth)
    assert reached >= 20


@pytest.mark.parametrize("seed", range(1, 3))
def test_a_recovery_point_that_a_kill_left_in_memory_is_durable_before_files_go(seed: int) -> None:
    """The log must not begin past the recovery point of the disk: all of it would count as never synced."""

    def killed_at(nth: int) -> bool:
        """At an operation of the first checkpoint, then without power in the first cleaning; whether files went."""
        world = World(seed, guard_packages=("rmq_actors",))
        recorder = open_sim_recorder(world, RunInfo("test", "cleaning", seed))
        begins: list[int] = []
        ends: list[int] = []

        async def serve(node: Node) -> None:
            settings = {"file_reserved_time_hours": 1, "clean_resource_interval_ms": 600_000}
            async with open_store(node, recorder, **settings) as store:
                begins.append(store.commit_log.min_offset)
                ends.append(store.commit_log.max_offset)
                if node.incarnation == 1:
                    for _ in range(4 * 8):
                        assert await put(store) is PutStatus.PUT_OK
                    await trio.sleep(2)
                    world.apply(Kill(0.0, "a", 1.5 * HOUR_S, on=On("disk.*", "a", nth)), 0)
                elif node.incarnation == 2:
                    store.clean_commit_log_service.execute_delete_files_manually()
                    await trio.sleep(50)
                    world.apply(PowerLoss(0.0, "a", 1.0, on=On("disk.*", "a", 6)), 0)
                await trio.sleep_forever()

        async def main(world: World) -> None:
            world.node("a").boot(serve)
            await trio.sleep(3 * HOUR_S)

        world.run(main)
        assert ends[1:] == [ends[1]] * 2
        assert ends[1] > 7 * FILE_BYTES
        return begins[2] > 0

    assert sum(killed_at(nth) for nth in range(7, 11))
