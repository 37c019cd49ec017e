"""Whether a slave has more of its master's log to receive right now, or will have soon.

A slave receives and dispatches in one thread. What it has not received can be lost with the master; what it has not
dispatched is in its log: receiving comes first. And a put of the master may wait for each receive's report: where many
come one after another, what they bring is dispatched together, in a quiet moment.
"""

from __future__ import annotations

import attrs

#: After a receive that left something behind, the next one is expected within this time.
BUSY_S = 0.005
#: Receives come often if there are more than OFTEN_RECEIVES within OFTEN_S, or if OFTEN_BYTES were there at once. The
#: next one is then expected within OFTEN_S.
OFTEN_RECEIVES = 16
OFTEN_BYTES = 64 * 1024
OFTEN_S = 0.02


@attrs.define(eq=False, repr=False)
class Receiving:
    """Written by the HAClient, read by the ReputMessageService. A master's is never busy."""

    busy_until: float = attrs.field(default=float("-inf"), init=False)
    #: Until when another receive is expected, because they come often.
    often_until: float = attrs.field(default=float("-inf"), init=False)
    #: Of the present OFTEN_S.
    _receives: int = attrs.field(default=0, init=False)
    #: What was there at once: over TLS a receive brings no more than a record of it.
    _bytes: int = attrs.field(default=0, init=False)
    _more_waited: bool = attrs.field(default=False, init=False)
    _counted_until: float = attrs.field(default=float("-inf"), init=False)

    def received(self, size_bytes: int, now: float, *, more_waits: bool) -> None:
        """A receive is there; `more_waits`: it brought as much as it could, so there is more. `now` is Trio's time."""
        self._bytes = size_bytes + (self._bytes if self._more_waited else 0)
        self._more_waited = more_waits
        if more_waits:
            self.busy_until = now + BUSY_S
        if now >= self._counted_until:
            self._counted_until, self._receives = now + OFTEN_S, 0
        self._receives += 1
        if self._receives > OFTEN_RECEIVES or self._bytes >= OFTEN_BYTES or now < self.often_until:
            self.often_until = now + OFTEN_S
