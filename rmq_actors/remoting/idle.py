"""Closes connections on which no byte moved for too long (IdleStateHandler)."""

from __future__ import annotations

from collections.abc import Mapping

import trio

from rmq_actors.remoting.connection import RemotingConnection

#: If the task wakes later than this, the whole process stood still. Then what arrived meanwhile is read for a second
#: before anything counts as idle.
_STOOD_STILL_S = 0.1
_CATCH_UP_S = 1.0


async def close_idle_connections(connections: Mapping[int, RemotingConnection], idle_s: float) -> None:
    """Watch `connections`, which other tasks change, and close each one that is idle for too long. Never returns.

    Sleeps until the first one is due: a connection that begins, or moves a byte, meanwhile is due later.
    """
    while True:
        now_s = trio.current_time()
        wake_s = now_s + idle_s
        for connection in list(connections.values()):
            if connection.idle_at_s <= now_s:
                connection.close("idle")
            else:
                wake_s = min(wake_s, connection.idle_at_s)
        await trio.sleep_until(wake_s)
        stood_still = trio.current_time() - wake_s > _STOOD_STILL_S
        await trio.sleep(_CATCH_UP_S if stood_still else 0)
