"""The term of replication: a number that grows with each promotion, so that brokers know whose word is newer.

A broker keeps the greatest term that it has seen, and whether it was itself promoted to it: then it *leads* that term
until it sees a greater one. It may have resigned since, and be a slave: its tables are still those of the term, but it
needs another promotion to be the master again. A store that has never heard of a term has term 0.
"""

from __future__ import annotations

import attrs

#: The greatest Java long, which no number of promotions reaches.
TERM_MAX = 2**63 - 1
#: The greatest that an operator may ask for: promotions go on from there, and never reach the end.
TERM_ASKED_MAX = 2**62


class TermRefused(ValueError):
    """A broker cannot go to this term; the message says why."""


@attrs.frozen
class Term:
    """A value: a change makes another one. Raises `ValueError` if there is no such term."""

    number: int = 0
    leads: bool = False
    resigned: bool = False

    def __attrs_post_init__(self) -> None:
        if not 0 <= self.number <= TERM_MAX:
            raise ValueError(f"term {self.number} is not in 0 to {TERM_MAX}")
        if self.leads and not self.number:
            raise ValueError("nobody leads term 0: the first promotion goes to term 1")
        if self.resigned and not self.leads:
            raise ValueError(f"a broker that does not lead term {self.number} cannot resign")

    def __str__(self) -> str:
        if not self.leads:
            return f"{self.number}"
        return f"{self.number}, which this broker {'led' if self.resigned else 'leads'}"

    @property
    def is_masters(self) -> bool:
        """Whether a broker may be the master in it without another promotion: after a restart, say."""
        return self.leads and not self.resigned

    def check(self, asked: int) -> None:
        """Raise `TermRefused` unless a promotion may go to the term that somebody asks for."""
        if asked <= self.number:
            raise TermRefused(f"term {asked} is not greater than {self.number}, the greatest that this broker has seen")
        if asked > TERM_ASKED_MAX:
            raise TermRefused(f"term {asked} is greater than {TERM_ASKED_MAX}: promotions need greater ones after it")

    def promoted(self, asked: int | None = None) -> Term:
        """The term after a promotion: greater than every one seen, and at least what is asked. Raises `TermRefused`."""
        number = max(self.number + 1, asked or 0)
        if number > TERM_MAX:
            raise TermRefused(f"there is no term after {self.number}")
        return Term(number, leads=True)

    def given_up(self) -> Term:
        """The term of a broker that is a slave now."""
        return Term(self.number, leads=True, resigned=True) if self.leads else self

    def seen(self, number: int) -> Term:
        """The term after another broker has told its own."""
        return Term(number) if number > self.number else self
