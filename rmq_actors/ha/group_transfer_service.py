"""Turns the reports of live slaves into one replicated offset for the store (GroupTransferService)."""

from __future__ import annotations

from typing import Literal

import attrs
import trio

from rmq_actors.actors.channels import BoundedChannel, LatestSender
from rmq_actors.protocols.group_transfer import GroupTransfer, ReplicationState
from rmq_actors.tracing.recorder import Tracer


@attrs.frozen
class SlaveEvent:
    """What happened on one connection. `offset` is the report's; 0 otherwise."""

    conn_id: int
    what: Literal["connected", "reported", "disconnected"]
    offset: int = 0


SLAVE_EVENTS = BoundedChannel[SlaveEvent].declare(
    "ha.slave_events",
    1024,
    carries="connections, reports (one a receive buffer) and disconnections",
    sender="HAService and ReadSocketService",
    receiver="GroupTransferService",
)


@attrs.define(eq=False)
class GroupTransferService:
    """Drives `protocols.group_transfer`."""

    name = "GroupTransferService"
    machine: GroupTransfer
    _states: LatestSender[ReplicationState]
    _tracer: Tracer
    events: trio.MemorySendChannel[SlaveEvent] = attrs.field(init=False)
    _events: trio.MemoryReceiveChannel[SlaveEvent] = attrs.field(init=False)
    _scope: trio.CancelScope = attrs.field(factory=trio.CancelScope, init=False)

    def __attrs_post_init__(self) -> None:
        self.events, self._events = SLAVE_EVENTS.open()

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Run until asked to stop."""
        known = self.machine.state()
        if known != ReplicationState():  # what the store assumes until it is told
            self._states.put(known)
        task_status.started()
        with self._scope:
            async for event in self._events:
                state = self._apply(event)
                if state == known:
                    continue
                if state.replicated_to > known.replicated_to:
                    self._tracer.emit("ha.replicated", self.name, offset=state.replicated_to)
                self._states.put(state)
                known = state

    def request_stop(self) -> None:
        """End now."""
        self._scope.cancel()

    def _apply(self, event: SlaveEvent) -> ReplicationState:
        if event.what == "connected":
            return self.machine.connected(event.conn_id)
        if event.what == "reported":
            return self.machine.reported(event.conn_id, event.offset)
        return self.machine.disconnected(event.conn_id)
