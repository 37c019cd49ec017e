"""Brokers understand each other."""

from __future__ import annotations

import attrs

from rmq_actors.testing.invariants.invariant import Invariant
from rmq_actors.testing.view import ClusterView
from rmq_actors.tracing.events.ha import HaClientClose, HaConnectionClose, HaConnectionOpen

_Looked = HaConnectionOpen | HaConnectionClose | HaClientClose
#: Why a slave ends a connection to a master that sends what none may send.
_MASTER_IS_WRONG = ("illegal_frame", "offset_mismatch")


@attrs.define(eq=False, repr=False)
class Understood(Invariant[_Looked]):
    """No broker ends a connection to another one because of what that sends.

    A slave that has never had more than its master has is not turned away as ahead of it either. Strangers may say
    anything.
    """

    name = "understood"
    kinds = (HaConnectionOpen, HaConnectionClose, HaClientClose)

    #: Who is at the other end of each connection of a master, by its node and number; "" for a stranger.
    _peers: dict[tuple[str, int], str] = attrs.field(factory=dict, init=False)

    def check(self, event: _Looked, view: ClusterView) -> str | None:
        """A slave's connection that begins or ends, at either end."""
        node = view.nodes[event.node]
        if isinstance(event, HaConnectionOpen):
            self._peers[node.name, event.conn_id] = view.peer(event)
            return None
        if isinstance(event, HaClientClose):
            is_wrong = event.status in _MASTER_IS_WRONG
            return f"{node.name} does not understand its master {node.followed}: {event.status}" if is_wrong else None
        slave = self._peers.pop((node.name, event.conn_id), "")
        if not slave:
            return None
        if event.status == "illegal_report":
            return f"{node.name} does not understand its slave {slave}: {event.status}"
        had = view.nodes[slave].ever
        if event.status == "slave_ahead" and had <= node.end:
            return f"{slave} is turned away by {node.name} as ahead of {node.end}, it never had more than {had}"
        return None
