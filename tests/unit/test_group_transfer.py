"""GroupTransfer: whose reports count, and up to where enough slaves have the log."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmq_actors.protocols.group_transfer import GroupTransfer, ReplicationState
from rmq_actors.protocols.ha_master import SlaveAhead, SlaveReports
from rmq_actors.wire.ha_frames import encode_report


def test_one_slave() -> None:
    machine = GroupTransfer()
    assert machine.state() == ReplicationState(0, 0)
    assert machine.connected(1) == ReplicationState(1, 0)
    assert machine.reported(1, 100) == ReplicationState(1, 100)
    assert machine.disconnected(1) == ReplicationState(0, 0)


def test_the_kth_highest_counts() -> None:
    machine = GroupTransfer(acks_required=2)
    for conn_id, offset in ((1, 30), (2, 10), (3, 20)):
        machine.connected(conn_id)
        machine.reported(conn_id, offset)
    assert machine.state() == ReplicationState(3, 20, 2)
    assert machine.disconnected(1) == ReplicationState(2, 10, 2)
    # One slave is too few for two acks, however far it is.
    assert machine.disconnected(3).replicated_to == 0


def test_as_many_as_live_are_enough_but_not_fewer_than_the_least() -> None:
    machine = GroupTransfer(acks_required=2, acks_min=1)
    assert machine.state() == ReplicationState(0, 0, 1)
    machine.connected(1)
    assert machine.reported(1, 30) == ReplicationState(1, 30, 1)
    machine.connected(2)
    assert machine.reported(2, 10) == ReplicationState(2, 10, 2)
    assert machine.disconnected(2) == ReplicationState(1, 30, 1)


def test_a_master_that_may_go_on_alone_needs_no_slave_until_there_is_one() -> None:
    machine = GroupTransfer(acks_required=1, acks_min=0)
    assert not machine.state().is_needed
    assert machine.connected(1).is_needed


def test_a_report_of_a_dead_connection_does_not_count() -> None:
    machine = GroupTransfer()
    machine.connected(1)
    machine.disconnected(1)
    assert machine.reported(1, 100) == ReplicationState(0, 0)
    # Known bug S4: after all slaves went, an empty one joins; what the dead ones had must not acknowledge.
    assert machine.connected(2) == ReplicationState(1, 0)


def test_a_report_before_the_connection_does_not_count() -> None:
    assert GroupTransfer().reported(1, 100) == ReplicationState(0, 0)


def test_a_second_disconnection_is_no_error() -> None:
    machine = GroupTransfer()
    machine.connected(1)
    machine.disconnected(1)
    assert machine.disconnected(1) == ReplicationState(0, 0)


def test_known_bug_3015_a_stray_report_never_becomes_an_ack() -> None:
    """One raw report of 2^40, the first on its connection, is refused before it reaches GroupTransfer."""
    machine = GroupTransfer()
    machine.connected(1)
    with pytest.raises(SlaveAhead, match=r"1099511627776.*ends at 5000"):
        SlaveReports(0.0, 20.0).receive(encode_report(1 << 40), 0.0, min_offset=0, max_offset=5000)
    assert machine.disconnected(1).replicated_to == 0


@pytest.mark.parametrize(
    ("state", "put_where", "ok"),
    [
        (ReplicationState(0, 1000), 1000, False),
        (ReplicationState(1, 0), 99, True),
        (ReplicationState(1, 0), 100, False),
        (ReplicationState(1, 900), 999, True),
        (ReplicationState(1, 900), 1000, False),
        # Two acks are wanted and one slave lives: no put can be confirmed, so none may wait.
        (ReplicationState(1, 900, 2), 999, False),
        (ReplicationState(2, 900, 2), 999, True),
    ],
)
def test_is_slave_ok(state: ReplicationState, put_where: int, ok: bool) -> None:
    assert state.is_slave_ok(put_where, 100) is ok


@given(
    st.integers(1, 3),
    st.lists(
        st.tuples(st.sampled_from(("connected", "reported", "disconnected")), st.integers(1, 4), st.integers(0, 50))
    ),
)
def test_state_is_that_of_the_live_connections(acks: int, events: list[tuple[str, int, int]]) -> None:
    machine, live = GroupTransfer(acks), dict[int, int]()
    for what, conn_id, offset in events:
        if what == "connected":
            state = machine.connected(conn_id)
            live.setdefault(conn_id, 0)
        elif what == "reported":
            state = machine.reported(conn_id, offset)
            if conn_id in live:
                live[conn_id] = offset
        else:
            state = machine.disconnected(conn_id)
            live.pop(conn_id, None)
        assert state.live_slaves == len(live)
        # At least `acks` live slaves have the offset, and no greater one is reached by so many.
        assert state.replicated_to == 0 or sum(1 for at in live.values() if at >= state.replicated_to) >= acks
        assert all(
            sum(1 for at in live.values() if at >= higher) < acks for higher in range(state.replicated_to + 1, 52)
        )
