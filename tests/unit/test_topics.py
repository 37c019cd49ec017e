"""TopicConfigManager: the topics that a broker has from its start, its file, and the versions of its table."""

from __future__ import annotations

import errno
import json
import struct
from pathlib import Path

import pytest
import trio

from rmq_actors.broker.config import BrokerConfig
from rmq_actors.broker.topics import TOPIC_CHANGES, TopicConfigManager, system_topics
from rmq_actors.store.files.json_file import ConfigFileDamaged
from rmq_actors.wire.bodies.register_broker import RegisterBrokerBody
from rmq_actors.wire.bodies.topic_configs import DataVersion, TopicConfig, TopicConfigSerializeWrapper
from rmq_actors.wire.remoting_command import RemotingCommand, decode_command
from tests.worlds.faulty_disk import FaultyDisk
from tests.worlds.golden_capture import GOLDEN, STORE_MASTER_CLEAN

NEW = TopicConfig(topic_name="New", read_queue_nums=4, write_queue_nums=4)


class Clock:
    """A wall clock that a test sets."""

    def __init__(self) -> None:
        self.now = 1_000

    def now_ms(self) -> int:
        return self.now

    def utc_offset_s(self, at_ms: int) -> int:
        return 0


class LoadedTopics:
    """A directory, a clock, and the manager that was loaded last."""

    def __init__(self, directory: Path, config: BrokerConfig | None = None) -> None:
        self.disk, self.clock = FaultyDisk(directory), Clock()
        self.config = config or BrokerConfig()
        self.manager = self.load()

    def load(self) -> TopicConfigManager:
        send, self.changes = TOPIC_CHANGES.open()
        self.manager = TopicConfigManager.load(self.config, self.disk, self.clock, send)
        return self.manager

    @property
    def table(self) -> dict[str, TopicConfig]:
        return self.manager.topic_config_serialize_wrapper().topic_config_table

    @property
    def told(self) -> DataVersion | None:
        try:
            return self.changes.receive_nowait()
        except trio.WouldBlock:
            return None


def first_golden_registration() -> TopicConfigSerializeWrapper:
    """What RocketMQ 4.9.7 registered when it was started for the first time."""
    stream = (GOLDEN / "remoting" / "streams" / "mreg.0.c2s.bin").read_bytes()
    (length,) = struct.unpack_from(">i", stream)
    command: RemotingCommand = decode_command(stream[4 : 4 + length])
    return RegisterBrokerBody.decode(command.body, compressed=False).topic_config_serialize_wrapper


# --- what there is at the start ---------------------------------------------------------------------------------------


def test_system_topics_are_those_of_rocketmq() -> None:
    assert system_topics(BrokerConfig()) == first_golden_registration().topic_config_table


def test_settings_of_system_topics() -> None:
    config = BrokerConfig(
        "b",
        broker_cluster_name="C",
        auto_create_topic_enable=False,
        cluster_topic_enable=False,
        broker_topic_enable=False,
        trace_topic_enable=True,
    )
    topics = system_topics(config)
    assert "TBW102" not in topics
    assert (topics["C"].perm, topics["b"].perm) == (1, 1)
    assert topics["RMQ_SYS_TRACE_TOPIC"].write_queue_nums == 1
    assert "C_REPLY_TOPIC" in topics
    assert system_topics(BrokerConfig(default_topic_queue_nums=3))["TBW102"].write_queue_nums == 3


def test_a_new_broker_has_a_version_of_its_own_and_writes_nothing(tmp_path: Path) -> None:
    loaded = LoadedTopics(tmp_path)
    assert loaded.manager.data_version == DataVersion(counter=0, timestamp=1_000)
    assert list(tmp_path.iterdir()) == []
    assert loaded.told is None


# --- the file ---------------------------------------------------------------------------------------------------------


@pytest.mark.trio
async def test_the_file_is_rocketmqs(tmp_path: Path) -> None:
    golden = (STORE_MASTER_CLEAN / "config" / "topics.json").read_bytes()
    (tmp_path / "config").mkdir()
    (tmp_path / "config" / "topics.json").write_bytes(golden)
    loaded = LoadedTopics(tmp_path)
    stored = json.loads(golden)
    version = DataVersion(**stored["dataVersion"])
    assert loaded.manager.data_version == version  # it has every system topic
    assert list(loaded.table) == list(stored["topicConfigTable"])
    assert loaded.manager.select_topic_config("TopicOrder") == loaded.table["TopicOrder"]
    loaded.clock.now = 77
    await loaded.manager.update_topic_config(loaded.table["TopicOrder"])
    written = (tmp_path / "config" / "topics.json").read_bytes()
    new_version = f'"counter":{version.counter + 1},\n\t\t"timestamp":77\n'.encode()
    old_version = f'"counter":{version.counter},\n\t\t"timestamp":{version.timestamp}\n'.encode()
    assert written == golden.replace(old_version, new_version) != golden


