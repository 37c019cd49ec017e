"""How long a put takes that waits for a slave, beside RocketMQ's own. `python -m tests.bench.sync_puts --help`.

A master (SYNC_MASTER, ASYNC_FLUSH) and a slave on loopback, a process each, and the same master alone (ASYNC_MASTER):
what the first takes longer is what replication adds. Both are called through the store's interface: put_message here,
asyncPutMessage there, from one thread, with so many puts of 1 KiB under way. Latencies are wall time: they mean little
on a busy machine, but in pairs.

`ping_pong.py` runs in the same rounds: the bytes of a put there and those of a report back, and nothing else, in Trio
and over blocking sockets. No slave adds less.

In RocketMQ 4.9.7 WriteSocketService polls its socket and is notified of puts; ReadSocketService notes the report and
notifies GroupTransferService, which goes through the requests that it has swapped in, one after another, and
completes each one's future itself.
"""

from __future__ import annotations

import functools
import itertools
import statistics
from collections.abc import Mapping

from tests.bench import ping_pong
from tests.bench.measuring import Figure, arguments, report
from tests.bench.store_runs import (
    OURS,
    ROCKETMQ,
    StoreProgram,
    Turns,
    scratch_directory,
    store_programs,
    take_turns,
)
from tests.worlds.server_process import free_broker_port

BODY_BYTES = 1024
FILE_BYTES = 1 << 30
#: Puts under way, and how many are measured.
MESSAGES = {1: 6_400, 32: 32_000}
#: Before they are measured; Java's compiler needs more.
WARM_UP = {OURS: 1_600, ROCKETMQ: 25_600}
GOAL = 0.4


def put(program: StoreProgram, in_flight: int, *, with_slave: bool) -> Mapping[str, float]:
    """What the master says of its puts, and CPU time of both ends."""
    messages = MESSAGES[in_flight]
    port = free_broker_port() if with_slave else 0
    with scratch_directory() as stores:
        command = ("puts", stores / "master", port, BODY_BYTES, in_flight, messages, WARM_UP[program.name])
        with program.running(*command) as master:
            if not with_slave:
                master.numbers()
                return {**master.numbers(), "messages": messages}
            with program.running("follow", stores / "slave", FILE_BYTES, f"127.0.0.1:{port}", 1) as slave:
                master.numbers()
                began_s = slave.cpu_s()
                return {**master.numbers(), "messages": messages, "slave_cpu_s": slave.cpu_s() - began_s}


def case_name(program: str, in_flight: int, *, with_slave: bool) -> str:
    """The name of a case: program, puts in flight, with a slave or without."""
    return f"{program}, {in_flight} {'SYNC' if with_slave else 'alone'}"


def figures_of(turns: Turns, case: str) -> list[Figure]:
    """The rows of one case."""
    figures = [
        turns.figure(f"{case}: p50", "us", case, lambda run: run["p50_us"]),
        turns.figure(f"{case}: p99", "us", case, lambda run: run["p99_us"]),
        turns.figure(case, "puts/s", case, lambda run: run["messages"] / run["wall_s"], per_second=True),
        turns.figure(f"{case}: CPU of master", "us/put", case, lambda run: run["cpu_s"] / run["messages"] * 1e6),
    ]
    if "slave_cpu_s" in turns.values[case][0]:
        figures.append(
            turns.figure(
                f"{case}: CPU of slave", "us/put", case, lambda run: run["slave_cpu_s"] / run["messages"] * 1e6
            )
        )
    return figures


def added_us(turns: Turns, program: str, in_flight: int) -> list[float]:
    """What replication adds to the p50, round by round."""
    names = (case_name(program, in_flight, with_slave=with_slave) for with_slave in (True, False))
    pairs = zip(*(turns.values[name] for name in names), strict=True)
    return [with_slave["p50_us"] - alone["p50_us"] for with_slave, alone in pairs]


def main() -> None:
    """Measure and print."""
    options = arguments(__doc__, rounds=5)
    with store_programs() as (programs, notes):
        cases = {
            case_name(name, in_flight, with_slave=with_slave): functools.partial(
                put, program, in_flight, with_slave=with_slave
            )
            for in_flight, with_slave, (name, program) in itertools.product(MESSAGES, (False, True), programs.items())
        }
        there_and_back = {f"bare {kind}, 1": functools.partial(ping_pong.run, kind) for kind in ping_pong.KINDS}
        turns = take_turns({**cases, **there_and_back}, options.rounds)
    figures = list(itertools.chain.from_iterable(figures_of(turns, case) for case in cases))
    for case in there_and_back:
        figures.append(turns.figure(f"{case}: p50", "us", case, lambda run: run["p50_us"]))
        figures.append(turns.figure(f"{case}: p99", "us", case, lambda run: run["p99_us"]))
        figures.append(turns.figure(f"{case}: CPU of who sends the put", "us/put", case, lambda run: run["cpu_us"]))
        figures.append(turns.figure(f"{case}: CPU of who reports", "us/put", case, lambda run: run["answerer_cpu_us"]))
    for in_flight in MESSAGES:
        added = {name: added_us(turns, name, in_flight) for name in programs}
        for name, values in added.items():
            spread = (min(values), statistics.median(values), max(values))
            words = " / ".join(f"{value:,.0f}" for value in spread)
            notes.append(f"{in_flight} in flight, {name}: replication adds {words} us to the p50")
        if ROCKETMQ in programs:
            ratio = statistics.median(map(lambda one, two: one / two, added[OURS], added[ROCKETMQ]))
            goal = f" (goal: {GOAL})" if in_flight == 1 else ""
            notes.append(f"{in_flight} in flight: {ratio:.2f} of what it adds to RocketMQ's, median of pairs{goal}")
    report(figures, notes=notes, as_json=options.json)


if __name__ == "__main__":
    main()
