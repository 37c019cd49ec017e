"""Rows of several connections that arrived at about the same time, served together (group commit).

    connection A  receive -> rows --.
    connection B  receive -> rows ---+--> one call of `ProcessRows`: one write, one wake-up of all that follows the log
    connection C  receive -> rows --'

Where producers wait for each answer, a receive is one row, and what is done once for each receive is nearly all that
it costs. The first connection that has rows lets all others run that are ready, which takes no time; what these have
received by then is served with them. Nobody waits for anything that is not there yet.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Generic, NamedTuple, Protocol, TypeVar

import attrs
import trio

from rmq_actors.wire.send_rows import SendRow

#: With so many rows nobody is waited for.
ROWS_MAX = 256
#: After so many groups in a row that were of one connection each, only every so many-th receive looks for others.
_ALONE_MAX = 8
_ALONE_LOOKS_EVERY = 32


class ReceivesRows(Protocol):
    """A connection, as far as the group knows it."""

    def take_row_as_request(self, row: SendRow) -> None:
        """Have a row processed as the request that it was. Raises nothing."""
        ...

    def close(self, reason: str) -> None:
        """End the connection: its peer has to ask again."""
        ...


class RowsFailed(Exception):
    """A defect of ours, while the rows of some connections were served: it is no connection's own, and ends the broker.

    What was stored may have no answer, so all of these connections are closed.
    """


Connection = TypeVar("Connection", bound=ReceivesRows)


class ReceivedRows(NamedTuple, Generic[Connection]):
    """What one connection has received."""

    connection: Connection
    rows: Sequence[SendRow]


#: Serves the first rows of each connection at once, and tells how many of each: the next one needs the general door.
ProcessRows = Callable[[Sequence[ReceivedRows[Connection]]], Sequence[int]]


async def let_others_run() -> None:
    """One round of Trio's loop, also for a task that is cancelled."""
    await trio.lowlevel.cancel_shielded_checkpoint()


@attrs.define(eq=False, repr=False)
class RowGroup(Generic[Connection]):
    """The rows that wait to be served together. No row waits for longer than one round of Trio's loop.

    A connection that receives more calls `finish` first: its rows are served in their order.
    """

    _process: ProcessRows[Connection]
    _held: dict[Connection, Sequence[SendRow]] = attrs.field(factory=dict, init=False)
    _held_rows: int = attrs.field(default=0, init=False)
    #: How many groups in a row were of one connection.
    _alone: int = attrs.field(default=0, init=False)

    async def add(self, connection: Connection, rows: Sequence[SendRow]) -> None:
        """Have rows served, with those of others that are ready. A checkpoint, which ignores cancellation, or none."""
        is_first = not self._held
        self._hold(connection, rows)
        if is_first and self._held_rows < ROWS_MAX and self._looks_for_others():
            await let_others_run()
            self.serve()
        elif is_first or self._held_rows >= ROWS_MAX:
            self.serve()

    def serve_at_once(self, connection: Connection, rows: Sequence[SendRow]) -> None:
        """Have rows served now, with all that are held."""
        self._hold(connection, rows)
        self.serve()

    def finish(self, connection: Connection) -> None:
        """Serve all now if rows of a connection are held."""
        if connection in self._held:
            self.serve()

    def serve(self) -> None:
        """Serve what is held; what cannot be served together, one by one. Raises `RowsFailed`."""
        held, self._held, self._held_rows = self._held, {}, 0
        if not held:
            return
        self._alone = self._alone + 1 if len(held) == 1 else 0
        received = [ReceivedRows(connection, rows) for connection, rows in held.items()]
        try:
            for (connection, rows), served in zip(received, self._process(received), strict=True):
                if served < len(rows):
                    self._serve_rest(connection, rows[served:])
        except Exception as error:
            for connection in held:
                connection.close("rows_failed")
            raise RowsFailed(f"the rows of {len(held)} connections could not be served: {error!r}") from error

    def _hold(self, connection: Connection, rows: Sequence[SendRow]) -> None:
        assert connection not in self._held
        self._held[connection] = rows
        self._held_rows += len(rows)

    def _looks_for_others(self) -> bool:
        return self._alone < _ALONE_MAX or self._alone % _ALONE_LOOKS_EVERY == 0

    def _serve_rest(self, connection: Connection, rows: Sequence[SendRow]) -> None:
        """Serve rows of which the first one needs the general door."""
        at, singles = 0, 1
        while at < len(rows):
            # More each time: where none can be served together, trying that costs little.
            for row in rows[at : at + singles]:
                connection.take_row_as_request(row)
            at, singles = at + singles, 2 * singles
            if at < len(rows) and (served := self._process([ReceivedRows(connection, rows[at:])])[0]):
                at, singles = at + served, 1
