"""Cuts a slave's log where it diverges from its master's, as the command does, if haTruncateOnDivergence is set."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable

import attrs
import trio

from rmq_actors.actors.services.service import ServiceThread
from rmq_actors.broker.store_host import StoreHost
from rmq_actors.store.lifecycle.truncation import TruncationRefused

_log = logging.getLogger(__name__)

#: The pause before a failed truncation (a full disk, say) is tried again.
RETRY_INTERVAL_S = 60.0


class MasterReplaced(TruncationRefused):
    """The slave has halted on the word of a broker that is not the master any more, or only of an old term."""


@attrs.define(eq=False, repr=False)
class LogTruncationService(ServiceThread):
    """A Service of slaves. A halt that no truncation can end goes on."""

    name = "LogTruncationService"
    _host: StoreHost
    _truncate: Callable[[], Awaitable[None]]

    async def work(self, task_status: trio.TaskStatus[None]) -> None:
        """Wait for halts. A truncation that has begun is finished."""
        with self._host.ha_halts.subscribe() as halts:
            task_status.started()
            async for halt in halts:
                if halt.common_end is None:
                    continue
                try:
                    await self._truncate_if_told()
                except (TruncationRefused, OSError) as error:
                    _log.error("%s: the log is not cut at %d: %s", self.name, halt.common_end, error)
                    await trio.sleep(RETRY_INTERVAL_S)

    async def _truncate_if_told(self) -> None:
        if not self._host.config.ha.ha_truncate_on_divergence:
            return
        try:
            await self._truncate()
        except MasterReplaced as error:
            _log.warning("nothing is cut: %s", error)
            if self._host.followed is not None:
                self._host.followed.follow_again()
