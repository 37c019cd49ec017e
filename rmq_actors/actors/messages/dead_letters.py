"""Messages that nobody handled, each with the reason: counted, the latest kept, and open to subscribers."""

from __future__ import annotations

import collections
import contextlib
from collections.abc import Callable, Iterator, Mapping
from typing import Literal

import attrs

#: Why a message was not handled. `not_running`: told to an actor that had ended for good. `stopped`, `died`: queued, or
#: under way, when its actor stopped or died. `crashed`: under way when its actor crashed (what is queued then is kept).
#: `dropped_newest`, `dropped_oldest`, `superseded`: the mailbox was full. `expired`: an ask whose deadline had passed.
#: `abandoned`: an ask whose asker was cancelled. `late_reply`: a reply to either. `nobody_asked`: one to a tell.
Reason = Literal[
    "not_running",
    "stopped",
    "died",
    "crashed",
    "dropped_newest",
    "dropped_oldest",
    "superseded",
    "expired",
    "abandoned",
    "late_reply",
    "nobody_asked",
]


@attrs.frozen(eq=False)
class DeadLetter:
    """A message, the path of the actor that it was for, and why that did not handle it."""

    message: object
    to: str
    reason: Reason


@attrs.define(eq=False, repr=False)
class DeadLetters:
    """The dead letters of one system. Keeps the latest `letters_max`; the counts cover all."""

    letters_max: int
    _recent: collections.deque[DeadLetter] = attrs.field(init=False)
    _counts: dict[Reason, int] = attrs.field(factory=dict, init=False)
    _subscribers: dict[object, Callable[[DeadLetter], None]] = attrs.field(factory=dict, init=False)

    def __attrs_post_init__(self) -> None:
        if self.letters_max < 0:
            raise ValueError(f"dead_letters_max must not be negative, not {self.letters_max}")
        self._recent = collections.deque(maxlen=self.letters_max)

    @property
    def recent(self) -> tuple[DeadLetter, ...]:
        """The latest, in order."""
        return tuple(self._recent)

    @property
    def counts(self) -> Mapping[Reason, int]:
        """How many there have been, by reason."""
        return dict(self._counts)

    @property
    def count(self) -> int:
        """How many there have been."""
        return sum(self._counts.values())

    @contextlib.contextmanager
    def subscribe(self, subscriber: Callable[[DeadLetter], None]) -> Iterator[None]:
        """Call `subscriber` with each later dead letter, at once, for as long as the context lasts.

        It must neither raise nor wait: it runs in the task that lost the message.
        """
        key = object()
        self._subscribers[key] = subscriber
        try:
            yield
        finally:
            del self._subscribers[key]

    def add(self, letter: DeadLetter) -> None:
        """Count, keep and hand on one."""
        self._counts[letter.reason] = self._counts.get(letter.reason, 0) + 1
        self._recent.append(letter)
        for subscriber in tuple(self._subscribers.values()):
            subscriber(letter)
