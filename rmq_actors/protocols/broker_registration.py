"""When a broker registers with which name server, and what their answers mean (BrokerController.registerBrokerAll).

Name servers know nothing of each other. Each is told separately, one request at a time, so none of them ever sees an
older table after a newer one. A broker that could not reach one tries again soon instead of after a whole period, and
so does a slave that was told no master (#7790). What a slave has learned outlives the name server that told it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Literal

import attrs

from rmq_actors.protocols.backoff import Backoff

#: The pause before the second registration with a name server, whatever the period.
FIRST_INTERVAL_S = 10.0
#: The pause between two one-way registrations: the next one tells all topics that changed meanwhile.
TOPIC_CHANGES_PAUSE_S = 0.1
#: After a failure, or an answer without a master, the first pause has this length at most.
ASK_AGAIN_MIN_S = 1.0
#: The longest pause before a name server that cannot be reached is tried again: an attempt costs little.
UNREACHABLE_PAUSE_MAX_S = 5.0
#: The longest pause before a slave that was told no master asks again.
NO_MASTER_PAUSE_MAX_S = 10.0
#: How long a name server's statement counts: after that it has itself forgotten a broker that is silent.
STATEMENT_EXPIRES_S = 120.0

_NOBODY = -1

#: `query_data_version`: send the table's DataVersion. `register`: send the table, and wait for the answer.
#: `register_oneway`: send the table, and wait for nothing.
RequestKind = Literal["query_data_version", "register", "register_oneway"]


@attrs.frozen
class MasterAddresses:
    """Where the master of a slave is, as "host:port": its remoting port, and its HA port. None: not known."""

    master_addr: str | None = None
    ha_server_addr: str | None = None

    def __str__(self) -> str:
        return f"{self.master_addr or 'nobody that is known'} (HA: {self.ha_server_addr or 'not known'})"

    def updated(self, newer: MasterAddresses) -> MasterAddresses:
        """These addresses, replaced by those that `newer` knows."""
        return MasterAddresses(newer.master_addr or self.master_addr, newer.ha_server_addr or self.ha_server_addr)

    def agrees_with(self, other: MasterAddresses) -> bool:
        """Whether no address that both know differs."""
        return self.updated(other) == other.updated(self)


@attrs.frozen
class NameServerRequest:
    """An effect: send this to a name server now, with the topics of now, and say how it ended."""

    namesrv_addr: str
    kind: RequestKind


@attrs.define(eq=False, repr=False)
class _NameServer:
    """One name server. Times are seconds of one monotonic clock."""

    due_s: float
    unreachable: Backoff
    refused: Backoff
    is_busy: bool = attrs.field(default=False, init=False)
    asked_s: float = attrs.field(default=-math.inf, init=False)
    #: The broker's identity that the present request tells, and the one that it has; `_NOBODY` when that is not known.
    asked_as: int = attrs.field(default=_NOBODY, init=False)
    registered_as: int = attrs.field(default=_NOBODY, init=False)
    #: Something was sent that may have registered the broker.
    may_know_broker: bool = attrs.field(default=False, init=False)
    #: Topics changed, and no request since has carried them.
    topics_changed: bool = attrs.field(default=False, init=False)
    oneway_due_s: float = attrs.field(default=-math.inf, init=False)
    #: By number: whose answer is wanted to the topics as they were then, the one that the present request carries, and
    #: the last one that was answered; and when the next such request may be sent.
    wanted: int = attrs.field(default=0, init=False)
    asked_wanted: int = attrs.field(default=0, init=False)
    told: int = attrs.field(default=0, init=False)
    wanted_due_s: float = attrs.field(default=-math.inf, init=False)
    #: The master that it named in its last answer, the last one that it ever named, and when it last answered.
    names: MasterAddresses | None = attrs.field(default=None, init=False)
    ever_named: MasterAddresses | None = attrs.field(default=None, init=False)
    answered_s: float = attrs.field(default=-math.inf, init=False)


def register_period_s(register_name_server_period_ms: int) -> float:
    """registerNameServerPeriod in seconds, as RocketMQ bounds it: from 10 s to 60 s."""
    return max(10_000, min(register_name_server_period_ms, 60_000)) / 1000


@attrs.define(eq=False, repr=False)
class BrokerRegistration:
    """What one broker has to tell its name servers. Times are seconds of one monotonic clock.

    The driver sends what `requests` returns and reports each with `answered`, `compared`, `sent` or `failed`; `chance`
    in [0, 1) is the jitter of a pause. With `force_register` every period's registration carries the topics. Without,
    the DataVersion is compared first, but not by a slave, which would not hear of a new master, nor with a name server
    that does not know the broker as it is (#3381).
    """

    is_slave: bool
    force_register: bool
    period_s: float
    #: What a slave knows of its master.
    master: MasterAddresses = attrs.field(factory=MasterAddresses, init=False)
    _name_servers: dict[str, _NameServer] = attrs.field(factory=dict, init=False)
    #: Counts the identities that the broker had: role and address.
    _identity: int = attrs.field(default=0, init=False)
    #: Counts the calls of `want_topics_told`.
    _wanted: int = attrs.field(default=0, init=False)

    # --- what happens to the broker -----------------------------------------------------------------------------------

    def name_servers_changed(self, addresses: Iterable[str], now: float) -> None:
        """These are the name servers from now on: those that are new are due at once."""
        known = self._name_servers
        self._name_servers = {
            address: known.get(address)
            or _NameServer(
                now, Backoff(ASK_AGAIN_MIN_S, UNREACHABLE_PAUSE_MAX_S), Backoff(ASK_AGAIN_MIN_S, self.period_s)
            )
            for address in addresses
        }

    def topics_changed(self) -> None:
        """The topics changed: tell those that know the broker by a one-way request."""
        for name_server in self._name_servers.values():
            name_server.topics_changed = True

    def want_topics_told(self) -> int:
        """The topics changed, and a task waits until name servers have them: register with those that know the broker.

        Returns the number that `are_told` takes.
        """
        self._wanted += 1
        for name_server in self._name_servers.values():
            name_server.topics_changed, name_server.wanted = True, self._wanted
        return self._wanted

    def are_told(self, number: int) -> bool:
        """Whether each name server that knows the broker has answered to the topics of then, or to later ones.

        One that did not answer in time, or cannot be reached, knows it no more, as far as we know: nobody waits for it.
        """
        return all(
            server.told >= number or server.registered_as != self._identity for server in self._name_servers.values()
        )

    def identity_changed(self, now: float, *, is_slave: bool) -> None:
        """The broker has another role or another address: register with all name servers at once.

        Forget what was said about its master, which may have been its own slave.
        """
        self.is_slave, self.master = is_slave, MasterAddresses()
        self._identity += 1
        for name_server in self._name_servers.values():
            name_server.due_s = now
            name_server.names = name_server.ever_named = None

    # --- what to send -------------------------------------------------------------------------------------------------

    @property
    def wake_at(self) -> float:
        """When `requests` has something; infinity while every name server is being asked."""
        return min((self._wake_at(name_server) for name_server in self._name_servers.values()), default=math.inf)

    def _wake_at(self, name_server: _NameServer) -> float:
        if name_server.is_busy:
            return math.inf
        if name_server.registered_as != self._identity:
            return name_server.due_s
        if name_server.wanted > name_server.told:
            return min(name_server.due_s, name_server.wanted_due_s)
        return min(name_server.due_s, name_server.oneway_due_s) if name_server.topics_changed else name_server.due_s

    def requests(self, now: float) -> list[NameServerRequest]:
        """What to send now: one request for each name server that is due and not being asked already."""
        return [
            NameServerRequest(address, self._begin(name_server, now))
            for address, name_server in self._name_servers.items()
            if self._wake_at(name_server) <= now
        ]

    def _begin(self, name_server: _NameServer, now: float) -> RequestKind:
        name_server.is_busy, name_server.asked_as = True, self._identity
        is_wanted = name_server.wanted > name_server.told
        if is_wanted:
            name_server.wanted_due_s = now + TOPIC_CHANGES_PAUSE_S
        if name_server.due_s <= now or is_wanted:
            name_server.asked_s = now
            may_compare = name_server.registered_as == self._identity and not name_server.topics_changed
            if may_compare and not self.force_register and not self.is_slave:
                return "query_data_version"
            kind: RequestKind = "register"
        else:
            kind = "register_oneway"
        name_server.topics_changed, name_server.may_know_broker = False, True
        name_server.asked_wanted = name_server.wanted
        name_server.oneway_due_s = now + TOPIC_CHANGES_PAUSE_S
        return kind

    # --- how it ended -------------------------------------------------------------------------------------------------

    def answered(self, address: str, said: MasterAddresses, now: float, chance: float) -> None:
        """A name server has registered the broker, and `said` where its master is: see `master` for what follows."""
        name_server = self._name_servers.get(address)
        if name_server is None:
            return
        interval_s = FIRST_INTERVAL_S if name_server.registered_as == _NOBODY else self.period_s
        name_server.is_busy, name_server.registered_as = False, name_server.asked_as
        name_server.told = name_server.asked_wanted
        name_server.due_s = max(now, name_server.asked_s + interval_s)
        name_server.unreachable.succeeded()
        if self.is_slave and said.master_addr is None:
            pause_s = min(name_server.refused.next_pause_s(chance), NO_MASTER_PAUSE_MAX_S)
            name_server.due_s = min(name_server.due_s, now + pause_s)
        else:
            name_server.refused.succeeded()
        if name_server.registered_as != self._identity:
            name_server.due_s = now
        if self.is_slave:
            self._hear(name_server, said, now)

    def compared(self, address: str, now: float, *, has_changed: bool) -> None:
        """A name server has compared DataVersions: it has these topics, or else it is sent them at once."""
        name_server = self._name_servers.get(address)
        if name_server is None:
            return
        name_server.is_busy = False
        if has_changed:
            name_server.registered_as = _NOBODY
        is_registered = name_server.registered_as == self._identity
        name_server.due_s = max(now, name_server.asked_s + self.period_s) if is_registered else now

    def sent(self, address: str) -> None:
        """A one-way request is on its way. Nobody will say whether it arrived: the next period's makes up for it."""
        name_server = self._name_servers.get(address)
        if name_server is not None:
            name_server.is_busy = False

    def failed(self, address: str, now: float, chance: float, *, was_reached: bool) -> None:
        """A request failed: the next one is a whole registration, soon. `was_reached`: the name server was connected.

        If it refuses, or is too slow, its pauses grow up to the period, so that it is not asked faster than it can
        answer.
        """
        name_server = self._name_servers.get(address)
        if name_server is None:
            return
        name_server.is_busy, name_server.registered_as = False, _NOBODY
        backoff = name_server.refused if was_reached else name_server.unreachable
        name_server.due_s = now + backoff.next_pause_s(chance)

    def disconnected(self, address: str, now: float, chance: float) -> None:
        """The connection to a name server ended: it has forgotten the broker, or has died."""
        name_server = self._name_servers.get(address)
        if name_server is not None and not name_server.is_busy and name_server.registered_as != _NOBODY:
            self.failed(address, now, chance, was_reached=False)

    # --- what is known ------------------------------------------------------------------------------------------------

    @property
    def is_registered_everywhere(self) -> bool:
        """Whether there are name servers, and each has this broker as it is, as far as we know."""
        servers = self._name_servers.values()
        return bool(servers) and all(server.registered_as == self._identity for server in servers)

    @property
    def may_know_broker(self) -> list[str]:
        """The name servers that have to be told when the broker stops."""
        return [address for address, server in self._name_servers.items() if server.may_know_broker]

    def is_first_registered(self, address: str) -> bool:
        """Whether it is the first name server in the list that has the broker: only its settings are taken."""
        has_broker = (known for known, server in self._name_servers.items() if server.registered_as != _NOBODY)
        return next(has_broker, None) == address

    def _hear(self, name_server: _NameServer, said: MasterAddresses, now: float) -> None:
        """Take the master that a slave is told, unless name servers disagree and this is no news.

        The known master stays while a name server still names it, or none names another. So a new master and an old
        one, which some name server has not forgotten yet, do not take turns.
        """
        names = None if said.master_addr is None else said
        name_server.names, name_server.answered_s = names, now
        if names is not None:
            previous, name_server.ever_named = name_server.ever_named, names
            if previous not in {None, names} or names.agrees_with(self.master):
                self.master = self.master.updated(names)
                return
        named = [
            server.names
            for server in self._name_servers.values()
            if server.names is not None and now - server.answered_s < STATEMENT_EXPIRES_S
        ]
        if named and not any(one.agrees_with(self.master) for one in named):
            self.master = self.master.updated(names or named[0])
