"""Masters and slaves, this project's and RocketMQ's, are killed in the middle of the transfer: the logs stay the same.

Every broker is a process, killed by SIGKILL while messages are put; it comes back over what it left.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import attrs
import pytest

from tests.interop.java_broker import REPLICATION_TIMEOUT_S, JavaBroker, commit_log_files
from tests.interop.java_client import JavaClient
from tests.interop.java_process import JavaRuntime
from tests.interop.own_broker import OwnBroker
from tests.interop.put_load import NAME, TOPIC, put_without_pause
from tests.interop.servers import Servers

pytestmark = [pytest.mark.interop, pytest.mark.timeout(600)]

Broker = JavaBroker | OwnBroker

ROLES = ("SYNC_MASTER", "ASYNC_MASTER")
#: A SYNC_MASTER gives up waiting for a slave that was killed. RocketMQ waits 3 and 5 seconds.
WAIT_MS = 1000
#: A 4.9 slave begins with its first report, which it otherwise sends after 5 seconds.
REPORT_MS = 500
#: Commit-log files that are begun before and after a kill.
ROLLS = 3


@pytest.fixture(params=["4.9.7", "5.3.1"])
def version(request: pytest.FixtureRequest) -> str:
    """Of the Java broker."""
    return str(request.param)


@pytest.fixture
def runtime(version: str, request: pytest.FixtureRequest) -> JavaRuntime:
    """The RocketMQ of this version."""
    fixture = {"4.9.7": "java_runtime", "5.3.1": "java_runtime_5"}[version]
    return request.getfixturevalue(fixture)  # type: ignore[no-any-return]


@attrs.frozen(eq=False)
class Pair:
    """A master and its slave, not started yet."""

    master: Broker
    slave: Broker
    #: Whether the master answers SUCCESS when the slave has the message, and not before.
    acknowledged_is_replicated: bool


def files_of(broker: Broker) -> int:
    """How many files of its log hold anything."""
    return len(commit_log_files(broker.store))


def wait_for_rolls(broker: Broker) -> None:
    """Return when the broker's log has gone on by several files."""
    goal = files_of(broker) + ROLLS
    broker.wait_until(lambda: files_of(broker) >= goal, REPLICATION_TIMEOUT_S, f"its log has {goal} files")


def wait_until_same(pair: Pair) -> None:
    """Return when both logs are the same bytes, from the first on."""

    def same() -> bool:
        return commit_log_files(pair.slave.store) == commit_log_files(pair.master.store)

    pair.slave.wait_until(same, REPLICATION_TIMEOUT_S, "the slave's log is the master's")
    assert 0 in commit_log_files(pair.slave.store)


def names_in(broker: Broker) -> set[bytes]:
    """The names of the messages in its log."""
    return {name for data in commit_log_files(broker.store).values() for name in NAME.findall(data)}


def kill_slave(pair: Pair) -> set[bytes]:
    """Kill the slave while it is sent what is put, and let the master go on without; what was acknowledged."""
    master, slave = pair.master, pair.slave
    with put_without_pause(master.listen_port, "slave") as load:
        wait_for_rolls(slave)
        slave.kill()
        wait_for_rolls(master)
    assert commit_log_files(slave.store) != commit_log_files(master.store)
    if pair.acknowledged_is_replicated:
        assert load.acknowledged
        assert load.acknowledged <= names_in(slave)
    slave.start()
    return load.acknowledged


def kill_master(pair: Pair) -> set[bytes]:
    """Kill the master while it sends what is put, and put more when it is back; what was acknowledged."""
    master, slave = pair.master, pair.slave
    with put_without_pause(master.listen_port, "before") as before:
        wait_for_rolls(slave)
        master.kill()
    assert before.acknowledged
    if pair.acknowledged_is_replicated:
        assert before.acknowledged <= names_in(slave)
    master.start()
    with put_without_pause(master.listen_port, "after") as after:
        wait_for_rolls(master)
    return before.acknowledged | after.acknowledged


def kill_each(pair: Pair) -> None:
    """Both logs are the same after each kill, and hold what was acknowledged."""
    pair.master.start()
    pair.slave.start()
    with JavaClient.connect(pair.master.listen_port) as client:
        client.send_message(TOPIC, b"before the slave has reported")
    wait_until_same(pair)
    acknowledged = kill_slave(pair)
    wait_until_same(pair)
    acknowledged |= kill_master(pair)
    wait_until_same(pair)
    assert acknowledged <= names_in(pair.slave)


def kill_each_beside_each_other(pairs: Sequence[Pair]) -> None:
    """They mostly wait: a Java slave 5 seconds before it connects again."""
    with ThreadPoolExecutor(len(pairs)) as threads:
        for killed in [threads.submit(kill_each, pair) for pair in pairs]:
            killed.result()


def test_our_masters_and_java_slaves(version: str, runtime: JavaRuntime, servers: Servers) -> None:
    # A 5.3.1 slave follows no haMasterAddress: a name server has to tell.
    name_server = servers.name_server("namesrv")
    name_server.start()
    pairs = []
    for role in ROLES:
        master = servers.own_broker(
            role, brokerName=role, brokerRole=role, slaveTimeout=WAIT_MS, namesrvAddr=name_server.address
        )
        address = {"haMasterAddress": master.ha_address} if version == "4.9.7" else {}
        slave = servers.java_broker(
            f"slave-of-{role}",
            runtime,
            brokerName=role,
            brokerRole="SLAVE",
            brokerId=1,
            namesrvAddr=name_server.address,
            haSendHeartbeatInterval=REPORT_MS,
            **address,
        )
        pairs.append(Pair(master, slave, acknowledged_is_replicated=role == "SYNC_MASTER"))
    kill_each_beside_each_other(pairs)


def test_java_masters_and_our_slaves(version: str, runtime: JavaRuntime, servers: Servers) -> None:
    pairs = []
    for role in ROLES:
        master = servers.java_broker(role, runtime, brokerRole=role, slaveTimeout=WAIT_MS, syncFlushTimeout=WAIT_MS)
        slave = servers.own_broker(
            f"slave-of-{role}",
            brokerRole="SLAVE",
            brokerId=1,
            haMasterAddress=master.ha_address,
            masterAddr=master.address,
        )
        # A 5.3.1 SYNC_MASTER waits for no slave: its inSyncReplicas is 1.
        waits = role == "SYNC_MASTER" and version == "4.9.7"
        pairs.append(Pair(master, slave, acknowledged_is_replicated=waits))
    kill_each_beside_each_other(pairs)
