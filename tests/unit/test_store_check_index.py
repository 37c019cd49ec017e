"""Checking an index: the golden one damaged, and files of every shape that are right."""

from __future__ import annotations

from pathlib import Path

import attrs
import pytest

from rmq_actors.store.check.finding import Finding
from tests.worlds.golden_capture import STORE_MASTER_CLEAN
from tests.worlds.store_copies import CONFIG, copy_store, findings_of, flip, make_store, put

INDEX = "index/20261121012540073"
#: Where the entries of the golden index begin: 500 slots.
ENTRIES_AT = 40 + 500 * 4


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return copy_store(STORE_MASTER_CLEAN, tmp_path / "store")


@pytest.mark.parametrize(
    ("slots", "index_num"), [(1, 3), (1, 100), (7, 4), (10, 4000), (64, 20), (100, 2), (1000, 2), (1000, 4000)]
)
@pytest.mark.parametrize("count", [1, 2, None])
def test_the_number_of_hash_slots_is_found_out(tmp_path: Path, slots: int, index_num: int, count: int | None) -> None:
    """No file names it: files of the same length may have any."""
    make_store(tmp_path, attrs.evolve(CONFIG, max_hash_slot_num=slots, max_index_num=index_num), count)
    assert {finding.path for finding in findings_of(tmp_path)} == {"checkpoint"}


@pytest.mark.parametrize("name", ["20231114221320000", "20231114221320001"])
@pytest.mark.parametrize("longer_bytes", [1, 20])
def test_an_index_file_of_another_length(tmp_path: Path, name: str, longer_bytes: int) -> None:
    make_store(tmp_path)
    with (tmp_path / "index" / name).open("ab") as file:
        file.write(bytes(longer_bytes))
    found = [finding for finding in findings_of(tmp_path) if finding.path != "checkpoint"]
    assert found
    assert all(finding.path.startswith("index/") for finding in found)
    assert {(finding.severity, "bytes long" in finding.text) for finding in found} == {("error", True)}


def test_an_index_entry_to_nowhere(store: Path) -> None:
    put(store / INDEX, ENTRIES_AT + 20 * 5 + 4, (1 << 40).to_bytes(8, "big"))
    (finding,) = findings_of(store)
    assert finding[:3] == (INDEX, ENTRIES_AT + 100, "error")
    assert finding.text.startswith(f"entry 5 is of offset {1 << 40}, out of order between ")


def test_an_index_entry_into_a_record(store: Path) -> None:
    offset = int.from_bytes((store / INDEX).read_bytes()[ENTRIES_AT + 104 : ENTRIES_AT + 112], "big")
    put(store / INDEX, ENTRIES_AT + 104, (offset + 1).to_bytes(8, "big"))
    text = f"entry 5 is of offset {offset + 1}; its record stands at {offset}"
    assert findings_of(store) == [Finding(INDEX, ENTRIES_AT + 100, "error", text)]


def test_a_chain_that_goes_round(store: Path) -> None:
    put(store / INDEX, ENTRIES_AT + 20 * 9 + 16, (9).to_bytes(4, "big"))
    (finding,) = findings_of(store)
    assert finding[:3] == (INDEX, ENTRIES_AT + 180, "error")
    assert finding.text.startswith("entry 9 leads on to entry 9; the one before it in its slot, ")


def test_a_slot_that_leads_elsewhere(store: Path) -> None:
    data = (store / INDEX).read_bytes()
    slot = next(slot for slot in range(500) if data[40 + 4 * slot : 44 + 4 * slot] != bytes(4))
    put(store / INDEX, 40 + 4 * slot, bytes(4))
    (finding,) = findings_of(store)
    assert finding[:3] == (INDEX, 40 + 4 * slot, "error")
    assert finding.text.startswith(f"hash slot {slot} leads to entry 0; the last entry in it is ")


def test_a_hash_of_another_key(store: Path) -> None:
    flip(store / INDEX, ENTRIES_AT + 20 * 7 + 3)
    found = findings_of(store)
    assert any("entry 7 has hash" in finding.text and "of no key of its record" in finding.text for finding in found)
    assert {finding.path for finding in found} == {INDEX}


@pytest.mark.parametrize(
    ("position", "words"),
    [
        (7, "beginTimestamp "),
        (15, "endTimestamp "),
        (23, "beginPhyOffset 1 in the header; by the entries it is 0"),
        (31, "endPhyOffset "),
        (35, "hashSlotCount 243 in the header; by the entries it is 242"),
    ],
)
def test_a_header_that_its_entries_belie(store: Path, position: int, words: str) -> None:
    flip(store / INDEX, position)
    found = findings_of(store)
    assert any(
        finding.text.startswith(words) and finding.offset == position - position % 4 - 4 * (position < 32)
        for finding in found
    )
    assert {(finding.path, finding.severity) for finding in found} == {(INDEX, "error")}


def test_an_index_count_that_is_too_small(store: Path) -> None:
    put(store / INDEX, 36, (370).to_bytes(4, "big"))
    texts = [finding.text for finding in findings_of(store)]
    assert "120 bytes after the last entry, 369, are not zero" in texts
    assert any(text.startswith("6 keys of records at ") and "are not in the index" in text for text in texts)


def test_no_index_is_a_note(store: Path) -> None:
    (store / INDEX).unlink()
    (finding,) = findings_of(store)
    assert finding[:3] == ("index", 0, "note")
    assert finding.text.endswith("from offset 0 on cannot be found: there is no index")


def test_the_first_index_file_is_gone(tmp_path: Path) -> None:
    make_store(tmp_path)
    first, *rest = sorted((tmp_path / "index").iterdir())
    assert rest
    first.unlink()
    finding, _ = findings_of(tmp_path)
    assert (finding.path, finding.severity) == ("index", "note")
    assert "records from offset 0 on cannot be found: the index begins at" in finding.text
