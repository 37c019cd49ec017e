"""SEND_MESSAGE_V2 at a whole broker: CPU time of its process a message, through the send lane and without it.

`python -m tests.bench.send_lane --help`. JSON headers as Java's client writes them, 1 KiB bodies, UNIQ_KEY, KEYS and
TAGS, index on, ASYNC_FLUSH, files on disk, dispatch and flush included. The doors take turns; beside them the bare Trio
loop of the same round (`remoting_server`). Then the lane's own parts, each measured alone in this process.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import json
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

import trio

from rmq_actors.store.config import MessageStoreConfig
from rmq_actors.wire.frame_reader import FrameReader
from rmq_actors.wire.message_rows import MessageRow, encode_rows
from rmq_actors.wire.record import Message, encode_host, encode_message
from rmq_actors.wire.remoting_command import RemotingCommand, encode_command
from rmq_actors.wire.request_code import RequestCode
from rmq_actors.wire.send_rows import SendAnswers, SendRow, decode_row_or_command
from tests.bench.measuring import arguments, hardware
from tests.bench.remoting_requests import OPAQUE, Run, ServerProcess, Shape, server_process
from tests.bench.send_load import NUMBER_MARK, made_by, measure
from tests.worlds.store_on_disk import opened

DOORS = ("lane", "general")
BARE = "bare"
SHAPES = (Shape(1024, 4, 8), Shape(1024, 8, 32), Shape(1024, 32, 1))
_QUEUES = 4
_PART_ROWS, _PART_RECEIVES, _PART_ROUNDS = 32, 80, 7
Step = TypeVar("Step")
#: CPU microseconds a message, by connections and requests in flight.
GOALS_US = {(4, 8): 16.0, (8, 32): 11.0, (32, 1): 38.0}
#: On a disk, where the system's directory for temporary files may be in memory.
_DIRECTORY = Path("out")
_CONFIGURATION = """\
brokerName=broker-a
brokerRole=ASYNC_MASTER
flushDiskType=ASYNC_FLUSH
fetchNamesrvAddrByAddressServer=false
brokerIP1=127.0.0.1
listenPort={port}
storePathRootDir={directory}
mappedFileSizeCommitLog=1073741824
"""


@contextlib.contextmanager
def broker_process(door: str) -> Iterator[ServerProcess]:
    """Run a broker for the length of a block."""
    _DIRECTORY.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(dir=_DIRECTORY) as directory, socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
        free.close()
        configuration = Path(directory, "broker.conf")
        store = Path(directory, "store").absolute()
        configuration.write_text(_CONFIGURATION.format(port=port, directory=store), encoding="utf-8")
        command = [sys.executable, "-m", "tests.bench.send_broker", door, str(configuration)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            try:
                assert process.stdout is not None
                yield ServerProcess(int(process.stdout.readline()), process.pid)
            finally:
                process.kill()


def request(body_bytes: int, queue_id: int = 2) -> bytes:
    """A SEND_MESSAGE_V2 as Java's client sends it."""
    number = NUMBER_MARK.decode()
    keys = f"KEYS\x01OrderID{number}\x02UNIQ_KEY\x017F00000100002A139A5542CA{number}"
    fields = {
        "a": "ProducerGroupName", "b": "TopicTest", "c": "TBW102", "d": "4", "e": str(queue_id), "f": "0",
        "g": "1700000000123", "h": "0", "i": f"{keys}\x02WAIT\x01true\x02TAGS\x01TagA",
        "j": "0", "k": "false", "m": "false", "bname": "broker-a",
    }  # fmt: skip
    command = RemotingCommand(RequestCode.SEND_MESSAGE_V2, fields, opaque=OPAQUE, body=b"x" * body_bytes)
    command.language = "JAVA"
    return encode_command(command)


def take_turns(rounds: int) -> Mapping[tuple[Shape, str], list[Run]]:
    """Each shape in each round with each server, each time a fresh one."""
    runs: dict[tuple[Shape, str], list[Run]] = {(shape, name): [] for shape in SHAPES for name in (*DOORS, BARE)}
    for _, shape, name in itertools.product(range(rounds), SHAPES, (*DOORS, BARE)):
        with server_process(BARE) if name == BARE else broker_process(name) as server:
            frames = [request(shape.body_bytes, queue_id) for queue_id in range(_QUEUES)]
            if name != BARE:
                measure(server, Shape(shape.body_bytes, 1, 1), frames)  # makes the topic
            runs[shape, name].append(measure(server, shape, frames))
    return runs


