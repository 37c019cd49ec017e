"""Accepts slaves' connections and hands them to the HAService (HAService.AcceptSocketService)."""

from __future__ import annotations

import errno
import logging

import attrs
import trio

from rmq_actors.actors.services.channels import BoundedChannel

_log = logging.getLogger(__name__)

ACCEPTED = BoundedChannel[trio.SocketStream].declare(
    "ha.accepted",
    16,
    carries="accepted connections",
    sender="AcceptSocketService",
    receiver="HAService",
)

#: A shortage that passes: wait and accept again, as trio.serve_listeners does.
_SHORTAGES = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ENOBUFS})
_SHORTAGE_PAUSE_S = 0.1


@attrs.define(eq=False, repr=False)
class AcceptSocketService:
    """Accepts on one listener until cancelled."""

    name = "AcceptSocketService"
    _listener: trio.SocketListener
    _accepted: trio.MemorySendChannel[trio.SocketStream]

    async def run(self) -> None:
        """Accept until cancelled. Raises `OSError` when the listener fails for good."""
        while True:
            try:
                stream = await self._listener.accept()
            except OSError as error:
                if error.errno not in _SHORTAGES:
                    raise
                _log.warning("%s: cannot accept a connection now: %s", self.name, error)
                await trio.sleep(_SHORTAGE_PAUSE_S)
            else:
                try:
                    await self._accepted.send(stream)
                except BaseException:
                    stream.socket.close()
                    raise
