"""Writing traces: events go to an Arrow stream first, and become Parquet when the part is full.

Parquet has its index at the end, so a crash would leave nothing readable. Therefore a part is first a spool, an Arrow
IPC stream in which each batch can be read by itself. Then it becomes Parquet in one go (`_publish`), in this order:
write, fsync, rename, fsync the directory; the runs table likewise; then the manifest; then remove the spool. Until that
last step a crash loses nothing, and `recover` does the same again from the spool.

A batch belongs to one run and says so in its metadata; the last batch of a run also says how the run ended. A run is
never spread over two parts, a part holds many runs. What a killed process loses is its last unwritten buffer; a power
cut may take more of a spool, but nothing of a published part.
"""

from __future__ import annotations

import contextlib
import fcntl
import io
import json
import operator
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import count
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import attrs
import pyarrow as pa
from pyarrow import parquet

from rmq_actors.tracing.event import (
    COLUMNS,
    RUN_COLUMNS,
    SCHEMA_VERSION,
    Column,
    ColumnType,
    Event,
    RunInfo,
    unfilled_columns,
)
from rmq_actors.tracing.events.run import FaultBegin
from rmq_actors.tracing.manifest import (
    EVENTS_DIRECTORY,
    OUTCOME_INCOMPLETE,
    PartManifest,
    PartName,
    RunRecord,
    check_name,
    part_numbers,
    runs_table,
    sync_directory,
    sync_file,
)

_ARROW_TYPES: Mapping[ColumnType, pa.DataType] = {
    "int8": pa.int8(),
    "int16": pa.int16(),
    "int32": pa.int32(),
    "int64": pa.int64(),
    "string": pa.string(),
    # A dictionary on disk (`_REPEATING`), a plain string to its readers.
    "dictionary": pa.string(),
    "links": pa.list_(pa.struct([("node", pa.string()), ("seq", pa.int64())])),
    "string_map": pa.map_(pa.string(), pa.string()),
}
EVENTS_SCHEMA = pa.schema(
    [pa.field(column.name, _ARROW_TYPES[column.type], nullable=column.nullable) for column in COLUMNS]
)
# Columns that grow, or nearly: their differences take a few bits. The others repeat themselves.
_GROWING = ("seq", "sim_time_ns", "wall_time_ns", "offset", "msg_id")
_REPEATING = [column.name for column in COLUMNS if column.name not in _GROWING and column.type != "links"]
_COMPRESSION = "zstd"
_COMPRESSION_LEVEL = 3
_ROW_GROUP_EVENTS = 262_144

_RUN_KEY = b"rmq_actors.run"
_END_KEY = b"rmq_actors.end"


class TraceWriterMisuse(RuntimeError):
    """A run that is not this writer's, a second run while one is open, an event after the end."""


class TraceValueError(ValueError):
    """A value that its column cannot hold."""


class TraceDamaged(ValueError):
    """A spool that does not give back what was written to it."""


def record_batch(run: RunInfo, events: list[Event]) -> pa.RecordBatch:
    """The events of one run as Arrow columns, in the order of `COLUMNS`. Raises `TraceValueError`."""
    constants = {"run_id": run.run_id, "seed": run.seed, "schema_version": SCHEMA_VERSION}
    unfilled = unfilled_columns({type(event) for event in events})
    arrays = []
    for column, field in zip(COLUMNS, EVENTS_SCHEMA, strict=True):
        if column.name in RUN_COLUMNS:
            arrays.append(pa.repeat(pa.scalar(constants[column.name], field.type), len(events)))
            continue
        if column.name in unfilled:
            arrays.append(pa.nulls(len(events), field.type))
            continue
        try:
            arrays.append(pa.array(_values(column, events), field.type))
        except UnicodeEncodeError:
            arrays.append(pa.array(_escaped(_values(column, events)), field.type))
        except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError) as error:
            raise TraceValueError(f"scenario {run.scenario} seed {run.seed}: column {column.name}: {error}") from error
    return pa.RecordBatch.from_arrays(arrays, schema=EVENTS_SCHEMA)


