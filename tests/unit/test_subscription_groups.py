"""Consumer groups: system groups, versions, and what a slave takes over."""

from __future__ import annotations

from pathlib import Path

import pytest
import trio

from rmq_actors.broker import subscription_groups
from rmq_actors.broker.subscription_groups import SYSTEM_GROUPS, SubscriptionGroupManager
from rmq_actors.real_io.os_disk import OsDisk
from rmq_actors.real_io.wall_clock import SystemWallClock
from rmq_actors.wire.bodies.subscription_groups import SubscriptionGroupConfig, SubscriptionGroupWrapper
from rmq_actors.wire.bodies.topic_configs import DataVersion
from tests.worlds.faulty_disk import FaultyDisk

FILE = Path("config", "subscriptionGroup.json")


def manager(tmp_path: Path) -> SubscriptionGroupManager:
    return SubscriptionGroupManager.load(OsDisk(tmp_path), SystemWallClock())


def test_a_new_broker_has_the_system_groups(tmp_path: Path) -> None:
    assert tuple(manager(tmp_path).wrapper().subscription_group_table) == SYSTEM_GROUPS


def test_what_was_changed_is_loaded_with_its_version(tmp_path: Path) -> None:
    groups = manager(tmp_path)
    first = groups.data_version
    trio.run(groups.update_subscription_group_config, SubscriptionGroupConfig(group_name="G", retry_max_times=3))
    assert groups.data_version.counter == first.counter + 1
    again = manager(tmp_path)
    assert again.wrapper() == groups.wrapper()
    found = again.find_subscription_group_config("G")
    assert found is not None
    assert found.retry_max_times == 3
    assert trio.run(again.delete_subscription_group_config, "G")
    assert not trio.run(again.delete_subscription_group_config, "G")
    assert manager(tmp_path).find_subscription_group_config("G") is None


def test_a_slave_has_its_masters_groups_and_no_others(tmp_path: Path) -> None:
    master, slave = manager(tmp_path / "master"), manager(tmp_path / "slave")
    trio.run(master.update_subscription_group_config, SubscriptionGroupConfig(group_name="G"))
    assert trio.run(slave.follow, master.wrapper())
    assert slave.wrapper() == master.wrapper()
    trio.run(master.delete_subscription_group_config, "G")
    assert trio.run(slave.follow, master.wrapper())
    assert slave.find_subscription_group_config("G") is None


def test_known_bug_rocketmq_74_an_equal_version_is_not_written_again(tmp_path: Path) -> None:
    master, slave = manager(tmp_path / "master"), manager(tmp_path / "slave")
    trio.run(master.update_subscription_group_config, SubscriptionGroupConfig(group_name="G"))
    trio.run(slave.follow, master.wrapper())
    (tmp_path / "slave" / FILE).unlink()
    version = master.data_version
    equal = DataVersion(counter=version.counter, timestamp=version.timestamp, state_version=7)
    table = master.wrapper().subscription_group_table
    assert not trio.run(slave.follow, SubscriptionGroupWrapper(data_version=equal, subscription_group_table=table))
    assert not (tmp_path / "slave" / FILE).exists()


def test_another_table_of_the_same_version_is_taken_over(tmp_path: Path) -> None:
    """Both were masters, and each one's clock and counter came to the same."""
    slave = manager(tmp_path)
    version = slave.data_version
    other = {"H": SubscriptionGroupConfig(group_name="H")}
    assert trio.run(slave.follow, SubscriptionGroupWrapper(data_version=version, subscription_group_table=other))
    assert tuple(slave.wrapper().subscription_group_table) == ("H",)


def test_a_change_that_cannot_be_persisted_is_none(tmp_path: Path) -> None:
    disk = FaultyDisk(tmp_path)
    groups = SubscriptionGroupManager.load(disk, SystemWallClock())
    before = groups.wrapper()
    disk.failing_syncs = 1
    with pytest.raises(OSError, match=r".+"):
        trio.run(groups.update_subscription_group_config, SubscriptionGroupConfig(group_name="G"))
    assert groups.wrapper() == before


def test_a_master_without_any_group_is_not_followed(tmp_path: Path) -> None:
    groups = manager(tmp_path)
    with pytest.raises(ValueError, match="no subscription groups"):
        trio.run(groups.follow, SubscriptionGroupWrapper(data_version=DataVersion(counter=9)))
    assert tuple(groups.wrapper().subscription_group_table) == SYSTEM_GROUPS


def test_a_table_that_no_answer_can_carry_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    groups = manager(tmp_path)
    before = groups.wrapper()
    monkeypatch.setattr(subscription_groups, "FRAME_MAX_LENGTH_BYTES", 2000)
    with pytest.raises(ValueError, match=r"subscriptionGroup.json: \d+ bytes could be neither sent nor read"):
        trio.run(groups.update_subscription_group_config, SubscriptionGroupConfig(group_name="G" * 200))
    assert groups.wrapper() == before
