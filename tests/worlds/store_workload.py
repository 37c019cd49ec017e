"""A message store on one simulated node: lives that end well or badly, and what must hold of the store after each.

A `Ledger` stands outside of the node, where no crash reaches it: it knows the log as it was, what was acknowledged and
what a consumer has read. After each opening it compares.
"""

from __future__ import annotations

import contextvars
import errno
import struct
from collections.abc import Awaitable, Callable, Iterator, Sequence
from functools import partial
from typing import Literal

import attrs
import trio

from rmq_actors.actors.system import open_actor_system
from rmq_actors.ports.environment import Environment
from rmq_actors.protocols.put_completion import PutStatus
from rmq_actors.store.check.check_store import check_store
from rmq_actors.store.config import FlushDiskType, MessageStoreConfig
from rmq_actors.store.files.json_file import ConfigFileDamaged
from rmq_actors.store.files.store_checkpoint import read_checkpoint
from rmq_actors.store.message_store import MessageStore
from rmq_actors.store.puts.message_puts import PutResult
from rmq_actors.tracing.recorder import Tracer
from rmq_actors.wire.batch import MessageBatch, encode_batch
from rmq_actors.wire.dispatch_request import DispatchRequest, read_dispatch_request
from rmq_actors.wire.record import (
    TRANSACTION_COMMIT_TYPE,
    TRANSACTION_PREPARED_TYPE,
    TRANSACTION_ROLLBACK_TYPE,
    Message,
)
from sim_net import DiskConfig, Fault, Kill, Node, On, PowerLoss, SimDisk, World, WorldConfig
from tests.worlds.recording import new_recorder

NODE = "store"
LOG_FILE_BYTES = 4096
CONFIG = MessageStoreConfig(
    flush_disk_type=FlushDiskType.SYNC_FLUSH,
    mapped_file_size_commit_log_bytes=LOG_FILE_BYTES,
    mapped_file_size_consume_queue_bytes=200,
    max_hash_slot_num=16,
    max_index_num=32,
    flush_consume_queue_thorough_interval_ms=700,
)
ASYNC_FLUSH = attrs.evolve(CONFIG, flush_disk_type=FlushDiskType.ASYNC_FLUSH)

_ENTRY = struct.Struct(">qiq")
_WHOLE_BYTES = 8192
#: A node that lost its power stays dark until the harness starts it again: a run is over long before.
_FOR_EVER_S = 1e6

Ending = Literal["stop", "kill", "power loss", "stop, then power loss"]
Work = Callable[["Life", MessageStore], Awaitable[None]]


