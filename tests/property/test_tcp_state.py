"""The table of TCP states: whatever two ends do, it allows it, and they see what the flags of old would say."""

from __future__ import annotations

import errno
from collections import deque
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sim_net.net import tcp_state
from sim_net.net.tcp_state import STATES, TABLE, Event, ImpossibleEventError, State, step


class Flags:
    """One end as it was before there was a table: flags, and what each event did to them."""

    def __init__(self) -> None:
        self.established = self.aborted = self.torn = self.end_received = self.shut_write = self.end_sent = False
        self.error = 0
        self.peer: Flags = self

    @property
    def over(self) -> bool:
        both_ended = self.end_received and self.end_sent and self.peer.end_received
        return self.torn or self.aborted or (self.established and both_ended)

    def shut(self) -> None:
        self.shut_write = self.end_sent = True

    def tear(self) -> None:
        if self.torn or self.aborted:
            return
        if not self.established:
            self.error = errno.ECONNREFUSED
        else:
            self.error = errno.EPIPE if self.end_received else errno.ECONNRESET
        self.torn = True

    def time_out(self) -> None:
        self.error = errno.ETIMEDOUT
        self.aborted = self.torn = True


class End:
    """One end of a pair: the table's state, the flags, and what is on its way to the peer."""

    def __init__(self) -> None:
        self.state: State = tcp_state.SYN_SENT
        self.error = 0
        self.flags = Flags()
        self.end_waits = False
        self.wire: deque[str] = deque()

    def step(self, event: Event) -> bool:
        taken = step(self.state, event)
        self.state = taken.state
        self.error = taken.error or self.error
        return taken.answers

    def check(self) -> None:
        state, flags = self.state, self.flags
        assert state.is_over == flags.over, (state, vars(flags))
        assert state.refuses == flags.aborted
        assert state.is_broken == flags.torn
        assert state.connects == (not flags.established and not flags.over)
        assert state.is_open == (flags.established and not flags.over)
        assert state.may_write == (flags.established and not flags.over and not flags.shut_write)
        assert state.receives == (flags.established and not flags.over and not flags.end_received)
        assert self.error == flags.error


class Pair:
    """A client, a listener's end, and two wires. A backlog may be full; then the handshake is repeated."""

    def __init__(self) -> None:
        self.client, self.server = End(), End()
        self.client.flags.peer, self.server.flags.peer = self.server.flags, self.client.flags
        self.server.step(Event.SYN)
        self.server.wire.append("SYN_ACK")

    def other(self, end: End) -> End:
        return self.server if end is self.client else self.client

    def do(self, action: str, end: End) -> None:
        peer = self.other(end)
        if action == "deliver":
            if end.wire:
                self.arrive(end.wire.popleft(), end, peer, backlog_full=False)
        elif action == "deliver before a full backlog":
            if end.wire:
                self.arrive(end.wire.popleft(), end, peer, backlog_full=True)
        elif action == "shut" and end.state.may_write:
            end.step(Event.SHUT_WRITE)
            end.flags.shut()
            end.wire.append("FIN")
        elif action == "abort" and not end.state.refuses:
            if not end.state.is_broken:
                end.wire.append("RESET")
            end.step(Event.ABORT)
            end.flags.aborted, end.flags.torn = True, False  # whether it was reset before, nobody is left to ask
        elif action == "time out" and end.state.is_known and not end.state.is_broken:
            end.step(Event.TIME_OUT)
            end.flags.time_out()
            end.wire.clear()
        elif action == "fault" and not end.state.connects:
            for each in (end, peer):
                if not (each.state.connects or each.state.is_over) or each.state is tcp_state.CLOSED:
                    each.step(Event.RESET)
                    each.flags.tear()
                    each.wire.clear()

    def arrive(self, segment: str, sender: End, end: End, *, backlog_full: bool) -> None:
        flags = end.flags
        if end.state.refuses:
            if segment != "RESET":
                end.wire.append("RESET")
        elif end.state.is_broken:
            end.step(Event[segment])  # it changes nothing
        elif segment == "SYN_ACK":
            if end.step(Event.SYN_ACK):
                end.wire.append("ACK")
            flags.established = True
        elif segment == "ACK":
            if end.state.connects and backlog_full:
                end.wire.append("SYN_ACK")
                return
            end.step(Event.ACK)
            flags.established = True
            if end.end_waits:
                end.end_waits = False
                self.receive_end(sender, end)
        elif segment == "FIN":
            flags.end_received = True
            if end.state.connects:
                end.end_waits = True
            else:
                self.receive_end(sender, end)
        else:
            end.step(Event.RESET)
            flags.tear()

    def receive_end(self, sender: End, end: End) -> None:
        end.step(Event.FIN)
        sender.step(Event.FIN_ACKED)

    def check(self) -> None:
        for end in (self.client, self.server):
            if not end.end_waits:  # the flags counted an end before the handshake was over; nobody could tell
                end.check()


IN_ORDER = ("deliver", "deliver", "shut")
ANYHOW = (*IN_ORDER, "deliver before a full backlog", "abort", "time out", "fault")


