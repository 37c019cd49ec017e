"""`rmq-actors store`: looking into store directories, without changing them."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Annotated

import typer

from rmq_actors.cli.exit_codes import ExitCode
from rmq_actors.real_io.os_disk import OsDisk
from rmq_actors.store.dump import Finding, read_commit_log
from rmq_actors.store.mapped_file_queue import StoreLayoutError
from rmq_actors.wire.record import StoredMessage

store_app = typer.Typer(help="Look into store directories, RocketMQ's or this project's.", no_args_is_help=True)


@store_app.callback()
def _store() -> None:
    """Look into store directories, RocketMQ's or this project's."""


def message_to_json(message: StoredMessage) -> dict[str, object]:
    """One line of `store dump --json`; the body is base64 of the bytes as stored."""
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
    }


def _row(message: StoredMessage) -> str:
    keys = " ".join(f"{name}={value}" for name, value in message.properties.items() if name in {"TAGS", "KEYS"})
    where = f"{message.topic}-{message.queue_id}@{message.queue_offset}"
    return f"{message.physical_offset:>12} {message.total_size:>8} {where:<40} {len(message.body):>8} B  {keys}"


@store_app.command("dump")
def dump(
    directory: Annotated[Path, typer.Argument(help="A store directory: the one that holds commitlog/.")],
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object a message, one a line.")] = False,
) -> None:
    """Print every message of a commit log, oldest first.

    Nothing is changed, and no configuration is needed: file sizes are taken from the files. Places that are no record
    are named on standard error, and the exit code is then 1; files that do not fit together give 2.
    """
    if not directory.is_dir():
        typer.echo(f"rmq-actors store dump: {directory}: no such directory", err=True)
        raise typer.Exit(ExitCode.BAD_INPUT)
    findings = 0
    try:
        for item in read_commit_log(OsDisk(directory)):
            if isinstance(item, Finding):
                findings += 1
                rest = "nothing valid follows" if item.resumes_at is None else f"resuming at offset {item.resumes_at}"
                typer.echo(f"{item.path}: offset {item.offset}: {item.reason}; {rest}", err=True)
            else:
                typer.echo(json.dumps(message_to_json(item)) if as_json else _row(item))
    except BrokenPipeError:
        # Who reads the output has seen enough: click ends the command without a word.
        raise
    except (StoreLayoutError, OSError) as error:
        typer.echo(f"rmq-actors store dump: {directory}: {error}", err=True)
        raise typer.Exit(ExitCode.BAD_INPUT) from error
    if findings:
        raise typer.Exit(ExitCode.CHECK_FAILED)
