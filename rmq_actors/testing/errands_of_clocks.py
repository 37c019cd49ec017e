"""Errands of operators who set a broker's clock wrong, and right again: what waits does not come early, nor late."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator

import trio

from rmq_actors.testing.brokers import CHECK_INTERVAL_MS
from rmq_actors.testing.errand import Errand, GivenUp
from rmq_actors.testing.errands_of_transactions import is_asked, join, prepare
from rmq_actors.testing.thin_client import ThinClient
from rmq_actors.wire.dispatch_request import DELAY_LEVELS_MS, PROPERTY_DELAY
from rmq_actors.wire.record import TRANSACTION_ROLLBACK_TYPE
from rmq_actors.wire.response_code import ResponseCode
from sim_net import ClockJump

_WRONG_MS = 3_600_000
#: By when a round has looked at a half message that came before.
_LOOKED_AT_S = CHECK_INTERVAL_MS / 1000 + 0.5
_SOON_LEVEL, _LATER_LEVEL = 1, 2
#: What the topic has at last: a message that makes it, and two.
_ALL = 3
#: How late a delayed message comes at most.
_LATE_S = 2.0


async def check_at_a_wrong_clock(errand: Errand) -> str:
    """A half message that waits is asked about in its time, though the clock is set back meanwhile."""
    async with errand.visitor() as producer:
        await join(errand, producer)
        half = await prepare(errand, producer)
        await trio.sleep(_LOOKED_AT_S)
        if producer.asked:
            raise GivenUp  # the clock is ahead of its client's
        async with _wrong_clock(errand, -_WRONG_MS):
            if not await is_asked(producer):
                return f"the half message at {half.offset} is not asked about since a clock was set back"
        await producer.client.end(producer.asked[-1], TRANSACTION_ROLLBACK_TYPE, errand.group)
        return ""


async def delays_at_a_wrong_clock(errand: Errand) -> str:
    """Delayed messages come after their delay, whatever clock was set while others came."""
    later_s = DELAY_LEVELS_MS[_LATER_LEVEL - 1] / 1000
    async with errand.visitor() as client:
        await errand.send(client.client, b"0")
        await _delay(errand, client.client, _SOON_LEVEL)
        await trio.sleep(0.1)
        async with _wrong_clock(errand, _WRONG_MS if errand.below(2) else -_WRONG_MS):
            asked_s = trio.current_time()
            await _delay(errand, client.client, _LATER_LEVEL)
            found = await errand.read(client.client, limit_s=later_s + _LATE_S, count=_ALL)
            waited_s = trio.current_time() - asked_s
        if len(found.messages) < _ALL:
            return f"{waited_s:.3f} s after a message was delayed by {later_s:g} s it is not there"
        return "" if waited_s >= later_s else f"a message that was delayed by {later_s:g} s came after {waited_s:.3f} s"


async def _delay(errand: Errand, client: ThinClient, level: int) -> None:
    code, _ = await client.send(errand.topic, b"%d" % level, 0, {PROPERTY_DELAY: f"{level}", "KEYS": f"{level}"})
    if code != ResponseCode.SUCCESS:
        raise GivenUp


@contextlib.asynccontextmanager
async def _wrong_clock(errand: Errand, by_ms: int) -> AsyncIterator[None]:
    """The master's clock is wrong for the length of a block."""
    await _set_clock(errand, by_ms)
    try:
        yield
    finally:
        with trio.CancelScope(shield=True):
            await _set_clock(errand, -by_ms)


async def _set_clock(errand: Errand, by_ms: int) -> None:
    world = errand.brokers.world
    world.apply(ClockJump(at_s=world.now_s, node=errand.master, by_ms=by_ms), len(world.faults))
    await trio.sleep(0.001)  # it is set by then
