"""`rmq-actors store dump`: what it prints, what it says of bad input, and its exit codes."""

from __future__ import annotations

import base64
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from rmq_actors.cli.main import app
from rmq_actors.real_io.os_disk import OsDisk
from rmq_actors.store.files.layout import file_name
from rmq_actors.store.log.commit_log import CommitLog
from rmq_actors.wire.record import Message, encode_message
from tests.worlds.golden_capture import STORE_MASTER_CLEAN, golden_messages
from tests.worlds.recording import new_tracer

SIZE = 1000
RECORD = 250


def dump(*arguments: object) -> Result:
    # A wide terminal: rich would break the lines that the tests look for.
    return CliRunner(env={"COLUMNS": "200", "NO_COLOR": "1", "TERM": "dumb"}).invoke(
        app, ["store", "dump", *map(str, arguments)]
    )


def make(root: Path, messages: int = 5) -> Path:
    log = CommitLog.open(OsDisk(root), SIZE, new_tracer())
    for number in range(messages):
        properties = {"KEYS": f"key{number}"}
        body = bytes([0x41 + number]) * (RECORD - 92 - len("KEYS_key0"))
        log.append_message(encode_message(Message("T", body, properties=properties)), 0)
    log.close()
    return root


def change(root: Path, offset: int, data: bytes) -> None:
    with (root / "commitlog" / file_name(offset - offset % SIZE)).open("r+b") as file:
        file.seek(offset % SIZE)
        file.write(data)


def expected_line(row: dict[str, Any]) -> dict[str, Any]:
    """What messages.jsonl says, under the names of the command; the body apart."""
    return {
        "physicalOffset": row["phyOffset"],
        "totalSize": row["total"],
        "queueId": row["queueId"],
        "queueOffset": row["queueOffset"],
        "sysFlag": row["sysFlag"],
        "flag": row["flag"],
        "bornTimestamp": row["born"],
        "bornHost": "{}:{}".format(*row["bornHost"]),
        "storeTimestamp": row["store"],
        "storeHost": "{}:{}".format(*row["storeHost"]),
        "reconsumeTimes": row["reconsume"],
        "preparedTransactionOffset": row["preparedTxOffset"],
        "bodyCRC": row["crc"],
        "topic": row["topic"],
        "properties": row["props"],
    }


def test_the_golden_store_is_printed_with_the_known_values() -> None:
    result = dump(STORE_MASTER_CLEAN, "--json")
    assert (result.exit_code, result.stderr) == (0, "")
    lines = [json.loads(line) for line in result.stdout.splitlines()]
    assert len(lines) == 215
    for line, row in zip(lines, golden_messages(), strict=True):
        body = base64.b64decode(line.pop("body"), validate=True)
        assert line == expected_line(row)
        assert len(body) == row["bodyLen"]
        assert repr(body[:80]) == row["body"]


def test_the_table_has_a_row_a_message() -> None:
    result = dump(STORE_MASTER_CLEAN)
    assert (result.exit_code, result.stderr) == (0, "")
    lines = result.stdout.splitlines()
    assert len(lines) == 215
    assert lines[0].split() == ["0", "177", "TopicPlain-2@0", "12", "B"]
    assert any("TAGS=TagA" in line for line in lines)


def test_the_command_itself_runs() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "rmq_actors.cli.entry", "store", "dump", str(STORE_MASTER_CLEAN), "--json"],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    assert (len(done.stdout.splitlines()), done.stderr) == (215, "")


def test_an_unknown_option_is_named() -> None:
    result = dump(STORE_MASTER_CLEAN, "--jsn")
    assert (result.exit_code, result.stdout) == (2, "")
    assert "--jsn" in result.stderr


def test_an_unknown_command_is_named() -> None:
    result = CliRunner().invoke(app, ["store", "dmup"])
    assert (result.exit_code, result.stdout) == (2, "")
    assert "dmup" in result.stderr


def test_a_missing_argument_is_named() -> None:
    result = dump()
    assert result.exit_code == 2
    assert "path" in result.stderr.lower()


def test_a_wrong_file_size_names_the_file(tmp_path: Path) -> None:
    make(tmp_path)
    (tmp_path / "commitlog" / file_name(SIZE)).write_bytes(bytes(SIZE - 1))
    result = dump(tmp_path, "--json")
    assert (result.exit_code, result.stdout) == (2, "")
    assert f"commitlog/{file_name(SIZE)} is 999 bytes long" in result.stderr
    assert len(result.stderr.splitlines()) == 1


@pytest.mark.parametrize(
    ("prepare", "text"),
    [
        (lambda root: (root / "commitlog" / "notes.txt").write_bytes(b"x"), "commitlog/notes.txt"),
        (lambda root: (root / "commitlog" / file_name(3 * SIZE)).write_bytes(bytes(SIZE)), "follows a gap"),
        (lambda root: (root / "commitlog").rename(root / "elsewhere"), "commitlog: no such directory"),
    ],
)
def test_a_directory_that_is_no_store_is_named(tmp_path: Path, prepare: Any, text: str) -> None:
    prepare(make(tmp_path))
    result = dump(tmp_path)
    assert (result.exit_code, result.stdout) == (2, "")
    assert text in result.stderr
    assert str(tmp_path) in result.stderr