def parts() -> dict[str, float]:
    """CPU microseconds a message of the lane's own parts, for a receive of `_PART_ROWS` messages."""
    data = request(1024) * _PART_ROWS
    host = encode_host("127.0.0.1:10911")
    reader, answers = FrameReader(), SendAnswers.of("DefaultRegion", "true", host)
    assert answers is not None

    def split() -> list[RemotingCommand | SendRow]:
        rest = memoryview(data)
        while rest:
            with reader.free_space() as space:
                count = min(len(space), len(rest))
                space[:count] = rest[:count]
            reader.received(count)
            rest = rest[count:]
        return reader.copied_frames(decode_row_or_command)

    received = [row for row in split() if isinstance(row, SendRow)]
    assert len(received) == _PART_ROWS

    def to_messages() -> list[MessageRow]:
        return [
            MessageRow(
                row.topic,
                row.queue_id,
                row.flag,
                row.sys_flag,
                row.born_timestamp_ms,
                0,
                row.body,
                row.properties + b"\x02CLUSTER\x01DefaultCluster",
                row.names,
                host,
            )
            for row in received
        ]

    def answer() -> bytes:
        return answers.frames([(offset, 2, 1, OPAQUE) for offset in range(_PART_ROWS)])

    alone = {name: _cpu_us(step) / _PART_ROWS for name, step in
             {"split and header": split, "checks": to_messages, "answer": answer}.items()}  # fmt: skip
    _DIRECTORY.mkdir(exist_ok=True)
    return alone | trio.run(_store_parts, to_messages(), host)


async def _store_parts(messages: Sequence[MessageRow], host: bytes) -> dict[str, float]:
    """Those of the store, on a disk: one receive after the other, until the fewest CPU time of each is known."""
    spent_us: dict[str, list[float]] = {"record": [], "append": [], "dispatch": []}

    def timed(name: str, step: Callable[[], Step]) -> Step:
        began = time.process_time()
        done = step()
        spent_us[name][-1] += (time.process_time() - began) * 1e6
        return done

    with tempfile.TemporaryDirectory(dir=_DIRECTORY) as directory:
        async with opened(Path(directory), MessageStoreConfig()) as files:
            log, reput = files.commit_log, files.reput
            reput.checks_rows = False
            log.append_message(encode_message(Message("TopicTest", b"")), 1)  # makes the first file
            reput.dispatch_some(log.max_offset)
            for _ in range(_PART_ROUNDS):
                for costs_us in spent_us.values():
                    costs_us.append(0.0)
                for _ in range(_PART_RECEIVES):
                    encoded = timed(
                        "record",
                        lambda: encode_rows(
                            messages,
                            store_host=host,
                            begin_offset=log.append_offset,
                            room_bytes=log.room_for_rows_bytes,
                            store_timestamp_ms=1,
                            max_message_size_bytes=1 << 22,
                            next_queue_offset=log.next_queue_offset,
                        ),
                    )
                    timed("append", functools.partial(log.append_rows, encoded))
                    reput.rows.put(encoded.requests, encoded.properties_bytes)
                    timed("dispatch", functools.partial(reput.dispatch_some, log.max_offset))
    return {name: min(costs_us) / _PART_RECEIVES / _PART_ROWS for name, costs_us in spent_us.items()}


def _cpu_us(step: Callable[[], object]) -> float:
    times = []
    for _ in range(7):
        began = time.process_time()
        for _ in range(200):
            step()
        times.append((time.process_time() - began) / 200 * 1e6)
    return min(times)


def main() -> None:
    """Measure and print."""
    options = arguments(__doc__, rounds=3)
    runs = take_turns(options.rounds)
    rows = [
        {
            "connections x in flight": f"{shape.connections} x {shape.in_flight}",
            "server": name,
            "cpu_us_min": min(run.cpu_us for run in runs[shape, name]),
            "cpu_us": statistics.median(run.cpu_us for run in runs[shape, name]),
            "cpu_us_max": max(run.cpu_us for run in runs[shape, name]),
            "times_bare": _times_bare(runs, shape, name),
            "goal_us": GOALS_US[shape.connections, shape.in_flight],
            "per_second": statistics.median(run.per_second for run in runs[shape, name]),
        }
        for shape, name in runs
    ]
    budget = parts()
    if options.json:
        sys.stdout.write(json.dumps({"hardware": hardware(), "rows": rows, "parts_us": budget}, indent=1) + "\n")
        return
    sys.stdout.write(
        f"{hardware()}; the load is made by {made_by()}\n"
        "CPU us a message (min, median, max), times the bare loop of the same round, messages a second, goal\n"
    )
    for row in rows:
        sys.stdout.write(
            "{connections x in flight:>8} {server:8} {cpu_us_min:7.1f} {cpu_us:7.1f} {cpu_us_max:7.1f} "
            "{times_bare:6.1f} {per_second:9,.0f} {goal_us:5.0f}\n".format_map(row)
        )
    sys.stdout.write(f"CPU us a message in a receive of {_PART_ROWS}, each part alone:\n")
    for name, cost_us in budget.items():
        sys.stdout.write(f"{name:32} {cost_us:6.2f}\n")
    for shape in SHAPES:
        lane, bare = (statistics.median(run.cpu_us for run in runs[shape, name]) for name in (DOORS[0], BARE))
        rest_us = lane - bare - sum(budget.values())
        sys.stdout.write(
            f"{shape.connections} x {shape.in_flight}: system calls and loop, as bare, {bare:.1f}; "
            f"all that is done once a receive or more seldom {rest_us:.1f}\n"
        )


def _times_bare(runs: Mapping[tuple[Shape, str], list[Run]], shape: Shape, name: str) -> float:
    """Of pairs of one round."""
    pairs = zip(runs[shape, name], runs[shape, BARE], strict=True)
    return statistics.median(run.cpu_us / bare.cpu_us for run, bare in pairs)


if __name__ == "__main__":
    main()
