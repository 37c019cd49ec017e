"""The index against a list of records: dispatched in any portions, again, lost and torn by power cuts, recovered.

Plain records come as columns too.
"""

from __future__ import annotations

import itertools
from typing import Any

import attrs
from hypothesis import given
from hypothesis import strategies as st

from rmq_actors.store.config import MessageStoreConfig
from rmq_actors.store.dispatch.index_service import IndexService
from rmq_actors.wire.dispatch_request import DispatchRequest
from rmq_actors.wire.index_key import index_keys
from sim_net import Node, SimDisk, World
from tests.worlds.dispatch_batches import batch_of
from tests.worlds.index_files import SteppingClock

RECORD_BYTES = 100


def record(offset: int, timestamp_ms: int, unique_key: str | None, keys: str, *, sys_flag: int = 0) -> DispatchRequest:
    properties = {"KEYS": keys} if keys else {}
    if unique_key is not None:
        properties["UNIQ_KEY"] = unique_key
    return DispatchRequest("T", 0, offset, RECORD_BYTES, 0, timestamp_ms, 0, sys_flag, 0, properties)


def contents(disk: SimDisk) -> list[bytes]:
    return [bytes(disk.open(f"index/{name}").map()) for name in disk.list("index")]


@attrs.define
class Model:
    """A log, how far its records were dispatched, and how far the index is durable."""

    disk: SimDisk
    other_disk: SimDisk
    config: MessageStoreConfig
    log: list[DispatchRequest] = attrs.field(factory=list)
    dispatched: int = 0
    durable: int = 0
    #: Whether what a recovery asks for comes as columns.
    as_columns: bool = False
    now_ms: int = 1_700_000_000_000
    service: IndexService = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self.service = self.open()

    def open(self, **options: bool) -> IndexService:
        return IndexService(self.disk, self.config, SteppingClock(), **options)

    def append(self, messages: list[tuple[int, str | None, str, int]], times: int) -> None:
        for step_ms, unique_key, keys, sys_flag in messages * times:
            self.now_ms += step_ms
            self.log.append(record(len(self.log) * RECORD_BYTES, self.now_ms, unique_key, keys, sys_flag=sys_flag))

    async def dispatch(self, count: int, again: int, *, as_columns: bool = False) -> None:
        end = min(len(self.log), self.dispatched + count)
        for each, portion in itertools.groupby(
            self.log[max(0, self.dispatched - again) : end], lambda each: as_columns and not each.sys_flag
        ):
            if each:
                self.service.dispatch_batch(batch_of(list(portion)))
            else:
                self.service.dispatch(list(portion))
        self.dispatched = end
        await self.check()

    async def dispatch_portion(self, portion: tuple[int, int, bool]) -> None:
        count, again, as_columns = portion
        await self.dispatch(count, again, as_columns=as_columns)

    async def flush(self) -> None:
        end = self.dispatched
        await self.service.flush()
        self.durable = end

    async def lose_power(self, lost: int) -> None:
        self.disk.power_off()
        await self.kill(lost)

    async def kill(self, lost: int) -> None:
        """The log loses its end, and other records may follow."""
        del self.log[max(self.durable, len(self.log) - lost) :]
        self.service = self.open()
        await self.recovered(self.service.recover(self.durable * RECORD_BYTES), self.durable)

    async def go_on(self) -> None:
        """Nothing happens."""

    async def recovered(self, redo_from: int, durable: int) -> None:
        assert 0 <= redo_from <= durable * RECORD_BYTES
        assert redo_from % RECORD_BYTES == 0
        self.dispatched = redo_from // RECORD_BYTES
        await self.dispatch(len(self.log), 0, as_columns=self.as_columns)

    async def stop(self) -> None:
        """An orderly stop, by RocketMQ or by this store."""
        await self.dispatch(len(self.log), 0)
        await self.flush()
        self.service.close()
        self.service = self.open(is_orderly=True)
        assert self.service.recover(len(self.log) * RECORD_BYTES) in self.last_offsets()
        await self.check()

    def last_offsets(self) -> set[int]:
        keyed = [each.commit_log_offset for each in self.log if index_keys(each) and each.sys_flag != 12]
        return {len(self.log) * RECORD_BYTES, *keyed[-1:]}

    async def crash_of_rocketmq(self) -> None:
        """Its pages survive, and nobody knows what of them is durable."""
        self.service = self.open(is_trusted=False)
        redo_from = self.service.recover(len(self.log) * RECORD_BYTES)
        await self.recovered(redo_from, len(self.log))
        await self.flush()

    async def check(self) -> None:
        """The same bytes as those of an index that was never interrupted; every key finds its records."""
        for file in self.service.files:
            assert list(file.problems()) == []
        fresh = IndexService(self.other_disk, self.config, SteppingClock())
        fresh.rebuild()
        fresh.dispatch(self.log[: self.dispatched])
        assert contents(self.disk) == contents(self.other_disk)
        expected: dict[str, list[int]] = {}
        for each in self.log[: self.dispatched]:
            for key in index_keys(each) if each.sys_flag != 12 else []:
                offsets = expected.setdefault(key, [])
                if each.commit_log_offset not in offsets:
                    offsets.insert(0, each.commit_log_offset)
        for key, offsets in expected.items():

            def is_match(offset: int, key: str = key) -> bool:
                return key in index_keys(self.log[offset // RECORD_BYTES])

            found = await self.service.query_offset("T", key, 1000, 0, 1 << 60, is_match=is_match)
            assert list(found.physical_offsets) == offsets


keys = st.sampled_from(["a", "b", "c", "AaAa", "BBBB", "AaBB"])  # the last three have one hash
messages = st.tuples(
    st.sampled_from([0, 1, 999, 1500, 90_000]),
    st.none() | keys,
    st.lists(keys, max_size=5).map(" ".join) | st.just("  a  b "),
    st.sampled_from([0, 0, 0, 4, 8, 12]),
)
batches = st.tuples(st.lists(messages, min_size=1, max_size=12), st.integers(1, 15))
portions = st.tuples(st.integers(0, 200), st.integers(0, 3), st.booleans())
endings = st.one_of(
    st.tuples(st.just("lose_power"), st.integers(0, 50)),
    st.tuples(st.just("lose_power"), st.integers(0, 50)),
    st.tuples(st.just("kill"), st.integers(0, 50)),
    st.tuples(st.just("stop")),
    st.tuples(st.just("crash_of_rocketmq")),
    st.tuples(st.just("go_on")),
)
#: What becomes durable, what does not, and how the life ends.
lives = st.tuples(batches, portions, st.booleans(), batches, portions, portions, endings)


@given(
    seed=st.integers(0, 2**32),
    # With 1,100 slots the header, some of them and the entries are on pages of their own.
    slots=st.sampled_from([5, 1, 1100]),
    entries=st.sampled_from([500, 70, 3, 2]),
    todo=st.lists(lives, min_size=1, max_size=4),
    as_columns=st.booleans(),
)
def test_the_index_is_that_of_a_life_without_crashes(
    seed: int, slots: int, entries: int, todo: list[Any], as_columns: bool
) -> None:
    async def program(node: Node) -> None:
        config = MessageStoreConfig(max_hash_slot_num=slots, max_index_num=entries)
        model = Model(node.disk, others[0], config, as_columns=as_columns)
        assert model.service.recover(0) == 0
        for before, portion, is_flushed, behind, *portions, (ending, *arguments) in todo:
            model.append(*before)
            await model.dispatch_portion(portion)
            if is_flushed:
                await model.flush()
            model.append(*behind)
            for each in portions:
                await model.dispatch_portion(each)
            await getattr(model, ending)(*arguments)

    async def main(world: World) -> None:
        others.append(world.node("other").disk)
        world.node("a").boot(program)
        await world.nodes["a"].wait_down()

    others: list[SimDisk] = []
    World(seed).run(main)
