"""The service that holds pulls: how many it holds, and how many it answers before others have a turn."""

from __future__ import annotations

from typing import cast

import attrs
import pytest
import trio
import trio.testing

from rmq_actors.broker import pull_request_hold_service
from rmq_actors.broker.pull_request_hold_service import (
    ANSWERED_AT_A_TIME,
    HELD_PULLS_MAX_BYTES,
    PullRequestHoldService,
    request_bytes,
)
from rmq_actors.remoting.connection import RemotingConnection, RemotingRequest
from rmq_actors.wire.remoting_command import RemotingCommand

QUEUE = ("T", 0)


@attrs.frozen(eq=False)
class _Connection:
    """Whose pulls they are."""


def request(connection: _Connection, command: RemotingCommand) -> RemotingRequest:
    return RemotingRequest(cast("RemotingConnection", connection), command, 0.0)


def test_pulls_whose_time_is_over_are_answered_a_few_at_a_time() -> None:
    answered, most = list[RemotingRequest](), 0

    async def main() -> None:
        nonlocal most
        service = PullRequestHoldService()
        service.answers_through(answered.append)
        connection = _Connection()
        for _ in range(100):
            assert service.hold(QUEUE, 0, trio.current_time() + 1, request(connection, RemotingCommand(11)))
        async with trio.open_nursery() as nursery:
            await nursery.start(service.work)
            await trio.testing.wait_all_tasks_blocked()
            assert not answered
            await trio.sleep(0.5)
            service.release({"T"})  # at once: their topic is gone
            before = 0
            while len(answered) < 100:
                await trio.lowlevel.checkpoint()
                most, before = max(most, len(answered) - before), len(answered)
            nursery.cancel_scope.cancel()

    trio.run(main, clock=trio.testing.MockClock(autojump_threshold=0))
    assert len(set(answered)) == 100
    assert most <= 2 * ANSWERED_AT_A_TIME  # the service may have two turns between two of this test


def test_a_request_counts_with_all_that_its_peer_has_written() -> None:
    command = RemotingCommand(11, {"a" * 1000: "b" * 1000}, remark="é" * 1000, body=bytes(1000))
    assert 7000 <= request_bytes(command) <= 9000


def test_of_long_requests_fewer_are_held(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pull_request_hold_service, "HELD_PULLS_MAX_BYTES", 100_000)
    service, one, two = PullRequestHoldService(), _Connection(), _Connection()
    longs = [request(one if number % 2 else two, RemotingCommand(11, body=bytes(9000))) for number in range(20)]
    assert [service.hold(QUEUE, 0, 1.0, each) for each in longs] == [True] * 9 + [False] * 11
    service.closed(longs[1].connection)
    assert service.held_count == 5
    assert service.hold(QUEUE, 0, 1.0, longs[0])
    assert HELD_PULLS_MAX_BYTES == 256 * 1024 * 1024
