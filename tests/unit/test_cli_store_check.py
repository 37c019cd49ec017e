"""`rmq-actors store check` and `store advise`: what they print, what they say of bad input, and their exit codes."""

from __future__ import annotations

import errno
import json
import os
import shutil
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from rmq_actors.cli.main import app
from rmq_actors.real_io.os_disk import OsDisk, OsLock
from tests.worlds.golden_capture import END_OFFSET, STORE_MASTER_CLEAN, STORE_MASTER_KILLED, STORE_SLAVE_CLEAN
from tests.worlds.store_copies import copy_store, flip, put

LOG = "commitlog/00000000000000000000"
LOG_2 = "commitlog/00000000000000262144"
QUEUE = "consumequeue/TopicPlain/2/00000000000000000000"
CHECKED = "54 files, 215 records (353140 bytes), 40 queues, 215 entries, 375 keys, 0 transactions checked"


def run(command: str, *arguments: object) -> Result:
    # A wide terminal: rich would break the lines that the tests look for.
    return CliRunner(env={"COLUMNS": "200", "NO_COLOR": "1", "TERM": "dumb"}).invoke(
        app, ["store", command, *map(str, arguments)]
    )


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return copy_store(STORE_MASTER_CLEAN, tmp_path / "store")


def tree(root: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in root.rglob("*") if path.is_file()}


@pytest.mark.parametrize("golden", [STORE_MASTER_CLEAN, STORE_SLAVE_CLEAN], ids=lambda path: path.name)
def test_a_store_that_is_right(golden: Path) -> None:
    result = run("check", golden)
    assert (result.exit_code, result.stdout) == (0, "")
    assert result.stderr == f"{CHECKED}: 0 errors, 0 recoverable, 0 notes\n"


def test_the_killed_store_is_right_and_was_not_stopped() -> None:
    result = run("check", STORE_MASTER_KILLED)
    assert (result.exit_code, result.stdout) == (0, "")
    assert result.stderr.endswith("0 notes; the broker that had it was not stopped in order\n")


def test_an_error_has_a_line_and_exit_code_1(store: Path) -> None:
    flip(store / LOG, 90)
    before = tree(store)
    result = run("check", store)
    assert result.exit_code == 1
    (line,) = result.stdout.splitlines()
    assert line.startswith(f"{LOG}: offset 0: error: bodyCRC ")
    assert "1 errors, 0 recoverable, 0 notes" in result.stderr
    assert tree(store) == before


def test_what_the_next_start_mends_has_a_line_and_exit_code_0(store: Path) -> None:
    put(store / LOG_2, END_OFFSET - 262144, b"torn")
    (store / "abort").touch()
    result = run("check", store)
    assert result.exit_code == 0
    assert result.stdout.startswith(f"{LOG_2}: offset {END_OFFSET}: recoverable: ")
    assert "0 errors, 1 recoverable, 0 notes" in result.stderr


def test_a_note_has_a_line_and_exit_code_0(store: Path) -> None:
    (store / "timerwheel").touch()
    result = run("check", store)
    assert (result.exit_code, result.stdout) == (0, "timerwheel: offset 0: note: unknown: not read\n")


def test_json_has_an_object_a_finding(store: Path) -> None:
    put(store / QUEUE, 20, bytes(20))
    result = run("check", store, "--json")
    assert result.exit_code == 1
    (line,) = result.stdout.splitlines()
    finding = json.loads(line)
    assert (finding["path"], finding["offset"], finding["severity"]) == (QUEUE, 20, "error")
    assert finding["text"].startswith("entry 1 of TopicPlain-2 is missing")


def test_only_so_many_findings_are_printed_and_all_are_counted(store: Path) -> None:
    shutil.rmtree(store / "consumequeue")
    result = run("check", store, "--max-findings", 3)
    assert result.exit_code == 1
    assert len(result.stdout.splitlines()) == 3
    assert "37 more findings are not printed (--max-findings)" in result.stderr
    assert "40 errors" in result.stderr


def test_another_delay_level(store: Path) -> None:
    result = run("check", store, "--message-delay-level", "2s 5s 10s")
    assert result.exit_code == 1
    assert result.stdout.startswith("consumequeue/SCHEDULE_TOPIC_XXXX/0/")
    result = run("check", store, "--message-delay-level", "2x")
    assert result.exit_code == 2
    assert "2x" in result.stderr


@pytest.mark.parametrize("command", ["check", "advise"])
class TestBadInput:
    def test_no_directory(self, command: str, tmp_path: Path) -> None:
        result = run(command, tmp_path / "nowhere")
        assert (result.exit_code, result.stdout) == (2, "")
        assert f"{tmp_path / 'nowhere'}: no such directory" in result.stderr

    def test_a_file(self, command: str, tmp_path: Path) -> None:
        (tmp_path / "file").touch()
        result = run(command, tmp_path / "file")
        assert (result.exit_code, result.stdout) == (2, "")
        assert f"{tmp_path / 'file'}: not a directory" in result.stderr

    def test_an_empty_directory(self, command: str, tmp_path: Path) -> None:
        result = run(command, tmp_path)
        assert (result.exit_code, result.stdout) == (2, "")
        assert f"{tmp_path}: no store: it holds no commitlog/" in result.stderr

    def test_a_store_that_somebody_has_open(self, command: str, store: Path) -> None:
        lock = OsDisk(store).lock("lock")
        try:
            result = run(command, store)
            shutil.rmtree(store / "commitlog")  # as long as nothing is stored
            empty = run(command, store)
        finally:
            lock.close()
        for refused in (result, empty):
            assert (refused.exit_code, refused.stdout) == (2, "")
            assert f"a broker has the store open: {store} is in use by" in refused.stderr

    @pytest.mark.parametrize(("code", "is_told"), [(errno.EROFS, False), (errno.EACCES, True), (errno.ENOLCK, True)])
    def test_a_store_that_cannot_be_locked(
        self, command: str, store: Path, monkeypatch: pytest.MonkeyPatch, code: int, is_told: bool
    ) -> None:
        """A broker of another user may write meanwhile: what looks wrong then may be its last messages."""

        def lock(_: OsDisk, path: str) -> OsLock:
            raise OSError(code, os.strerror(code), path)

        monkeypatch.setattr(OsDisk, "lock", lock)
        result = run(command, store)
        assert result.exit_code == 0
        told = f"{store}: whether a broker has the store open, and writes to it meanwhile, is not known: [Errno {code}]"
        assert (told in result.stderr) is is_told

    def test_an_unknown_option(self, command: str, store: Path) -> None:
        result = run(command, store, "--jsn")
        assert result.exit_code == 2
        assert "--jsn" in result.stderr


