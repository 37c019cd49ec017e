"""Config files: what is loaded from what, and what a failure leaves."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest
import trio
import trio.testing

from rmq_actors.store.files.json_file import ConfigFile, ConfigFileDamaged, JsonFile
from rmq_actors.wire.fastjson import JsonValue
from tests.worlds.faulty_disk import FaultyDisk
from tests.worlds.golden_capture import STORE_MASTER_CLEAN

PATH = "config/topics.json"


def same(value: JsonValue) -> JsonValue:
    return value


def config(tmp_path: Path, **files: bytes) -> JsonFile:
    directory = tmp_path / "config"
    directory.mkdir()
    for suffix, data in files.items():
        (directory / {"file": "topics.json", "bak": "topics.json.bak", "tmp": "topics.json.tmp"}[suffix]).write_bytes(
            data
        )
    return JsonFile(FaultyDisk(tmp_path), PATH)


def left(tmp_path: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in (tmp_path / "config").iterdir()}


@pytest.mark.parametrize(
    ("files", "source", "value", "reason"),
    [
        ({"file": b"[1]", "bak": b"[2]"}, "file", [1], ""),
        ({"bak": b"[2]"}, "backup", [2], f"{PATH} is missing"),
        ({"file": b"", "bak": b"[2]"}, "backup", [2], f"{PATH} is empty"),
        ({"file": b"\0\0\0", "bak": b"[2]"}, "backup", [2], "cannot be read (line 1, column 1 "),
        ({"file": b"[1", "bak": b"[2]"}, "backup", [2], "cannot be read (line 1, column 3"),
        ({"tmp": b"[3]"}, "none", None, f"{PATH} is missing, {PATH}.bak is missing"),
        ({"file": b"", "bak": b""}, "none", None, f"{PATH} is empty, {PATH}.bak is empty"),
    ],
)  # fmt: skip
def test_the_file_is_loaded_or_its_backup(
    tmp_path: Path,
    files: dict[str, bytes],
    source: str,
    value: JsonValue,
    reason: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A person hears of what is lost, or is old."""
    loaded = config(tmp_path, **files).load(same)
    assert bool(caplog.records) is any(name in ("file", "bak") for name in files) & (source != "file")
    assert (loaded.source, loaded.value) == (source, value)
    assert reason in loaded.reason
    assert bool(reason) == bool(loaded.reason)


@pytest.mark.parametrize(
    "files", [{"file": b"[1"}, {"file": b"[1", "bak": b"x"}, {"bak": b"x"}, {"file": b"", "bak": b"x"}]
)
def test_damage_that_leaves_nothing_is_an_error_that_names_both(tmp_path: Path, files: dict[str, bytes]) -> None:
    file = config(tmp_path, **files)
    with pytest.raises(ConfigFileDamaged, match=f"^{PATH} .*, {PATH}.bak .*"):
        file.load(same)
    assert len(left(tmp_path)) == len(files)


def test_what_the_reader_refuses_is_not_readable(tmp_path: Path) -> None:
    def only_maps(value: JsonValue) -> JsonValue:
        if not isinstance(value, dict):
            raise ValueError("not a map")  # noqa: TRY004
        return value

    loaded = config(tmp_path, file=b"[1]", bak=b"{}").load(only_maps)
    assert (loaded.source, loaded.value, loaded.reason) == ("backup", {}, f"{PATH} cannot be read (not a map)")


def test_a_file_that_is_too_long_is_not_read(tmp_path: Path) -> None:
    config(tmp_path, file=b"[1,2,3]", bak=b"[2]")
    file = JsonFile(FaultyDisk(tmp_path), PATH, max_bytes=6)
    assert file.load(same).source == "backup"
    with pytest.raises(ValueError, match=r"config/topics\.json: 11 bytes, at most 6"):
        trio.run(file.persist, [1, 22])


def test_a_text_that_is_too_long_is_not_read(tmp_path: Path) -> None:
    config(tmp_path, file=b"1234567", bak=b"2")
    file = ConfigFile(FaultyDisk(tmp_path), PATH, max_bytes=6)
    loaded = file.load_text(bytes)
    assert (loaded.source, loaded.value) == ("backup", b"2")
    assert "7 bytes, at most 6 are read" in loaded.reason


def test_the_content_before_becomes_the_backup(tmp_path: Path) -> None:
    async def main() -> None:
        disk = FaultyDisk(tmp_path)
        file = JsonFile(disk, PATH)
        assert file.load(same).source == "none"
        for number in range(3):
            await file.persist({"a": number})
        assert disk.syncs[:3] == [f"{PATH}.tmp", "config/", "/"]

    trio.run(main)
    assert left(tmp_path) == {"topics.json": b'{\n\t"a":2\n}', "topics.json.bak": b'{\n\t"a":1\n}'}


#: What is said of a directory that has the name of one of the files.
A_DIRECTORY = "a directory has the name of a file that is written here, move it away:"


