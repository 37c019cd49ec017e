"""`SoleSender`: several tasks have something to send on one socket, and one of them sends at a time."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import NoReturn

import attrs
import trio


@attrs.define(eq=False, repr=False)
class SoleSender:
    """Runs `send_due`, which sends all that is due and looks again after each send, in one task at a time.

    `wake_at` says when a heartbeat is due if nothing else is sent, in trio time.
    """

    _send_due: Callable[[], Awaitable[None]]
    _wake_at: Callable[[], float]
    #: Whether a task is sending. Not a lock: it is looked at for each put, and hardly ever waited for.
    is_sending: bool = attrs.field(default=False, init=False)
    _waiting: trio.lowlevel.ParkingLot = attrs.field(factory=trio.lowlevel.ParkingLot, init=False)

    async def send(self) -> bool:
        """Send what is due, unless another task is sending: that one looks again. Returns whether this task did it."""
        if self.is_sending:
            return False
        self.is_sending = True
        try:
            await self._send_due()
        finally:
            self.is_sending = False
            self._waiting.unpark_all()
        return True

    async def keep_alive(self) -> NoReturn:
        """Send heartbeats when they are due, until it is cancelled or a send fails."""
        while True:
            await trio.sleep_until(self._wake_at())
            while not await self.send():
                await self._waiting.park()  # a heartbeat is due for as long as a send is stuck