def _values(column: Column, events: list[Event]) -> list[Any]:
    if column.type == "string_map":
        maps = [event.attrs if event.attribute_names else None for event in events]
        return [each and list(each.items()) for each in maps]
    values: list[Any] = list(map(operator.attrgetter(column.name), events))
    if column.type == "links":
        return [None if value is None else [{"node": node, "seq": seq} for node, seq in value] for value in values]
    return values


def _escaped(value: Any) -> Any:  # noqa: ANN401  # what columns hold
    """The same with half of a surrogate pair written in ASCII: no file holds it, and a peer may have sent it."""
    if isinstance(value, str):
        return value.encode(errors="backslashreplace").decode()
    if isinstance(value, list | tuple):
        values = map(_escaped, value)
        return tuple(values) if isinstance(value, tuple) else list(values)
    if isinstance(value, dict):
        return {_escaped(key): _escaped(each) for key, each in value.items()}
    return value


@attrs.define(eq=False, repr=False)
class _Spool:
    """An open spool: locked for as long as its writer lives, so that `recover` leaves it alone."""

    part: PartName
    path: Path
    _file: io.FileIO
    _stream: pa.ipc.RecordBatchStreamWriter
    events: int = attrs.field(default=0, init=False)
    runs: int = attrs.field(default=0, init=False)

    @classmethod
    def create(cls, traces: Path, campaign: str, scenario: str, worker: int) -> _Spool:
        """Create the worker's next spool. Two processes that call themselves the same worker get two parts."""
        PartName(campaign, scenario, worker, 0).events(traces).parent.mkdir(parents=True, exist_ok=True)
        first = max(part_numbers(traces, campaign, scenario, worker), default=-1) + 1
        for number in count(first):
            part = PartName(campaign, scenario, worker, number)
            try:
                file = io.FileIO(part.spool(traces), "xb")
            except FileExistsError:
                continue
            fcntl.flock(file, fcntl.LOCK_EX)
            if part.events(traces).exists():
                # Published between the look at the directory and the creation of the spool.
                part.spool(traces).unlink()
                file.close()
                continue
            options = pa.ipc.IpcWriteOptions(compression=_COMPRESSION)
            stream = pa.ipc.new_stream(pa.PythonFile(file, mode="w"), EVENTS_SCHEMA, options=options)
            return cls(part, part.spool(traces), file, stream)
        raise AssertionError("count() does not end")

    def write(self, run: RunInfo, events: list[Event], end: Mapping[str, Any] | None = None) -> None:
        """Append one batch; it is in the page cache when this returns."""
        metadata = {_RUN_KEY: json.dumps(attrs.asdict(run))}
        if end is not None:
            metadata[_END_KEY] = json.dumps(end)
            self.runs += 1
        self._stream.write_batch(record_batch(run, events), custom_metadata=metadata)
        self.events += len(events)

    @property
    def size_bytes(self) -> int:
        """How long the spool is by now."""
        return self._file.tell()

    def end(self) -> None:
        """Write the end mark; the lock stays."""
        self._stream.close()

    def close(self) -> None:
        """Close the file and give up the lock."""
        self._file.close()