@pytest.mark.parametrize("suffix", ["bak", "tmp"])
def test_a_directory_in_the_way_is_found_before_anything_is_written(tmp_path: Path, suffix: str) -> None:
    """A slave that was asked to lead found it, and said neither yes nor no."""
    file = config(tmp_path, file=b"[1]")
    trio.run(file.check_writable)
    (tmp_path / f"{PATH}.{suffix}").mkdir()
    with pytest.raises(IsADirectoryError, match=rf"{A_DIRECTORY} '{PATH}\.{suffix}'$"):
        trio.run(file.check_writable)
    (tmp_path / f"{PATH}.{suffix}").rmdir()
    assert left(tmp_path) == {"topics.json": b"[1]"}


@pytest.mark.parametrize("suffix", ["", ".bak", ".tmp"])
def test_a_write_says_which_name_a_directory_has(tmp_path: Path, suffix: str) -> None:
    """Of the rename both names were told, the one that was right first, and not what to do."""
    file = config(tmp_path, file=b"[1]")
    file.load(same)
    path = tmp_path / f"{PATH}{suffix}"
    path.unlink(missing_ok=True)
    path.mkdir()
    with pytest.raises(IsADirectoryError, match=rf"{A_DIRECTORY} '{PATH}{suffix}'$"):
        trio.run(file.persist, [2])


def test_a_directory_is_no_content(tmp_path: Path) -> None:
    file = config(tmp_path)
    (tmp_path / f"{PATH}.bak").mkdir()
    with pytest.raises(ConfigFileDamaged, match=f"^{PATH} is missing, {PATH}.bak is a directory$"):
        file.load(same)


def test_rocketmqs_own_file_is_synced_before_it_becomes_the_backup(tmp_path: Path) -> None:
    async def main() -> None:
        disk = FaultyDisk(tmp_path)
        text = (STORE_MASTER_CLEAN / "config/topics.json").read_bytes()
        (tmp_path / "config").mkdir()
        (tmp_path / PATH).write_bytes(text)
        file = JsonFile(disk, PATH)
        loaded = file.load(same)
        await file.persist(loaded.value)
        assert disk.syncs[:2] == [f"{PATH}.tmp", PATH]
        assert left(tmp_path) == {"topics.json": text, "topics.json.bak": text}

    trio.run(main)


def test_what_could_not_be_read_does_not_become_the_backup(tmp_path: Path) -> None:
    file = config(tmp_path, file=b"\0\0", bak=b"[2]")
    assert file.load(same).value == [2]
    trio.run(file.persist, [3])
    assert left(tmp_path) == {"topics.json": b"[\n\t3\n]", "topics.json.bak": b"[2]"}


def test_what_cannot_be_synced_does_not_become_the_backup(tmp_path: Path) -> None:
    async def main() -> None:
        file = config(tmp_path, file=b"[1]", bak=b"[2]")
        disk = file._disk
        assert isinstance(disk, FaultyDisk)
        file.load(same)
        disk.path_that_cannot_be_synced = file.path  # the new content's own sync, under another name, comes through
        await file.persist([3])

    trio.run(main)
    assert left(tmp_path) == {"topics.json": b"[\n\t3\n]", "topics.json.bak": b"[2]"}


def test_a_failed_write_leaves_the_old_content_and_the_next_succeeds(tmp_path: Path) -> None:
    async def main() -> None:
        file = config(tmp_path, file=b"[1]")
        disk = file._disk
        assert isinstance(disk, FaultyDisk)
        file.load(same)
        disk.space_bytes = 3
        with pytest.raises(OSError, match=os.strerror(errno.ENOSPC)):
            await file.persist([2])
        assert left(tmp_path) == {"topics.json": b"[1]"}
        disk.space_bytes = None
        disk.failing_syncs = 1
        with pytest.raises(OSError, match=os.strerror(errno.EIO)):
            await file.persist([2])
        assert left(tmp_path) == {"topics.json": b"[1]"}
        await file.persist([2])
        assert left(tmp_path)["topics.json"] == b"[\n\t2\n]"

    trio.run(main)


def test_a_cancelled_write_leaves_the_old_content(tmp_path: Path) -> None:
    async def main() -> None:
        file = config(tmp_path, file=b"[1]", tmp=b"of a process that has died")
        disk = file._disk
        assert isinstance(disk, FaultyDisk)
        disk.sync_gate = trio.Event()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(file.persist, [2])
            await trio.testing.wait_all_tasks_blocked()
            assert left(tmp_path)["topics.json.tmp"] == b"[\n\t2\n]"
            nursery.cancel_scope.cancel()
        assert left(tmp_path) == {"topics.json": b"[1]"}

    trio.run(main)


def test_writers_come_one_after_the_other(tmp_path: Path) -> None:
    async def main() -> None:
        file = JsonFile(FaultyDisk(tmp_path), PATH)
        async with trio.open_nursery() as nursery:
            for number in range(5):
                nursery.start_soon(file.persist, [number])
        names = sorted(left(tmp_path))
        assert names == ["topics.json", "topics.json.bak"]
        assert file.load(same).source == "file"

    trio.run(main)
