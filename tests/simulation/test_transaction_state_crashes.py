"""Open transactions against a list of records: dispatched, again, lost and torn by power cuts, recovered."""

from __future__ import annotations

from typing import Any

import attrs
from hypothesis import given
from hypothesis import strategies as st

from rmq_actors.store.dispatch.transaction_state_service import TransactionStateService
from rmq_actors.wire.dispatch_request import HALF_TOPIC, OP_HALF_TOPIC
from sim_net import Node, SimDisk, World
from tests.worlds.transaction_log import RECORD_BYTES, Log

REDO_LOG = "transaction/redolog/TRANSACTION_REDOLOG_TOPIC_XXXX/0"


def open_in(log: Log, end: int) -> list[int]:
    """Which of the first `end` records begin a transaction that has no end among them: said once more, plainly."""
    found: dict[int, tuple[str, tuple[str | None, str], int | None]] = {}  # group, key and topic, half queue offset
    for number, request in enumerate(log.requests[:end]):
        group = request.properties.get("PGROUP", "")
        real_topic = request.properties.get("REAL_TOPIC", "") if request.topic == HALF_TOPIC else request.topic
        key = request.properties.get("UNIQ_KEY"), real_topic
        if request.topic == OP_HALF_TOPIC:
            named = {int(word) for word in log.bodies[number].split(b",")}
            found = {each: what for each, what in found.items() if what[2] not in named}
        elif request.topic == HALF_TOPIC:
            if "TRANSACTION_CHECK_TIMES" in request.properties:
                before = next((each for each, what in found.items() if what[1] == key), None)
                if before is not None:
                    del found[before]
            found[number] = group, key, request.consume_queue_offset
        elif request.sys_flag == 4:
            found[number] = group, key, None
        elif request.sys_flag:
            prepared = request.prepared_transaction_offset // RECORD_BYTES
            if prepared in found and found[prepared][0] == group:
                del found[prepared]
    return list(found)


@attrs.define
class Model:
    """A log, how far its records were dispatched, and how far the files are durable."""

    disk: SimDisk
    other_disk: SimDisk
    entries_a_file: int
    log: Log = attrs.field(factory=Log)
    dispatched: int = 0
    durable: int = 0
    service: TransactionStateService = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self.service = self.open(self.disk)
        self.service.recover(0)

    def open(self, disk: SimDisk, **options: bool) -> TransactionStateService:
        return TransactionStateService(
            disk,
            self.log.read,
            table_file_size_bytes=24 * self.entries_a_file,
            redo_log_file_size_bytes=20 * self.entries_a_file,
            **options,
        )

    def append(self, messages: list[tuple[str, int, str]], times: int) -> None:
        for kind, number, key in messages * times:
            count = len(self.log.requests)
            if kind == "prepare":
                self.log.prepare(key=key)
            elif kind in {"commit", "roll_back"}:
                self.log.end(number % (count + 1), 8 if kind == "commit" else 12, "PG" if number % 5 else "other")
            elif kind in {"half", "checked"}:
                self.log.half(key, checked=kind == "checked")
            elif kind == "op":
                self.log.op(b"%d" % (number % 30))
            elif kind == "ops":
                self.log.op(b"%d,%d" % (number % 30, number % 7))
            else:
                self.log.put()

    def dispatch(self, count: int, again: int) -> None:
        end = min(len(self.log.requests), self.dispatched + count)
        self.service.dispatch(self.log.requests[max(0, self.dispatched - again) : end])
        self.dispatched = end
        self.check()

    async def flush(self) -> None:
        end = self.dispatched
        await self.service.flush()
        self.durable = end

    async def lose_power(self, lost: int) -> None:
        self.disk.power_off()
        await self.kill(lost)

    async def kill(self, lost: int) -> None:
        """The log loses its end, and other records may follow."""
        end = max(self.durable, len(self.log.requests) - lost)
        del self.log.requests[end:], self.log.bodies[end:]
        self.recover_to(self.durable)

    async def go_on(self) -> None:
        """Nothing happens."""

    async def stop(self) -> None:
        self.dispatch(len(self.log.requests), 0)
        await self.flush()
        self.recover_to(self.durable, is_orderly=True)

    def recover_to(self, durable: int, **options: bool) -> None:
        self.service = self.open(self.disk, **options)
        assert self.service.recover(durable * RECORD_BYTES) == durable * RECORD_BYTES
        self.dispatched = durable
        self.check()
        self.service.dispatch(self.log.requests[durable:])
        self.dispatched = len(self.log.requests)
        self.check()

    def check(self) -> None:
        """What is open is what the model says, all files agree, and the redo log is that of a life without crashes."""
        transactions = list(self.service.open_transactions())
        assert [each.physical_offset // RECORD_BYTES for each in transactions] == open_in(self.log, self.dispatched)
        assert list(self.service.verify()) == []
        fresh = self.open(self.other_disk)
        fresh.rebuild()
        fresh.dispatch(self.log.requests[: self.dispatched])
        assert self.redo_log(self.disk) == self.redo_log(self.other_disk)

    def redo_log(self, disk: SimDisk) -> bytes:
        return b"".join(bytes(disk.open(f"{REDO_LOG}/{name}").map()) for name in disk.list(REDO_LOG)).rstrip(b"\0")


messages = st.tuples(
    st.sampled_from(["prepare", "commit", "roll_back", "half", "half", "checked", "op", "op", "ops", "other"]),
    st.integers(0, 40),
    st.sampled_from(["a", "b", "c"]),
)
batches = st.tuples(st.lists(messages, min_size=1, max_size=20), st.integers(1, 6))
portions = st.tuples(st.integers(0, 200), st.integers(0, 3))
endings = st.one_of(
    st.tuples(st.just("lose_power"), st.integers(0, 30)),
    st.tuples(st.just("lose_power"), st.integers(0, 30)),
    st.tuples(st.just("kill"), st.integers(0, 30)),
    st.tuples(st.just("stop")),
    st.tuples(st.just("go_on")),
)
#: What becomes durable, what does not, and how the life ends.
lives = st.tuples(batches, portions, st.booleans(), batches, portions, portions, endings)


@given(
    seed=st.integers(0, 2**32),
    entries_a_file=st.sampled_from([300, 60, 5, 2]),
    todo=st.lists(lives, min_size=1, max_size=4),
)
def test_what_is_open_is_what_the_log_says(seed: int, entries_a_file: int, todo: list[Any]) -> None:
    async def program(node: Node) -> None:
        model = Model(node.disk, others[0], entries_a_file)
        for before, portion, is_flushed, behind, *portions, (ending, *arguments) in todo:
            model.append(*before)
            model.dispatch(*portion)
            if is_flushed:
                await model.flush()
            model.append(*behind)
            for each in portions:
                model.dispatch(*each)
            await getattr(model, ending)(*arguments)

    async def main(world: World) -> None:
        others.append(world.node("other").disk)
        world.node("a").boot(program)
        await world.nodes["a"].wait_down()

    others: list[SimDisk] = []
    World(seed).run(main)
