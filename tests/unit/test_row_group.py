"""Rows of connections that are ready together are served together, each connection's in order, and none waits."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import Any, cast

import attrs
import pytest
import trio
import trio.testing

from rmq_actors.remoting.row_group import ROWS_MAX, ReceivedRows, RowGroup, RowsFailed
from rmq_actors.wire.send_rows import SendRow


@attrs.define(eq=False)
class Peer:
    """A connection as the group sees it."""

    name: str
    lane: Lane
    closed: str | None = None

    def close(self, reason: str) -> None:
        self.closed = reason

    def take_row_as_request(self, row: object) -> None:
        self.lane.served.append(f"{self.name} alone: {row}")


@attrs.define(eq=False)
class Lane:
    """What was served, call by call. Rows are numbers; those in `special` need the general door."""

    special: frozenset[int] = frozenset()
    served: list[str] = attrs.field(factory=list)

    def process(self, received: Sequence[ReceivedRows[Peer]]) -> Sequence[int]:
        counts: list[int] = []
        for _, rows in received:
            plain = [number for number, row in enumerate(cast("Sequence[int]", rows)) if row in self.special]
            counts.append(plain[0] if plain else len(rows))
        together = [
            f"{connection.name} {list(rows[:count])}"
            for (connection, rows), count in zip(received, counts, strict=True)
            if count
        ]
        if together:
            self.served.append(" + ".join(together))
        return counts


def peers(lane: Lane, names: str) -> list[Peer]:
    return [Peer(name, lane) for name in names]


def rows(*numbers: int) -> list[SendRow]:
    return cast("list[SendRow]", list(numbers))


async def add_together(group: RowGroup[Peer], added: dict[Peer, list[SendRow]]) -> None:
    async with trio.open_nursery() as nursery:
        for connection, its_rows in added.items():
            nursery.start_soon(group.add, connection, its_rows)


@pytest.mark.trio
async def test_rows_of_connections_that_are_ready_together_are_served_by_one_call() -> None:
    lane = Lane()
    a, b, c = peers(lane, "abc")
    group = RowGroup(lane.process)
    await add_together(group, {a: rows(1, 2), b: rows(3), c: rows(4)})
    assert len(lane.served) == 1
    assert sorted(lane.served[0].split(" + ")) == ["a [1, 2]", "b [3]", "c [4]"]


@pytest.mark.trio
async def test_rows_that_cannot_be_served_together_go_through_the_general_door_in_their_place() -> None:
    lane = Lane(special=frozenset({2, 3, 4}))
    (a,) = peers(lane, "a")
    RowGroup(lane.process).serve_at_once(a, rows(1, 2, 3, 4, 5))
    assert lane.served == ["a [1]", "a alone: 2", "a alone: 3", "a alone: 4", "a [5]"]


@pytest.mark.trio
async def test_a_special_row_of_one_connection_holds_up_no_other() -> None:
    lane = Lane(special=frozenset({1}))
    a, b = peers(lane, "ab")
    group = RowGroup(lane.process)
    await add_together(group, {a: rows(1, 2), b: rows(3, 4)})
    assert sorted(lane.served[1:]) == ["a [2]", "a alone: 1"] or lane.served[1:] == ["a alone: 1", "a [2]"]
    assert lane.served[0] == "b [3, 4]"


def until_it_lets_others_run(group: RowGroup[Peer], connection: Peer, its_rows: list[SendRow]) -> Any:
    """A call of `add` that is at its checkpoint; close it."""
    call: Any = group.add(connection, its_rows)
    call.send(None)
    return call


def test_a_connection_that_receives_again_has_its_rows_served_first() -> None:
    lane = Lane()
    a, b = peers(lane, "ab")
    group = RowGroup(lane.process)
    with contextlib.closing(until_it_lets_others_run(group, a, rows(1))):
        group.finish(b)
        assert not lane.served, "nothing of it was held"
        group.finish(a)
        assert lane.served == ["a [1]"]
        group.serve_at_once(a, rows(2))
        assert lane.served == ["a [1]", "a [2]"]


@pytest.mark.trio
async def test_what_was_received_is_served_though_its_connection_is_cancelled() -> None:
    lane = Lane()
    (a,) = peers(lane, "a")
    with trio.CancelScope() as scope:
        scope.cancel()
        await RowGroup(lane.process).add(a, rows(1))
    assert lane.served == ["a [1]"]


@pytest.mark.trio
async def test_many_rows_wait_for_nobody() -> None:
    lane = Lane()
    a, b = peers(lane, "ab")
    group = RowGroup(lane.process)
    with trio.testing.assert_no_checkpoints():
        await group.add(a, rows(*range(ROWS_MAX)))
    assert len(lane.served) == 1
    with contextlib.closing(until_it_lets_others_run(group, a, rows(1))), trio.testing.assert_no_checkpoints():
        await group.add(b, rows(*range(ROWS_MAX)))
    assert len(lane.served) == 2
    assert lane.served[1].startswith("a [1] + b [0, 1")


@pytest.mark.trio
async def test_a_connection_that_is_alone_seldom_looks_for_others() -> None:
    lane = Lane()
    a, b = peers(lane, "ab")
    group = RowGroup(lane.process)
    looked = 0

    async def count() -> None:
        nonlocal looked
        while True:
            await trio.lowlevel.checkpoint()
            looked += 1

    async with trio.open_nursery() as nursery:
        nursery.start_soon(count)
        for number in range(320):
            await group.add(a, rows(number))
        assert len(lane.served) == 320
        assert 8 <= looked <= 24
        nursery.cancel_scope.cancel()
    # Where others are met, all look for them again.
    for _ in range(33):
        await add_together(group, {a: rows(1), b: rows(2)})
    lane.served.clear()
    await add_together(group, {a: rows(1), b: rows(2)})
    assert len(lane.served) == 1


def test_connections_whose_rows_a_defect_has_left_without_an_answer_are_closed() -> None:
    """It may be an OSError, which would pass as the network's if it came out of one connection as it is."""
    lane = Lane()
    a, b, c = peers(lane, "abc")

    def fail(received: Sequence[ReceivedRows[Peer]]) -> Sequence[int]:
        raise OSError("a defect")

    async def main() -> None:
        group = RowGroup[Peer](fail)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(group.add, a, rows(1))
            nursery.start_soon(group.add, b, rows(2))

    with pytest.RaisesGroup(RowsFailed):
        trio.run(main)
    assert (a.closed, b.closed, c.closed) == ("rows_failed", "rows_failed", None)
