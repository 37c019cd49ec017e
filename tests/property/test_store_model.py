"""The store against a list of messages: put, batch, dispatch, flush, roll, clean, crash, reopen, in any order.

The list knows no file, no offset of a byte, and no crash: a message is in it until the log's end says that it was cut,
or the log's begin that it was cleaned. Queues, keys and offsets are read back and compared with it.
"""

from __future__ import annotations

from collections.abc import Sequence

import attrs
import trio
from hypothesis import event, given
from hypothesis import strategies as st

from rmq_actors.store.message_store import MessageStore
from rmq_actors.store.read.get_message import GetMessageStatus
from rmq_actors.wire.batch import MessageBatch, encode_batch
from rmq_actors.wire.record import Message, decode_record
from tests.worlds.store_workload import (
    ASYNC_FLUSH,
    CONFIG,
    LOG_FILE_BYTES,
    Ending,
    Life,
    live,
    log_offset,
    power_loss_at,
)

TOPICS = ("Model", "Other")
QUEUES = 2
KEYS = 3


@attrs.frozen
class Put:
    """One message, or several in one batch."""

    topic: str
    queue_id: int
    size: int
    key: int
    count: int = 1


@attrs.frozen
class Roll:
    """A message so large that the log needs a new file."""


@attrs.frozen
class Wait:
    """Time for services: 0.6 s flush the log, 1.5 s the queues and the index too."""

    seconds: float


@attrs.frozen
class Clean:
    """Three days later: remove every file of the log but the last one."""


@attrs.frozen
class Crash:
    """End the life, in good order or not; `operation`: the power goes while the next life opens, or soon after."""

    ending: Ending
    operation: int | None = None


Step = Put | Roll | Wait | Clean | Crash

_puts = st.builds(
    Put,
    st.sampled_from(TOPICS),
    st.integers(0, QUEUES - 1),
    st.sampled_from((1, 60, 400, 900)),
    st.integers(0, KEYS - 1),
    st.sampled_from((1, 1, 1, 2, 3)),
)
_crashes = st.builds(
    Crash,
    st.sampled_from(("stop", "kill", "power loss", "stop, then power loss")),
    st.none() | st.integers(1, 60),
)
_steps = st.lists(
    st.one_of(
        _puts,
        _puts,
        _puts,
        st.just(Roll()),
        st.builds(Wait, st.sampled_from((0.01, 0.6, 1.5))),
        st.just(Clean()),
        _crashes,
    ),
    max_size=30,
)


@attrs.frozen
class Entry:
    """A message of the model."""

    topic: str
    queue_id: int
    queue_offset: int
    key: str
    body: bytes
    offset: int
    end: int


@attrs.define(eq=False)
class Model:
    """The messages, oldest first."""

    entries: list[Entry] = attrs.field(factory=list)
    #: Those of the put that is under way: a crash may leave all of them in the log, the first ones, or none.
    pending: list[Message] = attrs.field(factory=list)

    def next_offset(self, topic: str, queue_id: int) -> int:
        return max(
            (each.queue_offset + 1 for each in self.entries if (each.topic, each.queue_id) == (topic, queue_id)),
            default=0,
        )

    def follow(self, store: MessageStore) -> None:
        """Forget what was cut at the log's end."""
        self.entries = [each for each in self.entries if each.end <= store.commit_log.max_offset]

    def of_queue(self, store: MessageStore, topic: str, queue_id: int) -> list[Entry]:
        begin = store.commit_log.min_offset
        return [
            each for each in self.entries if (each.topic, each.queue_id) == (topic, queue_id) and each.offset >= begin
        ]

    async def check(self, store: MessageStore) -> None:
        """Compare everything that can be read."""
        for topic in TOPICS:
            for queue_id in range(QUEUES):
                expected = self.of_queue(store, topic, queue_id)
                assert read_queue(store, topic, queue_id) == [(each.queue_offset, each.body) for each in expected]
            for number in range(KEYS):
                key = f"key{number}"
                offsets = [
                    each.offset
                    for each in self.entries
                    if (each.topic, each.key) == (topic, key) and each.offset >= store.commit_log.min_offset
                ]
                assert await query(store, topic, key) == offsets, key


def read_queue(store: MessageStore, topic: str, queue_id: int) -> list[tuple[int, bytes]]:
    """Every message of a queue, from its first: queue offset and body."""
    found: list[tuple[int, bytes]] = []
    offset = 0
    while True:
        result = store.reads.get_message(topic, queue_id, offset, 2)
        if result.status in {GetMessageStatus.OFFSET_TOO_SMALL, GetMessageStatus.MESSAGE_WAS_REMOVING}:
            offset = result.next_begin_offset
            continue
        if result.status is not GetMessageStatus.FOUND:
            return found
        for view in result.messages:
            record = decode_record(view, 0, log_offset(view))
            found.append((record.queue_offset, record.body))
        offset = result.next_begin_offset


