"""What a broker's settings become in another role, and the settings that RocketMQ's files of a cluster give it."""

from __future__ import annotations

from pathlib import Path

import attrs
import pytest

from rmq_actors.broker.config import BROKER_KEYS, BrokerConfig
from rmq_actors.broker.role_changes import config_in_role
from rmq_actors.embedding.properties_file import load_config_file, read_properties_file
from rmq_actors.ha.config import HaConfig
from rmq_actors.protocols.broker_registration import BrokerRegistration, MasterAddresses
from rmq_actors.remoting.config import RemotingServerConfig
from rmq_actors.settings.configure import Properties, configure, known_keys, to_properties
from rmq_actors.store.config import BrokerRole, FlushDiskType, MessageStoreConfig

FILES = Path(__file__).parents[2] / "examples" / "two_masters_two_slaves"
ASYNC_MASTER, SYNC_MASTER, SLAVE = BrokerRole.ASYNC_MASTER, BrokerRole.SYNC_MASTER, BrokerRole.SLAVE
NAMED = BrokerConfig(remoting=RemotingServerConfig(listen_port=10911), namesrv_addr="127.0.0.1:9876")
LONELY = BrokerConfig()


def in_role(
    config: BrokerConfig,
    role: BrokerRole,
    *,
    broker_id: int | None = None,
    ha_master_address: str | None = None,
    master_addr: str | None = None,
) -> BrokerConfig:
    return config_in_role(config, role, broker_id, ha_master_address, master_addr)


def test_only_the_role_and_who_is_followed_change() -> None:
    slave = in_role(NAMED, SLAVE, broker_id=3, ha_master_address="10.0.0.1:10912", master_addr="10.0.0.1:10911")
    assert slave == attrs.evolve(
        NAMED,
        store=MessageStoreConfig(broker_role=SLAVE),
        ha=HaConfig(ha_master_address="10.0.0.1:10912"),
        broker_id=3,
        master_addr="10.0.0.1:10911",
    )
    # What was configured stays, for the day when it is a slave again.
    assert in_role(slave, SYNC_MASTER) == attrs.evolve(
        slave, store=MessageStoreConfig(broker_role=SYNC_MASTER), broker_id=0
    )
    again = in_role(in_role(slave, SYNC_MASTER), SLAVE, broker_id=3)
    assert again == slave


def test_a_former_master_has_broker_id_1_unless_told() -> None:
    """RocketMQ's changeToSlave makes 1 of 0, too."""
    assert in_role(NAMED, SLAVE).broker_id == 1
    assert in_role(in_role(NAMED, SLAVE, broker_id=4), SLAVE).broker_id == 4


def test_what_a_broker_is_already_is_the_same_settings() -> None:
    assert in_role(NAMED, ASYNC_MASTER) == NAMED
    assert in_role(in_role(NAMED, SLAVE), SLAVE) == in_role(NAMED, SLAVE)


def test_a_slave_that_could_find_no_master_is_refused() -> None:
    with pytest.raises(ValueError, match="brokerRole=SLAVE needs haMasterAddress, or name servers"):
        in_role(LONELY, SLAVE)
    assert in_role(LONELY, SLAVE, ha_master_address="10.0.0.1:10912").is_slave


def test_what_a_name_server_said_before_is_not_compared_with_what_it_says_now() -> None:
    """Of two that then disagree the first one counts, not the one that has changed its mind since another life."""
    first, second, third = (MasterAddresses(f"10.0.0.{number}:1", f"10.0.0.{number}:2") for number in (1, 2, 3))
    registration = BrokerRegistration(is_slave=True, force_register=True, period_s=30.0)
    registration.name_servers_changed(["ns-1:9876", "ns-2:9876"], 0.0)
    for now, said in ((0.0, (first, first)), (10.0, (second, third))):
        registration.requests(now)
        for address, master in zip(("ns-1:9876", "ns-2:9876"), said, strict=True):
            registration.answered(address, master, now, 0.5)
        if not now:
            assert registration.master == first
            registration.identity_changed(1.0, is_slave=True)
            assert registration.master == MasterAddresses()
    assert registration.master == second


def test_every_setting_of_a_broker_has_a_key_of_its_own() -> None:
    values = to_properties(NAMED, BROKER_KEYS)
    assert set(values) <= set(known_keys(BrokerConfig, BROKER_KEYS))
    assert configure(NAMED, Properties("x", values), BROKER_KEYS) == NAMED


@pytest.mark.parametrize("kind", ["sync", "async"])
@pytest.mark.parametrize(("name", "broker_id"), [("a", 0), ("a-s", 1), ("b", 0), ("b-s", 1)])
def test_the_files_of_two_masters_and_two_slaves_say_what_rocketmqs_do(kind: str, name: str, broker_id: int) -> None:
    """The values are those of conf/2m-2s-sync and conf/2m-2s-async in 4.9.8."""
    path = FILES / f"2m-2s-{kind}" / f"broker-{name}.properties"
    role = "SLAVE" if broker_id else f"{kind.upper()}_MASTER"
    assert read_properties_file(path).values == {
        "brokerClusterName": "DefaultCluster",
        "brokerName": f"broker-{name[0]}",
        "brokerId": f"{broker_id}",
        "deleteWhen": "04",
        "fileReservedTime": "48",
        "brokerRole": role,
        "flushDiskType": "ASYNC_FLUSH",
    }
    loaded = load_config_file(path, NAMED, BROKER_KEYS)
    assert not loaded.unknown
    assert loaded.config == attrs.evolve(
        NAMED,
        broker_name=f"broker-{name[0]}",
        broker_id=broker_id,
        store=MessageStoreConfig(
            broker_role=BrokerRole[role],
            flush_disk_type=FlushDiskType.ASYNC_FLUSH,
            delete_when="04",
            file_reserved_time_hours=48,
        ),
    )
