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


def auto(acks_required: int = 2, acks_min: int = 1) -> GroupTransfer:
    """A machine with enableAutoInSyncReplicas."""
    return GroupTransfer(acks_required, acks_min)


def test_as_many_as_are_in_sync_are_enough_but_not_fewer_than_the_least() -> None:
    machine = auto()
    assert machine.state().seen_from(30, 100) == ReplicationState(0, 0, 1)
    machine.connected(1)
    assert machine.reported(1, 30).seen_from(30, 100) == ReplicationState(1, 30, 1)
    machine.connected(2)
    assert machine.reported(2, 10).seen_from(30, 100) == ReplicationState(2, 10, 2)
    assert machine.disconnected(2).seen_from(30, 100) == ReplicationState(1, 30, 1)


def test_a_slave_that_is_too_far_behind_is_not_waited_for() -> None:
    machine = auto()
    for conn_id, offset in ((1, 150), (2, 0)):
        machine.connected(conn_id)
        machine.reported(conn_id, offset)
    assert machine.state().seen_from(99, 100) == ReplicationState(2, 0, 2)
    assert machine.state().seen_from(100, 100) == ReplicationState(2, 150, 1)
    # However far all are: the least number must have it.
    assert machine.state().seen_from(1000, 100) == ReplicationState(2, 150, 1)


def test_a_master_that_may_go_on_alone_needs_no_slave_until_one_is_in_sync() -> None:
    machine = auto(1, 0)
    assert not machine.state().seen_from(500, 100).is_needed
    # Whoever has said nothing may be no slave at all.
    assert not machine.connected(1).seen_from(50, 100).is_needed
    assert not machine.reported(1, 0).seen_from(500, 100).is_needed
    assert machine.reported(1, 401).seen_from(500, 100) == ReplicationState(1, 401, 1)


def test_without_auto_it_is_the_same_from_everywhere() -> None:
    machine = GroupTransfer()
    machine.connected(1)
    assert machine.reported(1, 10).seen_from(1000, 100) == ReplicationState(1, 10, 1)


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


def two_connections_from(host: str) -> GroupTransfer:
    machine = GroupTransfer(acks_required=2)
    machine.connected(1, host)
    machine.reported(1, 100)
    machine.connected(2, host)
    return machine


def test_a_slave_that_is_connected_twice_counts_once() -> None:
    """RocketMQ 5 counts the connection that was lost, too, until that has been silent for too long."""
    machine = two_connections_from("10.0.0.2")
    assert machine.reported(2, 90).replicated_to == 0
    machine.connected(3, "10.0.0.3")
    assert machine.reported(3, 95).replicated_to == 95
    assert machine.disconnected(1).replicated_to == 90


def test_two_slaves_on_one_host_count_once_both_have_told_again() -> None:
    machine = two_connections_from("10.0.0.2")
    machine.reported(2, 90)
    assert machine.reported(1, 100).replicated_to == 90


def test_what_a_lost_connection_has_told_still_counts_for_one() -> None:
    machine = GroupTransfer()
    machine.connected(1, "10.0.0.2")
    machine.reported(1, 100)
    assert machine.connected(2, "10.0.0.2").replicated_to == 100
    assert machine.reported(2, 90).replicated_to == 100


@given(
    st.integers(1, 3),
    st.lists(
        st.tuples(st.sampled_from(("connected", "reported", "disconnected")), st.integers(1, 5), st.integers(0, 50))
    ),
)
def test_never_more_slaves_count_than_could_be_there(acks: int, events: list[tuple[str, int, int]]) -> None:
    """Connections 1 to 3 are from one host: of those silent since the youngest came, one slave at most."""
    machine, live, since = GroupTransfer(acks), dict[int, int | None](), dict[int, bool]()
    for what, conn_id, offset in events:
        host = "10.0.0.2" if conn_id <= 3 else ""
        if what == "connected" and conn_id not in live:
            machine.connected(conn_id, host)
            since.update(dict.fromkeys((each for each in live if each <= 3), False) if host else {})
            live[conn_id], since[conn_id] = None, True
        elif what == "reported":
            machine.reported(conn_id, offset)
            if conn_id in live:
                live[conn_id], since[conn_id] = offset, True
        elif what == "disconnected":
            machine.disconnected(conn_id)
            live.pop(conn_id, None)
        state = machine.state()
        has = {conn_id for conn_id, each in live.items() if each is not None and each >= state.replicated_to}
        sure = {conn_id for conn_id in has if since[conn_id]}
        slaves = len(sure) + bool(has - sure and not any(conn_id <= 3 for conn_id in sure))
        assert state.replicated_to == 0 or slaves >= acks
