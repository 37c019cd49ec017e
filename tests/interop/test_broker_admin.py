"""RocketMQ's mqadmin, 4.9.7 and 5.3.1, looks at this project's broker and changes it while it runs.

The broker is the process of `rmq-actors broker`: a slave of a Java master at first, then the master of a Java slave.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from rmq_actors.cli.main import app
from tests.interop.java_gateway import CommandFailed, JavaGateway, open_java_gateway
from tests.interop.servers import Servers
from tests.worlds.java_broker import REPLICATION_TIMEOUT_S, commit_log_files
from tests.worlds.java_process import JavaRuntime
from tests.worlds.own_broker import BrokerCommand
from tests.worlds.server_process import wait_until

pytestmark = [pytest.mark.interop, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def java_gateway_5(java_runtime_5: JavaRuntime, tmp_path_factory: pytest.TempPathFactory) -> Iterator[JavaGateway]:
    """The mqadmin of 5.3.1."""
    with open_java_gateway(tmp_path_factory.mktemp("java-gateway-5"), java_runtime_5) as gateway:
        yield gateway


def status_of(gateway: JavaGateway, name_server: str, broker: BrokerCommand) -> dict[str, str]:
    """What `mqadmin brokerStatus` prints."""
    text = gateway.mqadmin(name_server, "brokerStatus", "-b", broker.address)
    return {key.strip(): value.strip() for key, _, value in (line.partition(":") for line in text.splitlines())}


def log_end(store: Path) -> int:
    """After the last byte of the log that is not zero."""
    files = commit_log_files(store)
    last = max(files)
    return last + len(files[last].rstrip(b"\0"))


def test_mqadmin_watches_a_broker_and_changes_its_role(
    servers: Servers, java_gateway: JavaGateway, java_gateway_5: JavaGateway
) -> None:
    name_server = servers.name_server("namesrv")
    name_server.start()
    java_master = servers.java_broker("java-master", namesrvAddr=name_server.address)
    java_master.start()
    broker = servers.broker_command("broker", brokerRole="SLAVE", brokerId=1, namesrvAddr=name_server.address)
    broker.start()
    for number in range(20):
        assert java_master.send("TopicInterop", b"%d" % number).code == 0
    wait_until(
        lambda: commit_log_files(broker.store) == commit_log_files(java_master.store) != {},
        REPLICATION_TIMEOUT_S,
        "the Java master's log",
    )

    # A slave.
    status = status_of(java_gateway, name_server.address, broker)
    end = int(status["commitLogMaxOffset"])
    assert end >= log_end(broker.store) > 0
    assert (status["brokerRole"], status["brokerId"], status["haHalted"]) == ("SLAVE", "1", "")
    assert status["haMasterAddress"] == java_master.ha_address
    assert status["commitLogMinOffset"] == "0"
    assert {"putTps", "dispatchBehindBytes", "commitLogDiskRatio", "earliestMessageTimeStamp"} <= status.keys()
    listed = java_gateway.mqadmin(name_server.address, "clusterList")
    assert re.search(rf"broker-a +1 +{broker.address} +V4_9_7", listed), listed
    shown = java_gateway_5.mqadmin(name_server.address, "haStatus", "-b", broker.address)
    assert f"#MasterAddr\t{java_master.ha_address}\n#CommitLogMaxOffset\t{end}\n" in shown

    # What a Java broker tells is shown, too.
    told = CliRunner().invoke(app, ["broker-admin", "status", java_master.address])
    assert told.exit_code == 0, told.output
    assert re.search(rf"^log +offsets 0 to {end},", told.stdout, re.MULTILINE), told.stdout
    assert "not told: the broker does not know GET_BROKER_HA_STATUS" in told.stdout

    # Refused, and named.
    with pytest.raises(CommandFailed, match="listenPort is read at the start alone"):
        java_gateway.mqadmin(
            name_server.address, "updateBrokerConfig", "-b", broker.address, "-k", "listenPort", "-v", "1"
        )

    # Promoted.
    java_master.kill()
    done = java_gateway.mqadmin(
        name_server.address, "updateBrokerConfig", "-b", broker.address, "-k", "brokerRole", "-v", "SYNC_MASTER"
    )
    assert done == f"update broker config success, {broker.address}\n"
    assert status_of(java_gateway, name_server.address, broker)["brokerRole"] == "SYNC_MASTER"
    shown = java_gateway.mqadmin(name_server.address, "getBrokerConfig", "-b", broker.address)
    assert re.search(r"^brokerRole += +SYNC_MASTER$", shown, re.MULTILINE), shown
    assert {"brokerRole=SYNC_MASTER", "brokerId=0"} <= {*broker.configuration.read_text().splitlines()}

    # A master.
    java_slave = servers.java_broker(
        "java-slave", brokerRole="SLAVE", brokerId=2, namesrvAddr=name_server.address, haMasterAddress=broker.ha_address
    )
    java_slave.start()
    wait_until(
        lambda: commit_log_files(java_slave.store) == commit_log_files(broker.store),
        REPLICATION_TIMEOUT_S,
        "this broker's log",
    )
    wait_until(
        lambda: "OK" in java_gateway_5.mqadmin(name_server.address, "haStatus", "-b", broker.address),
        REPLICATION_TIMEOUT_S,
        "a report of the Java slave",
    )
    shown = java_gateway_5.mqadmin(name_server.address, "haStatus", "-b", broker.address)
    assert f"#MasterAddr\t{broker.address}\n#MasterCommitLogMaxOffset\t{end}\n#SlaveNum\t1\n" in shown, shown
    assert re.search(rf"127\.0\.0\.1:\d+ +{end} +0 +[\d.]+ +OK +{end}\n", shown), shown

    # Topics come and go, and their lives are told apart.
    def admin(*arguments: str) -> str:
        return java_gateway.mqadmin(name_server.address, *arguments)

    def has_route() -> bool:
        asked = "topicRoute", "-t", "TopicComesAndGoes"
        return broker.address in java_gateway.run_mqadmin_once(name_server.address, *asked)

    for life in (b"one", b"two"):
        admin("updateTopic", "-b", broker.address, "-t", "TopicComesAndGoes", "-r", "1", "-w", "1")
        wait_until(has_route, REPLICATION_TIMEOUT_S, "the route")
        assert java_gateway.produce(name_server.address, "TopicComesAndGoes", [life] * 3) == ["broker-a"] * 3
        assert java_gateway.consume(name_server.address, "TopicComesAndGoes", 3) == [life] * 3
        shown = admin("topicStatus", "-t", "TopicComesAndGoes")
        assert re.search(r"broker-a +0 +0 +3 ", shown), shown
        shown = admin("queryCq", "-t", "TopicComesAndGoes", "-q", "0", "-i", "0", "-b", broker.address, "-c", "3")
        assert shown.count("physicOffset") == 3, shown
        assert "success" in admin("deleteTopic", "-c", "DefaultCluster", "-t", "TopicComesAndGoes")
        assert "success" in admin("cleanUnusedTopic", "-b", broker.address)

    # As its file says, at the next start.
    broker.stop()
    broker.start()
    assert status_of(java_gateway, name_server.address, broker)["brokerRole"] == "SYNC_MASTER"