def actions(names: tuple[str, ...]) -> st.SearchStrategy[list[tuple[str, bool]]]:
    return st.lists(st.tuples(st.sampled_from(names), st.booleans()), max_size=30)


@given(actions(ANYHOW))
def test_whatever_two_ends_do_the_table_allows_it_and_says_what_the_flags_said(done: list[tuple[str, bool]]) -> None:
    pair = Pair()
    for action, by_client in done:
        pair.do(action, pair.client if by_client else pair.server)
        pair.check()


@given(actions((*IN_ORDER, "deliver before a full backlog")))
def test_both_ends_reach_closed_when_both_end_in_good_order(done: list[tuple[str, bool]]) -> None:
    pair = Pair()
    for action, by_client in done:
        pair.do(action, pair.client if by_client else pair.server)
    for action in ("deliver", "deliver", "shut", "deliver", "deliver", "deliver"):
        for end in (pair.client, pair.server, pair.client):
            pair.do(action, end)
    pair.check()
    assert (pair.client.state, pair.server.state) == (tcp_state.CLOSED, tcp_state.CLOSED)
    assert pair.client.error == pair.server.error == 0


@given(actions((*IN_ORDER, "deliver before a full backlog", "abort")), st.booleans())
def test_an_abort_ends_both_once_all_has_arrived(done: list[tuple[str, bool]], by_client: bool) -> None:
    pair = Pair()
    for action, by in done:
        pair.do(action, pair.client if by else pair.server)
    pair.do("abort", pair.client if by_client else pair.server)
    while pair.client.wire or pair.server.wire:
        pair.do("deliver", pair.client)
        pair.do("deliver", pair.server)
    pair.check()
    assert pair.client.state.is_over
    assert pair.server.state.is_over


@pytest.mark.parametrize(
    ("state", "event"),
    [
        (tcp_state.SYN_SENT, Event.ACK),
        (tcp_state.SYN_SENT, Event.FIN),
        (tcp_state.SYN_SENT, Event.SHUT_WRITE),
        (tcp_state.SYN_SENT, Event.TIME_OUT),
        (tcp_state.SYN_RECEIVED, Event.SYN),
        (tcp_state.SYN_RECEIVED, Event.FIN),
        (tcp_state.ESTABLISHED, Event.FIN_ACKED),
        (tcp_state.ESTABLISHED, Event.SYN),
        (tcp_state.FIN_WAIT_1, Event.SHUT_WRITE),
        (tcp_state.FIN_WAIT_2, Event.FIN_ACKED),
        (tcp_state.CLOSE_WAIT, Event.FIN),
        (tcp_state.LAST_ACK, Event.SHUT_WRITE),
        (tcp_state.CLOSED, Event.FIN),
        (tcp_state.RESET, Event.SHUT_WRITE),
        (tcp_state.RESET, Event.TIME_OUT),
        (tcp_state.TIMED_OUT, Event.TIME_OUT),
        (tcp_state.ABORTED, Event.SHUT_WRITE),
    ],
)
def test_an_event_that_a_state_does_not_allow_is_our_mistake(state: State, event: Event) -> None:
    with pytest.raises(ImpossibleEventError, match=f"^a TCP connection in {state} has no {event.name}$"):
        step(state, event)


@pytest.mark.parametrize(
    ("states", "error"),
    [
        ((tcp_state.SYN_SENT, tcp_state.SYN_RECEIVED), errno.ECONNREFUSED),
        ((tcp_state.ESTABLISHED, tcp_state.FIN_WAIT_1, tcp_state.FIN_WAIT_2), errno.ECONNRESET),
        ((tcp_state.CLOSE_WAIT, tcp_state.CLOSING, tcp_state.LAST_ACK, tcp_state.CLOSED), errno.EPIPE),
        ((tcp_state.RESET, tcp_state.TIMED_OUT, tcp_state.ABORTED), 0),
    ],
)
def test_what_a_reset_means_depends_on_what_was_received(states: tuple[State, ...], error: int) -> None:
    assert [step(state, Event.RESET).error for state in states] == [error] * len(states)


def test_every_state_is_in_the_table_can_be_reached_and_can_be_left_early() -> None:
    assert set(TABLE) == set(STATES)
    reached = {tcp_state.SYN_SENT}
    for _ in STATES:
        reached |= {taken.state for state in reached for taken in TABLE[state].values()}
    assert reached == set(STATES)
    for state in STATES:
        assert step(state, Event.RESET).state.is_over
        assert step(state, Event.ABORT).state.refuses


def test_what_is_over_stays_over() -> None:
    for state, event in product(STATES, Event):
        if state.is_over and event in TABLE[state]:
            assert TABLE[state][event].state.is_over


def test_facts_of_a_state_agree_with_each_other() -> None:
    for state in STATES:
        assert [state.connects, state.is_open, state.is_over].count(True) == 1
        assert state.is_open or not (state.may_write or state.receives)
        assert state.is_over or not (state.is_broken or state.refuses)
        assert repr(state) == state.name
