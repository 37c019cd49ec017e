"""The harness proved on RocketMQ alone: a real master and a real slave end with the same bytes."""

from __future__ import annotations

import shutil

import pytest

from rmq_actors.settings.properties_text import parse_properties
from rmq_actors.wire.request_code import RequestCode
from tests.interop.conftest import GOLDEN_STORE, MakeJavaBroker, MakeJavaSlave
from tests.interop.servers import Servers
from tests.worlds.java_broker import MAPPED_FILE_SIZE, PATIENCE, REPLICATION_TIMEOUT_S, commit_log_files
from tests.worlds.server_process import ServerFailed

pytestmark = [pytest.mark.interop, pytest.mark.timeout(600)]

GOLDEN_LAST_FILE = 262144
#: Instead of 3 s, which a slave on a slow machine may take to answer.
SLAVE_TIMEOUT_MS = 50_000


def test_java_slave_follows_java_master_over_a_file_roll(
    make_java_broker: MakeJavaBroker, java_slave: MakeJavaSlave
) -> None:
    master = make_java_broker("master", brokerRole="SYNC_MASTER", slaveTimeout=SLAVE_TIMEOUT_MS)
    # As if written now: at four in the morning a broker removes files that are three days old.
    shutil.copytree(GOLDEN_STORE, master.store, copy_function=shutil.copy)
    master.start()
    slave = java_slave(master.ha_address, MAPPED_FILE_SIZE)
    slave.start()

    def same_tail() -> bool:
        # A 4.9 master sends an empty slave its last file alone.
        replicated = commit_log_files(slave.store)
        return GOLDEN_LAST_FILE in replicated and replicated == {
            offset: data for offset, data in commit_log_files(master.store).items() if offset >= GOLDEN_LAST_FILE
        }

    slave.wait_until(same_tail, REPLICATION_TIMEOUT_S, "the slave has the master's last file")
    bodies = [b"message %d " % number + b"x" * 20_000 for number in range(20)]
    for body in bodies:
        response = master.send("TopicInterop", body)
        assert response.code == 0, response
    slave.wait_until(same_tail, REPLICATION_TIMEOUT_S, "the slave has all that was put")
    slave.stop()
    master.stop()

    assert master.stopped_in_order()
    assert slave.stopped_in_order()
    assert same_tail()
    log = b"".join(commit_log_files(slave.store).values())
    assert all(body in log for body in bodies)
    assert list(commit_log_files(slave.store)) == [GOLDEN_LAST_FILE, GOLDEN_LAST_FILE + MAPPED_FILE_SIZE]


def test_a_killed_broker_leaves_its_abort_file_and_starts_again(make_java_broker: MakeJavaBroker) -> None:
    broker = make_java_broker("broker")
    broker.start()
    assert broker.send("TopicInterop", b"before the kill").code == 0
    broker.kill()
    assert (broker.store / "abort").exists()
    assert not broker.stopped_in_order()
    broker.start()
    assert broker.send("TopicInterop", b"after the kill").code == 0
    broker.stop()
    assert broker.stopped_in_order()
    log = commit_log_files(broker.store)[0]
    assert b"before the kill" in log
    assert b"after the kill" in log


@pytest.mark.parametrize("version", ["java_runtime", "java_runtime_5"])
def test_a_broker_of_a_slow_machine_has_patience(
    version: str, servers: Servers, request: pytest.FixtureRequest
) -> None:
    """It says nothing of settings that it does not know."""
    broker = servers.java_broker("broker", request.getfixturevalue(version))
    broker.start()
    answer = broker.call(RequestCode.GET_BROKER_CONFIG, {})
    config = parse_properties(answer.body.decode(), "what it answers").values
    assert {name: config.get(name) for name in PATIENCE} == {name: str(value) for name, value in PATIENCE.items()}


def test_a_broker_that_cannot_start_is_reported_with_its_log(make_java_broker: MakeJavaBroker) -> None:
    broker = make_java_broker("broker", brokerId=0, brokerRole="SLAVE")
    with pytest.raises(ServerFailed, match="Slave's brokerId must be > 0"):
        broker.start()