async def query(store: MessageStore, topic: str, key: str) -> list[int]:
    """The offsets of the messages of a key, oldest first."""
    result = await store.query_message(topic, key, 64, 0, 1 << 62)
    return [log_offset(record) for record in result.messages]


async def clean(life: Life, store: MessageStore) -> None:
    """Let everything expire, and see that the log's beginning moves to its last file, or to what is not synced."""
    life.node.wall_clock.jump(73 * 3_600_000)
    service = store.clean_commit_log_service
    service.execute_delete_files_manually()
    await service.clean()


@attrs.define(eq=False)
class Segment:
    """What one life does; the model goes through all of them."""

    model: Model
    steps: Sequence[Step]

    async def work(self, life: Life, store: MessageStore) -> None:
        model = self.model
        model.follow(store)
        self._settle(store)
        await model.check(store)
        for number, step in enumerate(self.steps):
            await self._do(life, store, step, number)
        await trio.sleep(0.6)
        await model.check(store)

    def _settle(self, store: MessageStore) -> None:
        """Find out which messages of an interrupted put the log holds: the first ones, or none."""
        pending, self.model.pending = self.model.pending, []
        for message in pending:
            queue_offset = self.model.next_offset(message.topic, message.queue_id)
            result = store.reads.get_message(message.topic, message.queue_id, queue_offset, 1)
            if result.status is not GetMessageStatus.FOUND:
                return
            record = result.messages[0]
            offset = log_offset(record)
            assert decode_record(record, 0, offset).body == message.body
            self._add(message, offset, len(record))

    def _add(self, message: Message, offset: int, size: int) -> None:
        queue_offset = self.model.next_offset(message.topic, message.queue_id)
        self.model.entries.append(
            Entry(
                message.topic,
                message.queue_id,
                queue_offset,
                message.properties["KEYS"],
                message.body,
                offset,
                offset + size,
            )
        )

    async def _do(self, life: Life, store: MessageStore, step: Step, number: int) -> None:
        if isinstance(step, Wait):
            await trio.sleep(step.seconds)
        elif isinstance(step, Clean):
            await clean(life, store)
        else:
            put = Put(TOPICS[0], 0, LOG_FILE_BYTES // 2, 0) if isinstance(step, Roll) else step
            assert isinstance(put, Put)
            await self._put(life, store, put, number)

    async def _put(self, life: Life, store: MessageStore, put: Put, number: int) -> None:
        pending = self.model.pending = [
            Message(put.topic, life.body(10 * number + part, put.size + 8), put.queue_id, {"KEYS": f"key{put.key}"})
            for part in range(put.count)
        ]
        if put.count == 1:
            result = await life.put(store, pending[0])
        else:
            items = [(message.body, message.flag, message.properties) for message in pending]
            result = await store.puts.put_messages(MessageBatch(put.topic, encode_batch(items), put.queue_id))
            life.ledger.note_put(result)
        assert result.append is not None, result
        offset = result.append.offset
        for message in pending:
            size = int.from_bytes(store.commit_log.select(offset, 4), "big")
            self._add(message, offset, size)
            offset += size
        assert offset == result.append.end_offset
        self.model.pending = []


def lives_of(steps: Sequence[Step], model: Model, sync_flush: bool) -> list[Life]:
    """The lives that a list of steps makes: a crash ends each, the list's end the last."""
    config = CONFIG if sync_flush else ASYNC_FLUSH
    lives: list[Life] = []
    segment, crash = list[Step](), Crash("stop")
    for step in (*steps, Crash("stop"), Crash("stop")):
        if isinstance(step, Crash):
            faults = () if crash.operation is None else (power_loss_at(crash.operation),)
            lives.append(Life(Segment(model, tuple(segment)).work, faults, config, ends_by=step.ending))
            segment, crash = [], step
        else:
            segment.append(step)
    return lives


@given(_steps, st.booleans(), st.integers(0, 1000))
def test_the_store_is_a_list(steps: list[Step], sync_flush: bool, seed: int) -> None:
    model = Model()
    lives = lives_of(steps, model, sync_flush)
    ledger = live(seed, *lives)
    assert not ledger.broken, ledger.broken[0]
    assert not ledger.refused, ledger.refused
    event(f"{len(lives)} lives")
    event(f"{len(ledger.log) // LOG_FILE_BYTES} files at the end")
