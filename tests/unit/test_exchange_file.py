"""The note of an exchange of roles: durable when it is written, and when it is removed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from rmq_actors.protocols.exchange import Note, Partner
from rmq_actors.store.files.exchange_file import ExchangeFile
from rmq_actors.store.files.json_file import ConfigFileDamaged
from rmq_actors.store.files.layout import EXCHANGE_FILE
from tests.worlds.faulty_disk import FaultyDisk

NOTE = Note("x-1", Partner("127.0.0.1:20911", "127.0.0.1:20912", 1), 4, 1000, "SYNC_MASTER")


@pytest.mark.trio
async def test_what_is_written_is_read_until_it_is_removed(tmp_path: Path) -> None:
    disk = FaultyDisk(tmp_path)
    file = ExchangeFile.load(disk)
    assert [file.note, ExchangeFile.load(disk).note] == [None, None]
    await file.write(NOTE)
    assert [file.note, ExchangeFile.load(disk).note] == [NOTE, NOTE]
    await file.remove()
    await file.remove()
    assert [file.note, ExchangeFile.load(disk).note] == [None, None]


@pytest.mark.trio
async def test_an_older_note_does_not_come_back_from_the_bak(tmp_path: Path) -> None:
    disk = FaultyDisk(tmp_path)
    file = ExchangeFile.load(disk)
    await file.write(NOTE)
    await file.write(NOTE)
    assert disk.exists(f"{EXCHANGE_FILE}.bak")
    await file.remove()
    assert ExchangeFile.load(disk).note is None


@pytest.mark.parametrize(
    "change",
    [
        {"term": -1},
        {"term": True},
        {"end": "1"},
        {"role": "SLAVE"},
        {"role": "MASTER"},
        {"slaveAddr": "nowhere"},
        {"slaveHaAddr": 1},
        {"more": 1},
    ],
)
@pytest.mark.trio
async def test_a_note_that_makes_no_sense_stops_the_start_and_is_named(
    tmp_path: Path, change: dict[str, object]
) -> None:
    disk = FaultyDisk(tmp_path)
    await ExchangeFile.load(disk).write(NOTE)
    path = tmp_path / EXCHANGE_FILE
    path.write_text(json.dumps({**json.loads(path.read_text()), **change}))
    with pytest.raises(ConfigFileDamaged, match=r"config/roleExchange\.json .*with which broker"):
        ExchangeFile.load(disk)
