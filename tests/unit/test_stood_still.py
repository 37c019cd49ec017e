"""A process that stood still has read nothing: it must not take its peers for silent because of that."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import attrs
import pytest
import trio
from trio.testing import MockClock

from rmq_actors.namesrv.broker_housekeeping_service import BrokerHousekeepingService
from rmq_actors.namesrv.route_table import Broker, RouteInfoManager
from rmq_actors.remoting.idle import close_idle_connections
from rmq_actors.tracing.event import RunInfo
from rmq_actors.tracing.recorder import Recorder
from rmq_actors.wire.bodies.topic_configs import TopicConfigSerializeWrapper

SILENT_S = 120.0
BROKER = Broker("DefaultCluster", "broker-a", 0, "10.0.0.1:10911")


@attrs.define(eq=False)
class Brokers:
    """A name server's table with one broker in it."""

    table: RouteInfoManager = attrs.field(factory=lambda: RouteInfoManager(SILENT_S))

    async def watch(self) -> None:
        tracer = Recorder(RunInfo("test", "stood_still", 0), lambda: (None, 0)).tracer("ns-1")
        await BrokerHousekeepingService(self.table, tracer).run()

    def hears(self) -> None:
        self.table.register_broker(BROKER, "", TopicConfigSerializeWrapper(), [], conn_id=1, now=trio.current_time())

    def is_there(self) -> bool:
        return self.table.broker_count == 1


@attrs.define(eq=False)
class Connections:
    """One connection, as `close_idle_connections` sees it."""

    idle_at_s: float = 0.0
    _is_open: bool = True

    async def watch(self) -> None:
        await close_idle_connections({1: self}, SILENT_S)  # type: ignore[dict-item]

    def hears(self) -> None:
        self.idle_at_s = trio.current_time() + SILENT_S

    def close(self, reason: str) -> None:
        assert reason == "idle"
        self._is_open = False

    def is_there(self) -> bool:
        return self._is_open


def run(test: Callable[[MockClock], Awaitable[None]]) -> None:
    clock = MockClock()
    trio.run(test, clock, clock=clock)


async def jump(clock: MockClock, seconds: float) -> None:
    """Let everybody who is due by then have a turn."""
    clock.jump(seconds)
    await trio.testing.wait_all_tasks_blocked()


@pytest.mark.parametrize("make", [Brokers, Connections])
def test_what_arrived_meanwhile_is_read_first(make: type[Brokers | Connections]) -> None:
    async def test(clock: MockClock) -> None:
        peers = make()
        peers.hears()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(peers.watch)
            await jump(clock, 1.0)
            await jump(clock, SILENT_S + 10.0)  # nobody had a turn for that long
            assert peers.is_there()
            peers.hears()
            await jump(clock, 60.0)
            assert peers.is_there()
            nursery.cancel_scope.cancel()

    run(test)


@pytest.mark.parametrize("make", [Brokers, Connections])
def test_who_said_nothing_meanwhile_is_silent_all_the_same(make: type[Brokers | Connections]) -> None:
    async def test(clock: MockClock) -> None:
        peers = make()
        peers.hears()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(peers.watch)
            await jump(clock, 1.0)
            await jump(clock, SILENT_S + 10.0)
            await jump(clock, 1.0)
            assert not peers.is_there()
            nursery.cancel_scope.cancel()

    run(test)


@pytest.mark.parametrize("make", [Brokers, Connections])
def test_who_is_silent_goes_when_it_is_due(make: type[Brokers | Connections]) -> None:
    async def test(clock: MockClock) -> None:
        peers = make()
        peers.hears()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(peers.watch)
            await jump(clock, SILENT_S - 0.5)
            assert peers.is_there()
            await jump(clock, 0.5)
            assert not peers.is_there()
            nursery.cancel_scope.cancel()

    run(test)
