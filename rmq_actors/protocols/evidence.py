"""Whose word counts: a slave halts, and cuts its log, only if a broker that is the master now has another log.

A broker that is not a master may just not have received yet what the slave has, and its tables may be older. A broker
of another brokerName has another log altogether. So a peer says what it is before and after each comparison, and a
broker of this project says its term too.
"""

from __future__ import annotations

from typing import Literal

import attrs

from rmq_actors.protocols.term import Term


@attrs.frozen
class Own:
    """What the judging broker is."""

    term: Term
    broker_name: str


@attrs.frozen
class Peer:
    """What a broker said about itself at one moment. RocketMQ's tells only its role and its brokerName."""

    is_master: bool
    term: int | None = None
    #: Whether it was promoted to `term`: it may be a slave again.
    leads_term: bool = False
    #: Whether it is a slave that receives its master's log.
    is_following: bool = False
    #: Its brokerName, if it told one.
    name: str | None = None


#: Why the word of a peer does not count.
DoubtReason = Literal["no_master", "role_changed", "old_term", "other_name"]


@attrs.frozen
class Doubt:
    """Why the word of a peer does not count. `reason` is short and stable."""

    reason: DoubtReason
    detail: str


def _doubt_in_name(own: Own, *said: Peer | None) -> Doubt | None:
    """A peer of another name: a wrong address leads to another pair, with its own log, tables and terms."""
    for peer in said:
        if peer is not None and peer.name is not None and peer.name != own.broker_name:
            return Doubt(
                "other_name",
                f"its brokerName is {peer.name}, and this broker's is {own.broker_name}: it is the master of other"
                " slaves. haMasterAddress and masterAddr must name the master of this brokerName"
                " (`rmq-actors broker-admin change-role` sets them)",
            )
    return None


def doubt_in_following(own: Own, peer: Peer | None) -> Doubt | None:
    """Why a peer whose log continues this one's is not followed, if so. `peer` None: it did not say what it is."""
    if doubt := _doubt_in_name(own, peer):
        return doubt
    if peer is None or peer.term is None or peer.term >= own.term.number:
        return None
    return Doubt(
        "old_term",
        f"its term is {peer.term}, and this broker has seen term {own.term.number}: another one was promoted after it."
        " If it is the one to be followed all the same, promote it to a greater term (`rmq-actors broker-admin"
        f" change-role` with `--term {own.term.number + 1}`)",
    )


def doubt_in_difference(own: Own, before: Peer | None, after: Peer | None) -> Doubt | None:
    """Why a peer with another log is not a reason to halt, if so."""
    if before is None or after is None:
        return Doubt("no_master", "it does not say whether it is a master")
    if doubt := _doubt_in_name(own, before, after):
        return doubt
    if (before.is_master, before.term) != (after.is_master, after.term):
        return Doubt("role_changed", "it has changed its role since it was asked")
    if not before.is_master:
        return Doubt("no_master", "it is a slave, which may not have received yet what this log has")
    return doubt_in_following(own, before)


def doubt_in_tables(own: Own, before: Peer | None, after: Peer | None) -> Doubt | None:
    """Why a peer's tables are not taken over, if so: the tables of a term come from the broker that leads it.

    A slave hands them on while it follows, but not back to the broker that they came from.
    """
    if before is None or after is None:
        return Doubt("no_master", "it does not say whether it is a master")
    if doubt := _doubt_in_name(own, before, after):
        return doubt
    if (before.is_master, before.term, before.leads_term) != (after.is_master, after.term, after.leads_term):
        return Doubt("role_changed", "it has changed its role since it was asked")
    if doubt := doubt_in_following(own, before):
        return doubt
    if before.is_master or before.leads_term:
        return None
    if not (before.is_following and after.is_following):
        return Doubt("no_master", "it is a slave, and follows nobody: its tables may be old")
    if own.term.leads and before.term == own.term.number:
        return Doubt("no_master", "it is a slave, and this broker was its master: its tables are the older ones")
    return None
