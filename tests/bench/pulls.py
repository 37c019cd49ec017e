"""PULL_MESSAGE at a whole broker: CPU time of its process a pull of 32 messages of 1 KiB, out of mapped memory.

`python -m tests.bench.pulls --help`. Requests as Java's push consumer sends them, with the subscription of each pull in
it; every connection pulls other messages, again and again. Beside each figure that of a bare Trio loop which answers as
many bytes (`remoting_server`), in the same round.
"""

from __future__ import annotations

import itertools
import statistics
import sys
from collections.abc import Mapping

from rmq_actors.wire.remoting_command import RemotingCommand, encode_command
from rmq_actors.wire.request_code import RequestCode
from tests.bench.measuring import arguments, hardware
from tests.bench.remoting_requests import BARE, OPAQUE, Run, Shape, server_process
from tests.bench.send_lane import broker_process, request
from tests.bench.send_load import made_by, measure

BROKER = "broker"
MESSAGES = 32
BODY_BYTES = 1024
GOAL_US = 40.0
SHAPES = (Shape(BODY_BYTES, 1, 1), Shape(BODY_BYTES, 8, 1), Shape(BODY_BYTES, 8, 4))
#: Of a record, with its topic and properties.
_RECORD_BYTES = BODY_BYTES + 230
_SUSPEND, _SUBSCRIPTION = 2, 4
_QUEUE = 2


def pull(offset: int, *, subscription: str) -> bytes:
    """A PULL_MESSAGE as Java's client sends it."""
    fields = {
        "consumerGroup": "ConsumerGroupName", "topic": "TopicTest", "queueId": str(_QUEUE), "queueOffset": str(offset),
        "maxMsgNums": str(MESSAGES), "sysFlag": str(_SUSPEND | _SUBSCRIPTION), "commitOffset": "0",
        "suspendTimeoutMillis": "15000", "subscription": subscription, "subVersion": "1700000000123",
        "expressionType": "TAG", "bname": "broker-a",
    }  # fmt: skip
    command = RemotingCommand(RequestCode.PULL_MESSAGE, fields, opaque=OPAQUE)
    command.language = "JAVA"
    return encode_command(command)


def take_turns(rounds: int) -> Mapping[tuple[Shape, str], list[Run]]:
    """Each shape in each round, with each server."""
    runs: dict[tuple[Shape, str], list[Run]] = {}
    with broker_process("lane") as broker, server_process(BARE, answer_body_bytes=MESSAGES * _RECORD_BYTES) as bare:
        measure(broker, Shape(BODY_BYTES, 1, 32), [request(BODY_BYTES, _QUEUE)])
        pulls = [pull(MESSAGES * number, subscription="*") for number in range(8)]
        by_tag = [pull(MESSAGES * number, subscription="TagA || TagB") for number in range(8)]
        servers = {BROKER: (broker, pulls), "broker, by tag": (broker, by_tag), BARE: (bare, pulls)}
        for _, shape, (name, (server, frames)) in itertools.product(range(rounds), SHAPES, servers.items()):
            runs.setdefault((shape, name), []).append(measure(server, shape, frames))
    return runs


def main() -> None:
    """Measure and print."""
    options = arguments(__doc__, rounds=5)
    runs = take_turns(options.rounds)
    sys.stdout.write(f"{hardware()}; the load is made by {made_by()}\n")
    sys.stdout.write(
        f"CPU us a pull of {MESSAGES} messages (min, median, max), pulls a second; goal {GOAL_US:.0f} us\n"
    )
    for (shape, server), of_shape in runs.items():
        costs_us = sorted(run.cpu_us for run in of_shape)
        bare = [run.cpu_us for run in runs[shape, BARE]]
        times = statistics.median(run.cpu_us / other for run, other in zip(of_shape, bare, strict=True))
        name = f"{shape.connections} x {shape.in_flight:<3} {server:15}"
        spread = f"{costs_us[0]:7.1f} {statistics.median(costs_us):7.1f} {costs_us[-1]:7.1f}"
        per_second = statistics.median(run.per_second for run in of_shape)
        sys.stdout.write(f"{name} {spread} {per_second:10,.0f} {times:6.1f} x bare\n")


if __name__ == "__main__":
    main()
