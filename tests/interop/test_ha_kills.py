"""Masters and slaves, this project's and RocketMQ's, are killed in the middle of the transfer: they stay the same.

Every broker is a process, killed by SIGKILL while messages are put; it comes back over what it left. The logs must be
the same bytes, and the metadata equal, after each kill.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor

import attrs
import pytest

from tests.interop.broker_metadata import change_metadata, wait_for_same_metadata
from tests.interop.put_load import NAME, TOPIC, put_without_pause
from tests.interop.same_logs import wait_for_same_log
from tests.interop.servers import Servers
from tests.worlds.java_broker import REPLICATION_TIMEOUT_S, JavaBroker, commit_log_files
from tests.worlds.java_client import JavaClient
from tests.worlds.java_process import JavaRuntime
from tests.worlds.own_broker import OwnBroker

pytestmark = [pytest.mark.interop, pytest.mark.timeout(600)]

Broker = JavaBroker | OwnBroker
Kinds = Sequence[tuple[str, str]]
LONG = pytest.mark.long

#: The version of Java's side, and the master's role: two that have both of each, and the other two.
SOME = (("4.9.7", "SYNC_MASTER"), ("5.3.1", "ASYNC_MASTER"))
OTHERS = (("4.9.7", "ASYNC_MASTER"), ("5.3.1", "SYNC_MASTER"))
#: A SYNC_MASTER gives up waiting for a slave that was killed. RocketMQ waits 3 and 5 seconds.
WAIT_MS = 1000
#: A 5.3.1 SYNC_MASTER told to wait for a slave also waits where none is connected, for each put.
WAIT_ALONE_MS = 100
#: A 4.9 slave begins with its first report, which it otherwise sends after 5 seconds.
REPORT_MS = 500
#: A slave that has looked for its master while that was killed should find it before it asks; RocketMQ takes no less.
REGISTER_PERIOD_MS = 10_000
#: The metadata changes before the first kill, and with each.
LAST_STEP = 3
#: Commit-log files that are begun before and after a kill.
ROLLS = 2


@pytest.fixture
def runtimes(java_runtime: JavaRuntime, java_runtime_5: JavaRuntime) -> Mapping[str, JavaRuntime]:
    """Of the Java brokers, by version."""
    return {"4.9.7": java_runtime, "5.3.1": java_runtime_5}


@attrs.frozen(eq=False)
class Pair:
    """A master and its slave, not started yet."""

    name: str
    master: Broker
    slave: Broker
    #: Whether the master answers SUCCESS when the slave has the message, and not before.
    acknowledged_is_replicated: bool
    #: Whether the slave asks for its master's metadata a minute after its start, and once a minute from then on.
    asks_seldom: bool = False


def files_of(broker: Broker) -> int:
    """How many files of its log hold anything."""
    return len(commit_log_files(broker.store))


def wait_for_rolls(broker: Broker) -> None:
    """Return when the broker's log has gone on by several files."""
    goal = files_of(broker) + ROLLS
    broker.wait_until(lambda: files_of(broker) >= goal, REPLICATION_TIMEOUT_S, f"its log has {goal} files")


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
    change_metadata(master, TOPIC, 2)
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
    change_metadata(master, TOPIC, LAST_STEP)
    return before.acknowledged | after.acknowledged


def wait_until_same(pair: Pair, step: int) -> None:
    """Return when the slave has the master's log from its first byte on, and its metadata, of that step."""
    wait_for_same_log(pair.master, pair.slave)
    wait_for_same_metadata(pair.master, pair.slave, TOPIC, step)
    # Java delivers a delayed message a second later.
    wait_for_same_log(pair.master, pair.slave)


def kill_each(pair: Pair) -> None:
    """Both are the same after each kill, and hold what was acknowledged."""
    pair.master.start()
    pair.slave.start()
    with JavaClient.connect(pair.master.listen_port) as client:
        client.send_message(TOPIC, b"before the slave has reported")
    change_metadata(pair.master, TOPIC, 1)
    if pair.asks_seldom:
        wait_for_same_log(pair.master, pair.slave)
    else:
        wait_until_same(pair, 1)
    acknowledged = kill_slave(pair)
    wait_until_same(pair, 2)
    acknowledged |= kill_master(pair)
    wait_until_same(pair, LAST_STEP)
    assert acknowledged <= names_in(pair.slave)


