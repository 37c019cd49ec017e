"""BrokerRegistration: which name server is sent what and when, and what a slave makes of their answers."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmq_actors.protocols.broker_registration import (
    FIRST_INTERVAL_S,
    NO_MASTER_PAUSE_MAX_S,
    STATEMENT_EXPIRES_S,
    TOPIC_CHANGES_PAUSE_S,
    UNREACHABLE_PAUSE_MAX_S,
    BrokerRegistration,
    MasterAddresses,
    NameServerRequest,
    RequestKind,
    register_period_s,
)

A, B, C = "ns-a:9876", "ns-b:9876", "ns-c:9876"
PERIOD_S = 30.0
NOTHING = MasterAddresses()
M1 = MasterAddresses("10.0.0.1:10911", "10.0.0.1:10912")
M2 = MasterAddresses("10.0.0.2:10911", "10.0.0.2:10912")


def new(addresses: Iterable[str] = (A,), *, is_slave: bool = False, force: bool = True) -> BrokerRegistration:
    machine = BrokerRegistration(is_slave, force, PERIOD_S)
    machine.name_servers_changed(addresses, 0.0)
    return machine


def registered(
    *addresses: str, is_slave: bool = False, force: bool = True, said: MasterAddresses = NOTHING
) -> BrokerRegistration:
    """One that every name server has answered at 0."""
    machine = new(addresses or (A,), is_slave=is_slave, force=force)
    machine.requests(0.0)
    for address in addresses or (A,):
        machine.answered(address, said, 0.0, 0.5)
    return machine


def kinds(machine: BrokerRegistration, now: float) -> list[tuple[str, RequestKind]]:
    return [(request.namesrv_addr, request.kind) for request in machine.requests(now)]


def say(machine: BrokerRegistration, address: str, said: MasterAddresses, now: float) -> MasterAddresses:
    machine.answered(address, said, now, 0.5)
    return machine.master


# --- when -------------------------------------------------------------------------------------------------------------


def test_at_the_start_every_name_server_is_due() -> None:
    machine = new((A, B))
    assert machine.wake_at == 0.0
    assert machine.requests(0.0) == [NameServerRequest(A, "register"), NameServerRequest(B, "register")]
    assert machine.wake_at == math.inf


def test_without_name_servers_nothing_is_due() -> None:
    machine = new(())
    assert machine.wake_at == math.inf
    assert machine.requests(1e9) == []
    assert not machine.is_registered_everywhere


def test_the_second_registration_comes_after_10_s_and_each_further_one_after_a_period() -> None:
    machine = registered(A)
    times = []
    for _ in range(4):
        times.append(now := machine.wake_at)
        assert machine.requests(math.nextafter(now, 0.0)) == []
        assert kinds(machine, now) == [(A, "register")]
        machine.answered(A, NOTHING, now + 2.0, 0.5)  # a slow answer makes no period longer
    assert times == [FIRST_INTERVAL_S, *(FIRST_INTERVAL_S + PERIOD_S * number for number in (1, 2, 3))]


@pytest.mark.parametrize(
    ("configured_ms", "period_s"), [(0, 10.0), (9_999, 10.0), (30_000, 30.0), (60_001, 60.0), (10**9, 60.0)]
)
def test_the_period_is_bounded_as_rocketmq_bounds_it(configured_ms: int, period_s: float) -> None:
    assert register_period_s(configured_ms) == period_s


def test_one_name_server_does_not_wait_for_another() -> None:
    machine = new((A, B))
    machine.requests(0.0)
    machine.answered(A, NOTHING, 0.0, 0.5)
    assert kinds(machine, FIRST_INTERVAL_S) == [(A, "register")]
    assert not machine.is_registered_everywhere


def test_a_new_name_server_is_due_at_once_and_one_that_is_gone_is_not_asked_any_more() -> None:
    machine = registered(A)
    machine.name_servers_changed((B, A), 3.0)
    assert kinds(machine, 3.0) == [(B, "register")]
    machine.name_servers_changed((A,), 4.0)
    machine.answered(B, M1, 5.0, 0.5)  # late
    machine.failed(B, 5.0, 0.5, was_reached=True)
    machine.compared(B, 5.0, has_changed=True)
    machine.sent(B)
    machine.disconnected(B, 5.0, 0.5)
    assert machine.wake_at == FIRST_INTERVAL_S
    assert machine.may_know_broker == [A]


# --- topics that change -----------------------------------------------------------------------------------------------


def test_a_change_of_topics_is_told_one_way_to_those_that_have_the_broker() -> None:
    machine = registered(A, B)
    machine.name_servers_changed((A, B, C), 1.0)
    machine.requests(1.0)
    machine.failed(C, 1.0, 1.0, was_reached=False)
    machine.topics_changed()
    assert kinds(machine, 1.5) == [(A, "register_oneway"), (B, "register_oneway")]
    machine.sent(A)
    machine.sent(B)
    # The third is told when it is reached; nothing else is due meanwhile.
    assert kinds(machine, machine.wake_at) == [(C, "register")]
    assert kinds(machine, machine.wake_at) == [(A, "register"), (B, "register")]


def test_changes_in_a_hurry_share_a_request() -> None:
    machine = registered(A)
    sent = []
    for tenth in range(50):
        now = 1.0 + tenth * 0.01
        machine.topics_changed()
        if machine.requests(now):
            sent.append(now)
            machine.sent(A)
    assert len(sent) == 5
    assert all(later - earlier >= TOPIC_CHANGES_PAUSE_S for earlier, later in itertools.pairwise(sent))
    assert machine.wake_at <= sent[-1] + TOPIC_CHANGES_PAUSE_S


def test_a_change_while_a_name_server_is_asked_is_told_afterwards() -> None:
    machine = registered(A)
    assert kinds(machine, FIRST_INTERVAL_S) == [(A, "register")]
    machine.topics_changed()
    assert machine.wake_at == math.inf
    machine.answered(A, NOTHING, FIRST_INTERVAL_S + 1.0, 0.5)
    assert kinds(machine, FIRST_INTERVAL_S + 1.0) == [(A, "register_oneway")]


def test_a_period_that_is_due_tells_of_the_change_too() -> None:
    machine = registered(A, force=False)
    machine.topics_changed()
    assert kinds(machine, FIRST_INTERVAL_S) == [(A, "register")]
    machine.answered(A, NOTHING, FIRST_INTERVAL_S, 0.5)
    assert machine.wake_at == FIRST_INTERVAL_S + PERIOD_S


def test_a_change_whose_answer_is_wanted_is_registered_with_those_that_have_the_broker() -> None:
    machine = registered(A, B, force=False)
    number = machine.want_topics_told()
    assert kinds(machine, 1.0) == [(A, "register"), (B, "register")]
    assert not machine.are_told(number)
    machine.answered(A, NOTHING, 1.1, 0.5)
    assert not machine.are_told(number)
    machine.answered(B, NOTHING, 1.2, 0.5)
    assert machine.are_told(number)
    assert machine.wake_at == 1.0 + FIRST_INTERVAL_S + 20.0


def test_nobody_waits_for_a_name_server_that_failed_or_never_had_the_broker() -> None:
    machine = registered(A, B)
    machine.name_servers_changed((A, B, C), 1.0)
    assert kinds(machine, 1.0) == [(C, "register")]
    number = machine.want_topics_told()
    assert kinds(machine, 1.0) == [(A, "register"), (B, "register")]
    machine.answered(A, NOTHING, 1.1, 0.5)
    machine.failed(B, 1.2, 0.5, was_reached=False)
    assert machine.are_told(number)


def test_an_answer_to_older_topics_is_not_the_one_that_is_wanted() -> None:
    machine = registered(A)
    assert kinds(machine, FIRST_INTERVAL_S) == [(A, "register")]
    number = machine.want_topics_told()
    machine.answered(A, NOTHING, FIRST_INTERVAL_S + 1.0, 0.5)
    assert not machine.are_told(number)
    assert kinds(machine, FIRST_INTERVAL_S + 1.0) == [(A, "register")]
    machine.answered(A, NOTHING, FIRST_INTERVAL_S + 1.1, 0.5)
    assert machine.are_told(number)


def test_wanted_answers_in_a_hurry_share_a_request() -> None:
    machine, sent = registered(A), []
    for tenth in range(50):
        now = 1.0 + tenth * 0.01
        machine.want_topics_told()
        if machine.requests(now):
            sent.append(now)
            machine.answered(A, NOTHING, now, 0.5)
    assert len(sent) == 5
    assert all(later - earlier >= TOPIC_CHANGES_PAUSE_S for earlier, later in itertools.pairwise(sent))


# --- forceRegister=false ----------------------------------------------------------------------------------------------


def test_the_data_version_is_compared_first() -> None:
    machine = registered(A, force=False)
    assert kinds(machine, FIRST_INTERVAL_S) == [(A, "query_data_version")]
    machine.compared(A, FIRST_INTERVAL_S + 1.0, has_changed=False)
    assert machine.wake_at == FIRST_INTERVAL_S + PERIOD_S
    assert kinds(machine, machine.wake_at) == [(A, "query_data_version")]
    machine.compared(A, 41.0, has_changed=True)
    assert kinds(machine, 41.0) == [(A, "register")]


def test_known_bug_3381_a_change_of_role_or_address_is_registered_whatever_the_data_version() -> None:
    machine = registered(A, force=False)
    machine.identity_changed(3.0, is_slave=False)
    assert not machine.is_registered_everywhere
    assert kinds(machine, 3.0) == [(A, "register")]


@pytest.mark.parametrize("first", ["register", "query_data_version", "register_oneway"])
def test_a_role_that_changes_while_a_name_server_is_asked_is_registered_afterwards(first: RequestKind) -> None:
    machine = registered(A, force=False)
    now = FIRST_INTERVAL_S
    if first == "register_oneway":
        machine.topics_changed()
        now = 1.0
    elif first == "register":
        machine.disconnected(A, 0.0, 0.0)
    assert kinds(machine, now) == [(A, first)]
    machine.identity_changed(now, is_slave=False)
    assert machine.wake_at == math.inf
    if first == "register":
        machine.answered(A, NOTHING, now, 0.5)
    elif first == "register_oneway":
        machine.sent(A)
    else:
        machine.compared(A, now, has_changed=False)
    assert not machine.is_registered_everywhere
    assert kinds(machine, now) == [(A, "register")]
    machine.answered(A, NOTHING, now, 0.5)
    assert machine.is_registered_everywhere


def test_a_slave_always_registers_since_only_that_tells_it_of_its_master() -> None:
    machine = registered(A, is_slave=True, force=False, said=M1)
    assert kinds(machine, FIRST_INTERVAL_S) == [(A, "register")]


@pytest.mark.parametrize("was_reached", [False, True])
def test_after_a_failure_nothing_is_compared(was_reached: bool) -> None:
    machine = registered(A, force=False)
    machine.requests(FIRST_INTERVAL_S)
    machine.failed(A, FIRST_INTERVAL_S, 0.5, was_reached=was_reached)
    assert kinds(machine, machine.wake_at) == [(A, "register")]


# --- failures ---------------------------------------------------------------------------------------------------------


def pauses(machine: BrokerRegistration, count: int, *, was_reached: bool) -> list[float]:
    found = []
    for _ in range(count):
        now = machine.wake_at
        assert kinds(machine, now) == [(A, "register")]
        machine.failed(A, now, 1.0, was_reached=was_reached)
        found.append(machine.wake_at - now)
    return found


def test_who_is_not_reached_is_tried_again_soon_and_often() -> None:
    assert pauses(new(), 5, was_reached=False) == [1.0, 2.0, 4.0, UNREACHABLE_PAUSE_MAX_S, UNREACHABLE_PAUSE_MAX_S]


def test_who_refuses_is_asked_ever_more_seldom() -> None:
    assert pauses(new(), 7, was_reached=True) == [1.0, 2.0, 4.0, 8.0, 16.0, PERIOD_S, PERIOD_S]


def test_an_answer_ends_the_pauses() -> None:
    machine = new()
    for was_reached in (False, True):
        pauses(machine, 6, was_reached=was_reached)
        now = machine.wake_at
        machine.requests(now)
        machine.answered(A, NOTHING, now, 1.0)
        assert machine.wake_at == now + FIRST_INTERVAL_S  # as after a start
        assert pauses(machine, 2, was_reached=was_reached) == [1.0, 2.0]


def test_a_connection_that_ends_is_a_reason_to_register_soon() -> None:
    machine = registered(A, force=False)
    machine.disconnected(A, 3.0, 1.0)
    assert machine.wake_at == 4.0
    assert not machine.is_registered_everywhere
    machine.disconnected(A, 3.5, 1.0)  # once is enough
    assert kinds(machine, 4.0) == [(A, "register")]
    # Its request will fail by itself.
    machine.disconnected(A, 4.0, 1.0)
    assert machine.wake_at == math.inf


# --- who is told at the end, and whose settings count -----------------------------------------------------------------


def test_whoever_was_sent_a_registration_may_know_the_broker() -> None:
    machine = new((A, B))
    assert machine.may_know_broker == []
    machine.requests(0.0)
    machine.failed(B, 0.0, 0.5, was_reached=True)  # the answer may be what was lost
    assert machine.may_know_broker == [A, B]


def test_settings_are_taken_from_the_first_name_server_that_has_the_broker() -> None:
    machine = new((A, B))
    machine.requests(0.0)
    machine.answered(B, NOTHING, 0.0, 0.5)
    assert machine.is_first_registered(B)
    assert not machine.is_first_registered(A)
    machine.answered(A, NOTHING, 0.0, 0.5)
    assert machine.is_first_registered(A)
    assert not machine.is_first_registered(B)


# --- what a slave learns ----------------------------------------------------------------------------------------------


def test_a_master_learns_nothing() -> None:
    assert registered(A, said=M1).master == NOTHING


def test_s11_a_null_never_overwrites_a_known_master() -> None:
    machine = registered(A, is_slave=True, said=M1)
    assert say(machine, A, NOTHING, 10.0) == M1
    assert say(machine, A, NOTHING, 10.0 + 2 * STATEMENT_EXPIRES_S) == M1


def test_a_newer_answer_with_another_master_overwrites() -> None:
    machine = registered(A, is_slave=True, said=M1)
    assert say(machine, A, M2, 10.0) == M2
    assert say(machine, A, NOTHING, 20.0) == M2
    assert say(machine, A, M1, 30.0) == M1


def test_an_ha_address_that_becomes_null_stays() -> None:
    machine = registered(A, is_slave=True, said=M1)
    assert say(machine, A, MasterAddresses("10.0.0.1:10911"), 10.0) == M1
    assert say(machine, A, MasterAddresses("10.0.0.2:10911"), 20.0) == MasterAddresses(
        "10.0.0.2:10911", "10.0.0.1:10912"
    )


def test_what_one_does_not_know_another_adds() -> None:
    machine = registered(A, B, is_slave=True, said=MasterAddresses("10.0.0.1:10911"))
    assert say(machine, B, M1, 10.0) == M1


def test_name_servers_that_disagree_do_not_take_turns() -> None:
    machine = new((A, B), is_slave=True)
    machine.requests(0.0)
    assert say(machine, A, M1, 0.0) == M1
    for now in range(0, 600, 10):
        assert say(machine, B, M2, float(now)) == M1
        assert say(machine, A, M1, float(now)) == M1


def test_a_name_server_that_changes_its_mind_is_believed() -> None:
    machine = registered(A, B, is_slave=True, said=M1)
    assert say(machine, B, M2, 10.0) == M2  # the new master reaches B first
    assert say(machine, A, M1, 11.0) == M2  # A has not forgotten the old one yet
    assert say(machine, A, NOTHING, 130.0) == M2
    assert say(machine, A, M2, 140.0) == M2


def test_a_name_server_that_was_restarted_and_names_another_master_is_believed() -> None:
    machine = registered(A, B, is_slave=True, said=M1)
    assert say(machine, B, NOTHING, 10.0) == M1
    assert say(machine, B, M2, 11.0) == M2


def test_a_master_that_nobody_names_any_more_gives_way_to_one_that_is_named() -> None:
    machine = new((A, B), is_slave=True)
    machine.requests(0.0)
    say(machine, A, M1, 0.0)
    assert say(machine, B, M2, 1.0) == M1
    assert say(machine, A, NOTHING, 10.0) == M2


def test_what_a_name_server_said_long_ago_counts_no_more() -> None:
    machine = new((A, B), is_slave=True)
    machine.requests(0.0)
    say(machine, A, M1, 0.0)
    machine.failed(A, 1.0, 0.5, was_reached=False)  # and never answers again
    assert say(machine, B, M2, STATEMENT_EXPIRES_S - 1.0) == M1
    assert say(machine, B, M2, STATEMENT_EXPIRES_S) == M2


def test_known_bug_7790_a_slave_without_a_master_asks_again_soon() -> None:
    machine = new(is_slave=True)
    waits = []
    for _ in range(7):
        now = machine.wake_at
        assert kinds(machine, now) == [(A, "register")]
        machine.answered(A, NOTHING, now, 1.0)
        waits.append(machine.wake_at - now)
    assert waits == [1.0, 2.0, 4.0, 8.0, NO_MASTER_PAUSE_MAX_S, NO_MASTER_PAUSE_MAX_S, NO_MASTER_PAUSE_MAX_S]
    now = machine.wake_at
    machine.requests(now)
    machine.answered(A, M1, now, 1.0)
    assert machine.wake_at == now + PERIOD_S
    # A master asks for nothing.
    assert registered(A).wake_at == FIRST_INTERVAL_S


# --- a model of name servers ------------------------------------------------------------------------------------------

#: Time-out of a request to a name server that does not answer.
TIMEOUT_S = 6.0
#: After the last trouble every name server has the broker as it is within this time: a period until it is asked, a
#: request that times out, the longest pause.
CONVERGENCE_S = PERIOD_S + TIMEOUT_S + PERIOD_S


@attrs.define
class _ModelServer:
    """What a name server remembers of the broker: the identity and the version of the topics it was sent last."""

    remembers: tuple[int, int] | None = None
    is_up: bool = True
    refuses: bool = False


@attrs.define
class _Model:
    """Name servers, a broker, and its driver, in steps of time. A request is handled when it is sent."""

    machine: BrokerRegistration
    servers: dict[str, _ModelServer]
    now: float = 0.0
    identity: int = 0
    version: int = 0
    busy: dict[str, tuple[float, NameServerRequest, bool]] = attrs.field(factory=dict)
    #: The number, the identity and the version of each change whose answer is wanted.
    wanted: list[tuple[int, int, int]] = attrs.field(factory=list)

    def run_until(self, end: float) -> None:
        while True:
            due = min([self.machine.wake_at, *(until for until, _, _ in self.busy.values())])
            if due > end:
                self.now = max(self.now, end)
                return
            self.now = max(self.now, due)
            for address, (until, request, ok) in list(self.busy.items()):
                if until <= self.now:
                    del self.busy[address]
                    self._end(request, ok=ok)
                    self.check_told()
            for request in self.machine.requests(self.now):
                assert request.namesrv_addr not in self.busy, "one request at a time"
                self._begin(request)

    def _begin(self, request: NameServerRequest) -> None:
        server = self.servers[request.namesrv_addr]
        ok = server.is_up and not server.refuses
        if ok and request.kind != "query_data_version":
            assert server.remembers is None or server.remembers <= (self.identity, self.version), "it goes back"
            server.remembers = self.identity, self.version
        takes_s = 0.0 if request.kind == "register_oneway" else 0.05 if ok else TIMEOUT_S
        self.busy[request.namesrv_addr] = self.now + takes_s, request, ok

    def _end(self, request: NameServerRequest, *, ok: bool) -> None:
        address, server = request.namesrv_addr, self.servers[request.namesrv_addr]
        if request.kind == "register_oneway":
            self.machine.sent(address)
        elif not ok:
            self.machine.failed(address, self.now, 0.5, was_reached=server.is_up)
        elif request.kind == "register":
            self.machine.answered(address, M1 if self.machine.is_slave else NOTHING, self.now, 0.5)
        else:
            # RocketMQ's compares nothing but versions.
            known = server.remembers
            self.machine.compared(address, self.now, has_changed=known is None or known[1] != self.version)

    def happens(self, what: str, address: str) -> None:
        server = self.servers[address]
        if what == "topics":
            self.version += 1
            self.machine.topics_changed()
        elif what == "wanted":
            self.version += 1
            self.wanted.append((self.machine.want_topics_told(), self.identity, self.version))
        elif what == "identity":
            self.identity += 1
            self.machine.identity_changed(self.now, is_slave=self.identity % 2 == 1)
        elif what == "down":
            server.is_up = False
        elif what == "refuses":
            server.refuses = True
        elif what == "up":
            server.is_up, server.refuses = True, False
        else:
            server.remembers = None
            if what == "forgets_and_closes":
                self.machine.disconnected(address, self.now, 0.5)

    def check_told(self) -> None:
        """A change counts as told when every name server that has the broker has it, but those that have forgotten."""
        for number, identity, version in self.wanted:
            if identity == self.identity and self.machine.are_told(number) and self.machine.is_registered_everywhere:
                has = [server.remembers for server in self.servers.values() if server.remembers is not None]
                assert all(one >= (identity, version) for one in has)

    def settle(self) -> None:
        """Every trouble is over."""
        for server in self.servers.values():
            server.is_up, server.refuses = True, False
        self.run_until(self.now + CONVERGENCE_S)


EVENTS = ("topics", "wanted", "identity", "down", "up", "refuses", "forgets", "forgets_and_closes")


@given(
    st.booleans(),
    st.booleans(),
    st.lists(st.tuples(st.sampled_from((0.0, 0.01, 0.2, 3.0, 40.0)), st.sampled_from(EVENTS), st.sampled_from((A, B)))),
)
def test_every_name_server_comes_to_have_the_broker_as_it_is(
    is_slave: bool, force: bool, events: list[tuple[float, str, str]]
) -> None:
    model = _Model(new((A, B), is_slave=is_slave, force=force), {A: _ModelServer(), B: _ModelServer()})
    model.run_until(0.0)
    for pause_s, what, address in events:
        model.run_until(model.now + pause_s)
        model.happens(what, address)
        model.check_told()
    model.settle()
    assert all(model.machine.are_told(number) for number, _, _ in model.wanted)
    assert [server.remembers for server in model.servers.values()] == [(model.identity, model.version)] * 2
    assert model.machine.is_registered_everywhere
