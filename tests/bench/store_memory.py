"""Private memory of a process that has a store of 20 GiB open. `python -m tests.bench.store_memory --help`.

The files are as large as RocketMQ's defaults make them, and sparse: a record in each, and a blank record to its end.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from pathlib import Path

from rmq_actors.store.files.layout import COMMIT_LOG_DIRECTORY, file_name
from rmq_actors.wire.record import Message, encode_blank, encode_message
from tests.bench.measuring import arguments, report
from tests.bench.store_runs import OURS, StoreProgram, scratch_directory, store_programs, take_turns

FILE_BYTES = 1024**3
FILES = 20
GOAL_MB = 200


def make_log(directory: Path) -> None:
    """A log of `FILES` files, with a record in each that goes to a queue of its own."""
    for number in range(FILES):
        begin = number * FILE_BYTES
        encoded = encode_message(Message(f"Topic{number}", b"body", properties={"UNIQ_KEY": f"key-{number}"}))
        encoded.place(queue_offset=0, physical_offset=begin, store_timestamp_ms=1_700_000_000_000 + number)
        path = directory / COMMIT_LOG_DIRECTORY / file_name(begin)
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("wb") as file:
            file.write(encoded.data + encode_blank(FILE_BYTES - len(encoded.data)))
            file.truncate(FILE_BYTES)


def open_log(program: StoreProgram) -> Mapping[str, float]:
    """Open a log without queues, and, after the kill, once more with them: what the larger of both took."""
    with scratch_directory() as directory:
        make_log(directory)
        runs = [program.run("open", directory) for _ in range(2)]
        if any(run["end_offset"] != FILES * FILE_BYTES for run in runs):
            raise RuntimeError(f"the log was not opened whole: {runs}")
        return max(runs, key=private_mb)


def private_mb(run: Mapping[str, float]) -> float:
    """Private memory in MB."""
    return run["private_kb"] / 1000


def main() -> None:
    """Measure and print."""
    options = arguments(__doc__, rounds=3)
    with store_programs() as (programs, _):
        turns = take_turns({OURS: functools.partial(open_log, programs[OURS])}, options.rounds)
    figure = turns.figure(f"{FILES} GiB open", "MB", OURS, private_mb, goal=str(GOAL_MB))
    report([figure], notes=["a multiple of checkpoints means nothing here"], as_json=options.json)


if __name__ == "__main__":
    main()
