"""The term of replication: what a promotion and another broker's term make of it, and the file that keeps it."""

from __future__ import annotations

from pathlib import Path

import pytest
import trio

from rmq_actors.protocols.term import TERM_MAX, Term, TermRefused
from rmq_actors.store.files.json_file import ConfigFileDamaged
from rmq_actors.store.files.term_file import TermFile
from tests.worlds.faulty_disk import FaultyDisk
from tests.worlds.recording import new_tracer

FILE = "replicationTerm.json"


def test_a_promotion_goes_to_a_greater_term_than_every_one_seen() -> None:
    assert Term().promoted() == Term(1, leads=True)
    assert Term(7).promoted() == Term(8, leads=True)
    assert Term(7, leads=True).promoted() == Term(8, leads=True)
    assert Term(7).promoted(20) == Term(20, leads=True)
    # Another was seen since somebody asked for this one.
    assert Term(7).promoted(5) == Term(8, leads=True)
    with pytest.raises(TermRefused, match=f"no term after {TERM_MAX}"):
        Term(TERM_MAX).promoted()


def test_who_has_resigned_needs_a_promotion_to_be_the_master_again() -> None:
    led = Term(3, leads=True)
    assert led.is_masters
    assert led.given_up() == Term(3, leads=True, resigned=True) == led.given_up().given_up()
    assert not led.given_up().is_masters
    assert led.given_up().promoted() == Term(4, leads=True)
    assert led.given_up().seen(4) == Term(4)
    assert Term(3).given_up() == Term(3)
    assert [str(term) for term in (led, led.given_up(), Term(3))] == [
        "3, which this broker leads", "3, which this broker led", "3"
    ]  # fmt: skip


def test_a_greater_term_of_another_broker_is_taken_over_and_no_other() -> None:
    assert Term(3, leads=True).seen(4) == Term(4)
    assert Term(3, leads=True).seen(3) == Term(3, leads=True)
    assert Term(3).seen(2) == Term(3)


@pytest.mark.parametrize(
    ("asked", "why"),
    [
        (3, "term 3 is not greater than 3"),
        (0, "term 0 is"),
        (2**62 + 1, "is greater than 46"),
        (TERM_MAX, "is greater than"),
    ],
)
def test_a_term_that_is_not_greater_is_refused(asked: int, why: str) -> None:
    Term(3).check(4)
    with pytest.raises(TermRefused, match=why):
        Term(3).check(asked)


@pytest.mark.parametrize(
    ("number", "leads", "resigned"),
    [(-1, False, False), (TERM_MAX + 1, False, False), (0, True, False), (3, False, True)],
)
def test_what_no_term_is(number: int, leads: bool, resigned: bool) -> None:
    with pytest.raises(ValueError, match="term"):
        Term(number, leads, resigned)


def load(root: Path) -> TermFile:
    return TermFile.load(FaultyDisk(root), new_tracer())


def write(root: Path, text: str, name: str = FILE) -> None:
    (root / "config").mkdir(exist_ok=True)
    (root / "config" / name).write_text(text)


@pytest.mark.trio
async def test_the_term_is_kept(tmp_path: Path) -> None:
    (tmp_path / "config").mkdir()
    terms = load(tmp_path)
    assert terms.term == Term()
    await terms.promote()
    assert load(tmp_path).term == terms.term == Term(1, leads=True)
    await terms.see(1)
    assert load(tmp_path).term == Term(1, leads=True)
    await terms.give_up()
    assert load(tmp_path).term == terms.term == Term(1, leads=True, resigned=True)
    await terms.see(5)
    assert load(tmp_path).term == terms.term == Term(5)
    await terms.promote(9)
    assert load(tmp_path).term == Term(9, leads=True)


class CancellingDisk(FaultyDisk):
    """Who writes is cancelled when the new file has its name."""

    scope: trio.CancelScope

    def rename(self, source: str, target: str) -> None:
        super().rename(source, target)
        self.scope.cancel()


@pytest.mark.trio
async def test_a_change_that_is_cancelled_is_finished(tmp_path: Path) -> None:
    """A slave is promoted while it keeps its master's term: the promotion goes beyond what the file has by then."""
    (tmp_path / "config").mkdir()
    disk = CancellingDisk(tmp_path)
    terms = TermFile.load(disk, new_tracer())
    with trio.CancelScope() as disk.scope:
        await terms.see(7)
    assert load(tmp_path).term == terms.term
    await terms.promote()
    assert load(tmp_path).term == terms.term == Term(8, leads=True)


@pytest.mark.trio
async def test_a_term_that_cannot_be_kept_is_not_taken(tmp_path: Path) -> None:
    (tmp_path / "config").mkdir()
    disk = FaultyDisk(tmp_path)
    terms = TermFile.load(disk, new_tracer())
    disk.failing_syncs = 2
    with pytest.raises(OSError, match="Input"):
        await terms.promote()
    with pytest.raises(OSError, match="Input"):
        await terms.see(3)
    assert terms.term == Term()
    assert load(tmp_path).term == Term()


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "is empty"),
        ("\0" * 20, "cannot be read"),
        ('{"leads":true,"term":', "cannot be read"),
        ('{"term":3}', "there is not"),
        ('{"leads":1,"resigned":false,"term":3}', "neither true nor false"),
        ('{"leads":true,"resigned":0,"term":3}', "neither true nor false"),
        ('{"leads":false,"resigned":false,"term":"3"}', "is no integer"),
        ('{"leads":false,"resigned":false,"term":true}', "is no integer"),
        ('{"leads":false,"resigned":false,"term":-3}', "term -3 is not in"),
        ('{"leads":true,"resigned":false,"term":0}', "nobody leads term 0"),
        ('{"leads":false,"resigned":true,"term":3}', "a broker that does not lead term 3 cannot resign"),
        (f'{{"leads":false,"resigned":false,"term":{TERM_MAX + 1}}}', "cannot be read"),
        ('{"leads":false,"resigned":false,"term":3}'.ljust(5000), "at most 4096"),
    ],
)
@pytest.mark.parametrize("has_backup", [False, True])
def test_a_file_that_cannot_be_read_is_an_error_and_never_term_0_or_an_older_one(
    tmp_path: Path, text: str, why: str, has_backup: bool
) -> None:
    write(tmp_path, text)
    if has_backup:
        write(tmp_path, '{"leads":false,"resigned":false,"term":2}', f"{FILE}.bak")
    with pytest.raises(ConfigFileDamaged, match=f"config/{FILE} .*{why}"):
        load(tmp_path)
    assert (tmp_path / "config" / FILE).read_text() == text


def test_the_backup_counts_where_a_power_cut_took_the_name_of_the_new_file(tmp_path: Path) -> None:
    """Between two renames: who changed the term was not told that it is kept."""
    write(tmp_path, '{"leads":false,"resigned":false,"term":2}', f"{FILE}.bak")
    write(tmp_path, '{"leads":true,"resigned":false,"term":3}', f"{FILE}.tmp")
    assert load(tmp_path).term == Term(2)
