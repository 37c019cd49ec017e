"""Recovery points move."""

from __future__ import annotations

import attrs

from rmq_actors.testing.invariants.invariant import Invariant
from rmq_actors.testing.view import ClusterView
from rmq_actors.tracing.events.storage import StorageError, StorageSlow, StorageStuck
from rmq_actors.tracing.events.store import LogFlush, StoreCheckpointEvent, StoreDispatch, StoreOpen

_Looked = StorageError | StorageSlow | StorageStuck | LogFlush | StoreCheckpointEvent | StoreDispatch | StoreOpen
#: A checkpoint that is due waits until the log is flushed that far: under ASYNC_FLUSH 10 s, if little is written. Its
#: interval comes on top, in brokers that this is for a second.
CHECKPOINT_MAX_S = 12.5


@attrs.define(eq=False, repr=False)
class _Store:
    """What a store has told since it was opened. `point` is where its recovery point is at least."""

    point: int = 0
    dispatched: int = 0
    #: Since when, in ns without pauses, something stands after the point that is dispatched and synced.
    since_ns: int | None = None
    #: When the last slow sync is over, likewise.
    slow_until_ns: int = 0
    disk_is_well: bool = True


@attrs.define(eq=False, repr=False)
class Checkpointed(Invariant[_Looked]):
    """A store whose disk is well, a slave's too, moves its recovery point past what it has synced and dispatched.

    So a start after a crash reads what is new. A disk that is slow has the time from the end of its last slow sync on,
    and one that has failed or stood still is excused until the store is opened again. This is for brokers with a short
    flushConsumeQueueThoroughInterval.
    """

    name = "checkpointed"
    kinds = (StorageError, StorageSlow, StorageStuck, LogFlush, StoreCheckpointEvent, StoreDispatch, StoreOpen)

    _stores: dict[str, _Store] = attrs.field(factory=dict, init=False)

    def check(self, event: _Looked, view: ClusterView) -> str | None:
        """How long it is that the node's point could have moved."""
        name, node = event.node, view.nodes[event.node]
        if isinstance(event, StoreOpen):
            self._stores[name] = _Store(event.offset, event.offset)
            return None
        store = self._stores.setdefault(name, _Store())
        now_ns = (event.sim_time_ns or 0) - node.paused_ns
        if isinstance(event, StorageError | StorageStuck):
            store.disk_is_well = False
        elif isinstance(event, StorageSlow):
            store.slow_until_ns = max(store.slow_until_ns, now_ns + round(event.extra_s * 1e9))
        if not store.disk_is_well:
            return None
        waits_s = 0.0 if store.since_ns is None else (now_ns - max(store.since_ns, store.slow_until_ns)) / 1e9
        if isinstance(event, StoreDispatch):
            store.dispatched = event.offset
        elif isinstance(event, StoreCheckpointEvent):
            store.point, store.since_ns = event.offset, None
        if store.since_ns is None and min(store.dispatched, node.synced) > store.point:
            store.since_ns = now_ns
        return f"{name} has not moved its recovery point for {waits_s:g} s" if waits_s > CHECKPOINT_MAX_S else None
