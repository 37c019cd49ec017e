"""Which settings a running broker takes: all of a request or none, whatever they are."""

from __future__ import annotations

from pathlib import Path

import attrs
import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st

from rmq_actors.broker.broker_configuration import (
    CHANGED_AT_RUN_TIME,
    BrokerFiles,
    Configuration,
    ForbiddenKey,
    config_file,
    reopens_store,
    updated_config,
)
from rmq_actors.broker.config import BROKER_KEYS, BrokerConfig
from rmq_actors.broker.runtime_info import human_readable_byte_count
from rmq_actors.ha.config import HaConfig
from rmq_actors.real_io.os_disk import OsDisk
from rmq_actors.real_io.wall_clock import SystemWallClock
from rmq_actors.remoting.config import RemotingServerConfig
from rmq_actors.settings.configure import ConfigurationError, Properties, configure, known_keys, to_properties
from rmq_actors.settings.properties_text import parse_properties
from rmq_actors.store.config import BrokerRole, MessageStoreConfig

MASTER = BrokerConfig(
    ha=HaConfig(ha_listen_port=0), remoting=RemotingServerConfig(listen_port=0), namesrv_addr="127.0.0.1:9876"
)
SLAVE = attrs.evolve(MASTER, store=MessageStoreConfig(broker_role=BrokerRole.SLAVE), broker_id=3)

#: Values that go together, for some of the keys.
VALUES = st.fixed_dictionaries(
    {},
    optional={
        "brokerRole": st.sampled_from([role.value for role in BrokerRole]),
        "haMasterAddress": st.sampled_from(["a:1", "b:2", ""]),
        "masterAddr": st.sampled_from(["a:1", ""]),
        "haTruncateOnDivergence": st.sampled_from(["true", "false"]),
        "slaveTimeout": st.integers(1, 10_000).map(str),
        "flushDiskType": st.sampled_from(["SYNC_FLUSH", "ASYNC_FLUSH"]),
        "fileReservedTime": st.integers(1, 100).map(str),
    },
)
CONFIGS = st.sampled_from([MASTER, SLAVE])


def request(**values: str) -> Properties:
    return Properties("the request", values)


def texts(config: BrokerConfig) -> dict[str, str]:
    return to_properties(config, BROKER_KEYS)


def test_each_key_that_can_be_changed_is_a_setting() -> None:
    assert set(known_keys(BrokerConfig, BROKER_KEYS)) >= CHANGED_AT_RUN_TIME


@given(CONFIGS, VALUES)
def test_exactly_what_is_told_changes(config: BrokerConfig, values: dict[str, str]) -> None:
    """But for the brokerId, which goes with the role."""
    updated = texts(updated_config(config, request(**values)))
    assert {key: updated.get(key, "") for key in values} == values
    passed_over = {*values, "brokerId"} if "brokerRole" in values else {*values}
    before = texts(config)
    assert {key: value for key, value in updated.items() if key not in passed_over} == {
        key: value for key, value in before.items() if key not in passed_over
    }


@given(CONFIGS, VALUES)
def test_the_brokers_id_goes_with_its_role(config: BrokerConfig, values: dict[str, str]) -> None:
    updated = updated_config(config, request(**values))
    assert updated.broker_id == (config.broker_id or 1 if updated.is_slave else 0)


@given(CONFIGS, VALUES, st.sampled_from(sorted({*known_keys(BrokerConfig, BROKER_KEYS)} - CHANGED_AT_RUN_TIME)))
def test_one_key_that_cannot_be_changed_refuses_all(config: BrokerConfig, values: dict[str, str], key: str) -> None:
    with pytest.raises(ConfigurationError, match=key):
        updated_config(config, request(**values, **{key: texts(config).get(key, "1")}))


@given(CONFIGS, VALUES)
def test_the_store_is_opened_again_only_for_what_needs_it(config: BrokerConfig, values: dict[str, str]) -> None:
    updated = updated_config(config, request(**values))
    changed = {key for key in values if texts(config).get(key) != texts(updated).get(key)} - {"haTruncateOnDivergence"}
    if not (config.is_slave or updated.is_slave):
        changed -= {"haMasterAddress", "masterAddr"}
    assert reopens_store(config, updated) == bool(changed)


