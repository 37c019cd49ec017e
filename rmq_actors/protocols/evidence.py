"""Whose word counts: a slave halts, and cuts its log, only where a broker that is the master now has another log.

A broker that is no master may lack what the slave has because it has not received it yet, and its tables may be the
older ones. So a peer says what it is before and after each comparison, and a broker of this project says its term too.
"""

from __future__ import annotations

import attrs

from rmq_actors.protocols.term import Term


@attrs.frozen
class Peer:
    """What a broker said of itself at one moment. RocketMQ's own has no term, and tells nothing of the rest."""

    is_master: bool
    term: int | None = None
    #: Whether it was promoted to `term`: it may be a slave again.
    leads_term: bool = False
    #: Whether it is a slave to whom its master's log comes.
    is_following: bool = False


@attrs.frozen
class Doubt:
    """Why the word of a peer does not count. `reason` is short and stable."""

    reason: str
    detail: str


def doubt_in_following(own: Term, peer: Peer | None) -> Doubt | None:
    """Why a peer whose log begins with this one's is not followed, if so. None: it said nothing of itself."""
    if peer is None or peer.term is None or peer.term >= own.number:
        return None
    return Doubt(
        "old_term",
        f"its term is {peer.term}, and this broker has seen term {own.number}: another one was promoted after it. If it"
        f" is the one to be followed all the same, promote it to a greater term (`rmq-actors broker-admin change-role`"
        f" with `--term {own.number + 1}`)",
    )


def doubt_in_difference(own: Term, before: Peer | None, after: Peer | None) -> Doubt | None:
    """Why a peer that has another log than this one is no reason to halt, if so."""
    if before is None or after is None:
        return Doubt("no_master", "it does not say whether it is a master")
    if (before.is_master, before.term) != (after.is_master, after.term):
        return Doubt("role_changed", "it has changed its role since it was asked")
    if not before.is_master:
        return Doubt("no_master", "it is a slave, which may not have received yet what this log has")
    return doubt_in_following(own, before)


def doubt_in_tables(own: Term, before: Peer | None, after: Peer | None) -> Doubt | None:
    """Why a peer's tables are not taken over, if so: those of a term come from whoever leads it.

    A slave hands them on, while it follows, but never to the one that they came from.
    """
    if before is None or after is None:
        return Doubt("no_master", "it does not say whether it is a master")
    if (before.is_master, before.term, before.leads_term) != (after.is_master, after.term, after.leads_term):
        return Doubt("role_changed", "it has changed its role since it was asked")
    if doubt := doubt_in_following(own, before):
        return doubt
    if before.is_master or before.leads_term:
        return None
    if not (before.is_following and after.is_following):
        return Doubt("no_master", "it is a slave, and follows nobody: its tables may be old")
    if own.leads and before.term == own.number:
        return Doubt("no_master", "it is a slave, and this broker was its master: its tables are the older ones")
    return None