def kill_each_beside_each_other(pairs: Sequence[Pair]) -> None:
    """They mostly wait: a Java slave 5 seconds before it connects again, that of 5.3.1 a minute before it asks."""
    with ThreadPoolExecutor(len(pairs)) as threads:
        killed = {pair.name: threads.submit(kill_each, pair) for pair in pairs}
    failed = {name: error for name, ended in killed.items() if (error := ended.exception())}
    for name, error in failed.items():
        error.add_note(f"the pair: {name}")
    if failed:
        raise BaseExceptionGroup("not the same", [*failed.values()])


@pytest.mark.parametrize(
    "kinds",
    [
        # A slave of 5.3.1 takes two minutes: it asks for its master's metadata once in one.
        pytest.param(SOME[:1], id="4.9.7"),
        pytest.param(SOME[1:], id="5.3.1", marks=LONG),
        pytest.param(OTHERS, id="others", marks=LONG),
    ],
)
def test_our_masters_and_java_slaves(kinds: Kinds, runtimes: Mapping[str, JavaRuntime], servers: Servers) -> None:
    # A 5.3.1 slave follows no haMasterAddress: a name server has to tell.
    name_server = servers.name_server("namesrv")
    name_server.start()
    pairs = []
    for version, role in kinds:
        name = f"{role}-{version}"
        master = servers.own_broker(
            name, brokerName=name, brokerRole=role, slaveTimeout=WAIT_MS, namesrvAddr=name_server.address
        )
        address = {"haMasterAddress": master.ha_address} if version == "4.9.7" else {}
        slave = servers.java_broker(
            f"slave-of-{name}",
            runtimes[version],
            brokerName=name,
            brokerRole="SLAVE",
            brokerId=1,
            namesrvAddr=name_server.address,
            registerNameServerPeriod=REGISTER_PERIOD_MS,
            haSendHeartbeatInterval=REPORT_MS,
            **address,
        )
        # The slave of 4.9 asks every 10 s, that of 5.x every 60 s; neither is a setting.
        pairs.append(
            Pair(
                f"our {role} and its {version} slave",
                master,
                slave,
                acknowledged_is_replicated=role == "SYNC_MASTER",
                asks_seldom=version == "5.3.1",
            )
        )
    kill_each_beside_each_other(pairs)


@pytest.mark.parametrize(
    "kinds",
    [
        pytest.param(OTHERS[:1], id="4.9.7"),
        pytest.param(OTHERS[1:], id="5.3.1", marks=LONG),
        pytest.param(SOME, id="some", marks=LONG),
    ],
)
def test_java_masters_and_our_slaves(kinds: Kinds, runtimes: Mapping[str, JavaRuntime], servers: Servers) -> None:
    pairs = []
    for version, role in kinds:
        # A 5.3.1 SYNC_MASTER waits for as many copies as it is told, 1 unless told, its own among them; 4.9 for 2.
        wait_ms = WAIT_MS if version == "4.9.7" else WAIT_ALONE_MS
        name = f"{role}-{version}"
        master = servers.java_broker(
            name,
            runtimes[version],
            brokerRole=role,
            slaveTimeout=wait_ms,
            syncFlushTimeout=wait_ms,
            inSyncReplicas=2,
            totalReplicas=2,
        )
        slave = servers.own_broker(
            f"slave-of-{name}",
            brokerRole="SLAVE",
            brokerId=1,
            haMasterAddress=master.ha_address,
            masterAddr=master.address,
        )
        pairs.append(
            Pair(
                f"a {version} {role} and its slave of ours",
                master,
                slave,
                acknowledged_is_replicated=role == "SYNC_MASTER",
            )
        )
    kill_each_beside_each_other(pairs)
