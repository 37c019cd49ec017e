"""Turns the reports of live slaves into one replicated offset for the store (GroupTransferService)."""

from __future__ import annotations

from collections.abc import Callable

import attrs

from rmq_actors.protocols.group_transfer import GroupTransfer, ReplicationState
from rmq_actors.tracing.events.ha import HaReplicated
from rmq_actors.tracing.recorder import Tracer


@attrs.define(eq=False, repr=False)
class GroupTransferService:
    """Drives `protocols.group_transfer`, and hands each new state to the store, in the step of its caller.

    RocketMQ's is a thread that reports wake. This one is passive: the task that reads a report answers the puts, and no
    other actor has to run in between.
    """

    name = "GroupTransferService"
    machine: GroupTransfer
    _replicated: Callable[[ReplicationState], None]
    _tracer: Tracer
    _known: ReplicationState = attrs.field(factory=ReplicationState, init=False)

    def __attrs_post_init__(self) -> None:
        self._apply(self.machine.state())

    def connected(self, conn_id: int, host: str = "") -> None:
        """A slave connected."""
        self._apply(self.machine.connected(conn_id, host))

    def reported(self, conn_id: int, offset: int) -> None:
        """A slave has everything before `offset`."""
        self._apply(self.machine.reported(conn_id, offset))

    def disconnected(self, conn_id: int) -> None:
        """A connection ended."""
        self._apply(self.machine.disconnected(conn_id))

    def _apply(self, state: ReplicationState) -> None:
        known, self._known = self._known, state
        if state == known:  # the store assumes none until it is told
            return
        if state.replicated_to > known.replicated_to:
            self._tracer.emit(HaReplicated(offset=state.replicated_to))
        self._replicated(state)
