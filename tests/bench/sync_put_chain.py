"""Where the time of a put goes that waits for a slave. `python -m tests.bench.sync_put_chain --help`.

A master and a slave on loopback, a process each, as in `sync_puts`, with one put in flight; here both keep their trace,
and its times are of one clock. Beside them, in the same rounds, the bytes alone there and back (`ping_pong.py`): two
sends, wake-ups and receives without anything done in between. With `--busy` a process of the lowest priority keeps each
core awake meanwhile: what is then saved was the waking of idle cores.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import trio

from rmq_actors.broker.broker_controller import BrokerController, open_broker
from rmq_actors.broker.config import BrokerConfig
from rmq_actors.ha.config import HaConfig
from rmq_actors.protocols.put_completion import PutStatus
from rmq_actors.real_io.environment import real_environment
from rmq_actors.store.config import BrokerRole, MessageStoreConfig
from rmq_actors.tracing.event import RunInfo
from rmq_actors.tracing.recorder import Recorder
from rmq_actors.wire.record import Message
from tests.bench import ping_pong
from tests.bench.measuring import Figure, bare_checkpoint_us, report
from tests.bench.store_runs import scratch_directory
from tests.bench.sync_puts import BODY_BYTES, MESSAGES
from tests.worlds.server_process import free_broker_port

_COUNT, _WARM_UP = MESSAGES[1], 1_600
#: The events of the chain, with what each one's offset is of the record: where it begins, or where it ends.
_STEPS = (
    ("the master encodes and appends", "ha.transfer"),
    ("there: send, wake-up, receive, append", "log.append"),
    ("the slave comes to its report", "ha.client.report"),
    ("back: send, wake-up, receive", "ha.report"),
    ("the master answers, who waits goes on", "end"),
)
_THERE_AND_BACK = (1, 3)


def new_recorder() -> Recorder:
    """Keeps all, with times of the clock that the machine's processes share."""
    return Recorder(RunInfo("bench", "chain", 0, source="broker"), lambda: (None, time.perf_counter_ns()))


def times_of(recorder: Recorder, kinds: Sequence[str]) -> list[tuple[str, int, int]]:
    """Kind, where the record ends, and time of each event of these kinds."""
    return [
        (event.kind, (event.offset or 0) + (event.size or 0), event.wall_time_ns)
        for event in recorder.events
        if event.kind in kinds
    ]


def broker_config(role: BrokerRole, ha: HaConfig) -> BrokerConfig:
    """Default settings, but for the role and where the master is."""
    return BrokerConfig("bench", MessageStoreConfig(broker_role=role), ha)


async def master(directory: Path, port: int) -> None:
    """Put one after another, and print the times of each."""
    recorder = new_recorder()
    config = broker_config(BrokerRole.SYNC_MASTER, HaConfig(ha_listen_port=port))
    async with open_broker(config, real_environment(directory), recorder.tracer("master")) as broker:
        with trio.fail_after(60):
            await broker.store.wait_for_slaves(1)
        puts = await put_all(broker)
        say([*puts, *times_of(recorder, ("ha.transfer", "ha.report"))])
        await trio.sleep_forever()


async def put_all(broker: BrokerController) -> list[tuple[str, int, int]]:
    """When each put began and ended."""
    times = []
    for number in range(_WARM_UP + _COUNT):
        message = Message("TopicBench", bytes(BODY_BYTES), number % 4, {"UNIQ_KEY": f"{number:032}"})
        began = time.perf_counter_ns()
        result = await broker.put_message(message)
        ended = time.perf_counter_ns()
        if result.append is None or result.status is not PutStatus.PUT_OK:
            raise RuntimeError(f"a put was answered {result}")
        times += [("begin", result.append.end_offset, began), ("end", result.append.end_offset, ended)]
    return times


async def slave(directory: Path, address: str) -> None:
    """Follow until a line comes, and print the times of each append and report."""
    recorder = new_recorder()
    config = broker_config(BrokerRole.SLAVE, HaConfig(ha_listen_port=0, ha_master_address=address))
    async with open_broker(config, real_environment(directory), recorder.tracer("slave")):
        await trio.to_thread.run_sync(sys.stdin.readline)
        say(times_of(recorder, ("log.append", "ha.client.report")))
        await trio.sleep_forever()


