"""What becomes of commands that give a broker a role."""

from __future__ import annotations

import attrs

from rmq_actors.testing.invariants.invariant import Invariant
from rmq_actors.testing.view import ClusterView
from rmq_actors.tracing.events.broker import BrokerExchange, BrokerExchangePartner, BrokerRoleEvent
from rmq_actors.tracing.events.node import NodeBoot
from rmq_actors.tracing.events.run import OperatorRole

#: How a broker says that it has given up an exchange for a command.
_GIVEN_UP = "the role was set by command meanwhile"

_Looked = OperatorRole | BrokerExchange | BrokerExchangePartner | BrokerRoleEvent | NodeBoot


@attrs.define(eq=False, repr=False)
class _Broker:
    """What one broker's process has been told, and does."""

    #: When each command came that is under way.
    asked_ns: list[int] = attrs.field(factory=list)
    #: What has happened since then: which role it has got, and which exchange was given up; "": none.
    role: str = ""
    given_up: str = ""
    #: Another command, or an exchange, may have done it.
    is_alone: bool = True
    #: An exchange is about to change its role.
    is_exchanged: bool = False
    #: Whether this broker conducts an exchange; when it began one last, and while how many commands that came before.
    exchanges: bool = False
    began_ns: int = -1
    began_within: int = 0


@attrs.define(eq=False, repr=False)
class Commands(Invariant[_Looked]):
    """A command for a role that is refused, or cannot be written into the file, changes no role.

    One that is refused gives up no exchange that is under way. No exchange begins while a command sets the role of its
    master.
    """

    name = "commands"
    kinds = (OperatorRole, BrokerExchange, BrokerExchangePartner, BrokerRoleEvent, NodeBoot)

    _brokers: dict[str, _Broker] = attrs.field(factory=dict, init=False)

    def check(self, event: _Looked, view: ClusterView) -> str | None:
        """Note what happens while a command is under way, and judge it when that is answered."""
        name, now_ns = event.node, event.sim_time_ns or 0
        if isinstance(event, NodeBoot):
            self._brokers[name] = _Broker()
            return None
        broker = self._brokers.setdefault(name, _Broker())
        if isinstance(event, OperatorRole):
            return self._check_command(event, broker, now_ns)
        if isinstance(event, BrokerExchangePartner):
            self._note_change(broker, begins=event.status == "is_promoted")
        elif isinstance(event, BrokerRoleEvent):
            broker.is_exchanged = False
            if event.status == "changed":
                broker.role = event.role
        else:
            self._note_exchange(event, broker, now_ns)
        return None

    @staticmethod
    def _note_change(broker: _Broker, *, begins: bool) -> None:
        broker.is_exchanged = begins
        if begins:
            broker.is_alone = False

    def _note_exchange(self, event: BrokerExchange, broker: _Broker, now_ns: int) -> None:
        self._note_change(broker, begins=event.effect == "StepDown")
        if event.status == "ended":
            broker.exchanges = False
            if event.detail == _GIVEN_UP:
                broker.given_up = event.peer_address
        elif not broker.exchanges:
            broker.exchanges = True
            if not broker.began_within:  # else an earlier one is not judged yet
                broker.began_ns = now_ns
                broker.began_within = sum(asked_ns < now_ns for asked_ns in broker.asked_ns)

    def _check_command(self, event: OperatorRole, broker: _Broker, now_ns: int) -> str | None:
        if event.status == "asked":
            if not broker.asked_ns:
                broker.role, broker.given_up = "", ""
            broker.is_alone = not broker.asked_ns and not broker.is_exchanged
            broker.asked_ns.append(now_ns)
            return None
        broker.asked_ns.pop(0)  # which one it is, is not told
        if broker.began_within and broker.began_ns == now_ns:
            broker.began_within -= 1  # at one instant the one may have been before the other, as nobody sees
        elif broker.began_within:
            return f"{event.node} began to exchange roles while a command set its role"
        if not broker.is_alone:
            return None
        # Which disk takes its settings is known only once the exchange is given up.
        if event.status == "refused" and broker.given_up:
            return f"{event.node} refuses a command ({event.detail}), and gives the exchange with {broker.given_up} up"
        if event.status in ("refused", "unwritten") and broker.role:
            return f"{event.node} has not done a command ({event.detail}), and is {broker.role}"
        return None
