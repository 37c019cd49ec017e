"""Answers waiting puts: drives `protocols.put_completion` with flushed offsets, replicated offsets, and the clock."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

import attrs
import trio

from rmq_actors.actors.services.channels import Broadcast, LatestReceiver
from rmq_actors.actors.services.service import ServiceThread
from rmq_actors.protocols.group_transfer import ReplicationState
from rmq_actors.protocols.put_completion import Completed, PutCompletion, PutStatus
from rmq_actors.store.config import MessageStoreConfig
from rmq_actors.store.log.flush_services import FlushFailed, FlushOutcome


class StoreStopped(RuntimeError):
    """What was waited for cannot come any more."""


class WaitingPuts(Protocol):
    """One put, or several that were made together, and wait for their answers."""

    def answered(self, status: PutStatus, begin: int = 0, end: int = 1) -> Callable[[], None] | None:
        """The answer to the puts from number `begin` to before `end`; each has one.

        What this returns is called after all answers of the same step, once however often it was returned.
        """
        ...


@attrs.define(eq=False, repr=False)
class PutCompletionService(ServiceThread):
    """The one owner of waiting puts. `MessageStore` adds to it; its two loops and `replicated` release."""

    name = "PutCompletionService"
    _config: MessageStoreConfig
    _outcomes: Broadcast[FlushOutcome]
    completion: PutCompletion[WaitingPuts] = attrs.field(init=False)
    replication: ReplicationState = attrs.field(factory=ReplicationState, init=False)
    #: From here on nobody answers a put: the store refuses it.
    stopped: bool = attrs.field(default=False, init=False)
    #: When the sweeper looks next, and what makes it look sooner.
    _sweep_at: float = attrs.field(default=0.0, init=False)
    _sooner: trio.Event = attrs.field(factory=trio.Event, init=False)
    _waiting_for_slaves: trio.lowlevel.ParkingLot = attrs.field(factory=trio.lowlevel.ParkingLot, init=False)

    @completion.default
    def _make_completion(self) -> PutCompletion[WaitingPuts]:
        return PutCompletion(self._config.waiting_puts_max)

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Run until asked to stop. What still waits then is answered as timed out: stored, not confirmed."""
        try:
            await super().run(task_status=task_status)
        finally:
            # Cancelled or crashed too: who puts may live outside of the system that dies, and would wait for ever.
            self.stopped = True
            self._waiting_for_slaves.unpark_all()
            self._answer(self.completion.expire(float("inf")))

    async def work(self, task_status: trio.TaskStatus[None]) -> None:
        """Answer puts as syncs, reports and their deadlines come."""
        with self._outcomes.subscribe() as outcomes:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._follow_flush, outcomes)
                task_status.started()
                await self._sweep()

    def add(
        self,
        puts: WaitingPuts,
        end_offsets: Sequence[int],
        *,
        flush_deadline: float | None,
        replica_deadline: float | None,
        ok: bool,
    ) -> None:
        """Take puts; some may be answered before this returns. `ok`: a slave that can keep up is there."""
        done = self.completion.add_run(
            puts, end_offsets, flush_deadline=flush_deadline, replica_deadline=replica_deadline, slave_available=ok
        )
        if self.completion.wake_at() < self._sweep_at:
            self._sooner.set()
        self._answer(done)

    def replicated(self, state: ReplicationState) -> None:
        """Take what is known of the slaves now, and answer the puts that they have."""
        self.replication = state
        self._waiting_for_slaves.unpark_all()
        state = self.replication_for(self.completion.last_end_offset)
        self._answer(self.completion.replicated_to(state.replicated_to))

    def replication_for(self, end_offset: int) -> ReplicationState:
        """What a put that ends there needs to know of the slaves."""
        return self.replication.seen_from(end_offset, self._config.ha_slave_fallbehind_max_bytes)

    async def wait_for_slaves(self, count: int) -> None:
        """Return when `count` slaves are connected. A checkpoint only if it has to wait. Raises `StoreStopped`."""
        while self.replication.live_slaves < count:
            if self.stopped:
                raise StoreStopped(f"the store has stopped with {self.replication.live_slaves} of {count} slaves")
            await self._waiting_for_slaves.park()

    async def _follow_flush(self, outcomes: LatestReceiver[FlushOutcome]) -> None:
        async for outcome in outcomes:
            if isinstance(outcome, FlushFailed):
                self._answer(self.completion.flush_failed())
            else:
                self._answer(self.completion.flushed_to(outcome))

    async def _sweep(self) -> None:
        # The deadline stays when the put that it was set for is answered: most later puts have later ones, and need
        # neither a wake-up nor a new scope.
        while True:
            self._sooner = trio.Event()
            self._sweep_at = self.completion.wake_at()
            with trio.move_on_at(self._sweep_at):
                await self._sooner.wait()
            self._answer(self.completion.expire(trio.current_time()))

    @staticmethod
    def _answer(done: list[Completed[WaitingPuts]]) -> None:
        last: dict[Callable[[], None], None] = {}
        for completed in done:
            finish = completed.token.answered(completed.status, completed.begin, completed.end)
            if finish is not None:
                last[finish] = None
        for finish in last:
            finish()
