"""Broker processes are killed under the load of a client that sends again: nothing acknowledged is lost, by itself.

Page caches survive a kill. What power losses do is tested in simulated worlds.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from rmq_actors.wire.ha_frames import TRANSFER_HEADER_BYTES
from rmq_actors.wire.request_code import RequestCode
from tests.interop.ha_proxy import open_ha_proxy
from tests.worlds.java_client import SUCCESS, JavaClient
from tests.worlds.own_broker import BrokerCommand
from tests.worlds.retrying_load import RetryingLoad, names_read, retrying_load
from tests.worlds.server_process import wait_until

pytestmark = [pytest.mark.processes, pytest.mark.timeout(900)]

#: How many messages are acknowledged before each kill, at least.
PUTS = 100
TIMEOUT_S = 60.0
CYCLES = [4, pytest.param(25, marks=pytest.mark.long)]


@pytest.fixture
def running() -> Iterator[ExitStack]:
    """Kills what still runs."""
    with ExitStack() as stack:
        yield stack


def broker(running: ExitStack, directory: Path, **properties: str | int) -> BrokerCommand:
    """A broker that is started, with its own directory."""
    directory.mkdir()
    made = BrokerCommand(directory, properties)
    running.callback(made.kill)
    made.start()
    return made


def wait_for_puts(load: RetryingLoad) -> None:
    """Return when some more messages are acknowledged."""
    goal = len(load.acknowledged) + PUTS
    wait_until(lambda: len(load.acknowledged) >= goal, TIMEOUT_S, f"{goal} messages are acknowledged")


def promote(slave: BrokerCommand) -> None:
    with JavaClient.connect(slave.listen_port) as client:
        response = client.call(RequestCode.UPDATE_BROKER_CONFIG, {}, b"brokerRole=SYNC_MASTER")
    assert response.code == SUCCESS, response.remark


@pytest.mark.parametrize("cycles", CYCLES)
def test_a_killed_broker_has_what_it_acknowledged(tmp_path: Path, running: ExitStack, cycles: int) -> None:
    """SYNC_FLUSH; the same broker is started again each time."""
    own = broker(running, tmp_path / "broker", flushDiskType="SYNC_FLUSH")
    with retrying_load(own.listen_port) as load:
        for _ in range(cycles):
            wait_for_puts(load)
            own.kill()
            before = set(load.acknowledged)
            own.start()
            assert before - names_read(own.listen_port) == set()
        wait_for_puts(load)
    assert load.acknowledged - names_read(own.listen_port) == set()


@pytest.mark.parametrize("cycles", CYCLES)
def test_a_promoted_slave_has_what_its_master_acknowledged(tmp_path: Path, running: ExitStack, cycles: int) -> None:
    """SYNC_MASTER. The killed master and its disk are gone; the slave is promoted, and gets a new slave.

    The kill comes when the network has taken a frame from the master, and given a part of it to the slave.
    """
    master = broker(running, tmp_path / "0", brokerRole="SYNC_MASTER")
    before = set[bytes]()
    with retrying_load(master.listen_port) as load:
        for cycle in range(1, cycles + 2):
            with open_ha_proxy(("127.0.0.1", 0), ("127.0.0.1", master.listen_port + 1)) as transfer:
                slave = broker(
                    running,
                    tmp_path / str(cycle),
                    brokerRole="SLAVE",
                    brokerId=1,
                    haMasterAddress=transfer.address,
                    masterAddr=master.address,
                )
                wait_for_puts(load)
                assert before - names_read(master.listen_port) == set()
                if cycle > cycles:
                    break
                transfer.hold_at(lambda size: TRANSFER_HEADER_BYTES + size // 2)
                transfer.wait_held()
                master.kill()
            before = set(load.acknowledged)
            promote(slave)
            load.port = slave.listen_port
            master = slave
