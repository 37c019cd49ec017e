"""How many sent messages of each connection are stored, and wait for what was promised: a disk or a slave."""

from __future__ import annotations

import attrs

from rmq_actors.remoting.connection import RemotingConnection


@attrs.define(eq=False, repr=False)
class WaitingSends:
    """Counts them: a peer that sends without end while nothing can be confirmed would fill the memory."""

    _of: dict[RemotingConnection, int] = attrs.field(factory=dict, init=False)

    def room(self, connection: RemotingConnection, most: int) -> int:
        """How many more of a connection may wait, of `most`."""
        return max(0, most - self._of.get(connection, 0))

    def begin(self, connection: RemotingConnection, count: int = 1) -> None:
        """So many more wait."""
        self._of[connection] = self._of.get(connection, 0) + count

    def end(self, connection: RemotingConnection, count: int = 1) -> None:
        """So many were answered, or their connection is gone."""
        left = self._of[connection] - count
        if left:
            self._of[connection] = left
        else:
            del self._of[connection]

    def __len__(self) -> int:
        return sum(self._of.values())
