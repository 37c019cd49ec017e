"""RocketMQ's files as they are: those of the golden run, and what is said of a file that is wrong."""

from __future__ import annotations

import re
from pathlib import Path

import attrs
import pytest

from rmq_actors.embedding.name_server import load_namesrv_config
from rmq_actors.embedding.properties_file import FILE_MAX_BYTES, load_config_file, read_properties_file
from rmq_actors.ha.config import HaConfig
from rmq_actors.settings.configure import ConfigurationError, Key
from rmq_actors.store.config import BrokerRole, FlushDiskType, MessageStoreConfig

CONF = Path(__file__).parents[1] / "golden" / "conf"


@attrs.frozen
class StoreAndHa:
    """What a broker.conf says to two layers."""

    broker_name: str = ""
    broker_ip1: str = ""
    store: MessageStoreConfig = attrs.field(factory=MessageStoreConfig)
    ha: HaConfig = attrs.field(factory=HaConfig)


def test_the_namesrv_conf_of_the_golden_run() -> None:
    loaded = load_namesrv_config(CONF / "namesrv.conf")
    assert loaded.config.remoting.listen_port == 9876
    assert loaded.config.kv_config_path == "/data/rocketmq/namsv/kvConfig.json"
    assert loaded.config.config_store_path == str(CONF / "namesrv.conf")
    assert loaded.warnings == []


def test_without_a_file_everything_is_below_the_home_directory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/srv/mq")
    config = load_namesrv_config().config
    assert config.kv_config_path == "/srv/mq/namesrv/kvConfig.json"
    assert config.config_store_path == "/srv/mq/namesrv/namesrv.properties"
    assert (config.remoting.listen_host, config.remoting.listen_port) == ("127.0.0.1", 9876)


def test_paths_begin_where_the_process_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", "/srv/mq")
    (tmp_path / "n.conf").write_text("kvConfigPath=kv/kvConfig.json\n")
    config = load_namesrv_config(Path("n.conf")).config
    assert config.kv_config_path == str(tmp_path / "kv/kvConfig.json")
    assert config.config_store_path == str(tmp_path / "n.conf")
    (tmp_path / "n.conf").write_text("kvConfigPath=~/kvConfig.json\n")
    assert load_namesrv_config(Path("n.conf")).config.kv_config_path == "/srv/mq/kvConfig.json"


def test_settings_of_rocketmq_that_mean_nothing_here_are_told_from_unknown_ones(tmp_path: Path) -> None:
    path = tmp_path / "n.conf"
    path.write_text(
        "serverWorkerThreads=8\nserverChannelMaxIdleTimeSeconds=60\n\nownKey=1\nenableControllerInNamesrv=true\n"
    )
    loaded = load_namesrv_config(path)
    assert loaded.config.remoting.limits.channel_max_idle_time_ms == 60_000
    assert loaded.warnings == [
        f"{path}, line 1: serverWorkerThreads has no effect here",
        f"{path}, line 4: ownKey is unknown, here and to RocketMQ",
        f"{path}, line 5: enableControllerInNamesrv has no effect here",
    ]


@pytest.mark.parametrize(
    ("name", "role", "port"), [("master.conf", BrokerRole.SYNC_MASTER, 10912), ("slave.conf", BrokerRole.SLAVE, 11912)]
)
def test_a_broker_conf_of_the_golden_run_is_read_layer_by_layer(name: str, role: BrokerRole, port: int) -> None:
    keys = {"ha.connections_max": Key("haConnectionsMax")}
    loaded = load_config_file(CONF / name, StoreAndHa(), keys, also_known=["listenPort"])
    assert loaded.config.broker_name == "broker-a"
    assert loaded.config.broker_ip1 == "127.0.0.1"
    assert loaded.config.ha.ha_listen_port == port
    assert loaded.config.store == MessageStoreConfig(
        broker_role=role,
        flush_disk_type=FlushDiskType.ASYNC_FLUSH,
        mapped_file_size_commit_log_bytes=262144,
        mapped_file_size_consume_queue_bytes=2000,
        max_hash_slot_num=500,
        max_index_num=2000,
    )
    assert loaded.unknown == (
        "brokerClusterName",
        "brokerId",
        "brokerIP2",
        "namesrvAddr",
        "storePathRootDir",
        "storePathCommitLog",
        "autoCreateTopicEnable",
        "transactionCheckInterval",
    )
    assert all(warning.endswith(" has no effect here") for warning in loaded.warnings)


def test_a_file_is_latin_1_as_java_reads_it(tmp_path: Path) -> None:
    path = tmp_path / "x.conf"
    path.write_bytes(b"brokerName=\xe4\\u20ac\n")
    assert read_properties_file(path).values == {"brokerName": "ä€"}


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (b"\n\nlistenPort=70000\n", "line 3: listenPort=70000: it must be <= 65535: 70000"),
        (
            b"listenPort=-1\nlistenPrt=1\nserverWorkerThreads=8\n",
            "line 2: listenPrt is unknown: did you mean listenPort?",
        ),
        (b"kvConfigPath=\\u12\n", "line 1: "),
        (b"#" * (FILE_MAX_BYTES + 1), f"has more than {FILE_MAX_BYTES} bytes"),
        (None, "cannot be read: No such file or directory"),
        ("listenPort=1\n".encode("utf-16"), "is no text in ISO 8859-1"),
        ("listenPort=1\n".encode("utf-16-le"), "is no text in ISO 8859-1"),
        ("listenPort=1\n".encode("utf-8-sig"), "is no text in ISO 8859-1"),
    ],
)
def test_a_bad_file_is_one_error_that_names_it(tmp_path: Path, data: bytes | None, text: str) -> None:
    path = tmp_path / "n.conf"
    if data is not None:
        path.write_bytes(data)
    with pytest.raises(ConfigurationError, match=f"^{re.escape(str(path))}.*{re.escape(text)}"):
        load_namesrv_config(path)
