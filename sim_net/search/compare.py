"""Run a program twice and name the first difference.

Two runs of one seed must take the same steps at the same times. `check_deterministic` runs a program, keeps what
entered the digest of each world in it, runs it again with its memory laid out differently, and stops the second run at
the first entry that is not as before. One process cannot show that an order depends on the hashes of strings: compare
digests of processes with different `PYTHONHASHSEED` for that.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final, Generic, TypeVar

import attrs
import trio

from sim_net.kernel.digest import Digest, digest_factory
from sim_net.kernel.entropy import derive
from sim_net.kernel.kernel import Kernel, SimulationError
from sim_net.kernel.task_tree import describe_task, describe_token, task_token
from sim_net.net.segment import describe_arrival

if TYPE_CHECKING:
    from trio.lowlevel import Task

T = TypeVar("T")

_CONTEXT_ENTRIES: Final = 12
_TEXT_MAX: Final = 200
_unpack_time = struct.Struct("<d").unpack

#: What an entry is: a step of a task, a new time, an arrival on the network, or data of the journal or the program.
_STEP, _TIME, _ARRIVAL, _DATA = range(4)
#: Kind, the piece of the digest, and the token of the task that was running (empty outside tasks).
_Entry = tuple[int, bytes, bytes]


@attrs.frozen
class Difference:
    """Where two runs of one program part."""

    #: Which of the program's worlds, from 0, and which entry of its digest, from 0.
    world: int
    entry: int
    #: Virtual time in seconds.
    time_s: float
    #: What each of the runs did there.
    first: str
    second: str
    #: The last entries that were equal, oldest first.
    before: tuple[str, ...]

    def __str__(self) -> str:
        """The report, over several lines."""
        lines = [
            f"two runs differ at {self.time_s} s (entry {self.entry} of world {self.world}):",
            f"  first run:  {self.first}",
            f"  second run: {self.second}",
            "equal just before:" if self.before else "nothing before that was equal",
            *(f"  {line}" for line in self.before),
            "what comes before a difference has made it: look for sets of objects, id(), hash(), unseeded randomness,",
            "state kept from an earlier run, real time",
        ]
        return "\n".join(lines)


class NotDeterministic(SimulationError):
    """Two runs of one seed were not the same."""

    def __init__(self, difference: Difference) -> None:
        super().__init__(str(difference))
        #: What differs, and where.
        self.difference = difference


@attrs.frozen
class _Ending(Generic[T]):
    """How a run of the program ended: one value or an error."""

    value: tuple[T, ...]
    error: Exception | None


class _Record:
    """What entered the digest of one world."""

    def __init__(self, entries_max: int) -> None:
        self._entries_max = entries_max
        self.entries: list[_Entry] = []
        self.count = 0
        self.digest = Digest()

    def take(self, entry: _Entry) -> None:
        if self.count < self._entries_max:
            self.entries.append(entry)
        self.count += 1

    def at(self, index: int) -> _Entry | None:
        return self.entries[index] if index < len(self.entries) else None

    def time_s(self, end: int) -> float:
        """The virtual time before entry `end`."""
        return next((_unpack_time(piece)[0] for kind, piece, _ in self.entries[:end][::-1] if kind == _TIME), 0.0)

    def before(self, end: int) -> tuple[str, ...]:
        begin = max(0, end - _CONTEXT_ENTRIES)
        time_s = self.time_s(begin) if begin else 0.0
        lines = []
        for entry in self.entries[begin:end]:
            if entry[0] == _TIME:
                time_s = _unpack_time(entry[1])[0]
            lines.append(f"{time_s:.6f} s: {_describe(entry)}")
        return tuple(lines)


class _RecordingDigest(Digest):
    """A digest that knows what its pieces are, and hands them on one by one."""

    def __init__(self, kernel: Kernel, take: Callable[[_Entry], object]) -> None:
        super().__init__()
        append, extend = self.add, self.add_steps

        def take_in(kind: int, piece: bytes) -> None:
            append(piece)
            take((kind, piece, b""))

        def add_steps(tokens: list[bytes]) -> None:
            extend(tokens)
            for token in reversed(tokens):
                take((_STEP, token, b""))

        self.add = lambda piece: take_in(_ARRIVAL, piece)
        self.add_step = lambda token: take_in(_STEP, token)
        self.add_steps = add_steps
        self.add_time = lambda piece: take_in(_TIME, piece)
        self._kernel = kernel
        self._append = append
        self._take = take

    def mix(self, data: bytes) -> None:
        """Take in `data` of any length."""
        self._append(len(data).to_bytes(4, "little"))
        self._append(data)
        self._take((_DATA, data, _running(self._kernel)))


class _Comparison:
    """The second run of one world, beside what the first has left."""

    def __init__(self, world: int, first: _Record, kernel: Kernel) -> None:
        self.difference: Difference | None = None
        self._world = world
        self._first = first
        self._kernel = kernel
        self._count = 0

    def take(self, entry: _Entry) -> None:
        """Compare one more entry; at the first difference, end the run."""
        if self.difference is not None:
            return
        index = self._count
        self._count += 1
        first = self._first
        if index < len(first.entries):
            if first.entries[index][:2] == entry[:2]:
                return
            then = _describe(first.entries[index], beside=entry)
        elif index < first.count:
            return
        else:
            then = "was over"
        self._differ(index, then, _describe(entry, self._kernel.tasks(), beside=first.at(index)))

    def finish(self) -> None:
        """The second run is over."""
        first = self._first
        if self.difference is not None:
            return
        if self._count < first.count:
            index = min(self._count, len(first.entries) - 1)
            self._differ(self._count, _describe(first.entries[index]), "was over")
        elif first.digest.hexdigest() != self._kernel.digest.hexdigest():
            kept = len(first.entries)
            somewhere = f"differs from the other after the first {kept} entries, the only ones kept (entries_max)"
            self._differ(kept, somewhere, somewhere)

    def _differ(self, index: int, then: str, now: str) -> None:
        first = self._first
        end = min(index, len(first.entries))
        self.difference = Difference(self._world, index, first.time_s(end), then, now, first.before(end))
        self._kernel.fail(NotDeterministic(self.difference))


def check_deterministic(program: Callable[[], T], *, entries_max: int = 2_000_000) -> T:
    """Run `program` twice and return what the second run returned, or raise what it raised.

    `program` makes and runs one world or more, new each time. The first `entries_max` entries of each are kept (some
    100 bytes each); a difference after those is found, but not placed. Raises `NotDeterministic` where the runs
    part, `ValueError` if `program` made no world.
    """
    records: list[_Record] = []

    def record(kernel: Kernel) -> Digest:
        records.append(_Record(entries_max))
        records[-1].digest = _RecordingDigest(kernel, records[-1].take)
        return records[-1].digest

    with _digests_made_by(record):
        first = _run(program)
    if not records:
        raise ValueError("check_deterministic: the program made no world")
    comparisons: list[_Comparison] = []

    def compare(kernel: Kernel) -> Digest:
        number = len(comparisons)
        comparison = _Comparison(number, records[number] if number < len(records) else _Record(0), kernel)
        comparisons.append(comparison)
        return _RecordingDigest(kernel, comparison.take)

    disturbance = _disturb_memory()
    with _digests_made_by(compare):
        second = _run(program)
    del disturbance
    _check_ends(records, comparisons, first.error, second.error)
    if second.error is not None:
        raise second.error
    return second.value[0]


def _run(program: Callable[[], T]) -> _Ending[T]:
    try:
        return _Ending((program(),), None)
    except Exception as error:  # noqa: BLE001 - a run that fails in the same way twice is deterministic
        return _Ending((), error)


def _check_ends(
    records: list[_Record],
    comparisons: list[_Comparison],
    first: Exception | None,
    second: Exception | None,
) -> None:
    for comparison in comparisons:
        comparison.finish()
        if comparison.difference is not None:
            raise NotDeterministic(comparison.difference)
    last = records[-1]
    # Not the message of an error: it may hold addresses, which may differ.
    ends = [f"ended with {'a result' if each is None else type(each).__name__}" for each in (first, second)]
    if len(comparisons) < len(records):
        ends = [f"made {len(records)} worlds", f"made {len(comparisons)}"]
    if ends[0] != ends[1]:
        end = len(last.entries)
        raise NotDeterministic(
            Difference(len(records) - 1, last.count, last.time_s(end), ends[0], ends[1], last.before(end))
        )


@contextmanager
def _digests_made_by(factory: Callable[[Kernel], Digest]) -> Iterator[None]:
    token = digest_factory.set(factory)
    try:
        yield
    finally:
        digest_factory.reset(token)


def _disturb_memory() -> list[bytes]:
    """Leave holes of every small size in random places, so that new objects get addresses in another order.

    To be held during the second run.
    """
    blocks = [bytes(size) for size in range(16, 513, 16) for _ in range(300)]
    derive(0, "memory").shuffle(blocks)
    return blocks[: len(blocks) // 2]


def _running(kernel: Kernel) -> bytes:
    """The token of the task that runs; empty within a callback of the kernel."""
    try:
        task = trio.lowlevel.current_task()
    except RuntimeError:
        return b""
    number = kernel.tasks().get(task)
    return b"" if number is None else task_token(number, task)


def _describe(entry: _Entry, tasks: Mapping[Task, int] | None = None, beside: _Entry | None = None) -> str:
    """One entry in words; with `tasks`, those of the run that is at it, also where a task is."""
    kind, piece, token = entry
    if kind == _STEP:
        for task, number in (tasks or {}).items():
            if task_token(number, task) == piece:
                return f"a step of {describe_task(task, number)}"
        return f"a step of {describe_token(piece)}"
    if kind == _TIME:
        return f"time moves to {_unpack_time(piece)[0]} s"
    if kind == _ARRIVAL:
        return f"an arrival on the network: {describe_arrival(piece)}"
    who = f" by {describe_token(token)}" if token else ""
    return f"{_describe_data(piece, beside[1] if beside is not None and beside[0] == _DATA else b'')}{who}"


def _describe_data(data: bytes, other: bytes) -> str:
    """A journal entry or a program's own trace; of a long one, the part around its first difference from `other`."""
    parts = data.decode(errors="backslashreplace").split("\0")
    text = f"journal: {' '.join(part for part in parts if part)}" if len(parts) == 3 else f"trace: {' '.join(parts)}"
    if len(text) <= _TEXT_MAX:
        return text
    differs_at = next((at for at, pair in enumerate(zip(data, other, strict=False)) if pair[0] != pair[1]), 0)
    begin = max(0, differs_at - _TEXT_MAX // 2)
    return f"{'...' if begin else ''}{text[begin : begin + _TEXT_MAX]}..."
