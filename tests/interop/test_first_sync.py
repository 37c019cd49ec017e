"""A slave without a log beside a master with several files, this project's and RocketMQ's: where its log begins.

A Java master sends whoever reports 0 its last file alone. Our slave begins with the first record of all, which the
master gives on its remoting port, unless it has syncFromLastFile.
"""

from __future__ import annotations

import pytest

from rmq_actors.real_io.os_disk import OsDisk
from rmq_actors.store.check.check_store import check_store
from tests.interop.same_logs import wait_for_same, wait_for_same_log
from tests.interop.servers import Servers
from tests.interop.store_contents import Log
from tests.worlds.java_broker import MAPPED_FILE_SIZE, JavaBroker
from tests.worlds.java_client import JavaClient
from tests.worlds.java_process import JavaRuntime
from tests.worlds.own_broker import OwnBroker

pytestmark = [pytest.mark.interop, pytest.mark.timeout(600)]

TOPIC = "TopicInterop"
QUEUES = 4
#: Of the log once everything is put.
FILES = 3
REPORT_MS = 500


@pytest.fixture(params=["4.9.7", pytest.param("5.3.1", marks=pytest.mark.long)])
def version(request: pytest.FixtureRequest) -> str:
    """Of the Java broker."""
    return str(request.param)


@pytest.fixture
def runtime(version: str, request: pytest.FixtureRequest) -> JavaRuntime:
    """The RocketMQ of this version."""
    fixture = {"4.9.7": "java_runtime", "5.3.1": "java_runtime_5"}[version]
    return request.getfixturevalue(fixture)  # type: ignore[no-any-return]


def put(master: JavaBroker | OwnBroker, count: int) -> None:
    """Messages of 15 kB, each with a key, to each queue in turn."""
    with JavaClient.connect(master.listen_port) as client:
        for number in range(count):
            body, key = b"%d " % number + bytes(15_000), f"KEYS\x01key{number}"
            response = client.send_message(TOPIC, body, queue_id=number % QUEUES, properties=key)
            assert response.code == 0, response


def queue_entries(broker: JavaBroker | OwnBroker, begin: int) -> dict[str, dict[int, bytes]]:
    """What each queue holds of the log from `begin` on: entries by their queue offset."""
    queues: dict[str, dict[int, bytes]] = {}
    for path in sorted((broker.store / "consumequeue" / TOPIC).rglob("*")):
        data = path.read_bytes() if path.is_file() else b""
        entries = {(int(path.name) + at) // 20: data[at : at + 20] for at in range(0, len(data), 20)}
        held = {
            offset: entry
            for offset, entry in entries.items()
            if int.from_bytes(entry[8:12]) and int.from_bytes(entry[:8]) >= begin
        }
        queues.setdefault(path.parent.name, {}).update(held) if path.is_file() else None
    return queues


def wait_for_same_queues(master: JavaBroker | OwnBroker, slave: JavaBroker | OwnBroker, begin: int) -> None:
    """Return when both have entered the log from `begin` on in their queues."""

    def differs() -> str:
        ours, theirs = queue_entries(slave, begin), queue_entries(master, begin)
        return "" if ours == theirs else f"queues: the slave has {ours}, the master {theirs}"

    wait_for_same(master, slave, differs)


def index_files(broker: JavaBroker | OwnBroker) -> list[bytes]:
    """The content of each, the oldest first."""
    directory = broker.store / "index"
    return [path.read_bytes() for path in sorted(directory.iterdir())] if directory.is_dir() else []


def wait_for_same_index(master: JavaBroker, slave: OwnBroker) -> None:
    """Return when both have the same index files, but for their names."""

    def differs() -> str:
        ours, theirs = index_files(slave), index_files(master)
        if len(ours) != len(theirs) or not ours:
            return f"{len(ours)} index files at the slave, {len(theirs)} at the master"
        at = [
            next((at for at in range(len(our)) if our[at] != their[at]), None)
            for our, their in zip(ours, theirs, strict=True)
        ]
        return "" if ours == theirs else f"the index files differ first at byte {at}"

    wait_for_same(master, slave, differs)


def our_slave(servers: Servers, name: str, master: JavaBroker, **properties: str | int) -> OwnBroker:
    return servers.own_broker(
        name,
        brokerRole="SLAVE",
        brokerId=1,
        haMasterAddress=master.ha_address,
        masterAddr=master.address,
        **properties,
    )


def check_slave(master: JavaBroker, slave: OwnBroker, begin: int) -> None:
    """Start a slave without a log: it gets all from `begin` on, then what is put, and has queues and index of that."""
    slave.start()
    wait_for_same_log(master, slave, begin=begin)
    put(master, 2)
    wait_for_same_log(master, slave, begin=begin)
    wait_for_same_queues(master, slave, begin)
    if not begin:
        wait_for_same_index(master, slave)
    slave.stop()
    records = Log.read(slave.store).records
    assert records[0].physical_offset == begin
    findings = [finding for finding in check_store(OsDisk(slave.store)) if finding.severity != "note"]
    assert findings == []


def test_our_slave_gets_all_that_a_java_master_has(version: str, runtime: JavaRuntime, servers: Servers) -> None:
    master = servers.java_broker("master", runtime)
    master.start()
    put(master, 45)
    check_slave(master, our_slave(servers, "all", master), 0)
    last = (FILES - 1) * MAPPED_FILE_SIZE
    check_slave(master, our_slave(servers, "last-file", master, syncFromLastFile="true"), last)
    master.stop()
    (master.store / "commitlog" / f"{0:020d}").unlink()
    master.start()
    check_slave(master, our_slave(servers, "what-is-left", master), MAPPED_FILE_SIZE)


@pytest.mark.parametrize("from_last_file", [False, True])
def test_a_java_slave_gets_what_our_master_is_told_to_send(
    version: str, runtime: JavaRuntime, servers: Servers, from_last_file: bool
) -> None:
    name_server = servers.name_server("namesrv")
    name_server.start()
    told = "true" if from_last_file else "false"
    master = servers.own_broker("master", namesrvAddr=name_server.address, syncFromLastFile=told)
    master.start()
    put(master, 45)
    # A 5.3.1 slave follows no haMasterAddress: a name server has to tell.
    address = {"haMasterAddress": master.ha_address} if version == "4.9.7" else {}
    slave = servers.java_broker(
        "slave",
        runtime,
        brokerRole="SLAVE",
        brokerId=1,
        namesrvAddr=name_server.address,
        haSendHeartbeatInterval=REPORT_MS,
        **address,
    )
    slave.start()
    begin = (FILES - 1) * MAPPED_FILE_SIZE if from_last_file else 0
    wait_for_same_log(master, slave, begin=begin)
    put(master, 2)
    wait_for_same_log(master, slave, begin=begin)
    wait_for_same_queues(master, slave, begin)
