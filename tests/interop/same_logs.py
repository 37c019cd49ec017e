"""Whether two brokers have the same log, byte for byte; where not, what differs and what both brokers logged."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from tests.worlds.java_broker import REPLICATION_TIMEOUT_S, commit_log_files
from tests.worlds.server_process import ServerFailed, ServerProcess

_SHOWN_BYTES = 16

#: Commit-log files that hold anything, by their start offset.
LogFiles = Mapping[int, bytes]


def log_difference(master: LogFiles, slave: LogFiles) -> str:
    """The first difference between two logs, by its offset; empty if there is none."""
    for begin in sorted(master.keys() | slave.keys()):
        ours, theirs = master.get(begin), slave.get(begin)
        if ours is None or theirs is None:
            return (
                f"the {'master' if ours is None else 'slave'} has no file {begin}: {sorted(master)} and {sorted(slave)}"
            )
        if len(ours) != len(theirs):
            return f"file {begin} has {len(ours)} bytes at the master, {len(theirs)} at the slave"
        if ours != theirs:
            at = next(at for at in range(len(ours)) if ours[at] != theirs[at])
            shown = slice(at, at + _SHOWN_BYTES)
            return (
                f"offset {begin + at}: the master has {ours[shown].hex()}, the slave {theirs[shown].hex()}; "
                f"the last byte that is not 0 is at {_end(master)} and {_end(slave)}"
            )
    return ""


def _end(files: LogFiles) -> int:
    last = max(files)
    return last + len(files[last].rstrip(b"\0")) - 1


def wait_for_same(master: ServerProcess, slave: ServerProcess, differs: Callable[[], str]) -> None:
    """Return when `differs` says nothing more. Raises `ServerFailed` with what it said last, and both logs' ends."""
    said = ""

    def same() -> bool:
        nonlocal said
        said = differs()
        return not said

    try:
        slave.wait_until(same, REPLICATION_TIMEOUT_S, "the slave has what the master has")
    except ServerFailed as error:
        raise ServerFailed(f"{said}\nthe slave: {error}\nthe master: {master.log_end()}") from error


def wait_for_same_log(master: ServerProcess, slave: ServerProcess, *, begin: int = 0) -> None:
    """Return when the slave's log is the master's from `begin` on, and has nothing before that."""

    def differs() -> str:
        files = {start: data for start, data in commit_log_files(_store(master)).items() if start >= begin}
        return log_difference(files, commit_log_files(_store(slave))) or ("" if begin in files else "no log")

    wait_for_same(master, slave, differs)


def _store(broker: ServerProcess) -> Path:
    return broker.directory / "store"
