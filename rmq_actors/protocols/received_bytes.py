"""Bounds the bytes that a server's receive buffers hold, per address and in all; says which connection to close.

    connection ── its buffer is 4 MiB now ──▶ ReceivedBytes ──▶ nobody, or the connection that is to be closed

A buffer is small unless a long frame is on its way, so large ones are what is counted: a frame of 16 MiB that never
ends, on each of a thousand connections, would take the machine's memory. Where the limit of an address is passed, the
connection of that address goes that holds most; where the limit of all is, the one that holds most of all. So clients
with short frames outlive a peer that piles up long ones.

Pure. What is counted is what `FrameReader` has allocated.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Generic, TypeVar

import attrs

ConnectionT = TypeVar("ConnectionT", bound=Hashable)


@attrs.define(eq=False, repr=False)
class ReceivedBytes(Generic[ConnectionT]):
    """The large buffers by connection. Tell each change with `holds`, and each end with `closed`."""

    #: What all connections may hold, and those of one address.
    max_bytes: int
    per_address_max_bytes: int
    #: The address of each connection with a large buffer, and the size of the buffer.
    _held: dict[ConnectionT, tuple[str, int]] = attrs.field(factory=dict, init=False)
    _of_address: dict[str, int] = attrs.field(factory=dict, init=False)
    total_bytes: int = attrs.field(default=0, init=False)

    def holds(self, connection: ConnectionT, address: str, size_bytes: int) -> ConnectionT | None:
        """A connection's buffer has another size, 0 for one that is not large; which connection must be closed.

        That one counts no more: its buffer goes with it.
        """
        self.closed(connection)
        if not size_bytes:
            return None
        self._held[connection] = address, size_bytes
        self._of_address[address] = self._of_address.get(address, 0) + size_bytes
        self.total_bytes += size_bytes
        if self._of_address[address] > self.per_address_max_bytes:
            return self._give_up(address)
        if self.total_bytes > self.max_bytes:
            return self._give_up(None)
        return None

    def closed(self, connection: ConnectionT) -> None:
        """A connection holds nothing any more."""
        held = self._held.pop(connection, None)
        if held is None:
            return
        address, size_bytes = held
        self.total_bytes -= size_bytes
        self._of_address[address] -= size_bytes
        if not self._of_address[address]:
            del self._of_address[address]

    def _give_up(self, address: str | None) -> ConnectionT:
        """The connection that holds most, of an address or of all; of several the one that came to hold it first."""
        found = max(
            (each for each, held in self._held.items() if address in (None, held[0])),
            key=lambda each: self._held[each][1],
        )
        self.closed(found)
        return found
