"""What was acknowledged is not lost with its master."""

from __future__ import annotations

from collections.abc import Collection

import attrs

from rmq_actors.testing.invariants.invariant import Invariant
from rmq_actors.testing.lineage import Lineage
from rmq_actors.testing.node_view import NodeView
from rmq_actors.testing.view import ClusterView
from rmq_actors.tracing.events.run import OperatorPromote, OperatorSetUpAnew
from rmq_actors.tracing.events.store import LogDelete, LogFlush, PutEnd, StoreOpen


@attrs.define(eq=False, repr=False)
class _Put:
    """A put answered PUT_OK, or several at once: where the last record ends, in which log, and its holders."""

    end: int
    lineage: Lineage
    holders: set[str]


_Looked = PutEnd | LogFlush | LogDelete | StoreOpen | OperatorPromote | OperatorSetUpAnew


@attrs.define(eq=False, repr=False)
class Acknowledged(Invariant[_Looked]):
    """What slaves had when its put was answered PUT_OK is in the log of the next master.

    So it is if that had the longest log of the slaves that have followed. In any case it is in the master's log, in
    that of a node that has halted, or among the bytes kept aside at the end, unless every node that had it, without
    SYNC_FLUSH, has lost its power since, or has cleaned it away, or has found its log damaged before it at a start.
    With SYNC_FLUSH a node has it once it has synced it, which may be after the answer.
    """

    name = "acknowledged"
    kinds = (PutEnd, LogFlush, LogDelete, StoreOpen, OperatorPromote, OperatorSetUpAnew)

    _puts: list[_Put] = attrs.field(factory=list, init=False)
    #: By node with SYNC_FLUSH, what it had written, and not synced, when that was answered.
    _unsynced: dict[str, list[_Put]] = attrs.field(factory=dict, init=False)

    def check(self, event: _Looked, view: ClusterView) -> str | None:
        """Note which nodes have which put, and which have lost it; look for them at a new master."""
        if isinstance(event, PutEnd):
            if event.status == "PUT_OK":
                self._note(event.offset, view)
        elif isinstance(event, LogFlush):
            if event.node in self._unsynced:
                self._note_synced(view.nodes[event.node])
        elif isinstance(event, LogDelete):
            for put in self._puts:
                if put.end <= event.offset:
                    put.holders.discard(event.node)
        elif isinstance(event, StoreOpen):
            self._forget_lost(view.nodes[event.node])
        elif isinstance(event, OperatorPromote):
            return self._check_promotion(view)
        else:
            for put in self._puts:
                put.holders.discard(event.node)
        return None

    def _note(self, end: int, view: ClusterView) -> None:
        """With SYNC_FLUSH a node has what it has synced: what it has only written goes with its power."""
        self._puts.append(put := _Put(end, view.log_of_master, set()))
        for name, node in view.nodes.items():
            if node.lineage is not put.lineage or node.end < end:
                continue
            if node.syncs_first and node.durable < end:
                self._unsynced.setdefault(name, []).append(put)
            elif node.syncs_first or not node.has_lost_power:
                put.holders.add(name)

    def _note_synced(self, node: NodeView) -> None:
        """Its log may be another one by now, or begin later."""
        unsynced = self._unsynced.pop(node.name)
        for put in unsynced:
            if node.begin < put.end <= node.durable and node.lineage.common(put.lineage) >= put.end:
                put.holders.add(node.name)
        if rest := [put for put in unsynced if put.end > node.durable]:
            self._unsynced[node.name] = rest

    def _forget_lost(self, node: NodeView) -> None:
        opened = node.opened
        assert opened is not None
        if opened.after_power_loss and not node.syncs_first:
            left = opened.end
        elif opened.cut is None:
            left = opened.whole  # less than it had only where a record is damaged
        else:
            return  # what was cut is kept aside
        for put in self._puts:
            if left < put.end:
                put.holders.discard(node.name)

    def _check_promotion(self, view: ClusterView) -> str | None:
        promotion = view.promotion
        assert promotion is not None
        if not promotion.is_longest:
            return None
        for put in self._puts:
            holders = put.holders.intersection(promotion.followers)
            if holders and promotion.lineage.common(put.lineage) >= put.end and not _has(view.master, put):
                return f"{_told(put, holders)}; the next master, {view.master.name}, lacks it"
        return None

    def at_end(self, view: ClusterView) -> str | None:
        """Every put that some node must still have."""
        for put in self._puts:
            if put.holders and not _survives(put, view):
                return f"{_told(put, put.holders)}; at the end nobody has it"
        return None


def _has(node: NodeView, put: _Put) -> bool:
    return node.end >= put.end and node.lineage.common(put.lineage) >= put.end


def _survives(put: _Put, view: ClusterView) -> bool:
    """In the master's log, in that of a node that has halted, or among what was kept aside."""
    return any(_has(node, put) for node in view.nodes.values()) or any(
        cut.offset < put.end <= cut.end and cut.lineage.common(put.lineage) >= put.end for cut in view.cuts
    )


def _told(put: _Put, holders: Collection[str]) -> str:
    return f"a put that ends at {put.end} was answered PUT_OK, {', '.join(sorted(holders))} had it"
