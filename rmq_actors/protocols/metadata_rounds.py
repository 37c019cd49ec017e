"""When a slave asks its master for which metadata (BrokerController.handleSlaveSynchronize, SlaveSynchronize).

As in RocketMQ, first after 3 s, then every 10 s, in RocketMQ's order. A failed part is asked for again sooner, with
back-off, and does not delay the others.
"""

from __future__ import annotations

import enum
import math

import attrs

from rmq_actors.protocols.backoff import Backoff

FIRST_AFTER_S = 3.0
PERIOD_S = 10.0
RETRY_MIN_S = 1.0


class Metadata(enum.Enum):
    """What is asked for, in this order."""

    TOPICS = "topics"
    CONSUMER_OFFSETS = "consumer_offsets"
    DELAY_OFFSETS = "delay_offsets"
    SUBSCRIPTION_GROUPS = "subscription_groups"


@attrs.define(eq=False, repr=False)
class SlaveSynchronization:
    """Times are seconds of one monotonic clock. `master`: where it answers; while it is None, nothing is due."""

    now: float
    master: str | None
    _due_at: dict[Metadata, float] = attrs.field(init=False)
    _backoffs: dict[Metadata, Backoff] = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self._due_at = dict.fromkeys(Metadata, self.now + FIRST_AFTER_S)
        self._backoffs = _fresh_backoffs()

    @property
    def wake_at(self) -> float:
        """When something is due."""
        return math.inf if self.master is None else min(self._due_at.values())

    def due(self, now: float) -> list[Metadata]:
        """What to ask for now; call `succeeded` or `failed` for each part afterwards."""
        return [] if self.master is None else [part for part, at in self._due_at.items() if at <= now]

    def succeeded(self, part: Metadata, master: str, now: float) -> None:
        """The answer of `master` was taken over. If that is not the present master, the part stays due."""
        if master == self.master:
            self._backoffs[part].succeeded()
            self._due_at[part] = now + PERIOD_S

    def dropped(self, part: Metadata, now: float) -> None:
        """What is here of a part was dropped: it is due at once."""
        self._due_at[part] = min(now, self._due_at[part])

    def failed(self, part: Metadata, master: str, now: float, chance: float) -> None:
        """No answer of `master`, or one that makes no sense, or it could not be stored.

        `chance`: in [0, 1), for the jitter.
        """
        if master == self.master:
            self._due_at[part] = now + self._backoffs[part].next_pause_s(chance)

    def master_changed(self, master: str, now: float) -> None:
        """Another master, or one after none: everything is due at once."""
        self.master = master
        self._due_at, self._backoffs = dict.fromkeys(Metadata, now), _fresh_backoffs()


def _fresh_backoffs() -> dict[Metadata, Backoff]:
    return {part: Backoff(RETRY_MIN_S, PERIOD_S) for part in Metadata}
