"""RocketMQ's Go client v2, unmodified, with this project's broker and name server: one program for all cases."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.interop.servers import Servers
from tests.worlds.go_tools import go_program
from tests.worlds.java_process import JavaRuntime
from tests.worlds.java_tools import ToolMissing

pytestmark = [pytest.mark.processes, pytest.mark.timeout(900)]

SOURCE = Path(__file__).parent / "go_clients"
MEGABYTE = 1024 * 1024
KINDS = [
    "100000 bytes",
    *(f"async {number}" for number in range(10)),
    *(f"batch {number}" for number in range(10)),
    *(f"oneway {number}" for number in range(5)),
    *(f"sync {number}" for number in range(10)),
]
ORDERS = [[f"order-{order} {number:02}" for number in range(order, 30, 3)] for order in range(3)]


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Any]:
    """What the program says of each case."""
    try:
        program = go_program(SOURCE)
    except ToolMissing as missing:
        pytest.skip(str(missing))
    directory = tmp_path_factory.mktemp("go")
    with contextlib.closing(Servers(directory, JavaRuntime("no java", ""))) as servers:
        name_server = servers.name_server("namesrv")
        name_server.start()
        broker = servers.broker_command(
            "broker", brokerName="b", namesrvAddr=name_server.address, mappedFileSizeCommitLog=MEGABYTE
        )
        broker.start()
        # The client keeps the offsets of broadcasts at home.
        home = os.environ | {"HOME": str(directory)}
        done = subprocess.run(
            [program, name_server.address], env=home, capture_output=True, text=True, check=False, timeout=300
        )
        assert done.returncode == 0, f"{done.stderr}\n{broker.log_end()}"
    lines = map(json.loads, done.stdout.splitlines())
    return {line["case"]: line["result"] for line in lines}


def test_it_sends_batches(told: Mapping[str, Any]) -> None:
    assert told["send"] == {"ids of a batch": 10}


def test_what_was_sent_in_each_way_is_consumed_once(told: Mapping[str, Any]) -> None:
    assert told["concurrent"] == KINDS
    assert told["pull"] == sorted([*KINDS, "later"])


def test_each_order_has_a_queue_and_comes_in_order(told: Mapping[str, Any]) -> None:
    assert told["queues of an order"] == [1, 1, 1]
    for order in ORDERS:
        (queue,) = [bodies for bodies in told["orderly"].values() if order[0] in bodies]
        assert [body for body in queue if body in order] == order


def test_each_consumer_of_a_broadcast_gets_every_message(told: Mapping[str, Any]) -> None:
    assert told["broadcast"] == [sorted(itertools.chain(*ORDERS))] * 2


def test_tags_keys_and_text_of_every_kind(told: Mapping[str, Any]) -> None:
    assert told["tags"] == ["grüße 日本 🙂"]
    assert told["properties"] == {"keys": "key-1", "größe": "Straße 🙂"}