@pytest.mark.trio
async def test_what_is_changed_is_there_after_a_restart(tmp_path: Path) -> None:
    loaded = LoadedTopics(tmp_path)
    await loaded.manager.update_topic_config(NEW)
    loaded.clock.now = 2_000
    assert await loaded.manager.delete_topic_config("TBW102")
    before, version = loaded.table, loaded.manager.data_version
    assert version == DataVersion(counter=2, timestamp=2_000)
    loaded.config = BrokerConfig(auto_create_topic_enable=False)
    loaded.load()
    assert loaded.table == before
    assert loaded.manager.data_version == version


@pytest.mark.trio
async def test_system_topics_that_the_file_lacks_are_added_with_a_new_version(tmp_path: Path) -> None:
    """A name server that knows the old version would not take them otherwise."""
    loaded = LoadedTopics(tmp_path)
    await loaded.manager.update_topic_config(NEW)
    loaded.config, loaded.clock.now = BrokerConfig("renamed"), 3_000
    loaded.load()
    assert {"renamed", "broker-a", "New"} <= loaded.table.keys()
    assert loaded.manager.data_version == DataVersion(counter=2, timestamp=3_000)


@pytest.mark.trio
async def test_what_the_file_says_of_a_system_topic_counts(tmp_path: Path) -> None:
    loaded = LoadedTopics(tmp_path)
    changed = TopicConfig(topic_name="TBW102", perm=4)
    await loaded.manager.update_topic_config(changed)
    loaded.load()
    assert loaded.manager.select_topic_config("TBW102") == changed


@pytest.mark.parametrize("text", [b"[]", b'{"topicConfigTable":{"T":7}}', b'{"dataVersion":{"counter":"x"}}'])
def test_a_file_that_is_no_table_of_topics_is_damage(tmp_path: Path, text: bytes) -> None:
    (tmp_path / "config").mkdir()
    (tmp_path / "config" / "topics.json").write_bytes(text)
    with pytest.raises(ConfigFileDamaged, match=r"config/topics\.json cannot be read \(TopicConfigSerializeWrapper"):
        LoadedTopics(tmp_path)


# --- changes ----------------------------------------------------------------------------------------------------------


@pytest.mark.trio
async def test_a_change_is_told_once_it_is_durable(tmp_path: Path) -> None:
    loaded = LoadedTopics(tmp_path)
    loaded.disk.sync_gate = trio.Event()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(loaded.manager.update_topic_config, NEW)
        await trio.testing.wait_all_tasks_blocked()
        assert loaded.manager.select_topic_config("New") is None
        assert loaded.told is None
        loaded.disk.sync_gate.set()
    assert loaded.manager.select_topic_config("New") == NEW
    assert loaded.told == loaded.manager.data_version == DataVersion(counter=1, timestamp=1_000)


@pytest.mark.trio
async def test_the_same_settings_make_a_new_version_too(tmp_path: Path) -> None:
    loaded = LoadedTopics(tmp_path)
    await loaded.manager.update_topic_config(NEW)
    await loaded.manager.update_topic_config(NEW)
    assert loaded.manager.data_version.counter == 2


@pytest.mark.trio
async def test_nothing_to_do_makes_no_version(tmp_path: Path) -> None:
    loaded = LoadedTopics(tmp_path)
    assert not await loaded.manager.delete_topic_config("New")
    await loaded.manager.update_order_topic_config({})
    await loaded.manager.update_order_topic_config({"New": "broker-a:4"})  # no topic of this broker
    assert loaded.manager.data_version.counter == 0
    assert loaded.told is None
    assert not (tmp_path / "config").exists()


