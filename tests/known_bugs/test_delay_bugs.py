"""RocketMQ's reported bugs of delivering delayed messages, by number."""

from __future__ import annotations

import itertools

import attrs
import trio

from rmq_actors.store.config import BrokerRole
from rmq_actors.store.running_flags import RunningFlag
from rmq_actors.tracing.event import Event
from rmq_actors.tracing.events.store import LogAppend
from rmq_actors.wire.record import Message, decode_message
from tests.worlds.metadata_world import MetadataCluster, metadata_of, run


def test_9248_a_delivery_that_fails_is_tried_again() -> None:
    """Also #9249. The next look began at the next message, and the one whose put had failed was lost."""

    async def main(cluster: MetadataCluster) -> None:
        master = cluster.master
        store = attrs.evolve(master.config.store, broker_role=BrokerRole.ASYNC_MASTER)
        master.config = attrs.evolve(master.config, store=store)
        await master.start()
        for number in range(3):
            await master.controller.put_message(Message("Topic", b"%d" % number, delay_time_level=1))
        flags = master.controller.store.running_flags
        flags.set(RunningFlag.NOT_WRITEABLE, "a test")
        await trio.sleep(3)
        assert metadata_of(master).delay_offsets.offset_table == {}
        flags.clear(RunningFlag.NOT_WRITEABLE)
        await trio.sleep(2)
        found = master.controller.store.reads.get_message("Topic", 0, 0, 32).messages
        assert [decode_message(message).body for message in found] == [b"0", b"1", b"2"]

    run(main, slaves=0)


def test_3966_what_a_batch_delivered_before_it_was_stopped_is_not_delivered_again() -> None:
    """The level's offset was noted as that of the batch's first message, until the whole batch was delivered."""

    async def main(cluster: MetadataCluster) -> None:
        master = cluster.master
        store = attrs.evolve(master.config.store, broker_role=BrokerRole.ASYNC_MASTER)
        master.config = attrs.evolve(master.config, store=store)
        await master.start()
        for number in range(10):  # due in the same millisecond
            await master.controller.put_message(Message("Topic", b"%d" % number, delay_time_level=1))
        flags, appended = master.controller.store.running_flags, itertools.count(1)

        def stop_after_six(event: Event) -> None:
            if next(appended) == 6:
                flags.set(RunningFlag.NOT_WRITEABLE, "a test")

        cluster.recorder.subscribe(stop_after_six, [LogAppend])
        await trio.sleep(3)
        assert metadata_of(master).delay_offsets.offset_table == {1: 6}
        await master.stop()
        await master.start()
        await trio.sleep(3)
        found = master.controller.store.reads.get_message("Topic", 0, 0, 32).messages
        assert [decode_message(message).body for message in found] == [b"%d" % number for number in range(10)]

    run(main, slaves=0)
