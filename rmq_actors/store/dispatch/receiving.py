"""Whether a slave has more of its master's log to receive right now.

A slave receives and dispatches in one thread. What it has not received can be lost with the master; what it has not
dispatched is in its log: receiving comes first.
"""

from __future__ import annotations

import attrs
import trio

#: After a receive that left something behind, the next one is expected within this time.
BUSY_S = 0.005


@attrs.define(eq=False)
class Receiving:
    """Written by the HAClient, read by the ReputMessageService. A master's is never busy."""

    busy_until: float = attrs.field(default=float("-inf"), init=False)

    def more_waits(self) -> None:
        """A receive has filled its buffer: there is more."""
        self.busy_until = trio.current_time() + BUSY_S
