"""What has become of topics and groups that were acknowledged."""

from __future__ import annotations

from collections.abc import Iterable

import attrs

from rmq_actors.store.config import BrokerRole
from rmq_actors.testing.invariants.invariant import Invariant
from rmq_actors.testing.node_view import NodeView
from rmq_actors.testing.view import TABLES, ClusterView
from rmq_actors.tracing.events.broker import BrokerRoleEvent, BrokerSlaveSynchronize
from rmq_actors.tracing.events.run import ClientTable, OperatorPromote
from rmq_actors.tracing.events.store import StoreOpen

_Looked = ClientTable | BrokerSlaveSynchronize | BrokerRoleEvent | StoreOpen | OperatorPromote
#: The actor that asks before a promotion.
_LAST_ROUND = "LastRound"


@attrs.define(eq=False, repr=False)
class TablesKept(Invariant[_Looked]):
    """A topic or a group that the master has acknowledged is durable there, and a broker that copies its tables has it.

    The next master may lack what it never had. But it asks before it becomes the master, and if the old one, a slave by
    then, answers, it lacks nothing. Two brokers may have been promoted to one term, neither of which had heard of the
    other (`docs/ha-protocol.md`): once it is a slave, one of them may take over the other's.
    """

    name = "tables_kept"
    kinds = (ClientTable, BrokerSlaveSynchronize, BrokerRoleEvent, StoreOpen, OperatorPromote)

    #: What was acknowledged, by table, and was not lost in an allowed way.
    _acknowledged: dict[str, set[str]] = attrs.field(factory=lambda: {part: set() for part in TABLES}, init=False)
    #: The tables that a node has been given since the master before, which had become a slave, was asked once more.
    _last_round: dict[str, set[str]] = attrs.field(factory=dict, init=False)
    #: The nodes that have asked for tables once more since their last change of role, whatever the answer.
    _has_asked: set[str] = attrs.field(factory=set, init=False)

    def check(self, event: _Looked, view: ClusterView) -> str | None:
        """Look at the tables that may be others now."""
        node = view.nodes[event.node]
        if isinstance(event, OperatorPromote):
            return self._check_promotion(node)
        if isinstance(event, BrokerRoleEvent):
            return self._check_role(event)
        if isinstance(event, ClientTable):
            return self._check_change(event, node, view)
        if isinstance(event, BrokerSlaveSynchronize):
            self._note_last_round(event, view)
            # A slave of a slave takes over what that one has, until it has caught up.
            may_be_older = node is not view.master and self._peer(event, view) != view.master.name
            return None if may_be_older else self._check_lost(event, node, [event.part], view)
        return self._check_lost(event, node, TABLES, view)

    def _check_change(self, event: ClientTable, node: NodeView, view: ClusterView) -> str | None:
        if event.status != "ok" or event.part not in TABLES:
            return None
        if event.entry not in node.tables[event.part]:
            return f"{node.name} has acknowledged {event.entry} of {event.part}, and does not have it"
        if node is view.master:
            self._acknowledged[event.part].add(event.entry)
        return self._check_lost(event, node, [event.part], view)

    def _check_lost(self, event: _Looked, node: NodeView, parts: Iterable[str], view: ClusterView) -> str | None:
        for part in parts:
            lost = node.lost_entries.get(part, frozenset()) & self._acknowledged.get(part, set())
            if node is not view.master:
                lost &= view.master.tables.get(part, frozenset())
            if lost and self._is_of_a_rival(event, node, view):
                self._acknowledged[part] -= lost
            elif lost:
                who = node.name if node is not view.master else f"{node.name}, the master,"
                return f"{who} has lost {', '.join(sorted(lost))} of {part}"
        return None

    def _is_of_a_rival(self, event: _Looked, node: NodeView, view: ClusterView) -> bool:
        """The master, a slave by now, has asked a broker that was promoted to the same term."""
        if not isinstance(event, BrokerSlaveSynchronize) or node is not view.master or node.leads:
            return False
        peer = view.nodes.get(self._peer(event, view))
        return peer is not None and node.term > 0 and peer.term_led == node.term_led == node.term

    def _note_last_round(self, event: BrokerSlaveSynchronize, view: ClusterView) -> None:
        """Only the master before counts, and only once it takes no changes any more."""
        if event.actor != _LAST_ROUND:
            return
        self._has_asked.add(event.node)
        is_given = event.status in ("changed", "unchanged")
        if is_given and self._peer(event, view) == view.master.name and not view.master.leads:
            self._last_round.setdefault(event.node, set()).add(event.part)
        else:
            self._last_round.pop(event.node, None)

    def _peer(self, event: BrokerSlaveSynchronize, view: ClusterView) -> str:
        return view.node_of(event.peer_address.rpartition(":")[0])

    def _check_role(self, event: BrokerRoleEvent) -> str | None:
        has_asked = event.node in self._has_asked
        self._has_asked.discard(event.node)
        if event.status != "changed" or event.role == BrokerRole.SLAVE.value or has_asked:
            return None
        return f"{event.node} has become the master, and has not asked for tables once more before that"

    def _check_promotion(self, node: NodeView) -> str | None:
        asked = self._last_round.pop(node.name, set())
        self._last_round.clear()
        for part, acknowledged in self._acknowledged.items():
            lacks = acknowledged - node.tables.get(part, frozenset())
            if lacks and part in asked:
                return f"{node.name} was promoted without {', '.join(sorted(lacks))} of {part}, and could ask for all"
            self._acknowledged[part] = acknowledged - lacks
        return None