@pytest.mark.trio
async def test_ordered_topics_are_those_that_are_listed(tmp_path: Path) -> None:
    loaded = LoadedTopics(tmp_path)
    await loaded.manager.update_order_topic_config({"TBW102": "", "BenchmarkTest": ""})
    assert [name for name, topic in loaded.table.items() if topic.order] == ["TBW102", "BenchmarkTest"]
    version = loaded.manager.data_version
    await loaded.manager.update_order_topic_config({"BenchmarkTest": "", "TBW102": "x"})
    assert loaded.manager.data_version is version
    await loaded.manager.update_order_topic_config({"TBW102": ""})
    assert [name for name, topic in loaded.table.items() if topic.order] == ["TBW102"]
    assert loaded.told == DataVersion(counter=2, timestamp=1_000)


@pytest.mark.trio
async def test_another_table_of_the_same_version_is_taken_over(tmp_path: Path) -> None:
    """Both were masters, and each one's clock and counter came to the same."""
    loaded = LoadedTopics(tmp_path)
    same = TopicConfigSerializeWrapper(data_version=loaded.manager.data_version, topic_config_table=loaded.table)
    assert not await loaded.manager.follow(same)
    other = TopicConfigSerializeWrapper(data_version=loaded.manager.data_version, topic_config_table={"New": NEW})
    assert await loaded.manager.follow(other)
    assert loaded.load().select_topic_config("New") == NEW


@pytest.mark.trio
async def test_a_change_that_cannot_be_persisted_is_none(tmp_path: Path) -> None:
    loaded = LoadedTopics(tmp_path)
    loaded.disk.failing_syncs = 1
    with pytest.raises(OSError, match="Input/output") as raised:
        await loaded.manager.update_topic_config(NEW)
    assert raised.value.errno == errno.EIO
    assert loaded.manager.select_topic_config("New") is None
    assert loaded.manager.data_version.counter == 0
    assert loaded.told is None
    await loaded.manager.update_topic_config(NEW)  # the next one goes on
    assert loaded.load().select_topic_config("New") == NEW


@pytest.mark.trio
async def test_changes_at_the_same_time_are_all_made(tmp_path: Path) -> None:
    loaded = LoadedTopics(tmp_path)
    async with trio.open_nursery() as nursery:
        for number in range(10):
            nursery.start_soon(loaded.manager.update_topic_config, TopicConfig(topic_name=f"T{number}"))
    assert loaded.manager.data_version.counter == 10
    assert {
        f"T{number}" for number in range(10)
    } <= loaded.load().topic_config_serialize_wrapper().topic_config_table.keys()


@pytest.mark.trio
async def test_a_table_that_was_handed_out_does_not_change(tmp_path: Path) -> None:
    loaded = LoadedTopics(tmp_path)
    before = loaded.manager.topic_config_serialize_wrapper()
    names = list(before.topic_config_table)
    await loaded.manager.update_topic_config(NEW)
    assert list(before.topic_config_table) == names
    assert before.data_version.counter == 0


# --- what is registered -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("permission", "perm"), [(6, None), (7, None), (4, 4), (2, 2), (0, 0)])
def test_a_broker_that_may_not_be_read_or_written_says_so_of_each_topic(
    tmp_path: Path, permission: int, perm: int | None
) -> None:
    loaded = LoadedTopics(tmp_path, BrokerConfig(broker_permission=permission))
    own = system_topics(loaded.config)
    assert {name: topic.perm for name, topic in loaded.table.items()} == {
        name: topic.perm if perm is None else perm for name, topic in own.items()
    }
    topic = loaded.manager.select_topic_config("TBW102")
    assert topic is not None
    assert topic.perm == 7


@pytest.mark.trio
async def test_a_broker_that_becomes_the_master_has_a_version_of_its_own(tmp_path: Path) -> None:
    """RocketMQ's name servers take no topics of a version that they know, and it may be that of another permission."""
    loaded = LoadedTopics(tmp_path)
    manager, version = loaded.manager, loaded.manager.data_version
    await manager.use_permission(6, is_slave=False)
    assert manager.data_version == version
    await manager.use_permission(6, is_slave=True)
    assert manager.data_version == version
    await manager.use_permission(6, is_slave=False)
    assert manager.data_version.counter == version.counter + 1
    await manager.use_permission(6, is_slave=False)
    assert manager.data_version.counter == version.counter + 1
    assert loaded.load().data_version.counter == version.counter + 1


def test_rocketmq_74_versions_are_equal_by_value() -> None:
    one, same = DataVersion(counter=1, timestamp=2), DataVersion(counter=1, timestamp=2, state_version=9)
    assert one == same
    assert not one != same  # noqa: SIM202 - the two operators are two methods
    assert one != DataVersion(counter=1, timestamp=3)
    assert one != DataVersion(counter=2, timestamp=2)