def test_no_directory(tmp_path: Path) -> None:
    result = dump(tmp_path / "nowhere")
    assert result.exit_code == 2
    assert f"{tmp_path / 'nowhere'}: no such directory" in result.stderr


def test_a_torn_record_is_named_and_all_others_are_printed(tmp_path: Path) -> None:
    make(tmp_path)
    change(tmp_path, 1250 + 200, bytes(50))
    result = dump(tmp_path, "--json")
    assert result.exit_code == 1
    assert [json.loads(line)["physicalOffset"] for line in result.stdout.splitlines()] == [0, 250, 500, 1000]
    assert result.stderr.startswith(f"commitlog/{file_name(SIZE)}: offset 1250: ")
    assert result.stderr.endswith("; nothing valid follows\n")


def test_a_damaged_record_is_named_and_all_others_are_printed(tmp_path: Path) -> None:
    make(tmp_path)
    change(tmp_path, 250 + 100, b"\xff")
    before = (tmp_path / "commitlog" / file_name(0)).read_bytes()
    result = dump(tmp_path, "--json")
    assert result.exit_code == 1
    assert [json.loads(line)["physicalOffset"] for line in result.stdout.splitlines()] == [0, 500, 1000, 1250]
    assert result.stderr.startswith(f"commitlog/{file_name(0)}: offset 250: bodyCRC")
    assert result.stderr.endswith("; resuming at offset 500\n")
    assert (tmp_path / "commitlog" / file_name(0)).read_bytes() == before


def offsets(result: Result) -> list[int]:
    return [json.loads(line)["physicalOffset"] for line in result.stdout.splitlines()]


@pytest.mark.parametrize("ending", ["", ".1", ".12"])
def test_what_a_cut_has_kept_is_printed_from_its_offset_on(tmp_path: Path, ending: str) -> None:
    make(tmp_path)
    (tmp_path / "cut").mkdir()
    log = (tmp_path / "commitlog" / file_name(0)).read_bytes()
    kept = tmp_path / "cut" / (file_name(RECORD) + ending)
    kept.write_bytes(log[RECORD:].rstrip(b"\0"))  # its last bytes are those of a blank
    result = dump(kept, "--json")
    assert (result.exit_code, result.stderr, offsets(result)) == (0, "", [250, 500])
    lines = dump(tmp_path, "--json").stdout.splitlines()
    assert result.stdout.splitlines() == lines[1:3]
    kept.write_bytes(b"torn" + log[RECORD + 4 : 500 + 100] + b"\xff" + log[500 + 101 :])
    result = dump(kept, "--json")
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr.startswith(f"{kept.name}: offset 250: totalSize ")
    kept.write_bytes(b"")
    assert (dump(kept).exit_code, dump(kept).output) == (0, "")


def test_a_kept_record_whose_last_bytes_are_zeros_is_whole(tmp_path: Path) -> None:
    log = CommitLog.open(OsDisk(tmp_path), SIZE, new_tracer())
    for _ in range(2):
        log.append_message(encode_message(Message("T", b"without properties")), 0)
    log.close()
    data = (tmp_path / "commitlog" / file_name(0)).read_bytes().rstrip(b"\0")
    kept = tmp_path / file_name(0)
    kept.write_bytes(data)
    result = dump(kept, "--json")
    assert (result.exit_code, result.stderr, len(offsets(result))) == (0, "", 2)
    assert result.stdout == dump(tmp_path, "--json").stdout
    kept.write_bytes(data[:-8])
    result = dump(kept, "--json")
    assert (result.exit_code, len(offsets(result))) == (1, 1)
    assert result.stderr.endswith("; nothing valid follows\n")


@pytest.mark.parametrize("name", ["unfinished", "1234", f"{file_name(0)}.", f"{file_name(0)}.bak"])
def test_a_file_whose_name_is_no_offset_is_refused(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_bytes(b"x")
    result = dump(tmp_path / name)
    assert (result.exit_code, result.stdout) == (2, "")
    assert f"{tmp_path / name}: its name is not the offset in the log at which its bytes stand" in result.stderr


def test_help_and_version() -> None:
    assert dump("--help").exit_code == 0
    assert CliRunner().invoke(app, ["--version"]).stdout.startswith("rmq-actors ")


def test_a_reader_that_stops_early_is_no_bad_input() -> None:
    """`rmq-actors store dump DIR --json | head -1`"""
    command = f'"{sys.executable}" -m rmq_actors.cli.entry store dump "{STORE_MASTER_CLEAN}" --json | head -c 1'
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=True, timeout=60)
    assert (done.stdout, done.stderr) == ("{", "")
