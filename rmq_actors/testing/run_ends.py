"""How a run ends before its end: raised by the harness, and turned into the outcome."""

from __future__ import annotations


class InvariantBroken(Exception):
    """An invariant does not hold: the judge's finding says which."""


class NotConverged(Exception):
    """With every fault over, not all is as it should be; says what is not."""


class LimitReached(Exception):
    """A slave follows a master that could not be asked, and has another log: nothing is promised from there on."""