def say(times: Sequence[tuple[str, int, int]]) -> None:
    """Print as one line of JSON."""
    sys.stdout.write(json.dumps(times) + "\n")
    sys.stdout.flush()


def chain() -> Mapping[str, float]:
    """One pair of processes: the median of each step, and of the whole, in us."""
    module, port = (sys.executable, "-m", "tests.bench.sync_put_chain"), free_broker_port()
    with (
        scratch_directory() as stores,
        started(*module, "master", stores / "master", port) as putting,
        started(*module, "slave", stores / "slave", f"127.0.0.1:{port}") as following,
    ):
        times = heard(putting)
        assert following.stdin is not None
        following.stdin.write("\n")
        following.stdin.flush()
        times += heard(following)
    by_put: dict[int, dict[str, int]] = {}
    for kind, end_offset, time_ns in times:
        by_put.setdefault(end_offset, {}).setdefault(kind, time_ns)
    kinds = ("begin", *(kind for _, kind in _STEPS))
    puts = [put for _, put in sorted(by_put.items()) if all(kind in put for kind in kinds)][-_COUNT:]
    if len(puts) < _COUNT:
        raise RuntimeError(f"of {_WARM_UP + _COUNT} puts, {len(puts)} went through the whole chain")
    steps = {
        name: statistics.median(put[kind] - put[before] for put in puts) / 1000
        for (name, kind), before in zip(_STEPS, kinds, strict=False)
    }
    return {**steps, "the whole put": statistics.median(put["end"] - put["begin"] for put in puts) / 1000}


@contextlib.contextmanager
def started(*command: object) -> Iterator[subprocess.Popen[str]]:
    """A process, killed at the end of the block."""
    with subprocess.Popen(
        [str(part) for part in command], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def heard(process: subprocess.Popen[str]) -> list[tuple[str, int, int]]:
    """The times that it prints."""
    assert process.stdout is not None
    line = process.stdout.readline()
    if not line:
        raise RuntimeError(f"a process ended: {process.args!r}")
    return [(kind, end_offset, time_ns) for kind, end_offset, time_ns in json.loads(line)]


@contextlib.contextmanager
def cores_kept_awake() -> Iterator[None]:
    """A process on each core that does nothing, and gives way to all others."""
    with contextlib.ExitStack() as processes:
        for _ in range(os.cpu_count() or 1):
            processes.enter_context(started("nice", "-n", "19", sys.executable, "-c", "while True: pass"))
        yield


def main() -> None:
    """Measure and print, or be one of the two."""
    if sys.argv[1:2] == ["master"]:
        trio.run(master, Path(sys.argv[2]), int(sys.argv[3]))
    if sys.argv[1:2] == ["slave"]:
        trio.run(slave, Path(sys.argv[2]), sys.argv[3])
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5, help="rounds a figure (default 5)")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--busy", action="store_true", help="keep all cores awake")
    options = parser.parse_args()
    cases: dict[str, Callable[[], Mapping[str, float]]] = {"": chain}
    cases |= {f"bare {kind}": functools.partial(ping_pong.run, kind) for kind in ping_pong.KINDS}
    values: dict[str, list[float]] = {}
    checkpoint_us = []
    with cores_kept_awake() if options.busy else contextlib.nullcontext():
        for _ in range(options.rounds):
            checkpoint_us.append(bare_checkpoint_us())
            for case, run in cases.items():
                for name, value in run().items():
                    values.setdefault(f"{case} {name}".strip(), []).append(value)
    steps = [name for name, _ in _STEPS]
    both_ways = [sum(times) for times in zip(*(values[steps[at]] for at in _THERE_AND_BACK), strict=True)]
    values["there and back, of it all"] = both_ways
    figures = [Figure(name, "us", of, checkpoint_us) for name, of in values.items()]
    note = "cores kept awake" if options.busy else "cores idle between"
    report(
        figures, notes=[f"medians of {_COUNT} puts, one in flight, of {BODY_BYTES} bytes; {note}"], as_json=options.json
    )


if __name__ == "__main__":
    main()
