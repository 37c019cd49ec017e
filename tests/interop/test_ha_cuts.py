"""The transfer ends, or a side is killed, at a chosen byte of a frame: in its header, in a record, at its end.

Java is on the other end of each connection, as the slave or as the master.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Literal

import attrs
import pytest

from rmq_actors.wire.ha_frames import TRANSFER_HEADER_BYTES
from tests.interop.ha_proxy import HaProxy, Part, open_ha_proxy
from tests.interop.same_logs import wait_for_same_log
from tests.interop.servers import Servers
from tests.worlds.java_broker import JavaBroker
from tests.worlds.java_client import JavaClient
from tests.worlds.java_process import JavaRuntime
from tests.worlds.own_broker import OwnBroker

pytestmark = [pytest.mark.interop, pytest.mark.timeout(600)]

TOPIC = "TopicInterop"
#: A 4.9 slave begins with its first report, which it otherwise sends after 5 seconds.
REPORT_MS = 500
#: Where a slave that asks a name server finds its master's HA port: the proxy.
PROXY_HOST = "127.0.0.2"

#: Of one message that is put here, in the log.
RECORD_BYTES = 10_125

Broker = JavaBroker | OwnBroker


@attrs.frozen
class Cut:
    """Where the transfer is held, and who is killed then; without anybody the connection alone ends."""

    where: str
    part: Part
    kills: Literal["nobody", "slave", "master"]


def _in_a_record(size: int) -> int:
    return TRANSFER_HEADER_BYTES + size // 2


def _whole(size: int) -> int:
    return TRANSFER_HEADER_BYTES + size


CUTS = (
    Cut("in a header", lambda size: 5, "nobody"),
    Cut("in a record", _in_a_record, "slave"),
    Cut("in a record", _in_a_record, "master"),
    Cut("at a frame's end", _whole, "nobody"),
)
#: Of our slaves: a Java slave waits 5 seconds before it connects again.
MORE_CUTS = (
    Cut("behind a header", lambda size: TRANSFER_HEADER_BYTES, "slave"),
    Cut("in a record", _in_a_record, "nobody"),
    Cut("at a frame's end", _whole, "master"),
)


@pytest.fixture
def runtimes(java_runtime: JavaRuntime, java_runtime_5: JavaRuntime) -> Mapping[str, JavaRuntime]:
    """Of the Java brokers, by version."""
    return {"4.9.7": java_runtime, "5.3.1": java_runtime_5}


def put(master: Broker) -> None:
    """Some messages, of two or three frames."""
    with JavaClient.connect(master.listen_port) as client:
        for number in range(4):
            response = client.send_message(TOPIC, b"%d " % number * 5_000)
            assert response.code == 0, response


def cut_each(
    master: Broker, slave: Broker, proxy: HaProxy, cuts: Sequence[Cut], *, held_back_bytes_max: int = 0
) -> None:
    """After each cut the slave begins where it should, and the logs end the same.

    Our slave keeps a part of a record in memory, and asks again for all of it: for so much less than it was sent.
    """
    master.start()
    slave.start()
    put(master)
    wait_for_same_log(master, slave)
    for cut in cuts:
        proxy.hold_at(cut.part)
        put(master)
        held = proxy.wait_held()
        victim = {"nobody": None, "slave": slave, "master": master}[cut.kills]
        if victim is not None:
            victim.kill()
        proxy.release()
        if victim is not None:
            victim.start()
        asked = proxy.next_first_report()
        # A store that was killed begins again after its last whole record.
        earliest = 0 if cut.kills == "slave" else held.end_offset - held_back_bytes_max
        expected = earliest <= asked <= held.end_offset
        assert expected, f"{cut.where}, {cut.kills} killed: {held}, and the slave asks for {asked}\n{slave.log_end()}"
        wait_for_same_log(master, slave)


def java_slave_of_ours(servers: Servers, runtime: JavaRuntime, every: int) -> None:
    # A 5.3.1 slave follows no haMasterAddress: a name server has to tell.
    name_server = servers.name_server("namesrv")
    name_server.start()
    master = servers.own_broker("our-master", namesrvAddr=name_server.address, brokerIP2=PROXY_HOST)
    ha_port = master.listen_port + 1
    slave = servers.java_broker(
        "java-slave",
        runtime,
        brokerRole="SLAVE",
        brokerId=1,
        namesrvAddr=name_server.address,
        haSendHeartbeatInterval=REPORT_MS,
    )
    with open_ha_proxy((PROXY_HOST, ha_port), ("127.0.0.1", ha_port)) as proxy:
        cut_each(master, slave, proxy, CUTS[every - 1 :: every])


def our_slave_of_java(servers: Servers, runtime: JavaRuntime, every: int) -> None:
    master = servers.java_broker("java-master", runtime)
    with open_ha_proxy(("127.0.0.1", 0), ("127.0.0.1", master.listen_port + 1)) as proxy:
        slave = servers.own_broker(
            "our-slave", brokerRole="SLAVE", brokerId=1, haMasterAddress=proxy.address, masterAddr=master.address
        )
        cut_each(master, slave, proxy, (*CUTS, *MORE_CUTS)[::every], held_back_bytes_max=RECORD_BYTES - 1)


@pytest.mark.parametrize(
    ("version", "every"),
    [
        pytest.param("4.9.7", 2, id="4.9.7, every second cut"),
        pytest.param("4.9.7", 1, id="4.9.7", marks=pytest.mark.long),
        pytest.param("5.3.1", 1, id="5.3.1", marks=pytest.mark.long),
    ],
)
def test_cuts_and_kills_at_any_byte_of_a_frame(
    version: str, every: int, runtimes: Mapping[str, JavaRuntime], servers: Servers
) -> None:
    """In both roles beside each other: they mostly wait."""
    with ThreadPoolExecutor(2) as threads:
        for ended in [
            threads.submit(each, servers, runtimes[version], every) for each in (java_slave_of_ours, our_slave_of_java)
        ]:
            ended.result()
