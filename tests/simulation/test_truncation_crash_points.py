"""A log that is cut while nobody has it open: at every crash, what is not in the log any more is kept aside, whole."""

from __future__ import annotations

import errno
import itertools
from collections.abc import Callable, Sequence
from typing import Literal

import attrs
import pytest

from rmq_actors.ports.environment import Environment
from rmq_actors.store.files.delay_offsets import DelayOffsets
from rmq_actors.store.files.store_checkpoint import Checkpoint
from rmq_actors.store.lifecycle.truncation import truncate_store
from rmq_actors.tracing.recorder import Tracer
from sim_net import DiskConfig, Fault, NodeFailed
from tests.worlds.store_workload import (
    CONFIG,
    LOG_FILE_BYTES,
    Ending,
    Ledger,
    Life,
    a_few_puts,
    busy,
    kill_at,
    live,
    log_file_begin,
    nothing,
    power_loss_at,
    records_of,
)


@attrs.define(eq=False)
class Cutting(Life):
    """Cuts the log instead of opening it to work."""

    end_offset: int = 0

    async def run(self, tracer: Tracer) -> None:
        # It is cut because its master has another one: what was acknowledged or read after it does not count.
        self.ledger.acknowledged.clear()
        self.ledger.read.clear()
        environment = Environment(self.node.disk, self.node.wall_clock, self.node.entropy)
        try:
            offsets = DelayOffsets.load(environment.disk)
            await truncate_store(CONFIG, environment, tracer, self.end_offset, offsets)
        except OSError as error:
            if error.errno != errno.EBADF:
                self.ledger.refused.append(str(error))


def log_before() -> bytes:
    """Several files' worth of log."""
    return live(1, Life(busy)).log


def record_ends(log: bytes) -> list[int]:
    return [record.end_offset for record in records_of(log, 0)]


