"""Cuts a slave's log where it diverges from its master's, as the command does, if haTruncateOnDivergence is set."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable

import attrs
import trio

from rmq_actors.actors.services.channels import Broadcast
from rmq_actors.actors.services.service import ServiceThread
from rmq_actors.protocols.following import Halt
from rmq_actors.store.lifecycle.truncation import TruncationRefused

_log = logging.getLogger(__name__)

#: The pause before a failed truncation (a full disk, say) is tried again.
RETRY_INTERVAL_S = 60.0


@attrs.define(eq=False)
class LogTruncationService(ServiceThread):
    """A Service of slaves. A halt that no truncation can end goes on."""

    name = "LogTruncationService"
    _halts: Broadcast[Halt]
    _truncate: Callable[[], Awaitable[None]]

    async def work(self, task_status: trio.TaskStatus[None]) -> None:
        """Wait for halts. A truncation that has begun is finished."""
        with self._halts.subscribe() as halts:
            task_status.started()
            async for halt in halts:
                if halt.common_end is None:
                    continue
                try:
                    await self._truncate()
                except (TruncationRefused, OSError) as error:
                    _log.error("%s: the log is not cut at %d: %s", self.name, halt.common_end, error)
                    await trio.sleep(RETRY_INTERVAL_S)