def test_a_file_that_cannot_be_read_is_an_error(store: Path) -> None:
    (store / QUEUE).unlink()
    (store / QUEUE).mkdir()
    result = run("check", store)
    assert result.exit_code == 1
    assert f"{QUEUE}: offset 0: error: cannot be opened: Is a directory" in result.stdout


def test_advice_for_a_store_that_is_right(store: Path) -> None:
    before = tree(store)
    result = run("advise", store)
    assert (result.exit_code, result.stderr) == (0, "")
    assert f"commitlog: start: the log ends at offset {END_OFFSET}\n" in result.stdout
    assert ": person: " not in result.stdout
    assert tree(store) == before


def test_advice_says_how_much_the_next_start_cuts(store: Path) -> None:
    put(store / LOG_2, END_OFFSET - 262144, b"torn")
    (store / "abort").touch()
    result = run("advise", store, "--json")
    assert result.exit_code == 0
    steps = [json.loads(line) for line in result.stdout.splitlines()]
    assert {step["who"] for step in steps} == {"start"}
    assert any(step["text"].startswith("4 bytes past the log's end are made zeros: ") for step in steps)
    assert any("from offset 0 on are dropped and dispatched again" in step["text"] for step in steps)


def test_advice_says_that_whole_records_are_kept_aside(store: Path) -> None:
    flip(store / LOG, 90)
    (store / "abort").touch()
    result = run("advise", store)
    assert result.exit_code == 1
    assert "commitlog: start: the log ends at offset 0\n" in result.stdout
    assert (
        "cut: start: they hold whole records, the first at 177: all of them are copied to cut/ before" in result.stdout
    )
    assert f"{LOG}: person: copy this file from a replica" in result.stdout


def test_advice_says_that_the_next_start_refuses_and_what_to_do(store: Path) -> None:
    flip(store / LOG, 90)
    result = run("advise", store)
    assert result.exit_code == 1
    refusal, advice = result.stdout.splitlines()[-2:]
    assert refusal.startswith(
        f"commitlog: refusal: the next start refuses: {LOG}: no valid record at offset 0 (bodyCRC "
    )
    assert advice.startswith(f"{LOG}: person: ")


@pytest.mark.parametrize(
    ("path", "words"),
    [
        (QUEUE, "move consumequeue/, index/ and checkpoint away"),
        ("index/20261121012540073", "move consumequeue/, index/ and checkpoint away"),
        ("config/topics.json", "replace the file by its .bak"),
        ("checkpoint", "move checkpoint away"),
        ("config/replicationTerm.json", "an older one would do harm"),
        ("config/roleExchange.json", "without the file"),
    ],
)
def test_there_is_advice_for_each_kind_of_file(store: Path, path: str, words: str) -> None:
    (store / path).touch()
    with (store / path).open("r+b") as file:
        file.write(b"\xff" * 20)
    result = run("advise", store)
    assert result.exit_code == 1
    refused = path in ("config/replicationTerm.json", "config/roleExchange.json")
    assert (f"{path}: refusal: the next start refuses: {path} " in result.stdout) is refused
    (advice,) = (line for line in result.stdout.splitlines() if ": person: " in line)
    assert advice.startswith(f"{path}: person: ")
    assert words in advice


def test_advice_for_a_backup_that_alone_is_there(store: Path) -> None:
    (store / "config/topics.json").rename(store / "config/topics.json.bak")
    (store / "config/topics.json.bak").write_text("[7")
    result = run("advise", store)
    (advice,) = (line for line in result.stdout.splitlines() if ": person: " in line)
    assert advice == (
        "config/topics.json.bak: person: put a replica's config/topics.json in the place of that file;"
        " without one remove this one: the broker has none of its topics then"
    )


def test_advice_goes_by_all_errors_of_a_file(store: Path) -> None:
    """The last one that is found of it is not the one that a start refuses."""
    (store / "index/notes.txt").touch()
    (store / "index/20261121012540073").write_bytes(b"\xff" * 20)
    assert "index/notes.txt: refusal: the next start refuses: " in run("advise", store).stdout


def test_names_that_are_not_printable_are_on_one_line(store: Path) -> None:
    (store / "commitlog" / "notes\n\x1b[31m.txt").touch()
    for command, told in (("check", "not the name of a file of this row"), ("advise", "move it away")):
        lines = run(command, store).stdout.splitlines()
        assert any(line.startswith(r"commitlog/notes\n\x1b[31m.txt: ") and told in line for line in lines)