def places(log: bytes) -> list[int]:
    """Where to cut: in the first, a middle and the last file, at the ends of files, at the log's first byte."""
    ends = record_ends(log)
    last_of_file = next(end for end, after in itertools.pairwise(ends) if after // LOG_FILE_BYTES)
    return [0, ends[2], last_of_file, ends[len(ends) // 2], ends[-3], ends[-1]]


def lost(files: dict[str, bytes], log: bytes) -> int:
    """How many bytes of `log` are neither in the files of the log nor in `cut/`."""
    left = bytearray(log)
    for path, data in files.items():
        directory, _, name = path.partition("/")
        if directory == "commitlog" or (directory == "cut" and name != "unfinished"):
            begin = log_file_begin(path.partition(".")[0])
            for offset, byte in enumerate(data, begin):
                if offset < len(log) and log[offset] == byte:
                    left[offset] = 0
    return len(left) - left.count(0)


def cut(seed: int, end_offset: int, *crashes: Fault, before: Ending = "stop", disk: DiskConfig | None = None) -> Ledger:
    """Work, cut, crash and open as often as there are crashes, cut again to the end, work on."""
    crashed: list[Life] = []
    for crash in crashes:
        crashed += [Cutting(nothing, faults=(crash,), end_offset=end_offset), Life(nothing)]
    lives: Sequence[Life] = (
        Life(busy, ends_by=before),
        *crashed,
        Cutting(nothing, end_offset=end_offset),
        Life(nothing),
        Life(a_few_puts),
        Life(nothing),
    )
    ledger = live(seed, *lives, disk=disk)
    assert not ledger.broken, (end_offset, ledger.broken[0])
    log = live(seed, Life(busy, ends_by=before), Life(nothing), disk=disk).log
    for number, files in enumerate(ledger.files):
        assert lost(files, log) == 0, (end_offset, number)
    assert ledger.log[:end_offset] == log[:end_offset]
    assert ledger.refused == []
    return ledger


def test_queues_index_and_checkpoint_follow_the_cut() -> None:
    log = log_before()
    for end_offset in places(log):
        ledger = cut(1, end_offset)
        checkpoint = Checkpoint.decode(ledger.files[1]["checkpoint"])
        point = checkpoint.recovery_point
        assert point is not None
        assert point.offset == end_offset
        # RocketMQ believes the stamps.
        assert checkpoint.physic_msg_timestamp_ms <= point.record_store_timestamp_ms
        assert ledger.recovery_points[2] == end_offset
        kept = {path for path in ledger.files[1] if path.startswith("cut/")}
        assert len(kept) == len({offset // LOG_FILE_BYTES for offset in range(end_offset, len(log))})


def test_a_cut_is_durable() -> None:
    for seed in range(8):
        log = live(seed, Life(busy)).log
        end_offset = record_ends(log)[-3 - seed]
        cutting = Cutting(nothing, end_offset=end_offset, ends_by="stop, then power loss")
        ledger = live(seed, Life(busy), cutting, Life(nothing))
        assert not ledger.broken, ledger.broken[0]
        assert ledger.log == log[:end_offset]


def test_what_was_cut_at_the_same_place_before_is_kept_too() -> None:
    log = log_before()
    end_offset = record_ends(log)[2]
    other = live(1, Life(busy), Cutting(nothing, end_offset=end_offset), Life(a_few_puts)).log
    assert other[end_offset:] != log[end_offset : len(other)]
    again = [Cutting(nothing, end_offset=end_offset), Life(nothing)]
    ledger = live(1, Life(busy), Cutting(nothing, end_offset=end_offset), Life(a_few_puts), *again, *again)
    assert not ledger.broken, ledger.broken[0]
    assert len(ledger.log) == end_offset
    for files in ledger.files[3:]:
        assert lost(files, log) == lost(files, other) == 0


def test_cut_after_a_crash() -> None:
    """The store need not have stopped in order."""
    log = log_before()
    for end_offset in places(log)[1:4]:
        cut(1, end_offset, before="kill")


def test_what_a_crash_left_is_durable_before_the_recovery_point_speaks_of_it() -> None:
    """Entries that the opening has dispatched again are in memory alone."""
    for seed in range(6):
        killed = Life(busy, faults=(kill_at(300 + 40 * seed),))
        end_offset = record_ends(live(seed, killed, Life(nothing)).log)[-2]
        cutting = Cutting(nothing, end_offset=end_offset, ends_by="stop, then power loss")
        ledger = live(seed, attrs.evolve(killed), cutting, Life(nothing), Life(a_few_puts), Life(nothing))
        assert not ledger.broken, (seed, ledger.broken[0])


@pytest.mark.parametrize("offset", [1, 177, -1, 10**6])
def test_a_log_is_cut_at_records_alone(offset: int) -> None:
    assert offset not in record_ends(log_before())
    with pytest.raises(NodeFailed, match=f"TruncationRefused: .*offset {offset}"):
        live(1, Life(busy), Cutting(nothing, end_offset=offset))


def operations(end_offset: int) -> int:
    """How many disk operations a truncation has, the opening among them."""
    return live(1, Life(busy), Cutting(nothing, end_offset=end_offset)).operations[1]


def survive(seed: int, end_offset: int, *crashes: Fault, disk: DiskConfig | None = None) -> None:
    cut(seed, end_offset, *crashes, disk=disk)


@pytest.mark.parametrize("kind", [power_loss_at, kill_at], ids=["power loss", "kill"])
def test_crashed_at_some_operations(kind: Callable[[int], Fault]) -> None:
    for end_offset in places(log_before())[1:4:2]:
        count = operations(end_offset)
        for operation in range(count, max(0, count - 36), -3):
            survive(operation, end_offset, kind(operation))


def test_crashed_twice() -> None:
    """The second one finds bytes kept already, and a log that is cut in part: nothing that is kept is overwritten."""
    end_offset = places(log_before())[1]
    count = operations(end_offset)
    for operation in range(count - 12, count, 3):
        for again in (count, count - 4):
            survive(operation, end_offset, power_loss_at(operation), power_loss_at(again))


@pytest.mark.long
@pytest.mark.parametrize("kind", [power_loss_at, kill_at], ids=["power loss", "kill"])
@pytest.mark.parametrize("place", range(6))
@pytest.mark.parametrize("unsynced", ["any", "prefix"])
def test_crashed_at_every_operation(
    unsynced: Literal["any", "prefix"], place: int, kind: Callable[[int], Fault]
) -> None:
    end_offset = places(log_before())[place]
    disk = DiskConfig(unsynced=unsynced)
    for operation in range(1, operations(end_offset) + 1):
        survive(operation, end_offset, kind(operation), disk=disk)
