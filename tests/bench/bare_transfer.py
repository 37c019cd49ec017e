"""What no slave can beat: a file's bytes over a blocking socket into a fresh file, in a process a side.

It takes the commands `serve` and `follow` of `store_runs.py`, prints the same numbers, and knows no frames, records or
queues. Each receive is written to a sparse file, as a log's file is when it is new; another thread syncs it as often as
both systems do (flushIntervalCommitLog).
"""

from __future__ import annotations

import json
import mmap
import os
import socket
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path

_SEND_BYTES = 1024 * 1024
#: As much as this project's slave receives at once: it is still in a core's cache when it is written.
_RECEIVE_BYTES = 512 * 1024
_SYNC_EVERY_S = 0.5


def serve(directory: Path, file_bytes: int, port: int) -> None:
    """Send the store's log file to whoever connects first."""
    with (
        (directory / "commitlog" / "00000000000000000000").open("rb") as file,
        socket.create_server(("127.0.0.1", port)) as server,
    ):
        view = memoryview(mmap.mmap(file.fileno(), file_bytes, access=mmap.ACCESS_READ))
        _say(end_offset=file_bytes)
        connection, _ = server.accept()
        position = 0
        while position < file_bytes:
            position += connection.send(view[position : position + _SEND_BYTES])
        time.sleep(3600)  # until it is killed: its CPU time is asked for


def follow(directory: Path, file_bytes: int, master: str, end_offset: int) -> None:
    """Write what arrives into a new file."""
    host, _, port = master.rpartition(":")
    directory.mkdir()
    buffer = memoryview(bytearray(_RECEIVE_BYTES))
    with (directory / "log").open("wb", buffering=0) as file, socket.create_connection((host, int(port))) as connection:
        file.truncate(file_bytes)
        connection.recv(1, socket.MSG_PEEK)
        threading.Thread(target=_sync_now_and_then, args=(file.fileno(),), daemon=True).start()
        began, cpu_began, position = time.perf_counter(), time.process_time(), 0
        while position < end_offset:
            size = connection.recv_into(buffer)
            os.pwrite(file.fileno(), buffer[:size], position)
            position += size
        log_s = time.perf_counter() - began
        _say(log_s=log_s, derived_s=log_s, cpu_s=time.process_time() - cpu_began)
        time.sleep(3600)


def _sync_now_and_then(descriptor: int) -> None:
    while True:
        time.sleep(_SYNC_EVERY_S)
        os.fdatasync(descriptor)


def _say(**numbers: float) -> None:
    sys.stdout.write(json.dumps(numbers) + "\n")
    sys.stdout.flush()


def main(arguments: Sequence[str]) -> None:
    """Run one command."""
    command, directory, file_bytes, *rest = arguments
    if command == "serve":
        serve(Path(directory), int(file_bytes), int(rest[0]))
    elif command == "follow":
        follow(Path(directory), int(file_bytes), rest[0], int(rest[1]))
    else:
        raise ValueError(f"{command!r} is neither serve nor follow")


if __name__ == "__main__":
    main(sys.argv[1:])
