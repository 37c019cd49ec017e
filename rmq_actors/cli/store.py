"""`rmq-actors store`: looks into store directories; only `truncate` changes anything."""

from __future__ import annotations

import base64
import contextlib
import errno
import json
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, NoReturn

import typer
from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

from rmq_actors.cli.exit_codes import ExitCode
from rmq_actors.cli.log_part import read_log_part
from rmq_actors.cli.store_truncate import truncate
from rmq_actors.real_io.os_disk import OsDisk
from rmq_actors.settings.field_types import on_one_line
from rmq_actors.store.check.check_store import check_store
from rmq_actors.store.check.dump import Unreadable, read_commit_log
from rmq_actors.store.check.finding import CheckSummary, Finding
from rmq_actors.store.check.repair import plan_repair
from rmq_actors.store.files.layout import (
    ABORT_FILE,
    CHECKPOINT_FILE,
    COMMIT_LOG_DIRECTORY,
    CONSUME_QUEUE_DIRECTORY,
    LOCK_FILE,
)
from rmq_actors.store.files.mapped_file_queue import StoreLayoutError
from rmq_actors.wire.delay_levels import parse_delay_levels
from rmq_actors.wire.dispatch_request import DELAY_LEVELS_MS
from rmq_actors.wire.record import StoredMessage

_PROGRESS_FROM_BYTES = 256 * 1024 * 1024

Directory = Annotated[Path, typer.Argument(help="A store directory: the one that holds commitlog/.")]
DelayLevels = Annotated[
    str | None, typer.Option(help="The broker's messageDelayLevel, if it is not the default.", show_default=False)
]
HashSlots = Annotated[
    int | None, typer.Option(min=1, help="The broker's maxHashSlotNum; found out without.", show_default=False)
]

store_app = typer.Typer(
    add_completion=False, help="Look into store directories, RocketMQ's or this project's.", no_args_is_help=True
)


store_app.command("truncate")(truncate)


@store_app.callback()
def _store() -> None:
    """Look into store directories, RocketMQ's or this project's. Only truncate changes anything."""


def message_to_json(message: StoredMessage) -> dict[str, object]:
    """One line of `store dump --json`; the body is base64 of the bytes as stored."""
    more = {"isPassedOver": True} if message.is_passed_over else {}
    return {
        "physicalOffset": message.physical_offset,
        "totalSize": message.total_size,
        "queueId": message.queue_id,
        "queueOffset": message.queue_offset,
        "sysFlag": message.sys_flag,
        "flag": message.flag,
        "bornTimestamp": message.born_timestamp_ms,
        "bornHost": message.born_host,
        "storeTimestamp": message.store_timestamp_ms,
        "storeHost": message.store_host,
        "reconsumeTimes": message.reconsume_times,
        "preparedTransactionOffset": message.prepared_transaction_offset,
        "bodyCRC": message.body_crc,
        "body": base64.b64encode(message.body).decode(),
        "topic": message.topic,
        "properties": dict(message.properties),
        **more,
    }


def _row(message: StoredMessage) -> str:
    keys = " ".join(f"{name}={value}" for name, value in message.properties.items() if name in {"TAGS", "KEYS"})
    if message.is_passed_over:
        keys = f"{keys} (passed over: in no queue, in no index)".lstrip()
    where = f"{message.topic}-{message.queue_id}@{message.queue_offset}"
    return f"{message.physical_offset:>12} {message.total_size:>8} {where:<40} {len(message.body):>8} B  {keys}"


@store_app.command("dump")
def dump(
    path: Annotated[Path, typer.Argument(help="A store directory, or one file of its log or of cut/.")],
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object per message, one per line.")] = False,
) -> None:
    """Print every message of a commit log, oldest first, or of what a cut has kept (cut/00000000000000001234).

    A file's name is the offset of its bytes: 20 digits, and perhaps .1, .2 and so on after them.

    Nothing is changed, and no configuration is needed: file sizes are taken from the files. Places without a valid
    record are named on standard error, and the exit code is then 1; files that do not fit together give 2.
    """
    if not path.is_file():
        _need_directory("dump", path)
    findings = 0
    try:
        for item in read_log_part(path) if path.is_file() else read_commit_log(OsDisk(path)):
            if isinstance(item, Unreadable):
                findings += 1
                rest = "nothing valid follows" if item.resumes_at is None else f"resuming at offset {item.resumes_at}"
                typer.echo(f"{item.path}: offset {item.offset}: {item.reason}; {rest}", err=True)
            else:
                typer.echo(json.dumps(message_to_json(item)) if as_json else _row(item))
    except BrokenPipeError:
        # The reader of the output has seen enough: click ends the command silently.
        raise
    except (StoreLayoutError, OSError) as error:
        _refuse("dump", path, str(error), error)
    if findings:
        raise typer.Exit(ExitCode.CHECK_FAILED)


@store_app.command("check")
def check(
    directory: Directory,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object per finding, one per line.")] = False,
    max_findings: Annotated[int, typer.Option(min=0, help="How many findings to print; all are counted.")] = 1000,
    message_delay_level: DelayLevels = None,
    max_hash_slot_num: HashSlots = None,
) -> None:
    """Verify a store: log, queues, index, checkpoint, transactions, configuration. Nothing is changed.

    One finding per line, `path: offset N: severity: text`; the last line, on standard error, says how much was checked.

    No crash explains an `error`. A crash has left what is `recoverable`, and the next start mends it. A `note` is not a
    fault. Exit code 1 if there is an error, 2 for a directory that is not a store, or that a broker has open.
    """
    levels = _delay_levels(message_delay_level)
    summary, counts = CheckSummary(), Counter[str]()
    with _closed_store("check", directory) as disk:
        for finding in _check("check", directory, disk, summary, levels, max_hash_slot_num):
            counts[finding.severity] += 1
            if counts.total() <= max_findings:
                typer.echo(json.dumps(finding._asdict()) if as_json else str(finding))
        was_open = disk.exists(ABORT_FILE)
    if counts.total() > max_findings:
        typer.echo(f"{counts.total() - max_findings} more findings are not printed (--max-findings)", err=True)
    typer.echo(_summary_row(summary, counts, was_open=was_open), err=True)
    if counts["error"]:
        raise typer.Exit(ExitCode.CHECK_FAILED)


