"""Ports of brokers that are down, kept for their return.

Linux gives any free port of its range to an outgoing connection, and so does a connection to a port where nobody
listens: it may even be connected to itself. A socket that is bound, and does not listen, keeps a port from both, and
answers nobody. The broker may listen there beside it, as both have SO_REUSEADDR.
"""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Iterable

import attrs


@attrs.define(eq=False, repr=False)
class HeldPorts(contextlib.AbstractContextManager["HeldPorts"]):
    """The ports that are held, by the broker's name. All are let go of at the end of the block."""

    _held: dict[str, contextlib.ExitStack] = attrs.field(factory=dict, init=False)

    def __exit__(self, *_: object) -> None:
        for name in list(self._held):
            self.let_go(name)

    def hold(self, name: str, host: str, ports: Iterable[int]) -> None:
        """Keep a broker's ports. One that somebody has taken already is not held: the broker's start will say so."""
        held = self._held.setdefault(name, contextlib.ExitStack())
        for port in ports:
            holder = held.enter_context(socket.socket())
            holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            with contextlib.suppress(OSError):
                holder.bind((host, port))

    def let_go(self, name: str) -> None:
        """End holding the ports of a broker; it may be that none is held."""
        self._held.pop(name, contextlib.ExitStack()).close()
