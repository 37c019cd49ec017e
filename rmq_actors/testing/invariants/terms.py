"""Terms travel with the log: from a master to its slaves, and nobody goes back."""

from __future__ import annotations

import attrs

from rmq_actors.testing.invariants.invariant import Invariant
from rmq_actors.testing.view import ClusterView
from rmq_actors.tracing.events.ha import HaClientCompare, HaClientConnect, HaClientHalt, HaClientReport
from rmq_actors.tracing.events.run import OperatorSetUpAnew
from rmq_actors.tracing.events.store import PutEnd, StoreTerm

_Looked = HaClientConnect | HaClientCompare | HaClientReport | HaClientHalt | StoreTerm | PutEnd | OperatorSetUpAnew
#: What a comparison ends with that was answered, and after which the master is followed, or halted for.
_ANSWERED = ("same", "diverged")


@attrs.define(eq=False, repr=False)
class _Connection:
    """Whom a slave has connected to, and the terms of both as it did. They never fall."""

    master: str
    of_master: int
    own: int
    is_compared: bool = False


@attrs.define(eq=False, repr=False)
class Terms(Invariant[_Looked]):
    """A slave that has asked its master, and follows it or halts for it, has the term of that master on its disk.

    It follows nobody of an older term than its own. Who has become a slave since it was promoted confirms no put before
    it is promoted again.
    """

    name = "terms"
    kinds = (HaClientConnect, HaClientCompare, HaClientReport, HaClientHalt, StoreTerm, PutEnd, OperatorSetUpAnew)

    _connections: dict[str, _Connection] = attrs.field(factory=dict, init=False)
    #: The terms that brokers led until they became slaves.
    _resigned: dict[str, int] = attrs.field(factory=dict, init=False)

    def check(self, event: _Looked, view: ClusterView) -> str | None:
        """The first report after a comparison, or a halt: only these tell what came of it."""
        name, connections = event.node, self._connections
        if isinstance(event, PutEnd):
            if event.status == "PUT_OK" and name in self._resigned:
                return f"{name} confirms a put, and has become a slave since it led term {self._resigned[name]}"
        elif isinstance(event, StoreTerm):
            self._resigned.pop(name, None)
            if event.status == "resigned":
                self._resigned[name] = event.term
        elif isinstance(event, HaClientConnect):
            master, term = view.peer(event), view.evidence.term
            if not master:  # a broker of another brokerName
                connections.pop(name, None)
                return None
            # A term that could not be made durable is in the file, perhaps; its broker does not say that it has it.
            of_master = min(term(master).number, view.nodes[master].term)
            connections[name] = _Connection(master, of_master, term(name).number)
        elif isinstance(event, OperatorSetUpAnew):
            self._resigned.pop(name, None)
            for each in [each for each, of in connections.items() if name in (each, of.master)]:
                del connections[each]
        elif (connection := connections.get(name)) is None:
            pass
        elif isinstance(event, HaClientCompare):
            connection.is_compared = event.status in _ANSWERED
        else:
            del connections[name]
            if connection.is_compared:
                return self._check_terms(name, connection, view, follows=isinstance(event, HaClientReport))
        return None

    def _check_terms(self, name: str, connection: _Connection, view: ClusterView, *, follows: bool) -> str | None:
        master, term = connection.master, view.evidence.term
        if (own := term(name).number) < connection.of_master:
            return f"{name} knows of term {own} alone, and has asked {master}, whose term was {connection.of_master}"
        if follows and (of_master := term(master).number) < connection.own:
            return f"{name} follows {master}, whose term is {of_master}, and knew of term {connection.own} before"
        return None
