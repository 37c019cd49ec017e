"""Which topics and groups get a time series of their own, and which are summed as "other".

Each value of a label is a series that a Prometheus keeps for weeks, and clients may make topics: so there is a limit.
Who has a series keeps it as long as it is there: a series that came and went with a topic's rank could not be read.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable
from typing import Generic, TypeVar

import attrs

KeyT = TypeVar("KeyT", bound=Hashable)


@attrs.define(eq=False, repr=False)
class BoundedLabels(Generic[KeyT]):
    """At most `limit` keys are shown by name, those that came first; a place is free when its key is gone."""

    limit: int = attrs.field(validator=attrs.validators.ge(1))
    _shown: dict[KeyT, None] = attrs.field(factory=dict, init=False)

    def update(self, keys: Collection[KeyT]) -> None:
        """These are all keys that there are now, in the order in which they get free places."""
        there = set(keys)
        self._shown = {key: None for key in self._shown if key in there}
        for key in keys:
            if len(self._shown) >= self.limit:
                return
            self._shown[key] = None

    def resize(self, limit: int) -> None:
        """Show at most so many from now on; of more than that, those that came first."""
        self.limit = limit
        for key in list(self._shown)[limit:]:
            del self._shown[key]

    def is_shown(self, key: KeyT) -> bool:
        """Whether it has a series of its own."""
        return key in self._shown
