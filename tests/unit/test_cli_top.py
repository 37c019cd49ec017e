"""`rmq-actors top`: what is shown of a broker's answers, and of a broker in a process."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

from rmq_actors.cli.broker_status import ToldStatus
from rmq_actors.cli.main import app
from rmq_actors.cli.top import GroupProgress, ToldTop, group_progress, top_lines
from rmq_actors.wire.bodies.broker_census import ActorInfo, BrokerCensus
from rmq_actors.wire.bodies.ha_runtime_info import HAConnectionRuntimeInfo, HARuntimeInfo
from rmq_actors.wire.bodies.message_queues import MessageQueue
from rmq_actors.wire.bodies.offsets import ConsumeStats, ConsumeStatsList, OffsetWrapper
from tests.unit.test_cli_broker import conf, running

INFO = {
    "brokerName": "broker-a",
    "brokerId": "0",
    "brokerRole": "SYNC_MASTER",
    "commitLogMinOffset": "0",
    "commitLogMaxOffset": "900",
    "commitLogDiskRatio": "0.24",
    "runtime": "[ 0 days, 1 hours, 2 minutes, 3 seconds ]",
    "putTps": "12.5 10.0 ",
    "getTransferedTps": "  ",
}
SLAVES = [HAConnectionRuntimeInfo(addr="10.0.0.2:5", slave_ack_offset=800, diff=100)]
HA = HARuntimeInfo(master=True, ha_connection_info=SLAVES)


def stats(topic: str, *queues: tuple[int, int], tps: float = 0.0) -> ConsumeStats:
    table = {
        MessageQueue(broker_name="broker-a", queue_id=number, topic=topic): OffsetWrapper(
            broker_offset=end, consumer_offset=consumed
        )
        for number, (end, consumed) in enumerate(queues)
    }
    return ConsumeStats(consume_tps=tps, offset_table=table)


def test_groups_that_are_the_furthest_behind_stand_first() -> None:
    told = ConsumeStatsList(
        consume_stats_list=[
            {"quick": [stats("Orders", (10, 10), (5, 4), tps=2.5)]},
            {"slow": [stats("Orders", (10, 0), (5, 0)), stats("Bills", (3, 1))]},
            {"new": []},
        ]
    )
    assert group_progress(told) == [
        GroupProgress("slow", "Orders", 15, 0.0),
        GroupProgress("slow", "Bills", 2, 0.0),
        GroupProgress("quick", "Orders", 1, 2.5),
    ]


def test_the_view_of_a_broker() -> None:
    groups = [GroupProgress("slow", "Orders", 15, 0.0), GroupProgress("g" * 60, "Bills", 2, 1.25)]
    census = BrokerCensus(
        actors=[
            ActorInfo(path="HAService", kind="service", state="running"),
            ActorInfo(path="role-changes", kind="actor", state="running", mailbox=3, mailbox_max=64, restarts=1),
            ActorInfo(path="Timer", kind="service", state="running"),
        ],
        connections=4,
        producers=2,
        consumers=1,
    )
    lines = top_lines(ToldTop(ToldStatus("a:1", INFO, HA), groups, census), 2)
    assert lines[0] == (
        "broker-a, brokerId 0, SYNC_MASTER; log 0 to 900; disk used 24%; runs 0 days, 1 hours, 2 minutes, 3 seconds"
    )
    assert lines[1] == ("put 12.5, got - messages a second; 4 connections, 2 producers, 1 consumers, 0 pulls held")
    text = "\n".join(lines)
    assert re.search(r"^10\.0\.0\.2:5 +800 +100 +never", text, re.MULTILINE)
    assert re.search(r"^slow +Orders +15 +0\.0$", text, re.MULTILINE)
    assert re.search(r"^g{37}\.\.\. +Bills +2 +1\.2$", text, re.MULTILINE)
    assert re.search(r"^role-changes +actor +running +1 +3/64$", text, re.MULTILINE)
    assert text.index("role-changes") < text.index("HAService")
    assert lines[-1] == "... and 1 more actors"


def test_a_broker_of_rocketmq_tells_less() -> None:
    lines = top_lines(ToldTop(ToldStatus("a:1", {}, None), [], None), 2)
    assert lines[0] == "a:1, brokerId ?, role not told; log ? to ?; disk used nan%; runs ?"
    assert "replication     not told: the broker does not know GET_BROKER_HA_STATUS" in lines
    assert "no group has consumed anything" in lines
    assert lines[-1] == "actors are not told: the broker does not know GET_BROKER_CENSUS"


@pytest.mark.processes
def test_a_broker_process_is_shown(tmp_path: Path) -> None:
    with running("broker", "-c", conf(tmp_path)) as (_, _, address):
        done = CliRunner().invoke(app, ["top", address, "--once", "--json"])
        assert done.exit_code == 0, done.output
        told = json.loads(done.stdout)
        assert {*told} == {"address", "runtimeInfo", "haStatus", "rates", "groups", "census"}
        assert told["census"]["connections"] == 1
        assert "HAService" in {each["path"].rpartition("/")[2] for each in told["census"]["actors"]}
        shown = CliRunner().invoke(app, ["top", address, "--once", "--rows", "5"]).stdout
        assert shown.startswith("broker-a, brokerId 0, ASYNC_MASTER; log 0 to 0; ")
        assert "no slave is connected" in shown
    done = CliRunner().invoke(app, ["top", address, "--once"])
    assert (done.exit_code, done.stdout) == (1, "")
    assert "does not answer" in done.stderr