@attrs.define(eq=False, repr=False)
class RunWriter:
    """Takes one run's events as they happen: hand it to `Recorder.subscribe`. It holds at most a buffer of them."""

    run: RunInfo
    _spool: _Spool
    _buffer_events_max: int
    _ended: Callable[[], None]
    _buffer: list[Event] = attrs.field(factory=list, init=False)
    _fault_kinds: set[str] = attrs.field(factory=set, init=False)
    _event_count: int = attrs.field(default=0, init=False)
    is_open: bool = attrs.field(default=True, init=False)

    def __call__(self, event: Event) -> None:
        """Take the next event; a full buffer is written at once. Raises `OSError`, `TraceValueError`."""
        if not self.is_open:
            raise TraceWriterMisuse(f"{event.kind} after the end of run {self.run.scenario} seed {self.run.seed}")
        if isinstance(event, FaultBegin):
            self._fault_kinds.add(event.fault_kind)
        self._buffer.append(event)
        if len(self._buffer) >= self._buffer_events_max:
            self.flush()

    def flush(self) -> None:
        """Write what is buffered."""
        events, self._buffer = self._buffer, []
        self._event_count += len(events)
        self._spool.write(self.run, events)

    def end(self, outcome: str, fault_kinds: Iterable[str] | None = None) -> None:
        """Write the rest and the run's outcome. `fault_kinds`: those scheduled; None takes those that began."""
        if not self.is_open:
            raise TraceWriterMisuse(f"run {self.run.scenario} seed {self.run.seed} has ended already")
        self.is_open = False
        kinds = sorted(self._fault_kinds if fault_kinds is None else set(fault_kinds))
        events, self._buffer = self._buffer, []
        self._event_count += len(events)
        end = {
            "outcome": check_name("outcome", outcome),
            "fault_kinds": kinds,
            "event_count": self._event_count,
        }
        self._spool.write(self.run, events, end)
        self._ended()


@attrs.define(eq=False, repr=False)
class TraceWriter:
    """Writes the runs of one scenario of one campaign below `traces`. Use it as a context manager.

    `worker` tells the processes of a campaign apart in file names. A part is published when its spool has grown past
    `part_size_bytes_max` and on `close`; `buffer_events_max` bounds what a live run holds in memory and may lose.
    Raises `ManifestError` for names that cannot stand in a path.
    """

    traces: Path = attrs.field(converter=Path)
    campaign: str = attrs.field(validator=lambda _self, _field, value: check_name("campaign", value))
    scenario: str = attrs.field(validator=lambda _self, _field, value: check_name("scenario", value))
    worker: int = 0
    part_size_bytes_max: int = attrs.field(default=128 * 1024 * 1024, kw_only=True)
    buffer_events_max: int = attrs.field(default=2048, kw_only=True)
    #: The parts published so far.
    published: list[PartManifest] = attrs.field(factory=list, init=False)
    _spool: _Spool | None = attrs.field(default=None, init=False)
    _run: RunWriter | None = attrs.field(default=None, init=False)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def write_run(
        self, run: RunInfo, events: Iterable[Event], *, outcome: str, fault_kinds: Iterable[str] | None = None
    ) -> None:
        """Write a whole run. `fault_kinds`: those of its schedule; None takes those that began.

        Raises `TraceWriterMisuse`, `TraceValueError`, `ManifestError` for an outcome that is no plain name, `OSError`.
        """
        check_name("outcome", outcome)
        writer = self._open(run, _ROW_GROUP_EVENTS)
        for event in events:
            writer(event)
        writer.end(outcome, fault_kinds)

    def open_run(self, run: RunInfo) -> RunWriter:
        """Begin a run whose events come one by one; `RunWriter.end` ends it, `close` would end it as incomplete."""
        return self._open(run, self.buffer_events_max)

    def close(self) -> None:
        """End an open run as incomplete and publish what was written. Does nothing the second time."""
        # One that could not be written to its end is not open, and cannot be ended.
        if self._run is not None and self._run.is_open:
            self._run.end(OUTCOME_INCOMPLETE)
        if self._spool is not None:
            self._roll(self._spool)

    def _open(self, run: RunInfo, buffer_events_max: int) -> RunWriter:
        if (run.campaign, run.scenario) != (self.campaign, self.scenario):
            raise TraceWriterMisuse(
                f"a run of {run.campaign}/{run.scenario} in the writer of {self.campaign}/{self.scenario}"
            )
        if self._run is not None:
            raise TraceWriterMisuse(f"run seed {self._run.run.seed} of {self.scenario} is still open")
        if self._spool is None:
            self._spool = _Spool.create(self.traces, self.campaign, self.scenario, self.worker)
        self._run = RunWriter(run, self._spool, buffer_events_max, self._ended)
        return self._run

    def _ended(self) -> None:
        self._run = None
        if self._spool is not None and self._spool.size_bytes >= self.part_size_bytes_max:
            self._roll(self._spool)

    def _roll(self, spool: _Spool) -> None:
        self._spool = None
        spool.end()
        try:
            published = _publish(self.traces, spool.part)
            if (published.manifest.events, published.manifest.runs) != (spool.events, spool.runs):
                raise TraceDamaged(
                    f"{spool.path}: {spool.events} events of {spool.runs} runs were written, "
                    f"{published.manifest.events} of {published.manifest.runs} came back"
                )
            spool.path.unlink()
        finally:
            spool.close()
        self.published.append(published.manifest)


