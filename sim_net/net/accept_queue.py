"""The connections of a listener that nobody has accepted yet, and the task that waits for one."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

import trio
from trio.lowlevel import Abort, RaiseCancelT, current_task

if TYPE_CHECKING:
    from trio.lowlevel import Task

    from sim_net.kernel.kernel import Kernel
    from sim_net.net.endpoint import Endpoint
    from sim_net.net.socket import AbortFn


class AcceptQueue:
    """Open while its socket listens. At most one more than the backlog are in it: the last may have been on its way."""

    __slots__ = ("_acceptor", "_backlog", "_ends", "_kernel", "is_open")

    def __init__(self, kernel: Kernel) -> None:
        self._kernel = kernel
        self.is_open = False
        self._backlog = 0
        self._ends: deque[Endpoint] = deque()
        self._acceptor: Task | None = None

    def __len__(self) -> int:
        """How many connections wait to be accepted."""
        return len(self._ends)

    def open(self, backlog: int) -> None:
        """Let others connect, or change how many of them may wait."""
        self.is_open = True
        self._backlog = backlog

    def shut(self) -> None:
        """Listen no more, as if each connection in the queue was closed; the task that waits learns of it."""
        self.is_open = False
        self.drop("closed")
        self.wake()

    @property
    def is_full(self) -> bool:
        """Whether connection requests are ignored for now."""
        return len(self._ends) > self._backlog

    def add(self, end: Endpoint) -> None:
        """A handshake is complete: someone may accept the connection."""
        self._ends.append(end)
        self.wake()

    def take(self) -> Endpoint | None:
        """The oldest connection, if there is any."""
        return self._ends.popleft() if self._ends else None

    def drop(self, how: str) -> None:
        """End the connections that nobody has accepted."""
        while self._ends:
            waiting = self._ends.popleft()
            if how == "vanished":
                waiting.vanish()
            else:
                waiting.abort(how)

    def begin_wait(self) -> AbortFn:
        """Note the current task as the one that waits. BusyResourceError if another one does."""
        if self._acceptor is not None:
            raise trio.BusyResourceError("another task is already accepting on this socket")
        self._acceptor = current_task()
        return self._forget_acceptor

    def wake(self) -> None:
        """Let the task that waits look again."""
        if self._acceptor is not None:
            acceptor, self._acceptor = self._acceptor, None
            self._kernel.wake(acceptor)

    def _forget_acceptor(self, _: RaiseCancelT) -> Abort:
        self._acceptor = None
        return Abort.SUCCEEDED
