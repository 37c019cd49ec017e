"""A log that diverges from the master's is noticed, cut at that place, and nothing of it is lost."""

from __future__ import annotations

from rmq_actors.testing.invariants.invariant import Invariant
from rmq_actors.testing.node_view import Cut
from rmq_actors.testing.view import ClusterView
from rmq_actors.tracing.events.ha import HaClientHalt
from rmq_actors.tracing.events.store import LogTruncate, StoreOpen

_Looked = HaClientHalt | LogTruncate | StoreOpen


class Divergence(Invariant[_Looked]):
    """A slave halts only if its log really diverges from its master's; it is cut nowhere else; what is cut is kept."""

    name = "divergence"
    kinds = (HaClientHalt, LogTruncate, StoreOpen)

    def check(self, event: _Looked, view: ClusterView) -> str | None:
        """A halt, a truncation, or one that a crash or a disk error has ended early."""
        if isinstance(event, HaClientHalt):
            return self._check_halt(event, view)
        node = view.nodes[event.node]
        if isinstance(event, StoreOpen):
            assert node.opened is not None
            cut = node.opened.cut
        else:
            cut = node.cut
        return self._check_cut(cut, view) if cut is not None else None

    def _check_halt(self, event: HaClientHalt, view: ClusterView) -> str | None:
        node, peer = view.nodes[event.node], view.nodes[view.peer(event)]
        common = min(node.lineage.common(peer.lineage), peer.end, *node.rotten, *peer.rotten)
        whole_end = node.lineage.whole_records(node.end)
        is_gone = event.status == "offset_gone" and whole_end <= peer.begin
        # A part of a record was never promised: it is not a reason to halt.
        end = node.end if view.takes_parts else whole_end
        if is_gone or (event.status == "diverged" and common < end):
            return None
        return f"{node.name} halts, {event.status}; it ends at {node.end}, {peer.name} has the same up to {common}"

    def _check_cut(self, cut: Cut, view: ClusterView) -> str | None:
        # A log that diverges before it begins has nothing to keep.
        begins_anew = cut.offset == cut.begin >= cut.common
        parts_there = cut.offset <= cut.common and (
            cut.is_damaged or cut.lineage.is_last_record(cut.offset, cut.common)
        )
        if cut.node == cut.master or not (begins_anew or parts_there or cut.is_unfinished):
            return f"{cut.node} cuts its log at {cut.offset}, which diverges from {cut.master}'s at {cut.common}"
        if self._is_kept(cut, view):
            return None
        return f"{cut.node} cuts its log at {cut.offset} and has not kept what came after that"

    def at_end(self, view: ClusterView) -> str | None:
        """What was cut is still kept aside."""
        for cut in view.cuts:
            if not cut.is_removed and not self._is_kept(cut, view):
                return f"{cut.node} has not kept what was cut from {cut.offset} to {cut.end}"
        return None

    def _is_kept(self, cut: Cut, view: ClusterView) -> bool:
        return view.evidence.is_kept(
            cut.node, cut.offset, bytes(cut.lineage.log[cut.offset : cut.end]), except_at=cut.rotten
        )