@attrs.define(eq=False, repr=False)
class _SpoolReader:
    """Reads a spool to its end or to where it was cut; then `runs`, `incomplete` and `unread_bytes` are known."""

    path: Path
    _file: pa.NativeFile
    _stream: pa.ipc.RecordBatchStreamReader
    runs: list[RunRecord] = attrs.field(factory=list, init=False)
    incomplete: list[RunInfo] = attrs.field(factory=list, init=False)
    unread_bytes: int = attrs.field(default=0, init=False)

    @classmethod
    @contextlib.contextmanager
    def open(cls, path: Path) -> Iterator[Self]:
        """Open a spool. Raises `TraceDamaged` if not even its head is there, `OSError`."""
        with pa.OSFile(str(path)) as file:
            try:
                stream = pa.ipc.open_stream(file)
            except (OSError, pa.ArrowInvalid) as error:
                _raise_if_disk_failed(error)
                raise TraceDamaged(f"{path}: the head of the spool cannot be read: {error}") from error
            yield cls(path, file, stream)

    @property
    def schema(self) -> pa.Schema:
        """The columns of the program that wrote the spool."""
        return self._stream.schema

    def batches(self) -> Iterator[pa.RecordBatch]:
        """The events, batch by batch; a cut spool just ends. Raises `OSError` where the disk fails."""
        size = self.path.stat().st_size
        events_of_open_run = 0
        run: RunInfo | None = None
        while True:
            read_to = self._file.tell()
            try:
                batch, metadata = self._stream.read_next_batch_with_custom_metadata()
            except StopIteration:
                self.unread_bytes = size - self._file.tell()
                break
            except (OSError, pa.ArrowInvalid) as error:
                _raise_if_disk_failed(error)
                self.unread_bytes = size - read_to
                break
            run = RunInfo(**json.loads(metadata[_RUN_KEY]))
            events_of_open_run += batch.num_rows
            if _END_KEY in metadata:
                end = json.loads(metadata[_END_KEY])
                self.runs.append(RunRecord(run, end["outcome"], tuple(end["fault_kinds"]), events_of_open_run))
                run, events_of_open_run = None, 0
            yield batch
        if run is not None:
            self.runs.append(RunRecord(run, OUTCOME_INCOMPLETE, (), events_of_open_run))
            self.incomplete.append(run)


def _raise_if_disk_failed(error: Exception) -> None:
    # Arrow's own complaints about bytes that are missing have no errno; a disk that fails has one.
    if isinstance(error, OSError) and error.errno is not None:
        raise error


@attrs.frozen
class Published:
    """A part that was made from a spool: the incomplete runs in it, and the bytes after the last whole batch."""

    manifest: PartManifest
    incomplete: tuple[RunInfo, ...]
    unread_bytes: int


