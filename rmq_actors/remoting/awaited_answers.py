"""The requests of one connection whose answers tasks wait for, and when each wait is over.

A cancel scope for each request would take a fifth of the CPU time of a send: here one task watches the earliest
deadline of all that wait. While nothing waits it sleeps, without a deadline.
"""

from __future__ import annotations

import contextvars
import math

import attrs
import outcome
import trio

from rmq_actors.protocols.pending_requests import PendingRequests
from rmq_actors.wire.remoting_command import RemotingCommand


@attrs.define(eq=False, repr=False)
class AwaitedRequest:
    """A request with its opaque; one task waits for its answer."""

    opaque: int
    _pending: PendingRequests[AwaitedRequest]
    #: The connection has ended, and no answer will come.
    is_lost: bool = attrs.field(default=False, init=False)
    _task: trio.lowlevel.Task | None = attrs.field(default=None, init=False)

    async def answer(self) -> RemotingCommand | None:
        """Wait; None once its time is over, or the connection has ended."""
        self._task = trio.lowlevel.current_task()
        found: RemotingCommand | None = await trio.lowlevel.wait_task_rescheduled(self._give_up)
        return found

    def end(self, response: RemotingCommand | None) -> None:
        """Wake the task. The request waits for nothing any more: nobody else may do this, too."""
        if self._task is not None:
            trio.lowlevel.reschedule(self._task, outcome.Value(response))

    def _give_up(self, _: object) -> trio.lowlevel.Abort:
        # At once: until the cancelled task runs, the answer may come.
        self._pending.end(self.opaque)
        return trio.lowlevel.Abort.SUCCEEDED


@attrs.define(eq=False, repr=False)
class AwaitedAnswers:
    """See above. `open` it before a request waits."""

    _pending: PendingRequests[AwaitedRequest]
    _nursery: trio.Nursery | None = attrs.field(default=None, init=False)
    #: That of the connection: it outlives the tasks that make requests.
    _context: contextvars.Context = attrs.field(factory=contextvars.Context, init=False)
    #: When the task that watches looks next, and what it waits in once it runs.
    _looks_at_s: float = attrs.field(default=math.inf, init=False)
    _is_watched: bool = attrs.field(default=False, init=False)
    _sleep: trio.CancelScope | None = attrs.field(default=None, init=False)

    @classmethod
    def at_most(cls, in_flight_max: int) -> AwaitedAnswers:
        """For so many requests at a time."""
        return cls(PendingRequests[AwaitedRequest](in_flight_max))

    def __len__(self) -> int:
        return len(self._pending)

    def open(self, nursery: trio.Nursery) -> None:
        """Use a nursery for the task that watches deadlines: it is started when there is one."""
        self._nursery, self._context = nursery, contextvars.copy_context()

    def close(self) -> None:
        """Start no task any more. Requests that wait are ended by `end_all`."""
        self._nursery = None

    def next_opaque(self) -> int:
        """See `PendingRequests`."""
        return self._pending.next_opaque()

    def begin(self, deadline_s: float) -> AwaitedRequest | None:
        """Take a request in; None when too many wait already. `forget` it in the end."""
        request = AwaitedRequest(0, self._pending)
        opaque = self._pending.begin(request, deadline_s)
        if opaque is None:
            return None
        request.opaque = opaque
        if deadline_s < self._looks_at_s:
            self._look_at(deadline_s)
        return request

    def forget(self, request: AwaitedRequest) -> None:
        """A request waits for nothing any more."""
        self._pending.end(request.opaque)
        if not self._pending and self._looks_at_s != math.inf:
            self._look_at(math.inf)

    def take(self, response: RemotingCommand) -> bool:
        """An answer came; whether a request waited for it."""
        request = self._pending.end(response.opaque)
        if request is None:
            return False
        request.end(response)
        return True

    def end_all(self) -> None:
        """The connection has ended: no answer will come."""
        for request in self._pending.end_all():
            request.is_lost = True
            request.end(None)

    def _look_at(self, deadline_s: float) -> None:
        self._looks_at_s = deadline_s
        if self._sleep is not None:
            self._sleep.deadline = deadline_s
        elif not self._is_watched and self._nursery is not None:
            self._is_watched = True
            self._context.run(self._nursery.start_soon, self._watch)

    async def _watch(self) -> None:
        while True:
            with trio.CancelScope(deadline=self._looks_at_s) as self._sleep:
                await trio.sleep_forever()
            self._end_late(trio.current_time())

    def _end_late(self, now_s: float) -> None:
        for request in self._pending.end_expired(now_s):
            request.end(None)
        self._looks_at_s = self._pending.next_deadline_s()
