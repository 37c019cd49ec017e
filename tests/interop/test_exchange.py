"""Two brokers in processes of their own exchange their roles again and again, under load, while the slave is stopped.

By the command, and by hand as docs/operating.md has it: nothing acknowledged is lost, replication goes on, and log and
tables are equal.
"""

from __future__ import annotations

import contextlib
import json
import random
import threading
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import attrs
import pytest
from typer.testing import CliRunner

from rmq_actors.cli.main import app
from rmq_actors.wire.request_code import OwnRequestCode
from rmq_actors.wire.response_code import ResponseCode
from tests.interop.broker_metadata import change_metadata, wait_for_same_metadata
from tests.interop.put_load import NAME, TOPIC
from tests.interop.same_logs import wait_for_same_log
from tests.worlds.java_broker import commit_log_files
from tests.worlds.java_client import SUCCESS, JavaClient
from tests.worlds.own_broker import OwnBroker
from tests.worlds.server_process import wait_until

#: Other machines may be four times as slow.
TIMEOUT_S = 120.0
_CONNECTIONS = 3
_PAUSE_S = 0.003
_BODY_BYTES = 2_000


@attrs.define
class Pair:
    """Both brokers, who is the master at the moment, and what its producers were told."""

    master: OwnBroker
    slave: OwnBroker
    role: str
    acknowledged: set[bytes] = attrs.field(factory=set)
    _stopping: threading.Event = attrs.field(factory=threading.Event)

    def put(self, connection: int) -> None:
        """Put to whoever takes it; what was refused is sent again under the next name."""
        number = 0
        while not self._stopping.is_set():
            with contextlib.suppress(OSError), JavaClient.connect(self.master.listen_port) as client:
                while not self._stopping.is_set():
                    name = f"put-{connection}-{number}".encode()
                    body = b"<%s>" % name + bytes([number % 251]) * (number * 977 % _BODY_BYTES)
                    number += 1
                    answer = client.send_message(TOPIC, body, queue_id=connection)
                    if answer.code == SUCCESS:
                        self.acknowledged.add(name)
                    time.sleep(_PAUSE_S)
                    if answer.code == ResponseCode.SERVICE_NOT_AVAILABLE:
                        break  # perhaps the other is the master by now

    def wait_acknowledged(self, count: int) -> None:
        """Return when so many puts were answered SUCCESS."""
        wait_until(lambda: len(self.acknowledged) > count, TIMEOUT_S, f"{count} puts")

    @contextlib.contextmanager
    def under_load(self) -> Iterator[None]:
        with ThreadPoolExecutor(_CONNECTIONS) as threads:
            running = [threads.submit(self.put, connection) for connection in range(_CONNECTIONS)]
            try:
                yield
            finally:
                self._stopping.set()
        for ended in running:
            ended.result()

    @contextlib.contextmanager
    def slave_stopped(self, rng: random.Random) -> Iterator[None]:
        """SIGSTOP at some time about the block's begin, for some time."""
        slave, after_s, length_s = self.slave, rng.uniform(0.0, 0.8), rng.uniform(0.1, 2.5)

        def stop() -> None:
            time.sleep(after_s)
            slave.pause()
            time.sleep(length_s)
            slave.resume()

        stopper = threading.Thread(target=stop)
        stopper.start()
        try:
            yield
        finally:
            stopper.join()

    # --- the operator -------------------------------------------------------------------------------------------------

    def exchange(self, how: str) -> None:
        if how == "command":
            done = run("exchange", self.master.address, self.slave.address)
            assert done == f"{self.slave.address} is the master now, {self.master.address} its slave\n"
        else:
            self.by_hand()
        self.master, self.slave = self.slave, self.master
        wait_until(lambda: state(self.slave).get("followed") is True, TIMEOUT_S, "the old master follows")

    def by_hand(self) -> None:
        master, slave = self.master, self.slave
        addresses = "--ha-master-address", slave.ha_address, "--master-addr", slave.address
        run("change-role", master.address, "SLAVE", *addresses)
        wait_until(lambda: end_of(master) == end_of(slave), TIMEOUT_S, "the slave has what the master has")
        run("change-role", slave.address, self.role)


def run(*arguments: str) -> str:
    """What `rmq-actors broker-admin` prints."""
    done = CliRunner().invoke(app, ["broker-admin", *arguments])
    assert done.exit_code == 0, done.output
    return done.output


def state(broker: OwnBroker) -> Mapping[str, object]:
    """What it says of itself (GET_REPLICATION_STATE); nothing while it changes its role."""
    answer = broker.call(OwnRequestCode.GET_REPLICATION_STATE, {})
    told: Mapping[str, object] = json.loads(answer.body) if answer.code == SUCCESS else {}
    return told


def end_of(broker: OwnBroker) -> object:
    """Where its log ends; something that nothing equals while it does not say."""
    return state(broker).get("maxOffset", object())


@contextlib.contextmanager
def pair(directory: Path, role: str) -> Iterator[Pair]:
    a, b = OwnBroker(directory / "a"), OwnBroker(directory / "b")
    a.properties = {"brokerName": "broker-a", "brokerRole": role, "mappedFileSizeCommitLog": 4 * 1024 * 1024}
    follows = {"haMasterAddress": a.ha_address, "masterAddr": a.address}
    b.properties = {**a.properties, "brokerRole": "SLAVE", "brokerId": 1, **follows}
    with contextlib.ExitStack() as stack:
        for broker in (a, b):
            broker.directory.mkdir()
            broker.start()
            stack.callback(broker.kill)
        wait_until(lambda: state(b).get("followed") is True, TIMEOUT_S, "the slave follows")
        yield Pair(a, b, role)


def check_exchanges(directory: Path, role: str, how: str, count: int) -> None:
    rng = random.Random(f"{role}/{how}")
    with pair(directory, role) as brokers:
        with brokers.under_load():
            for step in range(1, count + 1):
                brokers.wait_acknowledged(50 * step)
                change_metadata(brokers.master, TOPIC, step)
                with brokers.slave_stopped(rng):
                    brokers.exchange(how)
            before = len(brokers.acknowledged)
            brokers.wait_acknowledged(before + 50)
        wait_for_same_log(brokers.master, brokers.slave)
        for broker in (brokers.master, brokers.slave):
            log = b"".join(commit_log_files(broker.store).values())
            assert not brokers.acknowledged - set(NAME.findall(log))
            assert not list(broker.store.glob("cut/*"))
        wait_for_same_metadata(brokers.master, brokers.slave, TOPIC, count)


def test_an_exchange_by_command_under_load(tmp_path: Path) -> None:
    check_exchanges(tmp_path, "ASYNC_MASTER", "command", 1)


@pytest.mark.long
@pytest.mark.parametrize("role", ["ASYNC_MASTER", "SYNC_MASTER"])
@pytest.mark.parametrize("how", ["command", "by hand"])
def test_twenty_exchanges_under_load(tmp_path: Path, role: str, how: str) -> None:
    check_exchanges(tmp_path, role, how, 5)
