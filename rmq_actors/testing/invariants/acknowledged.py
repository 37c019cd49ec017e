"""What was acknowledged is not lost with its master."""

from __future__ import annotations

from collections.abc import Collection

import attrs

from rmq_actors.testing.invariants.invariant import Invariant
from rmq_actors.testing.lineage import Lineage
from rmq_actors.testing.node_view import NodeView
from rmq_actors.testing.view import ClusterView
from rmq_actors.tracing.events.run import OperatorPromote, OperatorSetUpAnew
from rmq_actors.tracing.events.store import LogDelete, PutEnd, StoreOpen


@attrs.define(eq=False, repr=False)
class _Put:
    """A put answered PUT_OK, or several at once: where the last record ends, in which log, and its holders."""

    end: int
    lineage: Lineage
    holders: set[str]


_Looked = PutEnd | LogDelete | StoreOpen | OperatorPromote | OperatorSetUpAnew


@attrs.define(eq=False, repr=False)
class Acknowledged(Invariant[_Looked]):
    """What slaves had when its put was answered PUT_OK is in the log of the next master.

    So it is if that had the longest log of the slaves that have followed. In any case it is in the master's log, in
    that of a node that has halted, or among the bytes kept aside at the end, unless every node that had it, without
    SYNC_FLUSH, has lost its power since, or has cleaned it away.
    """

    name = "acknowledged"
    kinds = (PutEnd, LogDelete, StoreOpen, OperatorPromote, OperatorSetUpAnew)

    _puts: list[_Put] = attrs.field(factory=list, init=False)

    def check(self, event: _Looked, view: ClusterView) -> str | None:
        """Note which nodes have which put, and which have lost it; look for them at a new master."""
        if isinstance(event, PutEnd):
            if event.status == "PUT_OK":
                self._puts.append(_Put(event.offset, view.log_of_master, _holders(event.offset, view)))
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

    def _forget_lost(self, node: NodeView) -> None:
        opened = node.opened
        assert opened is not None
        if opened.after_power_loss and not node.syncs_first:
            for put in self._puts:
                if opened.end < put.end:
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


def _holders(end: int, view: ClusterView) -> set[str]:
    """With SYNC_FLUSH a node has what it has synced: what it has only written goes with its power."""
    return {node.name for node in view.nodes.values() if node.lineage is view.log_of_master and _holds(node, end)}


def _holds(node: NodeView, end: int) -> bool:
    return node.durable >= end if node.syncs_first else node.end >= end and not node.has_lost_power


def _has(node: NodeView, put: _Put) -> bool:
    return node.end >= put.end and node.lineage.common(put.lineage) >= put.end


def _survives(put: _Put, view: ClusterView) -> bool:
    """In the master's log, in that of a node that has halted, or among what was kept aside."""
    return any(_has(node, put) for node in view.nodes.values()) or any(
        cut.offset < put.end <= cut.end and cut.lineage.common(put.lineage) >= put.end for cut in view.cuts
    )


def _told(put: _Put, holders: Collection[str]) -> str:
    return f"a put that ends at {put.end} was answered PUT_OK, {', '.join(sorted(holders))} had it"
