"""What a slave answers the master that exchanges roles with it (`exchange`): whether it is ready, and yes or no.

A slave prepares under a name, and is promoted under that name once. Whatever comes of the promotion, the name is used
up: if a request was delayed and arrives when the master has long gone on as the master, it is refused. It is also
refused after the slave was started again, or has opened its store again, as it may have another log by then.
"""

from __future__ import annotations

from collections.abc import Hashable

import attrs


@attrs.frozen
class SlaveState:
    """What a broker is now. `life` differs each time that its store is opened, `tables` when its tables change."""

    broker_name: str
    is_slave: bool
    term: int
    leads: bool
    log_end: int
    life: int
    is_followed: bool = True
    #: Why it has halted.
    halted: str | None = None
    tables: Hashable = None

    @property
    def is_leader(self) -> bool:
        """Whether it is the master that was promoted to its term."""
        return self.leads and not self.is_slave


def why_no_partner(own: SlaveState, broker_name: str, term: int) -> str | None:
    """Why this broker cannot take over from the master of `broker_name` that leads `term`; None if it can."""
    if not own.is_slave:
        return "it is not a slave"
    if own.broker_name != broker_name:
        return f"its brokerName is {own.broker_name}, not {broker_name}"
    if own.term > term:
        return f"it knows of term {own.term}: the master of term {term} is not the last one"
    if own.halted is not None:
        return f"it has halted: {own.halted}"
    return None


def why_not_ready(own: SlaveState, end: int) -> str | None:
    """What a slave still waits for that must have the log up to `end`; None if it has it."""
    if not own.is_followed:
        return "it follows no master at the moment"
    if own.log_end != end:
        return f"its log ends at {own.log_end}, not at {end}"
    return None


@attrs.frozen
class Promotion:
    """A slave that has the log up to `end` is to lead `term`."""

    name: str
    term: int
    end: int


@attrs.define(eq=False, repr=False)
class SlavePreparation:
    """What a slave has prepared for, at most one promotion."""

    _prepared: str | None = attrs.field(default=None, init=False)
    _life: int = attrs.field(default=-1, init=False)
    _end: int = attrs.field(default=-1, init=False)
    _tables: Hashable = attrs.field(default=None, init=False)

    def ready(self, name: str, own: SlaveState) -> None:
        """The slave has all that the master has: the log, synced, and the tables."""
        self._prepared, self._life, self._end, self._tables = name, own.life, own.log_end, own.tables

    def why_not_promoted(self, asked: Promotion, own: SlaveState) -> str | None:
        """Why it refuses to become the master; None if it must do so now. A call uses the name up."""
        prepared, self._prepared = self._prepared, None
        if not own.is_slave:
            return "it is not a slave"
        if prepared != asked.name:
            return "it has not prepared for that, or not since it was started, or has been asked before"
        if own.life != self._life:
            return "it has opened its store again since it prepared"
        if not own.log_end == self._end == asked.end:
            return f"its log ends at {own.log_end}, it was to end at {asked.end}"
        if own.tables != self._tables:
            return "its tables have changed since it prepared: an answer of its master that was late may be older"
        if asked.term <= own.term:
            return f"it knows of term {own.term} already, and cannot be promoted to {asked.term}"
        return None


def is_promoted(asked: Promotion, own: SlaveState) -> bool:
    """Whether the promotion is done already, so that only the answer was lost."""
    return own.is_leader and own.term >= asked.term