@store_app.command("advise")
def advise(
    directory: Directory,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object per step, one per line.")] = False,
    message_delay_level: DelayLevels = None,
    max_hash_slot_num: HashSlots = None,
) -> None:
    """Say what the next start would mend, and what a person could do about each error. Nothing is changed.

    Lines of `start` are what the next start does; `refusal` says why the store will not start; `person` is advice, one
    line per file with errors. Exit code 1 if the next start refuses or errors are left.
    """
    levels = _delay_levels(message_delay_level)
    with _closed_store("advise", directory) as disk:
        found = _check("advise", directory, disk, CheckSummary(), levels, max_hash_slot_num)
        # A file has a line of advice: one error of each sort that it goes by is enough.
        errors = {
            (finding.path, finding.is_refused, finding.is_past_the_log): finding
            for finding in found
            if finding.severity == "error"
        }
        try:
            steps = list(plan_repair(disk, list(errors.values()), levels))
        except OSError as error:
            _refuse("advise", directory, str(error), error)
    for step in steps:
        typer.echo(json.dumps(step._asdict()) if as_json else on_one_line(f"{step.path}: {step.who}: {step.text}"))
    if any(step.who != "start" for step in steps):
        raise typer.Exit(ExitCode.CHECK_FAILED)


def _delay_levels(text: str | None) -> Sequence[int]:
    try:
        return DELAY_LEVELS_MS if text is None else parse_delay_levels(text)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from error


def _need_directory(command: str, directory: Path) -> None:
    if not directory.is_dir():
        what = "not a directory" if directory.exists() else "no such directory"
        _refuse(command, directory, what)


def _refuse(command: str, directory: Path, why: str, cause: Exception | None = None) -> NoReturn:
    typer.echo(f"rmq-actors store {command}: {directory}: {why}", err=True)
    raise typer.Exit(ExitCode.BAD_INPUT) from cause


@contextlib.contextmanager
def _closed_store(command: str, directory: Path) -> Iterator[OsDisk]:
    """The store's disk, locked against a broker that starts meanwhile, if there is a lock to take."""
    _need_directory(command, directory)
    disk = OsDisk(directory)
    with contextlib.ExitStack() as stack:
        lock = directory / LOCK_FILE
        # Locking a missing or empty file would write it.
        if lock.is_file() and lock.stat().st_size:
            try:
                stack.callback(disk.lock(LOCK_FILE).close)
            except BlockingIOError as error:
                _refuse(command, directory, f"a broker has the store open: {error.strerror}", error)
            except OSError as error:
                if error.errno != errno.EROFS:  # to a read-only file system nobody writes
                    why = f"whether a broker has the store open, and writes to it meanwhile, is not known: {error}"
                    typer.echo(f"rmq-actors store {command}: {directory}: {why}", err=True)
        # A broker that has the store open may not have stored anything yet.
        names = disk.list("")  # a link that leads nowhere is told by the check
        if not {COMMIT_LOG_DIRECTORY, CONSUME_QUEUE_DIRECTORY, CHECKPOINT_FILE}.intersection(names):
            _refuse(command, directory, f"no store: it holds no {COMMIT_LOG_DIRECTORY}/")
        yield disk


def _check(
    command: str,
    directory: Path,
    disk: OsDisk,
    summary: CheckSummary,
    delay_levels_ms: Sequence[int],
    max_hash_slot_num: int | None,
) -> Iterator[Finding]:
    """Check, with a progress bar for a large store on a terminal."""
    with contextlib.ExitStack() as stack:
        show = None
        if sys.stderr.isatty() and _log_bytes(directory) >= _PROGRESS_FROM_BYTES:
            columns = TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TimeRemainingColumn()
            show = stack.enter_context(Progress(*columns, console=Console(stderr=True), transient=True))
            task = show.add_task("commit log")

        def progress(done: int, total: int) -> None:
            if show is not None:
                show.update(task, completed=done, total=total)

        try:
            yield from check_store(
                disk,
                summary,
                delay_levels_ms=delay_levels_ms,
                max_hash_slot_num=max_hash_slot_num,
                progress=progress,
            )
        except OSError as error:
            _refuse(command, directory, str(error), error)


def _log_bytes(directory: Path) -> int:
    log = directory / COMMIT_LOG_DIRECTORY
    return sum(path.stat().st_size for path in log.iterdir()) if log.is_dir() else 0


def _summary_row(summary: CheckSummary, counts: Counter[str], *, was_open: bool) -> str:
    checked = (
        f"{summary.files} files, {summary.records} records ({summary.log_bytes} bytes), {summary.queues} queues, "
        f"{summary.entries} entries, {summary.keys} keys, {summary.transactions} transactions checked"
    )
    found = f"{counts['error']} errors, {counts['recoverable']} recoverable, {counts['note']} notes"
    return f"{checked}: {found}" + ("; the broker that had it was not stopped in order" if was_open else "")
