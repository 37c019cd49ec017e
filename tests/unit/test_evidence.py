"""Whose word counts: of a comparison of logs, of tables, and who is followed at all."""

from __future__ import annotations

import pytest

from rmq_actors.protocols.evidence import (
    Doubt,
    Own,
    Peer,
    doubt_in_difference,
    doubt_in_following,
    doubt_in_tables,
)
from rmq_actors.protocols.term import Term

OWN = Own(Term(3), "broker-a")
MASTER = Peer(is_master=True, term=3, leads_term=True)
NEWER_MASTER = Peer(is_master=True, term=4, leads_term=True)
OLD_MASTER = Peer(is_master=True, term=2, leads_term=True)
#: A slave of this project to which its master's log comes; one that follows nobody.
SLAVE = Peer(is_master=False, term=3, is_following=True)
LONELY_SLAVE = Peer(is_master=False, term=3)
#: It has given up its role, and nobody was promoted yet.
RESIGNED = Peer(is_master=False, term=3, leads_term=True, is_following=True)
#: Whom a wrong address leads to: of a greater term, too.
OTHER, OTHER_SLAVE = Peer(True, 9, True, name="broker-b"), Peer(False, 9, is_following=True, name="broker-b")
OTHER_JAVA = Peer(True, name="broker-b")
NAMED = Peer(True, 3, True, name="broker-a")
JAVA_MASTER, JAVA_SLAVE = Peer(is_master=True), Peer(is_master=False)


def reason(doubt: Doubt | None) -> str:
    return "" if doubt is None else doubt.reason


@pytest.mark.parametrize(
    ("peer", "expected"),
    [
        (MASTER, ""),
        (NEWER_MASTER, ""),
        (OLD_MASTER, "old_term"),
        (SLAVE, ""),
        (LONELY_SLAVE, ""),
        (Peer(is_master=False, term=2), "old_term"),
        (JAVA_MASTER, ""),
        (JAVA_SLAVE, ""),
        (None, ""),
        (NAMED, ""),
        (OTHER, "other_name"),
        (OTHER_SLAVE, "other_name"),
        (OTHER_JAVA, "other_name"),
    ],
)
def test_who_is_followed_if_the_logs_agree(peer: Peer | None, expected: str) -> None:
    assert reason(doubt_in_following(OWN, peer)) == expected


def test_a_master_of_an_old_term_is_told_what_to_do() -> None:
    doubt = doubt_in_following(OWN, OLD_MASTER)
    assert doubt is not None
    assert "its term is 2, and this broker has seen term 3" in doubt.detail
    assert "`--term 4`" in doubt.detail


def test_a_wrong_address_is_told_with_both_names() -> None:
    doubt = doubt_in_following(OWN, OTHER)
    assert doubt is not None
    assert "its brokerName is broker-b, and this broker's is broker-a" in doubt.detail


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        (MASTER, MASTER, ""),
        (NEWER_MASTER, NEWER_MASTER, ""),
        (JAVA_MASTER, JAVA_MASTER, ""),
        (OLD_MASTER, OLD_MASTER, "old_term"),
        (SLAVE, SLAVE, "no_master"),
        (LONELY_SLAVE, LONELY_SLAVE, "no_master"),
        (RESIGNED, RESIGNED, "no_master"),
        (JAVA_SLAVE, JAVA_SLAVE, "no_master"),
        (None, None, "no_master"),
        (MASTER, None, "no_master"),
        (None, MASTER, "no_master"),
        # It was one when it was asked, or became one since.
        (MASTER, RESIGNED, "role_changed"),
        (SLAVE, NEWER_MASTER, "role_changed"),
        (MASTER, NEWER_MASTER, "role_changed"),
        (JAVA_MASTER, JAVA_SLAVE, "role_changed"),
        (JAVA_MASTER, MASTER, "role_changed"),
        (NAMED, NAMED, ""),
        (OTHER, OTHER, "other_name"),
        (OTHER_SLAVE, OTHER_SLAVE, "other_name"),
        (OTHER_JAVA, OTHER_JAVA, "other_name"),
        # The address leads to another broker meanwhile.
        (NAMED, OTHER, "other_name"),
    ],
)
def test_whose_other_log_is_a_reason_to_halt(before: Peer | None, after: Peer | None, expected: str) -> None:
    assert reason(doubt_in_difference(OWN, before, after)) == expected


@pytest.mark.parametrize(
    ("own", "before", "after", "expected"),
    [
        (OWN, MASTER, MASTER, ""),
        (OWN, NEWER_MASTER, NEWER_MASTER, ""),
        (OWN, JAVA_MASTER, JAVA_MASTER, ""),
        (OWN, OLD_MASTER, OLD_MASTER, "old_term"),
        # Who led the term has its tables, also as a slave.
        (OWN, RESIGNED, RESIGNED, ""),
        # A slave in the middle hands on what it has.
        (OWN, SLAVE, SLAVE, ""),
        (OWN, LONELY_SLAVE, LONELY_SLAVE, "no_master"),
        (OWN, SLAVE, LONELY_SLAVE, "no_master"),
        (OWN, JAVA_SLAVE, JAVA_SLAVE, "no_master"),
        # But not to who led the term: that one's tables are the newest.
        (Own(Term(3, leads=True, resigned=True), "broker-a"), SLAVE, SLAVE, "no_master"),
        (Own(Term(2, leads=True, resigned=True), "broker-a"), SLAVE, SLAVE, ""),
        (OWN, None, None, "no_master"),
        (OWN, MASTER, None, "no_master"),
        (OWN, MASTER, NEWER_MASTER, "role_changed"),
        (OWN, MASTER, RESIGNED, "role_changed"),
        (OWN, RESIGNED, SLAVE, "role_changed"),
        (OWN, JAVA_MASTER, JAVA_SLAVE, "role_changed"),
        (OWN, NAMED, NAMED, ""),
        (OWN, OTHER, OTHER, "other_name"),
        (OWN, OTHER_SLAVE, OTHER_SLAVE, "other_name"),
        (OWN, OTHER_JAVA, OTHER_JAVA, "other_name"),
        (OWN, NAMED, OTHER, "other_name"),
    ],
)
def test_whose_tables_are_taken_over(own: Own, before: Peer | None, after: Peer | None, expected: str) -> None:
    assert reason(doubt_in_tables(own, before, after)) == expected
