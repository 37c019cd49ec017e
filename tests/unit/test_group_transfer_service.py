"""GroupTransferService: the store hears of each change at once, and of nothing else."""

from __future__ import annotations

from rmq_actors.ha.group_transfer_service import GroupTransferService
from rmq_actors.protocols.group_transfer import GroupTransfer, ReplicationState
from tests.worlds.recording import new_recorder


def test_the_store_hears_of_each_change_once() -> None:
    told: list[ReplicationState] = []
    recorder = new_recorder()
    service = GroupTransferService(GroupTransfer(), told.append, recorder.tracer("node"))
    assert told == []
    service.connected(1)
    service.connected(2)
    service.reported(1, 100)
    service.reported(2, 90)
    service.reported(1, 120)
    service.reported(1, 120)
    service.disconnected(1)
    service.reported(1, 130)
    assert told == [
        ReplicationState(1, 0),
        ReplicationState(2, 0),
        ReplicationState(2, 100),
        ReplicationState(2, 120),
        ReplicationState(1, 90),
    ]
    assert [event.offset for event in recorder.events if event.kind == "ha.replicated"] == [100, 120]


def test_a_store_that_needs_no_slave_is_told_so_at_the_start() -> None:
    told: list[ReplicationState] = []
    GroupTransferService(GroupTransfer(0), told.append, new_recorder().tracer("node"))
    assert told == [ReplicationState(0, 0, 0)]