def _publish(traces: Path, part: PartName) -> Published:
    """Turn a spool into Parquet, runs table and manifest, durably and in this order. The spool is left where it is.

    May be done again after a crash at any point: every step replaces what an earlier attempt left.
    Raises `TraceDamaged`, `OSError`.
    """
    target, runs = part.events(traces), part.runs(traces)
    events = 0
    with _SpoolReader.open(part.spool(traces)) as reader:
        with (
            _replacing(target) as temporary,
            parquet.ParquetWriter(
                temporary,
                reader.schema,
                compression=_COMPRESSION,
                compression_level=_COMPRESSION_LEVEL,
                use_dictionary=_REPEATING,
                column_encoding=dict.fromkeys(_GROWING, "DELTA_BINARY_PACKED"),
            ) as file,
        ):
            for table in _row_groups(reader.batches()):
                file.write_table(table, row_group_size=_ROW_GROUP_EVENTS)
                events += table.num_rows
        runs.parent.mkdir(parents=True, exist_ok=True)
        with _replacing(runs) as temporary:
            parquet.write_table(runs_table(reader.runs), temporary, compression=_COMPRESSION)
        manifest = PartManifest(part, events, target.stat().st_size, len(reader.runs), runs.stat().st_size)
        manifest.write(traces)
        return Published(manifest, tuple(reader.incomplete), reader.unread_bytes)


@contextlib.contextmanager
def _replacing(target: Path) -> Iterator[Path]:
    """The name to write a file under; on success it durably becomes `target`."""
    temporary = target.with_name(f".{target.name}.inprogress")
    yield temporary
    sync_file(temporary)
    temporary.replace(target)
    sync_directory(target.parent)


def _row_groups(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.Table]:
    """Batches joined to tables of at least a row group; the last may be smaller."""
    waiting: list[pa.RecordBatch] = []
    rows = 0
    for batch in batches:
        waiting.append(batch)
        rows += batch.num_rows
        if rows >= _ROW_GROUP_EVENTS:
            yield pa.Table.from_batches(waiting)
            waiting, rows = [], 0
    if rows:
        yield pa.Table.from_batches(waiting)


@attrs.frozen
class Recovered:
    """What became of one left-over spool.

    `published` is None where there was nothing to publish: `reason` then says why, and whether the file is still there.
    """

    spool: Path
    published: Published | None
    reason: str = ""
    is_failure: bool = False


def recover(traces: Path) -> list[Recovered]:
    """Turn every spool that a crash left below `traces` into Parquet; its last run is marked incomplete if it was cut.

    A spool that a living writer holds is left alone. One that nothing can be read from is left, too, and reported as a
    failure. Raises `FileNotFoundError` where there is no traces directory, `ManifestError`, `OSError`.
    """
    events = Path(traces) / EVENTS_DIRECTORY
    if not events.is_dir():
        raise FileNotFoundError(f"{events}: no such directory; traces are expected below it")
    spools = sorted(events.glob("campaign=*/scenario=*/.part-*.arrows.inprogress"))
    return [_recover_one(Path(traces), spool) for spool in spools]


def _recover_one(traces: Path, spool: Path) -> Recovered:
    part = PartName.of(spool)
    with spool.open("rb") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return Recovered(spool, None, "left alone: a running process is writing it")
        if _is_cut_in_its_head(spool):
            spool.unlink()
            return Recovered(spool, None, "removed: it held no events")
        try:
            published = _publish_if_any(traces, part)
        except TraceDamaged as error:
            return Recovered(spool, None, f"left in place: {error}", is_failure=True)
        spool.unlink()
    return Recovered(spool, published, "removed: it held no events" if published is None else "")


def _publish_if_any(traces: Path, part: PartName) -> Published | None:
    spool = part.spool(traces)
    with _SpoolReader.open(spool) as reader:
        is_empty = next(reader.batches(), None) is None
    if not is_empty:
        return _publish(traces, part)
    if reader.unread_bytes:
        raise TraceDamaged(f"{spool}: its first batch, {reader.unread_bytes} bytes, cannot be read")
    return None


def _is_cut_in_its_head(spool: Path) -> bool:
    """Whether a spool is a beginning of what every spool begins with, and no more."""
    head: bytes = EVENTS_SCHEMA.serialize().to_pybytes()
    with spool.open("rb") as file:
        content = file.read(len(head) + 1)
    return len(content) < len(head) and head.startswith(content)