@attrs.define(eq=False)
class Ledger:
    """What must not be lost. Offsets are the commit log's."""

    #: The log as it was when last seen, from `begin` on; what a crash has cut was taken out again.
    begin: int = 0
    log: bytes = b""
    acknowledged: list[tuple[int, int]] = attrs.field(factory=list)
    #: The ends of the records that a consumer was given.
    read: list[int] = attrs.field(factory=list)
    refused: list[str] = attrs.field(factory=list)
    #: Every file as each life has left it.
    files: list[dict[str, bytes]] = attrs.field(factory=list)
    #: Where the next life would begin to recover, after each one.
    recovery_points: list[int] = attrs.field(factory=list)
    #: How many disk operations each life has made.
    operations: list[int] = attrs.field(factory=list)
    #: What was wrong: the first is why.
    broken: list[str] = attrs.field(factory=list)

    @property
    def end(self) -> int:
        return self.begin + len(self.log)

    def require(self, condition: bool, what: str) -> None:
        """Note what is wrong. Nothing is raised: the node's own tasks may be the ones that look."""
        if not condition:
            self.broken.append(what)

    def note_log(self, store: MessageStore, disk: SimDisk) -> None:
        """Keep the log as the process sees it."""
        self.begin, end = store.commit_log.min_offset, store.commit_log.max_offset
        files = files_of(disk, "commitlog")
        self.log = b"".join(data for path, data in files.items() if log_file_begin(path) >= self.begin)
        self.log = self.log[: end - self.begin]

    def note_put(self, result: PutResult) -> None:
        """Keep what a put was answered."""
        if result.append is None:
            self.refused.append(f"{result.status.value}: {result.reason}")
            self.require(bool(result.reason), f"{result.status.value} without a reason")
        elif result.status is PutStatus.PUT_OK:
            self.acknowledged.append((result.append.offset, result.append.end_offset))

    def check_recovered(self, store: MessageStore, disk: SimDisk, *, synced: bool) -> None:
        """Compare the log of a store that has just been opened with what is known; from now on this one is known."""
        before, begin = self.log, self.begin
        known_end = self.end
        acknowledged_end = max((end for _, end in self.acknowledged), default=0)
        read_end = max(self.read, default=0)
        self.note_log(store, disk)
        # Of a file's blank end a slave needs no more than the head: zeros come after it.
        file_end = -(-known_end // LOG_FILE_BYTES) * LOG_FILE_BYTES
        before += bytes(file_end - known_end)
        self.require(
            self.end <= known_end or self.end == file_end, f"the log ends at {self.end}, it had at {known_end}"
        )
        first = max(begin, self.begin)  # a file that was just removed may be back
        same = self.log[first - self.begin :] == before[first - begin : self.end - begin]
        self.require(same, "the log is no prefix of what was written")
        if synced:
            self.require(
                acknowledged_end <= self.end, f"acknowledged to {acknowledged_end}, the log ends at {self.end}"
            )
            self.require(read_end <= self.end, f"a consumer read to {read_end}, the log ends at {self.end}")
        self.require(not any(bytes_behind(disk, self.end)), f"something stands behind the log's end at {self.end}")
        self.acknowledged = [span for span in self.acknowledged if span[1] <= self.end]
        self.read = [end for end in self.read if end <= self.end]

    def check_derived(self, disk: SimDisk) -> None:
        """Compare what is derived from the log with the log, by the store's own checker and by a second opinion."""
        findings = [
            str(each)
            for each in check_store(disk, max_hash_slot_num=CONFIG.max_hash_slot_num)
            if each.severity != "note"
        ]
        self.require(not findings, f"check_store: {findings[:3]}")
        expected = queues_of(self.log, self.begin)
        found = queues_on(disk, self.begin)
        for queue in sorted({*expected, *found}):
            self.require(
                found.get(queue, {}) == expected.get(queue, {}),
                f"queue {queue}: entries {found.get(queue, {})}, the log says {expected.get(queue, {})}",
            )


def records_of(log: bytes, begin: int) -> Iterator[DispatchRequest]:
    """Every record of a log that begins at `begin`, the beginning of a file."""
    for start in range(0, len(log), LOG_FILE_BYTES):
        view, position = memoryview(log)[start : start + LOG_FILE_BYTES], 0
        while position < len(view):
            found = read_dispatch_request(view, position, begin + start + position)
            if not isinstance(found, DispatchRequest):
                break
            yield found
            position += found.msg_size


Queue = dict[int, tuple[int, int, int]]


def queues_of(log: bytes, begin: int) -> dict[str, Queue]:
    """What the consume queues must hold, by topic/queue: entry number -> offset, size, tags code."""
    queues: dict[str, Queue] = {}
    for record in records_of(log, begin):
        if not record.takes_queue_offset:
            continue
        entry = (record.commit_log_offset, record.msg_size, record.tags_code)
        queues.setdefault(f"{record.topic}/{record.queue_id}", {})[record.consume_queue_offset] = entry
        light = record.properties.get("INNER_MULTI_DISPATCH", "").split(",")
        indexes = record.properties.get("INNER_MULTI_QUEUE_OFFSET", "").split(",")
        for name, index in zip(light, indexes, strict=True):
            if name:
                queues.setdefault(f"{name}/0", {})[int(index)] = entry
    return queues


def queues_on(disk: SimDisk, log_begin: int = 0) -> dict[str, Queue]:
    """What the files of the consume queues hold of records from `log_begin` on; blanks are no entries."""
    queues: dict[str, Queue] = {}
    for path, data in files_of(disk, "consumequeue").items():
        _, topic, queue_id, name = path.split("/")
        first = int(name) // _ENTRY.size
        for number, entry in enumerate(_ENTRY.iter_unpack(data[: len(data) - len(data) % _ENTRY.size])):
            if entry[1] and entry[0] >= log_begin and entry != (0, 0x7FFFFFFF, 0):
                queues.setdefault(f"{topic}/{queue_id}", {})[first + number] = entry
    return queues


def log_offset(record: memoryview) -> int:
    """Where in the log a record says that it stands."""
    return int.from_bytes(record[28:36], "big")


def files_of(disk: SimDisk, directory: str = "") -> dict[str, bytes]:
    """Every file below a directory, by its path; of long ones not the zeros that were never written."""
    files: dict[str, bytes] = {}
    for name in disk.list(directory):
        path = f"{directory}/{name}" if directory else name
        try:
            file = disk.open(path, read_only=True)
        except IsADirectoryError:
            files |= files_of(disk, path)
        else:
            size = min(file.size_bytes, max(file.cached.written_end, _WHOLE_BYTES))
            files[path] = bytes(file.map()[:size])
            file.close()
    return files


def log_file_begin(path: str) -> int:
    """The offset of a log file's first byte."""
    return int(path.rpartition("/")[2])


def bytes_behind(disk: SimDisk, offset: int) -> bytes:
    """What the files of the commit log hold after an offset."""
    left = b""
    for path, data in files_of(disk, "commitlog").items():
        left += data[max(0, offset - log_file_begin(path)) :]
    return left


@attrs.define(eq=False)
class Life:
    """One life of the node's process, from opening the store to its orderly end, if nothing comes in between."""

    work: Work
    faults: Sequence[Fault] = ()
    config: MessageStoreConfig = CONFIG
    #: Kill the process as soon as the store is open.
    killed_when_open: bool = False
    #: Whether queues and index must agree with the log when the store opens.
    is_undamaged: bool = True
    #: How it ends when the work is done.
    ends_by: Ending = "stop"
    #: What is done to the disk before.
    arrange: Callable[[SimDisk], object] = attrs.field(default=lambda _: None)
    ledger: Ledger = attrs.field(init=False)
    node: Node = attrs.field(init=False)
    #: The harness's: who looks at the disk from there is not the process, meets no fault, and lives on.
    outside: contextvars.Context = attrs.field(init=False)

    async def run(self, tracer: Tracer) -> None:
        node, ledger = self.node, self.ledger
        environment = Environment(node.disk, node.wall_clock, node.entropy)
        try:
            store = await MessageStore.open(self.config, environment, tracer)
        except OSError as error:
            if error.errno != errno.EBADF:  # the process is not dead
                ledger.refused.append(f"open: {error}")
            return
        except ConfigFileDamaged as error:
            if f"[Errno {errno.EBADF}]" not in str(error):
                ledger.refused.append(f"open: {error}")
            return
        synced = self.config.flush_disk_type is FlushDiskType.SYNC_FLUSH
        self.outside.run(partial(ledger.check_recovered, store, node.disk, synced=synced))
        # On a full disk what has no room waits: see `dispatch_while_room`.
        waits = store.files.reput.reput_from_offset < store.commit_log.max_offset
        if self.is_undamaged and not waits:
            self.outside.run(ledger.check_derived, node.disk)
        node.on_fence(partial(self.outside.run, ledger.note_log, store, node.disk))
        if self.killed_when_open:
            node.kill()
            await trio.lowlevel.checkpoint()
        async with open_actor_system("store", tracer, entropy=node.entropy) as system:
            await store.start(system)
            await self.work(self, store)
            if self.ends_by == "kill":
                node.kill()
            elif self.ends_by == "power loss":
                node.power_loss()
        try:
            await store.shut_down()
        except OSError as error:
            if error.errno != errno.EBADF:
                ledger.refused.append(f"stop: {error}")
        self.outside.run(ledger.note_log, store, node.disk)
        store.close()

    async def put(self, store: MessageStore, message: Message) -> PutResult:
        """Put a message and note what became of it."""
        result = await store.puts.put_message(message)
        self.ledger.note_put(result)
        return result

    def body(self, number: int, size: int) -> bytes:
        """Bytes that no other message has, of this life or another."""
        return (b"%d.%d " % (self.node.incarnation, number) * size)[:size]

    def keys(self, number: int) -> dict[str, str]:
        """A unique key, and one that others have too."""
        return {"UNIQ_KEY": f"U{self.node.incarnation}.{number}", "KEYS": f"key{number % 5} all"}


async def nothing(life: Life, store: MessageStore) -> None:
    """Open, start, stop."""
    await trio.lowlevel.checkpoint()


async def a_few_puts(life: Life, store: MessageStore) -> None:
    """Enough to notice a store that does not go on well: into old queues and into a new one."""
    for number in range(6):
        topic, queue_id = ("Plain", number % 2) if number < 5 else (f"New{life.node.incarnation}", 0)
        await life.put(store, Message(topic, life.body(number, 150), queue_id, life.keys(number)))


async def busy(life: Life, store: MessageStore) -> None:
    """Producers side by side and a consumer that follows them; several files of the log, and some checkpoints."""
    consumer = trio.CancelScope()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(_consume, life, store, consumer)
        async with trio.open_nursery() as producers:
            for producer in (_plain, _batches, _delayed, _transactions):
                producers.start_soon(producer, life, store)
        await trio.sleep(1.5)
        consumer.cancel()


async def _plain(life: Life, store: MessageStore) -> None:
    for number in range(24):
        size = (30, 700, 200, 350)[number % 4]
        await life.put(store, Message("Plain", life.body(number, size), number % 2, life.keys(number)))
        if number % 8 == 7:
            await trio.sleep(1.1)


async def _batches(life: Life, store: MessageStore) -> None:
    for number in range(5):
        await trio.sleep(0.3)
        bodies = [life.body(100 * (number + 1) + part, 120) for part in range(4)]
        items = encode_batch((body, 0, {"TAGS": f"tag{part}"}) for part, body in enumerate(bodies))
        life.ledger.note_put(await store.puts.put_messages(MessageBatch("Batch", items)))


async def _delayed(life: Life, store: MessageStore) -> None:
    for number in range(4):
        await trio.sleep(0.5)
        properties = {**life.keys(1000 + number), "DELAY": str(1 + number)}
        await life.put(store, Message("Late", life.body(1000 + number, 80), 0, properties))


async def _transactions(life: Life, store: MessageStore) -> None:
    """As RocketMQ 3 has them: prepared records, then committed ones, rolled-back ones, or nothing."""
    for number in range(6):
        await trio.sleep(0.4)
        properties = {**life.keys(2000 + number), "PGROUP": "group", "TRAN_MSG": "true"}
        body = life.body(2000 + number, 90)
        half = await life.put(store, Message("Deal", body, 0, properties, sys_flag=TRANSACTION_PREPARED_TYPE))
        if half.append is None or number % 3 == 2:
            continue
        ended = TRANSACTION_COMMIT_TYPE if number % 3 == 0 else TRANSACTION_ROLLBACK_TYPE
        end = Message("Deal", body, 0, properties, sys_flag=ended, prepared_transaction_offset=half.append.offset)
        await life.put(store, end)


async def _consume(life: Life, store: MessageStore, scope: trio.CancelScope) -> None:
    """Read every queue as it grows."""
    offsets: dict[tuple[str, int], int] = {}
    with scope:
        while True:
            for queue in (("Plain", 0), ("Plain", 1), ("Batch", 0), ("Deal", 0), ("SCHEDULE_TOPIC_XXXX", 0)):
                result = store.reads.get_message(*queue, offsets.get(queue, 0), 8)
                offsets[queue] = result.next_begin_offset
                life.ledger.read += [log_offset(record) + len(record) for record in result.messages]
            await trio.sleep(0.01)


def live(seed: int, *lives: Life, disk: DiskConfig | None = None) -> Ledger:
    """Live them one after the other on one disk, until something is wrong. Raises what a life raises."""
    ledger = Ledger()

    async def main(world: World) -> None:
        node = world.node(NODE)
        tracer = new_recorder().tracer(NODE)
        for number, life in enumerate(lives):
            life.ledger, life.node, life.outside = ledger, node, contextvars.copy_context()
            for fault in life.faults:
                world.apply(fault, number)
            life.arrange(node.disk)
            operations = node.disk.operations
            node.boot(partial(_run, life, tracer))
            await node.wait_down()
            if life.ends_by == "stop, then power loss":
                node.power_loss()
            world.stop_waiting()
            node.disk.end_faults()
            ledger.operations.append(node.disk.operations - operations)
            ledger.files.append(files_of(node.disk))
            point = read_checkpoint(node.disk).recovery_point
            ledger.recovery_points.append(0 if point is None else point.offset)
            if ledger.broken:
                return

    World(seed, WorldConfig(disk=disk or DiskConfig(), journal_keep=False)).run(main)
    return ledger


async def _run(life: Life, tracer: Tracer, _: Node) -> None:
    await life.run(tracer)


def power_loss_at(operation: int) -> PowerLoss:
    """The power goes as the n-th disk operation of a life begins."""
    return PowerLoss(0.0, NODE, _FOR_EVER_S, on=On("disk.*", NODE, operation))


def kill_at(operation: int) -> Kill:
    """The process is killed as its n-th disk operation begins."""
    return Kill(0.0, NODE, _FOR_EVER_S, on=On("disk.*", NODE, operation))