def test_the_black_list_is_the_operators() -> None:
    config = attrs.evolve(MASTER, config_black_list="slaveTimeout;brokerRole")
    with pytest.raises(ForbiddenKey, match="brokerRole cannot be changed"):
        updated_config(config, request(brokerRole="SLAVE"))
    assert updated_config(config, request(syncFlushTimeout="7")).store.sync_flush_timeout_ms == 7


def test_what_is_shown_can_be_read_again() -> None:
    text = Configuration(SystemWallClock()).text(SLAVE)
    assert configure(MASTER, parse_properties(text, "the text"), BROKER_KEYS) == SLAVE


def kept_in(directory: Path, text: str) -> Configuration:
    """The settings of a broker whose file had `text` at its start."""
    (directory / "b.conf").write_text(text)
    disk = OsDisk(directory)
    values = parse_properties(text, "").values
    return Configuration(SystemWallClock(), BrokerFiles(disk, config_file(disk, "b.conf"), values, {}))


def persist(configuration: Configuration, **values: str) -> None:
    trio.run(configuration.persist, values, updated_config(MASTER, request(**values)))


def test_what_was_written_into_the_file_meanwhile_stays(tmp_path: Path) -> None:
    configuration, path = kept_in(tmp_path, "x=y\nslaveTimeout=5\nsyncFlushTimeout=1\n"), tmp_path / "b.conf"
    edited = "# by hand\nslaveTimeout=6\nfileReservedTime=99\nx=z\n"
    path.write_text(edited)
    persist(configuration, slaveTimeout="7", maxMessageSize="9")
    assert path.read_text() == "slaveTimeout=7\nfileReservedTime=99\nx=z\nmaxMessageSize=9\n"
    assert (tmp_path / "b.conf.bak").read_text() == edited
    path.write_text("a=b\n")
    persist(configuration, brokerRole="ASYNC_MASTER")
    assert path.read_text() == "a=b\nbrokerId=0\nbrokerRole=ASYNC_MASTER\n"
    assert (tmp_path / "b.conf.bak").read_text() == "a=b\n"


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ("a=b\nx=\\u12\n", r"/b\.conf, line 2: "),
        ("", r"/b\.conf is empty"),
        ("#" * (256 * 1024 + 1), r"/b\.conf cannot be read \(262145 bytes"),
    ],
)
def test_a_file_that_cannot_be_read_any_more_is_not_written(tmp_path: Path, data: str, message: str) -> None:
    configuration, path = kept_in(tmp_path, "x=y\n"), tmp_path / "b.conf"
    (tmp_path / "b.conf.bak").write_text("x=older\n")
    path.write_text(data)
    with pytest.raises(ConfigurationError, match=message):
        persist(configuration, slaveTimeout="7")
    assert path.read_text() == data
    assert (tmp_path / "b.conf.bak").read_text() == "x=older\n"
    assert configuration.version.counter == 0
    path.write_text("x=mended\n")
    persist(configuration, slaveTimeout="7")
    assert path.read_text() == "x=mended\nslaveTimeout=7\n"


def test_a_file_that_is_gone_is_written_again(tmp_path: Path) -> None:
    configuration, path = kept_in(tmp_path, "x=y\n"), tmp_path / "b.conf"
    path.unlink()
    persist(configuration, slaveTimeout="7")
    assert path.read_text() == "x=y\nslaveTimeout=7\n"


@pytest.mark.parametrize(
    ("size", "text"),
    [
        (0, "0 B"),
        (1023, "1023 B"),
        (1024, "1.0 KiB"),
        (1536, "1.5 KiB"),
        (1 << 20, "1.0 MiB"),
        (5 << 30, "5.0 GiB"),
        (1 << 62, "4.0 EiB"),
    ],
)
def test_sizes_are_written_as_rocketmq_writes_them(size: int, text: str) -> None:
    assert human_readable_byte_count(size) == text
