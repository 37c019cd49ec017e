"""A broker whose files are not what they were does not go to work as if they were."""

from __future__ import annotations

import attrs

from rmq_actors.testing.invariants.invariant import Invariant
from rmq_actors.testing.view import STORE_SERVICES, ClusterView
from rmq_actors.tracing.events.actor import ActorStart
from rmq_actors.tracing.events.broker import BrokerExchange
from rmq_actors.tracing.events.node import NodePowerLoss
from rmq_actors.tracing.events.run import OperatorFiles

_Looked = OperatorFiles | ActorStart | BrokerExchange | NodePowerLoss


@attrs.define(eq=False, repr=False)
class Refused(Invariant[_Looked]):
    """A broker does not go to work while a file of its log or its term is lost or spoilt, and a start can know it.

    That is: the newest file of a log that was stopped in order is gone, a record is damaged that others follow, the
    term cannot be read, or a record of RocketMQ 5 stands at the log's end. And no master stops to take puts for an
    exchange of roles with one of whose brokers a directory has the name that its settings before would take.
    """

    name = "refused"
    kinds = (OperatorFiles, ActorStart, BrokerExchange, NodePowerLoss)

    #: By node, what has been done to its files.
    _spoilt: dict[str, str] = attrs.field(factory=dict, init=False)
    #: The node that has a directory in the way.
    _blocked: str = attrs.field(default="", init=False)

    def check(self, event: _Looked, view: ClusterView) -> str | None:
        """Whether a broker goes to work that must not, as its store's services start; or a master is fenced."""
        if isinstance(event, OperatorFiles):
            self._note(event)
        elif isinstance(event, NodePowerLoss):
            if event.node == self._blocked:
                self._blocked = ""  # the directory may have gone with the power
        elif isinstance(event, BrokerExchange):
            if self._blocked and event.effect == "Fence":
                return f"{event.node} is fenced, and {self._blocked} cannot replace its settings"
        elif event.actor == STORE_SERVICES and event.node in self._spoilt:
            return f"{event.node} goes to work after {self._spoilt[event.node]}"
        return None

    def _note(self, event: OperatorFiles) -> None:
        if event.status == "refused":
            self._spoilt[event.node] = event.detail
        elif event.status == "blocked":
            self._blocked = event.node
        elif event.status == "mended":
            self._spoilt.pop(event.node, None)
            self._blocked = "" if event.node == self._blocked else self._blocked
